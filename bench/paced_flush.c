/* paced_flush: the yardstick for a disk: one write + fdatasync at a time, at an even pace, nothing
 * else.
 *
 *   paced_flush FILE RATE SECONDS BYTES      BYTES 0: no disk, only the timer
 *
 * Prints how long write + fdatasync took (not counting any delay before it), and how late the timer
 * was. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "disk_file.h"
#include "hist.h"

int main(int argc, char **argv)
{
    double rate = argc == 5 ? atof(argv[2]) : 0, seconds = argc == 5 ? atof(argv[3]) : 0;
    size_t bytes = argc == 5 ? strtoul(argv[4], NULL, 10) : 0;
    struct hist *took = hist_new(), *late = hist_new();
    struct disk_file file;
    int64_t start_ns;

    if (rate <= 0 || seconds <= 0) {
        fprintf(stderr, "usage: paced_flush FILE RATE SECONDS BYTES\n");
        return 2;
    }
    if (bytes > 0)
        disk_file_open(&file, argv[1], bytes);
    start_ns = clock_mono_ns() + 100 * NS_PER_MS;
    for (int64_t n = 0; (double)n < rate * seconds; n++) {
        int64_t due_ns = start_ns + (int64_t)((double)n * 1e9 / rate), begin_ns;

        wait_until(due_ns);
        begin_ns = clock_mono_ns();
        hist_add(late, begin_ns - due_ns);
        if (bytes > 0)
            disk_file_append(&file, bytes);
        hist_add(took, clock_mono_ns() - begin_ns);
    }
    printf(
        "p50_ms %.3f\np99_ms %.3f\nlate_p50_ms %.3f\nlate_p99_ms %.3f\n",
        (double)hist_percentile_ns(took, 0.5) / 1e6, (double)hist_percentile_ns(took, 0.99) / 1e6,
        (double)hist_percentile_ns(late, 0.5) / 1e6, (double)hist_percentile_ns(late, 0.99) / 1e6);
    if (bytes > 0)
        disk_file_close(&file);
    hist_free(took);
    hist_free(late);
    return 0;
}

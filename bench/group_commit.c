/* group_commit: the yardstick for a log: an in-process group commit on a bare file, without format,
 * HTTP or threads. Open loop: records come due at an even pace whatever the disk does; a flush
 * takes all that are due, begins at once when idle, and no sooner than 500 us after the one before
 * it began.
 *
 *   group_commit FILE RATE SECONDS BYTES
 *
 * Prints the time from due to flushed. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "disk_file.h"
#include "hist.h"

#define SPACING_NS (500 * NS_PER_US)
enum { BATCH_BYTES_MAX = 256 * 1024 };

int main(int argc, char **argv)
{
    double rate = argc == 5 ? atof(argv[2]) : 0, seconds = argc == 5 ? atof(argv[3]) : 0;
    size_t bytes = argc == 5 ? strtoul(argv[4], NULL, 10) : 0;
    struct hist *latency = hist_new();
    int64_t start_ns, flush_ns = 0, done = 0, total;
    struct disk_file file;

    if (rate <= 0 || seconds <= 0 || bytes == 0 || bytes > BATCH_BYTES_MAX) {
        fprintf(stderr, "usage: group_commit FILE RATE SECONDS BYTES\n");
        return 2;
    }
    disk_file_open(&file, argv[1], BATCH_BYTES_MAX);
    total = (int64_t)(rate * seconds);
    start_ns = clock_mono_ns() + 100 * NS_PER_MS;
    while (done < total) {
        int64_t due_ns = start_ns + (int64_t)((double)done * 1e9 / rate), now_ns, batch;

        wait_until(due_ns > flush_ns + SPACING_NS ? due_ns : flush_ns + SPACING_NS);
        flush_ns = clock_mono_ns();
        batch = (int64_t)((double)(flush_ns - start_ns) * rate / 1e9) + 1 - done;
        if (batch > total - done)
            batch = total - done;
        if (batch > BATCH_BYTES_MAX / (int64_t)bytes)
            batch = BATCH_BYTES_MAX / (int64_t)bytes;
        disk_file_append(&file, (size_t)batch * bytes);
        now_ns = clock_mono_ns();
        for (; batch > 0; batch--, done++)
            hist_add(latency, now_ns - start_ns - (int64_t)((double)done * 1e9 / rate));
    }
    printf("p50_ms %.3f\np99_ms %.3f\n", (double)hist_percentile_ns(latency, 0.5) / 1e6,
           (double)hist_percentile_ns(latency, 0.99) / 1e6);
    disk_file_close(&file);
    hist_free(latency);
    return 0;
}

/* disk_file.h: the file that the disk yardsticks write: made anew, zero-filled, flushed, so that a
 * later write changes no size and its flush is one device write. Ends the program with a message on
 * error. */
#ifndef SLUICE_BENCH_DISK_FILE_H
#define SLUICE_BENCH_DISK_FILE_H

#include <stddef.h>
#include <stdint.h>

enum { DISK_FILE_BYTES = 8 * 1024 * 1024 };

struct disk_file {
    int fd;
    size_t at;         /* where the next record goes; starts again at the end */
    char *record;      /* what is written, over and over */
    size_t record_max; /* bytes in record */
};

void disk_file_open(struct disk_file *file, const char *path, size_t record_max);
void disk_file_append(struct disk_file *file, size_t bytes); /* write + fdatasync */
void disk_file_close(struct disk_file *file);

/* Until then by clock_mono_ns: sleeps, and stays awake for the last 50 us, as sluice-loadgen does.
 */
void wait_until(int64_t mono_ns);

#endif

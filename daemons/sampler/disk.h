/* disk.h: what the block device under a folder has written so far, of all that the machine does.
 *
 * /proc/PID/io tells what a process dirtied, by whole folios of the page cache: for small appends
 * to a file that can be many times what reaches the disk. The device knows. It does not know for
 * whom: a figure from here holds everybody's writes. No state, thread-safe.
 */
#ifndef SLUICE_SAMPLER_DISK_H
#define SLUICE_SAMPLER_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct disk_totals { /* since boot */
    uint64_t read_bytes;
    uint64_t write_bytes;
    uint64_t flushes;   /* requests to the device to make durable what it holds */
    bool flushes_known; /* kernels before 5.5 do not count them */
};

enum { DISK_NAME_BYTES = 64 };

/* The whole disk that dir lies on, by its name in /proc/diskstats ("vda"): of a partition its disk,
 * of a volume on one disk that disk. sys_root: "/sys". -ENODEV and a sentence when there is no such
 * one (several disks, a network, memory). */
int disk_find(const char *sys_root, const char *dir, char name[DISK_NAME_BYTES], struct err *err);

/* The same for a device number. */
int disk_find_number(const char *sys_root, unsigned major_number, unsigned minor_number,
                     char name[DISK_NAME_BYTES], struct err *err);

/* 0; -ENOENT: no such disk; -EBADMSG: not what the kernel documents. */
int disk_parse(const char *text, size_t len, const char *name, struct disk_totals *totals);
int disk_read(const char *proc_root, const char *name, struct disk_totals *totals);

#endif

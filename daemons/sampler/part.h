/* part.h: one watched part of a run: its name, and which process its pid file means right now.
 *
 * Parts are killed and started again, so the file is read at every look. A pid file outlives its
 * process, and the kernel gives pids again: a process that began after the file was written, or
 * that is not the one that an unchanged file meant before, is somebody else's. One thread.
 */
#ifndef SLUICE_SAMPLER_PART_H
#define SLUICE_SAMPLER_PART_H

#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "base/err.h"
#include "procfs.h"

struct part {
    char *who;
    char *pid_file;       /* NULL: pid is fixed */
    pid_t pid;            /* as the file said at the last look; 0: none */
    uint64_t start_ticks; /* of the process that was taken for it; 0: none was yet */
    struct timespec written;
    ino_t inode;
};

/* "worker=/run/pids/worker". who: letters, digits, "-", "_". -EINVAL and a sentence. */
int part_parse(const char *text, struct part *part, struct err *err);
void part_free(struct part *part);

/* The process in table that the part is, or 0. boot_wall_us: when the machine was started, by the
 * wall clock (part_boot_wall_us). */
pid_t part_resolve(struct part *part, const struct proc_table *table, int64_t boot_wall_us);
int64_t part_boot_wall_us(void);

#endif

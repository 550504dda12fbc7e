/* tree.h: the resources of one part of a run, over all its processes and all its incarnations.
 *
 * A part is the process that its pid file names, everything below it, and whatever was below it
 * once and still lives (the backends of a server that was killed). Totals only grow: a part that is
 * killed and started again goes on where it was. A child's figures move into its parent's when it
 * is waited for; they are not counted twice. What a process used between the last look and its end
 * is seen only when its parent belongs to the part and waits for it; otherwise up to one interval
 * of it is lost.
 *
 * Owned by its maker, one thread.
 */
#ifndef SLUICE_SAMPLER_TREE_H
#define SLUICE_SAMPLER_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "procfs.h"

struct tree;

enum tree_memory_kind {
    TREE_MEMORY_NONE,  /* no process lives: 0 bytes */
    TREE_MEMORY_RSS,   /* one process */
    TREE_MEMORY_PSS,   /* several: memory that they share is counted once */
    TREE_MEMORY_BOUND, /* several, PSS not readable: the sum of their RSS, an upper bound */
};

struct tree_sample {
    unsigned processes; /* alive now; ended ones that nobody has waited for yet are none */
    uint64_t cpu_ticks; /* so far */
    bool io_known;      /* false: /proc/PID/io may not be read, the two below mean nothing */
    uint64_t read_bytes;
    uint64_t write_bytes;
    enum tree_memory_kind memory_kind;
    uint64_t memory_bytes;
    int64_t memory_age_ns; /* PSS is costly to read, so it may be older than the rest */
};

struct tree *tree_new(const char *proc_root); /* keeps the pointer */
void tree_free(struct tree *tree);

enum { TREE_ALL = -1 };
/* Looks at the processes of table below root (0: there is none now; TREE_ALL: every process of the
 * table belongs to the part). now_ns: clock_mono_ns(). */
void tree_update(struct tree *tree, const struct proc_table *table, pid_t root, int64_t now_ns,
                 struct tree_sample *sample);

/* The processes found by the last update; valid until the next. */
const pid_t *tree_pids(const struct tree *tree, size_t *count);
/* Changes whenever a process joins. */
uint64_t tree_generation(const struct tree *tree);

#endif

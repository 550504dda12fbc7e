/* pod_part.h: which processes of a pod's pid namespace are the part, and how its main one is.
 * Owned by its maker, one thread. */
#ifndef SLUICE_SAMPLER_POD_PART_H
#define SLUICE_SAMPLER_POD_PART_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "procfs.h"

enum { CGROUP_TEXT_BYTES = 4096 };

enum main_state { MAIN_GONE, MAIN_RUNS, MAIN_STUCK, MAIN_FROZEN };

struct pod_part {
    const char *proc_root, *cgroup_root;
    pid_t self;
    char own_group[CGROUP_TEXT_BYTES]; /* /proc/self/cgroup */
    bool groups_tell;                  /* are containers told apart by it? */
    pid_t main;                        /* 0: none */
    uint64_t start_ticks;              /* of main: with the pid its identity */
    char group[CGROUP_TEXT_BYTES];     /* /proc/MAIN/cgroup */
    uint64_t stuck_ticks;              /* CPU of main at the last look, */
    unsigned stuck_looks;              /* and how many looks it has stood still in the kernel */
};

void pod_part_init(struct pod_part *part, const char *proc_root, const char *cgroup_root,
                   pid_t self);

/* Looks for a main process when there is none. true: there is a new one. */
bool pod_part_find(struct pod_part *part);

/* MAIN_STUCK: all its threads wait in the kernel. That is what cgroup v1's freezer looks like from
 * outside, and a slow disk for a moment: it is MAIN_FROZEN when it lasts for several looks without
 * any CPU, if no freezer's state is to be read. A main process that is gone is forgotten. */
enum main_state pod_part_look(struct pod_part *part);

/* Reads the group of the main process again: a container's first process may be put into it late.
 */
void pod_part_read_group(struct pod_part *part);

/* All processes of the part, as a table of their own. Negative errno when /proc cannot be read. */
int pod_part_processes(const struct pod_part *part, struct proc_table *table);

#endif

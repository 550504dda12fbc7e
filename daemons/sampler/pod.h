/* pod.h: watches one part of a run from beside it: a process that shares the part's process and
 * network namespaces, but not its control group, and outlives it.
 *
 * The part is whatever lives in the pid namespace and not in our own control group; its main
 * process is the oldest of those whose parent is outside. Where control groups do not tell (no
 * containers), it is every process but ourselves.
 *
 * A part is up once it was ready. When it vanishes or stands still after that, there is a `fault`
 * (kill, term, exit, pause), and when it runs and is ready again, `recovered`. Nothing is said of
 * its first start, nor when it had told in its own file of events that its work is complete, nor
 * once the run's folder holds a file "over".
 *
 * Seen from outside, an end is an end: only what the part wrote about it tells `docker stop` from
 * `docker kill`. A server that writes no such file is always said to be killed. The time of a fault
 * is that of the last look at which all was well, so that nothing it hit counts as undisturbed.
 *
 * Figures come from the part's control group (cgroup v2 or v1; with v1 those of its disk from /proc
 * where that may be read); where it is not to be seen, from /proc, which is said once. Totals only
 * grow: a group that was made anew begins at 0, and is added to what the ones before it used. Owned
 * by its maker, one thread.
 */
#ifndef SLUICE_SAMPLER_POD_H
#define SLUICE_SAMPLER_POD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "metrics/metrics.h"

struct pod;

struct pod_settings { /* everything in it must outlive the pod */
    const char *who;
    const char *proc_root;    /* "/proc" */
    const char *cgroup_root;  /* "/sys/fs/cgroup" */
    pid_t self;               /* our own process id there */
    const char *run_folder;   /* where "over" and the part's WHO-N.jsonl appear; NULL: nowhere */
    bool (*ready)(void *arg); /* NULL: ready once it has run for half a second */
    void *ready_arg;
    struct metrics *metrics;
};

/* What the network figures mean; for the start event. */
extern const char pod_net_note[];

struct pod *pod_new(const struct pod_settings *settings);
void pod_free(struct pod *pod);

/* Another run has begun: its metrics, its folder. What was wrong in the last one is forgotten. */
void pod_follow(struct pod *pod, struct metrics *metrics, const char *run_folder);

/* Is the part there, does it run? Every 50 ms; writes fault and recovered. */
void pod_look(struct pod *pod);
/* Writes `os`. Negative errno and a sentence when /proc cannot be read. */
int pod_tick(struct pod *pod, struct err *err);

#endif

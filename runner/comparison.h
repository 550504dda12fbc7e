/* comparison.h: the folder of a comparison, and which of its runs are there already. */
#ifndef SLUICE_RUNNER_COMPARISON_H
#define SLUICE_RUNNER_COMPARISON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "scenario.h"

/* Makes RUNS/<scenario>-<time>/ (with -2, -3 ... when that is taken). *dir is absolute; free it. */
int comparison_create(const char *runs, const char *scenario_name, char **dir, struct err *err);

/* Lets others than its owner write in a fresh folder: those of the access list that it has from the
 * folder above, or, without one, everybody. */
int comparison_share(const char *dir, struct err *err);

/* Writes into the folder who makes the comparison: `sluice run`, against these sinks ("rabbit wal",
 * sorted), through "native" or "compose". */
int comparison_sign(const char *dir, const char *sinks, const char *through, struct err *err);

/* The newest folder of that scenario in RUNS that holds a run with the very same scenario, whatever
 * its outcome, and was signed alike; *dir NULL: there is none at all. Free it. -EINVAL: there are
 * only others, and which one is the newest. */
int comparison_find(const char *runs, const struct scenario *scenario, const char *sinks,
                    const char *through, char **dir, struct err *err);

enum comparison_run { COMPARISON_RUN_ABSENT, COMPARISON_RUN_OTHER, COMPARISON_RUN_COMPLETE };

/* What lies in a run's folder: nothing; one that is not complete, or of another scenario
 * (fault_bits included); a complete one. */
enum comparison_run comparison_look(const char *run_dir, const struct scenario *scenario,
                                    uint32_t fault_bits);

/* The seed that runs of this repeat in the folder have, if there are any. */
bool comparison_seed(const char *dir, unsigned repeat, uint64_t *seed);

/* What the manifest of a run's folder says. */
struct comparison_manifest {
    char outcome[16]; /* complete, interrupted, failed */
    char why[512];    /* of the last two */
    uint64_t seed;
    unsigned repeat;
    bool same; /* the very same scenario, faults aside */
};
/* -ENOENT: there is none that can be read. */
int comparison_manifest_read(const char *run_dir, const struct scenario *scenario,
                             struct comparison_manifest *out, struct err *err);
/* From now on it says that the run was interrupted, and why. */
int comparison_manifest_void(const char *run_dir, const char *why, struct err *err);

#endif

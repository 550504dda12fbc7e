/* background.h: work that servers and logs do beside what they are asked for (checkpoints, vacuums,
 * rewrites, rotations): what was forced on them, what they did by themselves, what never came. */
#ifndef SLUICE_REPORTS_BACKGROUND_H
#define SLUICE_REPORTS_BACKGROUND_H

#include "figures.h"
#include "run.h"

struct background_kind {
    const char *who, *what;  /* as in the runner's background events */
    const char *sink;        /* only runs of this sink have it; NULL: all */
    const char *counters[2]; /* figures of sink_stats (of db_count, for main-db) whose sum tells
                                how often it happened so far */
    const char *gauge;       /* not 0 while it is going on; or NULL */
    bool counts_forced;      /* the counters rise also when it was forced */
};
extern const struct background_kind background_kinds[BACKGROUND_KINDS];

/* May runs of this sink have it, as far as is known here? */
bool background_applies(const struct background_kind *kind, const char *sink);

/* A background event of the runner; false: it can't be used. */
bool background_on_forced(struct run *run, int64_t ts_us, const cJSON *event);
/* A sample of counters: sink_stats, or db_count when main_db. */
void background_on_sample(struct run *run, int64_t ts_us, const cJSON *event, bool main_db);

/* background.WHO.WHAT.forced and .natural of the steady phase, and the spans for the charts.
 * natural is missing when nothing counts it. */
void figures_background(struct figures *figures, struct series *series, const struct run *run);

#endif

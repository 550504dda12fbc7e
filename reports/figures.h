/* figures.h: what was measured in one run, as names and numbers.
 *
 * The names are those of compare.json (docs/metrics.md lists them all): dotted, the unit last. One
 * flat list, so that Markdown, JSON and repeats are made from the same figures by the same names.
 */
#ifndef SLUICE_REPORTS_FIGURES_H
#define SLUICE_REPORTS_FIGURES_H

#include <stddef.h>

#include "run.h"
#include "stats.h"

struct figure {
    char *key;
    double value; /* INFINITY: a rank among requests without a 202. NAN is not kept. */
};
struct figures {
    struct figure *items;
    size_t count, capacity;
};

void figures_set(struct figures *figures, double value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
double figures_get(const struct figures *figures, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* NAN: there is none */
void figures_free(struct figures *figures);

/* What the charts need, a value a second or a sample, from the load's begin on. */
struct series {
    size_t seconds; /* of the load: bins of p50 and p99 */
    double *p50_ms,
        *p99_ms;        /* by the second a request was due; without a 202: its timeout; NAN: none */
    size_t run_seconds; /* of the whole run: bins of rows */
    double *rows;       /* committed rows, each batch spread over its own duration */
    size_t samples;     /* of the backlog */
    double *backlog_s, *backlog;
    size_t windows; /* faults, in seconds */
    double *window_begin_s, *window_end_s;
    size_t works; /* work in the background, in seconds */
    double *work_begin_s, *work_end_s;
};
void series_free(struct series *series);

/* Needs run_times_ok(run) and a readable ledger. */
void figures_compute(struct figures *figures, struct series *series, const struct run *run);

/* Its parts, in the order in which figures_compute calls them. */
void figures_latency(struct figures *figures, struct series *series, const struct run *run);
void figures_flow(struct figures *figures, struct series *series, const struct run *run);
void figures_theory(struct figures *figures, const struct run *run);
void figures_parts(struct figures *figures, const struct run *run);

void figures_fairness(struct figures *figures, const struct run *run);
/* and figures_background (background.h) */

/* n, mean_ms, p50_ms .. max_ms under a prefix. */
void figures_percentiles(struct figures *figures, const char *prefix, struct samples *samples);

/* The phase the SLA is about: the one named "steady", else the longest. Index in manifest.phases.
 */
size_t figures_steady(const struct manifest *manifest);
void figures_phase_span(const struct manifest *manifest, size_t phase, int64_t *begin_us,
                        int64_t *end_us);

#endif

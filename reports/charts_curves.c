/* Latency by percentile: the curve that shows a tail (the HdrHistogram picture). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "charts.h"
#include "figures.h"
#include "stats.h"

enum { POINTS_A_DECADE = 24 };

static int compare_values(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void curve_make(struct curve *curve, struct samples *samples)
{
    size_t n = samples->count;
    if (n == 0)
        return;
    qsort(samples->values, n, sizeof(double), compare_values);
    size_t steps = (size_t)ceil(log10((double)n) * (double)POINTS_A_DECADE);
    curve->x = xcalloc(steps + 1, sizeof(double));
    curve->y = xcalloc(steps + 1, sizeof(double));
    for (size_t step = 0; step < steps; step++) {
        double x = pow(10, (double)step / (double)POINTS_A_DECADE);
        double rank = ceil((double)n * (1 - 1 / x) - 1e-6); /* 1 - 1/100 is a little over 0.99 */
        curve->x[step] = x;
        curve->y[step] = samples->values[rank < 1 ? 0 : (size_t)rank - 1];
    }
    curve->x[steps] = (double)n;
    curve->y[steps] = samples->values[n - 1];
    curve->count = steps + 1;
}

void curves_compute(struct curve *curves, const struct run *run)
{
    const struct manifest *manifest = &run->manifest;
    const char *steady = manifest->phases[figures_steady(manifest)].name;
    struct samples kinds[CURVE_COUNT] = {{0}};
    for (size_t i = 0; i < run->ledger.count; i++) {
        const struct ledger_row *row = &run->ledger.rows[i];
        if (row->source != 0 || strcmp(run->ledger.phases[row->phase], steady) != 0)
            continue;
        bool durable = row->outcome == OUTCOME_DURABLE;
        double ms =
            isnan(row->latency_ms) ? (double)(row->done_us - row->due_us) / 1e3 : row->latency_ms;
        samples_add(&kinds[CURVE_API], durable ? ms : fmax(ms, manifest->timeout_ms));
        if (durable && !isnan(row->durable_ms))
            samples_add(&kinds[CURVE_DURABLE], row->durable_ms);
        if (durable && !isnan(row->age_ms))
            samples_add(&kinds[CURVE_AGE], row->age_ms);
    }
    for (int i = 0; i < CURVE_COUNT; i++) {
        curve_make(&curves[i], &kinds[i]);
        samples_free(&kinds[i]);
    }
}

void curves_free(struct curve *curves)
{
    for (int i = 0; i < CURVE_COUNT; i++) {
        free(curves[i].x);
        free(curves[i].y);
        memset(&curves[i], 0, sizeof(curves[i]));
    }
}

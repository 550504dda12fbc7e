/* stats.h: the few formulas every figure rests on. All are exact: from all samples, never from a
 * histogram, never averaged. */
#ifndef SLUICE_REPORTS_STATS_H
#define SLUICE_REPORTS_STATS_H

#include <stddef.h>

/* Samples of one population. Those beyond every number (a request without a 202 has no latency that
 * could be ranked) count as misses and rank last. */
struct samples {
    double *values;
    size_t count, capacity;
    size_t misses;
    int sorted;
};
void samples_add(struct samples *samples, double value); /* NAN is a bug (asserted) */
void samples_miss(struct samples *samples);
void samples_free(struct samples *samples);

/* Nearest rank: the smallest sample that at least permille/1000 of all are not above: the one of
 * rank ceil(n * permille / 1000). INFINITY when that is a miss, NAN when there are no samples.
 * permille is 1..1000; 1000 is the maximum. */
double samples_percentile(struct samples *samples, unsigned permille);
double samples_mean(const struct samples *samples); /* misses left out; NAN when empty */

/* Of values[0..count-1]: standard deviation (of the whole population) / mean; NAN when the mean is
 * 0. */
double stats_cv(const double *values, size_t count);

/* The slope of the line with the least squares through (x, y); NAN when all x are the same. */
double stats_slope(const double *x, const double *y, size_t count);

/* Over repeats. The median is a value that occurred (for an even number the upper of the middle
 * two): a mean of two percentiles would be no percentile of anything. NANs are left out; INFINITY
 * ranks last. */
struct spread {
    double median, min, max;
    size_t n;
};
struct spread stats_spread(const double *values, size_t count);

/* Adds amount to bins[0..count-1] (a second each, from 0 on), evenly over begin_s..end_s; what lies
 * outside the bins is dropped. An empty interval counts where it begins. */
void stats_spread_rows(double *bins, size_t count, double begin_s, double end_s, double amount);

/* The share of begin..end that lies within from..to; for an empty interval 1 or 0 (from < end <=
 * to). */
double stats_overlap(double begin, double end, double from, double to);

#endif

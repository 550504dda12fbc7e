#include "stats.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "lines.h"

void samples_add(struct samples *samples, double value)
{
    assert(!isnan(value));
    array_grow((void **)&samples->values, &samples->capacity, samples->count, sizeof(value));
    samples->values[samples->count++] = value;
    samples->sorted = 0;
}

void samples_miss(struct samples *samples)
{
    samples->misses++;
}

void samples_free(struct samples *samples)
{
    free(samples->values);
    memset(samples, 0, sizeof(*samples));
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double samples_percentile(struct samples *samples, unsigned permille)
{
    size_t n = samples->count + samples->misses;
    assert(permille >= 1 && permille <= 1000);
    if (n == 0)
        return NAN;
    if (!samples->sorted && samples->count > 0) {
        qsort(samples->values, samples->count, sizeof(double), compare_doubles);
        samples->sorted = 1;
    }
    /* In integers: 0.99 * 100 in binary fractions is above 99, and its ceiling 100. */
    size_t rank = (n * permille + 999) / 1000;
    return rank <= samples->count ? samples->values[rank - 1] : INFINITY;
}

double samples_mean(const struct samples *samples)
{
    double sum = 0;
    for (size_t i = 0; i < samples->count; i++)
        sum += samples->values[i];
    return samples->count ? sum / (double)samples->count : NAN;
}

double stats_cv(const double *values, size_t count)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    double mean = count ? sum / (double)count : 0;
    if (mean == 0)
        return NAN;
    for (size_t i = 0; i < count; i++)
        squares += (values[i] - mean) * (values[i] - mean);
    return sqrt(squares / (double)count) / mean;
}

double stats_slope(const double *x, const double *y, size_t count)
{
    double mean_x = 0, mean_y = 0, both = 0, squares = 0;
    for (size_t i = 0; i < count; i++) {
        mean_x += x[i] / (double)count;
        mean_y += y[i] / (double)count;
    }
    for (size_t i = 0; i < count; i++) {
        both += (x[i] - mean_x) * (y[i] - mean_y);
        squares += (x[i] - mean_x) * (x[i] - mean_x);
    }
    return squares > 0 ? both / squares : NAN;
}

struct spread stats_spread(const double *values, size_t count)
{
    struct spread spread = {.median = NAN, .min = NAN, .max = NAN};
    double *known = xmalloc((count ? count : 1) * sizeof(*known));
    for (size_t i = 0; i < count; i++)
        if (!isnan(values[i]))
            known[spread.n++] = values[i];
    if (spread.n) {
        qsort(known, spread.n, sizeof(*known), compare_doubles);
        spread.median = known[spread.n / 2];
        spread.min = known[0];
        spread.max = known[spread.n - 1];
    }
    free(known);
    return spread;
}

double stats_overlap(double begin, double end, double from, double to)
{
    if (end <= begin)
        return end > from && end <= to ? 1 : 0;
    double common = fmin(end, to) - fmax(begin, from);
    return common > 0 ? common / (end - begin) : 0;
}

void stats_spread_rows(double *bins, size_t count, double begin_s, double end_s, double amount)
{
    if (end_s <= begin_s) {
        if (begin_s >= 0 && begin_s < (double)count)
            bins[(size_t)begin_s] += amount;
        return;
    }
    double last = fmin(ceil(end_s), (double)count);
    for (size_t second = (size_t)fmax(floor(begin_s), 0); (double)second < last; second++)
        bins[second] += amount * stats_overlap(begin_s, end_s, (double)second, (double)second + 1);
}

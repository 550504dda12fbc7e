#include "hist.h"

#include <math.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/clock.h"

enum {
    LINEAR_BITS = 16, /* 65,536 bins of one microsecond */
    LINEAR = 1 << LINEAR_BITS,
    SUB_BITS = 10, /* then 1,024 bins for each doubling */
    SUB = 1 << SUB_BITS,
    TOP_BITS = 40, /* 2^40 us */
    BINS = LINEAR + (TOP_BITS - LINEAR_BITS) * SUB,
};

struct hist {
    uint64_t count;
    int64_t max_ns;
    uint64_t bins[BINS]; /* 720 KiB of zero pages, of which few are ever touched */
};

struct hist *hist_new(void)
{
    return xcalloc(1, sizeof(struct hist));
}

void hist_free(struct hist *hist)
{
    free(hist);
}

/* Rounded up to whole microseconds, so that a bin never tells less than its samples. */
static size_t bin_of(int64_t duration_ns)
{
    uint64_t us = duration_ns <= 0 ? 0 : ((uint64_t)duration_ns + 999) / 1000;
    int exponent;

    if (us < LINEAR)
        return (size_t)us;
    exponent = 63 - __builtin_clzll(us);
    if (exponent >= TOP_BITS)
        return BINS - 1;
    return (size_t)LINEAR + (size_t)(exponent - LINEAR_BITS) * SUB +
           (size_t)((us >> (exponent - SUB_BITS)) & (SUB - 1));
}

static int64_t bin_end_ns(size_t bin)
{
    size_t above, exponent;
    uint64_t width;

    if (bin < LINEAR)
        return (int64_t)bin * NS_PER_US;
    above = bin - LINEAR;
    exponent = LINEAR_BITS + above / SUB;
    width = 1ULL << (exponent - SUB_BITS);
    return (int64_t)((1ULL << exponent) + (above % SUB + 1) * width - 1) * NS_PER_US;
}

void hist_add(struct hist *hist, int64_t duration_ns)
{
    hist->bins[bin_of(duration_ns)]++;
    if (duration_ns > hist->max_ns)
        hist->max_ns = duration_ns;
    hist->count++;
}

uint64_t hist_count(const struct hist *hist)
{
    return hist ? hist->count : 0;
}

int64_t hist_max_ns(const struct hist *hist)
{
    return hist ? hist->max_ns : 0;
}

int64_t hist_percentile_ns(const struct hist *hist, double fraction)
{
    if (hist_count(hist) == 0)
        return 0;
    uint64_t rank = (uint64_t)ceil(fraction * (double)hist->count - 1e-9), seen = 0;
    if (rank == 0)
        rank = 1;
    for (size_t bin = 0; bin < BINS; bin++) {
        seen += hist->bins[bin];
        if (seen >= rank) {
            int64_t end_ns = bin_end_ns(bin);

            return end_ns < hist->max_ns ? end_ns : hist->max_ns;
        }
    }
    return hist->max_ns;
}

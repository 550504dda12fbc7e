/* hist.h: counts of durations, for percentiles without keeping the samples.
 *
 * One bin a microsecond up to 65.536 ms: there a percentile is exact to the microsecond. Above,
 * bins grow with the value, 1024 to each doubling (0.1 %), up to 12 days. Zero or less counts as 0.
 * NULL is read as one without samples. Not thread-safe.
 */
#ifndef SLUICE_LOADGEN_HIST_H
#define SLUICE_LOADGEN_HIST_H

#include <stdint.h>

struct hist;

struct hist *hist_new(void);
void hist_free(struct hist *hist);
void hist_add(struct hist *hist, int64_t duration_ns);
uint64_t hist_count(const struct hist *hist);
int64_t hist_max_ns(const struct hist *hist); /* exact; 0 without samples */

/* The smallest duration that at least `fraction` (0 < fraction <= 1) of the samples do not exceed,
 * rounded up to its bin's end, never above the greatest sample; 0 without samples. */
int64_t hist_percentile_ns(const struct hist *hist, double fraction);

#endif

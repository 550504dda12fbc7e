/* against.h: two figures of one kind, before and after: better, worse, or within the noise. */
#ifndef SLUICE_REPORTS_AGAINST_H
#define SLUICE_REPORTS_AGAINST_H

#include <stdbool.h>

#include "stats.h"

enum against { AGAINST_TIE, AGAINST_BETTER, AGAINST_WORSE, AGAINST_UNKNOWN };

/* Is `after` better or worse than `before`? With two runs or more on each side: when the ranges do
 * not overlap and the medians differ by over AGAINST_LEAST_PCT. With one run on a side nobody knows
 * the noise: when the medians differ by a factor of over AGAINST_FACTOR. UNKNOWN: a side has no
 * value. INFINITY (a rank among requests without a 202) is behind every number. */
enum against against_judge(struct spread before, struct spread after, bool highest_is_best);

extern const double AGAINST_LEAST_PCT, AGAINST_FACTOR;

#endif

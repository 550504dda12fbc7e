/* periodic.h: a thread that does one thing again and again, so that what may be slow (a server that
 * hangs) stalls nobody else. A turn that takes long delays the next; turns never pile up. */
#ifndef SLUICE_SAMPLER_PERIODIC_H
#define SLUICE_SAMPLER_PERIODIC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct periodic;

/* One turn, in the thread; returns how many nanoseconds to wait before the next. */
typedef int64_t periodic_work_fn(void *arg);

int periodic_start(struct periodic **periodic, periodic_work_fn *work, void *arg, struct err *err);

/* Lets the thread do one last turn, at once, and ends it. false: it was still busy at deadline_ns
 * (clock_mono_ns) and goes on using arg until the process exits. NULL: true. */
bool periodic_stop(struct periodic *periodic, int64_t deadline_ns);

#endif

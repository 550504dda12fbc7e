/* record.h: the sampler's own first and last events (docs/metrics.md). One thread. */
#ifndef SLUICE_SAMPLER_RECORD_H
#define SLUICE_SAMPLER_RECORD_H

#include "base/options.h"
#include "metrics/metrics.h"

/* pod, sink: NULL when there is none. Flushed, so that a killed sampler leaves it. */
void record_start(struct metrics *metrics, const struct options *options, const char *pod,
                  const char *sink, const char *net_note);
void record_stop(struct metrics *metrics, const char *why);

#endif

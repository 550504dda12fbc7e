/* sink_rabbit_retry.h: when to connect again: at once the first time, then after growing pauses
 * with jitter, so that many lanes do not come back in step. Also says losses and recoveries in the
 * log, once each. Not thread-safe. */
#ifndef SLUICE_SINK_SINK_RABBIT_RETRY_H
#define SLUICE_SINK_SINK_RABBIT_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "sink/sink_rabbit_link.h"

struct rabbit_retry {
    int64_t at_ns; /* clock_mono_ns; 0: now */
    int64_t pause_ns;
    uint64_t random;
    int told; /* errno of the last loss that was logged; 0: it works */
};
void rabbit_retry_lost(struct rabbit_retry *retry, const struct rabbit_link *link);
void rabbit_retry_works(struct rabbit_retry *retry, const struct rabbit_link *link);

#endif

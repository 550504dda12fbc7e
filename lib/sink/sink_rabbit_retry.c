#include "sink/sink_rabbit_retry.h"

#include "base/clock.h"
#include "base/log.h"

#define PAUSE_MIN_NS (50 * NS_PER_MS)
#define PAUSE_MAX_NS (2 * NS_PER_S)

void rabbit_retry_lost(struct rabbit_retry *retry, const struct rabbit_link *link)
{
    int64_t now_ns = clock_mono_ns();
    if (retry->random == 0) {
        retry->random = (uint64_t)now_ns ^ (uintptr_t)retry;
    }
    retry->random = retry->random * 6364136223846793005u + 1442695040888963407u;
    retry->pause_ns = retry->pause_ns > 0 ? 2 * retry->pause_ns : PAUSE_MIN_NS;
    retry->pause_ns = retry->pause_ns < PAUSE_MAX_NS ? retry->pause_ns : PAUSE_MAX_NS;
    int64_t half_ns = retry->pause_ns / 2;
    retry->at_ns = now_ns + half_ns + (int64_t)((retry->random >> 33) % (uint64_t)half_ns);
    if (retry->told != link->problem.code) {
        log_warning("%s: %s; trying again", link->name, link->problem.text);
        retry->told = link->problem.code;
    }
}

void rabbit_retry_works(struct rabbit_retry *retry, const struct rabbit_link *link)
{
    if (retry->told != 0) {
        log_info("%s: connected to %s again (RabbitMQ %s)", link->name, link->target->where,
                 link->version_text);
    }
    retry->told = 0;
    retry->pause_ns = 0;
    retry->at_ns = 0;
}

/* counters.h: what the front end counts, written by its loop and read by the admin thread.
 *
 * Every field has one writer, the loop, so plain loads and relaxed stores do; a reader may see one
 * field a moment newer than another. Only the sentence has a mutex. */
#ifndef SLUICE_API_COUNTERS_H
#define SLUICE_API_COUNTERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/reply.h"
#include "base/buf.h"
#include "sink/sink.h"

enum api_condition {
    API_OK,
    API_STARTING,
    API_NOT_READY, /* the sink would take nothing now */
    API_FULL,      /* the backlog is at its bound */
    API_STOPPING,
    API_BROKEN, /* the sink has failed for good: health is red */
};

enum { DURABLE_BUCKETS = 14 };

struct counters {
    atomic_llong replies[REPLY_COUNT];
    atomic_llong outcomes[3];   /* by enum sink_outcome */
    atomic_llong late_outcomes; /* decided after their client was gone */
    atomic_llong passes;        /* of the loop */
    atomic_llong slow_requests; /* ended by --request-timeout */
    atomic_llong
        durable_bucket[DURABLE_BUCKETS + 1]; /* each alone, not cumulated; the last: above all */
    atomic_llong durable_sum_us;
    atomic_llong batches_millionths; /* each task adds 1/batch, so the sum counts batches */
    atomic_llong connections, in_flight_tasks, in_flight_bytes;
    atomic_llong backlog_tasks, backlog_bytes; /* -1: unknown */
    atomic_llong busy_since_ns;                /* when the loop last woke; 0 while it sleeps */
    atomic_int condition;                      /* enum api_condition */
    pthread_mutex_t why_mutex;
    char why[256]; /* why the sink is not ready; the loop reads it without the mutex */
};

void counters_init(struct counters *counters);
void counters_free(struct counters *counters);

/* For API_NOT_READY: the sink's own sentence. */
void counters_why(struct counters *counters, const char *sentence);

static inline void counter_add(atomic_llong *counter, long long more)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

static inline void counter_set(atomic_llong *counter, long long value)
{
    atomic_store_explicit(counter, value, memory_order_relaxed);
}

static inline long long counter_get(atomic_llong *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void counters_outcome(struct counters *counters, enum sink_outcome outcome, int64_t waited_ns,
                      unsigned batch);

/* The callbacks of common/admin.h; arg is a struct counters. */
bool counters_healthy(void *arg, struct buf *why);
bool counters_ready(void *arg, struct buf *why);
void counters_metrics(void *arg, struct buf *out);

#endif

/* drain.h: the worker's lanes. A lane is a thread with one sink lane, one main DB connection and at
 * most one open batch: fetch, commit to the main DB, write the event, ack.
 *
 * Order: the `committed` event is in the file after COMMIT and before the ack. A worker killed
 * between any two of these steps gets the batch again; so every row of the main DB is in at least
 * one event, and a row whose batch came twice is counted as redelivered in the second.
 *
 * One lane at a time fetches (a few while batches come full at once), the longest waiting first: so
 * a batch is full whenever enough tasks come within the wait, for every sink alike, and idle lanes
 * do not share out what one could take. Lanes that wait for their turn service their connections
 * (keep).
 *
 * Nothing is acknowledged that is not committed. What the main DB cannot take now stays open and is
 * tried again, with growing pauses; what it will never take is a dead letter (maindb.h); when a
 * person must act, all lanes stop.
 *
 * Threads: one thread owns the struct drain; counters may be read by any.
 */
#ifndef SLUICE_WORKER_DRAIN_H
#define SLUICE_WORKER_DRAIN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "metrics/metrics.h"
#include "sink/sink.h"
#include "worker/turn.h"

struct drain_settings {
    unsigned lanes;
    unsigned batch_max;
    int batch_wait_ms;       /* for the first task, and again to fill the batch after it */
    int64_t back_off_max_ns; /* longest pause between two attempts */
    int64_t start_wait_ns;   /* how long a lane that cannot be opened is tried again */
    const char *main_url;
};

struct drain_counters {
    atomic_llong batches, inserted, redelivered, dead, conflicts; /* committed */
    atomic_llong commit_failures, fetch_failures, ack_failures;   /* attempts */
    atomic_llong open_tasks;                                      /* fetched and not acknowledged */
    atomic_int lanes_open;
    atomic_int lanes_failing; /* whose last attempt at the main DB failed */
    atomic_bool main_checked; /* set by the owner */
    atomic_bool failed;       /* a person must act; health is red */
    int lanes;
};

struct drain_lane;

struct drain {
    struct drain_settings settings;
    const struct sink_driver *driver;
    struct sink *sink;       /* borrowed */
    struct metrics *metrics; /* borrowed */
    struct drain_counters counters;
    int stop_fd; /* an eventfd, readable once the lanes are to stop */
    struct drain_lane *lanes;
    unsigned started;
    struct turn fill;     /* around fetch */
    pthread_mutex_t lock; /* of what follows */
    struct err failure;   /* the first reason to stop for good */
    int64_t logged_ns;    /* when a failure was last logged */
    unsigned unlogged;    /* failures since */
};

/* Starts the threads. sink and metrics must outlive drain_join. Negative errno when it cannot; then
 * call drain_stop, drain_join all the same. */
int drain_start(struct drain *drain, const struct drain_settings *settings,
                const struct sink_driver *driver, struct sink *sink, struct metrics *metrics,
                struct err *err);
/* Readable when a lane found that a person must act. */
int drain_failed_fd(const struct drain *drain);
/* Tells all lanes to stop: statements are cancelled, open batches handed back; whoever
 * waits for its turn to fetch is sent home. Returns at once. */
void drain_stop(struct drain *drain);
/* Waits for them. false: some are not done by deadline_ns (clock_mono_ns), and still use the sink.
 */
bool drain_join(struct drain *drain, int64_t deadline_ns);
/* After a successful drain_join. Returns 0, or the code of the failure that stopped the lanes. */
int drain_end(struct drain *drain, struct err *err);

/* The callbacks of common/admin.h; arg is a struct drain_counters. */
bool drain_healthy(void *arg, struct buf *why);
bool drain_ready(void *arg, struct buf *why);
void drain_metrics(void *arg, struct buf *out);

#endif

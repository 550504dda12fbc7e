/* sink_wal_drain.c: fetch, ack and release of the sink wal. Lanes share the log's one reader behind
 * a mutex; whoever waits for tasks does so outside it, one lane at a time. */
#include "sink/sink_wal_drain.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "sink/drivers.h"

struct wal_lane {
    struct sink_lane base;
    struct wal_drain *drain;
    struct task *tasks;
    uint64_t *lsns;
    size_t *offsets; /* of the bodies in bytes, while it may still move */
    size_t capacity;
    struct buf bytes;
    size_t count; /* of the open batch */
};

int wal_drain_open(struct wal_drain *drain, const struct options *options, struct err *err)
{
    struct wal_reader_options settings;
    struct wal_err wal_err;
    wal_reader_options_init(&settings);
    settings.sealed_only = options_bool(options, "wal-sealed-only");
    settings.cursor_sync_ns = options_duration_ns(options, "wal-cursor-sync");
    int rc =
        wal_reader_open(options_string(options, "wal-dir"), &settings, &drain->reader, &wal_err);
    if (rc < 0) {
        return err_set(err, rc, "%s", wal_err.text);
    }
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&drain->mutex, NULL);
    pthread_cond_init(&drain->turn, &attributes);
    pthread_condattr_destroy(&attributes);
    return 0;
}

static struct wal_lane *lane_of(struct sink_lane *lane)
{
    return (struct wal_lane *)lane;
}

struct sink_lane *wal_drain_lane(struct wal_drain *drain)
{
    struct wal_lane *lane = xcalloc(1, sizeof(*lane));
    lane->base.driver = &sink_wal;
    lane->drain = drain;
    return &lane->base;
}

/* Waits, the mutex held, until no other lane fetches. */
static bool take_turn(struct wal_drain *drain, int64_t end_ns)
{
    struct timespec end = {.tv_sec = end_ns / NS_PER_S, .tv_nsec = end_ns % NS_PER_S};
    while (drain->fetching) {
        if (pthread_cond_timedwait(&drain->turn, &drain->mutex, &end) == ETIMEDOUT &&
            drain->fetching) {
            return false;
        }
    }
    drain->fetching = true;
    return true;
}

static void end_turn(struct wal_drain *drain)
{
    drain->fetching = false;
    pthread_cond_signal(&drain->turn);
}

static int lane_error(struct wal_drain *drain, int rc)
{
    if (!drain->complained) {
        const char *problem = wal_reader_problem(drain->reader);
        log_error("reading the log: %s", problem[0] != '\0' ? problem : strerror(-rc));
        drain->complained = true;
    }
    bool passes = rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE;
    if (!passes && drain->broken_by[0] == '\0') {
        const char *problem = wal_reader_problem(drain->reader);
        snprintf(drain->broken_by, sizeof(drain->broken_by), "%s",
                 problem[0] != '\0' ? problem : strerror(-rc));
    }
    /* Damage, a removed folder, a cursor that can't be written: nothing that waiting would heal. */
    return passes ? rc : -ESHUTDOWN;
}

/* Written once, under the mutex that this lane has held since. */
const char *wal_drain_broken_by(struct sink_lane *base)
{
    return lane_of(base)->drain->broken_by;
}

static void lane_reserve(struct wal_lane *lane, size_t capacity)
{
    if (capacity > lane->capacity) {
        lane->tasks = xrealloc(lane->tasks, capacity * sizeof(*lane->tasks));
        lane->lsns = xrealloc(lane->lsns, capacity * sizeof(*lane->lsns));
        lane->offsets = xrealloc(lane->offsets, capacity * sizeof(*lane->offsets));
        lane->capacity = capacity;
    }
}

/* One record into the lane's batch. */
static void lane_add(struct wal_lane *lane, const struct wal_record *record)
{
    struct task *task = &lane->tasks[lane->count];
    if (task_decode(record->bytes, record->count, task) < 0) {
        /* No task can have been acknowledged for it; kept, it would stop all the others. */
        log_error("record %llu of the log is no task; it is left out",
                  (unsigned long long)record->lsn);
        wal_reader_done(lane->drain->reader, record->lsn, record->lsn);
        return;
    }
    lane->lsns[lane->count] = record->lsn;
    lane->offsets[lane->count] = lane->bytes.len;
    buf_append(&lane->bytes, task->body, task->body_bytes);
    lane->count++;
}

/* Takes what can be had, the mutex held. Count or negative errno. */
static int lane_fill(struct wal_lane *lane, unsigned max, struct sink_batch *batch)
{
    struct wal_record record;
    int rc = 0;
    lane->count = 0;
    buf_clear(&lane->bytes);
    lane_reserve(lane, max);
    while (lane->count < max && (rc = wal_reader_next(lane->drain->reader, &record)) == 1) {
        batch->redelivered += record.again;
        lane_add(lane, &record);
    }
    for (size_t i = 0; i < lane->count; i++) {
        lane->tasks[i].body = lane->bytes.data + lane->offsets[i];
    }
    /* What has been taken is delivered; an error comes again. */
    return lane->count > 0 || rc >= 0 ? (int)lane->count : rc;
}

static int wait_ms_until(int64_t end_ns)
{
    int64_t left_ns = end_ns - clock_mono_ns();
    return left_ns <= 0 ? 0 : (int)((left_ns + NS_PER_MS - 1) / NS_PER_MS);
}

int wal_drain_fetch(struct sink_lane *base, unsigned max, int wait_ms, struct sink_batch *batch)
{
    struct wal_lane *lane = lane_of(base);
    struct wal_drain *drain = lane->drain;
    int64_t end_ns = clock_mono_ns() + wait_ms * NS_PER_MS;
    int rc = 0;
    assert(lane->count == 0 && max > 0);
    *batch = (struct sink_batch){0};
    pthread_mutex_lock(&drain->mutex);
    if (!take_turn(drain, end_ns)) {
        pthread_mutex_unlock(&drain->mutex);
        return 0;
    }
    do {
        pthread_mutex_unlock(&drain->mutex);
        rc = wal_reader_wait(drain->reader, 1, wait_ms_until(end_ns));
        if (rc > 0 && max > 1) {
            rc = wal_reader_wait(drain->reader, max, wait_ms);
        }
        pthread_mutex_lock(&drain->mutex);
        /* Even if nothing came: the cursor may be due. */
        rc = rc < 0 ? rc : lane_fill(lane, max, batch);
    } while (rc == 0 && wait_ms_until(end_ns) > 0);
    end_turn(drain);
    if (rc < 0) {
        rc = lane_error(drain, rc);
    }
    pthread_mutex_unlock(&drain->mutex);
    batch->count = lane->count;
    batch->tasks = lane->tasks;
    return rc;
}

/* Calls `each` for every run of consecutive records in the batch; the batch is over. */
static int lane_end(struct wal_lane *lane,
                    int (*each)(struct wal_reader *, uint64_t first, uint64_t last))
{
    int rc = 0;
    pthread_mutex_lock(&lane->drain->mutex);
    for (size_t from = 0; from < lane->count;) {
        size_t to = from + 1;
        while (to < lane->count && lane->lsns[to] == lane->lsns[to - 1] + 1) {
            to++;
        }
        int result = each(lane->drain->reader, lane->lsns[from], lane->lsns[to - 1]);
        rc = result < 0 ? result : rc;
        from = to;
    }
    if (rc < 0) {
        rc = lane_error(lane->drain, rc);
    }
    lane->count = 0;
    pthread_mutex_unlock(&lane->drain->mutex);
    return rc;
}

int wal_drain_keep(struct sink_lane *base)
{
    struct wal_drain *drain = lane_of(base)->drain;
    int rc = 0;
    /* No lease to renew: the log has one reader. But the other lanes' progress may be due. */
    pthread_mutex_lock(&drain->mutex);
    if (wal_reader_flush_due_ns(drain->reader) == 0) {
        rc = wal_reader_flush(drain->reader);
    }
    if (rc < 0) {
        rc = lane_error(drain, rc);
    }
    pthread_mutex_unlock(&drain->mutex);
    return rc;
}

int wal_drain_ack(struct sink_lane *base, struct sink_batch *batch)
{
    batch->count = 0;
    return lane_end(lane_of(base), wal_reader_done);
}

int wal_drain_release(struct sink_lane *base, struct sink_batch *batch)
{
    batch->count = 0;
    return lane_end(lane_of(base), wal_reader_release);
}

void wal_drain_lane_close(struct sink_lane *base)
{
    struct wal_lane *lane = lane_of(base);
    lane_end(lane, wal_reader_release);
    free(lane->tasks);
    free(lane->lsns);
    free(lane->offsets);
    buf_free(&lane->bytes);
    free(lane);
}

void wal_drain_close(struct wal_drain *drain)
{
    int rc = wal_reader_close(drain->reader);
    if (rc < 0 && !drain->complained) {
        log_warning("the log's cursor could not be flushed (%s): some tasks will come again",
                    strerror(-rc));
    }
    pthread_cond_destroy(&drain->turn);
    pthread_mutex_destroy(&drain->mutex);
}

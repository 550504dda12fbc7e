/* drain.c: what a lane does, from fetch to ack. */
#include "worker/drain.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "maindb/maindb.h"
#include "worker/pause.h"

#define KEEP_EVERY_NS NS_PER_S
#define LOG_EVERY_NS  (2 * NS_PER_S)
enum {
    OWED_WAIT_MS = 20,
    PLENTY_PART = 4, /* of --batch-wait */
};
/* Should all who fetch share what comes, their batches are full within the whole of it. */
static_assert((int)TURN_WIDEST <= (int)PLENTY_PART, "lanes would share out what fills one batch");

struct drain_lane {
    struct drain *drain;
    unsigned number;
    pthread_t thread;
    bool joined;
    bool failing; /* the last attempt at the main DB failed */
    bool owed;    /* the sink may hold tasks for this very lane */
    struct turn_place place;
    int64_t keep_due_ns;
    struct maindb *main;
    struct sink_lane *source;
    struct sink_batch batch; /* count > 0: open */
    struct pause pause;
    struct metrics_event event;
};

static bool stopping(const struct drain *drain)
{
    return pause_sleep(drain->stop_fd, 0);
}

/* Loud, but one line in two seconds for all lanes together: 20 of them fail alike. */
static void complain(struct drain_lane *lane, const char *what, int64_t pause_ns)
{
    struct drain *drain = lane->drain;
    int64_t now_ns = clock_mono_ns();
    pthread_mutex_lock(&drain->lock);
    bool due = drain->logged_ns == 0 || now_ns - drain->logged_ns >= LOG_EVERY_NS;
    unsigned unlogged = drain->unlogged;
    drain->unlogged = due ? 0 : unlogged + 1;
    drain->logged_ns = due ? now_ns : drain->logged_ns;
    pthread_mutex_unlock(&drain->lock);
    if (due) {
        log_warning("lane %u: %s; next attempt in %.2f s, nothing is acknowledged (%u more such "
                    "failures in all lanes since the last line)",
                    lane->number, what, (double)pause_ns / (double)NS_PER_S, unlogged);
    }
}

/* A person must act: the first reason counts, and all lanes stop. */
static void give_up(struct drain_lane *lane, int code, const char *text)
{
    struct drain *drain = lane->drain;
    pthread_mutex_lock(&drain->lock);
    bool first = drain->failure.code == 0;
    if (first) {
        err_set(&drain->failure, code, "lane %u: %s", lane->number, text);
    }
    pthread_mutex_unlock(&drain->lock);
    if (first) {
        log_error("lane %u: %s; stopping, open batches are handed back", lane->number, text);
    }
    atomic_store(&drain->counters.failed, true);
    drain_stop(drain);
}

static int keep_lane(void *arg)
{
    struct drain_lane *lane = arg;
    int rc = lane->drain->driver->keep(lane->source);
    lane->keep_due_ns = clock_mono_ns() + (rc > 0 ? rc * NS_PER_MS : KEEP_EVERY_NS);
    return rc;
}

static void keep_if_due(struct drain_lane *lane)
{
    if (clock_mono_ns() >= lane->keep_due_ns) {
        keep_lane(lane);
    }
}

/* Sleeps with lease and connection kept. true: stop. */
static bool back_off(struct drain_lane *lane, int64_t pause_ns)
{
    int64_t until_ns = clock_mono_ns() + pause_ns;
    for (;;) {
        int64_t now_ns = clock_mono_ns();
        int64_t next_ns = lane->keep_due_ns < until_ns ? lane->keep_due_ns : until_ns;
        if (now_ns >= until_ns) {
            return stopping(lane->drain);
        }
        if (next_ns > now_ns && pause_sleep(lane->drain->stop_fd, next_ns - now_ns)) {
            return true;
        }
        keep_if_due(lane);
    }
}

/* Waits until no other lane fetches, with the connection kept. false: stop. */
static bool await_turn(struct drain_lane *lane)
{
    enum turn_answer answer;
    while ((answer = turn_take(&lane->drain->fill, &lane->place, lane->owed, lane->keep_due_ns)) ==
           TURN_LATER) {
        keep_if_due(lane);
    }
    return answer == TURN_MINE;
}

static void set_failing(struct drain_lane *lane, bool failing)
{
    struct drain_counters *counters = &lane->drain->counters;
    if (lane->failing == failing) {
        return;
    }
    lane->failing = failing;
    int before = atomic_fetch_add(&counters->lanes_failing, failing ? 1 : -1);
    if (!failing && before == 1) {
        log_info("the main DB takes tasks again in all lanes");
    }
}

/* Until the batch is in the main DB. 0, or negative: stop, the batch is still open. */
static int commit_batch(struct drain_lane *lane, struct maindb_result *result)
{
    struct drain *drain = lane->drain;
    const struct maindb_wait wait = {.keep = keep_lane,
                                     .arg = lane,
                                     .keep_every_ns = KEEP_EVERY_NS,
                                     .cancel_fd = drain->stop_fd};
    for (;;) {
        struct err err = {0};
        int rc =
            maindb_commit(lane->main, lane->batch.tasks, lane->batch.count, &wait, result, &err);
        if (rc == 0) {
            pause_reset(&lane->pause);
            set_failing(lane, false);
            return 0;
        }
        if (rc == -ECANCELED) {
            return rc;
        }
        atomic_fetch_add(&drain->counters.commit_failures, 1);
        if (rc != -EAGAIN) {
            give_up(lane, rc, err.text);
            return rc;
        }
        set_failing(lane, true);
        int64_t pause_ns = pause_next_ns(&lane->pause);
        complain(lane, err.text, pause_ns);
        if (back_off(lane, pause_ns)) {
            return -ECANCELED;
        }
    }
}

static void write_event(struct drain_lane *lane, const struct maindb_result *result)
{
    const struct sink_batch *batch = &lane->batch;
    struct metrics_event *event = &lane->event;
    int64_t now_us = clock_wall_us();
    metrics_begin_at(event, "committed", now_us);
    metrics_int(event, "lane", lane->number);
    metrics_int(event, "rows", (int64_t)batch->count);
    metrics_int(event, "inserted", result->inserted);
    metrics_int(event, "redelivered", result->redelivered);
    metrics_int(event, "dead", result->dead);
    metrics_int(event, "conflicts", result->conflicts);
    metrics_ms(event, "db_ms", result->db_ns);
    metrics_array(event, "ids");
    for (size_t i = 0; i < batch->count; i++) {
        metrics_id(event, NULL, batch->tasks[i].id);
    }
    metrics_array_end(event);
    metrics_array(event, "age_ms");
    for (size_t i = 0; i < batch->count; i++) {
        metrics_ms(event, NULL, (now_us - batch->tasks[i].accepted_us) * NS_PER_US);
    }
    metrics_array_end(event);
    metrics_write(lane->drain->metrics, event);
    metrics_flush(lane->drain->metrics);
}

static void count_commit(struct drain *drain, const struct maindb_result *result)
{
    struct drain_counters *counters = &drain->counters;
    atomic_fetch_add(&counters->batches, 1);
    atomic_fetch_add(&counters->inserted, result->inserted);
    atomic_fetch_add(&counters->redelivered, result->redelivered);
    atomic_fetch_add(&counters->dead, result->dead);
    atomic_fetch_add(&counters->conflicts, result->conflicts);
}

static void end_batch(struct drain_lane *lane, bool committed)
{
    struct drain *drain = lane->drain;
    long long count = (long long)lane->batch.count;
    int rc = committed ? drain->driver->ack(lane->source, &lane->batch)
                       : drain->driver->release(lane->source, &lane->batch);
    if (rc < 0) {
        /* Either way the tasks come again, and the main DB knows those it has. */
        atomic_fetch_add(&drain->counters.ack_failures, 1);
        lane->owed = true;
        lane->keep_due_ns = clock_mono_ns();
        log_warning("lane %u: the sink %s does not take the %s of %lld tasks (%s): they will be "
                    "delivered again",
                    lane->number, drain->driver->name, committed ? "ack" : "return", count,
                    strerror(-rc));
    }
    lane->batch = (struct sink_batch){0};
    atomic_fetch_sub(&drain->counters.open_tasks, count);
}

/* In its turn: at most one batch. A lane that the sink may owe tasks (what it held when its process
 * died, or when an ack failed) looks before the others and does not wait long for more: so all
 * lanes soon have theirs, however many they are. A batch that was full well before its time
 * leaves plenty for others. */
static int fetch_in_turn(struct drain_lane *lane)
{
    struct drain *drain = lane->drain;
    const struct drain_settings *settings = &drain->settings;
    int wait_ms = settings->batch_wait_ms;
    wait_ms = lane->owed && wait_ms > OWED_WAIT_MS ? OWED_WAIT_MS : wait_ms;
    int64_t began_ns = clock_mono_ns();
    int count = drain->driver->fetch(lane->source, settings->batch_max, wait_ms, &lane->batch);
    int64_t took_ns = clock_mono_ns() - began_ns;
    turn_end(&drain->fill, &lane->place,
             count == (int)settings->batch_max &&
                 took_ns < settings->batch_wait_ms * NS_PER_MS / PLENTY_PART);
    lane->owed = count < 0;
    lane->keep_due_ns = clock_mono_ns() + (count < 0 ? 0 : KEEP_EVERY_NS);
    if (count <= 0) {
        lane->batch = (struct sink_batch){0};
    }
    return count;
}

/* false: the lane is to end. */
static bool fetch_failed(struct drain_lane *lane, int code)
{
    struct drain *drain = lane->drain;
    const char *by = code == -ESHUTDOWN && drain->driver->broken_by
                         ? drain->driver->broken_by(lane->source)
                         : NULL;
    char text[400];
    snprintf(text, sizeof(text), "the sink %s gives nothing: %s", drain->driver->name,
             by && by[0] != '\0' ? by : strerror(-code));
    atomic_fetch_add(&drain->counters.fetch_failures, 1);
    if (code == -ESHUTDOWN) {
        give_up(lane, code, text);
        return false;
    }
    int64_t pause_ns = pause_next_ns(&lane->pause);
    complain(lane, text, pause_ns);
    return !back_off(lane, pause_ns);
}

/* One batch, or none. false: the lane is to end. */
static bool drain_once(struct drain_lane *lane)
{
    struct drain *drain = lane->drain;
    if (!await_turn(lane)) {
        return false;
    }
    int count = fetch_in_turn(lane);
    if (count == 0) {
        return true;
    }
    if (count < 0) {
        return fetch_failed(lane, count);
    }
    assert((size_t)count == lane->batch.count && lane->batch.count <= drain->settings.batch_max);
    atomic_fetch_add(&drain->counters.open_tasks, count);
    struct maindb_result result;
    bool committed = commit_batch(lane, &result) == 0;
    if (committed) {
        count_commit(drain, &result);
        write_event(lane, &result);
    }
    end_batch(lane, committed);
    return committed;
}

/* The sink may come up after us. 0: open; negative: the lane is to end. */
static int open_source(struct drain_lane *lane)
{
    struct drain *drain = lane->drain;
    int64_t until_ns = clock_mono_ns() + drain->settings.start_wait_ns;
    for (;;) {
        struct err err = {0};
        int rc = drain->driver->lane_open(drain->sink, lane->number, &lane->source, &err);
        if (rc == 0) {
            pause_reset(&lane->pause);
            return 0;
        }
        bool again = rc != -EBUSY && rc != -EPERM && rc != -EINVAL && rc != -ENOTSUP &&
                     rc != -ESHUTDOWN && rc != -EBADMSG;
        if (!again || clock_mono_ns() >= until_ns) {
            give_up(lane, rc, err.text);
            return rc;
        }
        int64_t pause_ns = pause_next_ns(&lane->pause);
        complain(lane, err.text, pause_ns);
        if (pause_sleep(drain->stop_fd, pause_ns)) {
            return -ECANCELED;
        }
    }
}

static void *lane_thread(void *arg)
{
    struct drain_lane *lane = arg;
    struct drain *drain = lane->drain;
    if (open_source(lane) < 0) {
        return NULL;
    }
    atomic_fetch_add(&drain->counters.lanes_open, 1);
    lane->owed = true;
    lane->keep_due_ns = clock_mono_ns() + KEEP_EVERY_NS;
    while (!stopping(drain) && drain_once(lane)) {
    }
    atomic_fetch_sub(&drain->counters.lanes_open, 1);
    drain->driver->lane_close(lane->source);
    lane->source = NULL;
    return NULL;
}

int drain_start(struct drain *drain, const struct drain_settings *settings,
                const struct sink_driver *driver, struct sink *sink, struct metrics *metrics,
                struct err *err)
{
    drain->settings = *settings;
    drain->driver = driver;
    drain->sink = sink;
    drain->metrics = metrics;
    drain->counters.lanes = (int)settings->lanes;
    pthread_mutex_init(&drain->lock, NULL);
    turn_init(&drain->fill);
    drain->lanes = xcalloc(settings->lanes, sizeof(*drain->lanes));
    drain->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (drain->stop_fd < 0) {
        return err_set(err, -errno, "no event descriptor: %s", strerror(errno));
    }
    for (unsigned i = 0; i < settings->lanes; i++) {
        struct drain_lane *lane = &drain->lanes[i];
        char name[40];
        snprintf(name, sizeof(name), "sluice-worker lane %u", i);
        lane->drain = drain;
        lane->number = i;
        lane->pause = (struct pause){.max_ns = settings->back_off_max_ns,
                                     .seed = (unsigned)clock_mono_ns() + i};
        int rc = maindb_open(&lane->main, settings->main_url, name, err);
        if (rc < 0) {
            return rc;
        }
        turn_place_init(&lane->place);
        rc = pthread_create(&lane->thread, NULL, lane_thread, lane);
        if (rc != 0) {
            turn_place_free(&lane->place);
            maindb_close(lane->main);
            return err_set(err, -rc, "lane %u: no thread: %s", i, strerror(rc));
        }
        drain->started++;
    }
    return 0;
}

int drain_failed_fd(const struct drain *drain)
{
    return drain->stop_fd;
}

void drain_stop(struct drain *drain)
{
    if (drain->stop_fd >= 0) {
        eventfd_write(drain->stop_fd, 1);
        turn_stop(&drain->fill);
    }
}

bool drain_join(struct drain *drain, int64_t deadline_ns)
{
    bool all = true;
    for (unsigned i = 0; i < drain->started; i++) {
        struct drain_lane *lane = &drain->lanes[i];
        int64_t left_ns = deadline_ns - clock_mono_ns();
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        int64_t until_ns = until.tv_nsec + (left_ns > 0 ? left_ns : 0);
        until.tv_sec += until_ns / NS_PER_S;
        until.tv_nsec = until_ns % NS_PER_S;
        if (!lane->joined) {
            lane->joined = pthread_timedjoin_np(lane->thread, NULL, &until) == 0;
        }
        if (!lane->joined) {
            log_warning("lane %u does not end: what it holds will be delivered again", i);
            all = false;
        }
    }
    return all;
}

int drain_end(struct drain *drain, struct err *err)
{
    for (unsigned i = 0; i < drain->started; i++) {
        assert(drain->lanes[i].joined);
        maindb_close(drain->lanes[i].main);
        metrics_event_free(&drain->lanes[i].event);
        turn_place_free(&drain->lanes[i].place);
    }
    free(drain->lanes);
    drain->lanes = NULL;
    drain->started = 0;
    if (drain->stop_fd >= 0) {
        close(drain->stop_fd);
        drain->stop_fd = -1;
    }
    turn_free(&drain->fill);
    pthread_mutex_destroy(&drain->lock);
    return drain->failure.code ? err_set(err, drain->failure.code, "%s", drain->failure.text) : 0;
}

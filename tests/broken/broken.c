/* broken.c: drivers that are wrong on purpose, so that the audit can show that it notices.
 *
 * A decorator around each real driver, linked instead of the registry into sluice-api and
 * sluice-worker of the folder broken/. FAULT_ON_PURPOSE chooses the fault; without it, or with
 * "none", the decorator changes nothing (the control of the experiment). Never installed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "sink/drivers.h"

enum fault {
    FAULT_NONE,
    FAULT_EARLY_ACK,      /* DURABLE before the flush; what was held back dies with the process */
    FAULT_SKIP_ID,        /* one id of a batch never reaches the main DB, yet is acknowledged */
    FAULT_ACK_FIRST,      /* the sink's ack goes out before the main DB's commit */
    FAULT_CURSOR_AHEAD,   /* a restarted consumer starts behind what nobody has committed */
    FAULT_CHANGE_BYTE,    /* one byte of a body changes on the way */
    FAULT_OTHER_ID,       /* one task comes a second time, under another id */
    FAULT_REFUSED_STORED, /* the client hears REFUSED of what is stored all the same */
};

static const struct {
    const char *name;
    enum fault fault;
} faults[] = {
    {"none", FAULT_NONE},
    {"early-ack", FAULT_EARLY_ACK},
    {"skip-id", FAULT_SKIP_ID},
    {"ack-first", FAULT_ACK_FIRST},
    {"cursor-ahead", FAULT_CURSOR_AHEAD},
    {"change-byte", FAULT_CHANGE_BYTE},
    {"other-id", FAULT_OTHER_ID},
    {"refused-stored", FAULT_REFUSED_STORED},
};

enum {
    EVERY = 50,     /* one task in so many is treated wrongly */
    HELD_BACK = 64, /* tasks that early-ack keeps to itself */
    JUMP = 40,      /* tasks that cursor-ahead passes over */
    LANES_MAX = 1024,
};

struct held {
    struct task task;
    void *body;
    sink_done_fn *done;
    void *arg;
    bool told; /* DURABLE was already said */
};

struct broken_sink {
    struct sink base;
    struct sink *inner;
    const struct sink_driver *real;
    enum fault fault;
    struct held held[HELD_BACK];
    size_t held_count;
    uint64_t submitted;
};

struct broken_lane {
    struct sink_lane base;
    struct broken_sink *sink;
    struct sink_lane *inner;
    struct sink_batch real; /* what the inner lane gave */
    struct task *tasks;     /* what we pass on instead */
    struct buf bodies;
    uint64_t fetched;
    bool acked;
};

static enum fault chosen_fault(void)
{
    const char *name = getenv("FAULT_ON_PURPOSE");
    if (!name || !*name)
        return FAULT_NONE;
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        if (strcmp(faults[i].name, name) == 0)
            return faults[i].fault;
    log_error("FAULT_ON_PURPOSE=%s is not a fault that is known here", name);
    exit(2);
}

static struct broken_sink *of(struct sink *sink)
{
    return (struct broken_sink *)sink;
}

static struct broken_lane *lane_of(struct sink_lane *lane)
{
    return (struct broken_lane *)lane;
}

/* ---- what both roles share ---- */

static void jump_ahead(struct broken_sink *broken)
{
    struct sink_lane *lane;
    struct sink_batch batch = {0};
    if (broken->real->lane_open(broken->inner, LANES_MAX, &lane, NULL) < 0)
        return;
    if (broken->real->fetch(lane, JUMP, 500, &batch) > 0)
        broken->real->ack(lane, &batch);
    broken->real->lane_close(lane);
}

static int open_with(const struct sink_driver *self, const struct sink_driver *real,
                     struct sink **sink, enum sink_role role, const struct options *options,
                     struct err *err)
{
    struct broken_sink *broken = xcalloc(1, sizeof(*broken));
    broken->base.driver = self;
    broken->real = real;
    broken->fault = role == SINK_PROBE ? FAULT_NONE : chosen_fault();
    int result = real->open(&broken->inner, role, options, err);
    if (result < 0) {
        free(broken);
        return result;
    }
    if (role == SINK_DRAIN && broken->fault == FAULT_CURSOR_AHEAD)
        jump_ahead(broken);
    *sink = &broken->base;
    return 0;
}

static void broken_close(struct sink *sink, int64_t deadline_ns)
{
    if (!sink)
        return;
    struct broken_sink *broken = of(sink);
    for (size_t i = 0; i < broken->held_count; i++) {
        if (!broken->held[i].told)
            broken->held[i].done(broken->held[i].arg, SINK_DURABLE, 1);
        free(broken->held[i].body);
    }
    broken->real->close(broken->inner, deadline_ns);
    free(broken);
}

static int broken_backlog(struct sink *sink, struct sink_backlog *backlog)
{
    return of(sink)->real->backlog(of(sink)->inner, backlog);
}

static int broken_stats(struct sink *sink, struct sink_stats *stats)
{
    return of(sink)->real->stats(of(sink)->inner, stats);
}

/* ---- ingest ---- */

static void nobody_waits(void *arg, enum sink_outcome outcome, unsigned batch)
{
    (void)arg;
    (void)outcome;
    (void)batch;
}

struct told_refused {
    sink_done_fn *done;
    void *arg;
};

static void say_refused(void *arg, enum sink_outcome outcome, unsigned batch)
{
    struct told_refused *told = arg;
    (void)outcome;
    told->done(told->arg, SINK_REFUSED, batch);
    free(told);
}

static int hold_back(struct broken_sink *broken, const struct task *task, sink_done_fn *done,
                     void *arg)
{
    if (broken->held_count == HELD_BACK) { /* the oldest goes on its way at last */
        struct held *oldest = &broken->held[0];
        broken->real->submit(broken->inner, &oldest->task, nobody_waits, NULL);
        if (!oldest->told)
            oldest->done(oldest->arg, SINK_DURABLE, 1);
        free(oldest->body);
        memmove(broken->held, broken->held + 1, (HELD_BACK - 1) * sizeof(*oldest));
        broken->held_count--;
    }
    struct held *held = &broken->held[broken->held_count++];
    *held = (struct held){.task = *task, .done = done, .arg = arg};
    held->body = xmalloc(task->body_bytes);
    memcpy(held->body, task->body, task->body_bytes);
    held->task.body = held->body;
    return 0;
}

static int broken_submit(struct sink *sink, const struct task *task, sink_done_fn *done, void *arg)
{
    struct broken_sink *broken = of(sink);
    broken->submitted++;
    if (broken->fault == FAULT_EARLY_ACK &&
        broken->submitted > EVERY) /* the runner's probe passes */
        return hold_back(broken, task, done, arg);
    if (broken->fault == FAULT_REFUSED_STORED && broken->submitted % EVERY == 0) {
        struct told_refused *told = xmalloc(sizeof(*told));
        *told = (struct told_refused){done, arg};
        int result = broken->real->submit(broken->inner, task, say_refused, told);
        if (result < 0)
            free(told);
        return result;
    }
    return broken->real->submit(broken->inner, task, done, arg);
}

static int broken_fd(struct sink *sink)
{
    return of(sink)->real->fd(of(sink)->inner);
}

static bool somebody_waits(const struct broken_sink *broken)
{
    for (size_t i = 0; i < broken->held_count; i++)
        if (!broken->held[i].told)
            return true;
    return false;
}

static int64_t broken_due_ns(struct sink *sink)
{
    return somebody_waits(of(sink)) ? 0 : of(sink)->real->due_ns(of(sink)->inner);
}

static int broken_process(struct sink *sink)
{
    struct broken_sink *broken = of(sink);
    for (size_t i = 0; i < broken->held_count; i++) {
        if (broken->held[i].told)
            continue;
        broken->held[i].told = true;
        broken->held[i].done(broken->held[i].arg, SINK_DURABLE, 1);
    }
    return broken->real->process(broken->inner);
}

static bool broken_ready(struct sink *sink)
{
    return of(sink)->real->ready(of(sink)->inner);
}

static int broken_why(struct sink *sink, const char **sentence)
{
    return sink_why(of(sink)->real, of(sink)->inner, sentence);
}

/* ---- drain ---- */

static int broken_lane_open(struct sink *sink, unsigned lane, struct sink_lane **out,
                            struct err *err)
{
    struct broken_lane *broken = xcalloc(1, sizeof(*broken));
    broken->base.driver = sink->driver;
    broken->sink = of(sink);
    int result = of(sink)->real->lane_open(of(sink)->inner, lane, &broken->inner, err);
    if (result < 0) {
        free(broken);
        return result;
    }
    *out = &broken->base;
    return 0;
}

/* Bodies are copied first and pointed to afterwards: the buffer may move while it grows. */
static void copy_tasks(struct broken_lane *lane, size_t extra)
{
    size_t count = lane->real.count;
    free(lane->tasks);
    lane->tasks = xcalloc(count + extra, sizeof(*lane->tasks));
    buf_clear(&lane->bodies);
    for (size_t i = 0; i < count; i++)
        buf_append(&lane->bodies, lane->real.tasks[i].body, lane->real.tasks[i].body_bytes);
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        lane->tasks[i] = lane->real.tasks[i];
        lane->tasks[i].body = lane->bodies.data + at;
        at += lane->tasks[i].body_bytes;
    }
}

static bool victim_in(const struct broken_lane *lane, size_t *index)
{
    for (size_t i = 0; i < lane->real.count; i++) {
        if ((lane->fetched + i) % EVERY == EVERY - 1) {
            *index = i;
            return true;
        }
    }
    return false;
}

static void falsify(struct broken_lane *lane, struct sink_batch *batch)
{
    size_t victim = 0;
    bool found = victim_in(lane, &victim);
    size_t count = lane->real.count;
    lane->fetched += count;
    copy_tasks(lane, 1);
    *batch = (struct sink_batch){count, lane->tasks, lane->real.redelivered};
    switch (lane->sink->fault) {
    case FAULT_SKIP_ID:
        if (found && count > 1) {
            memmove(lane->tasks + victim, lane->tasks + victim + 1,
                    (count - victim - 1) * sizeof(*lane->tasks));
            batch->count--;
        }
        break;
    case FAULT_CHANGE_BYTE:
        if (found)
            lane->bodies.data[(const char *)lane->tasks[victim].body - lane->bodies.data +
                              (ptrdiff_t)lane->tasks[victim].body_bytes - 3] ^= 1;
        break;
    case FAULT_OTHER_ID:
        if (found) {
            lane->tasks[count] = lane->tasks[victim];
            lane->tasks[count].id[0] ^= 0xff;
            batch->count++;
        }
        break;
    default:
        break;
    }
}

static int broken_fetch(struct sink_lane *lane, unsigned max, int wait_ms, struct sink_batch *batch)
{
    struct broken_lane *broken = lane_of(lane);
    const struct sink_driver *real = broken->sink->real;
    bool adds_one = broken->sink->fault == FAULT_OTHER_ID && max > 1;
    int result = real->fetch(broken->inner, adds_one ? max - 1 : max, wait_ms, &broken->real);
    if (result <= 0)
        return result;
    falsify(broken, batch);
    broken->acked = broken->sink->fault == FAULT_ACK_FIRST;
    if (broken->acked)
        real->ack(broken->inner, &broken->real);
    return (int)batch->count;
}

static int broken_keep(struct sink_lane *lane)
{
    return lane_of(lane)->acked ? 0 : lane_of(lane)->sink->real->keep(lane_of(lane)->inner);
}

static int broken_ack(struct sink_lane *lane, struct sink_batch *batch)
{
    struct broken_lane *broken = lane_of(lane);
    *batch = (struct sink_batch){0};
    if (broken->acked)
        return 0;
    return broken->sink->real->ack(broken->inner, &broken->real);
}

static int broken_release(struct sink_lane *lane, struct sink_batch *batch)
{
    struct broken_lane *broken = lane_of(lane);
    *batch = (struct sink_batch){0};
    if (broken->acked)
        return 0;
    return broken->sink->real->release(broken->inner, &broken->real);
}

static void broken_lane_close(struct sink_lane *lane)
{
    if (!lane)
        return;
    struct broken_lane *broken = lane_of(lane);
    broken->sink->real->lane_close(broken->inner);
    free(broken->tasks);
    buf_free(&broken->bodies);
    free(broken);
}

/* ---- the list: a line a driver ---- */

static const struct sink_driver broken_wal;

static int open_wal(struct sink **sink, enum sink_role role, const struct options *options,
                    struct err *err)
{
    return open_with(&broken_wal, &sink_wal, sink, role, options, err);
}

static int setup_wal(const struct options *options, struct err *err)
{
    return sink_wal.setup(options, err);
}

static int preflight_wal(const struct options *options, struct err *err)
{
    return sink_wal.preflight(options, err);
}

static const struct sink_driver broken_wal = {
    .name = "wal",
    .promise = "none: broken on purpose",
    .flags = SINK_DRAINS | SINK_BACKLOG_EXACT | SINK_DURABLE_KILL,
    .options = sink_wal_options,
    .setup = setup_wal,
    .preflight = preflight_wal,
    .open = open_wal,
    .close = broken_close,
    .backlog = broken_backlog,
    .stats = broken_stats,
    .submit = broken_submit,
    .fd = broken_fd,
    .due_ns = broken_due_ns,
    .process = broken_process,
    .ready = broken_ready,
    .upkeep = sink_no_upkeep,
    .why = broken_why,
    .lane_open = broken_lane_open,
    .fetch = broken_fetch,
    .keep = broken_keep,
    .ack = broken_ack,
    .release = broken_release,
    .lane_close = broken_lane_close,
};

const struct sink_driver *const sink_drivers[] = {&broken_wal, NULL};

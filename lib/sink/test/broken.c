/* broken.c: drivers that are wrong on purpose, each in one way, so that the suite can show that it
 * notices. Decorators on sink.h; "none" changes nothing. */
#include "contract.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum fault {
    NONE,
    DOUBLE_DONE,
    NEVER_DONE,
    DONE_IN_SUBMIT,
    BATCH_OF_NOTHING,
    SILENT,
    NEVER_READY,
    DROP_TASK,
    STORE_TWICE,
    OTHER_ID,
    REFUSED_STORED,
    KEEP_BODY,
    KEEP_TAKES,
    EARLY_DURABLE,
    CLOSE_FORGETS,
    CLOSE_GUESSES,
    CHANGE_BYTE,
    CHANGE_TIME,
    ACK_IGNORED,
    RELEASE_ACKS,
    ACK_ON_FETCH,
    CLOSE_ACKS,
    ACK_OTHERS,
    RESTART_SKIPS,
    BATCH_TOO_LARGE,
    BATCH_NEVER_FULL,
    BACKLOG_WITHOUT_FLIGHT,
};

static const char *const fault_names[] = {
    [NONE] = "none",
    [DOUBLE_DONE] = "double-done",
    [NEVER_DONE] = "never-done",
    [DONE_IN_SUBMIT] = "done-in-submit",
    [BATCH_OF_NOTHING] = "batch-of-nothing",
    [SILENT] = "silent",
    [NEVER_READY] = "never-ready",
    [DROP_TASK] = "drop-task",
    [STORE_TWICE] = "store-twice",
    [OTHER_ID] = "other-id",
    [REFUSED_STORED] = "refused-stored",
    [KEEP_BODY] = "keep-body",
    [KEEP_TAKES] = "keep-takes",
    [EARLY_DURABLE] = "early-durable",
    [CLOSE_FORGETS] = "close-forgets",
    [CLOSE_GUESSES] = "close-guesses",
    [CHANGE_BYTE] = "change-byte",
    [CHANGE_TIME] = "change-time",
    [ACK_IGNORED] = "ack-ignored",
    [RELEASE_ACKS] = "release-acks",
    [ACK_ON_FETCH] = "ack-on-fetch",
    [CLOSE_ACKS] = "close-acks",
    [ACK_OTHERS] = "ack-others",
    [RESTART_SKIPS] = "restart-skips",
    [BATCH_TOO_LARGE] = "batch-too-large",
    [BATCH_NEVER_FULL] = "batch-never-full",
    [BACKLOG_WITHOUT_FLIGHT] = "backlog-without-flight",
};

enum { EVERY = 20, HELD_MAX = 64, LANES_MAX = 64 };

/* One task on its way through: what done is told may differ from what the driver said. */
struct passing {
    sink_done_fn *done;
    void *arg;
    bool rare; /* one in EVERY: the one that is treated wrongly */
    struct broken *sink;
    struct task kept; /* for faults that hold a task back */
};

struct broken {
    struct sink base;
    struct sink *inner;
    unsigned submitted;
    bool closing;
    struct passing *held[HELD_MAX];  /* EARLY_DURABLE: told DURABLE, not stored yet */
    struct passing *fresh[HELD_MAX]; /* KEEP_BODY, EARLY_DURABLE: waiting for process() */
    size_t held_count, fresh_count;
};

struct broken_lane {
    struct sink_lane base;
    struct sink_lane *inner;
    struct sink_batch real;
    struct task *tasks; /* copies passed on */
    size_t task_count;
};

static enum fault fault;
static const struct sink_driver *real;
static struct sink_driver wrapped;
static atomic_llong in_flight; /* of this process */
static struct broken_lane *lanes[LANES_MAX];

static void no_done(void *arg, enum sink_outcome outcome, unsigned batch)
{
    (void)arg;
    (void)outcome;
    (void)batch;
}

static void pass_done(void *arg, enum sink_outcome outcome, unsigned batch)
{
    struct passing passing = *(struct passing *)arg;
    free(arg);
    if ((fault == NEVER_DONE && passing.rare) ||
        (fault == CLOSE_FORGETS && passing.sink->closing)) {
        return;
    }
    if (fault == CLOSE_GUESSES && passing.sink->closing) {
        outcome = SINK_REFUSED;
    }
    if (fault == REFUSED_STORED && passing.rare) {
        outcome = SINK_REFUSED;
    }
    passing.done(passing.arg, outcome, fault == BATCH_OF_NOTHING && passing.rare ? 0 : batch);
    if (fault == DOUBLE_DONE && passing.rare) {
        passing.done(passing.arg, outcome, batch);
    }
}

static int broken_open(struct sink **sink, enum sink_role role, const struct options *options,
                       struct err *err)
{
    struct broken *broken = xcalloc(1, sizeof(*broken));
    int rc = real->open(&broken->inner, role, options, err);
    if (rc < 0) {
        free(broken);
        *sink = NULL;
        return rc;
    }
    broken->base.driver = &wrapped;
    *sink = &broken->base;
    return 0;
}

static struct task copy_of(const struct task *task)
{
    struct task copy = *task;
    copy.body = memcpy(xmalloc(task->body_bytes + 1), task->body, task->body_bytes);
    return copy;
}

static int broken_submit(struct sink *sink, const struct task *task, sink_done_fn *done, void *arg)
{
    struct broken *broken = (struct broken *)sink;
    struct passing *passing = xcalloc(1, sizeof(*passing));
    *passing = (struct passing){
        .done = done, .arg = arg, .rare = ++broken->submitted % EVERY == 0, .sink = broken};
    if (((fault == DROP_TASK || fault == DONE_IN_SUBMIT || fault == KEEP_BODY) && passing->rare) ||
        fault == EARLY_DURABLE) {
        if (broken->fresh_count == HELD_MAX) {
            free(passing);
            return -EAGAIN;
        }
        if (fault == DONE_IN_SUBMIT) {
            pass_done(passing, SINK_DURABLE, 1);
            return 0;
        }
        passing->kept = fault == KEEP_BODY ? *task : copy_of(task);
        broken->fresh[broken->fresh_count++] = passing;
        return 0;
    }
    int rc = real->submit(broken->inner, task, pass_done, passing);
    if (rc < 0) {
        free(passing);
    } else if (fault == STORE_TWICE && broken->submitted % EVERY == 0) {
        real->submit(broken->inner, task, no_done, NULL);
    } else if (fault == OTHER_ID && broken->submitted % EVERY == 0) {
        struct task other = *task;
        other.id[15] ^= 0xff;
        real->submit(broken->inner, &other, no_done, NULL);
    }
    return rc;
}

static void store_held(struct broken *broken)
{
    for (size_t i = 0; i < broken->held_count; i++) {
        real->submit(broken->inner, &broken->held[i]->kept, no_done, NULL);
        free((void *)broken->held[i]->kept.body);
        free(broken->held[i]);
    }
    broken->held_count = 0;
}

static int broken_process(struct sink *sink)
{
    struct broken *broken = (struct broken *)sink;
    size_t count = broken->fresh_count;
    broken->fresh_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct passing *passing = broken->fresh[i];
        if (fault == KEEP_BODY) {
            real->submit(broken->inner, &passing->kept, pass_done, passing);
            continue;
        }
        passing->done(passing->arg, SINK_DURABLE, 1);
        if (fault == DROP_TASK) {
            free((void *)passing->kept.body);
            free(passing);
            continue;
        }
        if (broken->held_count == HELD_MAX) {
            store_held(broken);
        }
        broken->held[broken->held_count++] = passing;
    }
    return real->process(broken->inner);
}

static void broken_close(struct sink *sink, int64_t deadline_ns)
{
    if (!sink) {
        real->close(NULL, deadline_ns);
        return;
    }
    struct broken *broken = (struct broken *)sink;
    if (broken->fresh_count > 0) {
        broken_process(sink);
    }
    store_held(broken);
    broken->closing = true;
    real->close(broken->inner, deadline_ns);
    free(broken);
}

static struct sink *inner_of(struct sink *sink)
{
    return ((struct broken *)sink)->inner;
}

static int broken_fd(struct sink *sink)
{
    return fault == SILENT ? -1 : real->fd(inner_of(sink));
}

static int64_t broken_due_ns(struct sink *sink)
{
    if (fault == SILENT) {
        return -1;
    }
    return ((struct broken *)sink)->fresh_count > 0 ? 0 : real->due_ns(inner_of(sink));
}

static bool broken_ready(struct sink *sink)
{
    return fault == NEVER_READY ? false : real->ready(inner_of(sink));
}

static int broken_backlog(struct sink *sink, struct sink_backlog *backlog)
{
    int rc = real->backlog(inner_of(sink), backlog);
    if (fault == BACKLOG_WITHOUT_FLIGHT) {
        backlog->tasks -= atomic_load(&in_flight);
    }
    return rc;
}

static int broken_stats(struct sink *sink, struct sink_stats *stats)
{
    return real->stats(inner_of(sink), stats);
}

static int broken_lane_open(struct sink *sink, unsigned number, struct sink_lane **out,
                            struct err *err)
{
    struct broken_lane *lane = xcalloc(1, sizeof(*lane));
    int rc = real->lane_open(inner_of(sink), number, &lane->inner, err);
    if (rc < 0) {
        free(lane);
        return rc;
    }
    if (fault == RESTART_SKIPS && real->fetch(lane->inner, 3, 20, &lane->real) > 0) {
        real->ack(lane->inner, &lane->real);
    }
    lane->base.driver = &wrapped;
    lanes[number % LANES_MAX] = lane;
    *out = &lane->base;
    return 0;
}

static void forget_copies(struct broken_lane *lane)
{
    for (size_t i = 0; i < lane->task_count; i++) {
        free((void *)lane->tasks[i].body);
    }
    free(lane->tasks);
    lane->tasks = NULL;
    lane->task_count = 0;
}

static int broken_fetch(struct sink_lane *base, unsigned max, int wait_ms, struct sink_batch *batch)
{
    struct broken_lane *lane = (struct broken_lane *)base;
    unsigned asked = max;
    asked += fault == BATCH_TOO_LARGE ? 3 : 0;
    asked -= fault == BATCH_NEVER_FULL && max > 1 ? 1 : 0;
    int count = real->fetch(lane->inner, asked, wait_ms, &lane->real);
    *batch = lane->real;
    if (count <= 0) {
        return count;
    }
    atomic_fetch_add(&in_flight, count);
    forget_copies(lane);
    lane->tasks = xcalloc((size_t)count, sizeof(*lane->tasks));
    lane->task_count = (size_t)count;
    for (int i = 0; i < count; i++) {
        lane->tasks[i] = copy_of(&lane->real.tasks[i]);
    }
    if (fault == CHANGE_BYTE) {
        ((char *)lane->tasks[0].body)[lane->tasks[0].body_bytes / 2] ^= 1;
    } else if (fault == CHANGE_TIME) {
        lane->tasks[0].accepted_us++;
    } else if (fault == ACK_ON_FETCH) {
        real->ack(lane->inner, &lane->real);
    }
    batch->tasks = lane->tasks;
    return count;
}

static int end_batch(struct broken_lane *lane, bool acked)
{
    bool held = lane->real.count > 0;
    atomic_fetch_sub(&in_flight, (long long)lane->task_count);
    forget_copies(lane);
    if (!held) {
        return 0; /* acknowledged long ago, or by another lane */
    }
    return acked ? real->ack(lane->inner, &lane->real) : real->release(lane->inner, &lane->real);
}

static int broken_ack(struct sink_lane *base, struct sink_batch *batch)
{
    struct broken_lane *lane = (struct broken_lane *)base;
    *batch = (struct sink_batch){0};
    for (size_t i = 0; i < LANES_MAX && fault == ACK_OTHERS; i++) {
        if (lanes[i] && lanes[i] != lane && lanes[i]->real.count > 0) {
            real->ack(lanes[i]->inner, &lanes[i]->real);
            lanes[i]->real = (struct sink_batch){0};
        }
    }
    int rc = end_batch(lane, fault != ACK_IGNORED);
    lane->real = (struct sink_batch){0};
    return rc;
}

static int broken_release(struct sink_lane *base, struct sink_batch *batch)
{
    struct broken_lane *lane = (struct broken_lane *)base;
    *batch = (struct sink_batch){0};
    int rc = end_batch(lane, fault == RELEASE_ACKS);
    lane->real = (struct sink_batch){0};
    return rc;
}

static int broken_keep(struct sink_lane *base)
{
    struct broken_lane *lane = (struct broken_lane *)base;
    if (fault == KEEP_TAKES && lane->real.count == 0) {
        real->fetch(lane->inner, 3, 0, &lane->real); /* for the next fetch, which won't come */
    }
    return real->keep(lane->inner);
}

static void broken_lane_close(struct sink_lane *base)
{
    struct broken_lane *lane = (struct broken_lane *)base;
    if (fault == CLOSE_ACKS && lane->real.count > 0) {
        real->ack(lane->inner, &lane->real);
    }
    atomic_fetch_sub(&in_flight, (long long)lane->task_count);
    for (size_t i = 0; i < LANES_MAX; i++) {
        lanes[i] = lanes[i] == lane ? NULL : lanes[i];
    }
    real->lane_close(lane->inner);
    forget_copies(lane);
    free(lane);
}

const struct sink_driver *broken_driver(const char *name, const struct sink_driver *around)
{
    for (size_t i = 0; i < sizeof(fault_names) / sizeof(fault_names[0]); i++) {
        if (strcmp(fault_names[i], name) != 0) {
            continue;
        }
        fault = (enum fault)i;
        real = around;
        wrapped = *around;
        wrapped.open = broken_open;
        wrapped.close = broken_close;
        wrapped.backlog = broken_backlog;
        wrapped.stats = broken_stats;
        wrapped.submit = broken_submit;
        wrapped.fd = broken_fd;
        wrapped.due_ns = broken_due_ns;
        wrapped.process = broken_process;
        wrapped.ready = broken_ready;
        wrapped.upkeep = sink_no_upkeep;
        wrapped.upkeep_stat = NULL;
        wrapped.why = NULL;
        wrapped.broken_by = NULL;
        wrapped.lane_open = broken_lane_open;
        wrapped.fetch = broken_fetch;
        wrapped.keep = broken_keep;
        wrapped.ack = broken_ack;
        wrapped.release = broken_release;
        wrapped.lane_close = broken_lane_close;
        return &wrapped;
    }
    return NULL;
}

/* scripted_sink.c: a registry with one driver, for tests: a task's payload says what becomes of it.
 *
 *   "durable" "refused" "unknown"   decided in the next process()
 *   "slow N"                        durable at the Nth process() from now, about 1 ms each
 *   "hold"                          not decided until "release", upkeep() or close() (then:
 * durable) "release"                       durable, and so are all that are held "again" "toobig"
 * "odd"          submit answers -EAGAIN, -EMSGSIZE, -EPROTO "broken"                        submit
 * answers -EIO "break"                         process() decides all as unknown and answers -EIO
 *   "nospace"                       submit answers -ENOSPC
 *   "fill"                          durable, and from then on the sink is not ready, being full
 *   "disconnect"                    durable, and from then on the sink is not ready
 *   "backlog T B"                   durable, and the backlog is T tasks and B bytes from then on
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "sink/sink.h"

struct scripted_task {
    sink_done_fn *done;
    void *arg;
    enum sink_outcome outcome;
    long turns; /* process() calls to go; -1: held */
};

struct scripted {
    struct sink base;
    struct scripted_task *tasks;
    size_t count, capacity;
    struct sink_backlog backlog;
    bool is_ready, is_full, breaks;
};

static const struct option_spec scripted_options[] = {
    {.name = "scripted-preflight",
     .type = OPTION_CHOICE,
     .default_text = "good",
     .choices = "good|unsafe|unverified",
     .help = "what preflight says"},
    {.name = NULL},
};

extern const struct sink_driver sink_scripted;

static int scripted_preflight(const struct options *options, struct err *err)
{
    const char *says = options_string(options, "scripted-preflight");
    if (strcmp(says, "unsafe") == 0) {
        return err_set(err, -EPERM, "fsync is off and must be on");
    }
    return strcmp(says, "unverified") == 0 ? err_set(err, -ENODATA, "fsync can't be read") : 0;
}

static int scripted_open(struct sink **sink, enum sink_role role, const struct options *options,
                         struct err *err)
{
    (void)role;
    (void)options;
    (void)err;
    struct scripted *scripted = xcalloc(1, sizeof(*scripted));
    scripted->base.driver = &sink_scripted;
    scripted->is_ready = true;
    *sink = &scripted->base;
    return 0;
}

/* The text of the payload's string; tests send {"payload":"..."} without escapes. */
static void payload_of(const struct task *task, char *text, size_t text_bytes)
{
    static const char key[] = "\"payload\":\"";
    const char *start = memmem(task->body, task->body_bytes, key, sizeof(key) - 1);
    text[0] = '\0';
    if (start) {
        start += sizeof(key) - 1;
        size_t left = task->body_bytes - (size_t)(start - (const char *)task->body);
        const char *end = memchr(start, '"', left);
        snprintf(text, text_bytes, "%.*s", (int)(end - start), start);
    }
}

static int refusal(const char *payload)
{
    if (strcmp(payload, "again") == 0) {
        return -EAGAIN;
    }
    if (strcmp(payload, "nospace") == 0) {
        return -ENOSPC;
    }
    if (strcmp(payload, "toobig") == 0) {
        return -EMSGSIZE;
    }
    if (strcmp(payload, "odd") == 0) {
        return -EPROTO;
    }
    return strcmp(payload, "broken") == 0 ? -EIO : 0;
}

static void follow(struct scripted *scripted, const char *payload, struct scripted_task *task)
{
    long long tasks, bytes;
    task->outcome = SINK_DURABLE;
    task->turns = 1;
    if (strcmp(payload, "refused") == 0) {
        task->outcome = SINK_REFUSED;
    } else if (strcmp(payload, "unknown") == 0) {
        task->outcome = SINK_UNKNOWN;
    } else if (strncmp(payload, "slow ", 5) == 0) {
        task->turns = strtol(payload + 5, NULL, 10);
    } else if (strcmp(payload, "hold") == 0) {
        task->turns = -1;
    } else if (strcmp(payload, "release") == 0) {
        for (size_t i = 0; i < scripted->count; i++) {
            scripted->tasks[i].turns = 1;
        }
    } else if (strcmp(payload, "break") == 0) {
        scripted->breaks = true;
    } else if (strcmp(payload, "fill") == 0) {
        scripted->is_full = true;
    } else if (strcmp(payload, "disconnect") == 0) {
        scripted->is_ready = false;
    } else if (sscanf(payload, "backlog %lld %lld", &tasks, &bytes) == 2) {
        scripted->backlog.tasks = tasks;
        scripted->backlog.bytes = bytes;
    }
}

static int scripted_submit(struct sink *sink, const struct task *task, sink_done_fn *done,
                           void *arg)
{
    struct scripted *scripted = (struct scripted *)sink;
    char payload[64];
    payload_of(task, payload, sizeof(payload));
    int rc = refusal(payload);
    if (rc < 0) {
        return rc;
    }
    struct scripted_task taken = {.done = done, .arg = arg};
    follow(scripted, payload, &taken);
    if (scripted->count == scripted->capacity) {
        scripted->capacity = 2 * scripted->capacity + 16;
        scripted->tasks = xrealloc(scripted->tasks, scripted->capacity * sizeof(*scripted->tasks));
    }
    scripted->tasks[scripted->count++] = taken;
    return 0;
}

static void decide_all(struct scripted *scripted, const enum sink_outcome *outcome)
{
    while (scripted->count > 0) {
        struct scripted_task task = scripted->tasks[--scripted->count];
        task.done(task.arg, outcome ? *outcome : task.outcome, 1);
    }
}

static int scripted_process(struct sink *sink)
{
    struct scripted *scripted = (struct scripted *)sink;
    if (scripted->breaks) {
        enum sink_outcome unknown = SINK_UNKNOWN;
        decide_all(scripted, &unknown);
        return -EIO;
    }
    size_t kept = 0;
    for (size_t i = 0; i < scripted->count; i++) {
        struct scripted_task task = scripted->tasks[i];
        if (task.turns > 0 && --task.turns == 0) {
            task.done(task.arg, task.outcome, 1);
        } else {
            scripted->tasks[kept++] = task;
        }
    }
    scripted->count = kept;
    return 0;
}

static void scripted_close(struct sink *sink, int64_t deadline_ns)
{
    (void)deadline_ns;
    if (sink) {
        struct scripted *scripted = (struct scripted *)sink;
        decide_all(scripted, NULL);
        free(scripted->tasks);
        free(scripted);
    }
}

static int scripted_backlog(struct sink *sink, struct sink_backlog *backlog)
{
    *backlog = ((struct scripted *)sink)->backlog;
    return 0;
}

static int scripted_stats(struct sink *sink, struct sink_stats *stats)
{
    (void)sink;
    stats->count = 0;
    return 0;
}

static int scripted_fd(struct sink *sink)
{
    (void)sink;
    return -1;
}

static int64_t scripted_due_ns(struct sink *sink)
{
    struct scripted *scripted = (struct scripted *)sink;
    for (size_t i = 0; i < scripted->count; i++) {
        if (scripted->tasks[i].turns > 0) {
            return scripted->tasks[i].turns == 1 ? 0 : NS_PER_MS;
        }
    }
    return -1;
}

static int scripted_upkeep(struct sink *sink)
{
    struct scripted *scripted = (struct scripted *)sink;
    for (size_t i = 0; i < scripted->count; i++) {
        scripted->tasks[i].turns = 1;
    }
    return 0;
}

static bool scripted_ready(struct sink *sink)
{
    const struct scripted *scripted = (struct scripted *)sink;
    return scripted->is_ready && !scripted->is_full;
}

static int scripted_why(struct sink *sink, const char **sentence)
{
    const struct scripted *scripted = (struct scripted *)sink;
    *sentence = scripted->is_full ? "the shelf is full" : "the sink is not connected";
    return scripted->is_full ? -ENOSPC : scripted->is_ready ? 0 : -ENOTCONN;
}

const struct sink_driver sink_scripted = {
    .name = "scripted",
    .promise = "nothing: this sink is for tests",
    .flags = SINK_CONTROL,
    .options = scripted_options,
    .setup = sink_no_setup,
    .preflight = scripted_preflight,
    .open = scripted_open,
    .close = scripted_close,
    .backlog = scripted_backlog,
    .stats = scripted_stats,
    .submit = scripted_submit,
    .fd = scripted_fd,
    .due_ns = scripted_due_ns,
    .process = scripted_process,
    .ready = scripted_ready,
    .upkeep = scripted_upkeep,
    .why = scripted_why,
    .lane_open = sink_no_lane_open,
    .fetch = sink_no_fetch,
    .keep = sink_no_keep,
    .ack = sink_no_ack,
    .release = sink_no_release,
    .lane_close = sink_no_lane_close,
};

const struct sink_driver *const sink_drivers[] = {&sink_scripted, NULL};

/* sink_memory.c: a control that keeps nothing. It answers DURABLE for every task in the next pass
 * of the loop, so that what a run with it costs is the harness's own cost: HTTP, parsing, the loop.
 */
#include "sink/drivers.h"

#include <errno.h>
#include <stdlib.h>

struct pending {
    sink_done_fn *done;
    void *arg;
};

struct sink_in_memory {
    struct sink base;
    struct pending *pending;
    size_t count;
    size_t capacity;
};

static const struct option_spec memory_options[] = {{.name = NULL}};

static struct sink_in_memory *memory_of(struct sink *sink)
{
    return (struct sink_in_memory *)sink;
}

static int memory_open(struct sink **sink, enum sink_role role, const struct options *options,
                       struct err *err)
{
    (void)options;
    *sink = NULL;
    if (role == SINK_DRAIN) {
        return err_set(err, -ENOTSUP,
                       "the sink memory keeps nothing, so there is nothing to drain from it");
    }
    struct sink_in_memory *memory = xcalloc(1, sizeof(*memory));
    memory->base.driver = &sink_memory;
    *sink = &memory->base;
    return 0;
}

static int memory_submit(struct sink *sink, const struct task *task, sink_done_fn *done, void *arg)
{
    (void)task;
    struct sink_in_memory *memory = memory_of(sink);
    if (memory->count == memory->capacity) {
        memory->capacity = memory->capacity > 0 ? 2 * memory->capacity : 256;
        memory->pending = xrealloc(memory->pending, memory->capacity * sizeof(*memory->pending));
    }
    memory->pending[memory->count++] = (struct pending){.done = done, .arg = arg};
    return 0;
}

static int memory_process(struct sink *sink)
{
    struct sink_in_memory *memory = memory_of(sink);
    size_t count = memory->count;
    for (size_t i = 0; i < count; i++) {
        /* A done may submit again, which may move the array. */
        struct pending pending = memory->pending[i];
        pending.done(pending.arg, SINK_DURABLE, (unsigned)count);
    }
    size_t added = memory->count - count;
    for (size_t i = 0; i < added; i++) {
        memory->pending[i] = memory->pending[count + i];
    }
    memory->count = added;
    return 0;
}

static void memory_close(struct sink *sink, int64_t deadline_ns)
{
    (void)deadline_ns;
    if (!sink) {
        return;
    }
    struct sink_in_memory *memory = memory_of(sink);
    memory_process(sink);
    free(memory->pending);
    free(memory);
}

static int memory_fd(struct sink *sink)
{
    (void)sink;
    return -1;
}

static int64_t memory_due_ns(struct sink *sink)
{
    return memory_of(sink)->count > 0 ? 0 : -1;
}

static bool memory_ready(struct sink *sink)
{
    (void)sink;
    return true;
}

static int memory_backlog(struct sink *sink, struct sink_backlog *backlog)
{
    (void)sink;
    /* Nothing is kept: zero is the truth, and every acknowledged task is missing from it. */
    *backlog = (struct sink_backlog){0};
    return 0;
}

static int memory_stats(struct sink *sink, struct sink_stats *stats)
{
    (void)sink;
    stats->count = 0;
    return 0;
}

const struct sink_driver sink_memory = {
    .name = "memory",
    .promise =
        "nothing is kept: DURABLE only means that the task was read, and it survives neither "
        "the end of the process nor anything else",
    .flags = SINK_CONTROL,
    .options = memory_options,
    .setup = sink_no_setup,
    .preflight = sink_no_preflight,
    .open = memory_open,
    .close = memory_close,
    .backlog = memory_backlog,
    .stats = memory_stats,
    .submit = memory_submit,
    .fd = memory_fd,
    .due_ns = memory_due_ns,
    .process = memory_process,
    .ready = memory_ready,
    .upkeep = sink_no_upkeep,
    .lane_open = sink_no_lane_open,
    .fetch = sink_no_fetch,
    .keep = sink_no_keep,
    .ack = sink_no_ack,
    .release = sink_no_release,
    .lane_close = sink_no_lane_close,
};

/* sink_rabbit.c: a RabbitMQ quorum queue. Publishing is sink_rabbit_ingest.c, consuming
 * sink_rabbit_drain.c, looking sink_rabbit_probe.c, the queue itself sink_rabbit_queue.c; all of
 * them on sink_rabbit_link.c, one AMQP connection that never blocks. */
#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/clock.h"
#include "sink/drivers.h"
#include "sink/sink_rabbit_drain.h"
#include "sink/sink_rabbit_ingest.h"
#include "sink/sink_rabbit_probe.h"
#include "sink/sink_rabbit_queue.h"
#include "sink/sink_rabbit_target.h"

const struct option_spec sink_rabbit_options[] = {
    {.name = "rabbit-queue",
     .type = OPTION_STRING,
     .unit = "NAME",
     .default_text = "sluice",
     .help = "the quorum queue; its name begins with sluice"},
    {.name = "rabbit-confirm-timeout",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "5s",
     .min = 10 * NS_PER_MS,
     .max = 3600 * NS_PER_S,
     .help = "a task that has no confirm by then is unknown, and the connection is given up"},
    {.name = "rabbit-connect-timeout",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "5s",
     .min = 10 * NS_PER_MS,
     .max = 60 * NS_PER_S,
     .help = "longest time from the start of a connection to the end of its login"},
    {.name = "rabbit-heartbeat",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "10s",
     .min = NS_PER_S,
     .max = 600 * NS_PER_S,
     .help = "a connection on which nothing comes for twice this is lost; whole seconds"},
    {.name = "rabbit-tls-ca",
     .type = OPTION_STRING,
     .unit = "FILE",
     .help = "certificates (PEM) that vouch for an amqps:// server; default: the system's"},
    {.name = "rabbit-tls-verify",
     .type = OPTION_BOOL,
     .default_text = "yes",
     .help = "check certificate and name of an amqps:// server"},
    {.name = NULL},
};

struct sink_at_rabbit {
    struct sink base;
    enum sink_role role;
    struct rabbit_target target;
    struct rabbit_ingest *ingest;
    struct rabbit_probe *probe;
};

static struct sink_at_rabbit *rabbit_of(struct sink *sink)
{
    return (struct sink_at_rabbit *)sink;
}

static int rabbit_open(struct sink **out, enum sink_role role, const struct options *options,
                       struct err *err)
{
    struct sink_at_rabbit *sink = xcalloc(1, sizeof(*sink));
    *out = NULL;
    sink->base.driver = &sink_rabbit;
    sink->role = role;
    int rc = rabbit_target_read(&sink->target, options, err);
    if (rc == 0 && role == SINK_INGEST) {
        rc = rabbit_ingest_open(&sink->ingest, &sink->target, err);
    } else if (rc == 0 && role == SINK_PROBE) {
        sink->probe = rabbit_probe_open(&sink->target);
    }
    if (rc < 0) {
        rabbit_target_free(&sink->target);
        free(sink);
        return rc;
    }
    *out = &sink->base;
    return 0;
}

static void rabbit_close(struct sink *base, int64_t deadline_ns)
{
    if (!base) {
        return;
    }
    struct sink_at_rabbit *sink = rabbit_of(base);
    if (sink->ingest) {
        rabbit_ingest_close(sink->ingest, deadline_ns);
    }
    if (sink->probe) {
        rabbit_probe_close(sink->probe);
    }
    rabbit_target_free(&sink->target);
    free(sink);
}

static int rabbit_submit(struct sink *sink, const struct task *task, sink_done_fn *done, void *arg)
{
    return rabbit_ingest_submit(rabbit_of(sink)->ingest, task, done, arg);
}

static int rabbit_fd(struct sink *sink)
{
    return rabbit_ingest_fd(rabbit_of(sink)->ingest);
}

static int64_t rabbit_due_ns(struct sink *sink)
{
    return rabbit_ingest_due_ns(rabbit_of(sink)->ingest);
}

static int rabbit_process(struct sink *sink)
{
    return rabbit_ingest_process(rabbit_of(sink)->ingest);
}

static bool rabbit_ready(struct sink *sink)
{
    return rabbit_ingest_ready(rabbit_of(sink)->ingest);
}

static int rabbit_why(struct sink *sink, const char **sentence)
{
    return rabbit_ingest_why(rabbit_of(sink)->ingest, sentence);
}

static int rabbit_backlog(struct sink *base, struct sink_backlog *backlog)
{
    struct sink_at_rabbit *sink = rabbit_of(base);
    if (sink->ingest) {
        return rabbit_ingest_backlog(sink->ingest, backlog);
    }
    *backlog = (struct sink_backlog){.tasks = -1, .bytes = -1};
    return sink->probe ? rabbit_probe_backlog(sink->probe, backlog) : -ENOTSUP;
}

static int rabbit_stats(struct sink *base, struct sink_stats *stats)
{
    struct sink_at_rabbit *sink = rabbit_of(base);
    stats->count = 0;
    if (sink->ingest) {
        rabbit_ingest_stats(sink->ingest, stats);
        return 0;
    }
    return sink->probe ? rabbit_probe_stats(sink->probe, stats) : -ENOTSUP;
}

static int rabbit_lane_open(struct sink *sink, unsigned lane, struct sink_lane **out,
                            struct err *err)
{
    return rabbit_drain_lane_open(&rabbit_of(sink)->target, lane, out, err);
}

const struct sink_driver sink_rabbit = {
    .name = "rabbit",
    .promise = "confirmed by a RabbitMQ quorum queue, which a majority of its replicas has written "
               "and flushed: survives the end of any process and of the OS, and power, as far as "
               "the disks keep what they flushed; with one replica it does not survive the loss of "
               "that disk or host",
    .flags = SINK_DRAINS | SINK_BACKLOG_EXACT | SINK_DURABLE_KILL,
    .options = sink_rabbit_options,
    .setup = rabbit_queue_setup,
    .preflight = rabbit_queue_preflight,
    .remove = rabbit_queue_remove,
    .hold = rabbit_queue_hold,
    .hold_keep = rabbit_queue_hold_keep,
    .hold_end = rabbit_queue_hold_end,
    .server_version = rabbit_queue_version,
    .open = rabbit_open,
    .close = rabbit_close,
    .backlog = rabbit_backlog,
    .stats = rabbit_stats,
    .submit = rabbit_submit,
    .fd = rabbit_fd,
    .due_ns = rabbit_due_ns,
    .process = rabbit_process,
    .ready = rabbit_ready,
    .upkeep = sink_no_upkeep,
    .why = rabbit_why,
    .lane_open = rabbit_lane_open,
    .fetch = rabbit_drain_fetch,
    .keep = rabbit_drain_keep,
    .ack = rabbit_drain_ack,
    .release = rabbit_drain_release,
    .lane_close = rabbit_drain_lane_close,
};

/* sink_ingest.c: a Postgres of its own, never the main one: tasks go into a narrow table, many with
 * each statement, and the worker deletes them from it once the main DB has them.
 *
 * ingest_send.c is the ingest side, ingest_lane.c the drain side, ingest_watch.c counts,
 * ingest_table.c makes the table and reads the server's settings back.
 */
#include "sink/drivers.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "maindb/pg.h"
#include "sink/ingest_lane.h"
#include "sink/ingest_send.h"
#include "sink/ingest_table.h"
#include "sink/ingest_watch.h"

/* Of a sink that is only looked at: a figure is good enough for so long, and waited for so long. */
#define LOOK_EVERY_NS (50 * NS_PER_MS)
#define LOOK_WAIT_NS  (2 * NS_PER_S)

const struct option_spec sink_ingest_options[] = {
    {.name = "sink-url",
     .type = OPTION_URL,
     .unit = "URL",
     .required = true,
     .help = "the sink's server; with a password only by environment or @file"},
    {.name = "ingest-table",
     .type = OPTION_STRING,
     .unit = "NAME",
     .default_text = "sluice_ingest",
     .help = "the table; its name begins with \"sluice\""},
    {.name = "ingest-batch-size",
     .type = OPTION_SIZE,
     .unit = "SIZE",
     .default_text = "256KiB",
     .min = 1,
     .max = 256 << 20,
     .help = "most bytes that share a statement (a longer task goes alone)"},
    {.name = "ingest-spacing",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "500us",
     .help = "least time between the starts of two statements while several tasks wait; 0: none"},
    {.name = "ingest-deadline",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "4s",
     .min = 10 * NS_PER_MS,
     .max = 600 * NS_PER_S,
     .help = "a task without an outcome so long after it was taken gets one: refused if it was not "
             "sent, unknown if it was; a statement without an answer so long ends its connection"},
    {.name = "ingest-lease",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "15s",
     .min = NS_PER_S,
     .max = 24 * 3600 * NS_PER_S,
     .help = "a worker that lives but shows no sign of it for so long loses what it holds"},
    {.name = NULL},
};

struct ingest {
    struct sink base;
    enum sink_role role;
    struct ingest_send *send;  /* SINK_INGEST */
    struct ingest_drain drain; /* SINK_DRAIN */
    struct pg_target *target;  /* SINK_PROBE */
    struct ingest_watch watch;
};

static struct ingest *ingest_of(struct sink *sink)
{
    return (struct ingest *)sink;
}

static int open_probe(struct ingest *ingest, const struct options *options, struct err *err)
{
    const char *table;
    int rc = ingest_table_name(&table, options, err);
    if (rc == 0) {
        rc = pg_target_new(&ingest->target, options_string(options, "sink-url"), "sluice-probe",
                           err);
    }
    if (rc == 0) {
        ingest_watch_start(&ingest->watch, ingest->target, table, LOOK_EVERY_NS);
    }
    return rc;
}

static int ingest_open(struct sink **out, enum sink_role role, const struct options *options,
                       struct err *err)
{
    struct ingest *ingest = xcalloc(1, sizeof(*ingest));
    int rc = 0;
    ingest->base.driver = &sink_ingest;
    ingest->role = role;
    *out = NULL;
    switch (role) {
    case SINK_INGEST:
        rc = ingest_send_open(&ingest->send, options, err);
        break;
    case SINK_DRAIN:
        rc = ingest_drain_open(&ingest->drain, options, err);
        break;
    case SINK_PROBE:
        rc = open_probe(ingest, options, err);
        break;
    }
    if (rc < 0) {
        free(ingest);
        return rc;
    }
    *out = &ingest->base;
    return 0;
}

static void ingest_close(struct sink *sink, int64_t deadline_ns)
{
    if (!sink) {
        return;
    }
    struct ingest *ingest = ingest_of(sink);
    switch (ingest->role) {
    case SINK_INGEST:
        ingest_send_close(ingest->send, deadline_ns);
        break;
    case SINK_DRAIN:
        ingest_drain_close(&ingest->drain);
        break;
    case SINK_PROBE:
        ingest_watch_stop(&ingest->watch);
        pg_target_free(ingest->target);
        break;
    }
    free(ingest);
}

static int ingest_backlog(struct sink *sink, struct sink_backlog *backlog)
{
    struct ingest *ingest = ingest_of(sink);
    if (ingest->role == SINK_INGEST) {
        return ingest_send_backlog(ingest->send, backlog);
    }
    if (ingest->role == SINK_DRAIN) {
        return -ENOTSUP;
    }
    int rc = ingest_watch_ask(&ingest->watch, LOOK_WAIT_NS);
    if (rc < 0) {
        return rc;
    }
    *backlog = (struct sink_backlog){.tasks = ingest->watch.tasks,
                                     .bytes = ingest->watch.bytes,
                                     .exact = true,
                                     .age_ns = clock_mono_ns() - ingest->watch.asked_ns};
    return 0;
}

static int ingest_stats(struct sink *sink, struct sink_stats *stats)
{
    struct ingest *ingest = ingest_of(sink);
    stats->count = 0;
    switch (ingest->role) {
    case SINK_INGEST:
        ingest_send_stats(ingest->send, stats);
        break;
    case SINK_DRAIN:
        break;
    case SINK_PROBE:
        ingest_watch_ask(&ingest->watch, LOOK_WAIT_NS); /* connects, if it must */
        return ingest_watch_stats(&ingest->watch, stats, LOOK_WAIT_NS);
    }
    return 0;
}

static int ingest_submit(struct sink *sink, const struct task *task, sink_done_fn *done, void *arg)
{
    return ingest_send_submit(ingest_of(sink)->send, task, done, arg);
}

static int ingest_fd(struct sink *sink)
{
    return ingest_send_fd(ingest_of(sink)->send);
}

static int64_t ingest_due_ns(struct sink *sink)
{
    return ingest_send_due_ns(ingest_of(sink)->send);
}

static int ingest_process(struct sink *sink)
{
    ingest_send_process(ingest_of(sink)->send);
    return 0;
}

static bool ingest_ready(struct sink *sink)
{
    return ingest_send_ready(ingest_of(sink)->send);
}

static int open_lane(struct sink *sink, unsigned lane, struct sink_lane **out, struct err *err)
{
    return ingest_lane_open(&ingest_of(sink)->drain, lane, out, err);
}

const struct sink_driver sink_ingest = {
    .name = "ingest",
    .promise =
        "committed to one table of a Postgres of its own, WAL flushed to one disk: survives the "
        "end of any process and of the OS; the disk or host only with synchronous replicas",
    .flags = SINK_DRAINS | SINK_BACKLOG_EXACT | SINK_DURABLE_KILL,
    .options = sink_ingest_options,
    .setup = ingest_table_setup,
    .preflight = ingest_table_preflight,
    .remove = ingest_table_remove,
    .hold = ingest_table_hold,
    .hold_keep = ingest_table_hold_keep,
    .hold_end = ingest_table_hold_end,
    .server_version = ingest_table_version,
    .open = ingest_open,
    .close = ingest_close,
    .backlog = ingest_backlog,
    .stats = ingest_stats,
    .submit = ingest_submit,
    .fd = ingest_fd,
    .due_ns = ingest_due_ns,
    .process = ingest_process,
    .ready = ingest_ready,
    .upkeep = sink_no_upkeep,
    .lane_open = open_lane,
    .fetch = ingest_lane_fetch,
    .keep = ingest_lane_keep,
    .ack = ingest_lane_ack,
    .release = ingest_lane_release,
    .lane_close = ingest_lane_close,
};

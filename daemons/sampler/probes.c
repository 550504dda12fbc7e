#include "probes.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

/* Counting takes at most a hundredth of the time, but is never left for longer than this: a count
 * that was slow because the server stood still says nothing about the next one. */
enum { COUNT_TIME_SHARE = 100 };
static const int64_t count_rest_max_ns = 5 * NS_PER_S;

static void add_figure(struct metrics_event *event, const char *field, int64_t value)
{
    if (value >= 0)
        metrics_int(event, field, value);
    else
        metrics_json(event, field, "null");
}

static void write_missing_backlog(struct sink_probe *probe, const char *why)
{
    metrics_begin(&probe->event, "backlog");
    add_figure(&probe->event, "tasks", -1);
    add_figure(&probe->event, "bytes", -1);
    metrics_bool(&probe->event, "exact", false);
    metrics_string(&probe->event, "missing", why);
    metrics_write(probe->metrics, &probe->event);
}

static void write_backlog(struct sink_probe *probe, const struct sink_backlog *backlog)
{
    metrics_begin(&probe->event, "backlog");
    add_figure(&probe->event, "tasks", backlog->tasks);
    add_figure(&probe->event, "bytes", backlog->bytes);
    metrics_bool(&probe->event, "exact", backlog->exact);
    metrics_ms(&probe->event, "age_ms", backlog->age_ns);
    if (backlog->tasks < 0)
        metrics_string(&probe->event, "missing", "the sink does not know it at the moment");
    metrics_write(probe->metrics, &probe->event);
}

static void write_stats(struct sink_probe *probe, const struct sink_stats *stats)
{
    if (stats->count == 0)
        return;
    metrics_begin(&probe->event, "sink_stats");
    metrics_string(&probe->event, "sink", probe->driver->name);
    for (size_t i = 0; i < stats->count && i < SINK_STATS_MAX; i++)
        metrics_double(&probe->event, stats->items[i].name, stats->items[i].value);
    metrics_write(probe->metrics, &probe->event);
}

static void reopen_next_time(struct sink_probe *probe)
{
    probe->driver->close(probe->sink, clock_mono_ns());
    probe->sink = NULL;
}

static void probe_sink(struct sink_probe *probe)
{
    struct err err = {0};
    if (!probe->sink) {
        int rc = probe->driver->open(&probe->sink, SINK_PROBE, probe->options, &err);
        if (rc < 0) {
            probe->sink = NULL;
            probe->none = rc == -ENOTSUP;
            write_missing_backlog(probe, err.text[0] ? err.text : strerror(-rc));
            return;
        }
    }
    struct sink_backlog backlog = {.tasks = -1, .bytes = -1};
    int rc = probe->driver->backlog(probe->sink, &backlog);
    if (rc == 0 && backlog.tasks >= 0) {
        write_backlog(probe, &backlog);
    } else if (rc == -ENOTSUP) {
        if (!probe->none)
            write_missing_backlog(probe, "this sink keeps no backlog");
        probe->none = true;
    } else if (rc == 0) {
        write_backlog(probe, &backlog);
    } else {
        write_missing_backlog(probe, strerror(-rc));
        if (rc != -EAGAIN)
            reopen_next_time(probe);
        return;
    }
    struct sink_stats stats = {0};
    if (probe->driver->stats(probe->sink, &stats) == 0)
        write_stats(probe, &stats);
}

int64_t sink_probe_turn(void *sink_probe)
{
    struct sink_probe *probe = sink_probe;
    int64_t began_ns = clock_mono_ns();
    if (probe->sink || !probe->none)
        probe_sink(probe);
    return probe->interval_ns - (clock_mono_ns() - began_ns);
}

void sink_probe_close(struct sink_probe *probe)
{
    if (probe->sink)
        probe->driver->close(probe->sink, clock_mono_ns());
    probe->sink = NULL;
    metrics_event_free(&probe->event);
}

int64_t db_probe_turn(void *db_probe)
{
    struct db_probe *probe = db_probe;
    struct maindb_counts counts = {0};
    struct err err = {0};
    int64_t began_ns = clock_mono_ns();
    int rc = maindb_count(probe->db, &counts, &err);
    int64_t took_ns = clock_mono_ns() - began_ns;
    metrics_begin(&probe->event, "db_count");
    add_figure(&probe->event, "rows", rc == 0 ? counts.tasks : -1);
    add_figure(&probe->event, "dead", rc == 0 ? counts.dead : -1);
    add_figure(&probe->event, "row_sleeps", rc == 0 ? counts.row_sleeps : -1);
    add_figure(&probe->event, "checkpoints", rc == 0 ? counts.checkpoints : -1);
    add_figure(&probe->event, "autovacuums", rc == 0 ? counts.autovacuums : -1);
    add_figure(&probe->event, "wal_bytes", rc == 0 ? counts.wal_bytes : -1);
    add_figure(&probe->event, "wal_flushes", rc == 0 ? counts.wal_flushes : -1);
    metrics_ms(&probe->event, "count_ms", took_ns);
    if (rc < 0)
        metrics_string(&probe->event, "missing", err.text);
    metrics_write(probe->metrics, &probe->event);
    if (rc < 0 && !probe->failing)
        log_warning("rows in the main DB are not counted for now: %s", err.text);
    probe->failing = rc < 0;
    int64_t rest_ns = rc == 0 ? took_ns * (COUNT_TIME_SHARE - 1) : 0;
    if (rest_ns > count_rest_max_ns)
        rest_ns = count_rest_max_ns;
    return rest_ns > probe->interval_ns - took_ns ? rest_ns : probe->interval_ns - took_ns;
}

void db_probe_close(struct db_probe *probe)
{
    maindb_close(probe->db);
    probe->db = NULL;
    metrics_event_free(&probe->event);
}

#include "events.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "background.h"
#include "base/buf.h"
#include "base/json.h"
#include "lines.h"

/* Bounds that no true value passes. They keep a damaged digit from eating memory or overflowing. */
static const double TS_MAX_S = 1e10;
static const double DURATION_MAX_MS = 7 * 86400e3;
static const double COUNT_MAX = 1e15;
enum { NAMES_MAX = 1024 }; /* different parts, stats, windows of one run */

cJSON *event_parse(const char *line, size_t len, int64_t *ts_us, const char **ev)
{
    /* cJSON alone would take trailing text, raw control bytes and bad UTF-8. */
    if (json_check(line, len, NULL) < 0)
        return NULL;
    cJSON *event = cJSON_ParseWithLength(line, len);
    double ts = cJSON_IsObject(event) ? json_number(event, "ts") : NAN;
    const char *name = json_text(event, "ev");
    if (!(ts > 0 && ts < TS_MAX_S) || !*name) {
        cJSON_Delete(event);
        return NULL;
    }
    *ts_us = llround(ts * 1e6);
    *ev = name;
    return event;
}

/* A number within [0, max]; false otherwise. */
static bool take(const cJSON *event, const char *name, double max, double *value)
{
    double number = json_number(event, name);
    if (!(number >= 0 && number <= max))
        return false;
    *value = number;
    return true;
}

/* The same, where null or nothing means "not known" (NAN); false only for nonsense. */
static bool take_maybe(const cJSON *event, const char *name, double max, double *value)
{
    const cJSON *item = json_get(event, name);
    *value = NAN;
    return !item || cJSON_IsNull(item) || take(event, name, max, value);
}

static bool take_id(const cJSON *item, uint8_t id[UUID_BYTES])
{
    const char *text = cJSON_GetStringValue(item);
    return text && uuid_parse(text, strlen(text), id) == 0;
}

/* ---- one function an event; false: the line can't be used ---- */

static bool on_api_latency(struct run *run, int64_t ts_us, const cJSON *event)
{
    (void)ts_us;
    uint8_t id[UUID_BYTES];
    double code, latency, service;
    if (!take_id(json_get(event, "id"), id) || !take(event, "code", 999, &code) ||
        !take_maybe(event, "latency_ms", DURATION_MAX_MS, &latency) ||
        !take_maybe(event, "service_ms", DURATION_MAX_MS, &service))
        return false;
    struct ledger_row *row = ledger_find(&run->ledger, id);
    if (!row)
        return true; /* the ledger is the master: it was checked as a whole */
    run->latency_events++;
    if (row->code != (int32_t)code ||
        strcmp(json_text(event, "outcome"), outcome_names[row->outcome]) != 0)
        run->disagreements++;
    if (!isnan(latency) && fabs(latency - (double)(row->done_us - row->due_us) / 1e3) > 100)
        run->clock_steps++;
    row->latency_ms = latency;
    row->service_ms = service;
    return true;
}

static bool on_durable(struct run *run, int64_t ts_us, const cJSON *event)
{
    (void)ts_us;
    uint8_t id[UUID_BYTES];
    double durable_ms, batch;
    if (!take_id(json_get(event, "id"), id) ||
        !take(event, "durable_ms", DURATION_MAX_MS, &durable_ms) ||
        !take_maybe(event, "batch", 1e9, &batch))
        return false;
    struct ledger_row *row = ledger_find(&run->ledger, id);
    if (!row)
        run->strangers++;
    else if (isnan(row->durable_ms)) {
        row->durable_ms = durable_ms;
        row->batch = isnan(batch) ? 0 : (uint32_t)batch;
    }
    return true;
}

/* A redelivered id comes in two events; its age is that of the first. */
static void commit_id(struct run *run, int64_t ts_us, const uint8_t id[UUID_BYTES], double age_ms)
{
    struct ledger_row *row = ledger_find(&run->ledger, id);
    if (!row) {
        run->strangers++;
    } else if (row->committed_us == 0 || ts_us < row->committed_us) {
        row->committed_us = ts_us;
        row->age_ms = age_ms;
    }
}

static bool on_committed(struct run *run, int64_t ts_us, const cJSON *event)
{
    struct batch batch = {.ts_us = ts_us};
    double db_ms;
    if (!take(event, "rows", COUNT_MAX, &batch.rows) ||
        !take(event, "inserted", COUNT_MAX, &batch.inserted) ||
        !take(event, "redelivered", COUNT_MAX, &batch.redelivered) ||
        !take(event, "dead", COUNT_MAX, &batch.dead) ||
        !take(event, "db_ms", DURATION_MAX_MS, &db_ms))
        return false;
    const cJSON *ids = json_get(event, "ids"), *ages = json_get(event, "age_ms");
    if (!cJSON_IsArray(ids) || !cJSON_IsArray(ages))
        return false;
    /* Both lists are checked as a whole before a single value is taken: all of a line or nothing.
     */
    const cJSON *id = ids->child, *age = ages->child;
    uint8_t bytes[UUID_BYTES];
    for (; id && age; id = id->next, age = age->next)
        if (!take_id(id, bytes) || !cJSON_IsNumber(age) ||
            !(fabs(age->valuedouble) <= DURATION_MAX_MS))
            return false;
    if (id || age || cJSON_GetArraySize(ids) != (int)batch.rows)
        return false;
    batch.db_us = llround(db_ms * 1e3);
    array_grow((void **)&run->batches, &run->batch_capacity, run->batch_count, sizeof(batch));
    run->batches[run->batch_count++] = batch;
    run->redelivered += batch.redelivered;
    for (id = ids->child, age = ages->child; id; id = id->next, age = age->next) {
        take_id(id, bytes);
        commit_id(run, ts_us, bytes, fmax(age->valuedouble, 0));
    }
    return true;
}

static bool on_backlog(struct run *run, int64_t ts_us, const cJSON *event)
{
    struct backlog_sample sample = {.ts_us = ts_us, .tasks = NAN, .bytes = NAN};
    /* -1 and null mean "not known", as sink.h has it. */
    if (json_number(event, "tasks") != -1 && !take_maybe(event, "tasks", COUNT_MAX, &sample.tasks))
        return false;
    if (json_number(event, "bytes") != -1 && !take_maybe(event, "bytes", 1e18, &sample.bytes))
        return false;
    if (*json_text(event, "missing"))
        sample.tasks = sample.bytes = NAN;
    sample.exact = cJSON_IsTrue(json_get(event, "exact"));
    array_grow((void **)&run->backlog, &run->backlog_capacity, run->backlog_count, sizeof(sample));
    run->backlog[run->backlog_count++] = sample;
    return true;
}

static struct part *find_part(struct run *run, const char *who)
{
    for (size_t i = 0; i < run->part_count; i++)
        if (strcmp(run->parts[i].who, who) == 0)
            return &run->parts[i];
    if (run->part_count == NAMES_MAX)
        return NULL;
    array_grow((void **)&run->parts, &run->part_capacity, run->part_count, sizeof(*run->parts));
    struct part *part = &run->parts[run->part_count++];
    *part = (struct part){.who = xstrdup(who)};
    return part;
}

static bool on_os(struct run *run, int64_t ts_us, const cJSON *event)
{
    struct os_sample sample = {.ts_us = ts_us};
    const char *who = json_text(event, "who");
    if (!*who || !take_maybe(event, "cpu_pct", 1e7, &sample.cpu_pct) ||
        !take_maybe(event, "cpu_s", 1e12, &sample.cpu_s) ||
        !take_maybe(event, "rss_bytes", 1e18, &sample.rss_bytes) ||
        !take_maybe(event, "cache_bytes", 1e18, &sample.cache_bytes) ||
        !take_maybe(event, "read_bytes", 1e18, &sample.read_bytes) ||
        !take_maybe(event, "write_bytes", 1e18, &sample.write_bytes) ||
        !take_maybe(event, "rx_bytes", 1e18, &sample.rx_bytes) ||
        !take_maybe(event, "tx_bytes", 1e18, &sample.tx_bytes))
        return false;
    struct part *part = find_part(run, who);
    if (!part)
        return false;
    array_grow((void **)&part->samples, &part->capacity, part->count, sizeof(sample));
    part->samples[part->count++] = sample;
    part->from_pod = part->from_pod || json_get(event, "cache_bytes");
    part->rss_is_bound = part->rss_is_bound || strcmp(json_text(event, "rss_kind"), "rss_sum") == 0;
    return true;
}

/* Values come in order of time, but for those of before the load, of which the last counts. */
static void rise_add(struct rise *rise, const struct run *run, int64_t ts_us, double value)
{
    if (isnan(value) || ts_us > run->manifest.end_us)
        return;
    if (ts_us <= run->manifest.start_us || isnan(rise->last))
        rise->total = 0;
    else
        rise->total += value >= rise->last ? value - rise->last : value;
    rise->last = value;
}

/* Another disk than before: the figures would be of neither. */
static bool take_disk(struct run *run, int64_t ts_us, const cJSON *event)
{
    struct disk_use *disk = &run->disk;
    const char *name = json_text(event, "disk");
    double read_bytes, write_bytes, flushes;
    if (!*name)
        return true;
    if (!take_maybe(event, "disk_read_bytes", 1e18, &read_bytes) ||
        !take_maybe(event, "disk_write_bytes", 1e18, &write_bytes) ||
        !take_maybe(event, "disk_flushes", COUNT_MAX, &flushes) ||
        (disk->name && strcmp(disk->name, name) != 0))
        return false;
    if (!disk->name)
        disk->name = xstrdup(name);
    rise_add(&disk->read_bytes, run, ts_us, read_bytes);
    rise_add(&disk->write_bytes, run, ts_us, write_bytes);
    rise_add(&disk->flushes, run, ts_us, flushes);
    return true;
}

static bool on_host(struct run *run, int64_t ts_us, const cJSON *event)
{
    struct host_sample sample = {.ts_us = ts_us};
    if (!take_maybe(event, "busy_pct", 1e4, &sample.busy_pct) ||
        !take_maybe(event, "steal_pct", 1e4, &sample.steal_pct) ||
        !take_maybe(event, "iowait_pct", 1e4, &sample.iowait_pct) ||
        !take_maybe(event, "ours_pct", 1e7, &sample.ours_pct) || !take_disk(run, ts_us, event))
        return false;
    array_grow((void **)&run->host, &run->host_capacity, run->host_count, sizeof(sample));
    run->host[run->host_count++] = sample;
    return true;
}

static bool on_sink_stats(struct run *run, int64_t ts_us, const cJSON *event)
{
    background_on_sample(run, ts_us, event, false);
    const cJSON *item;
    cJSON_ArrayForEach(item, event)
    {
        if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble) ||
            strcmp(item->string, "ts") == 0)
            continue;
        size_t i = 0;
        while (i < run->stat_count && strcmp(run->stats[i].name, item->string) != 0)
            i++;
        double value = item->valuedouble;
        if (i == NAMES_MAX)
            return false;
        if (i == run->stat_count) {
            array_grow((void **)&run->stats, &run->stat_capacity, i, sizeof(*run->stats));
            run->stats[run->stat_count++] = (struct stat_extremes){
                .name = xstrdup(item->string), .min = value, .max = value, .rise = {NAN, NAN}};
        }
        struct stat_extremes *stat = &run->stats[i];
        stat->min = fmin(stat->min, value);
        stat->max = fmax(stat->max, value);
        stat->last = value;
        rise_add(&stat->rise, run, ts_us, value);
    }
    return true;
}

static bool on_fault(struct run *run, int64_t ts_us, const cJSON *event)
{
    if (run->window_count == NAMES_MAX)
        return false;
    array_grow((void **)&run->windows, &run->window_capacity, run->window_count,
               sizeof(*run->windows));
    run->windows[run->window_count++] = (struct window){
        .begin_us = ts_us,
        .end_us = INT64_MAX,
        .what = xstrdup(json_text(event, "what")),
        .who = xstrdup(json_text(event, "who")),
        .file = run->file_count,
    };
    return true;
}

/* Ends the fault that the same file told of; that of another only when there is none. */
static bool on_recovered(struct run *run, int64_t ts_us, const cJSON *event)
{
    struct window *found = NULL;
    for (size_t i = 0; i < run->window_count; i++) {
        struct window *window = &run->windows[i];
        if (window->end_us != INT64_MAX || window->begin_us > ts_us ||
            strcmp(window->who, json_text(event, "who")) != 0)
            continue;
        if (!found || (found->file != run->file_count && window->file == run->file_count))
            found = window;
    }
    if (found)
        found->end_us = ts_us;
    return found != NULL; /* else its fault is missing: a damaged line, or a lost one */
}

static bool on_drained(struct run *run, int64_t ts_us, const cJSON *event)
{
    double backlog, seconds;
    if (!take_maybe(event, "backlog", COUNT_MAX, &backlog) ||
        !take_maybe(event, "seconds", DURATION_MAX_MS / 1e3, &seconds))
        return false;
    run->drained_seen = true;
    run->drained_backlog = backlog;
    run->drained_seconds = seconds;
    run->drained_us = ts_us;
    return true;
}

static bool on_db_count(struct run *run, int64_t ts_us, const cJSON *event)
{
    double bytes, flushes;
    background_on_sample(run, ts_us, event, true);
    if (!take_maybe(event, "wal_bytes", 1e18, &bytes) ||
        !take_maybe(event, "wal_flushes", COUNT_MAX, &flushes))
        return false;
    rise_add(&run->main_wal_bytes, run, ts_us, bytes);
    rise_add(&run->main_wal_flushes, run, ts_us, flushes);
    return true;
}

static bool on_flush_probe(struct run *run, int64_t ts_us, const cJSON *event)
{
    (void)ts_us;
    struct flush_times times;
    if (!take(event, "n", COUNT_MAX, &times.n) || !take(event, "p50_us", 1e12, &times.p50_us) ||
        !take(event, "p99_us", 1e12, &times.p99_us) || !take(event, "max_us", 1e12, &times.max_us))
        return false;
    bool begins = strcmp(json_text(event, "state"), "begin") == 0;
    *(begins ? &run->flush_before : &run->flush_after) = times;
    return true;
}

static bool on_host_before(struct run *run, int64_t ts_us, const cJSON *event)
{
    (void)ts_us;
    return take_maybe(event, "busy_pct", 1e4, &run->before_busy_pct);
}

static bool on_clock(struct run *run, int64_t ts_us, const cJSON *event)
{
    (void)ts_us;
    double ahead_ms = json_number(event, "ahead_ms"), over_s;
    if (!(fabs(ahead_ms) <= TS_MAX_S * 1e3) || !take(event, "over_s", TS_MAX_S, &over_s))
        return false;
    run->clock_ahead_ms = ahead_ms;
    run->clock_over_s = over_s;
    return true;
}

static bool on_main_rows(struct run *run, int64_t ts_us, const cJSON *event)
{
    struct main_rows rows = {.ts_us = ts_us};
    if (!take(event, "row_sleeps", COUNT_MAX, &rows.row_sleeps) ||
        !take(event, "rows", COUNT_MAX, &rows.rows) ||
        !take(event, "refused", COUNT_MAX, &rows.refused) ||
        !take_maybe(event, "checkpoints", COUNT_MAX, &rows.checkpoints) ||
        !take_maybe(event, "autovacuums", COUNT_MAX, &rows.autovacuums))
        return false;
    bool begins = strcmp(json_text(event, "state"), "begin") == 0;
    *(begins ? &run->main_begin : &run->main_end) = rows;
    return true;
}

static bool on_start(struct run *run, int64_t ts_us, const cJSON *event)
{
    const char *role = json_text(event, "role");
    bool is_api = strcmp(role, "api") == 0, is_worker = strcmp(role, "worker") == 0;
    if (strcmp(role, "loadgen") == 0)
        run->load_began = true;
    if (is_api || is_worker) {
        array_grow((void **)&run->lives, &run->life_capacity, run->life_count, sizeof(*run->lives));
        run->lives[run->life_count++] =
            (struct incarnation){.is_api = is_api, .begin_us = ts_us, .last_us = ts_us};
        run->files[run->file_count - 1].life = run->life_count;
    }
    if (!is_worker)
        return true;
    array_grow((void **)&run->worker_starts_us, &run->worker_start_capacity,
               run->worker_start_count, sizeof(*run->worker_starts_us));
    run->worker_starts_us[run->worker_start_count++] = ts_us;
    return true;
}

static bool on_stop(struct run *run, int64_t ts_us, const cJSON *event)
{
    (void)ts_us;
    if (strcmp(json_text(event, "role"), "loadgen") == 0)
        run->load_ended = true;
    return true;
}

static bool on_lateness(struct run *run, int64_t ts_us, const cJSON *event)
{
    (void)ts_us;
    struct lateness late = {0};
    if (run->lateness_count == NAMES_MAX ||
        !take_maybe(event, "planned", COUNT_MAX, &late.planned) ||
        !take_maybe(event, "on_time", COUNT_MAX, &late.on_time) ||
        !take_maybe(event, "own_p99_ms", DURATION_MAX_MS, &late.own_p99_ms) ||
        !take_maybe(event, "p99_ms", DURATION_MAX_MS, &late.sent_p99_ms))
        return false;
    late.phase = xstrdup(json_text(event, "phase"));
    array_grow((void **)&run->lateness, &run->lateness_capacity, run->lateness_count,
               sizeof(*run->lateness));
    run->lateness[run->lateness_count++] = late;
    return true;
}

static const struct handler {
    const char *ev;
    bool (*take)(struct run *run, int64_t ts_us, const cJSON *event);
    bool audit; /* the audit needs it */
} handlers[] = {
    {"api_latency", on_api_latency, false},
    {"durable", on_durable, false},
    {"committed", on_committed, true},
    {"backlog", on_backlog, true},
    {"os", on_os, false},
    {"host", on_host, false},
    {"sink_stats", on_sink_stats, false},
    {"fault", on_fault, false},
    {"recovered", on_recovered, false},
    {"drained", on_drained, true},
    {"background", background_on_forced, false},
    {"db_count", on_db_count, false},
    {"main_rows", on_main_rows, false},
    {"start", on_start, false},
    {"stop", on_stop, false},
    {"lateness", on_lateness, false},
    {"flush_probe", on_flush_probe, false},
    {"host_before", on_host_before, false},
    {"clock", on_clock, false},
};

/* True also for events that nobody here reads: a later version may write more. */
static bool dispatch(struct run *run, const char *line, size_t len, bool only_audit)
{
    int64_t ts_us;
    const char *ev;
    cJSON *event = event_parse(line, len, &ts_us, &ev);
    if (!event)
        return false;
    bool used = true;
    size_t life = run->files[run->file_count - 1].life;
    if (life && ts_us > run->lives[life - 1].last_us)
        run->lives[life - 1].last_us = ts_us;
    for (size_t i = 0; i < sizeof(handlers) / sizeof(handlers[0]); i++) {
        if (strcmp(handlers[i].ev, ev) == 0) {
            used = (only_audit && !handlers[i].audit) || handlers[i].take(run, ts_us, event);
            break;
        }
    }
    cJSON_Delete(event);
    return used;
}

void events_read(struct run *run, const char *name, bool only_audit)
{
    array_grow((void **)&run->files, &run->file_capacity, run->file_count, sizeof(*run->files));
    struct event_file *file = &run->files[run->file_count++];
    *file = (struct event_file){.name = xstrdup(name)};
    struct lines lines;
    struct err err = {0};
    char *path = xasprintf("%s/%s", run->dir, name);
    int got = lines_open(&lines, path, &err);
    if (got < 0)
        goto out;
    while ((got = lines_next(&lines, &err)) > 0) {
        file->lines++;
        if (!lines.too_long && dispatch(run, lines.line, lines.len, only_audit))
            continue;
        if (!lines.ended) {
            file->half = true;
        } else if (file->damaged++ == 0) {
            file->first_damaged = lines.number;
        }
    }
out:
    if (got < 0)
        file->unreadable = xstrdup(err.text);
    lines_close(&lines);
    free(path);
}

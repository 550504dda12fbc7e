/* One task's life, from all files of a run. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "events.h"
#include "lines.h"
#include "report.h"
#include "text.h"

struct moment {
    int64_t ts_us;
    size_t order; /* as met: keeps moments of one time in order */
    bool context; /* a fault: told when it falls into the task's life */
    char *text;
};

struct life {
    const char *run_dir;
    uint8_t id[UUID_BYTES];
    char id_text[UUID_TEXT_BYTES];
    struct moment *moments;
    size_t count, capacity;
    struct buf where;   /* what main.tsv says */
    struct buf skipped; /* what could not be read */
    bool known;         /* some file knows the id */
};

static void add_moment(struct life *life, int64_t ts_us, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add_moment(struct life *life, int64_t ts_us, const char *format, ...)
{
    struct buf text = {0}, plain = {0};
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    text_plain(&plain, text.data);
    buf_free(&text);
    array_grow((void **)&life->moments, &life->capacity, life->count, sizeof(*life->moments));
    life->moments[life->count] =
        (struct moment){.ts_us = ts_us, .order = life->count, .text = plain.data};
    life->count++;
}

static void add_skip(struct life *life, const char *text)
{
    buf_puts(&life->skipped, "  ");
    text_plain(&life->skipped, text);
    buf_putc(&life->skipped, '\n');
}

/* ---- events ---- */

/* Where in the array "ids" the id stands; -1: not there. */
static int place_in_ids(const struct life *life, const cJSON *ids)
{
    int place = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, ids)
    {
        uint8_t id[UUID_BYTES];
        const char *text = cJSON_GetStringValue(item);
        if (text && uuid_parse(text, strlen(text), id) == 0 &&
            memcmp(id, life->id, UUID_BYTES) == 0)
            return place;
        place++;
    }
    return -1;
}

static void meet_event(struct life *life, const char *file, int64_t ts_us, const char *ev,
                       const cJSON *event)
{
    if (strcmp(ev, "api_latency") == 0) {
        add_moment(life, ts_us, "%s: answered with code %.0f, outcome %s, after %.3f ms", file,
                   json_number(event, "code"), json_text(event, "outcome"),
                   json_number(event, "latency_ms"));
    } else if (strcmp(ev, "durable") == 0) {
        add_moment(life, ts_us,
                   "%s: durable, %.3f ms after the request was complete, %.0f in its batch", file,
                   json_number(event, "durable_ms"), json_number(event, "batch"));
    } else if (strcmp(ev, "committed") == 0) {
        int place = place_in_ids(life, json_get(event, "ids"));
        const cJSON *age = cJSON_GetArrayItem(json_get(event, "age_ms"), place);
        add_moment(
            life, ts_us,
            "%s: committed by lane %.0f, one of %.0f rows (%.0f redelivered, %.0f dead), %.3f "
            "ms in the main DB, %.3f ms after it was accepted",
            file, json_number(event, "lane"), json_number(event, "rows"),
            json_number(event, "redelivered"), json_number(event, "dead"),
            json_number(event, "db_ms"), cJSON_IsNumber(age) ? age->valuedouble : NAN);
    } else {
        add_moment(life, ts_us, "%s: %s", file, ev);
    }
    life->known = true;
}

/* Faults are told too: they are what most lives turn on. */
static bool is_context(const char *ev)
{
    return strcmp(ev, "fault") == 0 || strcmp(ev, "recovered") == 0;
}

static void add_context(struct life *life, int64_t ts_us, const char *file, const char *ev,
                        const cJSON *event)
{
    add_moment(life, ts_us, "%s: %s %s %s", file, ev, json_text(event, "what"),
               json_text(event, "who"));
    life->moments[life->count - 1].context = true;
}

static void read_events(struct life *life, const char *file)
{
    struct lines lines;
    struct err err = {0};
    char *path = xasprintf("%s/%s", life->run_dir, file);
    int64_t unusable = 0;
    int got = lines_open(&lines, path, &err);
    while (got >= 0 && (got = lines_next(&lines, &err)) > 0) {
        bool named = memmem(lines.line, lines.len, life->id_text, UUID_TEXT_BYTES - 1) != NULL;
        if (!named && !memmem(lines.line, lines.len, "\"fault\"", 7) &&
            !memmem(lines.line, lines.len, "\"recovered\"", 11))
            continue;
        int64_t ts_us;
        const char *ev;
        cJSON *event = lines.too_long ? NULL : event_parse(lines.line, lines.len, &ts_us, &ev);
        if (!event)
            unusable++;
        else if (named)
            meet_event(life, file, ts_us, ev, event);
        else if (is_context(ev))
            add_context(life, ts_us, file, ev, event);
        cJSON_Delete(event);
    }
    if (got < 0)
        add_skip(life, err.text);
    if (unusable) {
        char *text = xasprintf("%s: %" PRId64 " damaged lines skipped", path, unusable);
        add_skip(life, text);
        free(text);
    }
    lines_close(&lines);
    free(path);
}

/* ---- tables ---- */

static void read_ledger(struct life *life, const char *file)
{
    struct ledger ledger = {0};
    struct err err = {0};
    if (ledger_read(&ledger, life->run_dir, file, &err) < 0)
        add_skip(life, err.text);
    const struct ledger_row *row = ledger_find(&ledger, life->id);
    if (row) {
        life->known = true;
        add_moment(life, row->due_us, "%s: due, phase %s", file, ledger.phases[row->phase]);
        if (row->sent_us)
            add_moment(life, row->sent_us, "%s: sent", file);
        add_moment(life, row->done_us, "%s: settled as %s, code %d", file,
                   outcome_names[row->outcome], row->code);
    }
    ledger_free(&ledger);
}

static void meet_main_row(void *arg, const struct main_row *row)
{
    struct life *life = arg;
    if (memcmp(row->id, life->id, UUID_BYTES) != 0)
        return;
    life->known = true;
    buf_printf(&life->where, "  main.tsv: in %s, body of %" PRId64 " bytes, hash %016" PRIx64,
               row->dead ? "the dead letters" : "main", row->body_bytes, row->body_hash);
    if (row->dead) {
        buf_puts(&life->where, ", reason ");
        text_plain(&life->where, row->reason);
    }
    buf_putc(&life->where, '\n');
}

/* ---- telling ---- */

static int compare_moments(const void *left, const void *right)
{
    const struct moment *a = left, *b = right;
    if (a->ts_us != b->ts_us)
        return a->ts_us < b->ts_us ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

static void tell(const struct life *life, FILE *out)
{
    fprintf(out, "task %s\n", life->id_text);
    int64_t first_us = life->count ? life->moments[0].ts_us : 0;
    for (size_t i = 0; i < life->count; i++) {
        const struct moment *moment = &life->moments[i];
        fprintf(out, "  %+13.3f ms  %s\n", (double)(moment->ts_us - first_us) / 1e3, moment->text);
    }
    if (life->where.len)
        fputs(life->where.data, out);
    else
        fputs("  main.tsv: not there\n", out);
    if (life->skipped.len)
        fprintf(out, "could not be read, so something may be missing above:\n%s",
                life->skipped.data);
}

/* Faults before the task was due and after its last moment are none of its life. */
static void drop_foreign_faults(struct life *life)
{
    int64_t first_us = INT64_MAX, last_us = INT64_MIN;
    for (size_t i = 0; i < life->count; i++) {
        const struct moment *moment = &life->moments[i];
        if (moment->context)
            continue;
        first_us = moment->ts_us < first_us ? moment->ts_us : first_us;
        last_us = moment->ts_us > last_us ? moment->ts_us : last_us;
    }
    size_t kept = 0;
    for (size_t i = 0; i < life->count; i++) {
        if (life->moments[i].ts_us < first_us || life->moments[i].ts_us > last_us)
            free(life->moments[i].text);
        else
            life->moments[kept++] = life->moments[i];
    }
    life->count = kept;
}

int trace_task(const char *run_dir, const char *id_text, FILE *out, struct err *err)
{
    struct life life = {.run_dir = run_dir};
    if (uuid_parse(id_text, strlen(id_text), life.id) < 0)
        return err_set(err, -EINVAL, "\"%s\" is not a UUID", id_text);
    uuid_format(life.id, life.id_text);
    char **ledgers = names_list(run_dir, keep_ledgers, err);
    char **events = ledgers ? names_list(run_dir, keep_events, err) : NULL;
    int result = ledgers && events ? 0 : -ENOENT;
    if (result < 0)
        goto out;
    /* In this order, moments of one microsecond come in theirs: durable, answered, settled. */
    for (size_t i = 0; events[i]; i++)
        read_events(&life, events[i]);
    for (size_t i = 0; ledgers[i]; i++)
        read_ledger(&life, ledgers[i]);
    struct err main_err = {0};
    if (main_read(run_dir, meet_main_row, &life, &main_err) < 0)
        add_skip(&life, main_err.text);
    drop_foreign_faults(&life);
    if (life.count)
        qsort(life.moments, life.count, sizeof(*life.moments), compare_moments);
    tell(&life, out);
    if (!life.known)
        result = err_set(err, -ENOENT, "no file in %s knows the task %s", run_dir, life.id_text);
out:
    names_free(ledgers);
    names_free(events);
    for (size_t i = 0; i < life.count; i++)
        free(life.moments[i].text);
    free(life.moments);
    buf_free(&life.where);
    buf_free(&life.skipped);
    return result;
}

#include "audit.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "task/task.h"
#include "text.h"

const char *audit_verdict_name(enum audit_verdict verdict)
{
    static const char *const names[] = {"pass", "fail", "excused", "void"};
    return names[verdict];
}

const char *audit_bad_name(enum audit_bad kind)
{
    static const char *const names[] = {"lost", "unexpected", "corrupt", "refused_stored",
                                        "duplicated"};
    return names[kind];
}

static void add_bad(struct audit *audit, enum audit_bad kind, const uint8_t id[UUID_BYTES])
{
    struct audit_ids *bad = &audit->bad[kind];
    bad->count++;
    if (bad->kept < AUDIT_IDS_MAX)
        memcpy(bad->ids[bad->kept++], id, UUID_BYTES);
}

/* ---- what is there ---- */

struct reading {
    struct audit *audit;
    struct run *run;
    struct buf body; /* reused for every row */
};

static void count_up(uint16_t *count)
{
    if (*count < UINT16_MAX)
        (*count)++;
}

static void meet_row(void *arg, const struct main_row *row)
{
    struct reading *reading = arg;
    struct audit *audit = reading->audit;
    if (row->dead)
        audit->dead_rows++;
    else
        audit->main_rows++;
    if (row->dead && strcmp(row->reason, "conflict") == 0)
        audit->conflicts++;
    struct ledger_row *sent = ledger_find(&reading->run->ledger, row->id);
    if (!sent || sent->outcome == OUTCOME_UNSENT) {
        add_bad(audit, AUDIT_UNEXPECTED, row->id);
        return;
    }
    buf_clear(&reading->body);
    int64_t payload_bytes = reading->run->ledger.sources[sent->source].payload_bytes;
    task_synth_body(row->id, (size_t)payload_bytes, &reading->body);
    bool same = (int64_t)reading->body.len == row->body_bytes &&
                task_body_hash(reading->body.data, reading->body.len) == row->body_hash;
    if (!same)
        count_up(&sent->found_other);
    else
        count_up(row->dead ? &sent->found_dead : &sent->found_main);
}

/* ---- what should be there ---- */

static void judge_task(struct audit *audit, const struct ledger_row *task)
{
    unsigned same = (unsigned)task->found_main + task->found_dead;
    bool there = same + task->found_other > 0;
    switch ((enum outcome)task->outcome) {
    case OUTCOME_DURABLE:
        audit->acknowledged++;
        /* One that is there with another body only is not lost but corrupt; where it lies is not
         * told apart then, and it counts as committed so that the sum holds. */
        if (!there)
            add_bad(audit, AUDIT_LOST, task->id);
        else if (task->found_main > 0 || task->found_dead == 0)
            audit->committed++;
        else
            audit->dead++;
        break;
    case OUTCOME_UNKNOWN:
        if (there)
            audit->unknown_arrived++;
        else
            audit->unknown_absent++;
        break;
    case OUTCOME_REFUSED:
        audit->refused++;
        if (there)
            add_bad(audit, AUDIT_REFUSED_STORED, task->id);
        break;
    case OUTCOME_UNSENT:
        audit->unsent++;
        return;
    case OUTCOME_COUNT:
        return;
    }
    if (task->found_other > 0)
        add_bad(audit, AUDIT_CORRUPT, task->id);
    if (same > 1)
        add_bad(audit, AUDIT_DUPLICATED, task->id);
}

/* ---- the verdict ---- */

static int64_t count_bad(const struct audit *audit)
{
    int64_t bad = 0;
    for (int kind = 0; kind < AUDIT_BAD_COUNT; kind++)
        bad += audit->bad[kind].count;
    return bad;
}

static void give_verdict(struct audit *audit, enum audit_verdict verdict, char *why)
{
    audit->verdict = verdict;
    free(audit->why);
    audit->why = why;
}

/* "lost 3, corrupt 1" */
static char *describe_bad(const struct audit *audit)
{
    struct buf text = {0};
    for (int kind = 0; kind < AUDIT_BAD_COUNT; kind++)
        if (audit->bad[kind].count)
            buf_printf(&text, "%s%s %" PRId64, text.len ? ", " : "",
                       audit_bad_name((enum audit_bad)kind), audit->bad[kind].count);
    return text.data;
}

static void judge(struct audit *audit, const struct run *run)
{
    int64_t bad = count_bad(audit), lost = audit->bad[AUDIT_LOST].count;
    if (bad > 0 && audit->control) {
        give_verdict(audit, AUDIT_EXCUSED, describe_bad(audit));
    } else if (lost > 0 && bad == lost && lost <= audit->backlog_end) {
        /* Nothing tells what is lost from what still lies in the sink, so this proves neither. */
        audit->not_drained = lost;
        audit->bad[AUDIT_LOST] = (struct audit_ids){0};
        give_verdict(audit, AUDIT_VOID,
                     xasprintf("%" PRId64
                               " acknowledged tasks did not arrive, but the sink was not "
                               "drained: it still held %" PRId64,
                               lost, audit->backlog_end));
    } else if (bad > 0) {
        give_verdict(audit, AUDIT_FAIL, describe_bad(audit));
    } else if (run->manifest_err.code) {
        give_verdict(audit, AUDIT_VOID, xstrdup(run->manifest_err.text));
    } else if (audit->acknowledged == 0) {
        give_verdict(audit, AUDIT_VOID,
                     xstrdup("not one task was acknowledged, so nothing is shown"));
    } else {
        give_verdict(audit, AUDIT_PASS, xstrdup(""));
    }
}

void audit_compute(struct audit *audit, struct run *run)
{
    memset(audit, 0, sizeof(*audit));
    audit->sink = xstrdup(run->manifest.sink && *run->manifest.sink ? run->manifest.sink : "?");
    audit->control = run->manifest_err.code == 0 && run->manifest.control;
    audit->redelivered = (int64_t)run->redelivered;
    audit->half_lines = run_half_lines(run);
    audit->damaged_lines = run_damaged_lines(run);
    double backlog_end = run_backlog_end(run);
    audit->backlog_end = isnan(backlog_end) ? -1 : (int64_t)backlog_end;
    audit->ledger_rows = (int64_t)run->ledger.count;
    if (run->ledger_err.code) {
        give_verdict(audit, AUDIT_VOID, xstrdup(run->ledger_err.text));
        return;
    }
    struct reading reading = {.audit = audit, .run = run};
    struct err err = {0};
    int64_t rows = main_read(run->dir, meet_row, &reading, &err);
    buf_free(&reading.body);
    if (rows < 0) {
        give_verdict(audit, AUDIT_VOID, xstrdup(err.text));
        return;
    }
    for (size_t i = 0; i < run->ledger.count; i++)
        judge_task(audit, &run->ledger.rows[i]);
    audit->counted = true;
    judge(audit, run);
}

void audit_free(struct audit *audit)
{
    free(audit->why);
    free(audit->sink);
    memset(audit, 0, sizeof(*audit));
}

/* ---- out ---- */

/* null where nothing was counted: a 0 would look like a result. */
static void put_count(struct buf *out, const char *name, bool counted, int64_t value)
{
    if (counted)
        buf_printf(out, ",\n  \"%s\": %" PRId64, name, value);
    else
        buf_printf(out, ",\n  \"%s\": null", name);
}

static void put_ids(struct buf *out, const struct audit_ids *bad)
{
    buf_putc(out, '[');
    for (unsigned i = 0; i < bad->kept; i++) {
        char text[UUID_TEXT_BYTES];
        buf_printf(out, "%s\"%s\"", i ? ", " : "", uuid_format(bad->ids[i], text));
    }
    buf_putc(out, ']');
}

void audit_json(const struct audit *audit, struct buf *out)
{
    buf_puts(out, "{\n  \"schema\": \"sluice-audit/1\",\n  \"sink\": ");
    buf_json_string(out, audit->sink, strlen(audit->sink));
    buf_printf(out, ",\n  \"control\": %s", audit->control ? "true" : "false");
    buf_printf(out, ",\n  \"verdict\": \"%s\"", audit_verdict_name(audit->verdict));
    buf_puts(out, ",\n  \"why\": ");
    buf_json_string(out, audit->why, strlen(audit->why));
    bool counted = audit->counted;
    put_count(out, "acknowledged", counted, audit->acknowledged);
    put_count(out, "committed", counted, audit->committed);
    put_count(out, "dead", counted, audit->dead);
    put_count(out, "not_drained", counted, audit->not_drained);
    for (int kind = 0; kind < AUDIT_BAD_COUNT; kind++)
        put_count(out, audit_bad_name((enum audit_bad)kind), counted, audit->bad[kind].count);
    put_count(out, "redelivered", counted, audit->redelivered);
    put_count(out, "conflicts", counted, audit->conflicts);
    put_count(out, "unknown_arrived", counted, audit->unknown_arrived);
    put_count(out, "unknown_absent", counted, audit->unknown_absent);
    put_count(out, "refused", counted, audit->refused);
    put_count(out, "unsent", counted, audit->unsent);
    put_count(out, "ledger_rows", counted, audit->ledger_rows);
    put_count(out, "main_rows", counted, audit->main_rows);
    put_count(out, "dead_rows", counted, audit->dead_rows);
    put_count(out, "backlog_end", audit->backlog_end >= 0, audit->backlog_end);
    put_count(out, "half_lines", true, audit->half_lines);
    put_count(out, "damaged_lines", true, audit->damaged_lines);
    buf_puts(out, ",\n  \"first_ids\": {");
    for (int kind = 0; kind < AUDIT_BAD_COUNT; kind++) {
        buf_printf(out, "%s\n    \"%s\": ", kind ? "," : "", audit_bad_name((enum audit_bad)kind));
        put_ids(out, &audit->bad[kind]);
    }
    buf_puts(out, "\n  }\n}");
}

int audit_write(const struct audit *audit, const char *run_dir, struct err *err)
{
    struct buf text = {0};
    audit_json(audit, &text);
    buf_putc(&text, '\n');
    char *path = xasprintf("%s/audit.json", run_dir);
    int result = file_write(path, text.data, text.len, err);
    free(path);
    buf_free(&text);
    return result;
}

static void print_counts(const struct audit *audit, struct buf *text)
{
    buf_printf(text,
               "  acknowledged %" PRId64 " = committed %" PRId64 " + dead %" PRId64
               " + lost %" PRId64,
               audit->acknowledged, audit->committed, audit->dead, audit->bad[AUDIT_LOST].count);
    if (audit->not_drained)
        buf_printf(text, " + not drained %" PRId64, audit->not_drained);
    buf_putc(text, '\n');
    buf_printf(text,
               "  redelivered %" PRId64 ", conflicts %" PRId64 ", unknown %" PRId64
               " (arrived %" PRId64 "), refused %" PRId64 ", unsent %" PRId64 "\n",
               audit->redelivered, audit->conflicts, audit->unknown_arrived + audit->unknown_absent,
               audit->unknown_arrived, audit->refused, audit->unsent);
    for (int kind = 0; kind < AUDIT_BAD_COUNT; kind++) {
        const struct audit_ids *bad = &audit->bad[kind];
        buf_printf(text, "  %s %" PRId64, audit_bad_name((enum audit_bad)kind), bad->count);
        if (bad->count) {
            buf_puts(text, ", the first: ");
            put_ids(text, bad);
        }
        buf_putc(text, '\n');
    }
}

void audit_print(const struct audit *audit, FILE *out)
{
    struct buf text = {0};
    text_plain(&text, audit->sink);
    buf_printf(&text, "%s: %s", audit->control ? " (control)" : "",
               audit_verdict_name(audit->verdict));
    if (*audit->why) {
        buf_puts(&text, ": ");
        text_plain(&text, audit->why);
    }
    buf_putc(&text, '\n');
    if (audit->counted)
        print_counts(audit, &text);
    if (audit->half_lines || audit->damaged_lines)
        buf_printf(&text,
                   "  skipped in *.jsonl: %" PRId64 " half lines, %" PRId64 " damaged lines\n",
                   audit->half_lines, audit->damaged_lines);
    fwrite(text.data, 1, text.len, out);
    buf_free(&text);
}

enum audit_verdict audit_run(const char *run_dir, struct audit *audit, struct err *err)
{
    struct run run;
    run_load(&run, run_dir, true);
    audit_compute(audit, &run);
    run_free(&run);
    int written = audit_write(audit, run_dir, err);
    if (written < 0)
        give_verdict(
            audit, AUDIT_VOID,
            xasprintf("audit.json could not be written: %s", err ? err->text : strerror(-written)));
    else if (audit->verdict == AUDIT_VOID)
        err_set(err, -EBADMSG, "%s", audit->why);
    return audit->verdict;
}

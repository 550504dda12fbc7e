/* sluice report A B: two comparisons side by side, sink by sink. */
#include "against.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "text.h"

const double AGAINST_LEAST_PCT = 5;
const double AGAINST_FACTOR = 2;

enum against against_judge(struct spread before, struct spread after, bool highest_is_best)
{
    if (before.n == 0 || after.n == 0)
        return AGAINST_UNKNOWN;
    double a = before.median, b = after.median;
    bool rises;
    if (before.n > 1 && after.n > 1) {
        bool overlap = before.min <= after.max && after.min <= before.max;
        if (overlap || (isfinite(a) && fabs(b - a) <= fabs(a) * AGAINST_LEAST_PCT / 100))
            return AGAINST_TIE;
        rises = after.min > before.max;
    } else {
        if ((isinf(a) && isinf(b)) || (b <= a * AGAINST_FACTOR && a <= b * AGAINST_FACTOR))
            return AGAINST_TIE;
        rises = b > a;
    }
    return rises == highest_is_best ? AGAINST_BETTER : AGAINST_WORSE;
}

/* ---- what is set side by side ---- */

static const struct row {
    const char *title, *key;
    enum unit unit;
    bool highest_is_best;
    bool gates; /* not what holds the whole machine's work, or follows from another row */
} rows[] = {
    {"api p50, steady, outside faults", "sla.p50_ms", UNIT_MS, false, true},
    {"api p99, steady, outside faults", "sla.p99_ms", UNIT_MS, false, true},
    {"api p99, steady, faults and all", "sla.through_faults_p99_ms", UNIT_MS, false, false},
    {"service p99, steady", "service.%s.p99_ms", UNIT_MS, false, false},
    {"durable p50, steady", "durable.%s.p50_ms", UNIT_MS, false, true},
    {"durable p99, steady", "durable.%s.p99_ms", UNIT_MS, false, true},
    {"age p50, steady", "age.%s.p50_ms", UNIT_MS, false, true},
    {"202/s", "totals.durable_per_s", UNIT_NUMBER, true, true},
    {"committed rows/s", "committed.rows_per_s", UNIT_NUMBER, true, true},
    {"its CV", "committed.cv", UNIT_NUMBER, false, false},
    {"commit in the main DB, p50", "commit.db.p50_ms", UNIT_MS, false, false},
    {"peak backlog", "backlog.peak_tasks", UNIT_COUNT, false, true},
    {"drain rate, rows/s", "drain.rows_per_s", UNIT_NUMBER, true, true},
    {"time to drain", "drain.s", UNIT_SECONDS, false, false},
    {"back to the rate before a fault", "recovery.back_to_rate_s", UNIT_SECONDS, false, true},
    {"CPU-s per 1,000 tasks", "cost.cpu_s_per_1000", UNIT_NUMBER, false, true},
    {"written to disk per 1,000 tasks", "disk.write_bytes_per_1000", UNIT_BYTES, false, false},
    {"disk flushes per 1,000 tasks", "disk.flushes_per_1000", UNIT_NUMBER, false, false},
};

struct sides {
    const struct comparison *a, *b;
    struct buf *out;
    struct report_against *result;
};

static const struct group *group_of(const struct comparison *comparison, const char *sink)
{
    for (size_t i = 0; i < comparison->group_count; i++)
        if (strcmp(comparison->groups[i].sink, sink) == 0)
            return &comparison->groups[i];
    return NULL;
}

/* ---- is it fair? ---- */

/* Keys of the scenario that make the work another one; any other may be what is being tried. */
static const char *const work_keys[] = {"load", "row_delay_ms", "faults", "background", "sla"};

static void put_json_value(struct buf *cell, const cJSON *item)
{
    const char *string = cJSON_GetStringValue(item); /* NULL: none, or no item */
    char *printed = item && !string ? cJSON_PrintUnformatted(item) : NULL;
    text_markdown(cell, string ? string : printed ? printed : "–");
    free(printed);
}

static void differ(struct table *table, const char *what, const cJSON *a, const cJSON *b)
{
    if (cJSON_Compare(a, b, true) || (!a && !b))
        return;
    text_markdown(table_cell(table), what);
    put_json_value(table_cell(table), a);
    put_json_value(table_cell(table), b);
}

/* Every item of two objects that is not the same, named "prefix item". */
static void differ_all(struct table *table, const char *prefix, const cJSON *a, const cJSON *b)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, a)
    {
        char *what = xasprintf("%s%s", prefix, item->string ? item->string : "");
        differ(table, what, item, json_get(b, item->string ? item->string : ""));
        free(what);
    }
    cJSON_ArrayForEach(item, b)
    {
        char *what = xasprintf("%s%s", prefix, item->string ? item->string : "");
        if (!json_get(a, item->string ? item->string : ""))
            differ(table, what, NULL, item);
        free(what);
    }
}

/* Settings that are another at each start, and tell nothing. */
static cJSON *without_places(const cJSON *settings)
{
    static const char *const names[] = {"listen",   "admin",    "metrics", "wal-dir",
                                        "sink-url", "main-url", "watch",   "start-at",
                                        "target",   "disk-of",  "seed",    "state"};
    cJSON *copy = cJSON_Duplicate(settings, true);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        cJSON_DeleteItemFromObjectCaseSensitive(copy, names[i]);
    return copy;
}

static void differ_settings(struct table *table, const char *sink, const struct manifest *a,
                            const struct manifest *b)
{
    static const char *const roles[] = {"api", "worker"};
    for (size_t i = 0; i < 2; i++) {
        cJSON *of_a = without_places(json_get(json_get(a->json, "settings"), roles[i]));
        cJSON *of_b = without_places(json_get(json_get(b->json, "settings"), roles[i]));
        char *prefix = xasprintf("%s: %s ", sink, roles[i]);
        differ_all(table, prefix, of_a, of_b);
        free(prefix);
        cJSON_Delete(of_a);
        cJSON_Delete(of_b);
    }
    static const char *const servers[] = {"sink", "main-db"};
    for (size_t i = 0; i < 2; i++) {
        const cJSON *of_a = manifest_server(a, servers[i]), *of_b = manifest_server(b, servers[i]);
        char *what = xasprintf("%s: %s version", sink, servers[i]);
        char *prefix = xasprintf("%s: %s ", sink, servers[i]);
        differ(table, what, json_get(of_a, "version"), json_get(of_b, "version"));
        differ_all(table, prefix, json_get(of_a, "settings"), json_get(of_b, "settings"));
        free(what);
        free(prefix);
    }
}

static void put_differences(const struct sides *sides)
{
    const struct manifest *a = sides->a->reference, *b = sides->b->reference;
    struct table table;
    table_begin(&table, 3);
    table.all_left = true;
    table_text(&table, "what differs");
    table_text(&table, "A");
    table_text(&table, "B");
    size_t before = table.count;
    cJSON *scenario_a = cJSON_Duplicate(a->scenario_json, true);
    cJSON *scenario_b = cJSON_Duplicate(b->scenario_json, true);
    cJSON_DeleteItemFromObjectCaseSensitive(scenario_a, "file");
    cJSON_DeleteItemFromObjectCaseSensitive(scenario_b, "file");
    differ_all(&table, "scenario ", scenario_a, scenario_b);
    cJSON_Delete(scenario_a);
    cJSON_Delete(scenario_b);
    differ_all(&table, "host ", json_get(a->json, "host"), json_get(b->json, "host"));
    differ_all(&table, "sluice ", json_get(a->json, "sluice"), json_get(b->json, "sluice"));
    for (size_t i = 0; i < sides->a->group_count; i++) {
        const struct group *of_a = &sides->a->groups[i], *of_b = group_of(sides->b, of_a->sink);
        if (of_b && !of_a->first->run.manifest_err.code && !of_b->first->run.manifest_err.code)
            differ_settings(&table, of_a->sink, &of_a->first->run.manifest,
                            &of_b->first->run.manifest);
    }
    bool any = table.count > before;
    struct buf text = {0};
    table_end(&table, &text);
    buf_puts(sides->out, any ? text.data
                             : "Scenario, host, build, settings and servers are the "
                               "same.\n\n");
    buf_free(&text);
}

/* Another load is another question: figures are shown, no verdict is given. */
static bool is_fair(const struct sides *sides, struct buf *why)
{
    const cJSON *a = sides->a->reference->scenario_json, *b = sides->b->reference->scenario_json;
    for (size_t i = 0; i < sizeof(work_keys) / sizeof(work_keys[0]); i++) {
        const cJSON *of_a = json_get(a, work_keys[i]), *of_b = json_get(b, work_keys[i]);
        bool none = !of_a && !of_b;
        bool empty =
            (!of_a && cJSON_GetArraySize(of_b) == 0) || (!of_b && cJSON_GetArraySize(of_a) == 0);
        if (!none && !empty && !cJSON_Compare(of_a, of_b, true))
            buf_printf(why, "%s%s", why->len ? ", " : "", work_keys[i]);
    }
    return why->len == 0;
}

/* ---- a sink ---- */

static const char *word_of(enum against verdict)
{
    switch (verdict) {
    case AGAINST_TIE:
        return "tie";
    case AGAINST_BETTER:
        return "better";
    case AGAINST_WORSE:
        return "**worse**";
    case AGAINST_UNKNOWN:
        break;
    }
    return "–";
}

static void put_change(struct buf *cell, struct spread a, struct spread b)
{
    double pct = 100 * (b.median - a.median) / a.median;
    if (isfinite(pct))
        buf_printf(cell, "%+.*f %%", fabs(pct) < 10 ? 1 : 0, pct);
    else
        buf_puts(cell, "–");
}

static void worse(const struct sides *sides, const struct group *group, const char *what)
{
    if (group->control)
        return;
    buf_printf(&sides->result->worse, "%s%s: %s", sides->result->worse.len ? "; " : "", group->sink,
               what);
    sides->result->worse_count++;
}

static void put_figures(const struct sides *sides, const struct group *a, const struct group *b)
{
    struct table table;
    table_begin(&table, 5);
    table_text(&table, "figure");
    table_text(&table, "A");
    table_text(&table, "B");
    table_text(&table, "change");
    table_text(&table, "B is");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        char *key_a = figure_key(sides->a->reference, row->key);
        char *key_b = figure_key(sides->b->reference, row->key);
        struct spread of_a = group_spread(a, "%s", key_a), of_b = group_spread(b, "%s", key_b);
        free(key_a);
        free(key_b);
        if (of_a.n + of_b.n == 0)
            continue;
        enum against verdict = against_judge(of_a, of_b, row->highest_is_best);
        table_text(&table, row->title);
        spread_cell(table_cell(&table), of_a, row->unit);
        spread_cell(table_cell(&table), of_b, row->unit);
        put_change(table_cell(&table), of_a, of_b);
        buf_printf(table_cell(&table), "%s%s", word_of(verdict), row->gates ? "" : " (no gate)");
        if (verdict == AGAINST_WORSE && row->gates)
            worse(sides, a, row->title);
    }
    table_end(&table, sides->out);
}

static size_t failed_audits(const struct group *group)
{
    size_t count = 0;
    for (size_t i = 0; i < group->count; i++)
        count += group->entries[i]->audit.verdict == AUDIT_FAIL;
    return count;
}

/* Tasks lost and promises broken are no noise. */
static void put_verdicts(const struct sides *sides, const struct group *a, const struct group *b)
{
    size_t failed_a = failed_audits(a), failed_b = failed_audits(b);
    double met_a = group_spread(a, "sla.met").min, met_b = group_spread(b, "sla.met").min;
    buf_printf(sides->out,
               "Runs that count: A %zu of %zu, B %zu of %zu. Audits that failed: A %zu, "
               "B %zu. SLA: A %s, B %s.%s\n\n",
               a->counting, a->count, b->counting, b->count, failed_a, failed_b,
               met_a == 1 ? "met" : "missed", met_b == 1 ? "met" : "missed",
               a->counting < 2 || b->counting < 2
                   ? " With one run on a side the noise is not known: only a factor of over 2 is "
                     "called a difference."
                   : "");
    if (failed_b * a->count > failed_a * b->count)
        worse(sides, a, "audits that failed");
    if (met_a == 1 && met_b != 1)
        worse(sides, a, "the SLA, met before");
}

static void put_sink(const struct sides *sides, const struct group *a, const struct group *b)
{
    buf_puts(sides->out, "## ");
    text_markdown(sides->out, a->sink);
    buf_puts(sides->out, a->control ? " (control)\n\n" : "\n\n");
    if (a->counting == 0 || b->counting == 0) {
        const struct group *group = a->counting == 0 ? a : b;
        buf_printf(sides->out, "Left out: no run of %s counts", group == a ? "A" : "B");
        if (group->first->reasons.count) {
            buf_puts(sides->out, " (");
            text_markdown(sides->out, group->first->reasons.items[0]);
            buf_putc(sides->out, ')');
        }
        buf_puts(sides->out, ".\n\n");
        sides->result->unjudged += !a->control;
        if (failed_audits(b) > failed_audits(a))
            worse(sides, a, "audits that failed");
        return;
    }
    sides->result->judged += !a->control;
    put_verdicts(sides, a, b);
    put_figures(sides, a, b);
}

static void put_sinks(const struct sides *sides)
{
    for (size_t i = 0; i < sides->a->group_count; i++) {
        const struct group *of_b = group_of(sides->b, sides->a->groups[i].sink);
        if (of_b)
            put_sink(sides, &sides->a->groups[i], of_b);
    }
    for (int side = 0; side < 2; side++) {
        const struct comparison *own = side ? sides->b : sides->a;
        const struct comparison *other = side ? sides->a : sides->b;
        for (size_t i = 0; i < own->group_count; i++) {
            if (group_of(other, own->groups[i].sink))
                continue;
            buf_puts(sides->out, "Left out: ");
            text_markdown(sides->out, own->groups[i].sink);
            buf_printf(sides->out, ", which only %s has.\n\n", side ? "B" : "A");
            sides->result->unjudged += side == 0 && !own->groups[i].control;
        }
    }
}

static void put_side(struct buf *out, const char *name, const struct comparison *comparison)
{
    buf_printf(out, "- %s: ", name);
    text_markdown(out, comparison->dir);
    buf_puts(out, ", scenario ");
    text_markdown(out, comparison->reference->scenario);
    buf_putc(out, '\n');
}

static int load_side(struct comparison *comparison, const char *dir, struct err *err)
{
    int code = comparison_load(comparison, dir, err);
    if (code == 0 && !comparison->reference)
        code = err_set(err, -EBADMSG, "%s holds no run whose manifest.json can be read", dir);
    return code;
}

int report_against(const char *dir_a, const char *dir_b, struct report_against *result,
                   struct err *err)
{
    struct comparison a = {0}, b = {0};
    struct buf *out = &result->text;
    memset(result, 0, sizeof(*result));
    int code = load_side(&a, dir_a, err);
    if (code == 0)
        code = load_side(&b, dir_b, err);
    if (code == 0) {
        struct sides sides = {&a, &b, out, result};
        buf_puts(out, "# sluice: A against B\n\n");
        put_side(out, "A", &a);
        put_side(out, "B", &b);
        buf_putc(out, '\n');
        result->fair = is_fair(&sides, &result->unfair);
        if (!result->fair) {
            buf_printf(
                out,
                "> **Not the same work** (scenario: %s): the figures stand side by side, and "
                "no difference between them says which is better.\n\n",
                result->unfair.data);
        }
        put_differences(&sides);
        put_sinks(&sides);
        buf_printf(out,
                   "A difference: the ranges of the runs do not overlap and the medians are over "
                   "%.0f %% apart; with one run on a side, over a factor of %.0f. Else a tie. Only "
                   "runs that count; of figures with \"no gate\" none makes `--gate` fail.\n",
                   AGAINST_LEAST_PCT, AGAINST_FACTOR);
    }
    comparison_free(&a);
    comparison_free(&b);
    return code;
}

void report_against_free(struct report_against *result)
{
    buf_free(&result->text);
    buf_free(&result->worse);
    buf_free(&result->unfair);
}

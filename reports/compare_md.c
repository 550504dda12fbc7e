/* compare.md: first what was found, then what it rests on. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cognitive.h"
#include "compare.h"
#include "text.h"

/* ---- warnings ---- */

/* The strings of an array in the manifests of all runs, each once, with the runs that say it. */
static void put_warnings(const struct comparison *comparison, struct buf *out, const char *key,
                         const char *title)
{
    bool any = false;
    for (size_t i = 0; i < comparison->count; i++) {
        const struct entry *entry = &comparison->entries[i];
        const cJSON *item;
        cJSON_ArrayForEach(item, json_get(entry->run.manifest.json, key))
        {
            if (!any)
                buf_printf(out, "> %s\n>\n", title);
            any = true;
            buf_puts(out, "> - ");
            text_markdown(out, entry->run.name);
            buf_puts(out, ": ");
            text_markdown(out, cJSON_IsString(item) ? item->valuestring : "?");
            buf_putc(out, '\n');
        }
    }
    if (any)
        buf_putc(out, '\n');
}

static void put_left_out(const struct comparison *comparison, struct buf *out)
{
    size_t left_out = 0;
    for (size_t i = 0; i < comparison->count; i++)
        left_out += comparison->entries[i].reasons.count > 0;
    if (left_out == 0)
        return;
    buf_printf(
        out,
        "> **%zu of %zu runs %s not count** towards the SLA verdict (what their audits found "
        "does):\n>\n",
        left_out, comparison->count, left_out == 1 ? "does" : "do");
    for (size_t i = 0; i < comparison->count; i++) {
        const struct entry *entry = &comparison->entries[i];
        for (size_t k = 0; k < entry->reasons.count; k++) {
            buf_puts(out, "> - ");
            text_markdown(out, entry->run.name);
            buf_puts(out, ": ");
            text_markdown(out, entry->reasons.items[k]);
            buf_putc(out, '\n');
        }
    }
    buf_putc(out, '\n');
}

/* ---- the verdict ---- */

static void verdict_header(const struct comparison *comparison, struct table *table)
{
    table_text(table, "");
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct group *group = &comparison->groups[i];
        struct buf *cell = table_cell(table);
        text_markdown(cell, group->sink);
        buf_puts(cell, group->control ? " (control)" : "");
    }
    table_text(table, "version");
    for (size_t i = 0; i < comparison->group_count; i++)
        put_server(table_cell(table), &comparison->groups[i], true);
    table_text(table, "replicas");
    for (size_t i = 0; i < comparison->group_count; i++)
        text_count(table_cell(table), group_replicas(&comparison->groups[i]));
}

static void cell_runs(struct buf *cell, const struct group *group)
{
    buf_printf(cell, "%zu of %zu%s", group->counting, group->count,
               group->counting == 1 ? ", indicative" : "");
}

static void cell_sla(struct buf *cell, const struct group *group)
{
    size_t met = 0;
    for (size_t i = 0; i < group->counting; i++)
        met += figures_get(&group->shown[i]->figures, "sla.met") == 1;
    if (group->counting == 0)
        buf_puts(cell, "no run counts");
    else if (met == group->counting)
        buf_puts(cell, "**met**");
    else if (met == 0)
        buf_puts(cell, "**missed**");
    else
        buf_printf(cell, "met in %zu of %zu", met, group->counting);
}

/* Only runs that count speak here; elsewhere figures of the others are shown and marked. */
static void cell_verdict_ms(struct buf *cell, const struct group *group, const char *key)
{
    if (group->counting == 0)
        buf_puts(cell, "–");
    else
        spread_cell(cell, group_spread(group, "%s", key), UNIT_MS);
}

static void cell_p99(struct buf *cell, const struct group *group)
{
    cell_verdict_ms(cell, group, "sla.p99_ms");
}

static void cell_through(struct buf *cell, const struct group *group)
{
    cell_verdict_ms(cell, group, "sla.through_faults_p99_ms");
}

static void cell_worst(struct buf *cell, const struct group *group)
{
    cell_verdict_ms(cell, group, "sla.worst_second_p99_ms");
}

static void cell_over(struct buf *cell, const struct group *group)
{
    if (group->counting == 0) {
        buf_puts(cell, "–");
        return;
    }
    spread_cell(cell, group_spread(group, "sla.seconds_over"), UNIT_COUNT);
    buf_puts(cell, " of ");
    text_count(cell, group_spread(group, "sla.seconds").median);
}

/* Those of its first run: a control may lack the part that a fault is about. */
static void cell_faults(struct buf *cell, const struct group *group)
{
    const struct run *run = &group->first->run;
    for (size_t i = 0; i < run->window_count && i < 3; i++) {
        buf_puts(cell, i ? ", " : "");
        text_markdown(cell, run->windows[i].who);
        buf_putc(cell, ' ');
        text_markdown(cell, run->windows[i].what);
    }
    if (run->window_count > 3)
        buf_printf(cell, ", %zu more", run->window_count - 3);
    if (run->window_count == 0)
        buf_puts(cell, "none");
}

/* Audit counts are sums over all runs. A void audit is said, never shown as 0. */
static void cell_audit(struct buf *cell, const struct group *group, int64_t count, bool bad)
{
    size_t uncounted;
    struct audit sum = group_audit(group, &uncounted);
    if (!sum.counted) {
        buf_puts(cell, "void");
        return;
    }
    bool shout = bad && count > 0 && !group->control;
    buf_printf(cell, "%s%" PRId64 "%s", shout ? "**" : "", count, shout ? "**" : "");
    if (uncounted)
        buf_printf(cell, " (%zu void)", uncounted);
}

static void cell_verdict_audit(struct buf *cell, const struct group *group)
{
    size_t verdicts[4] = {0};
    for (size_t i = 0; i < group->count; i++)
        verdicts[group->entries[i]->audit.verdict]++;
    bool first = true;
    for (int verdict = 3; verdict >= 0; verdict--) {
        if (verdicts[verdict] == 0)
            continue;
        buf_puts(cell, first ? "" : ", ");
        buf_puts(cell, audit_verdict_name((enum audit_verdict)verdict));
        if (verdicts[verdict] != group->count)
            buf_printf(cell, " %zu of %zu", verdicts[verdict], group->count);
        first = false;
    }
}

static bool any_not_drained(const struct comparison *comparison)
{
    bool any = false;
    for (size_t i = 0; i < comparison->group_count; i++) {
        size_t uncounted;
        any = any || group_audit(&comparison->groups[i], &uncounted).not_drained > 0;
    }
    return any;
}

static void audit_rows(const struct comparison *comparison, struct table *table)
{
    static const char *const bad_labels[AUDIT_BAD_COUNT] = {"lost", "unexpected", "corrupt",
                                                            "refused, yet stored", "duplicated"};
    static const char *const labels[] = {"acknowledged", "committed",        "dead letters",
                                         "redelivered",  "unknown, arrived", "unknown, absent"};
    for (int kind = 0; kind < AUDIT_BAD_COUNT; kind++) {
        table_text(table, bad_labels[kind]);
        for (size_t i = 0; i < comparison->group_count; i++) {
            size_t uncounted;
            struct audit sum = group_audit(&comparison->groups[i], &uncounted);
            cell_audit(table_cell(table), &comparison->groups[i], sum.bad[kind].count, true);
        }
    }
    if (any_not_drained(comparison)) {
        table_text(table, "not drained (in the sink still)");
        for (size_t i = 0; i < comparison->group_count; i++) {
            size_t uncounted;
            struct audit sum = group_audit(&comparison->groups[i], &uncounted);
            cell_audit(table_cell(table), &comparison->groups[i], sum.not_drained, false);
        }
    }
    for (size_t row = 0; row < sizeof(labels) / sizeof(labels[0]); row++) {
        table_text(table, labels[row]);
        for (size_t i = 0; i < comparison->group_count; i++) {
            size_t uncounted;
            struct audit sum = group_audit(&comparison->groups[i], &uncounted);
            const int64_t counts[] = {sum.acknowledged, sum.committed,       sum.dead,
                                      sum.redelivered,  sum.unknown_arrived, sum.unknown_absent};
            cell_audit(table_cell(table), &comparison->groups[i], counts[row], false);
        }
    }
}

static void put_verdict(const struct comparison *comparison, struct buf *out)
{
    struct buf limit = {0};
    buf_puts(&limit, "SLA: api p99 <= ");
    text_ms(&limit, comparison->reference ? comparison->reference->api_p99_ms : NAN);
    const struct {
        const char *label;
        void (*put)(struct buf *cell, const struct group *group);
    } rows[] = {
        {"runs that count", cell_runs},
        {"faults", cell_faults},
        {limit.data, cell_sla},
        {"api p99, steady, outside faults", cell_p99},
        {"api p99, steady, faults and all", cell_through},
        {"worst second (its p99)", cell_worst},
        {"seconds over the limit", cell_over},
        {"audit", cell_verdict_audit},
    };
    struct table table;
    table_begin(&table, comparison->group_count + 1);
    verdict_header(comparison, &table);
    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        table_text(&table, rows[row].label);
        for (size_t i = 0; i < comparison->group_count; i++)
            rows[row].put(table_cell(&table), &comparison->groups[i]);
    }
    audit_rows(comparison, &table);
    table_end(&table, out);
    buf_free(&limit);
}

/* ---- charts ---- */

static void put_charts(const struct comparison *comparison, struct buf *out)
{
    buf_puts(out, "## Charts\n\n");
    for (size_t i = 0; i < comparison->chart_files.count; i++) {
        /* Their names are ours. */
        const char *file = comparison->chart_files.items[i];
        const char *name = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
        buf_printf(out, "![%.*s](%s)\n\n", (int)strcspn(name, "."), name, file);
    }
    if (comparison->chart_problem) {
        buf_puts(out, "Charts are missing: ");
        text_markdown(out, comparison->chart_problem);
        buf_puts(out, "\n\n");
    } else {
        buf_puts(out,
                 "A colour, its dashes and marks stand for the same sink everywhere (a star: no "
                 "run of it counts). Grey bands are faults,\nuntil recovered; pale ones are "
                 "background work, with a mark above in the colour of each sink that it "
                 "befell. Of a sink\nwith several runs the first that counts is drawn. A "
                 "request without a 202 is drawn at its timeout. Latency by percentile\nis of "
                 "the whole steady phase, faults and all. CPU is the mean of each second, "
                 "memory the most. compare.html has the\nsame charts to point at, zoom and "
                 "switch sinks off.\n\n");
    }
}

static void put_title(const struct comparison *comparison, struct buf *out)
{
    const struct manifest *reference = comparison->reference;
    buf_puts(out, "# sluice: ");
    text_markdown(out, reference ? reference->scenario : "a comparison");
    buf_puts(out, "\n\n");
    put_warnings(comparison, out, "unsafe",
                 "**Unsafe settings: what these runs promise is not what others do.**");
}

static void put_load(const struct manifest *manifest, struct buf *out)
{
    text_number(out, manifest->rps);
    buf_puts(out, " requests/s (");
    text_markdown(out, manifest->pacing);
    buf_puts(out, "), ");
    for (size_t i = 0; i < manifest->phase_count; i++) {
        const struct manifest_phase *phase = &manifest->phases[i];
        buf_puts(out, i ? ", " : "");
        text_markdown(out, phase->name);
        buf_putc(out, ' ');
        text_seconds(out, phase->for_ms / 1e3);
        if (phase->rate != 1) {
            buf_printf(out, " at %gx", phase->rate);
        }
    }
    buf_puts(out, "; main DB ");
    text_ms(out, manifest->row_delay_ms);
    buf_printf(out, " a row, %.0f %s, batches of %.0f.\n\n", manifest->lanes,
               manifest->lanes == 1 ? "lane" : "lanes", manifest->batch);
}

void compare_markdown(const struct comparison *comparison, struct buf *out)
{
    put_title(comparison, out);
    for (size_t i = 0; i < comparison->group_count; i++) {
        buf_puts(out, "- ");
        sentence_of(&comparison->groups[i], out, true);
        buf_putc(out, '\n');
    }
    buf_putc(out, '\n');
    size_t before = out->len;
    sentence_of_order(comparison, out, true);
    if (out->len > before)
        buf_putc(out, '\n');
    put_left_out(comparison, out);
    buf_puts(out, "## Verdict\n\n");
    if (comparison->reference)
        put_load(comparison->reference, out);
    put_verdict(comparison, out);
    buf_puts(out,
             "Counts of tasks are sums over all runs. Whatever is not a 202 misses the SLA and "
             "ranks last in a percentile;\n\"not 202\" stands where a rank lies among those.\n\n");
    tables_order(comparison, out);
    tables_faults(comparison, out);
    put_charts(comparison, out);
    tables_measured(comparison, out);
    cognitive_markdown(comparison, out);
    put_warnings(comparison, out, "unverified",
                 "**Unverified settings** (could not be read back):");
    tables_surroundings(comparison, out);
}

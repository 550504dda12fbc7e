/* compare.json: the same figures for programs. Schema: docs/metrics.md. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"

static void put_json_text(struct buf *out, const char *text)
{
    buf_json_string(out, text ? text : "", text ? strlen(text) : 0);
}

/* null: the rank lies among requests without a 202. */
static void put_json_number(struct buf *out, double value)
{
    if (isfinite(value))
        buf_printf(out, "%.15g", value);
    else
        buf_puts(out, "null");
}

static void put_json_strings(struct buf *out, const struct strings *strings)
{
    buf_putc(out, '[');
    for (size_t i = 0; i < strings->count; i++) {
        buf_puts(out, i ? ", " : "");
        put_json_text(out, strings->items[i]);
    }
    buf_putc(out, ']');
}

/* ---- a sink ---- */

/* Every key that any shown run has, once. */
static void put_group_figures(struct buf *out, const struct group *group)
{
    bool first = true;
    buf_puts(out, "{");
    for (size_t run = 0; run < group->shown_count; run++) {
        const struct figures *figures = &group->shown[run]->figures;
        for (size_t i = 0; i < figures->count; i++) {
            bool seen = false;
            for (size_t before = 0; before < run && !seen; before++)
                seen = !isnan(
                    figures_get(&group->shown[before]->figures, "%s", figures->items[i].key));
            if (seen)
                continue;
            struct spread spread = group_spread(group, "%s", figures->items[i].key);
            buf_puts(out, first ? "\n        " : ",\n        ");
            first = false;
            put_json_text(out, figures->items[i].key);
            buf_puts(out, ": {\"median\": ");
            put_json_number(out, spread.median);
            buf_puts(out, ", \"min\": ");
            put_json_number(out, spread.min);
            buf_puts(out, ", \"max\": ");
            put_json_number(out, spread.max);
            buf_printf(out, ", \"n\": %zu}", spread.n);
        }
    }
    buf_puts(out, "}");
}

static void put_group(struct buf *out, const struct group *group)
{
    struct buf text = {0};
    buf_puts(out, "{\n      \"sink\": ");
    put_json_text(out, group->sink);
    buf_printf(out,
               ",\n      \"control\": %s,\n      \"runs\": %zu,\n      \"runs_that_count\": %zu,\n"
               "      \"indicative\": %s,\n      \"version\": ",
               group->control ? "true" : "false", group->count, group->counting,
               group->counting == 1 ? "true" : "false");
    put_version(&text, group, false);
    put_json_text(out, text.data);
    buf_puts(out, ",\n      \"promise\": ");
    put_json_text(out, group->first->run.manifest.promise);
    buf_clear(&text);
    sentence_of(group, &text, false);
    buf_puts(out, ",\n      \"sentence\": ");
    put_json_text(out, text.data);
    buf_free(&text);
    buf_puts(out, ",\n      \"figures\": ");
    put_group_figures(out, group);
    buf_puts(out, "\n    }");
}

/* ---- a run ---- */

static void put_files(struct buf *out, const struct run *run)
{
    buf_putc(out, '[');
    for (size_t i = 0; i < run->file_count; i++) {
        const struct event_file *file = &run->files[i];
        buf_puts(out, i ? ", " : "");
        buf_puts(out, "{\"name\": ");
        put_json_text(out, file->name);
        buf_printf(out,
                   ", \"lines\": %" PRId64 ", \"half_lines\": %d, \"damaged_lines\": %" PRId64 "}",
                   file->lines, file->half, file->damaged);
    }
    buf_putc(out, ']');
}

static void put_entry(struct buf *out, const struct entry *entry)
{
    buf_puts(out, "{\n      \"run\": ");
    put_json_text(out, entry->run.name);
    buf_puts(out, ",\n      \"sink\": ");
    put_json_text(out, entry->sink);
    buf_printf(out, ",\n      \"counts\": %s,\n      \"reasons\": ",
               entry->reasons.count ? "false" : "true");
    put_json_strings(out, &entry->reasons);
    buf_puts(out, ",\n      \"notes\": ");
    put_json_strings(out, &entry->notes);
    buf_puts(out, ",\n      \"files\": ");
    put_files(out, &entry->run);
    buf_puts(out, ",\n      \"audit\": ");
    audit_json(&entry->audit, out);
    buf_puts(out, ",\n      \"figures\": {");
    for (size_t i = 0; i < entry->figures.count; i++) {
        buf_puts(out, i ? ",\n        " : "\n        ");
        put_json_text(out, entry->figures.items[i].key);
        buf_puts(out, ": ");
        put_json_number(out, entry->figures.items[i].value);
    }
    buf_puts(out, "}\n    }");
}

void compare_json(const struct comparison *comparison, struct buf *out)
{
    buf_puts(out, "{\n  \"schema\": \"sluice-compare/1\",\n  \"made_by\": \"sluice " SLUICE_VERSION
                  "\",\n  \"scenario\": ");
    char *scenario =
        comparison->reference ? cJSON_PrintUnformatted(comparison->reference->scenario_json) : NULL;
    buf_puts(out, scenario ? scenario : "null");
    free(scenario);
    buf_printf(out,
               ",\n  \"limits\": {\"rate_missed_pct\": %g, \"own_lateness_p99_ms\": %g, "
               "\"host_other_pct\": %g, \"host_steal_pct\": %g, \"clock_step_ms\": %g}",
               GATE_RATE_MISSED_PCT, GATE_LATENESS_P99_MS, GATE_HOST_OTHER_PCT, GATE_HOST_STEAL_PCT,
               GATE_CLOCK_STEP_MS);
    buf_puts(out, ",\n  \"charts\": ");
    put_json_strings(out, &comparison->chart_files);
    buf_puts(out, ",\n  \"charts_missing\": ");
    if (comparison->chart_problem)
        put_json_text(out, comparison->chart_problem);
    else
        buf_puts(out, "null");
    buf_puts(out, ",\n  \"sinks\": [");
    for (size_t i = 0; i < comparison->group_count; i++) {
        buf_puts(out, i ? ", " : "");
        put_group(out, &comparison->groups[i]);
    }
    buf_puts(out, "],\n  \"runs\": [");
    for (size_t i = 0; i < comparison->count; i++) {
        buf_puts(out, i ? ", " : "");
        put_entry(out, &comparison->entries[i]);
    }
    buf_puts(out, "]\n}\n");
}

/* The tables of compare.md that say what the figures rest on: promises, environment, validity. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "text.h"

static void put_promises(const struct comparison *comparison, struct buf *out)
{
    buf_puts(out, "## What a 202 promises\n\n");
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct group *group = &comparison->groups[i];
        buf_puts(out, "- **");
        text_markdown(out, group->sink);
        buf_puts(out, "** (");
        put_version(out, group, true);
        buf_puts(out, "): ");
        const char *promise = group->first->run.manifest.promise;
        text_markdown(out, promise && *promise ? promise : "not known");
        buf_putc(out, '\n');
    }
    buf_putc(out, '\n');
}

/* ---- environment ---- */

static void pair(struct table *table, const char *name, const char *text)
{
    table_text(table, name);
    text_markdown(table_cell(table), *text ? text : "?");
}

static void put_host(const struct manifest *manifest, struct table *table)
{
    const cJSON *host = json_get(manifest->json, "host");
    const cJSON *sluice = json_get(manifest->json, "sluice");
    pair(table, "operating system", json_text(host, "os"));
    pair(table, "kernel", json_text(host, "kernel"));
    pair(table, "processor", json_text(host, "cpu"));
    table_text(table, "cores");
    text_count(table_cell(table), json_number(host, "cores"));
    table_text(table, "memory");
    text_bytes(table_cell(table), json_number(host, "memory_bytes"));
    pair(table, "file system of the state", json_text(host, "filesystem"));
    pair(table, "its device", json_text(host, "device"));
    pair(table, "state folder", manifest->state_dir);
    pair(table, "sluice", json_text(sluice, "version"));
    pair(table, "commit", json_text(sluice, "commit"));
    pair(table, "compiler", json_text(sluice, "compiler"));
    pair(table, "build type", json_text(sluice, "build_type"));
    pair(table, "scenario file", json_text(manifest->scenario_json, "file"));
    if (manifest_in_containers(manifest))
        pair(table, "parts", "containers, started by docker compose");
}

static void put_settings(struct buf *cell, const cJSON *settings)
{
    bool first = true;
    const cJSON *item;
    cJSON_ArrayForEach(item, settings)
    {
        buf_puts(cell, first ? "" : ", ");
        first = false;
        text_markdown(cell, item->string);
        buf_putc(cell, '=');
        char *value =
            cJSON_IsString(item) ? xstrdup(item->valuestring) : cJSON_PrintUnformatted(item);
        text_markdown(cell, value ? value : "?");
        free(value);
    }
}

static void put_servers(const struct comparison *comparison, struct buf *out)
{
    struct table table;
    table_begin(&table, 5);
    table.all_left = true;
    table_text(&table, "sink: server");
    table_text(&table, "role");
    table_text(&table, "version");
    table_text(&table, "replicas");
    table_text(&table, "settings read back");
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct group *group = &comparison->groups[i];
        const cJSON *server;
        cJSON_ArrayForEach(server, json_get(group->first->run.manifest.json, "servers"))
        {
            struct buf *cell = table_cell(&table);
            text_markdown(cell, group->sink);
            buf_puts(cell, ": ");
            text_markdown(cell, json_text(server, "name"));
            text_markdown(table_cell(&table), json_text(server, "role"));
            text_markdown(table_cell(&table), json_text(server, "version"));
            text_count(table_cell(&table), server_replicas(server));
            put_settings(table_cell(&table), json_get(server, "settings"));
        }
    }
    table_end(&table, out);
}

static bool some_in_containers(const struct comparison *comparison)
{
    for (size_t i = 0; i < comparison->group_count; i++)
        if (manifest_in_containers(&comparison->groups[i].first->run.manifest))
            return true;
    return false;
}

/* What each part runs from, and how much it may have. A limit that is missing or 0 is none. */
static void put_containers(const struct comparison *comparison, struct buf *out)
{
    if (!some_in_containers(comparison))
        return;
    struct table table;
    table_begin(&table, 4);
    table_text(&table, "sink: container");
    table_text(&table, "image");
    table_text(&table, "CPU limit, cores");
    table_text(&table, "memory limit");
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct group *group = &comparison->groups[i];
        const cJSON *part;
        cJSON_ArrayForEach(part, json_get(group->first->run.manifest.json, "parts"))
        {
            struct buf *cell = table_cell(&table);
            text_markdown(cell, group->sink);
            buf_puts(cell, ": ");
            text_markdown(cell, part->string);
            const char *image = json_text(part, "image");
            text_markdown(table_cell(&table), *image ? image : "?");
            double cpus = json_number(part, "cpus"), memory = json_number(part, "memory_bytes");
            if (cpus > 0)
                buf_printf(table_cell(&table), "%.3g", cpus);
            else
                table_text(&table, "none");
            if (memory > 0)
                text_bytes(table_cell(&table), memory);
            else
                table_text(&table, "none");
        }
    }
    table_end(&table, out);
}

static void put_environment(const struct comparison *comparison, struct buf *out)
{
    buf_puts(out, "## Environment\n\n");
    if (comparison->reference) {
        struct table table;
        table_begin(&table, 2);
        table.all_left = true;
        table_text(&table, "what");
        table_text(&table, "value");
        put_host(comparison->reference, &table);
        table_end(&table, out);
    }
    put_servers(comparison, out);
    put_containers(comparison, out);
    buf_puts(out, "Every setting of a run stands in its manifest.json.\n\n");
}

/* ---- validity ---- */

static void gate_cell(struct table *table, const struct entry *entry, const char *key,
                      enum unit unit)
{
    double value = figures_get(&entry->figures, "%s", key);
    spread_cell(table_cell(table), stats_spread(&value, 1), unit);
}

static void put_gates(const struct comparison *comparison, struct buf *out)
{
    struct table table;
    table_begin(&table, 10);
    static const char *const titles[] = {
        "run",         "counts", "audit", "rate missed",      "own lateness p99",
        "host before", "other",  "steal", "clock went ahead", "lines skipped"};
    for (size_t i = 0; i < 10; i++)
        table_text(&table, titles[i]);
    for (size_t i = 0; i < comparison->count; i++) {
        const struct entry *entry = &comparison->entries[i];
        text_markdown(table_cell(&table), entry->run.name);
        table_text(&table, entry->reasons.count ? "**no**" : "yes");
        table_text(&table, audit_verdict_name(entry->audit.verdict));
        gate_cell(&table, entry, "gate.rate_missed_pct", UNIT_PERCENT);
        gate_cell(&table, entry, "gate.own_lateness_p99_ms", UNIT_MS);
        gate_cell(&table, entry, "host.before_busy_pct", UNIT_PERCENT);
        gate_cell(&table, entry, "host.other_pct", UNIT_PERCENT);
        gate_cell(&table, entry, "host.steal_pct", UNIT_PERCENT);
        gate_cell(&table, entry, "clock.ahead_ms", UNIT_MS);
        buf_printf(table_cell(&table), "%" PRId64 " half, %" PRId64 " damaged",
                   run_half_lines(&entry->run), run_damaged_lines(&entry->run));
    }
    table_end(&table, out);
}

static void put_list(const struct entry *entry, const struct strings *strings, struct buf *out,
                     const char *what)
{
    for (size_t i = 0; i < strings->count; i++) {
        buf_puts(out, "- ");
        text_markdown(out, entry->run.name);
        buf_printf(out, "%s: ", what);
        text_markdown(out, strings->items[i]);
        buf_putc(out, '\n');
    }
}

static void put_bad_ids(const struct entry *entry, struct buf *out)
{
    for (int kind = 0; kind < AUDIT_BAD_COUNT; kind++) {
        const struct audit_ids *bad = &entry->audit.bad[kind];
        if (!entry->audit.counted || bad->count == 0)
            continue;
        buf_puts(out, "- ");
        text_markdown(out, entry->run.name);
        buf_printf(out, ", %s, %" PRId64 " tasks, the first:", audit_bad_name((enum audit_bad)kind),
                   bad->count);
        for (unsigned k = 0; k < bad->kept && k < 3; k++) {
            char text[UUID_TEXT_BYTES];
            buf_printf(out, " %s", uuid_format(bad->ids[k], text));
        }
        buf_puts(out, " (`sluice trace` shows one's life)\n");
    }
}

static void put_validity(const struct comparison *comparison, struct buf *out)
{
    buf_puts(out, "## Validity\n\n");
    put_gates(comparison, out);
    tables_flushes(comparison, out);
    size_t before = out->len;
    for (size_t i = 0; i < comparison->count; i++) {
        const struct entry *entry = &comparison->entries[i];
        put_list(entry, &entry->reasons, out, " does not count");
        put_bad_ids(entry, out);
        put_list(entry, &entry->notes, out, "");
    }
    if (out->len > before)
        buf_putc(out, '\n');
    buf_printf(
        out,
        "A run counts when it is complete, its audit is not void, the load generator came to "
        "all but %.0f %% of each phase's\nrequests in time and was not late by itself by more "
        "than %.0f ms (p99), the host spent at most %.0f %% of its cores on\nother work, before "
        "the "
        "run and while the load lasted, and lost at most %.0f %% to its hypervisor, the clock was "
        "not set by over %.0f ms,\nevery fault was recovered from, and scenario and version are "
        "those of the other runs. Percentiles are exact (nearest rank) and "
        "never averaged; of several runs of a sink the\nmedian run and the range are shown.\n",
        GATE_RATE_MISSED_PCT, GATE_LATENESS_P99_MS, GATE_HOST_OTHER_PCT, GATE_HOST_STEAL_PCT,
        GATE_CLOCK_STEP_MS);
}

void tables_surroundings(const struct comparison *comparison, struct buf *out)
{
    put_promises(comparison, out);
    put_environment(comparison, out);
    put_validity(comparison, out);
}

/* The tables of compare.md that show on which terms the sinks met: settings that must be the same,
 * batches, recovery, row sleeps, and work in the background that came or did not. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "background.h"
#include "compare.h"
#include "lines.h"
#include "text.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- terms ---- */

/* What every sink must be given alike. */
static const struct term {
    const char *part, *setting;
} terms[] = {
    {"api", "in-flight-max"},  {"api", "in-flight-bytes-max"},
    {"api", "backlog-max"},    {"api", "backlog-bytes-max"},
    {"api", "ack-deadline"},   {"api", "connections-max"},
    {"worker", "lanes"},       {"worker", "batch"},
    {"worker", "batch-wait"},  {"worker", "back-off-max"},
    {"api", "sink-batch-max"}, {"api", "sink-connections"},
};

static const char *term_value(const struct entry *entry, const struct term *term)
{
    const cJSON *settings = json_get(entry->run.manifest.json, "settings");
    return json_text(json_get(settings, term->part), term->setting);
}

/* The first run that holds the setting, from the given one on; count: there is none. */
static size_t next_with(const struct comparison *comparison, const struct term *term, size_t from)
{
    while (from < comparison->count && !*term_value(&comparison->entries[from], term))
        from++;
    return from;
}

static bool term_is_shared(const struct comparison *comparison, const struct term *term)
{
    size_t first = next_with(comparison, term, 0);
    for (size_t i = first; i < comparison->count; i = next_with(comparison, term, i + 1))
        if (strcmp(term_value(&comparison->entries[i], term),
                   term_value(&comparison->entries[first], term)) != 0)
            return false;
    return true;
}

static void put_term(struct buf *out, const struct term *term, const char *value)
{
    buf_printf(out, "%s %s=", term->part, term->setting);
    text_markdown(out, value);
}

static void put_terms(const struct comparison *comparison, struct buf *out)
{
    bool any = false;
    for (size_t i = 0; i < COUNT_OF(terms); i++) {
        size_t first = next_with(comparison, &terms[i], 0);
        if (first == comparison->count || !term_is_shared(comparison, &terms[i]))
            continue;
        buf_puts(out, any ? ", " : "The same in all runs: ");
        any = true;
        put_term(out, &terms[i], term_value(&comparison->entries[first], &terms[i]));
    }
    buf_puts(out, any ? ".\n\n" : "");
    for (size_t i = 0; i < COUNT_OF(terms); i++) {
        if (term_is_shared(comparison, &terms[i]))
            continue;
        buf_puts(out, "**Not the same in all runs:**");
        const char *before = "";
        for (size_t k = next_with(comparison, &terms[i], 0); k < comparison->count;
             k = next_with(comparison, &terms[i], k + 1)) {
            buf_printf(out, "%s ", before);
            text_markdown(out, comparison->entries[k].run.name);
            buf_putc(out, ' ');
            put_term(out, &terms[i], term_value(&comparison->entries[k], &terms[i]));
            before = ",";
        }
        buf_puts(out, ".\n\n");
    }
}

/* ---- batches, recovery, row sleeps ---- */

static void put_batches(const struct comparison *comparison, struct buf *out)
{
    static const struct column columns[] = {
        {"batches", "batches", UNIT_COUNT}, {"mean", "mean", UNIT_NUMBER},
        {"p50", "p50", UNIT_COUNT},         {"p90", "p90", UNIT_COUNT},
        {"max", "max", UNIT_COUNT},         {"singles", "singles_pct", UNIT_PERCENT},
    };
    static const char *const sides[] = {"ingest", "drain"};
    struct table table;
    columns_header(&table, "sink, side", columns, COUNT_OF(columns));
    for (size_t i = 0; i < comparison->group_count; i++) {
        for (size_t side = 0; side < COUNT_OF(sides); side++) {
            char *prefix = xasprintf("batch.%s", sides[side]);
            columns_row(&table, &comparison->groups[i], sides[side], prefix, columns,
                        COUNT_OF(columns));
            free(prefix);
        }
    }
    buf_puts(out, "### Batches that occurred\n\nTasks in a batch; each batch counts once, however "
                  "many tasks it holds. ingest: tasks that became durable by one\nflush, statement "
                  "or round trip; drain: tasks of one commit.\n\n");
    table_end(&table, out);
}

static void put_recovery(const struct comparison *comparison, struct buf *out)
{
    static const struct column recovery[] = {
        {"restarts", "restarts", UNIT_COUNT},
        {"fault to first commit", "fault_to_commit_s", UNIT_SECONDS},
        {"restart to first commit", "restart_to_commit_s", UNIT_SECONDS},
        {"of that in the main DB", "in_main_db_s", UNIT_SECONDS},
    };
    static const struct column redelivered[] = {{"redelivered tasks", "redelivered", UNIT_COUNT}};
    static const struct column sleeps[] = {
        {"row sleeps", "total", UNIT_COUNT},     {"rows", "rows", UNIT_COUNT},
        {"refused rows", "refused", UNIT_COUNT}, {"wasted", "wasted", UNIT_COUNT},
        {"of all", "wasted_pct", UNIT_PERCENT},
    };
    buf_puts(out, "### After a worker's fault\n\nRestart: the new worker's first event.\n\n");
    columns_table(comparison, out, "recovery", recovery, COUNT_OF(recovery));
    buf_puts(out, "### Done twice\n\nRedelivered tasks were in the main DB already and slept no "
                  "more. Row sleeps are counted where they are slept, rolled back\nor not; "
                  "wasted: those that neither a row nor a refused one needed.\n\n");
    struct table table;
    table_begin(&table, 2 + COUNT_OF(sleeps));
    table_text(&table, "sink");
    table_text(&table, redelivered[0].title);
    for (size_t i = 0; i < COUNT_OF(sleeps); i++)
        table_text(&table, sleeps[i].title);
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct group *group = &comparison->groups[i];
        columns_name(&table, group, NULL);
        spread_cell(table_cell(&table), group_spread(group, "commit.redelivered"), UNIT_COUNT);
        for (size_t k = 0; k < COUNT_OF(sleeps); k++)
            spread_cell(table_cell(&table), group_spread(group, "row_sleeps.%s", sleeps[k].key),
                        sleeps[k].unit);
    }
    table_end(&table, out);
}

/* ---- work in the background ---- */

static void work_cell(struct buf *cell, const struct group *group, const char *key)
{
    struct spread forced = group_spread(group, "background.%s.forced", key);
    struct spread natural = group_spread(group, "background.%s.natural", key);
    if (forced.n == 0) {
        buf_puts(cell, "–");
        return;
    }
    if (forced.max > 0) {
        spread_cell(cell, forced, UNIT_COUNT);
        buf_puts(cell, " forced");
    }
    if (natural.n > 0 && natural.max > 0) {
        buf_puts(cell, forced.max > 0 ? ", " : "");
        spread_cell(cell, natural, UNIT_COUNT);
        buf_puts(cell, " natural");
    }
    if (natural.n == 0)
        buf_puts(cell, forced.max > 0 ? ", others not counted" : "not counted");
    else if (forced.max == 0 && natural.max == 0)
        buf_puts(cell, "**never**");
}

/* Every WHO.WHAT that a shown run has a figure of, in the order of their first appearance. */
static void list_keys(const struct comparison *comparison, struct strings *keys)
{
    static const char prefix[] = "background.", end[] = ".forced";
    for (size_t i = 0; i < BACKGROUND_KINDS; i++)
        for (size_t g = 0; g < comparison->group_count; g++)
            if (background_applies(&background_kinds[i], comparison->groups[g].sink)) {
                strings_add(keys, "%s.%s", background_kinds[i].who, background_kinds[i].what);
                break;
            }
    for (size_t i = 0; i < comparison->count; i++) {
        const struct figures *figures = &comparison->entries[i].figures;
        for (size_t k = 0; k < figures->count; k++) {
            const char *key = figures->items[k].key;
            size_t len = strlen(key);
            if (strncmp(key, prefix, sizeof(prefix) - 1) != 0 ||
                strcmp(key + len - (sizeof(end) - 1), end) != 0)
                continue;
            char *name = xasprintf("%.*s", (int)(len - sizeof(prefix) - sizeof(end) + 2),
                                   key + sizeof(prefix) - 1);
            bool known = false;
            for (size_t n = 0; n < keys->count; n++)
                known = known || strcmp(keys->items[n], name) == 0;
            if (!known)
                strings_add(keys, "%s", name);
            free(name);
        }
    }
}

static bool never(const struct group *group, const char *key)
{
    struct spread forced = group_spread(group, "background.%s.forced", key);
    struct spread natural = group_spread(group, "background.%s.natural", key);
    return forced.n > 0 && forced.max == 0 && natural.n > 0 && natural.max == 0;
}

/* "main-db.checkpoint" for a reader: "main-db checkpoint". */
static void put_key(struct buf *out, const char *key)
{
    size_t who = strcspn(key, ".");
    char *text = xasprintf("%.*s %s", (int)who, key, key[who] ? key + who + 1 : "");
    text_markdown(out, text);
    free(text);
}

static void put_never(const struct comparison *comparison, struct buf *out,
                      const struct strings *keys)
{
    for (size_t g = 0; g < comparison->group_count; g++) {
        const struct group *group = &comparison->groups[g];
        size_t count = 0;
        for (size_t i = 0; i < keys->count; i++) {
            if (!never(group, keys->items[i]))
                continue;
            if (count++ == 0) {
                buf_puts(out, "- ");
                text_markdown(out, group->sink);
                buf_puts(out, " never reached: ");
            } else {
                buf_puts(out, ", ");
            }
            put_key(out, keys->items[i]);
        }
        buf_puts(out, count ? "\n" : "");
    }
    buf_putc(out, '\n');
}

static void put_background(const struct comparison *comparison, struct buf *out)
{
    struct strings keys = {0};
    list_keys(comparison, &keys);
    struct table table;
    table_begin(&table, comparison->group_count + 1);
    table_text(&table, "who, what");
    for (size_t i = 0; i < comparison->group_count; i++)
        columns_name(&table, &comparison->groups[i], NULL);
    for (size_t i = 0; i < keys.count; i++) {
        put_key(table_cell(&table), keys.items[i]);
        for (size_t g = 0; g < comparison->group_count; g++)
            work_cell(table_cell(&table), &comparison->groups[g], keys.items[i]);
    }
    buf_puts(out,
             "## Background work\n\nIn the steady phase. Forced: by the scenario; natural: seen "
             "in the counters that are sampled. What a run never reached costs\nnothing in its "
             "figures, and will in production. \"not counted\": nothing tells.\n\n");
    table_end(&table, out);
    put_never(comparison, out, &keys);
    strings_free(&keys);
}

void tables_fairness(const struct comparison *comparison, struct buf *out)
{
    buf_puts(out, "## Fairness\n\n");
    put_terms(comparison, out);
    put_batches(comparison, out);
    put_recovery(comparison, out);
    put_background(comparison, out);
}

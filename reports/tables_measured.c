/* The tables of compare.md that show what was measured: latencies to statistics of the sink. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "text.h"

static void put_value(struct buf *cell, double value, enum unit unit)
{
    switch (unit) {
    case UNIT_COUNT:
        text_count(cell, value);
        break;
    case UNIT_NUMBER:
        text_number(cell, value);
        break;
    case UNIT_MS:
        text_ms(cell, value);
        break;
    case UNIT_SECONDS:
        text_seconds(cell, value);
        break;
    case UNIT_BYTES:
        text_bytes(cell, value);
        break;
    case UNIT_PERCENT:
        text_number(cell, value);
        if (isfinite(value))
            buf_puts(cell, " %");
        break;
    }
}

void spread_cell(struct buf *cell, struct spread spread, enum unit unit)
{
    struct buf least = {0}, most = {0};
    put_value(cell, spread.median, unit);
    put_value(&least, spread.min, unit);
    put_value(&most, spread.max, unit);
    /* "48.1 to 49.9 ms": a unit that both have is said once. */
    const char *least_unit = strchr(least.data, ' '), *most_unit = strchr(most.data, ' ');
    bool same = least_unit && most_unit && strcmp(least_unit, most_unit) == 0;
    int least_len = same && isfinite(spread.max) ? (int)(least_unit - least.data) : (int)least.len;
    if (spread.n > 1 && strcmp(least.data, most.data) != 0)
        buf_printf(cell, " (%.*s to %s)", least_len, least.data, most.data);
    buf_free(&least);
    buf_free(&most);
}

/* The first cell of a row: the sink, "*" when none of its runs counts, and what the row is about.
 */
void columns_name(struct table *table, const struct group *group, const char *about)
{
    struct buf *cell = table_cell(table);
    text_markdown(cell, group->sink);
    buf_puts(cell, group->counting ? "" : " \\*");
    if (about) {
        buf_puts(cell, ", ");
        text_markdown(cell, about);
    }
}

void columns_header(struct table *table, const char *first, const struct column *columns,
                    size_t count)
{
    table_begin(table, count + 1);
    table_text(table, first);
    for (size_t i = 0; i < count; i++)
        table_text(table, columns[i].title);
}

/* A row of figures "prefix.key"; skipped when it has none of them. */
void columns_row(struct table *table, const struct group *group, const char *about,
                 const char *prefix, const struct column *columns, size_t count)
{
    size_t known = 0;
    for (size_t i = 0; i < count; i++)
        known += group_spread(group, "%s.%s", prefix, columns[i].key).n;
    if (known == 0)
        return;
    columns_name(table, group, about);
    for (size_t i = 0; i < count; i++)
        spread_cell(table_cell(table), group_spread(group, "%s.%s", prefix, columns[i].key),
                    columns[i].unit);
}

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- latencies ---- */

static const struct column latency_columns[] = {
    {"n", "n", UNIT_COUNT},     {"p50", "p50_ms", UNIT_MS},    {"p90", "p90_ms", UNIT_MS},
    {"p99", "p99_ms", UNIT_MS}, {"p99.9", "p999_ms", UNIT_MS}, {"max", "max_ms", UNIT_MS},
};
static const struct column api_columns[] = {
    {"n", "n", UNIT_COUNT},     {"not 202", "not_202", UNIT_COUNT}, {"p50", "p50_ms", UNIT_MS},
    {"p90", "p90_ms", UNIT_MS}, {"p99", "p99_ms", UNIT_MS},         {"p99.9", "p999_ms", UNIT_MS},
    {"max", "max_ms", UNIT_MS},
};

static void latency_table(const struct comparison *comparison, struct buf *out, const char *kind,
                          const struct column *columns, size_t count)
{
    struct table table;
    columns_header(&table, "sink, phase", columns, count);
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct group *group = &comparison->groups[i];
        const struct manifest *manifest = &group->first->run.manifest;
        for (size_t k = 0; group->shown_count && k < manifest->phase_count + 1; k++) {
            const char *phase =
                k < manifest->phase_count ? manifest->phases[k].name : "(in faults)";
            char *prefix = xasprintf("%s.%s", kind, phase);
            columns_row(&table, group, k < manifest->phase_count ? phase : "in faults", prefix,
                        columns, count);
            free(prefix);
        }
    }
    table_end(&table, out);
}

static void put_latencies(const struct comparison *comparison, struct buf *out)
{
    buf_puts(out,
             "## Latency\n\nBy the phase in which a request was due. \"in faults\": due between a "
             "fault and its recovery, whatever the phase.\n\n"
             "### api: from the intended send time to the answer\n\n");
    latency_table(comparison, out, "api", api_columns, COUNT_OF(api_columns));
    buf_puts(out, "### service: from the real send time to the answer, 202s only\n\n");
    latency_table(comparison, out, "service", latency_columns, COUNT_OF(latency_columns));
    buf_puts(out, "### durable: from the complete request to durable in the sink\n\n");
    latency_table(comparison, out, "durable", latency_columns, COUNT_OF(latency_columns));
    buf_puts(out, "### age: from accepted to committed in the main DB\n\n");
    latency_table(comparison, out, "age", latency_columns, COUNT_OF(latency_columns));
}

/* ---- a row a sink ---- */

void columns_table(const struct comparison *comparison, struct buf *out, const char *prefix,
                   const struct column *columns, size_t count)
{
    struct table table;
    columns_header(&table, "sink", columns, count);
    for (size_t i = 0; i < comparison->group_count; i++)
        columns_row(&table, &comparison->groups[i], NULL, prefix, columns, count);
    table_end(&table, out);
}

static void put_flow(const struct comparison *comparison, struct buf *out)
{
    static const struct column commit[] = {
        {"batches", "batches", UNIT_COUNT},   {"rows a batch", "rows_per_batch", UNIT_NUMBER},
        {"db mean", "db.mean_ms", UNIT_MS},   {"p50", "db.p50_ms", UNIT_MS},
        {"p90", "db.p90_ms", UNIT_MS},        {"p99", "db.p99_ms", UNIT_MS},
        {"max", "db.max_ms", UNIT_MS},        {"CV, steady", "steady_db_cv", UNIT_NUMBER},
        {"inserted", "inserted", UNIT_COUNT}, {"redelivered", "redelivered", UNIT_COUNT},
        {"dead", "dead", UNIT_COUNT},
    };
    static const struct column committed[] = {
        {"rows/s", "rows_per_s", UNIT_NUMBER},
        {"CV", "cv", UNIT_NUMBER},
        {"CV by second of commit", "unspread_cv", UNIT_NUMBER},
        {"seconds", "seconds", UNIT_COUNT},
    };
    static const struct column backlog[] = {
        {"growth, tasks/s", "growth_per_s", UNIT_NUMBER},
        {"in theory", "theory_growth_per_s", UNIT_NUMBER},
        {"peak", "peak_tasks", UNIT_COUNT},
        {"in theory", "theory_peak_tasks", UNIT_COUNT},
        {"at", "peak_at_s", UNIT_SECONDS},
        {"peak bytes", "peak_bytes", UNIT_BYTES},
        {"area, task-seconds", "area_task_s", UNIT_COUNT},
        {"in theory", "theory_area_task_s", UNIT_COUNT},
        {"at end of load", "at_load_end_tasks", UNIT_COUNT},
        {"at the end", "end_tasks", UNIT_COUNT},
    };
    static const struct column drain[] = {
        {"time to drain", "s", UNIT_SECONDS},
        {"in theory", "theory_s", UNIT_SECONDS},
        {"rows/s", "rows_per_s", UNIT_NUMBER},
        {"in theory (lanes / row delay)", "theory_rows_per_s", UNIT_NUMBER},
    };
    static const struct column tail[] = {
        {"api", "api", UNIT_NUMBER},
        {"durable", "durable", UNIT_NUMBER},
    };
    buf_puts(out,
             "## Backlog\n\nGrowth: in the steady phase up to its first fault. In theory: what "
             "the scenario's rate, its lanes, batches and row delay, and\nthe faults as long as "
             "they lasted, let expect of any sink.\n\n");
    columns_table(comparison, out, "backlog", backlog, COUNT_OF(backlog));
    buf_puts(out, "## Drain\n\nFrom the end of the load to an empty backlog.\n\n");
    columns_table(comparison, out, "drain", drain, COUNT_OF(drain));
    buf_puts(out, "## Commits in the main DB\n\n");
    columns_table(comparison, out, "commit", commit, COUNT_OF(commit));
    buf_puts(out, "### Committed rows a second\n\nSteady phase outside faults; a batch's rows are "
                  "spread over the batch's own duration first.\n\n");
    columns_table(comparison, out, "committed", committed, COUNT_OF(committed));
    static const struct column back[] = {
        {"rows/s before", "rate_before_rows_per_s", UNIT_NUMBER},
        {"back after", "back_to_rate_s", UNIT_SECONDS},
        {"in theory (the fault lasted)", "fault_s", UNIT_SECONDS},
    };
    buf_puts(out, "### Back to the rate before a fault\n\nFrom the fault until three seconds "
                  "together commit 9/10 of what the ten before it did; of several faults the "
                  "slowest.\n\n");
    columns_table(comparison, out, "recovery", back, COUNT_OF(back));
    buf_puts(out, "### Tail index: p99 / p50, steady\n\n");
    columns_table(comparison, out, "tail", tail, COUNT_OF(tail));
}

/* ---- totals ---- */

static void put_totals(const struct comparison *comparison, struct buf *out)
{
    static const struct column columns[] = {
        {"due", "due", UNIT_COUNT},
        {"sent", "sent", UNIT_COUNT},
        {"durable", "durable", UNIT_COUNT},
        {"refused", "refused", UNIT_COUNT},
        {"unknown", "unknown", UNIT_COUNT},
        {"unsent", "unsent", UNIT_COUNT},
        {"202/s", "durable_per_s", UNIT_NUMBER},
    };
    struct table table;
    columns_header(&table, "sink", columns, COUNT_OF(columns));
    for (size_t i = 0; i < comparison->group_count; i++)
        columns_row(&table, &comparison->groups[i], NULL, "totals", columns, COUNT_OF(columns));
    buf_puts(out, "## Totals\n\n");
    table_end(&table, out);

    table_begin(&table, comparison->group_count + 1);
    table_text(&table, "answers");
    for (size_t i = 0; i < comparison->group_count; i++)
        columns_name(&table, &comparison->groups[i], NULL);
    for (int code = 0; code < 1000; code++) {
        size_t known = 0;
        for (size_t i = 0; i < comparison->group_count; i++)
            known += group_spread(&comparison->groups[i], "totals.code_%d", code).n;
        if (known == 0)
            continue;
        if (code == 0)
            table_text(&table, "none");
        else
            buf_printf(table_cell(&table), "%d", code);
        for (size_t i = 0; i < comparison->group_count; i++) {
            const struct group *group = &comparison->groups[i];
            struct spread spread = group_spread(group, "totals.code_%d", code);
            if (spread.n == 0 && group->shown_count)
                table_text(&table, "0");
            else
                spread_cell(table_cell(&table), spread, UNIT_COUNT);
        }
    }
    table_end(&table, out);
}

/* ---- resources ---- */

/* Is there a part that was watched from a container beside it (or one that was not)? */
static bool some_parts(const struct comparison *comparison, bool from_pod)
{
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct run *run = &comparison->groups[i].first->run;
        for (size_t k = 0; k < run->part_count; k++)
            if (run->parts[k].from_pod == from_pod)
                return true;
    }
    return false;
}

/* What "written" means depends on who tells it. */
static void put_words_on_parts(bool pods, bool native, struct buf *out)
{
    buf_puts(out,
             "## Resources by part\n\nCPU: 100 % is one core, mean while the load lasts. Memory "
             "of a Postgres is its proportional set size. Network: TCP, a lower bound. – : "
             "can't be told.\n\n");
    if (native)
        buf_puts(out,
                 "Dirtied: what the kernel charges a process with, whole folios of the page cache "
                 "even for\nsmall appends: an upper bound, often far off; \"Cost\" has what "
                 "reached the disk.\n\n");
    if (pods)
        buf_puts(out,
                 "In containers: memory is anonymous and shared, page cache (which the kernel "
                 "takes back when it is needed) apart; network is\nall that passed the "
                 "container's interfaces but lo, headers included. Written is what its control "
                 "group did on block devices, delayed\nwrites included, where the host has "
                 "cgroup v2; with v1 it is what the processes dirtied (parts of sluice) or a "
                 "lower bound (servers).\n\n");
}

static void put_parts(const struct comparison *comparison, struct buf *out)
{
    struct column columns[] = {
        {"CPU mean", "cpu_mean_pct", UNIT_PERCENT},
        {"CPU peak", "cpu_peak_pct", UNIT_PERCENT},
        {"CPU-s per 1,000 tasks", "cpu_s_per_1000", UNIT_NUMBER},
        {"memory mean", "rss_mean_bytes", UNIT_BYTES},
        {"memory peak", "rss_peak_bytes", UNIT_BYTES},
        {"disk read", "read_bytes", UNIT_BYTES},
        {"dirtied, at most", "write_bytes", UNIT_BYTES},
        {"received", "rx_bytes", UNIT_BYTES},
        {"sent", "tx_bytes", UNIT_BYTES},
        {"page cache mean", "cache_mean_bytes", UNIT_BYTES}, /* last: only where it is known */
    };
    struct table table;
    bool pods = some_parts(comparison, true), native = some_parts(comparison, false);
    size_t shown = pods ? COUNT_OF(columns) : COUNT_OF(columns) - 1;
    for (size_t i = 0; i < COUNT_OF(columns); i++)
        if (strcmp(columns[i].key, "write_bytes") == 0)
            columns[i].title = !pods     ? "dirtied, at most"
                               : !native ? "written"
                                         : "written or dirtied";
    columns_header(&table, "sink, part", columns, shown);
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct group *group = &comparison->groups[i];
        for (size_t k = 0; group->shown_count && k < group->first->run.part_count; k++) {
            char *prefix = xasprintf("part.%s", group->first->run.parts[k].who);
            columns_row(&table, group, group->first->run.parts[k].who, prefix, columns, shown);
            free(prefix);
        }
    }
    put_words_on_parts(pods, native, out);
    table_end(&table, out);
}

static void put_stats(const struct comparison *comparison, struct buf *out)
{
    static const struct column columns[] = {
        {"least", "min", UNIT_NUMBER}, {"most", "max", UNIT_NUMBER}, {"last", "last", UNIT_NUMBER}};
    struct table table;
    columns_header(&table, "sink, figure", columns, COUNT_OF(columns));
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct group *group = &comparison->groups[i];
        for (size_t k = 0; group->shown_count && k < group->first->run.stat_count; k++) {
            const char *name = group->first->run.stats[k].name;
            char *prefix = xasprintf("stat.%s", name);
            size_t len = strlen(name);
            struct column fitting[3];
            memcpy(fitting, columns, sizeof(fitting));
            bool bytes = len > 6 && strcmp(name + len - 6, "_bytes") == 0;
            for (int c = 0; c < 3; c++)
                fitting[c].unit = bytes ? UNIT_BYTES : UNIT_NUMBER;
            columns_row(&table, group, name, prefix, fitting, 3);
            free(prefix);
        }
    }
    buf_puts(out, "## What the sinks say of themselves\n\n");
    table_end(&table, out);
}

void tables_measured(const struct comparison *comparison, struct buf *out)
{
    for (size_t i = 0; i < comparison->group_count; i++) {
        if (comparison->groups[i].counting == 0) {
            buf_puts(out,
                     "\\* No run of this sink counts; the figures below are of those that were "
                     "left out.\n\n");
            break;
        }
    }
    put_latencies(comparison, out);
    put_flow(comparison, out);
    tables_fairness(comparison, out);
    put_totals(comparison, out);
    tables_cost(comparison, out);
    put_parts(comparison, out);
    put_stats(comparison, out);
}

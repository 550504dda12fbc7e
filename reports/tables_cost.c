/* The tables of compare.md that say what tasks cost, and what measuring did. */
#include <math.h>
#include <string.h>

#include "compare.h"
#include "text.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static void put_columns(const struct comparison *comparison, struct buf *out,
                        const struct column *columns, size_t count)
{
    struct table table;
    columns_header(&table, "sink", columns, count);
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct group *group = &comparison->groups[i];
        columns_name(&table, group, NULL);
        for (size_t k = 0; k < count; k++)
            spread_cell(table_cell(&table), group_spread(group, "%s", columns[k].key),
                        columns[k].unit);
    }
    table_end(&table, out);
}

/* The control with no sink behind the api: what a report shows of the harness alone. */
static void put_floor(const struct comparison *comparison, struct buf *out)
{
    const struct group *floor = NULL;
    for (size_t i = 0; i < comparison->group_count; i++)
        if (strcmp(comparison->groups[i].sink, "memory") == 0 && comparison->groups[i].shown_count)
            floor = &comparison->groups[i];
    if (!floor) {
        buf_puts(out, "The floor (api and generator with nothing behind them) was not measured: "
                      "`--sink memory` adds it.\n\n");
        return;
    }
    buf_puts(out, "The floor (`memory`: api and generator with nothing behind them): api p50 ");
    spread_cell(out, group_spread(floor, "sla.p50_ms"), UNIT_MS);
    buf_puts(out, ", p99 ");
    spread_cell(out, group_spread(floor, "sla.p99_ms"), UNIT_MS);
    buf_puts(out, " in the steady phase; what a sink shows beyond that is its own.\n\n");
}

static void put_meter(const struct comparison *comparison, struct buf *out)
{
    static const struct column columns[] = {
        {"sampler CPU", "part.sampler.cpu_mean_pct", UNIT_PERCENT},
        {"generator CPU", "part.loadgen.cpu_mean_pct", UNIT_PERCENT},
        {"both, CPU-s per 1,000 tasks", "meter.cpu_s_per_1000", UNIT_NUMBER},
        {"events written", "meter.events", UNIT_COUNT},
    };
    buf_puts(out, "### What measuring cost\n\nThe events of api and worker are written by "
                  "themselves: that is in their CPU, for all sinks alike.\n\n");
    put_columns(comparison, out, columns, COUNT_OF(columns));
    put_floor(comparison, out);
}

void tables_cost(const struct comparison *comparison, struct buf *out)
{
    static const struct column disk[] = {
        {"CPU-s: api, worker, sink", "cost.cpu_s_per_1000", UNIT_NUMBER},
        {"written to disk", "disk.write_bytes_per_1000", UNIT_BYTES},
        {"bytes written / payload", "disk.write_amplification", UNIT_NUMBER},
        {"disk flushes", "disk.flushes_per_1000", UNIT_NUMBER},
    };
    static const struct column own[] = {
        {"sink: log bytes", "own.sink_log_bytes_per_1000", UNIT_BYTES},
        {"sink: flushes", "own.sink_flushes_per_1000", UNIT_NUMBER},
        {"main DB: log bytes", "own.main_log_bytes_per_1000", UNIT_BYTES},
        {"main DB: flushes", "own.main_flushes_per_1000", UNIT_NUMBER},
    };
    buf_puts(out,
             "## Cost\n\nPer 1,000 acknowledged tasks, from the load's begin to the run's end. "
             "Disk: the whole device under the state folder, so the main\nDB's, the event files' "
             "and everybody else's writes are in it, and what still waits in the page cache is "
             "not.\n\n");
    put_columns(comparison, out, disk, COUNT_OF(disk));
    buf_puts(out, "By the servers' own counters, where they have such:\n\n");
    put_columns(comparison, out, own, COUNT_OF(own));
    put_meter(comparison, out);
}

void tables_flushes(const struct comparison *comparison, struct buf *out)
{
    static const char *const keys[] = {"before_p50_ms", "before_p99_ms", "after_p50_ms",
                                       "after_p99_ms"};
    static const char *const titles[] = {"run", "flush before: p50", "p99", "after: p50", "p99"};
    struct table table;
    size_t known = 0;
    for (size_t i = 0; i < comparison->count; i++)
        known += isnan(figures_get(&comparison->entries[i].figures, "flush.before_p50_ms")) ? 0 : 1;
    if (known == 0)
        return;
    buf_puts(out, "What one flush (fdatasync of 4 KiB into a file that is there already) took on "
                  "the run's disk, right before and right after:\n\n");
    table_begin(&table, COUNT_OF(titles));
    for (size_t i = 0; i < COUNT_OF(titles); i++)
        table_text(&table, titles[i]);
    for (size_t i = 0; i < comparison->count; i++) {
        const struct entry *entry = &comparison->entries[i];
        text_markdown(table_cell(&table), entry->run.name);
        for (size_t k = 0; k < COUNT_OF(keys); k++)
            text_ms(table_cell(&table), figures_get(&entry->figures, "flush.%s", keys[k]));
    }
    table_end(&table, out);
}

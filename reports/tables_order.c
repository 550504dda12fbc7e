/* Who is ahead in what: contenders in order of their medians, and ties where ranges overlap. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "text.h"

struct place {
    const struct group *group;
    struct spread spread;
};

static int compare_places(const void *left, const void *right)
{
    const struct place *a = left, *b = right;
    return (a->spread.median > b->spread.median) - (a->spread.median < b->spread.median);
}

char *figure_key(const struct manifest *reference, const char *key)
{
    const char *hole = strstr(key, "%s");
    if (!hole)
        return xstrdup(key);
    const char *steady = reference ? reference->phases[figures_steady(reference)].name : "steady";
    return xasprintf("%.*s%s%s", (int)(hole - key), key, steady, hole + 2);
}

/* Of contenders with runs that count; *fewest: runs of the one with the fewest. */
static size_t take_places(const struct comparison *comparison, const char *key,
                          struct place *places, size_t *fewest)
{
    size_t count = 0;
    *fewest = SIZE_MAX;
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct group *group = &comparison->groups[i];
        struct spread spread = group_spread(group, "%s", key);
        if (group->control || group->counting == 0 || spread.n == 0 || !isfinite(spread.median))
            continue;
        places[count++] = (struct place){group, spread};
        *fewest = spread.n < *fewest ? spread.n : *fewest;
    }
    qsort(places, count, sizeof(*places), compare_places);
    return count;
}

/* "a 1 ms = b 1.1 ms < c 3 ms": each is held against the best of those that tie with one another.
 */
static void put_order(struct buf *cell, struct place *places, size_t count, enum unit unit,
                      bool highest_first)
{
    if (highest_first) {
        for (size_t i = 0; i < count / 2; i++) {
            struct place kept = places[i];
            places[i] = places[count - 1 - i];
            places[count - 1 - i] = kept;
        }
    }
    size_t leader = 0;
    for (size_t i = 0; i < count; i++) {
        const struct spread *best = &places[leader].spread, *own = &places[i].spread;
        bool tie = own->min <= best->max && best->min <= own->max;
        if (i > 0)
            buf_puts(cell, tie ? " = " : highest_first ? " &gt; " : " &lt; ");
        if (!tie)
            leader = i;
        text_markdown(cell, places[i].group->sink);
        buf_putc(cell, ' ');
        spread_cell(cell, (struct spread){own->median, own->median, own->median, 1}, unit);
    }
}

void tables_order(const struct comparison *comparison, struct buf *out)
{
    static const struct {
        const char *title, *key;
        enum unit unit;
        bool highest_first;
    } rows[] = {
        {"api p99, steady, outside faults", "sla.p99_ms", UNIT_MS, false},
        {"api p50, steady, outside faults", "sla.p50_ms", UNIT_MS, false},
        {"durable p99, steady", "durable.%s.p99_ms", UNIT_MS, false},
        {"age p50, steady", "age.%s.p50_ms", UNIT_MS, false},
        {"peak backlog", "backlog.peak_tasks", UNIT_COUNT, false},
        {"back to the rate before a fault", "recovery.back_to_rate_s", UNIT_SECONDS, false},
        {"drain rate", "drain.rows_per_s", UNIT_NUMBER, true},
        {"CV of committed rows/s", "committed.cv", UNIT_NUMBER, false},
        {"CPU-s per 1,000 tasks", "cost.cpu_s_per_1000", UNIT_NUMBER, false},
        {"written per 1,000 tasks", "disk.write_bytes_per_1000", UNIT_BYTES, false},
        {"disk flushes per 1,000 tasks", "disk.flushes_per_1000", UNIT_NUMBER, false},
    };
    struct place *places = xcalloc(comparison->group_count + 1, sizeof(*places));
    struct table table;
    size_t shown = 0, fewest = 0;
    table_begin(&table, 2);
    table.all_left = true;
    table_text(&table, "figure (medians)");
    table_text(&table, "best first; = is a tie");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *key = figure_key(comparison->reference, rows[i].key);
        size_t n, count = take_places(comparison, key, places, &n);
        free(key);
        if (count < 2)
            continue;
        fewest = shown++ == 0 || n < fewest ? n : fewest;
        table_text(&table, rows[i].title);
        struct buf *cell = table_cell(&table);
        put_order(cell, places, count, rows[i].unit, rows[i].highest_first);
        buf_puts(cell, n < 2 ? " (indicative)" : "");
    }
    free(places);
    struct buf text = {0};
    table_end(&table, &text);
    if (shown) {
        buf_puts(out, "## Who is ahead\n\nContenders with runs that count. Those whose ranges "
                      "overlap tie");
        buf_puts(out, fewest < 2 ? "; of one run no range is known, so an order with one is "
                                   "indicative and shows no tie.\n\n"
                                 : ".\n\n");
        buf_puts(out, text.data);
    }
    buf_free(&text);
}

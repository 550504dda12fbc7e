/* The table of compare.md that says when each part was down, run by run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "text.h"

/* What the sink held at most from begin on, up to the first sample after end; NAN: no sample. */
static double most_backlog(const struct series *series, double begin_s, double end_s)
{
    double most = NAN;
    for (size_t i = 0; i < series->samples; i++) {
        if (series->backlog_s[i] < begin_s)
            continue;
        most = fmax(most, series->backlog[i]); /* fmax takes the number of a number and a NAN */
        if (series->backlog_s[i] > end_s)
            break;
    }
    return most;
}

static void put_fault(struct table *table, const struct entry *entry, size_t number)
{
    const struct window *window = &entry->run.windows[number];
    const struct manifest *manifest = &entry->run.manifest;
    bool ended = window->end_us != INT64_MAX;
    double begin_s = (double)(window->begin_us - manifest->start_us) / 1e6;
    double end_s = ended ? (double)(window->end_us - manifest->start_us) / 1e6 : INFINITY;
    struct buf *name = table_cell(table);
    text_markdown(name, window->who);
    buf_putc(name, ' ');
    text_markdown(name, window->what);
    text_markdown(table_cell(table), entry->run.name);
    bool placed = run_times_ok(&entry->run);
    text_seconds(table_cell(table), placed ? begin_s : NAN);
    if (ended)
        text_seconds(table_cell(table), (double)(window->end_us - window->begin_us) / 1e6);
    else
        table_text(table, "not told");
    text_count(table_cell(table),
               entry->has_figures ? most_backlog(&entry->series, begin_s, end_s) : NAN);
}

void tables_faults(const struct comparison *comparison, struct buf *out)
{
    static const char *const titles[] = {"fault", "run", "at", "down for",
                                         "peak backlog until then"};
    size_t faults = 0;
    for (size_t i = 0; i < comparison->group_count; i++)
        for (size_t k = 0; k < comparison->groups[i].count; k++)
            faults += comparison->groups[i].entries[k]->run.window_count;
    if (faults == 0)
        return;
    struct table table;
    table_begin(&table, sizeof(titles) / sizeof(titles[0]));
    for (size_t i = 0; i < sizeof(titles) / sizeof(titles[0]); i++)
        table_text(&table, titles[i]);
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct group *group = &comparison->groups[i];
        for (size_t k = 0; k < group->count; k++)
            for (size_t n = 0; n < group->entries[k]->run.window_count; n++)
                put_fault(&table, group->entries[k], n);
    }
    buf_puts(out,
             "## Faults\n\nFrom the load's begin on; down until the part was ready again, as "
             "who made the fault or watched the part tells. An\n\"unseen end\" nobody told of: "
             "a process began anew, and the one before it had not ended in a fault; it lasted "
             "from its last\nword on, at most.\n\n");
    table_end(&table, out);
}

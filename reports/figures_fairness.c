/* On which terms the sinks met: batches that occurred, recovery after a worker's fault, row sleeps.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "figures.h"

/* ---- batches ---- */

/* sizes: one sample a batch. */
static void batches(struct figures *figures, const char *side, struct samples *sizes)
{
    size_t singles = 0;
    for (size_t i = 0; i < sizes->count; i++)
        singles += sizes->values[i] == 1;
    figures_set(figures, (double)sizes->count, "batch.%s.batches", side);
    if (sizes->count == 0)
        return;
    figures_set(figures, samples_mean(sizes), "batch.%s.mean", side);
    figures_set(figures, samples_percentile(sizes, 500), "batch.%s.p50", side);
    figures_set(figures, samples_percentile(sizes, 900), "batch.%s.p90", side);
    figures_set(figures, samples_percentile(sizes, 1000), "batch.%s.max", side);
    figures_set(figures, 100 * (double)singles / (double)sizes->count, "batch.%s.singles_pct",
                side);
}

static int compare_sizes(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* A batch of n tasks leaves n events. k events of that size stem from at least k / n batches,
 * rounded up: with all events there, from just so many. */
static void ingest_batches(struct figures *figures, const struct run *run)
{
    const struct ledger *ledger = &run->ledger;
    uint32_t *told = xcalloc(ledger->count + 1, sizeof(*told));
    size_t count = 0;
    for (size_t i = 0; i < ledger->count; i++)
        if (ledger->rows[i].source == 0 && ledger->rows[i].batch > 0) /* not the runner's probe */
            told[count++] = ledger->rows[i].batch;
    if (count)
        qsort(told, count, sizeof(*told), compare_sizes);
    struct samples sizes = {0};
    for (size_t i = 0; i < count;) {
        uint32_t size = told[i];
        size_t begin = i;
        while (i < count && told[i] == size)
            i++;
        for (size_t left = i - begin; left > 0; left -= left < size ? left : size)
            samples_add(&sizes, size);
    }
    if (count)
        batches(figures, "ingest", &sizes);
    samples_free(&sizes);
    free(told);
}

static void drain_batches(struct figures *figures, const struct run *run)
{
    struct samples sizes = {0};
    for (size_t i = 0; i < run->batch_count; i++)
        if (run->batches[i].ts_us >= run->manifest.start_us)
            samples_add(&sizes, run->batches[i].rows);
    if (sizes.count)
        batches(figures, "drain", &sizes);
    samples_free(&sizes);
}

/* ---- recovery ---- */

/* The worker that was started after this fault and before the worker's next one; 0: none. */
static int64_t start_after(const struct run *run, size_t fault)
{
    int64_t next_us = INT64_MAX;
    for (size_t i = 0; i < run->window_count; i++) {
        const struct window *window = &run->windows[i];
        if (window->begin_us > run->windows[fault].begin_us && window->begin_us < next_us &&
            strcmp(window->who, "worker") == 0)
            next_us = window->begin_us;
    }
    for (size_t i = 0; i < run->worker_start_count; i++) {
        int64_t start_us = run->worker_starts_us[i];
        if (start_us > run->windows[fault].begin_us && start_us < next_us)
            return start_us;
    }
    return 0;
}

/* Of several faults the one after which the first commit took longest from the restart on. */
static void recovery(struct figures *figures, const struct run *run)
{
    double faults = 0, worst_s = -1;
    for (size_t i = 0; i < run->window_count; i++) {
        if (strcmp(run->windows[i].who, "worker") != 0)
            continue;
        int64_t start_us = start_after(run, i);
        size_t first = 0;
        while (first < run->batch_count && run->batches[first].ts_us < start_us)
            first++;
        if (start_us == 0 || first == run->batch_count)
            continue;
        faults++;
        const struct batch *batch = &run->batches[first];
        double to_commit_s = (double)(batch->ts_us - start_us) / 1e6;
        if (to_commit_s <= worst_s)
            continue;
        worst_s = to_commit_s;
        figures_set(figures, to_commit_s, "recovery.restart_to_commit_s");
        figures_set(figures, (double)batch->db_us / 1e6, "recovery.in_main_db_s");
        figures_set(figures, (double)(batch->ts_us - run->windows[i].begin_us) / 1e6,
                    "recovery.fault_to_commit_s");
    }
    if (faults > 0)
        figures_set(figures, faults, "recovery.restarts");
}

/* ---- row sleeps ---- */

/* A row in task took one, and so did a dead letter that the table refused. All others were for
 * nothing: rolled back, or lost to a lane that had the same task. */
static void row_sleeps(struct figures *figures, const struct run *run)
{
    const struct main_rows *begin = &run->main_begin, *end = &run->main_end;
    double sleeps = end->row_sleeps - begin->row_sleeps;
    double rows = end->rows - begin->rows, refused = end->refused - begin->refused;
    if (!(sleeps >= 0 && rows >= 0 && refused >= 0))
        return; /* not told, or somebody else emptied the tables */
    double wasted = fmax(sleeps - rows - refused, 0);
    figures_set(figures, sleeps, "row_sleeps.total");
    figures_set(figures, rows, "row_sleeps.rows");
    figures_set(figures, refused, "row_sleeps.refused");
    figures_set(figures, wasted, "row_sleeps.wasted");
    if (sleeps > 0)
        figures_set(figures, 100 * wasted / sleeps, "row_sleeps.wasted_pct");
}

void figures_fairness(struct figures *figures, const struct run *run)
{
    ingest_batches(figures, run);
    drain_batches(figures, run);
    recovery(figures, run);
    row_sleeps(figures, run);
}

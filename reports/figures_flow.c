/* From the sink to the main DB: backlog, commits, drain. */
#include <math.h>
#include <stdlib.h>

#include "base/buf.h"
#include "figures.h"

static double since_start_s(const struct run *run, int64_t ts_us)
{
    return (double)(ts_us - run->manifest.start_us) / 1e6;
}

/* ---- backlog ---- */

static void backlog(struct figures *figures, struct series *series, const struct run *run)
{
    const struct manifest *manifest = &run->manifest;
    series->backlog_s = xcalloc(run->backlog_count + 1, sizeof(double));
    series->backlog = xcalloc(run->backlog_count + 1, sizeof(double));
    double peak = -1, peak_at = 0, bytes_peak = NAN, area = 0, at_load_end = NAN;
    size_t missing = 0, inexact = 0;
    for (size_t i = 0; i < run->backlog_count; i++) {
        const struct backlog_sample *sample = &run->backlog[i];
        if (sample->ts_us < manifest->start_us || sample->ts_us > manifest->end_us)
            continue;
        if (isnan(sample->tasks)) {
            missing++;
            continue;
        }
        double at = since_start_s(run, sample->ts_us);
        size_t n = series->samples++;
        series->backlog_s[n] = at;
        series->backlog[n] = sample->tasks;
        inexact += !sample->exact;
        bytes_peak = fmax(bytes_peak, sample->bytes);
        if (n > 0) /* trapezoids, over a sample that is missing too */
            area += (at - series->backlog_s[n - 1]) * (sample->tasks + series->backlog[n - 1]) / 2;
        if (sample->tasks > peak) {
            peak = sample->tasks;
            peak_at = at;
        }
        if (sample->ts_us <= manifest->load_end_us)
            at_load_end = sample->tasks;
    }
    figures_set(figures, (double)series->samples, "backlog.samples");
    figures_set(figures, (double)missing, "backlog.missing");
    figures_set(figures, (double)inexact, "backlog.inexact");
    if (series->samples == 0)
        return;
    figures_set(figures, peak, "backlog.peak_tasks");
    figures_set(figures, peak_at, "backlog.peak_at_s");
    figures_set(figures, bytes_peak, "backlog.peak_bytes");
    figures_set(figures, area, "backlog.area_task_s");
    figures_set(figures, at_load_end, "backlog.at_load_end_tasks");
    figures_set(figures, run_backlog_end(run), "backlog.end_tasks");
}

/* ---- commits ---- */

/* Those of the load; what the runner's probe made before it is none. */
static void commits(struct figures *figures, const struct run *run)
{
    struct samples db = {0};
    double inserted = 0, redelivered = 0, dead = 0, rows = 0;
    for (size_t i = 0; i < run->batch_count; i++) {
        const struct batch *batch = &run->batches[i];
        if (batch->ts_us < run->manifest.start_us)
            continue;
        samples_add(&db, (double)batch->db_us / 1e3);
        rows += batch->rows;
        inserted += batch->inserted;
        redelivered += batch->redelivered;
        dead += batch->dead;
    }
    figures_set(figures, (double)db.count, "commit.batches");
    if (db.count) {
        figures_set(figures, rows / (double)db.count, "commit.rows_per_batch");
        figures_percentiles(figures, "commit.db", &db);
    }
    figures_set(figures, inserted, "commit.inserted");
    figures_set(figures, redelivered, "commit.redelivered");
    figures_set(figures, dead, "commit.dead");
    samples_free(&db);
}

/* Rows whose commit was at work between two times, a batch that straddles one in proportion. */
static double rows_between(const struct run *run, int64_t from_us, int64_t to_us)
{
    double rows = 0;
    for (size_t i = 0; i < run->batch_count; i++) {
        const struct batch *batch = &run->batches[i];
        rows +=
            batch->inserted * stats_overlap((double)(batch->ts_us - batch->db_us),
                                            (double)batch->ts_us, (double)from_us, (double)to_us);
    }
    return rows;
}

static int64_t longest_batch_us(const struct run *run)
{
    int64_t longest_us = 0;
    for (size_t i = 0; i < run->batch_count; i++)
        if (run->batches[i].db_us > longest_us)
            longest_us = run->batches[i].db_us;
    return longest_us;
}

/* Does the second that begins at begin_us count for the steady rate? A kill also cuts off the
 * batches at work, whose rows some later batch commits: so a fault reaches back by the longest
 * batch. */
static bool second_is_steady(const struct run *run, int64_t begin_us, int64_t longest_us)
{
    for (size_t i = 0; i < run->window_count; i++) {
        const struct window *window = &run->windows[i];
        if (begin_us + 1000000 > window->begin_us - longest_us && begin_us < window->end_us)
            return false;
    }
    return true;
}

/* Rows by second, and their CV over the whole seconds of the steady phase outside faults. */
static void rate(struct figures *figures, struct series *series, const struct run *run)
{
    const struct manifest *manifest = &run->manifest;
    series->run_seconds = (size_t)ceil(since_start_s(run, manifest->end_us));
    series->rows = xcalloc(series->run_seconds + 1, sizeof(double));
    double *unspread = xcalloc(series->run_seconds + 1, sizeof(double));
    int64_t longest_us = longest_batch_us(run);
    for (size_t i = 0; i < run->batch_count; i++) {
        const struct batch *batch = &run->batches[i];
        double end_s = since_start_s(run, batch->ts_us);
        stats_spread_rows(series->rows, series->run_seconds, end_s - (double)batch->db_us / 1e6,
                          end_s, batch->inserted);
        stats_spread_rows(unspread, series->run_seconds, end_s, end_s, batch->inserted);
    }
    int64_t begin_us, end_us;
    figures_phase_span(manifest, figures_steady(manifest), &begin_us, &end_us);
    double *steady = xcalloc(series->run_seconds + 1, sizeof(double));
    size_t count = 0, first = (size_t)ceil(since_start_s(run, begin_us));
    for (size_t second = first; second < series->run_seconds; second++) {
        int64_t at_us = manifest->start_us + (int64_t)second * 1000000;
        if (at_us + 1000000 > end_us)
            break;
        if (!second_is_steady(run, at_us, longest_us))
            continue;
        unspread[count] = unspread[second]; /* count <= second: nothing unread is overwritten */
        steady[count++] = series->rows[second];
    }
    if (count && run->batch_count) {
        double sum = 0;
        for (size_t i = 0; i < count; i++)
            sum += steady[i];
        figures_set(figures, (double)count, "committed.seconds");
        figures_set(figures, sum / (double)count, "committed.rows_per_s");
        figures_set(figures, stats_cv(steady, count), "committed.cv");
        figures_set(figures, stats_cv(unspread, count), "committed.unspread_cv");
    }
    free(steady);
    free(unspread);
}

/* ---- back to the rate before a fault ---- */

enum { BEFORE_SECONDS = 10, BEFORE_SECONDS_LEAST = 3, BACK_SECONDS = 3 };
static const double BACK_SHARE = 0.9;

static double mean_of(const double *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return sum / (double)count;
}

/* The begin of the phase a time lies in; of none, the load's. */
static int64_t phase_begin_us(const struct manifest *manifest, int64_t at_us)
{
    int64_t found_us = manifest->start_us;
    for (size_t i = 0; i < manifest->phase_count; i++) {
        int64_t begin_us, end_us;
        figures_phase_span(manifest, i, &begin_us, &end_us);
        if (begin_us <= at_us && begin_us > found_us)
            found_us = begin_us;
    }
    return found_us;
}

/* The mean of up to ten whole seconds of the fault's phase before it. What a phase commits is its
 * own from the longest batch after its begin, and whole up to that much before the fault, which
 * may have cut batches off. NAN when the phase, or the fault before, is too near. */
static double rate_before(const struct series *series, const struct run *run, size_t window,
                          int64_t longest_us)
{
    int64_t from_us = phase_begin_us(&run->manifest, run->windows[window].begin_us) + longest_us;
    for (size_t i = 0; i < window; i++)
        if (run->windows[i].end_us > from_us)
            from_us = run->windows[i].end_us;
    if (from_us == INT64_MAX)
        return NAN;
    double end = floor(since_start_s(run, run->windows[window].begin_us - longest_us));
    double begin = fmax(ceil(since_start_s(run, from_us)), end - (double)BEFORE_SECONDS);
    if (end - begin < (double)BEFORE_SECONDS_LEAST)
        return NAN;
    return mean_of(series->rows + (size_t)begin, (size_t)(end - begin));
}

/* The first second from the fault on that has 9/10 of the rate before, and with the two after it,
 * too: after a fault a second of catching up may be worth two. */
static double seconds_back(const struct series *series, double fault_s, double before)
{
    size_t first = (size_t)fault_s;
    for (size_t i = first; i + BACK_SECONDS <= series->run_seconds; i++)
        if (series->rows[i] >= BACK_SHARE * before &&
            mean_of(series->rows + i, BACK_SECONDS) >= BACK_SHARE * before)
            return i == first ? 0 : (double)i - fault_s;
    return INFINITY;
}

/* Of the faults with a rate before them, the one that took longest. */
static void back_to_rate(struct figures *figures, const struct series *series,
                         const struct run *run)
{
    int64_t longest_us = longest_batch_us(run);
    double worst = -1, worst_before = NAN, worst_lasted = NAN;
    for (size_t i = 0; i < run->window_count; i++) {
        const struct window *window = &run->windows[i];
        double fault_s = since_start_s(run, window->begin_us);
        double before = fault_s >= 0 ? rate_before(series, run, i, longest_us) : NAN;
        double seconds = before > 0 ? seconds_back(series, fault_s, before) : NAN;
        if (!(seconds > worst))
            continue;
        worst = seconds;
        worst_before = before;
        worst_lasted = (double)(window->end_us - window->begin_us) / 1e6;
        if (window->end_us == INT64_MAX)
            worst_lasted = NAN;
    }
    if (worst < 0)
        return;
    figures_set(figures, worst_before, "recovery.rate_before_rows_per_s");
    figures_set(figures, worst_lasted, "recovery.fault_s");
    figures_set(figures, isfinite(worst) ? 1 : 0, "recovery.back_to_rate");
    if (isfinite(worst))
        figures_set(figures, worst, "recovery.back_to_rate_s");
}

/* ---- batches of the steady phase ---- */

/* Those that began and ended in it, outside faults. */
static void steady_batches(struct figures *figures, const struct run *run)
{
    int64_t begin_us, end_us;
    figures_phase_span(&run->manifest, figures_steady(&run->manifest), &begin_us, &end_us);
    double *db = xcalloc(run->batch_count + 1, sizeof(*db));
    double *rows = xcalloc(run->batch_count + 1, sizeof(*rows));
    size_t count = 0;
    for (size_t i = 0; i < run->batch_count; i++) {
        const struct batch *batch = &run->batches[i];
        int64_t from_us = batch->ts_us - batch->db_us;
        bool steady = from_us >= begin_us && batch->ts_us <= end_us;
        for (size_t k = 0; steady && k < run->window_count; k++)
            steady = batch->ts_us <= run->windows[k].begin_us || from_us >= run->windows[k].end_us;
        if (!steady)
            continue;
        db[count] = (double)batch->db_us;
        rows[count++] = batch->rows;
    }
    if (count) {
        figures_set(figures, stats_cv(db, count), "commit.steady_db_cv");
        figures_set(figures, stats_cv(rows, count), "commit.steady_rows_cv");
    }
    free(db);
    free(rows);
}

/* ---- drain ---- */

/* Seconds from the end of the load to an empty backlog; NAN: never seen empty. */
static double drain_seconds(const struct run *run)
{
    int64_t load_end_us = run->manifest.load_end_us;
    if (run->drained_seen) {
        if (run->drained_backlog != 0 || isnan(run->drained_seconds))
            return NAN;
        /* The runner looks at intervals; the last commit is when it really was empty. But only
         * where both tell the same story: lost lines must not make a drain shorter. */
        int64_t last_us = run->batch_count ? run->batches[run->batch_count - 1].ts_us : 0;
        double last_s = (double)(last_us - load_end_us) / 1e6;
        bool same =
            last_s >= 0 && last_s <= run->drained_seconds && run->drained_seconds - last_s <= 2;
        return same ? last_s : run->drained_seconds;
    }
    for (size_t i = 0; i < run->backlog_count; i++)
        if (run->backlog[i].ts_us >= load_end_us && run->backlog[i].tasks == 0 &&
            run->backlog[i].exact)
            return (double)(run->backlog[i].ts_us - load_end_us) / 1e6;
    return NAN;
}

static void drain(struct figures *figures, const struct run *run)
{
    const struct manifest *manifest = &run->manifest;
    if (!manifest->drains)
        return;
    double theory =
        manifest->row_delay_ms > 0 ? manifest->lanes * 1e3 / manifest->row_delay_ms : NAN;
    figures_set(figures, theory, "drain.theory_rows_per_s");
    figures_set(figures, figures_get(figures, "backlog.at_load_end_tasks") / theory,
                "drain.theory_s");
    double seconds = drain_seconds(run);
    figures_set(figures, seconds, "drain.s");
    /* In a shorter one the last batches' latency is most of it: it tells nothing of a rate. */
    int64_t longest_us = longest_batch_us(run);
    if (seconds >= 1 && seconds * 1e6 >= 3 * (double)longest_us) {
        int64_t end_us = manifest->load_end_us + llround(seconds * 1e6);
        figures_set(figures, rows_between(run, manifest->load_end_us, end_us) / seconds,
                    "drain.rows_per_s");
    }
}

void figures_flow(struct figures *figures, struct series *series, const struct run *run)
{
    backlog(figures, series, run);
    commits(figures, run);
    rate(figures, series, run);
    if (run->batch_count) {
        back_to_rate(figures, series, run);
        steady_batches(figures, run);
    }
    drain(figures, run);
}

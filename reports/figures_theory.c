/* What the scenario alone lets one expect of the backlog, to stand beside what was measured.
 *
 * The model is a tank: tasks flow in at the scenario's rate and out at lanes / row delay, in no
 * batches and without any delay. A fault stops what it befalls: the worker and the main DB the
 * outflow, the sink both, the api the inflow.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "figures.h"

static double phase_rate(const struct manifest *manifest, int64_t at_us)
{
    for (size_t i = 0; i < manifest->phase_count; i++) {
        int64_t begin_us, end_us;
        figures_phase_span(manifest, i, &begin_us, &end_us);
        if (at_us >= begin_us && at_us < end_us)
            return manifest->rps * manifest->phases[i].rate;
    }
    return 0;
}

/* Tasks a second that the tank gains right after at_us; below 0: loses, as long as it holds any. */
static double net_flow(const struct run *run, double capacity, int64_t at_us)
{
    double in = phase_rate(&run->manifest, at_us), out = capacity;
    for (size_t i = 0; i < run->window_count; i++) {
        const struct window *window = &run->windows[i];
        if (at_us < window->begin_us || at_us >= window->end_us)
            continue;
        bool sink = strcmp(window->who, "sink") == 0;
        if (sink || strcmp(window->who, "api") == 0)
            in = 0;
        if (sink || strcmp(window->who, "worker") == 0 || strcmp(window->who, "main-db") == 0)
            out = 0;
    }
    return in - out;
}

static int compare_times(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* Every moment at which the flow may change, sorted, from the load's begin on; free it. */
static int64_t *turning_points(const struct run *run, size_t *count)
{
    const struct manifest *manifest = &run->manifest;
    int64_t *times = xcalloc(2 + manifest->phase_count + 2 * run->window_count, sizeof(*times));
    size_t n = 0;
    times[n++] = manifest->start_us;
    for (size_t i = 0; i < manifest->phase_count; i++) {
        int64_t begin_us, end_us;
        figures_phase_span(manifest, i, &begin_us, &end_us);
        times[n++] = end_us;
    }
    for (size_t i = 0; i < run->window_count; i++) {
        const struct window *window = &run->windows[i];
        if (window->begin_us > manifest->start_us)
            times[n++] = window->begin_us;
        if (window->end_us != INT64_MAX && window->end_us > manifest->start_us)
            times[n++] = window->end_us;
    }
    qsort(times, n, sizeof(*times), compare_times);
    *count = n;
    return times;
}

/* Level and area under it over a span with one flow; the tank never holds less than nothing. */
static double flow_for(double level, double flow, double seconds, double *area)
{
    double end = level + flow * seconds;
    if (end >= 0) {
        *area += (level + end) / 2 * seconds;
        return end;
    }
    *area += level * (level / -flow) / 2; /* empty after level / -flow seconds */
    return 0;
}

static void tank(struct figures *figures, const struct run *run, double capacity)
{
    size_t count;
    int64_t *times = turning_points(run, &count);
    double level = 0, peak = 0, area = 0;
    for (size_t i = 0; i + 1 < count; i++) {
        double seconds = (double)(times[i + 1] - times[i]) / 1e6;
        level = flow_for(level, net_flow(run, capacity, times[i]), seconds, &area);
        peak = fmax(peak, level);
    }
    double flow = net_flow(run, capacity, times[count - 1]); /* until it is empty */
    free(times);
    if (level > 0 && flow >= 0)
        return; /* a fault that never ended: it stays full */
    if (level > 0)
        area += level * (level / -flow) / 2;
    figures_set(figures, peak, "backlog.theory_peak_tasks");
    figures_set(figures, area, "backlog.theory_area_task_s");
}

/* Least squares over the steady phase up to its first fault: after one, the backlog grows by what
 * was left lying, or shrinks while that is made up for. */
static double growth(const struct run *run)
{
    int64_t begin_us, end_us;
    figures_phase_span(&run->manifest, figures_steady(&run->manifest), &begin_us, &end_us);
    for (size_t i = 0; i < run->window_count; i++)
        if (run->windows[i].end_us > begin_us && run->windows[i].begin_us < end_us)
            end_us = run->windows[i].begin_us;
    double *at = xcalloc(run->backlog_count + 1, sizeof(*at));
    double *tasks = xcalloc(run->backlog_count + 1, sizeof(*tasks));
    size_t count = 0;
    for (size_t i = 0; i < run->backlog_count; i++) {
        const struct backlog_sample *sample = &run->backlog[i];
        if (sample->ts_us < begin_us || sample->ts_us > end_us || isnan(sample->tasks))
            continue;
        at[count] = (double)(sample->ts_us - begin_us) / 1e6;
        tasks[count++] = sample->tasks;
    }
    double slope = count >= 3 ? stats_slope(at, tasks, count) : NAN;
    free(at);
    free(tasks);
    return slope;
}

void figures_theory(struct figures *figures, const struct run *run)
{
    const struct manifest *manifest = &run->manifest;
    figures_set(figures, growth(run), "backlog.growth_per_s");
    if (!manifest->drains || !(manifest->row_delay_ms > 0))
        return;
    double capacity = manifest->lanes * 1e3 / manifest->row_delay_ms;
    double steady = manifest->rps * manifest->phases[figures_steady(manifest)].rate;
    figures_set(figures, fmax(0, steady - capacity), "backlog.theory_growth_per_s");
    tank(figures, run, capacity);
}

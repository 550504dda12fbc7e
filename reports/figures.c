#include "figures.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "background.h"
#include "base/buf.h"
#include "lines.h"

static size_t find(const struct figures *figures, const char *key)
{
    size_t i = 0;
    while (i < figures->count && strcmp(figures->items[i].key, key) != 0)
        i++;
    return i;
}

void figures_set(struct figures *figures, double value, const char *format, ...)
{
    struct buf key = {0};
    va_list args;
    va_start(args, format);
    buf_vprintf(&key, format, args);
    va_end(args);
    size_t i = find(figures, key.data);
    if (isnan(value)) {
        buf_free(&key);
        return;
    }
    if (i < figures->count) {
        figures->items[i].value = value;
        buf_free(&key);
        return;
    }
    array_grow((void **)&figures->items, &figures->capacity, figures->count,
               sizeof(*figures->items));
    figures->items[figures->count++] = (struct figure){.key = key.data, .value = value};
}

double figures_get(const struct figures *figures, const char *format, ...)
{
    struct buf key = {0};
    va_list args;
    va_start(args, format);
    buf_vprintf(&key, format, args);
    va_end(args);
    size_t i = find(figures, key.data);
    buf_free(&key);
    return i < figures->count ? figures->items[i].value : NAN;
}

void figures_free(struct figures *figures)
{
    for (size_t i = 0; i < figures->count; i++)
        free(figures->items[i].key);
    free(figures->items);
    memset(figures, 0, sizeof(*figures));
}

void series_free(struct series *series)
{
    free(series->p50_ms);
    free(series->p99_ms);
    free(series->rows);
    free(series->backlog_s);
    free(series->backlog);
    free(series->window_begin_s);
    free(series->window_end_s);
    free(series->work_begin_s);
    free(series->work_end_s);
    memset(series, 0, sizeof(*series));
}

void figures_percentiles(struct figures *figures, const char *prefix, struct samples *samples)
{
    static const struct {
        const char *name;
        unsigned permille;
    } ranks[] = {{"p50", 500}, {"p90", 900}, {"p99", 990}, {"p999", 999}, {"max", 1000}};
    figures_set(figures, (double)(samples->count + samples->misses), "%s.n", prefix);
    figures_set(figures, samples_mean(samples), "%s.mean_ms", prefix);
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++)
        figures_set(figures, samples_percentile(samples, ranks[i].permille), "%s.%s_ms", prefix,
                    ranks[i].name);
}

size_t figures_steady(const struct manifest *manifest)
{
    size_t longest = 0;
    for (size_t i = 0; i < manifest->phase_count; i++) {
        if (strcmp(manifest->phases[i].name, "steady") == 0)
            return i;
        if (manifest->phases[i].for_ms > manifest->phases[longest].for_ms)
            longest = i;
    }
    return longest;
}

void figures_phase_span(const struct manifest *manifest, size_t phase, int64_t *begin_us,
                        int64_t *end_us)
{
    double begin_ms = 0;
    for (size_t i = 0; i < phase; i++)
        begin_ms += manifest->phases[i].for_ms;
    *begin_us = manifest->start_us + llround(begin_ms * 1e3);
    *end_us = *begin_us + llround(manifest->phases[phase].for_ms * 1e3);
}

static void copy_windows(struct series *series, const struct run *run)
{
    double end_s = (double)(run->manifest.end_us - run->manifest.start_us) / 1e6;
    series->windows = run->window_count;
    series->window_begin_s = xcalloc(run->window_count + 1, sizeof(double));
    series->window_end_s = xcalloc(run->window_count + 1, sizeof(double));
    for (size_t i = 0; i < run->window_count; i++) {
        const struct window *window = &run->windows[i];
        series->window_begin_s[i] = (double)(window->begin_us - run->manifest.start_us) / 1e6;
        series->window_end_s[i] = window->end_us == INT64_MAX
                                      ? end_s
                                      : (double)(window->end_us - run->manifest.start_us) / 1e6;
    }
}

void figures_compute(struct figures *figures, struct series *series, const struct run *run)
{
    copy_windows(series, run);
    figures_latency(figures, series, run);
    figures_flow(figures, series, run);
    figures_theory(figures, run);
    figures_parts(figures, run);
    figures_fairness(figures, run);
    figures_background(figures, series, run);
}

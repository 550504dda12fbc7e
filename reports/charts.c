/* Which pictures there are, and what stands in each. */
#include "charts.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "compare.h"
#include "lines.h"
#include "svg.h"

/* ---- one colour a sink ---- */

static const char *const known[] = {"wal", "ingest", "valkey", "rabbit", "direct", "memory"};
enum { KNOWN = sizeof(known) / sizeof(known[0]), SPARE = 4 };

static unsigned known_style(const char *sink)
{
    unsigned i = 0;
    while (i < KNOWN && strcmp(known[i], sink) != 0)
        i++;
    return i;
}

unsigned charts_style(const struct comparison *comparison, size_t group)
{
    unsigned style = known_style(comparison->groups[group].sink), others = 0;
    if (style < KNOWN)
        return style;
    for (size_t i = 0; i < group; i++)
        others += known_style(comparison->groups[i].sink) == KNOWN;
    return KNOWN + others % SPARE;
}

/* ---- a picture under construction ---- */

enum { PANELS_MAX = 9, BINS_MAX = 240, MARKS_MAX = 2000 };

struct draft {
    const struct comparison *comparison;
    struct svg_panel panels[PANELS_MAX];
    size_t panel_count;
    struct svg_band *bands; /* of every panel over time */
    size_t band_count, band_capacity;
    struct svg_mark *marks;
    size_t mark_count, mark_capacity;
    unsigned mark_rows;
    double **owned; /* arrays that lines point into */
    size_t owned_count, owned_capacity;
    struct strings texts;
    double run_s;
};

static double *own(struct draft *draft, double *values)
{
    array_grow((void **)&draft->owned, &draft->owned_capacity, draft->owned_count,
               sizeof(*draft->owned));
    return draft->owned[draft->owned_count++] = values;
}

static const struct series *series_of(const struct draft *draft, size_t group)
{
    return &draft->comparison->groups[group].first->series;
}

/* A text that lives as long as the draft. */
static const char *keep_text(struct draft *draft, char *text)
{
    strings_add(&draft->texts, "%s", text);
    free(text);
    return draft->texts.items[draft->texts.count - 1];
}

static struct svg_panel *panel_add(struct draft *draft, const char *title, const char *unit,
                                   double height)
{
    struct svg_panel *panel = &draft->panels[draft->panel_count++];
    *panel = (struct svg_panel){.title = title, .unit = unit, .height = height};
    panel->limit.value = NAN;
    panel->lines = xcalloc(draft->comparison->group_count + 1, sizeof(*panel->lines));
    return panel;
}

static void line_add(struct draft *draft, struct svg_panel *panel, size_t group, const double *x,
                     const double *y, size_t count)
{
    bool any = false;
    for (size_t i = 0; i < count && !any; i++)
        any = isfinite(y[i]);
    if (any)
        panel->lines[panel->line_count++] =
            (struct svg_line){x, y, count, charts_style(draft->comparison, group), (unsigned)group};
}

/* Without a line a panel is not shown. */
static void panel_end(struct draft *draft, struct svg_panel *panel)
{
    if (panel->line_count > 0)
        return;
    free(panel->lines);
    draft->panel_count--;
}

static void range_of(const struct svg_panel *panel, double *low, double *high)
{
    *low = INFINITY;
    *high = -INFINITY;
    for (size_t i = 0; i < panel->line_count; i++)
        for (size_t k = 0; k < panel->lines[i].count; k++) {
            double y = panel->lines[i].y[k];
            if (!isfinite(y))
                continue;
            *high = fmax(*high, y);
            if (y > 0)
                *low = fmin(*low, y);
        }
}

/* ---- faults and work in the background ---- */

static void band_add(struct draft *draft, struct svg_band band)
{
    array_grow((void **)&draft->bands, &draft->band_capacity, draft->band_count,
               sizeof(*draft->bands));
    draft->bands[draft->band_count++] = band;
}

/* The nth fault from its first begin to its last end, over all sinks. */
static void add_faults(struct draft *draft)
{
    const struct comparison *comparison = draft->comparison;
    for (size_t n = 0; n < MARKS_MAX; n++) {
        double begin = INFINITY, end = -INFINITY;
        const struct window *window = NULL;
        for (size_t i = 0; i < comparison->group_count; i++) {
            const struct series *series = series_of(draft, i);
            if (n >= series->windows)
                continue;
            begin = fmin(begin, series->window_begin_s[n]);
            end = fmax(end, series->window_end_s[n]);
            if (!window && n < comparison->groups[i].first->run.window_count)
                window = &comparison->groups[i].first->run.windows[n];
        }
        if (!(begin < end))
            return;
        struct svg_band band = {.begin = begin, .end = fmin(end, draft->run_s)};
        if (window && strlen(window->who) + strlen(window->what) < 30)
            band.label = keep_text(draft, xasprintf("%s %s", window->who, window->what));
        band_add(draft, band);
    }
}

static int compare_bands(const void *left, const void *right)
{
    const struct svg_band *a = left, *b = right;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* Work in the background: one pale band where any sink had some (else many of them would add up to
 * a dark one), and above the panel a mark for each in its sink's colour. */
static void add_works(struct draft *draft)
{
    size_t before = draft->band_count;
    for (size_t i = 0; i < draft->comparison->group_count; i++) {
        const struct series *series = series_of(draft, i);
        for (size_t k = 0; k < series->works && k < MARKS_MAX; k++) {
            double begin = series->work_begin_s[k];
            double end = fmin(fmax(series->work_end_s[k], begin + 0.2), draft->run_s);
            array_grow((void **)&draft->marks, &draft->mark_capacity, draft->mark_count,
                       sizeof(*draft->marks));
            draft->marks[draft->mark_count++] = (struct svg_mark){
                begin, end, charts_style(draft->comparison, i), (unsigned)i, draft->mark_rows};
            band_add(draft, (struct svg_band){.begin = begin, .end = end, .hatched = true});
        }
        draft->mark_rows += series->works > 0;
    }
    struct svg_band *bands = draft->bands + before;
    size_t count = draft->band_count - before, kept = 0;
    if (count == 0)
        return;
    qsort(bands, count, sizeof(*bands), compare_bands);
    for (size_t i = 1; i < count; i++) {
        if (bands[i].begin <= bands[kept].end)
            bands[kept].end = fmax(bands[kept].end, bands[i].end);
        else
            bands[++kept] = bands[i];
    }
    draft->band_count = before + kept + 1;
}

/* All panels so far are over the time of the run. */
static void over_time(struct draft *draft)
{
    for (size_t i = 0; i < draft->panel_count; i++) {
        struct svg_panel *panel = &draft->panels[i];
        panel->x = (struct svg_axis){.low = 0, .high = draft->run_s};
        panel->bands = draft->bands;
        panel->band_count = draft->band_count;
        panel->marks = draft->marks;
        panel->mark_count = draft->mark_count;
        panel->mark_rows = draft->mark_rows;
    }
    if (draft->panel_count)
        draft->panels[draft->panel_count - 1].x_title = "seconds since the load began";
}

static void scale_linear(struct svg_panel *panel)
{
    double low, high;
    range_of(panel, &low, &high);
    if (isfinite(panel->limit.value))
        high = fmax(high, panel->limit.value);
    panel->y = svg_linear(high * 1.02);
}

static void scale_logarithmic(struct svg_panel *panel)
{
    double low, high;
    range_of(panel, &low, &high);
    if (panel->limit.value > 0) {
        low = fmin(low, panel->limit.value);
        high = fmax(high, panel->limit.value);
    }
    panel->y = svg_logarithmic(low, high * 1.05);
}

/* The middles of seconds. */
static const double *middles(struct draft *draft, size_t count)
{
    double *x = own(draft, xcalloc(count + 1, sizeof(double)));
    for (size_t i = 0; i < count; i++)
        x[i] = (double)i + 0.5;
    return x;
}

/* ---- the pictures ---- */

static void draw_backlog(struct draft *draft)
{
    struct svg_panel *panel = panel_add(draft, "backlog, tasks in the sink", "tasks", 240);
    for (size_t i = 0; i < draft->comparison->group_count; i++) {
        const struct series *series = series_of(draft, i);
        line_add(draft, panel, i, series->backlog_s, series->backlog, series->samples);
    }
    scale_linear(panel);
    panel_end(draft, panel);
    over_time(draft);
}

static void draw_committed(struct draft *draft)
{
    struct svg_panel *panel = panel_add(draft, "committed in the main DB, rows/s", "rows/s", 240);
    const struct manifest *reference = draft->comparison->reference;
    if (reference && reference->row_delay_ms > 0)
        panel->limit = (struct svg_limit){reference->lanes * 1e3 / reference->row_delay_ms,
                                          "lanes / row delay"};
    for (size_t i = 0; i < draft->comparison->group_count; i++) {
        const struct series *series = series_of(draft, i);
        double rows = 0;
        for (size_t k = 0; k < series->run_seconds; k++)
            rows += series->rows[k];
        if (rows > 0)
            line_add(draft, panel, i, middles(draft, series->run_seconds), series->rows,
                     series->run_seconds);
    }
    scale_linear(panel);
    panel_end(draft, panel);
    over_time(draft);
}

static struct svg_limit sla_limit(struct draft *draft)
{
    const struct manifest *reference = draft->comparison->reference;
    if (!reference)
        return (struct svg_limit){.value = NAN};
    return (struct svg_limit){reference->api_p99_ms,
                              keep_text(draft, xasprintf("limit %g ms", reference->api_p99_ms))};
}

static void draw_latency(struct draft *draft)
{
    struct svg_panel *p99 = panel_add(draft, "api p99 of each second, ms", "ms", 210);
    p99->limit = sla_limit(draft);
    for (size_t i = 0; i < draft->comparison->group_count; i++) {
        const struct series *series = series_of(draft, i);
        line_add(draft, p99, i, middles(draft, series->seconds), series->p99_ms, series->seconds);
    }
    scale_logarithmic(p99);
    panel_end(draft, p99);
    struct svg_panel *p50 = panel_add(draft, "api p50 of each second, ms", "ms", 170);
    for (size_t i = 0; i < draft->comparison->group_count; i++) {
        const struct series *series = series_of(draft, i);
        line_add(draft, p50, i, middles(draft, series->seconds), series->p50_ms, series->seconds);
    }
    scale_logarithmic(p50);
    panel_end(draft, p50);
    over_time(draft);
}

static void draw_percentiles(struct draft *draft)
{
    static const char *const titles[CURVE_COUNT] = {"api: due to answered, ms",
                                                    "durable: request to durable, ms",
                                                    "age: accepted to committed, ms"};
    double n = 10;
    for (int kind = 0; kind < CURVE_COUNT; kind++) {
        struct svg_panel *panel = panel_add(draft, titles[kind], "ms", 190);
        if (kind == CURVE_API)
            panel->limit = sla_limit(draft);
        for (size_t i = 0; i < draft->comparison->group_count; i++) {
            const struct curve *curve = &draft->comparison->groups[i].first->curves[kind];
            line_add(draft, panel, i, curve->x, curve->y, curve->count);
            if (curve->count)
                n = fmax(n, curve->x[curve->count - 1]);
        }
        scale_logarithmic(panel);
        panel_end(draft, panel);
    }
    for (size_t i = 0; i < draft->panel_count; i++)
        draft->panels[i].x = (struct svg_axis){.low = 1, .high = n, .log = true, .share = true};
    if (draft->panel_count)
        draft->panels[draft->panel_count - 1].x_title = "share of the steady phase's tasks";
}

/* ---- CPU and memory, a panel a part ---- */

/* Bins as wide as a second, wider in a long run: the mean of CPU, the most of memory. */
static void add_part(struct draft *draft, struct svg_panel *panel, size_t group, const char *who,
                     bool memory)
{
    const struct run *run = &draft->comparison->groups[group].first->run;
    const struct part *part = NULL;
    for (size_t i = 0; i < run->part_count && !part; i++)
        part = strcmp(run->parts[i].who, who) == 0 ? &run->parts[i] : NULL;
    if (!part || !run_times_ok(run))
        return;
    double width = fmax(1, ceil(draft->run_s / (double)BINS_MAX));
    size_t bins = (size_t)ceil(draft->run_s / width);
    double *x = own(draft, xcalloc(bins + 1, sizeof(double)));
    double *y = own(draft, xcalloc(bins + 1, sizeof(double)));
    double *n = own(draft, xcalloc(bins + 1, sizeof(double)));
    for (size_t i = 0; i < bins; i++)
        x[i] = ((double)i + 0.5) * width;
    for (size_t i = 0; i < part->count; i++) {
        const struct os_sample *sample = &part->samples[i];
        double at = (double)(sample->ts_us - run->manifest.start_us) / 1e6 / width;
        double value = memory ? sample->rss_bytes / 1048576 : sample->cpu_pct;
        if (!(at >= 0) || at >= (double)bins || sample->ts_us > run->manifest.end_us ||
            !isfinite(value))
            continue;
        size_t bin = (size_t)at;
        y[bin] = memory ? fmax(y[bin], value) : y[bin] + value;
        n[bin]++;
    }
    for (size_t i = 0; i < bins; i++)
        y[i] = n[i] == 0 ? NAN : memory ? y[i] : y[i] / n[i];
    line_add(draft, panel, group, x, y, bins);
}

/* The parts of all sinks: the usual ones first, then others in the order in which they are met. */
static size_t list_parts(const struct draft *draft, const char **parts, size_t max)
{
    static const char *const usual[] = {"api", "worker", "sink", "main-db", "loadgen", "sampler"};
    size_t count = 0;
    for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]) && count < max; i++)
        parts[count++] = usual[i];
    for (size_t i = 0; i < draft->comparison->group_count; i++) {
        const struct run *run = &draft->comparison->groups[i].first->run;
        for (size_t k = 0; k < run->part_count; k++) {
            bool there = false;
            for (size_t n = 0; n < count && !there; n++)
                there = strcmp(parts[n], run->parts[k].who) == 0;
            if (!there && count < max)
                parts[count++] = run->parts[k].who;
        }
    }
    return count;
}

static void draw_parts(struct draft *draft, bool memory)
{
    const char *parts[PANELS_MAX];
    size_t count = list_parts(draft, parts, PANELS_MAX);
    for (size_t n = 0; n < count; n++) {
        const char *title =
            keep_text(draft, xasprintf(memory ? "%.20s, MiB" : "%.20s, %% of a core", parts[n]));
        struct svg_panel *panel = panel_add(draft, title, memory ? "MiB" : "%", 110);
        for (size_t i = 0; i < draft->comparison->group_count; i++)
            add_part(draft, panel, i, parts[n], memory);
        scale_linear(panel);
        panel_end(draft, panel);
    }
    over_time(draft);
}

static void draw_cpu(struct draft *draft)
{
    draw_parts(draft, false);
}

static void draw_memory(struct draft *draft)
{
    draw_parts(draft, true);
}

static const struct chart {
    const char *name, *title;
    void (*draw)(struct draft *draft);
} charts[] = {
    {"backlog", "Backlog of each sink over time", draw_backlog},
    {"latency", "API latency of each second, p99 and p50", draw_latency},
    {"percentiles", "Latency by percentile: api, durable, age", draw_percentiles},
    {"committed", "Rows committed in the main DB each second", draw_committed},
    {"cpu", "CPU of each part over time", draw_cpu},
    {"memory", "Memory of each part over time", draw_memory},
};
enum { CHARTS = sizeof(charts) / sizeof(charts[0]) };

/* ---- putting one together ---- */

static struct svg_key *make_keys(const struct draft *draft, size_t *count)
{
    const struct comparison *comparison = draft->comparison;
    struct svg_key *keys = xcalloc(comparison->group_count + 1, sizeof(*keys));
    *count = 0;
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct group *group = &comparison->groups[i];
        bool shown = false;
        for (size_t k = 0; k < draft->panel_count && !shown; k++)
            for (size_t n = 0; n < draft->panels[k].line_count; n++)
                shown = shown || draft->panels[k].lines[n].group == i;
        if (!shown)
            continue;
        keys[(*count)++] = (struct svg_key){
            .label = xasprintf("%.24s%s", group->sink, group->counting ? "" : "*"),
            .style = charts_style(comparison, i),
            .group = (unsigned)i,
        };
    }
    return keys;
}

static void draft_begin(struct draft *draft, const struct comparison *comparison)
{
    memset(draft, 0, sizeof(*draft));
    draft->comparison = comparison;
    draft->run_s = 1;
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct series *series = series_of(draft, i);
        draft->run_s = fmax(draft->run_s, (double)series->run_seconds);
    }
    add_faults(draft);
    add_works(draft);
}

static void draft_free(struct draft *draft)
{
    for (size_t i = 0; i < draft->panel_count; i++)
        free(draft->panels[i].lines);
    for (size_t i = 0; i < draft->owned_count; i++)
        free(draft->owned[i]);
    free(draft->owned);
    free(draft->bands);
    free(draft->marks);
    strings_free(&draft->texts);
}

bool charts_put(const struct comparison *comparison, const char *name, bool inlined,
                struct buf *out)
{
    const struct chart *chart = NULL;
    for (size_t i = 0; i < CHARTS && !chart; i++)
        chart = strcmp(charts[i].name, name) == 0 ? &charts[i] : NULL;
    if (!chart)
        return false;
    struct draft draft;
    draft_begin(&draft, comparison);
    chart->draw(&draft);
    bool any = draft.panel_count > 0;
    if (any) {
        size_t key_count;
        struct svg_key *keys = make_keys(&draft, &key_count);
        struct svg_picture picture = {.name = chart->name,
                                      .title = chart->title,
                                      .css = inlined ? NULL : charts_css,
                                      .keys = keys,
                                      .key_count = key_count,
                                      .panels = draft.panels,
                                      .panel_count = draft.panel_count};
        svg_put(out, &picture);
        for (size_t i = 0; i < key_count; i++)
            free(keys[i].label);
        free(keys);
    }
    draft_free(&draft);
    return any;
}

/* What an older report drew must not outlive its figures. */
static void remove_old(const char *folder, const char *name)
{
    static const char *const endings[] = {"svg", "gp"};
    for (size_t i = 0; i < 2; i++) {
        char *path = xasprintf("%s/%s.%s", folder, name, endings[i]);
        unlink(path);
        free(path);
    }
}

int charts_draw(struct comparison *comparison, struct err *err)
{
    char *folder = xasprintf("%s/charts", comparison->dir);
    int result = file_mkdirs(folder, 0755, err);
    for (size_t i = 0; i < CHARTS && result == 0; i++) {
        struct buf picture = {0};
        remove_old(folder, charts[i].name);
        if (charts_put(comparison, charts[i].name, false, &picture)) {
            char *path = xasprintf("%s/%s.svg", folder, charts[i].name);
            result = file_write(path, picture.data, picture.len, err);
            strings_add(&comparison->chart_files, "charts/%s.svg", charts[i].name);
            free(path);
        }
        buf_free(&picture);
    }
    free(folder);
    if (result == 0 && comparison->chart_files.count == 0)
        comparison->chart_problem = xstrdup("no run has figures to draw");
    return result;
}

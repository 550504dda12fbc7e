/* Charts by gnuplot. Each is a script that holds its own data (charts/NAME.gp, kept, so that
 * anybody can draw it anew); no text from a run's files gets into one but for names with all but
 * letters and digits taken out. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "compare.h"

enum { GNUPLOT_DEADLINE_MS = 60000, GNUPLOT_SAYS_BYTES = 64 * 1024 };

/* ---- colours ---- */

/* One a sink, everywhere. Okabe and Ito's set, which the colour-blind can tell apart; dashes and
 * line widths tell them apart in grey. */
static const struct style {
    const char *sink, *colour, *dashes;
} styles[] = {
    {"wal", "#0072b2", "solid"},    {"ingest", "#e69f00", "(14,4)"},
    {"valkey", "#d55e00", "(7,4)"}, {"rabbit", "#cc79a7", "(14,3,4,3)"},
    {"direct", "#767676", "(3,4)"}, {"memory", "#009e73", "(8,3,2,3,2,3)"},
};
static const char *const spare_colours[] = {"#56b4e9", "#8c564b", "#000000", "#b8a800"};

static const struct style *find_style(const char *sink)
{
    for (size_t i = 0; i < sizeof(styles) / sizeof(styles[0]); i++)
        if (strcmp(styles[i].sink, sink) == 0)
            return &styles[i];
    return NULL;
}

const char *sink_colour(const struct comparison *comparison, size_t group)
{
    const struct style *style = find_style(comparison->groups[group].sink);
    if (style)
        return style->colour;
    size_t spare = 0;
    for (size_t i = 0; i < group; i++)
        spare += find_style(comparison->groups[i].sink) == NULL;
    return spare_colours[spare % (sizeof(spare_colours) / sizeof(spare_colours[0]))];
}

/* ---- pieces of a script ---- */

static void put_label(struct buf *script, const struct group *group)
{
    size_t len = strlen(group->sink);
    for (size_t i = 0; i < len && i < 40; i++) {
        char c = group->sink[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '-' || c == '_';
        buf_putc(script, plain ? c : '?');
    }
    if (group->counting == 0)
        buf_puts(script, " (does not count)");
}

enum { OBJECTS_MAX = 1000 }; /* of a kind; gnuplot draws each */

/* Work in the background: hatched over the whole height, and on top a mark in the colour of each
 * sink that it befell. */
static void put_works(struct buf *script, const struct comparison *comparison)
{
    size_t object = 2 * OBJECTS_MAX;
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct series *series = &comparison->groups[i].first->series;
        for (size_t k = 0; k < series->works && k < OBJECTS_MAX; k++) {
            double begin = series->work_begin_s[k];
            double end = fmax(series->work_end_s[k], begin + 0.2); /* else it can't be seen */
            double top = 0.995 - 0.018 * (double)(i % 6);
            buf_printf(script,
                       "set object %zu rectangle from first %.3f, graph 0 to first %.3f, graph 1 "
                       "fillcolor rgb '#b8b8b8' fillstyle transparent pattern 4 noborder behind\n",
                       object++, begin, end);
            buf_printf(script,
                       "set object %zu rectangle from first %.3f, graph %.3f to first %.3f, graph "
                       "%.3f fillcolor rgb '%s' fillstyle solid 1 noborder front\n",
                       object++, begin, top - 0.014, end, top, sink_colour(comparison, i));
        }
    }
}

/* Fault windows over all sinks: the nth fault from its first begin to its last end. */
static void put_faults(struct buf *script, const struct comparison *comparison)
{
    for (size_t n = 0; n < OBJECTS_MAX; n++) {
        double begin = INFINITY, end = -INFINITY;
        for (size_t i = 0; i < comparison->group_count; i++) {
            const struct series *series = &comparison->groups[i].first->series;
            if (n < series->windows) {
                begin = fmin(begin, series->window_begin_s[n]);
                end = fmax(end, series->window_end_s[n]);
            }
        }
        if (!(begin < end))
            return;
        buf_printf(script,
                   "set object %zu rectangle from first %.3f, graph 0 to first %.3f, graph 1 "
                   "fillcolor rgb '#d8d8d8' fillstyle solid 1 noborder behind\n",
                   n + 1, begin, end);
    }
}

static void put_windows(struct buf *script, const struct comparison *comparison)
{
    put_faults(script, comparison);
    put_works(script, comparison);
}

static void put_start(struct buf *script, const char *name, unsigned height)
{
    /* A background of its own: dark pages would swallow black axes on a transparent one. */
    buf_printf(script,
               "# gnuplot -d %s.gp\n"
               "set terminal svg size 960,%u font 'sans-serif,16' background '#ffffff' noenhanced\n"
               "set output '%s.svg'\n"
               "set grid linecolor rgb '#cccccc' linewidth 1\n"
               "set border linecolor rgb '#555555'\n"
               "set key outside top center horizontal samplen 5\n"
               "set lmargin 10\nset offsets graph 0, graph 0, graph 0.06, graph 0\n"
               "set xlabel 'seconds since the load began'\n",
               name, height, name);
}

/* A data block of (x, y); without x the middles of seconds. y values that are not numbers leave a
 * gap. */
static void put_data(struct buf *script, const char *name, size_t index, const double *x,
                     const double *y, size_t count)
{
    buf_printf(script, "$%s%zu << EOD\n", name, index);
    for (size_t i = 0; i < count; i++) {
        if (isfinite(y[i]))
            buf_printf(script, "%.3f %.6g\n", x ? x[i] : (double)i + 0.5, y[i]);
        else
            buf_puts(script, "\n");
    }
    buf_puts(script, "EOD\n");
}

static const char *sink_dashes(const char *sink)
{
    const struct style *style = find_style(sink);
    return style ? style->dashes : "(20,4)";
}

static void put_plot(struct buf *script, const struct comparison *comparison, const char *data,
                     const size_t *counts, const char *how, const char *last)
{
    bool first = true;
    buf_puts(script, "plot ");
    for (size_t i = 0; i < comparison->group_count; i++) {
        if (counts[i] == 0)
            continue;
        buf_printf(script,
                   "%s$%s%zu using 1:2 with %s linecolor rgb '%s' linewidth 2.5 dashtype %s "
                   "title '",
                   first ? "" : ", \\\n     ", data, i, how, sink_colour(comparison, i),
                   sink_dashes(comparison->groups[i].sink));
        put_label(script, &comparison->groups[i]);
        buf_putc(script, '\'');
        first = false;
    }
    if (last)
        buf_printf(script, "%s%s", first ? "" : ", \\\n     ", last);
    buf_putc(script, '\n');
}

/* ---- the charts: each appends its script; false: nothing to draw ---- */

static bool draw_backlog(const struct comparison *comparison, struct buf *script, size_t *counts)
{
    size_t total = 0;
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct series *series = &comparison->groups[i].first->series;
        counts[i] = series->samples;
        total += counts[i];
        if (counts[i])
            put_data(script, "backlog", i, series->backlog_s, series->backlog, series->samples);
    }
    put_start(script, "backlog", 480);
    put_windows(script, comparison);
    buf_puts(script, "set ylabel 'tasks in the sink'\nset yrange [0:*]\nset xrange [0:*]\n");
    put_plot(script, comparison, "backlog", counts, "lines", NULL);
    return total > 0;
}

static bool draw_latency(const struct comparison *comparison, struct buf *script, size_t *counts)
{
    size_t total = 0;
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct series *series = &comparison->groups[i].first->series;
        counts[i] = series->seconds;
        total += counts[i];
        if (counts[i] == 0)
            continue;
        put_data(script, "p50_", i, NULL, series->p50_ms, series->seconds);
        put_data(script, "p99_", i, NULL, series->p99_ms, series->seconds);
    }
    put_start(script, "latency", 840);
    buf_puts(script, "set logscale y\nset xrange [0:*]\nset format y '%g'\n"
                     "set multiplot layout 2,1\n");
    put_windows(script, comparison);
    char *limit =
        xasprintf("%.6g with lines linecolor rgb '#000000' linewidth 1.5 dashtype 3 title "
                  "'limit'",
                  comparison->reference ? comparison->reference->api_p99_ms : NAN);
    buf_puts(script, "set ylabel 'api p99 (ms)'\n");
    put_plot(script, comparison, "p99_", counts, "lines", comparison->reference ? limit : NULL);
    buf_puts(script, "set ylabel 'api p50 (ms)'\n");
    put_plot(script, comparison, "p50_", counts, "lines", NULL);
    buf_puts(script, "unset multiplot\n");
    free(limit);
    return total > 0;
}

static bool draw_committed(const struct comparison *comparison, struct buf *script, size_t *counts)
{
    double total = 0;
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct series *series = &comparison->groups[i].first->series;
        double rows = 0;
        for (size_t k = 0; k < series->run_seconds; k++)
            rows += series->rows[k];
        counts[i] = rows > 0 ? series->run_seconds : 0;
        total += rows;
        if (counts[i])
            put_data(script, "rows", i, NULL, series->rows, series->run_seconds);
    }
    const struct manifest *reference = comparison->reference;
    char *theory = NULL;
    if (reference && reference->row_delay_ms > 0)
        theory = xasprintf("%.6g with lines linecolor rgb '#000000' linewidth 1.5 dashtype 3 title "
                           "'lanes / row delay'",
                           reference->lanes * 1e3 / reference->row_delay_ms);
    put_start(script, "committed", 480);
    put_windows(script, comparison);
    buf_puts(script, "set ylabel 'rows committed a second'\nset yrange [0:*]\nset xrange [0:*]\n");
    put_plot(script, comparison, "rows", counts, "lines", theory);
    free(theory);
    return total > 0;
}

static const struct chart {
    const char *name;
    bool (*draw)(const struct comparison *comparison, struct buf *script, size_t *counts);
} charts[] = {{"backlog", draw_backlog}, {"latency", draw_latency}, {"committed", draw_committed}};

/* ---- gnuplot ---- */

/* Waits for our own child; one that hangs is ended. */
static int await(pid_t pid)
{
    int status = -1;
    for (int waited_ms = 0; waitpid(pid, &status, WNOHANG) == 0; waited_ms += 10) {
        if (waited_ms >= GNUPLOT_DEADLINE_MS) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            break;
        }
        clock_sleep_ns(10 * NS_PER_MS);
    }
    return status;
}

/* Runs "gnuplot -d NAME.gp" in folder. 0, or a negative errno and why. */
static int run_gnuplot(const char *gnuplot, const char *folder, const char *name, struct err *err)
{
    char *script = xasprintf("%s.gp", name);
    char *says = xasprintf("%s/%s.log", folder, name);
    char *argv[] = {(char *)(uintptr_t)gnuplot, (char *)(uintptr_t) "-d", script, NULL};
    struct buf text = {0};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, says, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    posix_spawn_file_actions_addchdir_np(&actions, folder);
    posix_spawnattr_setsigmask(&attributes, &none); /* our caller may have blocked signals */
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    pid_t pid;
    int result = -posix_spawnp(&pid, gnuplot, &actions, &attributes, argv, environ);
    if (result < 0) {
        err_set(err, result, "%s could not be started: %s (it comes with the package gnuplot-nox)",
                gnuplot, strerror(-result));
        goto out;
    }
    int status = await(pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        file_read(says, GNUPLOT_SAYS_BYTES, &text, NULL);
        result = err_set(err, -EIO, "%s failed on %s/%s: %.200s", gnuplot, folder, script,
                         text.len ? text.data : "it was ended by a signal, or took too long");
    }
out:
    unlink(says);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    buf_free(&text);
    free(script);
    free(says);
    return result;
}

/* Writes charts/NAME.gp and draws it. An old picture must not outlive its figures. */
static int draw(struct comparison *comparison, const struct chart *chart, struct err *err)
{
    struct buf script = {0};
    struct err problem = {0};
    int result = 0;
    char *folder = xasprintf("%s/charts", comparison->dir);
    char *path = xasprintf("%s/%s.gp", folder, chart->name);
    char *picture = xasprintf("%s/%s.svg", folder, chart->name);
    size_t *counts = xcalloc(comparison->group_count + 1, sizeof(*counts));
    unlink(path);
    unlink(picture);
    if (!chart->draw(comparison, &script, counts))
        goto out;
    result = file_write(path, script.data, script.len, err);
    if (result < 0)
        goto out;
    if (run_gnuplot(comparison->gnuplot, folder, chart->name, &problem) < 0) {
        unlink(picture); /* half a picture */
        if (!comparison->chart_problem)
            comparison->chart_problem = xstrdup(problem.text);
        goto out;
    }
    strings_add(&comparison->chart_files, "charts/%s.svg", chart->name);
out:
    free(counts);
    free(picture);
    free(path);
    free(folder);
    buf_free(&script);
    return result;
}

int charts_draw(struct comparison *comparison, struct err *err)
{
    char *folder = xasprintf("%s/charts", comparison->dir);
    int result = file_mkdirs(folder, 0755, err);
    free(folder);
    for (size_t i = 0; i < sizeof(charts) / sizeof(charts[0]) && result == 0; i++)
        result = draw(comparison, &charts[i], err);
    if (result == 0 && comparison->chart_files.count == 0 && !comparison->chart_problem)
        comparison->chart_problem = xstrdup("no run has figures to draw");
    return result;
}

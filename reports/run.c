#include "run.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "events.h"
#include "lines.h"

/* ---- folders ---- */

static int compare_names(const void *left, const void *right)
{
    /* Natural order, so that worker-10 follows worker-9. */
    return strverscmp(*(char *const *)left, *(char *const *)right);
}

char **names_list(const char *dir, bool (*keep)(const char *dir, const char *name), struct err *err)
{
    DIR *handle = opendir(dir);
    if (!handle) {
        int code = -errno;
        err_set(err, code, "cannot read the folder %s: %s", dir, strerror(-code));
        return NULL;
    }
    char **names = NULL;
    size_t count = 0, capacity = 0;
    const struct dirent *entry;
    while ((entry = readdir(handle))) {
        if (entry->d_name[0] == '.' || !keep(dir, entry->d_name))
            continue;
        array_grow((void **)&names, &capacity, count, sizeof(*names));
        names[count++] = xstrdup(entry->d_name);
    }
    closedir(handle);
    if (count)
        qsort(names, count, sizeof(*names), compare_names);
    array_grow((void **)&names, &capacity, count, sizeof(*names));
    names[count] = NULL;
    return names;
}

void names_free(char **names)
{
    for (size_t i = 0; names && names[i]; i++)
        free(names[i]);
    free(names);
}

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);
    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

bool keep_events(const char *dir, const char *name)
{
    (void)dir;
    return ends_with(name, ".jsonl");
}

bool keep_ledgers(const char *dir, const char *name)
{
    (void)dir;
    return strncmp(name, "ledger", 6) == 0 && ends_with(name, ".tsv");
}

/* ---- loading ---- */

/* ledger.tsv first: it is the load itself, and must be there. */
static void load_ledgers(struct run *run)
{
    if (ledger_read(&run->ledger, run->dir, "ledger.tsv", &run->ledger_err) < 0)
        return;
    char **names = names_list(run->dir, keep_ledgers, &run->ledger_err);
    for (size_t i = 0; names && names[i]; i++)
        if (strcmp(names[i], "ledger.tsv") != 0 &&
            ledger_read(&run->ledger, run->dir, names[i], &run->ledger_err) < 0)
            break;
    names_free(names);
}

static int compare_batches(const void *left, const void *right)
{
    const struct batch *a = left, *b = right;
    return (a->ts_us > b->ts_us) - (a->ts_us < b->ts_us);
}

static int compare_backlogs(const void *left, const void *right)
{
    const struct backlog_sample *a = left, *b = right;
    return (a->ts_us > b->ts_us) - (a->ts_us < b->ts_us);
}

static int compare_parts(const void *left, const void *right)
{
    const struct part *a = left, *b = right;
    return strcmp(a->who, b->who);
}

static int compare_times(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static void sort(void *items, size_t count, size_t bytes,
                 int (*compare)(const void *left, const void *right))
{
    if (count)
        qsort(items, count, bytes, compare);
}

static int compare_samples(const void *left, const void *right)
{
    const struct os_sample *a = left, *b = right;
    return (a->ts_us > b->ts_us) - (a->ts_us < b->ts_us);
}

static int compare_windows(const void *left, const void *right)
{
    const struct window *a = left, *b = right;
    if (a->begin_us != b->begin_us)
        return a->begin_us > b->begin_us ? 1 : -1;
    return (a->file > b->file) - (a->file < b->file);
}

static void swap_texts(char **a, char **b)
{
    char *kept = *a;
    *a = *b;
    *b = kept;
}

/* Who made a fault and who watched the part tell of the same one: one window, from the first moment
 * to the last. An observer that saw no end (it was stopped) does not outweigh one that did. The
 * name is that of the file that was read first, which is the runner's. */
static bool merge_window(struct window *into, struct window *other)
{
    if (into->file == other->file || strcmp(into->who, other->who) != 0 ||
        other->begin_us > into->end_us)
        return false;
    if (into->end_us == INT64_MAX)
        into->end_us = other->end_us;
    else if (other->end_us != INT64_MAX && other->end_us > into->end_us)
        into->end_us = other->end_us;
    if (other->file < into->file) {
        swap_texts(&into->what, &other->what);
        into->file = other->file;
    }
    return true;
}

/* Over before the load began, or after all was over: none of the run's. */
static bool is_outside(const struct run *run, const struct window *window)
{
    return run_times_ok(run) &&
           (window->end_us < run->manifest.start_us || window->begin_us > run->manifest.end_us);
}

static void settle_windows(struct run *run)
{
    size_t kept = 0;
    sort(run->windows, run->window_count, sizeof(*run->windows), compare_windows);
    for (size_t i = 0; i < run->window_count; i++) {
        struct window window = run->windows[i];
        bool gone = is_outside(run, &window);
        for (size_t k = 0; !gone && k < kept; k++)
            gone = merge_window(&run->windows[k], &window);
        if (!gone) {
            run->windows[kept++] = window;
            continue;
        }
        free(window.what);
        free(window.who);
    }
    run->window_count = kept;
}

/* ---- ends that nobody saw ---- */

static int compare_lives(const void *left, const void *right)
{
    const struct incarnation *a = left, *b = right;
    if (a->is_api != b->is_api)
        return a->is_api ? -1 : 1;
    return (a->begin_us > b->begin_us) - (a->begin_us < b->begin_us);
}

/* Does one of the first faults, told ones, of that part tell of the time between them? Clocks and
 * polls may be a little apart.
 */
static bool is_told(const struct run *run, size_t told, const char *who, int64_t begin_us,
                    int64_t end_us)
{
    static const int64_t apart_us = 1000000;
    for (size_t i = 0; i < told; i++) {
        const struct window *window = &run->windows[i];
        bool open = window->end_us == INT64_MAX;
        if (strcmp(window->who, who) == 0 && window->begin_us <= end_us + apart_us &&
            (open || window->end_us >= begin_us - apart_us))
            return true;
    }
    return false;
}

/* A part that began a second time had ended, whoever noticed: where no sampler stood beside it, an
 * outage would pass for none. It lasted from the last word of the old process, at most. */
static void add_unseen(struct run *run)
{
    size_t told = run->window_count;
    sort(run->lives, run->life_count, sizeof(*run->lives), compare_lives);
    for (size_t i = 1; i < run->life_count; i++) {
        const struct incarnation *old = &run->lives[i - 1], *fresh = &run->lives[i];
        const char *who = fresh->is_api ? "api" : "worker";
        struct window window = {.begin_us = old->last_us, .end_us = fresh->begin_us};
        if (old->is_api != fresh->is_api || fresh->begin_us <= old->last_us || !run_times_ok(run) ||
            is_outside(run, &window) || is_told(run, told, who, old->last_us, fresh->begin_us))
            continue;
        window.what = xstrdup("unseen end");
        window.who = xstrdup(who);
        window.file = run->file_count;
        array_grow((void **)&run->windows, &run->window_capacity, run->window_count,
                   sizeof(*run->windows));
        run->windows[run->window_count++] = window;
    }
    if (run->window_count > told)
        sort(run->windows, run->window_count, sizeof(*run->windows), compare_windows);
}

void run_load(struct run *run, const char *dir, bool only_audit)
{
    memset(run, 0, sizeof(*run));
    run->dir = xstrdup(dir);
    run->name = xstrdup(dir);
    run->main_begin = run->main_end =
        (struct main_rows){NAN, NAN, NAN, .checkpoints = NAN, .autovacuums = NAN};
    const struct rise none = {NAN, NAN};
    const struct flush_times no_times = {NAN, NAN, NAN, NAN};
    run->main_wal_bytes = run->main_wal_flushes = none;
    run->disk = (struct disk_use){NULL, none, none, none};
    run->flush_before = run->flush_after = no_times;
    run->before_busy_pct = run->clock_ahead_ms = run->clock_over_s = NAN;
    manifest_read(&run->manifest, dir, &run->manifest_err);
    load_ledgers(run);
    struct err err = {0};
    char **names = names_list(dir, keep_events, &err);
    for (size_t i = 0; names && names[i]; i++)
        events_read(run, names[i], only_audit);
    names_free(names);
    sort(run->batches, run->batch_count, sizeof(*run->batches), compare_batches);
    sort(run->backlog, run->backlog_count, sizeof(*run->backlog), compare_backlogs);
    sort(run->parts, run->part_count, sizeof(*run->parts), compare_parts);
    for (size_t i = 0; i < run->part_count; i++)
        sort(run->parts[i].samples, run->parts[i].count, sizeof(struct os_sample), compare_samples);
    settle_windows(run);
    add_unseen(run);
    sort(run->worker_starts_us, run->worker_start_count, sizeof(*run->worker_starts_us),
         compare_times);
}

void run_free(struct run *run)
{
    for (size_t i = 0; i < run->file_count; i++) {
        free(run->files[i].name);
        free(run->files[i].unreadable);
    }
    for (size_t i = 0; i < run->part_count; i++) {
        free(run->parts[i].who);
        free(run->parts[i].samples);
    }
    for (size_t i = 0; i < run->stat_count; i++)
        free(run->stats[i].name);
    for (size_t i = 0; i < run->window_count; i++) {
        free(run->windows[i].what);
        free(run->windows[i].who);
    }
    for (size_t i = 0; i < run->work_count; i++) {
        free(run->works[i].who);
        free(run->works[i].what);
    }
    for (size_t i = 0; i < run->lateness_count; i++)
        free(run->lateness[i].phase);
    free(run->files);
    free(run->batches);
    free(run->backlog);
    free(run->parts);
    free(run->host);
    free(run->stats);
    free(run->windows);
    free(run->lives);
    free(run->lateness);
    free(run->works);
    free(run->worker_starts_us);
    free(run->disk.name);
    manifest_free(&run->manifest);
    ledger_free(&run->ledger);
    free(run->dir);
    free(run->name);
    memset(run, 0, sizeof(*run));
}

/* ---- questions ---- */

bool run_times_ok(const struct run *run)
{
    const struct manifest *m = &run->manifest;
    return run->manifest_err.code == 0 && m->start_us > 0 && m->start_us < m->load_end_us &&
           m->load_end_us <= m->end_us && m->end_us - m->start_us <= 7LL * 86400 * 1000000;
}

bool run_in_fault(const struct run *run, int64_t ts_us)
{
    for (size_t i = 0; i < run->window_count; i++)
        if (ts_us >= run->windows[i].begin_us && ts_us < run->windows[i].end_us)
            return true;
    return false;
}

double run_backlog_end(const struct run *run)
{
    if (run->drained_seen && !isnan(run->drained_backlog))
        return run->drained_backlog;
    return run->backlog_count ? run->backlog[run->backlog_count - 1].tasks : NAN;
}

int64_t run_half_lines(const struct run *run)
{
    int64_t count = 0;
    for (size_t i = 0; i < run->file_count; i++)
        count += run->files[i].half;
    return count;
}

int64_t run_damaged_lines(const struct run *run)
{
    int64_t count = 0;
    for (size_t i = 0; i < run->file_count; i++)
        count += run->files[i].damaged;
    return count;
}

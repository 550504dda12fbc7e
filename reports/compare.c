#include "compare.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "lines.h"

void strings_add(struct strings *strings, const char *format, ...)
{
    struct buf text = {0};
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    array_grow((void **)&strings->items, &strings->capacity, strings->count,
               sizeof(*strings->items));
    strings->items[strings->count++] = text.data;
}

void strings_free(struct strings *strings)
{
    for (size_t i = 0; i < strings->count; i++)
        free(strings->items[i]);
    free(strings->items);
    memset(strings, 0, sizeof(*strings));
}

/* ---- finding runs ---- */

static bool is_folder(const char *dir, const char *name)
{
    char *path = xasprintf("%s/%s", dir, name);
    struct stat info;
    bool folder = lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
    free(path);
    return folder;
}

static bool keep_sinks(const char *dir, const char *name)
{
    return strcmp(name, "charts") != 0 && is_folder(dir, name);
}

/* <n>, from 1. */
static bool keep_repeats(const char *dir, const char *name)
{
    int64_t n;
    return parse_int64(name, &n) && n > 0 && name[0] != '0' && is_folder(dir, name);
}

/* Frees what only figures and audit needed: a comparison may hold millions of tasks. */
static void shed(struct run *run)
{
    ledger_free(&run->ledger);
    free(run->batches);
    free(run->backlog);
    run->batches = NULL;
    run->backlog = NULL;
    run->batch_capacity = run->backlog_capacity = 0;
}

static void load_entry(struct entry *entry, const char *dir, const char *sink, const char *repeat)
{
    char *path = xasprintf("%s/%s/%s", dir, sink, repeat);
    run_load(&entry->run, path, false);
    free(entry->run.name);
    entry->run.name = xasprintf("%s/%s", sink, repeat);
    free(path);
    struct run *run = &entry->run;
    bool named = run->manifest_err.code == 0 && *run->manifest.sink;
    entry->sink = xstrdup(named ? run->manifest.sink : sink);
    audit_compute(&entry->audit, run);
    struct err err = {0};
    if (audit_write(&entry->audit, run->dir, &err) < 0)
        strings_add(&entry->notes, "%s", err.text);
    entry->has_figures = run->ledger_err.code == 0 && run_times_ok(run);
    if (entry->has_figures) {
        figures_compute(&entry->figures, &entry->series, run);
        curves_compute(entry->curves, run);
    }
    gates_check(entry);
    shed(run);
}

/* Nothing is written into a folder that only looks like a comparison: somewhere there must be a
 * manifest. A run that has lost its own is reported all the same. */
static bool has_manifest(const char *dir, char **sinks)
{
    bool found = false;
    for (size_t i = 0; !found && sinks[i]; i++) {
        char *path = xasprintf("%s/%s", dir, sinks[i]);
        char **repeats = names_list(path, keep_repeats, NULL);
        for (size_t k = 0; !found && repeats && repeats[k]; k++) {
            char *manifest = xasprintf("%s/%s/manifest.json", path, repeats[k]);
            found = file_exists(manifest);
            free(manifest);
        }
        names_free(repeats);
        free(path);
    }
    return found;
}

static int load_entries(struct comparison *comparison, struct err *err)
{
    char **sinks = names_list(comparison->dir, keep_sinks, err);
    if (!sinks)
        return err && err->code ? err->code : -ENOENT;
    if (!has_manifest(comparison->dir, sinks)) {
        names_free(sinks);
        return err_set(err, -ENOENT,
                       "%s holds no run: expected folders <sink>/<n>/ with a manifest.json",
                       comparison->dir);
    }
    size_t capacity = 0;
    for (size_t i = 0; sinks[i]; i++) {
        char *path = xasprintf("%s/%s", comparison->dir, sinks[i]);
        char **repeats = names_list(path, keep_repeats, NULL);
        for (size_t k = 0; repeats && repeats[k]; k++) {
            array_grow((void **)&comparison->entries, &capacity, comparison->count,
                       sizeof(*comparison->entries));
            struct entry *entry = &comparison->entries[comparison->count++];
            memset(entry, 0, sizeof(*entry));
            load_entry(entry, comparison->dir, sinks[i], repeats[k]);
        }
        names_free(repeats);
        free(path);
    }
    names_free(sinks);
    return 0;
}

/* ---- fair comparison ---- */

/* The scenario without the path it was found by, and without its faults: a control may lack the
 * part that a fault is about. Free it. */
static char *load_text(const struct manifest *manifest)
{
    cJSON *scenario = cJSON_Duplicate(manifest->scenario_json, true);
    cJSON_DeleteItemFromObjectCaseSensitive(scenario, "file");
    cJSON_DeleteItemFromObjectCaseSensitive(scenario, "faults");
    char *text = cJSON_PrintUnformatted(scenario);
    cJSON_Delete(scenario);
    return text ? text : xstrdup("");
}

static bool same_scenario(const struct manifest *a, const struct manifest *b)
{
    char *load_a = load_text(a), *load_b = load_text(b);
    bool same = strcmp(load_a, load_b) == 0;
    free(load_a);
    free(load_b);
    return same && (a->control || b->control ||
                    cJSON_Compare(json_get(a->scenario_json, "faults"),
                                  json_get(b->scenario_json, "faults"), true));
}

/* The scenario and version that most contenders share (or controls, when there are no others); the
 * rest can't be compared with them. */
static const struct manifest *find_reference(const struct comparison *comparison)
{
    const struct manifest *best = NULL;
    size_t best_votes = 0;
    for (size_t i = 0; i < comparison->count; i++) {
        const struct run *run = &comparison->entries[i].run;
        if (run->manifest_err.code)
            continue;
        size_t votes = 0;
        for (size_t k = 0; k < comparison->count; k++) {
            const struct run *other = &comparison->entries[k].run;
            votes += other->manifest_err.code == 0 &&
                     same_scenario(&run->manifest, &other->manifest) &&
                     strcmp(run->manifest.sluice_version, other->manifest.sluice_version) == 0;
        }
        bool better_kind = best && best->control && !run->manifest.control;
        bool worse_kind = best && !best->control && run->manifest.control;
        if (better_kind || (!worse_kind && votes > best_votes)) {
            best = &run->manifest;
            best_votes = votes;
        }
    }
    return best;
}

static void check_fairness(struct comparison *comparison)
{
    const struct manifest *reference = comparison->reference = find_reference(comparison);
    if (!reference)
        return;
    for (size_t i = 0; i < comparison->count; i++) {
        struct entry *entry = &comparison->entries[i];
        const struct manifest *manifest = &entry->run.manifest;
        if (entry->run.manifest_err.code || manifest == reference)
            continue;
        if (!same_scenario(manifest, reference))
            strings_add(&entry->reasons, "it ran another scenario than most runs here");
        else if (strcmp(manifest->sluice_version, reference->sluice_version) != 0)
            strings_add(&entry->reasons, "it ran sluice %s, most runs here %s",
                        manifest->sluice_version, reference->sluice_version);
        if (strcmp(manifest->sluice_commit, reference->sluice_commit) != 0)
            strings_add(&entry->notes, "it ran commit %s, others %s", manifest->sluice_commit,
                        reference->sluice_commit);
        if (!cJSON_Compare(json_get(manifest->json, "host"), json_get(reference->json, "host"),
                           true))
            strings_add(&entry->notes, "it ran on another host than others here");
    }
}

/* ---- groups ---- */

/* Contenders before controls, and the known ones in the order in which the docs speak of them. */
static const char *const known_sinks[] = {"wal", "ingest", "valkey", "rabbit", "direct", "memory"};

static size_t known_rank(const char *sink)
{
    size_t i = 0;
    while (i < sizeof(known_sinks) / sizeof(known_sinks[0]) && strcmp(known_sinks[i], sink) != 0)
        i++;
    return i;
}

static int compare_groups(const void *left, const void *right)
{
    const struct group *a = left, *b = right;
    if (a->control != b->control)
        return a->control - b->control;
    size_t rank_a = known_rank(a->sink), rank_b = known_rank(b->sink);
    return rank_a != rank_b ? (rank_a > rank_b) - (rank_a < rank_b) : strcmp(a->sink, b->sink);
}

static struct group *find_group(struct comparison *comparison, const char *sink)
{
    for (size_t i = 0; i < comparison->group_count; i++)
        if (strcmp(comparison->groups[i].sink, sink) == 0)
            return &comparison->groups[i];
    struct group *group = &comparison->groups[comparison->group_count++];
    group->sink = sink;
    group->entries = xcalloc(comparison->count, sizeof(struct entry *));
    group->shown = xcalloc(comparison->count, sizeof(struct entry *));
    return group;
}

static void choose_shown(struct group *group)
{
    for (size_t i = 0; i < group->count; i++)
        if (group->entries[i]->reasons.count == 0 && group->entries[i]->has_figures)
            group->shown[group->shown_count++] = group->entries[i];
    group->counting = group->shown_count;
    for (size_t i = 0; group->counting == 0 && i < group->count; i++)
        if (group->entries[i]->has_figures)
            group->shown[group->shown_count++] = group->entries[i];
    group->first = group->shown_count ? group->shown[0] : group->entries[0];
}

static void make_groups(struct comparison *comparison)
{
    comparison->groups = xcalloc(comparison->count, sizeof(*comparison->groups));
    for (size_t i = 0; i < comparison->count; i++) {
        struct entry *entry = &comparison->entries[i];
        struct group *group = find_group(comparison, entry->sink);
        group->entries[group->count++] = entry;
        if (entry->run.manifest_err.code == 0 && entry->run.manifest.control)
            group->control = true;
    }
    for (size_t i = 0; i < comparison->group_count; i++)
        choose_shown(&comparison->groups[i]);
    qsort(comparison->groups, comparison->group_count, sizeof(struct group), compare_groups);
}

int comparison_load(struct comparison *comparison, const char *dir, struct err *err)
{
    memset(comparison, 0, sizeof(*comparison));
    comparison->dir = dir;
    int result = load_entries(comparison, err);
    if (result < 0)
        return result;
    check_fairness(comparison);
    make_groups(comparison);
    return 0;
}

void comparison_free(struct comparison *comparison)
{
    for (size_t i = 0; i < comparison->count; i++) {
        struct entry *entry = &comparison->entries[i];
        free(entry->sink);
        run_free(&entry->run);
        audit_free(&entry->audit);
        figures_free(&entry->figures);
        series_free(&entry->series);
        curves_free(entry->curves);
        strings_free(&entry->reasons);
        strings_free(&entry->notes);
    }
    for (size_t i = 0; i < comparison->group_count; i++) {
        free(comparison->groups[i].entries);
        free(comparison->groups[i].shown);
    }
    free(comparison->entries);
    free(comparison->groups);
    strings_free(&comparison->chart_files);
    free(comparison->chart_problem);
    memset(comparison, 0, sizeof(*comparison));
}

/* ---- over the runs of a sink ---- */

struct spread group_spread(const struct group *group, const char *format, ...)
{
    struct buf key = {0};
    va_list args;
    va_start(args, format);
    buf_vprintf(&key, format, args);
    va_end(args);
    double *values = xcalloc(group->shown_count + 1, sizeof(double));
    for (size_t i = 0; i < group->shown_count; i++)
        values[i] = figures_get(&group->shown[i]->figures, "%s", key.data);
    struct spread spread = stats_spread(values, group->shown_count);
    free(values);
    buf_free(&key);
    return spread;
}

struct audit group_audit(const struct group *group, size_t *uncounted)
{
    struct audit sum = {.verdict = AUDIT_PASS};
    *uncounted = 0;
    for (size_t i = 0; i < group->count; i++) {
        const struct audit *audit = &group->entries[i]->audit;
        if (!audit->counted) {
            (*uncounted)++;
            continue;
        }
        sum.counted = true;
        sum.acknowledged += audit->acknowledged;
        sum.committed += audit->committed;
        sum.dead += audit->dead;
        sum.not_drained += audit->not_drained;
        sum.redelivered += audit->redelivered;
        sum.conflicts += audit->conflicts;
        sum.unknown_arrived += audit->unknown_arrived;
        sum.unknown_absent += audit->unknown_absent;
        for (int kind = 0; kind < AUDIT_BAD_COUNT; kind++)
            sum.bad[kind].count += audit->bad[kind].count;
    }
    return sum;
}

/* ---- the report ---- */

static void fill_result(const struct comparison *comparison, struct report_result *result)
{
    result->runs = (unsigned)comparison->count;
    result->charts = (unsigned)comparison->chart_files.count;
    for (size_t i = 0; i < comparison->count; i++) {
        const struct entry *entry = &comparison->entries[i];
        result->in_verdict += entry->reasons.count == 0;
        result->failed += entry->audit.verdict == AUDIT_FAIL;
        result->voided += entry->audit.verdict == AUDIT_VOID && !entry->audit.control;
    }
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct group *group = &comparison->groups[i];
        bool met = group->counting > 0 && group_spread(group, "sla.met").min == 1;
        result->sla_missed += !group->control && !met;
        sentence_of(group, &result->summary, false);
        buf_putc(&result->summary, '\n');
    }
    sentence_of_order(comparison, &result->summary, false);
}

static int write_file(const char *dir, const char *name, struct buf *text, struct err *err)
{
    char *path = xasprintf("%s/%s", dir, name);
    int result = file_write(path, text->data, text->len, err);
    free(path);
    buf_free(text);
    return result;
}

int report_comparison(const char *comparison_dir, struct report_result *result, struct err *err)
{
    struct comparison comparison;
    struct buf text = {0}, page = {0};
    memset(result, 0, sizeof(*result));
    int code = comparison_load(&comparison, comparison_dir, err);
    if (code < 0)
        goto out;
    code = charts_draw(&comparison, err);
    if (code < 0)
        goto out;
    compare_json(&comparison, &text);
    code = write_file(comparison_dir, "compare.json", &text, err);
    if (code < 0)
        goto out;
    compare_markdown(&comparison, &text);
    compare_html(&comparison, text.data, &page);
    code = write_file(comparison_dir, "compare.md", &text, err);
    if (code == 0)
        code = write_file(comparison_dir, "compare.html", &page, err);
    if (code < 0)
        goto out;
    fill_result(&comparison, result);
out:
    buf_free(&page);
    comparison_free(&comparison);
    return code;
}

void report_result_free(struct report_result *result)
{
    buf_free(&result->summary);
    memset(result, 0, sizeof(*result));
}

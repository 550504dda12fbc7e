#include "background.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "lines.h"

enum { WORKS_MAX = 8192, SLACK_US = 2000000 };

const struct background_kind background_kinds[BACKGROUND_KINDS] = {
    {"main-db", "checkpoint", NULL, {"checkpoints", NULL}, NULL, true},
    {"main-db", "vacuum", NULL, {"autovacuums", NULL}, NULL, false},
    {"api", "segment-rotation", "wal", {"rotations", NULL}, NULL, true},
    {"sink", "checkpoint", "ingest", {"checkpoints_timed", "checkpoints_requested"}, NULL, true},
    {"sink", "vacuum", "ingest", {"autovacuums", NULL}, NULL, false},
    {"sink", "aof-rewrite", "valkey", {"aof_rewrites", NULL}, "aof_rewrite_in_progress", true},
    {"sink", "raft-rollover", "rabbit", {"raft_rollovers", NULL}, NULL, true},
};

bool background_applies(const struct background_kind *kind, const char *sink)
{
    return !kind->sink || strcmp(kind->sink, sink) == 0;
}

/* ---- events ---- */

static struct work *add_work(struct run *run, const char *who, const char *what, int64_t begin_us,
                             int64_t end_us)
{
    if (run->work_count == WORKS_MAX)
        return NULL;
    array_grow((void **)&run->works, &run->work_capacity, run->work_count, sizeof(*run->works));
    struct work *work = &run->works[run->work_count++];
    *work = (struct work){
        .who = xstrdup(who), .what = xstrdup(what), .begin_us = begin_us, .end_us = end_us};
    return work;
}

bool background_on_forced(struct run *run, int64_t ts_us, const cJSON *event)
{
    const char *who = json_text(event, "who"), *what = json_text(event, "what");
    const char *state = json_text(event, "state");
    if (!*who || !*what)
        return false;
    if (strcmp(state, "begin") == 0) {
        struct work *work = add_work(run, who, what, ts_us, INT64_MAX);
        if (work)
            work->forced = true;
        return work != NULL;
    }
    for (size_t i = 0; strcmp(state, "end") == 0 && i < run->work_count; i++) {
        struct work *work = &run->works[i];
        if (work->forced && work->end_us == INT64_MAX && work->begin_us <= ts_us &&
            strcmp(work->who, who) == 0 && strcmp(work->what, what) == 0) {
            work->end_us = ts_us;
            work->gave_up = cJSON_IsTrue(json_get(event, "gave_up"));
            return true;
        }
    }
    return false;
}

/* The sum of a kind's counters; NAN when one is missing. */
static double total_of(const struct background_kind *kind, const cJSON *event)
{
    double total = json_number(event, kind->counters[0]);
    return kind->counters[1] ? total + json_number(event, kind->counters[1]) : total;
}

static void sample_kind(struct run *run, size_t index, int64_t ts_us, double total, bool going_on)
{
    const struct background_kind *kind = &background_kinds[index];
    struct work_track *track = &run->tracks[index];
    if (!(total >= 0) || ts_us < track->ts_us)
        return;
    if (track->samples++ > 0) {
        /* A part that was started again counts from 0. */
        double count = total >= track->total ? total - track->total : total;
        struct work *last =
            track->last > 0 && going_on && count == 0 ? &run->works[track->last - 1] : NULL;
        if (last && last->end_us == track->ts_us) {
            last->end_us = ts_us;
        } else if (count > 0) {
            struct work *work = add_work(run, kind->who, kind->what, track->ts_us, ts_us);
            track->last = work ? run->work_count : 0;
            if (work) {
                work->count = count;
                work->seen_us = track->ts_us + (ts_us - track->ts_us) / 2;
            }
        }
    }
    track->ts_us = ts_us;
    track->total = total;
}

/* The runner looks at the main DB right before the load, too: what it had it do until then (a
 * checkpoint) is none of the load's. runner.jsonl is read before sampler.jsonl. */
static void sample_begin(struct run *run, size_t index, int64_t ts_us)
{
    const struct main_rows *begin = &run->main_begin;
    const char *counter = background_kinds[index].counters[0];
    if (run->tracks[index].ts_us < begin->ts_us && begin->ts_us <= ts_us)
        sample_kind(run, index, begin->ts_us,
                    strcmp(counter, "checkpoints") == 0 ? begin->checkpoints : begin->autovacuums,
                    false);
}

void background_on_sample(struct run *run, int64_t ts_us, const cJSON *event, bool main_db)
{
    for (size_t i = 0; i < BACKGROUND_KINDS; i++) {
        const struct background_kind *kind = &background_kinds[i];
        if ((strcmp(kind->who, "main-db") == 0) != main_db ||
            !background_applies(kind, run->manifest.sink ? run->manifest.sink : ""))
            continue;
        if (main_db)
            sample_begin(run, i, ts_us);
        sample_kind(run, i, ts_us, total_of(kind, event),
                    kind->gauge && json_number(event, kind->gauge) > 0);
    }
}

/* ---- figures ---- */

static bool is_of(const struct work *work, const char *who, const char *what)
{
    return strcmp(work->who, who) == 0 && strcmp(work->what, what) == 0;
}

/* What was forced and shows in a counter as well must not count as natural: each takes one away
 * from a rise that was seen about then. */
static void take_forced(const struct run *run, const struct background_kind *kind, double *natural)
{
    for (size_t i = 0; i < run->work_count; i++) {
        const struct work *forced = &run->works[i];
        if (!forced->forced || forced->gave_up || !is_of(forced, kind->who, kind->what))
            continue;
        for (size_t k = 0; k < run->work_count; k++) {
            const struct work *seen = &run->works[k];
            bool same_time =
                seen->end_us >= forced->begin_us && (forced->end_us > INT64_MAX - SLACK_US ||
                                                     seen->begin_us <= forced->end_us + SLACK_US);
            if (seen->forced || natural[k] < 1 || !is_of(seen, kind->who, kind->what) || !same_time)
                continue;
            natural[k]--;
            break;
        }
    }
}

static void count_kind(struct figures *figures, const struct run *run, const char *who,
                       const char *what, bool counted, const double *natural)
{
    const struct manifest *manifest = &run->manifest;
    int64_t begin_us, end_us;
    double forced_count = 0, natural_count = 0;
    figures_phase_span(manifest, figures_steady(manifest), &begin_us, &end_us);
    for (size_t i = 0; i < run->work_count; i++) {
        const struct work *work = &run->works[i];
        if (!is_of(work, who, what))
            continue;
        if (work->forced)
            forced_count += !work->gave_up && work->begin_us < end_us && work->end_us >= begin_us;
        else if (work->seen_us >= begin_us && work->seen_us < end_us)
            natural_count += natural[i];
    }
    figures_set(figures, forced_count, "background.%s.%s.forced", who, what);
    if (counted)
        figures_set(figures, natural_count, "background.%s.%s.natural", who, what);
}

static void copy_works(struct series *series, const struct run *run, const double *natural)
{
    double run_s = (double)(run->manifest.end_us - run->manifest.start_us) / 1e6;
    series->work_begin_s = xcalloc(run->work_count + 1, sizeof(double));
    series->work_end_s = xcalloc(run->work_count + 1, sizeof(double));
    for (size_t i = 0; i < run->work_count; i++) {
        const struct work *work = &run->works[i];
        if (!work->forced && natural[i] <= 0)
            continue;
        double begin_s = (double)(work->begin_us - run->manifest.start_us) / 1e6;
        double end_s = work->end_us == INT64_MAX
                           ? run_s
                           : (double)(work->end_us - run->manifest.start_us) / 1e6;
        if (end_s < 0 || begin_s > run_s)
            continue;
        series->work_begin_s[series->works] = fmax(begin_s, 0);
        series->work_end_s[series->works++] = fmin(end_s, run_s);
    }
}

void figures_background(struct figures *figures, struct series *series, const struct run *run)
{
    const char *sink = run->manifest.sink;
    double *natural = xcalloc(run->work_count + 1, sizeof(double));
    for (size_t i = 0; i < run->work_count; i++)
        natural[i] = run->works[i].count;
    for (size_t i = 0; i < BACKGROUND_KINDS; i++) {
        const struct background_kind *kind = &background_kinds[i];
        if (kind->counts_forced)
            take_forced(run, kind, natural);
        if (background_applies(kind, sink))
            count_kind(figures, run, kind->who, kind->what, run->tracks[i].samples > 1, natural);
    }
    for (size_t i = 0; i < run->work_count; i++) { /* forced ones that no kind speaks of */
        const struct work *work = &run->works[i];
        if (isnan(figures_get(figures, "background.%s.%s.forced", work->who, work->what)))
            count_kind(figures, run, work->who, work->what, false, natural);
    }
    copy_works(series, run, natural);
    free(natural);
}

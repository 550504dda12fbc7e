/* What a client saw, by the time each request was due: the SLA verdict, latencies by phase, totals.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "figures.h"
#include "lines.h"

static double latency_ms(const struct ledger_row *row)
{
    /* The ledger is whole or the run is void, so that an event lost to damage loses no sample. */
    return isnan(row->latency_ms) ? (double)(row->done_us - row->due_us) / 1e3 : row->latency_ms;
}

static double service_ms(const struct ledger_row *row)
{
    return isnan(row->service_ms) ? (double)(row->done_us - row->sent_us) / 1e3 : row->service_ms;
}

/* ---- by phase ---- */

/* The kinds of latency, each of one population: a phase, or a part of the steady phase. */
struct group {
    struct samples api, service, durable, age;
    size_t not_202, durable_missing, age_missing;
};

static void group_add(struct group *group, const struct ledger_row *row)
{
    if (row->outcome != OUTCOME_DURABLE) {
        group->not_202++;
        samples_miss(&group->api);
        return;
    }
    samples_add(&group->api, latency_ms(row));
    samples_add(&group->service, service_ms(row));
    if (isnan(row->durable_ms))
        group->durable_missing++;
    else
        samples_add(&group->durable, row->durable_ms);
    if (isnan(row->age_ms))
        group->age_missing++;
    else
        samples_add(&group->age, row->age_ms);
}

/* An empty population gets no figures but for the api's n. */
static void group_end(struct figures *figures, struct group *group, const char *name)
{
    const struct {
        const char *kind;
        struct samples *samples;
    } kinds[] = {{"api", &group->api},
                 {"service", &group->service},
                 {"durable", &group->durable},
                 {"age", &group->age}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        char *prefix = xasprintf("%s.%s", kinds[i].kind, name);
        if (i == 0 || kinds[i].samples->count)
            figures_percentiles(figures, prefix, kinds[i].samples);
        free(prefix);
        samples_free(kinds[i].samples);
    }
    figures_set(figures, (double)group->not_202, "api.%s.not_202", name);
    figures_set(figures, (double)group->durable_missing, "durable.%s.missing", name);
    figures_set(figures, (double)group->age_missing, "age.%s.missing", name);
}

static void by_phase(struct figures *figures, const struct run *run)
{
    const struct ledger *ledger = &run->ledger;
    struct group *groups = xcalloc(ledger->phase_count + 1, sizeof(*groups));
    struct group all = {0}, faults = {0};
    for (size_t i = 0; i < ledger->count; i++) {
        const struct ledger_row *row = &ledger->rows[i];
        if (row->source != 0) /* the runner's own probes are no load */
            continue;
        group_add(&groups[row->phase], row);
        group_add(&all, row);
        if (run_in_fault(run, row->due_us))
            group_add(&faults, row);
    }
    for (size_t i = 0; i < ledger->phase_count; i++)
        if (groups[i].api.count + groups[i].api.misses)
            group_end(figures, &groups[i], ledger->phases[i]);
    if (faults.api.count + faults.api.misses)
        group_end(figures, &faults, "(in faults)");
    group_end(figures, &all, "(all)");
    free(groups);
}

/* ---- the SLA ---- */

static int compare_due(const void *left, const void *right)
{
    const struct ledger_row *a = *(const struct ledger_row *const *)left,
                            *b = *(const struct ledger_row *const *)right;
    return (a->due_us > b->due_us) - (a->due_us < b->due_us);
}

/* The rows of ledger.tsv in the order in which they were due; free it. */
static const struct ledger_row **rows_by_due(const struct run *run, size_t *count)
{
    const struct ledger_row **rows = xcalloc(run->ledger.count + 1, sizeof(struct ledger_row *));
    *count = 0;
    for (size_t i = 0; i < run->ledger.count; i++)
        if (run->ledger.rows[i].source == 0)
            rows[(*count)++] = &run->ledger.rows[i];
    qsort(rows, *count, sizeof(struct ledger_row *), compare_due);
    return rows;
}

static void sla_add(struct samples *samples, const struct ledger_row *row)
{
    if (row->outcome == OUTCOME_DURABLE)
        samples_add(samples, latency_ms(row));
    else
        samples_miss(samples);
}

/* The seconds of the steady phase, faults and all: the worst one, and how many were over the limit.
 */
static void sla_seconds(struct figures *figures, const struct run *run,
                        const struct ledger_row *const *rows, size_t count, const char *steady)
{
    double worst = -1, worst_at = 0;
    unsigned over = 0, seconds = 0;
    for (size_t i = 0; i < count;) {
        int64_t second = (rows[i]->due_us - run->manifest.start_us) / 1000000;
        struct samples samples = {0};
        for (; i < count && (rows[i]->due_us - run->manifest.start_us) / 1000000 == second; i++)
            if (strcmp(run->ledger.phases[rows[i]->phase], steady) == 0)
                sla_add(&samples, rows[i]);
        double p99 = samples_percentile(&samples, 990);
        samples_free(&samples);
        if (isnan(p99))
            continue;
        seconds++;
        over += p99 > run->manifest.api_p99_ms;
        if (p99 > worst) {
            worst = p99;
            worst_at = (double)second;
        }
    }
    figures_set(figures, seconds, "sla.seconds");
    figures_set(figures, over, "sla.seconds_over");
    if (seconds) {
        figures_set(figures, worst, "sla.worst_second_p99_ms");
        figures_set(figures, worst_at, "sla.worst_second_at_s");
    }
}

static void sla(struct figures *figures, const struct run *run,
                const struct ledger_row *const *rows, size_t count)
{
    const struct manifest *manifest = &run->manifest;
    const char *steady = manifest->phases[figures_steady(manifest)].name;
    struct samples outside = {0}, through = {0};
    for (size_t i = 0; i < count; i++) {
        if (strcmp(run->ledger.phases[rows[i]->phase], steady) != 0)
            continue;
        sla_add(&through, rows[i]);
        if (!run_in_fault(run, rows[i]->due_us))
            sla_add(&outside, rows[i]);
    }
    double p99 = samples_percentile(&outside, 990);
    double p50 = samples_percentile(&outside, 500);
    figures_set(figures, manifest->api_p99_ms, "sla.limit_ms");
    figures_set(figures, (double)(outside.count + outside.misses), "sla.n");
    figures_set(figures, (double)outside.misses, "sla.not_202");
    figures_set(figures, p50, "sla.p50_ms");
    figures_set(figures, p99, "sla.p99_ms");
    figures_set(figures, samples_percentile(&outside, 1000), "sla.max_ms");
    figures_set(figures, p99 <= manifest->api_p99_ms ? 1 : 0, "sla.met"); /* no sample: not met */
    figures_set(figures, (double)(through.count + through.misses), "sla.through_faults_n");
    figures_set(figures, (double)through.misses, "sla.through_faults_not_202");
    figures_set(figures, samples_percentile(&through, 990), "sla.through_faults_p99_ms");
    if (isfinite(p99) && p50 > 0)
        figures_set(figures, p99 / p50, "tail.api");
    samples_free(&outside);
    samples_free(&through);
    sla_seconds(figures, run, rows, count, steady);
}

/* ---- by second, for the chart ---- */

static void by_second(struct series *series, const struct run *run,
                      const struct ledger_row *const *rows, size_t count)
{
    const struct manifest *manifest = &run->manifest;
    double load_s = (double)(manifest->load_end_us - manifest->start_us) / 1e6;
    series->seconds = (size_t)ceil(load_s);
    series->p50_ms = xcalloc(series->seconds + 1, sizeof(double));
    series->p99_ms = xcalloc(series->seconds + 1, sizeof(double));
    size_t at = 0;
    while (at < count && rows[at]->due_us < manifest->start_us)
        at++;
    for (size_t second = 0; second < series->seconds; second++) {
        struct samples samples = {0};
        int64_t end_us = manifest->start_us + ((int64_t)second + 1) * 1000000;
        for (; at < count && rows[at]->due_us < end_us; at++) {
            /* A quick refusal must not look like a quick answer. */
            double ms = latency_ms(rows[at]);
            bool durable = rows[at]->outcome == OUTCOME_DURABLE;
            samples_add(&samples, durable ? ms : fmax(ms, manifest->timeout_ms));
        }
        series->p50_ms[second] = samples_percentile(&samples, 500);
        series->p99_ms[second] = samples_percentile(&samples, 990);
        samples_free(&samples);
    }
}

/* ---- totals ---- */

/* Does the phase a request carries fit the time it was due? 50 ms for rounding and a late begin. */
static bool fits_phase(const struct run *run, const struct ledger_row *row)
{
    const struct manifest *manifest = &run->manifest;
    double at_ms = (double)(row->due_us - manifest->start_us) / 1e3, begin_ms = 0;
    for (size_t i = 0; i < manifest->phase_count; i++) {
        double end_ms = begin_ms + manifest->phases[i].for_ms;
        if (at_ms >= begin_ms - 50 && at_ms <= end_ms + 50 &&
            strcmp(manifest->phases[i].name, run->ledger.phases[row->phase]) == 0)
            return true;
        begin_ms = end_ms;
    }
    return false;
}

static void totals(struct figures *figures, const struct run *run)
{
    size_t outcomes[OUTCOME_COUNT] = {0}, codes[1000] = {0}, due = 0, sent = 0, misplaced = 0;
    const struct manifest *manifest = &run->manifest;
    for (size_t i = 0; i < run->ledger.count; i++) {
        const struct ledger_row *row = &run->ledger.rows[i];
        if (row->source != 0)
            continue;
        due++;
        sent += row->sent_us != 0;
        outcomes[row->outcome]++;
        codes[row->code]++;
        misplaced += !fits_phase(run, row);
    }
    figures_set(figures, (double)due, "totals.due");
    figures_set(figures, (double)sent, "totals.sent");
    for (int i = 0; i < OUTCOME_COUNT; i++)
        figures_set(figures, (double)outcomes[i], "totals.%s", outcome_names[i]);
    for (int code = 0; code < 1000; code++)
        if (codes[code])
            figures_set(figures, (double)codes[code], "totals.code_%d", code);
    figures_set(figures, (double)misplaced, "totals.misplaced_in_phase");
    double seconds = (double)(manifest->load_end_us - manifest->start_us) / 1e6;
    figures_set(figures, (double)outcomes[OUTCOME_DURABLE] / seconds, "totals.durable_per_s");
}

void figures_latency(struct figures *figures, struct series *series, const struct run *run)
{
    size_t count;
    const struct ledger_row **rows = rows_by_due(run, &count);
    sla(figures, run, rows, count);
    by_phase(figures, run);
    by_second(series, run, rows, count);
    totals(figures, run);
    const char *steady = run->manifest.phases[figures_steady(&run->manifest)].name;
    double p50 = figures_get(figures, "durable.%s.p50_ms", steady);
    if (p50 > 0)
        figures_set(figures, figures_get(figures, "durable.%s.p99_ms", steady) / p50,
                    "tail.durable");
    free(rows);
}

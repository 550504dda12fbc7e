/* May a run count? Each rule says in words which limit was passed, so that a reader can check it.
 */
#include <math.h>
#include <string.h>

#include "compare.h"

const double GATE_RATE_MISSED_PCT = 1;
const double GATE_LATENESS_P99_MS = 5;
const double GATE_HOST_OTHER_PCT = 15;
const double GATE_HOST_STEAL_PCT = 5;
const double GATE_CLOCK_STEP_MS = 100;

static const double FLUSH_IMPLAUSIBLE_MS = 0.02; /* docs/method.md says why */
static const double FLUSH_DRIFT = 2;

static const struct lateness *find_lateness(const struct run *run, const char *phase)
{
    for (size_t i = 0; i < run->lateness_count; i++)
        if (strcmp(run->lateness[i].phase, phase) == 0)
            return &run->lateness[i];
    return NULL;
}

/* The generator's own account, phase by phase. One that is missing is no proof that all was well.
 */
static void gate_generator(struct entry *entry)
{
    const struct manifest *manifest = &entry->run.manifest;
    double worst_missed = 0, worst_late = 0;
    for (size_t i = 0; i < manifest->phase_count; i++) {
        const struct manifest_phase *phase = &manifest->phases[i];
        double wanted = manifest->rps * phase->rate * phase->for_ms / 1e3;
        if (wanted < 1)
            continue;
        const struct lateness *late = find_lateness(&entry->run, phase->name);
        if (!late || isnan(late->planned) || isnan(late->on_time) || isnan(late->own_p99_ms)) {
            strings_add(&entry->reasons,
                        "the load generator left no (whole) record of its own lateness in phase %s",
                        phase->name);
            continue;
        }
        /* Its plan is what it owes, unless that is not the scenario's (but for rounding). */
        double owed = fabs(late->planned - wanted) <= 1 ? late->planned : wanted;
        double missed = 100 * (1 - late->on_time / owed);
        worst_missed = fmax(worst_missed, missed);
        worst_late = fmax(worst_late, late->own_p99_ms);
        if (missed > GATE_RATE_MISSED_PCT)
            strings_add(&entry->reasons,
                        "the load generator missed its rate in phase %s by %.1f %% (limit %.0f %%)",
                        phase->name, missed, GATE_RATE_MISSED_PCT);
        if (late->own_p99_ms > GATE_LATENESS_P99_MS)
            strings_add(
                &entry->reasons,
                "the load generator was late by itself in phase %s: p99 %.1f ms (limit %.0f "
                "ms)",
                phase->name, late->own_p99_ms, GATE_LATENESS_P99_MS);
    }
    figures_set(&entry->figures, worst_missed, "gate.rate_missed_pct");
    figures_set(&entry->figures, worst_late, "gate.own_lateness_p99_ms");
}

static void gate_host(struct entry *entry)
{
    double other = figures_get(&entry->figures, "host.other_pct");
    double steal = figures_get(&entry->figures, "host.steal_pct");
    if (isnan(other))
        strings_add(&entry->reasons, "nothing tells how busy the host was with other work");
    if (other > GATE_HOST_OTHER_PCT)
        strings_add(
            &entry->reasons,
            "the host was busy with other work: %.1f %% of its cores on average (limit %.0f "
            "%%)",
            other, GATE_HOST_OTHER_PCT);
    if (steal > GATE_HOST_STEAL_PCT)
        strings_add(&entry->reasons,
                    "the hypervisor took %.1f %% of the cores on average (limit %.0f %%)", steal,
                    GATE_HOST_STEAL_PCT);
    if (entry->run.before_busy_pct > GATE_HOST_OTHER_PCT)
        strings_add(&entry->reasons,
                    "the host was busy with other work before the run: %.1f %% of its cores (limit "
                    "%.0f %%)",
                    entry->run.before_busy_pct, GATE_HOST_OTHER_PCT);
}

/* Times of different processes are compared by the wall clock. A clock that is steered runs at most
 * 0.05 % too fast or too slow. */
static void gate_clock(struct entry *entry)
{
    const struct run *run = &entry->run;
    double allowed_ms = GATE_CLOCK_STEP_MS + 0.5 * run->clock_over_s;
    if (fabs(run->clock_ahead_ms) > allowed_ms)
        strings_add(&entry->reasons,
                    "the clock was set during the run, by %.0f ms in all (limit %.0f ms)",
                    run->clock_ahead_ms, allowed_ms);
    if (run->clock_steps > 0)
        strings_add(&entry->reasons,
                    "the clock was set during the run: the times of %lld requests differ by over "
                    "%.0f ms from how long they took",
                    (long long)run->clock_steps, GATE_CLOCK_STEP_MS);
}

/* Did this fault of the scenario happen? Two that overlap on one part are one window; and it begins
 * as soon as the runner comes to it, which with a container engine takes longer. */
static bool fault_happened(const struct run *run, const cJSON *fault)
{
    double at_ms = json_number(fault, "at_ms");
    int64_t due_us = run->manifest.start_us + (isnan(at_ms) ? 0 : llround(at_ms * 1e3));
    int64_t patience_us = manifest_in_containers(&run->manifest) ? 10000000 : 2000000;
    for (size_t i = 0; i < run->window_count; i++)
        if (run->windows[i].begin_us <= due_us + patience_us && run->windows[i].end_us >= due_us)
            return true;
    return false;
}

static void gate_faults(struct entry *entry)
{
    const struct run *run = &entry->run;
    for (size_t i = 0; i < run->window_count; i++)
        if (run->windows[i].end_us == INT64_MAX)
            strings_add(&entry->reasons,
                        "the fault \"%s %s\" has no end: no \"recovered\" follows it",
                        run->windows[i].what, run->windows[i].who);
    const cJSON *faults = json_get(run->manifest.scenario_json, "faults"), *fault;
    cJSON_ArrayForEach(fault, faults)
    {
        if (!fault_happened(run, fault))
            strings_add(
                &entry->reasons, "no event tells of the scenario's fault \"%s %s\" at %.0f s",
                json_text(fault, "do"), json_text(fault, "who"), json_number(fault, "at_ms") / 1e3);
    }
    if (run->window_count > (size_t)cJSON_GetArraySize(faults))
        strings_add(&entry->notes,
                    "%zu faults, of which the scenario holds %d: the others came from "
                    "outside",
                    run->window_count, cJSON_GetArraySize(faults));
}

/* ---- notes ---- */

/* "sampler.jsonl" or "sampler-2.jsonl", but not that of a pod, "sampler-api-1.jsonl". */
static bool is_samplers(const char *name)
{
    return strncmp(name, "sampler.", 8) == 0 ||
           (strncmp(name, "sampler-", 8) == 0 && name[8] >= '0' && name[8] <= '9');
}

static void note_files(struct entry *entry)
{
    const struct run *run = &entry->run;
    bool api = false, loadgen = false, worker = false, sampler = false;
    for (size_t i = 0; i < run->file_count; i++) {
        const struct event_file *file = &run->files[i];
        api = api || strncmp(file->name, "api", 3) == 0;
        loadgen = loadgen || strncmp(file->name, "loadgen", 7) == 0;
        worker = worker || strncmp(file->name, "worker", 6) == 0;
        sampler = sampler || is_samplers(file->name);
        if (file->unreadable)
            strings_add(&entry->notes, "%s", file->unreadable);
        if (file->half)
            strings_add(&entry->notes,
                        "%s ends in half a line, as a killed process leaves it: skipped",
                        file->name);
        if (file->damaged)
            strings_add(
                &entry->notes,
                "%s: %lld damaged lines skipped, the first is line %lld; figures from it are "
                "incomplete",
                file->name, (long long)file->damaged, (long long)file->first_damaged);
    }
    if (!loadgen)
        strings_add(&entry->notes, "loadgen.jsonl is missing: latencies are the ledger's");
    if (!api)
        strings_add(&entry->notes, "api-*.jsonl is missing: no durable latencies");
    if (!worker && (run->manifest.drains || run->manifest_err.code))
        strings_add(&entry->notes, "worker-*.jsonl is missing: no figures of commits");
    if (!sampler)
        strings_add(&entry->notes, "sampler.jsonl is missing: no backlog, no figures of resources");
}

/* A disk that answers faster than any can, or that was another one at the end. */
static void note_flushes(struct entry *entry)
{
    double before = figures_get(&entry->figures, "flush.before_p50_ms");
    double after = figures_get(&entry->figures, "flush.after_p50_ms");
    if (before < FLUSH_IMPLAUSIBLE_MS)
        strings_add(&entry->notes,
                    "WARNING: a flush took %.0f us (median), less than a disk can do it in: what "
                    "was called durable may not survive power loss",
                    before * 1e3);
    if (before > 0 && after > 0 && fmax(before / after, after / before) > FLUSH_DRIFT)
        strings_add(&entry->notes,
                    "the disk changed meanwhile: a flush took %.2f ms before the run and %.2f ms "
                    "after it (medians)",
                    before, after);
}

static void note_figures(struct entry *entry)
{
    const struct figures *figures = &entry->figures;
    double missing = figures_get(figures, "durable.(all).missing");
    if (missing > 0 && missing < figures_get(figures, "totals.durable"))
        strings_add(&entry->notes,
                    "%.0f acknowledged tasks have no durable event: left out of those "
                    "latencies",
                    missing);
    missing = figures_get(figures, "age.(all).missing");
    if (entry->run.manifest.drains && missing > 0 && entry->run.batch_count)
        strings_add(&entry->notes,
                    "%.0f acknowledged tasks have no committed event (a worker killed "
                    "after its commit leaves such): left out of the ages",
                    missing);
    if (entry->run.disagreements)
        strings_add(&entry->notes, "%lld api_latency events contradict the ledger",
                    (long long)entry->run.disagreements);
    if (entry->run.strangers)
        strings_add(&entry->notes, "%lld events are about tasks that no ledger knows",
                    (long long)entry->run.strangers);
    missing = figures_get(figures, "backlog.missing");
    if (missing > 0)
        strings_add(&entry->notes, "%.0f backlog samples could not be read", missing);
    for (size_t i = 0; i < entry->run.part_count; i++)
        if (entry->run.parts[i].rss_is_bound)
            strings_add(
                &entry->notes,
                "the memory of %s is an upper bound: its shared pages could not be told apart",
                entry->run.parts[i].who);
    bool main_killed = false;
    for (size_t i = 0; i < entry->run.window_count; i++)
        main_killed = main_killed || (strcmp(entry->run.windows[i].who, "main-db") == 0 &&
                                      strcmp(entry->run.windows[i].what, "kill") == 0);
    if (main_killed && !isnan(figures_get(figures, "row_sleeps.total")))
        strings_add(&entry->notes,
                    "the main DB was killed: its count of row sleeps is only about right");
    if (figures_get(figures, "recovery.back_to_rate") == 0)
        strings_add(&entry->notes,
                    "commits did not come back to the rate before a fault while the run lasted");
    double misplaced = figures_get(figures, "totals.misplaced_in_phase");
    if (misplaced > 0)
        strings_add(&entry->notes, "%.0f requests carry a phase that their due time does not fit",
                    misplaced);
}

void gates_check(struct entry *entry)
{
    const struct run *run = &entry->run;
    if (run->manifest_err.code) {
        strings_add(&entry->reasons, "%s", run->manifest_err.text);
    } else if (strcmp(run->manifest.outcome, "complete") != 0) {
        strings_add(&entry->reasons, "the run is %s%s%s", run->manifest.outcome,
                    *run->manifest.why ? ": " : "", run->manifest.why);
    }
    if (entry->audit.verdict == AUDIT_VOID)
        strings_add(&entry->reasons, "its audit is void: %s", entry->audit.why);
    if (cJSON_IsTrue(json_get(run->manifest.json, "neighbours")))
        strings_add(&entry->reasons,
                    "another sluice ran on this machine meanwhile: its load is in these figures");
    /* Of one that is interrupted it may be at work still, and why it is has been said. */
    bool interrupted = !run->manifest_err.code && strcmp(run->manifest.outcome, "interrupted") == 0;
    if (run->load_began && !run->load_ended && !interrupted)
        strings_add(&entry->reasons,
                    "the load generator was killed before its load was over: the run is void");
    note_files(entry);
    if (!entry->has_figures)
        return;
    gate_generator(entry);
    gate_host(entry);
    gate_clock(entry);
    gate_faults(entry);
    note_flushes(entry);
    note_figures(entry);
}

#include "run.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "given.h"
#include "keeper.h"
#include "state.h"

enum { READY_MS = 60000 };

void run_say(const struct one_run *run, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (isatty(STDERR_FILENO)) {
        fputs("\r\033[K", stderr); /* over a live line */
    }
    printf("%s: ", run->request->label);
    vprintf(format, args);
    putchar('\n');
    fflush(stdout);
    va_end(args);
}

void run_event(struct one_run *run, const char *name, const char *what, const char *who)
{
    metrics_begin(&run->event, name);
    metrics_string(&run->event, "what", what);
    metrics_string(&run->event, "who", who);
    metrics_write(run->metrics, &run->event);
    metrics_flush(run->metrics); /* a killed runner leaves what it knew */
}

bool run_progress_due(struct one_run *run)
{
    const struct run_places *places = run->request->places;
    if (!places || places->progress_ns == 0 || clock_mono_ns() < run->progress_due_ns) {
        return false;
    }
    run->progress_due_ns = clock_mono_ns() + places->progress_ns;
    return true;
}

static void look_for_neighbours(struct one_run *run)
{
    run->neighbours = run->neighbours || busy_check();
}

int run_guard(struct one_run *run, struct err *err)
{
    look_for_neighbours(run);
    if (keeper_interrupted()) {
        return err_set(err, -EINTR, "interrupted");
    }
    return hold_check(run->sink_hold, err);
}

/* ---- what both ways begin with ---- */

void run_name_parts(struct one_run *run)
{
    static const char *const names[PART_COUNT] = {
        [PART_API] = "api",         [PART_WORKER] = "worker",   [PART_SINK] = "sink",
        [PART_MAIN_DB] = "main-db", [PART_SAMPLER] = "sampler", [PART_LOADGEN] = "loadgen"};
    const struct run_request *request = run->request;
    for (int i = 0; i < PART_COUNT; i++) {
        struct part *part = &run->parts[i];
        bool ours = !request->places || i == PART_SAMPLER;
        /* On a terminal the generator keeps a live line, which its log would swallow. */
        part->live = i == PART_LOADGEN && ours && isatty(STDERR_FILENO);
        part->id = (enum part_id)i;
        part->who = names[i];
        part->look_at = part->live ? xstrdup("above")
                        : ours     ? xasprintf("%s/logs/%s.log", request->dir, names[i])
                                   : xasprintf("its log (docker compose logs %s)", names[i]);
    }
    if (!(request->driver->flags & SINK_DRAINS)) {
        run->parts[PART_WORKER].who = NULL;
    }
    if (!server_for_sink(request->driver->name) || request->sink_url) {
        run->parts[PART_SINK].who = NULL;
    }
    if (request->main_url) {
        run->parts[PART_MAIN_DB].who = NULL;
    }
}

int run_open_record(struct one_run *run, struct err *err)
{
    char *path = xasprintf("%s/runner.jsonl", run->request->dir);
    int rc = metrics_open(&run->metrics, path, err);
    free(path);
    if (rc < 0) {
        return rc;
    }
    metrics_begin(&run->event, "start");
    metrics_string(&run->event, "role", "runner");
    metrics_string(&run->event, "sink", run->request->driver->name);
    metrics_string(&run->event, "version", SLUICE_VERSION);
    metrics_int(&run->event, "pid", getpid());
    metrics_json(&run->event, "settings", "{}");
    metrics_write(run->metrics, &run->event);
    return metrics_flush(run->metrics);
}

/* ---- the native way ---- */

static int make_folders(struct one_run *run, struct err *err)
{
    static const char *const names[] = {"logs", "pids"};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < 2; i++) {
        char *path = xasprintf("%s/%s", run->request->dir, names[i]);
        rc = file_mkdirs(path, 0755, err);
        free(path);
    }
    return rc;
}

static int start_daemons(struct one_run *run, struct err *err)
{
    static const enum part_id order[] = {PART_API, PART_WORKER, PART_SAMPLER};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < 3; i++) {
        if (run->parts[order[i]].who) {
            rc = part_start(run, order[i], err);
        }
    }
    for (size_t i = 0; rc == 0 && i < 3; i++) {
        if (run->parts[order[i]].who) {
            rc = part_wait_ready(run, order[i], READY_MS, err);
        }
    }
    return rc;
}

static int start_load(struct one_run *run, struct err *err)
{
    int rc = part_start(run, PART_LOADGEN, err);
    if (rc == 0) {
        run->parts[PART_LOADGEN].state = PART_UP;
    }
    return rc;
}

static int load_over(struct one_run *run, struct err *err)
{
    struct part *loadgen = &run->parts[PART_LOADGEN];
    if (!process_ended(&loadgen->process)) {
        return 0;
    }
    int status = loadgen->process.status;
    loadgen->state = PART_FINISHED;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? 1
               : process_obituary(&loadgen->process, "before the load was over", err);
}

static const struct run_way native = {.start_load = start_load,
                                      .load_over = load_over,
                                      .step = faults_step,
                                      .pending = faults_pending};

static int perform(struct one_run *run, struct err *err)
{
    look_for_neighbours(run);
    int rc = state_create(run->request->base, &run->state_dir, err);
    if (rc == 0) {
        rc = manifest_write(run, "interrupted", "the runner was ended before the load", err);
    }
    if (rc == 0) {
        conditions_before(run);
        conditions_flush(run, "begin");
        run_say(run, "starting servers and daemons");
        rc = servers_start_main(run, err);
    }
    if (rc == 0) {
        rc = servers_start_sink(run, err);
    }
    if (rc == 0) {
        rc = start_daemons(run, err);
    }
    if (rc == 0) {
        rc = probe_task(run, err);
    }
    if (rc == 0) {
        rc = servers_settle(run, err);
    }
    if (rc == 0) {
        evidence_count(run, "begin");
        rc = load_drive(run, err);
    }
    if (rc == 0) {
        rc = load_drain(run, err);
    }
    /* A sink that could not be drained is evidence too: what is there is exported all the same. */
    if (rc == 0 || (rc == -ETIMEDOUT && run->load_end_us > 0)) {
        struct err export_err = {0};
        background_end(run);
        part_stop(run, PART_API);
        part_stop(run, PART_WORKER);
        part_stop(run, PART_SAMPLER);
        conditions_clock(run);
        conditions_flush(run, "end");
        int export_rc = evidence_export(run, &export_err);
        evidence_count(run, "end");
        if (rc == 0 && export_rc < 0) {
            rc = err_set(err, export_rc, "%s", export_err.text);
        }
    }
    return rc;
}

/* ---- what both ways end with ---- */

static void release(struct one_run *run)
{
    if (run->probe) {
        run->request->driver->close(run->probe, clock_mono_ns() + NS_PER_S);
    }
    hold_release(run->sink_hold);
    if (!run->request->sink_options) {
        options_free(run->sink_options);
    }
    given_main_close(run->given_main);
    for (size_t i = 0; i < PART_COUNT; i++) {
        free(run->parts[i].listen);
        free(run->parts[i].admin);
        free(run->parts[i].look_at);
    }
    metrics_event_free(&run->event);
    buf_free(&run->sink_lines);
    buf_free(&run->unsafe);
    buf_free(&run->unverified);
    buf_free(&run->servers);
    free(run->state_dir);
}

static int end_record(struct one_run *run, const char *why)
{
    if (!run->metrics) {
        return 0;
    }
    metrics_begin(&run->event, "stop");
    metrics_string(&run->event, "role", "runner");
    metrics_string(&run->event, "why", why);
    metrics_write(run->metrics, &run->event);
    return metrics_close(run->metrics);
}

enum run_outcome run_end(struct one_run *run, int rc, struct err *err)
{
    const struct run_request *request = run->request;
    if (keeper_interrupted()) {
        rc = -EINTR;
    }
    background_end(run);
    run->end_us = clock_wall_us();
    if (rc == 0) {
        rc = hold_check(run->sink_hold, err);
    }
    parts_stop_all(run, rc < 0 || !request->keep_state);
    look_for_neighbours(run);
    enum run_outcome outcome = rc == 0 ? RUN_COMPLETE : rc == -EINTR ? RUN_INTERRUPTED : RUN_FAILED;
    static const char *const outcome_names[] = {"complete", "interrupted", "failed"};
    const char *why = outcome == RUN_COMPLETE ? "" : outcome == RUN_FAILED ? err->text : "a signal";
    struct err late = {0};
    int record_rc = end_record(run, outcome_names[outcome]);
    if (record_rc < 0 && outcome == RUN_COMPLETE) {
        outcome = RUN_FAILED;
        err_set(err, record_rc, "%s/runner.jsonl could not be written", request->dir);
        why = err->text;
    }
    if (manifest_write(run, outcome_names[outcome], why, &late) < 0 && outcome == RUN_COMPLETE) {
        outcome = RUN_FAILED;
        *err = late;
    }
    if (run->state_dir) {
        state_remove(run->state_dir, request->keep_state);
    }
    release(run);
    return outcome;
}

enum run_outcome run_perform(const struct run_request *request, struct err *err)
{
    struct one_run run = {.request = request, .way = &native};
    run_name_parts(&run);
    int rc = make_folders(&run, err);
    if (rc == 0) {
        rc = run_open_record(&run, err);
    }
    if (rc == 0) {
        rc = perform(&run, err);
    }
    return run_end(&run, rc, err);
}

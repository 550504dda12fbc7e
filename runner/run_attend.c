/* The order of things in a run whose parts others start (containers, by hand): they are waited for,
 * known by their addresses and by what they write into the run's folder, and left alone at the end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "keeper.h"
#include "run.h"

enum {
    TICK_MS = 100,
    RECORD_MS = 5000, /* a part that is ready has opened its record */
    GONE_MS = 4000,   /* a part that was restarted is back by then */
    FLUSH_MS = 1500,  /* the parts write what they know once a second or more often */
};

bool run_is_fresh(const char *dir)
{
    char *path = xasprintf("%s/runner.jsonl", dir);
    bool fresh = !file_exists(path);
    free(path);
    return fresh;
}

/* ---- the parts, as they are found ---- */

static void know_server(struct part *part, const char *url)
{
    if (!part->who) {
        return; /* it is given: neither asked for its settings nor told to settle */
    }
    part->state = PART_UP;
    part->server.kind = &server_postgres;
    part->server.replicas = 1;
    part->server.url = xstrdup(url);
    snprintf(part->server.who, sizeof(part->server.who), "%s", part->who);
}

static int know_parts(struct one_run *run, struct err *err)
{
    const struct run_request *request = run->request;
    const struct run_places *places = request->places;
    const struct server_kind *kind = server_for_sink(request->driver->name);
    run->parts[PART_API].listen = xstrdup(places->api);
    run->parts[PART_API].admin = xstrdup(places->api_admin);
    run->parts[PART_WORKER].admin = xstrdup(places->worker_admin);
    run->main_url = options_string(request->sink_options, "main-url");
    run->sink_url = kind ? options_string(request->sink_options, "sink-url") : NULL;
    know_server(&run->parts[PART_MAIN_DB], run->main_url);
    if (kind == &server_postgres) {
        know_server(&run->parts[PART_SINK], run->sink_url);
    }
    return servers_set_sink_options(run, err);
}

static int check_servers(struct one_run *run, struct err *err)
{
    const struct run_request *request = run->request;
    const struct server_kind *kind = server_for_sink(request->driver->name);
    char version[96];
    int rc = servers_check_main(run, err);
    if (rc == 0 && request->main_url) {
        given_describe(run, "main-db", "postgres", run->main_version, run->main_url);
    } else if (rc == 0) {
        rc = servers_describe(run, PART_MAIN_DB, run->main_version, err);
    }
    if (rc == 0) {
        rc = servers_check_sink(run, err);
    }
    if (rc < 0 || !kind) {
        return rc;
    }
    sink_read_version(run, version);
    if (request->sink_url) {
        given_describe(run, "sink", kind->name, version, run->sink_url);
    } else if (run->parts[PART_SINK].server.kind) {
        rc = servers_describe(run, PART_SINK, version, err);
    } else {
        server_describe_by_url(run, "sink", kind->name, version, run->sink_url);
    }
    return rc;
}

/* Before the load, nobody kills parts to see what becomes of them. */
static int part_gone(struct one_run *run, struct part *part, struct err *err)
{
    int64_t now_ns = clock_mono_ns();
    if (!records_are_dead(run->request->dir, part->who)) {
        part->gone_ns = 0;
    } else if (part->gone_ns == 0) {
        part->gone_ns = now_ns;
    } else if (now_ns - part->gone_ns > GONE_MS * NS_PER_MS) {
        return err_set(err, -ECHILD, "%s has ended before the load began; see %s", part->who,
                       part->look_at);
    }
    return 0;
}

/* A part that writes elsewhere would make this run's figures without its own. *path: its record. */
static int wait_record(struct one_run *run, enum part_id id, int64_t wait_ns, char **path,
                       struct err *err)
{
    struct part *part = &run->parts[id];
    int64_t deadline_ns = clock_mono_ns() + wait_ns;
    while (!(*path = live_record(run->request->dir, part->who))) {
        if (keeper_interrupted()) {
            return err_set(err, -EINTR, "interrupted");
        }
        if (part_gone(run, part, err) < 0) {
            return -ECHILD;
        }
        if (clock_mono_ns() > deadline_ns && id == PART_LOADGEN) {
            return err_set(err, -ETIMEDOUT,
                           "%s is not there: no %s-N.jsonl in %s belongs to a living process; see "
                           "%s",
                           part->who, part->who, run->request->dir, part->look_at);
        }
        if (clock_mono_ns() > deadline_ns) {
            return err_set(err, -ESTALE,
                           "%s is ready, but does not write into this run's folder %s: it was "
                           "started for an earlier run, or with another --metrics; start it anew "
                           "(docker compose restart %s)",
                           part->who, run->request->dir, part->who);
        }
        keeper_nap(TICK_MS);
    }
    return 0;
}

static int wait_parts(struct one_run *run, struct err *err)
{
    static const enum part_id ids[] = {PART_API, PART_WORKER};
    int64_t wait_ns = run->request->places->ready_wait_ns;
    char *path;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < 2; i++) {
        if (!run->parts[ids[i]].who) {
            continue;
        }
        rc = part_wait_ready(run, ids[i], (int)(wait_ns / NS_PER_MS), err);
        if (rc == 0 && (rc = wait_record(run, ids[i], RECORD_MS * NS_PER_MS, &path, err)) == 0) {
            free(path);
        }
    }
    if (rc == 0) {
        rc = wait_record(run, PART_LOADGEN, wait_ns, &path, err);
    }
    if (rc == 0) {
        rc = load_watch_open(&run->watch, path, err);
        free(path);
    }
    return rc;
}

/* ---- the load ---- */

static int start_load(struct one_run *run, struct err *err)
{
    char *path = xasprintf("%s/load", run->request->dir);
    char *text = xasprintf("%lld\n", (long long)run->start_us);
    int rc = file_write(path, text, strlen(text), err);
    run->parts[PART_LOADGEN].state = PART_UP;
    run->progress_due_ns = run->load_start_ns + run->request->places->progress_ns;
    free(text);
    free(path);
    return rc;
}

static int load_over(struct one_run *run, struct err *err)
{
    struct load_watch *watch = &run->watch;
    if (load_watch_alive(watch)) {
        return 0;
    }
    load_watch_read(watch, false);
    run->parts[PART_LOADGEN].state = PART_FINISHED;
    if (watch->complete) {
        return 1;
    }
    return err_set(err, -ECHILD,
                   "the load generator ended before the load was over (%s): the run is void; see "
                   "%s",
                   watch->stopped ? watch->why : "it was killed", run->parts[PART_LOADGEN].look_at);
}

/* Who is dead, paused or back is written down by the samplers beside the parts. */
static int step(struct one_run *run, int64_t *next_ns, struct err *err)
{
    (void)err;
    *next_ns = clock_mono_ns() + TICK_MS * NS_PER_MS;
    background_step(run, next_ns);
    if (run->parts[PART_LOADGEN].state == PART_UP && run_progress_due(run)) {
        load_watch_read(&run->watch, false);
        run_say(run, "%.0f s of %.0f: %lld answers, %lld of them 202; worst latency since %.0f ms",
                load_seconds(run), (double)scenario_load_ns(run->request->scenario) / 1e9,
                (long long)run->watch.answers, (long long)run->watch.durable, run->watch.worst_ms);
        run->watch.worst_ms = 0;
    }
    return 0;
}

/* The scenario's faults, when somebody carries them out. */
static bool pending(const struct one_run *run)
{
    const struct scenario *scenario = run->request->scenario;
    for (size_t i = 0; i < scenario->fault_count; i++) {
        const struct scenario_fault *fault = &scenario->faults[i];
        if (run->request->fault_bits >> i & 1 &&
            clock_mono_ns() < run->load_start_ns + fault->at_ns + fault->for_ns) {
            return true;
        }
    }
    return false;
}

static const struct run_way attended = {.start_load = start_load,
                                        .load_over = load_over,
                                        .step = step,
                                        .pending = pending,
                                        .gone = part_gone};

/* ---- the order ---- */

static int begin(struct one_run *run, struct err *err)
{
    int rc = manifest_write(run, "interrupted", "the verdict was ended before the load", err);
    if (rc == 0) {
        rc = know_parts(run, err);
    }
    if (rc == 0 && run->request->sink_url) {
        rc = given_hold_sink(run, err);
    }
    if (rc == 0) {
        run_say(run, "waiting for the parts to be ready");
        rc = wait_parts(run, err);
    }
    if (rc == 0) {
        rc = check_servers(run, err);
    }
    if (rc == 0) {
        rc = probe_task(run, err);
    }
    if (rc == 0) {
        rc = servers_settle(run, err);
    }
    return rc == 0 ? part_start(run, PART_SAMPLER, err) : rc;
}

static int gather(struct one_run *run, struct err *err)
{
    background_end(run);
    keeper_nap(FLUSH_MS);
    part_stop(run, PART_SAMPLER);
    conditions_clock(run);
    int rc = evidence_export(run, err);
    evidence_count(run, "end");
    return rc;
}

/* For whoever waits for the end of the run. */
static void say_over(const struct one_run *run)
{
    static const char text[] = "over\n";
    struct err err = {0};
    char *path = xasprintf("%s/over", run->request->dir);
    if (file_write(path, text, sizeof(text) - 1, &err) < 0) {
        run_say(run, "warning: %s", err.text);
    }
    free(path);
}

enum run_outcome run_attend(const struct run_request *request, struct err *err)
{
    struct one_run run = {.request = request, .way = &attended};
    struct err late = {0};
    run_name_parts(&run);
    int rc = run_open_record(&run, err);
    if (rc == 0) {
        rc = begin(&run, err);
    }
    if (rc == 0) {
        evidence_count(&run, "begin");
        rc = load_drive(&run, err);
    }
    if (rc == 0) {
        rc = load_drain(&run, err);
    }
    /* A sink that could not be drained is evidence too: what is there is exported all the same. */
    if (rc == 0) {
        rc = gather(&run, err);
    } else if (rc == -ETIMEDOUT && run.load_end_us > 0) {
        gather(&run, &late);
    }
    load_watch_close(&run.watch);
    say_over(&run);
    return run_end(&run, rc, err);
}

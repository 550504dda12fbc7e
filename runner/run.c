#include "run.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "given.h"
#include "keeper.h"
#include "maindb/maindb.h"
#include "state.h"

enum {
    READY_MS = 60000,
    LEAD_MS = 1500,    /* from the start of the generator to the start of the load */
    LOAD_GRACE_S = 30, /* past the last phase and the timeout */
    DRAIN_POLL_MS = 250,
    DRAIN_SURE_MS = 600,  /* an exact zero must last this long */
    DRAIN_GUESS_MS = 5000 /* an estimated one this long */
};

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

/* ---- before anything is started ---- */

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

static void name_parts(struct one_run *run)
{
    static const char *const names[PART_COUNT] = {
        [PART_API] = "api",         [PART_WORKER] = "worker",   [PART_SINK] = "sink",
        [PART_MAIN_DB] = "main-db", [PART_SAMPLER] = "sampler", [PART_LOADGEN] = "loadgen"};
    const struct sink_driver *driver = run->request->driver;
    for (int i = 0; i < PART_COUNT; i++) {
        run->parts[i] = (struct part){.id = (enum part_id)i, .who = names[i]};
    }
    if (!(driver->flags & SINK_DRAINS)) {
        run->parts[PART_WORKER].who = NULL;
    }
    if (!server_for_sink(driver->name) || run->request->sink_url) {
        run->parts[PART_SINK].who = NULL;
    }
    if (run->request->main_url) {
        run->parts[PART_MAIN_DB].who = NULL;
    }
}

static int open_record(struct one_run *run, struct err *err)
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

/* ---- settings of the sink ---- */

static int set_option(struct one_run *run, const char *name, const char *text, const char *where,
                      bool as_flag, struct err *err)
{
    if (as_flag) {
        run->settings[run->setting_count++] = (struct sink_setting){name, xstrdup(text)};
    }
    return options_set(run->sink_options, name, text, where, err);
}

/* A folder of its own for each that the driver must have: a sink without a server needs no more. */
static int set_folders(struct one_run *run, struct err *err)
{
    const struct account ourselves = {0};
    int rc = 0;
    for (const struct option_spec *spec = run->request->driver->options;
         rc == 0 && spec && spec->name; spec++) {
        if (spec->type != OPTION_STRING || !spec->required || !spec->unit ||
            strcmp(spec->unit, "DIR") != 0 || options_is_set(run->sink_options, spec->name)) {
            continue;
        }
        char *path;
        rc = state_subdir(run->state_dir, spec->name, &ourselves, &path, err);
        if (rc == 0) {
            rc = set_option(run, spec->name, path, "runner", true, err);
        }
        free(path);
    }
    return rc;
}

static bool has_option(const struct option_spec *table, const char *name)
{
    for (; table && table->name; table++) {
        if (strcmp(table->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static int set_sink_options(struct one_run *run, struct err *err)
{
    const struct scenario *scenario = run->request->scenario;
    const struct sink_driver *driver = run->request->driver;
    run->sink_options = options_new("sluice", "");
    sink_add_options(run->sink_options);
    int rc = set_option(run, "sink", driver->name, "runner", false, err);
    for (size_t i = 0; rc == 0 && i < scenario->sink_count; i++) {
        rc = set_option(run, scenario->sink[i].name, scenario->sink[i].text,
                        scenario->sink[i].place, true, err);
    }
    if (rc == 0 && has_option(driver->options, "main-url")) {
        rc = set_option(run, "main-url", run->main_url, "runner", false, err);
    }
    if (rc == 0 && run->sink_url) {
        rc = set_option(run, "sink-url", run->sink_url, "runner", false, err);
    }
    if (rc == 0) {
        rc = set_folders(run, err);
    }
    const struct sink_driver *selected;
    return rc < 0 ? rc : sink_select(run->sink_options, &selected, err);
}

/* ---- preflight ---- */

/* What a preflight said: 0 to go on. */
static int judge_preflight(struct one_run *run, const char *who, int rc, const struct err *found,
                           struct err *err)
{
    if (rc == 0) {
        return 0;
    }
    char *text = xasprintf("%s: %s", who, found->text);
    if (rc == -ENODATA) {
        run_say(run, "unverified: %s", text);
        json_item(&run->unverified, text);
        rc = 0;
    } else if (rc == -EPERM && run->request->allow_unsafe) {
        run_say(run, "UNSAFE, and allowed by --allow-unsafe: %s", text);
        json_item(&run->unsafe, text);
        rc = 0;
    } else {
        rc = err_set(err, rc, "%s%s", text,
                     rc == -EPERM ? " (--allow-unsafe runs it anyway, and every report says so)"
                                  : "");
    }
    free(text);
    return rc;
}

static int describe_server(struct one_run *run, enum part_id id, const char *version,
                           struct err *err)
{
    struct server *server = &run->parts[id].server;
    struct buf settings = {0};
    int rc = server->kind->settings(server, &settings, err);
    if (rc == 0) {
        buf_printf(&run->servers, "%s\n  {\"role\": \"%s\", \"name\": \"%s\", \"version\": ",
                   run->servers.len > 0 ? "," : "", server->who, server->kind->name);
        buf_json_string(&run->servers, version, strlen(version));
        buf_printf(&run->servers, ", \"replicas\": %d, \"settings\": %s}", server->replicas,
                   settings.data);
    }
    buf_free(&settings);
    return rc;
}

static int start_main(struct one_run *run, struct err *err)
{
    const struct run_request *request = run->request;
    struct err found = {0};
    int rc;
    if (request->main_url) {
        rc = given_start_main(run, err);
    } else {
        rc = part_start_server(run, PART_MAIN_DB, &server_postgres, err);
        run->main_url = run->parts[PART_MAIN_DB].server.url;
    }
    if (rc == 0) {
        rc = maindb_setup(run->main_url, request->scenario->row_delay_ns, err);
    }
    if (rc == 0) {
        rc = maindb_preflight(run->main_url, run->main_version, sizeof(run->main_version), &found);
        rc = judge_preflight(run, "main-db", rc, &found, err);
    }
    if (rc == 0 && request->main_url) {
        given_describe(run, "main-db", "postgres", run->main_version, request->main_url);
    } else if (rc == 0) {
        rc = describe_server(run, PART_MAIN_DB, run->main_version, err);
    }
    return rc;
}

static int start_sink(struct one_run *run, struct err *err)
{
    const struct run_request *request = run->request;
    const struct sink_driver *driver = request->driver;
    const struct server_kind *kind = server_for_sink(driver->name);
    struct err found = {0};
    int rc = 0;
    run->sink_url = request->sink_url;
    if (!request->sink_url && kind) {
        rc = part_start_server(run, PART_SINK, kind, err);
        run->sink_url = run->parts[PART_SINK].server.url;
    }
    if (rc == 0) {
        rc = set_sink_options(run, err);
    }
    if (rc == 0 && (rc = driver->setup(run->sink_options, err)) < 0) {
        err_prefix(err, "sink %s", driver->name);
    }
    if (rc == 0) {
        rc = driver->preflight(run->sink_options, &found);
        rc = judge_preflight(run, driver->name, rc, &found, err);
    }
    if (rc == 0 && request->sink_url) {
        found = (struct err){0};
        rc = given_check_sink(run, &found);
        rc = judge_preflight(run, driver->name, rc, &found, err);
        if (rc == 0) {
            char version[96] = "";
            if (driver->server_version) {
                driver->server_version(run->sink_options, version, sizeof(version), NULL);
            }
            given_describe(run, "sink", kind ? kind->name : driver->name, version, run->sink_url);
        }
    } else if (rc == 0 && kind) {
        rc = describe_server(run, PART_SINK, run->parts[PART_SINK].server.version, err);
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

static int settle_servers(struct one_run *run, struct err *err)
{
    static const enum part_id ids[] = {PART_MAIN_DB, PART_SINK};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < 2; i++) {
        struct server *server = &run->parts[ids[i]].server;
        if (server->kind && server->kind->settle) {
            rc = server->kind->settle(server, err);
        }
    }
    return rc;
}

/* ---- the load ---- */

static void nap_until(int64_t when_ns)
{
    int64_t left_ms = (when_ns - clock_mono_ns() + NS_PER_MS - 1) / NS_PER_MS;
    keeper_nap(left_ms > 1000 ? 1000 : (int)(left_ms > 0 ? left_ms : 0));
}

static int drive_load(struct one_run *run, struct err *err)
{
    const struct scenario *scenario = run->request->scenario;
    struct part *loadgen = &run->parts[PART_LOADGEN];
    int64_t load_ns = scenario_load_ns(scenario);
    run->start_us = clock_wall_us() + LEAD_MS * 1000LL;
    run->load_start_ns = clock_mono_ns() + LEAD_MS * NS_PER_MS;
    int rc = manifest_write(run, "interrupted", "the runner was ended during the load", err);
    if (rc == 0) {
        rc = part_start(run, PART_LOADGEN, err);
    }
    if (rc < 0) {
        return rc;
    }
    loadgen->state = PART_UP;
    run_say(run, "load: %.0f s at %lld requests/s", (double)load_ns / 1e9,
            (long long)scenario->rps);
    int64_t deadline_ns =
        run->load_start_ns + load_ns + scenario->timeout_ns + LOAD_GRACE_S * NS_PER_S;
    while (!process_ended(&loadgen->process)) {
        int64_t next_ns;
        rc = faults_step(run, &next_ns, err);
        if (rc < 0) {
            return rc;
        }
        if (keeper_interrupted()) {
            return err_set(err, -EINTR, "interrupted");
        }
        if (clock_mono_ns() > deadline_ns) {
            return err_set(err, -ETIMEDOUT,
                           "the load generator did not end in time; see its log %s",
                           loadgen->process.log_path ? loadgen->process.log_path : "above");
        }
        nap_until(next_ns);
    }
    loadgen->state = PART_FINISHED;
    run->load_end_us = run->start_us + load_ns / NS_PER_US;
    int status = loadgen->process.status;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return process_obituary(&loadgen->process, "before the load was over", err);
    }
    return 0;
}

/* ---- the drain ---- */

static void show_backlog(const struct one_run *run, int64_t tasks, double seconds)
{
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r\033[K%s: draining: %lld tasks left after %.0f s", run->request->label,
                (long long)tasks, seconds);
    }
}

static void write_drained(struct one_run *run, int64_t backlog, double seconds)
{
    metrics_begin(&run->event, "drained");
    metrics_int(&run->event, "backlog", backlog);
    metrics_double(&run->event, "seconds", seconds);
    metrics_write(run->metrics, &run->event);
    metrics_flush(run->metrics);
}

/* Until the sink holds nothing, for long enough to be sure. *empty_ns: since when. */
static int wait_empty(struct one_run *run, int64_t begin_ns, int64_t *empty_ns, int64_t *tasks,
                      struct err *err)
{
    const struct sink_driver *driver = run->request->driver;
    int64_t deadline_ns = begin_ns + run->request->drain_timeout_ns;
    bool said = false;
    *tasks = -1;
    for (*empty_ns = 0;;) {
        int64_t next_ns;
        int rc = faults_step(run, &next_ns, err);
        if (rc < 0) {
            return rc;
        }
        if (keeper_interrupted()) {
            return err_set(err, -EINTR, "interrupted");
        }
        struct sink_backlog backlog = {.tasks = -1};
        rc = driver->backlog(run->probe, &backlog);
        int64_t now_ns = clock_mono_ns();
        int sure_ms = backlog.exact ? DRAIN_SURE_MS : DRAIN_GUESS_MS;
        if (rc == 0 && backlog.tasks >= 0) {
            *tasks = backlog.tasks;
        }
        if (rc < 0 || backlog.tasks != 0 || faults_pending(run)) {
            *empty_ns = 0;
        } else if (*empty_ns == 0) {
            *empty_ns = now_ns - backlog.age_ns;
        } else if (now_ns - backlog.age_ns - *empty_ns > sure_ms * NS_PER_MS) {
            return 0;
        }
        if (!said && backlog.tasks > 0) {
            run_say(run, "load is over; draining %lld tasks", (long long)backlog.tasks);
            said = true;
        }
        show_backlog(run, *tasks, (double)(now_ns - begin_ns) / 1e9);
        if (now_ns > deadline_ns) {
            return err_set(err, -ETIMEDOUT,
                           "the sink still held %lld tasks %lld s after the load; "
                           "--drain-timeout gives it longer; see %s/logs/worker.log",
                           (long long)*tasks,
                           (long long)(run->request->drain_timeout_ns / NS_PER_S),
                           run->request->dir);
        }
        keeper_nap(DRAIN_POLL_MS);
    }
}

static int drain(struct one_run *run, struct err *err)
{
    const struct sink_driver *driver = run->request->driver;
    if (!(driver->flags & SINK_DRAINS)) {
        return 0;
    }
    int64_t begin_ns = run->load_start_ns + scenario_load_ns(run->request->scenario);
    int64_t empty_ns, tasks;
    int rc = driver->open(&run->probe, SINK_PROBE, run->sink_options, err);
    if (rc < 0) {
        return rc;
    }
    rc = wait_empty(run, begin_ns, &empty_ns, &tasks, err);
    double seconds = rc == 0 && empty_ns > begin_ns ? (double)(empty_ns - begin_ns) / 1e9 : 0;
    if (rc == 0) {
        write_drained(run, 0, seconds);
        run_say(run, "drained %.1f s after the load", seconds);
    } else if (rc == -ETIMEDOUT) {
        write_drained(run, tasks, (double)(clock_mono_ns() - begin_ns) / 1e9);
    }
    driver->close(run->probe, clock_mono_ns() + NS_PER_S);
    run->probe = NULL;
    return rc;
}

/* ---- the end ---- */

/* What lies in the main DB and how often a row slept for it, before the load and after all. A run
 * without it lacks a figure, no more. */
static void record_main_rows(struct one_run *run, const char *state)
{
    struct maindb *db;
    struct maindb_counts counts = {0};
    struct err err = {0};
    int rc = maindb_open(&db, run->main_url, "sluice", &err);
    if (rc == 0) {
        rc = maindb_count(db, &counts, &err);
        maindb_close(db);
    }
    if (rc < 0) {
        run_say(run, "row sleeps are not counted: %s", err.text);
        return;
    }
    metrics_begin(&run->event, "main_rows");
    metrics_string(&run->event, "state", state);
    metrics_int(&run->event, "row_sleeps", counts.row_sleeps);
    metrics_int(&run->event, "rows", counts.tasks);
    metrics_int(&run->event, "refused", counts.refused);
    metrics_int(&run->event, "checkpoints", counts.checkpoints);
    metrics_int(&run->event, "autovacuums", counts.autovacuums);
    metrics_write(run->metrics, &run->event);
    metrics_flush(run->metrics);
}

static int export_main(struct one_run *run, struct err *err)
{
    char *path = xasprintf("%s/main.tsv", run->request->dir);
    char *part_path = xasprintf("%s.part", path);
    FILE *out = fopen(part_path, "we");
    int rc = 0;
    if (!out) {
        rc = err_set(err, -errno, "%s: %s", part_path, strerror(errno));
        goto done;
    }
    rc = maindb_export(run->main_url, out, err);
    if (fclose(out) != 0 && rc == 0) {
        rc = err_set(err, -errno, "%s: %s", part_path, strerror(errno));
    }
    if (rc == 0 && rename(part_path, path) < 0) {
        rc = err_set(err, -errno, "%s: %s", path, strerror(errno));
    }
done:
    free(part_path);
    free(path);
    return rc;
}

static int perform(struct one_run *run, struct err *err)
{
    int rc = state_create(run->request->base, &run->state_dir, err);
    if (rc == 0) {
        rc = manifest_write(run, "interrupted", "the runner was ended before the load", err);
    }
    if (rc == 0) {
        run_say(run, "starting servers and daemons");
        rc = start_main(run, err);
    }
    if (rc == 0) {
        rc = start_sink(run, err);
    }
    if (rc == 0) {
        rc = start_daemons(run, err);
    }
    if (rc == 0) {
        rc = probe_task(run, err);
    }
    if (rc == 0) {
        rc = settle_servers(run, err);
    }
    if (rc == 0) {
        record_main_rows(run, "begin");
        rc = drive_load(run, err);
    }
    if (rc == 0) {
        rc = drain(run, err);
    }
    /* A sink that could not be drained is evidence too: what is there is exported all the same. */
    if (rc == 0 || (rc == -ETIMEDOUT && run->load_end_us > 0)) {
        struct err export_err = {0};
        background_end(run);
        part_stop(run, PART_API);
        part_stop(run, PART_WORKER);
        part_stop(run, PART_SAMPLER);
        int export_rc = export_main(run, &export_err);
        record_main_rows(run, "end");
        if (rc == 0 && export_rc < 0) {
            rc = err_set(err, export_rc, "%s", export_err.text);
        }
    }
    return rc;
}

static void release(struct one_run *run)
{
    if (run->probe) {
        run->request->driver->close(run->probe, clock_mono_ns() + NS_PER_S);
    }
    options_free(run->sink_options);
    given_main_close(run->given_main);
    for (size_t i = 0; i < run->setting_count; i++) {
        free(run->settings[i].text);
    }
    metrics_event_free(&run->event);
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

enum run_outcome run_perform(const struct run_request *request, struct err *err)
{
    struct one_run run = {.request = request};
    name_parts(&run);
    int rc = make_folders(&run, err);
    if (rc == 0) {
        rc = open_record(&run, err);
    }
    if (rc == 0) {
        rc = perform(&run, err);
    }
    if (keeper_interrupted()) {
        rc = -EINTR;
    }
    background_end(&run);
    run.end_us = clock_wall_us();
    parts_stop_all(&run, rc < 0 || !request->keep_state);
    if (busy_check()) {
        json_item(&run.unsafe, "another sluice ran on this machine at the same time: its load is "
                               "in these figures");
    }
    enum run_outcome outcome = rc == 0 ? RUN_COMPLETE : rc == -EINTR ? RUN_INTERRUPTED : RUN_FAILED;
    static const char *const outcome_names[] = {"complete", "interrupted", "failed"};
    const char *why = outcome == RUN_COMPLETE ? "" : outcome == RUN_FAILED ? err->text : "a signal";
    struct err late = {0};
    int record_rc = end_record(&run, outcome_names[outcome]);
    if (record_rc < 0 && outcome == RUN_COMPLETE) {
        outcome = RUN_FAILED;
        err_set(err, record_rc, "%s/runner.jsonl could not be written", request->dir);
        why = err->text;
    }
    if (manifest_write(&run, outcome_names[outcome], why, &late) < 0 && outcome == RUN_COMPLETE) {
        outcome = RUN_FAILED;
        *err = late;
    }
    if (run.state_dir) {
        state_remove(run.state_dir, request->keep_state);
    }
    release(&run);
    return outcome;
}

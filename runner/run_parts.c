#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "http.h"
#include "keeper.h"
#include "run.h"
#include "state.h"

enum { ARGS_MAX = 96, DAEMON_START_MS = 30000, DAEMON_STOP_MS = 8000, READY_POLL_MS = 250 };

struct args {
    char *items[ARGS_MAX];
    size_t count;
};

static void add(struct args *args, char *text)
{
    assert(args->count + 1 < ARGS_MAX);
    args->items[args->count++] = text;
}

static void args_free(struct args *args)
{
    for (size_t i = 0; i < args->count; i++) {
        free(args->items[i]);
    }
}

static bool is_server(const struct part *part)
{
    return part->id == PART_SINK || part->id == PART_MAIN_DB;
}

struct process *part_process(struct part *part)
{
    return is_server(part) ? &part->server.process : &part->process;
}

void part_write_pid(struct one_run *run, struct part *part)
{
    char *path = xasprintf("%s/pids/%s", run->request->dir, part->who);
    char *text = xasprintf("%d\n", (int)part_process(part)->pid);
    struct err err = {0};
    if (file_write(path, text, strlen(text), &err) < 0) {
        run_say(run, "%s", err.text);
    }
    free(text);
    free(path);
}

void part_forget_pid(struct one_run *run, struct part *part)
{
    char *path = xasprintf("%s/pids/%s", run->request->dir, part->who);
    unlink(path);
    free(path);
}

/* ---- the daemons' command lines ---- */

static void add_sink(const struct one_run *run, struct args *args)
{
    add(args, xasprintf("--sink=%s", run->request->driver->name));
    for (size_t i = 0; i < run->setting_count; i++) {
        add(args, xasprintf("--%s=%s", run->settings[i].name, run->settings[i].text));
    }
}

static void api_args(const struct one_run *run, const struct part *part, struct args *args)
{
    int64_t payload_bytes = run->request->scenario->payload_bytes;
    add_sink(run, args);
    add(args, xasprintf("--listen=127.0.0.1:%d", part->listen_port));
    add(args, xasprintf("--admin=127.0.0.1:%d", part->admin_port));
    add(args, xasprintf("--metrics=%s/api-%u.jsonl", run->request->dir, part->incarnation));
    if (payload_bytes > 100 * 1024) {
        add(args, xasprintf("--body-max=%lld", (long long)payload_bytes + 1024));
    }
    if (run->request->allow_unsafe) {
        add(args, xstrdup("--allow-unsafe"));
    }
}

static void worker_args(const struct one_run *run, const struct part *part, struct args *args)
{
    const struct scenario *scenario = run->request->scenario;
    add_sink(run, args);
    add(args, xasprintf("--lanes=%lld", (long long)scenario->lanes));
    add(args, xasprintf("--batch=%lld", (long long)scenario->batch));
    add(args, xasprintf("--admin=127.0.0.1:%d", part->admin_port));
    add(args, xasprintf("--metrics=%s/worker-%u.jsonl", run->request->dir, part->incarnation));
}

static void sampler_args(const struct one_run *run, struct args *args)
{
    add_sink(run, args);
    for (size_t i = 0; i < PART_COUNT; i++) {
        const struct part *part = &run->parts[i];
        if (part->who && part->id != PART_SAMPLER) {
            add(args, xasprintf("--watch=%s=%s/pids/%s", part->who, run->request->dir, part->who));
        }
    }
    add(args, xstrdup("--interval=1s"));
    add(args, xasprintf("--metrics=%s/sampler.jsonl", run->request->dir));
}

/* In the largest unit that keeps it whole: the manifest shows these. */
static char *duration_text(int64_t duration_ns)
{
    static const struct {
        int64_t ns;
        const char *name;
    } units[] = {{NS_PER_S, "s"}, {NS_PER_MS, "ms"}, {NS_PER_US, "us"}, {1, "ns"}};
    size_t i = 0;
    while (duration_ns % units[i].ns != 0) {
        i++;
    }
    return xasprintf("%lld%s", (long long)(duration_ns / units[i].ns), units[i].name);
}

static void loadgen_args(const struct one_run *run, struct args *args)
{
    const struct scenario *scenario = run->request->scenario;
    const char *dir = run->request->dir;
    add(args, xasprintf("--target=127.0.0.1:%d", run->parts[PART_API].listen_port));
    add(args, xasprintf("--rps=%lld", (long long)scenario->rps));
    add(args, xasprintf("--pacing=%s", pacing_names[scenario->pacing]));
    add(args, xasprintf("--connections=%lld", (long long)scenario->connections));
    add(args, xasprintf("--payload-bytes=%lld", (long long)scenario->payload_bytes));
    char *timeout = duration_text(scenario->timeout_ns);
    add(args, xasprintf("--timeout=%s", timeout));
    free(timeout);
    for (size_t i = 0; i < scenario->phase_count; i++) {
        const struct scenario_phase *phase = &scenario->phases[i];
        char *duration = duration_text(phase->duration_ns);
        add(args, xasprintf("--phase=%s:%s:%.12g", phase->name, duration, phase->rate));
        free(duration);
    }
    add(args, xasprintf("--seed=%llu", (unsigned long long)run->request->seed));
    add(args, xasprintf("--start-at=%lld", (long long)run->start_us));
    add(args, xasprintf("--ledger=%s/ledger.tsv", dir));
    add(args, xasprintf("--metrics=%s/loadgen.jsonl", dir));
}

static const char *const programs[PART_COUNT] = {
    [PART_API] = "sluice-api",
    [PART_WORKER] = "sluice-worker",
    [PART_SAMPLER] = "sluice-sampler",
    [PART_LOADGEN] = "sluice-loadgen",
};

static int start_daemon(struct one_run *run, struct part *part, struct err *err)
{
    const char *name = programs[part->id];
    char *program = process_sibling(run->request->daemons, name);
    if (!program) {
        return err_set(err, -ENOENT, "the program %s is not beside sluice: build it first (make)",
                       name);
    }
    struct args args = {0};
    add(&args, program);
    switch (part->id) {
    case PART_API:
        api_args(run, part, &args);
        break;
    case PART_WORKER:
        worker_args(run, part, &args);
        break;
    case PART_SAMPLER:
        sampler_args(run, &args);
        break;
    default:
        loadgen_args(run, &args);
        break;
    }
    char *log_path = xasprintf("%s/logs/%s.log", run->request->dir, part->who);
    char *main_url = xasprintf("SLUICE_MAIN_URL=%s", run->main_url);
    const char *sink_server = run->sink_url;
    char *sink_url = xasprintf("SLUICE_SINK_URL=%s", sink_server ? sink_server : "");
    const char *env[] = {main_url, sink_server ? sink_url : NULL, NULL};
    union {
        char **in;
        const char *const *out;
    } argv = {.in = args.items};
    /* On a terminal the generator keeps a live line, which the log would swallow. */
    bool live = part->id == PART_LOADGEN && isatty(STDERR_FILENO);
    struct process_plan plan = {.who = part->who,
                                .argv = argv.out,
                                .env = env,
                                .log_path = live ? NULL : log_path,
                                .cwd = run->request->dir};
    process_free(&part->process);
    int rc = process_start(&part->process, &plan, err);
    free(sink_url);
    free(main_url);
    free(log_path);
    args_free(&args);
    return rc;
}

/* ---- starting ---- */

int part_start(struct one_run *run, enum part_id id, struct err *err)
{
    struct part *part = &run->parts[id];
    int rc;
    if (id == PART_API && part->listen_port == 0) {
        rc = port_take(run->request->base, err);
        if (rc < 0) {
            return rc;
        }
        part->listen_port = rc;
    }
    if ((id == PART_API || id == PART_WORKER) && part->admin_port == 0) {
        rc = port_take(run->request->base, err);
        if (rc < 0) {
            return rc;
        }
        part->admin_port = rc;
    }
    part->incarnation++;
    rc = is_server(part) ? server_relaunch(&part->server, err) : start_daemon(run, part, err);
    if (rc < 0) {
        return rc;
    }
    int start_ms = is_server(part) ? part->server.kind->start_timeout_ms : DAEMON_START_MS;
    part->state = PART_STARTING;
    part->deadline_ns = clock_mono_ns() + start_ms * NS_PER_MS;
    part_write_pid(run, part);
    return 0;
}

int part_start_server(struct one_run *run, enum part_id id, const struct server_kind *kind,
                      struct err *err)
{
    struct part *part = &run->parts[id];
    char *log_path = xasprintf("%s/logs/%s.log", run->request->dir, part->who);
    int64_t lanes = run->request->scenario->lanes, connections = 200;
    if (run->request->driver->flags & SINK_NEEDS_MAIN) {
        connections += 200; /* the API's own, in the place of lanes */
    }
    struct server_place place = {.who = part->who,
                                 .state_dir = run->state_dir,
                                 .base = run->request->base,
                                 .log_path = log_path,
                                 .clients = (unsigned)(lanes + connections)};
    int rc = server_start(&part->server, kind, &place, err);
    free(log_path);
    if (rc < 0) {
        return rc;
    }
    part->incarnation = 1;
    part->state = PART_UP;
    part_write_pid(run, part);
    return 0;
}

bool part_admin_ready(const struct part *part)
{
    return http_get(part->admin_port, "/readyz", READY_POLL_MS, NULL) == 200;
}

int part_poll_ready(struct one_run *run, struct part *part, struct err *err)
{
    (void)run;
    if (is_server(part)) {
        return server_poll_ready(&part->server, err);
    }
    if (process_ended(&part->process)) {
        return process_obituary(&part->process, "while it started", err);
    }
    if (part->admin_port == 0 || part_admin_ready(part)) {
        return 0;
    }
    return -EAGAIN;
}

int part_wait_ready(struct one_run *run, enum part_id id, int timeout_ms, struct err *err)
{
    struct part *part = &run->parts[id];
    int64_t deadline_ns = clock_mono_ns() + timeout_ms * NS_PER_MS;
    for (;;) {
        int rc = part_poll_ready(run, part, err);
        if (rc == 0) {
            part->state = PART_UP;
        }
        if (rc != -EAGAIN) {
            return rc;
        }
        if (keeper_interrupted()) {
            return err_set(err, -EINTR, "interrupted");
        }
        if (clock_mono_ns() > deadline_ns) {
            struct buf why = {0};
            http_get(part->admin_port, "/readyz", READY_POLL_MS, &why);
            rc = err_set(err, -ETIMEDOUT, "%s is not ready after %d s%s%.*s; its log: %s",
                         part->who, timeout_ms / 1000, why.len > 0 ? ": " : "",
                         (int)strcspn(why.data ? why.data : "", "\n"), why.data ? why.data : "",
                         part->process.log_path ? part->process.log_path : "none");
            buf_free(&why);
            return rc;
        }
        keeper_nap(20);
    }
}

/* ---- stopping ---- */

void part_stop(struct one_run *run, enum part_id id)
{
    struct part *part = &run->parts[id];
    if (!process_runs(part_process(part))) {
        return;
    }
    part->state = PART_FINISHED;
    bool well = is_server(part) ? server_stop(&part->server)
                                : process_stop(&part->process, SIGTERM, DAEMON_STOP_MS);
    if (!well) {
        char how[64];
        process_status_text(part_process(part)->status, how, sizeof(how));
        run_say(run, "warning: %s did not stop in order when asked to (%s)", part->who, how);
    }
}

static int abort_signal(const struct part *part)
{
    return is_server(part) && part->server.kind ? part->server.kind->abort_signal : 0;
}

void parts_stop_all(struct one_run *run, bool quickly)
{
    static const enum part_id order[] = {PART_LOADGEN, PART_API,  PART_WORKER,
                                         PART_SAMPLER, PART_SINK, PART_MAIN_DB};
    for (size_t i = 0; quickly && i < PART_COUNT; i++) {
        struct part *part = &run->parts[order[i]];
        struct process *process = part_process(part);
        process_signal_tree(process, SIGCONT);
        /* All at once, so that they end side by side. */
        process_signal(process, abort_signal(part) ? abort_signal(part) : SIGTERM);
    }
    for (size_t i = 0; i < PART_COUNT; i++) {
        struct part *part = &run->parts[order[i]];
        if (!part->who || !process_runs(part_process(part))) {
            continue;
        }
        if (quickly) {
            process_wait(part_process(part), is_server(part) && !abort_signal(part) ? 0 : 3000);
            process_kill_tree(part_process(part));
        } else {
            part_stop(run, order[i]);
        }
    }
    for (size_t i = 0; i < PART_COUNT; i++) {
        struct part *part = &run->parts[i];
        if (part->who) {
            part_forget_pid(run, part);
        }
        server_free(&part->server);
        process_free(&part->process);
    }
}

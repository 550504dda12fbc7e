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
    if (run->request->places) {
        return; /* they are for the sampler's --watch */
    }
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

/* Each line "name=value" as a flag. */
static void add_lines(struct args *args, const struct buf *lines)
{
    for (const char *at = lines->len > 0 ? lines->data : ""; *at;) {
        size_t len = strcspn(at, "\n");
        add(args, xasprintf("--%.*s", (int)len, at));
        at += len + (at[len] == '\n');
    }
}

static void add_sink(const struct one_run *run, struct args *args)
{
    add(args, xasprintf("--sink=%s", run->request->driver->name));
    add_lines(args, &run->sink_lines);
}

/* What the scenario says to it. */
static void add_settings(const struct one_run *run, struct args *args,
                         void (*settings)(const struct run_request *request, struct buf *lines))
{
    struct buf lines = {0};
    settings(run->request, &lines);
    add_lines(args, &lines);
    buf_free(&lines);
}

static void api_args(const struct one_run *run, const struct part *part, struct args *args)
{
    add_sink(run, args);
    add(args, xasprintf("--listen=%s", part->listen));
    add(args, xasprintf("--admin=%s", part->admin));
    add(args, xasprintf("--metrics=%s/api-%u.jsonl", run->request->dir, part->incarnation));
    add_settings(run, args, settings_api);
}

static void worker_args(const struct one_run *run, const struct part *part, struct args *args)
{
    add_sink(run, args);
    add_settings(run, args, settings_worker);
    add(args, xasprintf("--admin=%s", part->admin));
    add(args, xasprintf("--metrics=%s/worker-%u.jsonl", run->request->dir, part->incarnation));
}

static void sampler_args(const struct one_run *run, struct args *args)
{
    add_sink(run, args);
    for (size_t i = 0; i < PART_COUNT; i++) {
        const struct part *part = &run->parts[i];
        if (part->who && part->id != PART_SAMPLER && !run->request->places) {
            add(args, xasprintf("--watch=%s=%s/pids/%s", part->who, run->request->dir, part->who));
        }
    }
    add(args, xstrdup("--interval=1s"));
    if (run->state_dir) {
        add(args, xasprintf("--disk-of=%s", run->state_dir));
    }
    add(args, xasprintf("--metrics=%s/sampler.jsonl", run->request->dir));
}

static void loadgen_args(const struct one_run *run, struct args *args)
{
    add(args, xasprintf("--target=%s", run->parts[PART_API].listen));
    add_settings(run, args, settings_loadgen);
    add(args, xasprintf("--start-at=%lld", (long long)run->start_us));
    add(args, xasprintf("--metrics=%s/loadgen.jsonl", run->request->dir));
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
    struct process_plan plan = {.who = part->who,
                                .argv = argv.out,
                                .env = env,
                                .log_path = part->live ? NULL : log_path,
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

/* A port of this machine, the same one for all incarnations. */
static int take_address(const struct one_run *run, char **address, struct err *err)
{
    if (*address) {
        return 0;
    }
    int port = port_take(run->request->base, err);
    if (port < 0) {
        return port;
    }
    *address = xasprintf("127.0.0.1:%d", port);
    return 0;
}

int part_start(struct one_run *run, enum part_id id, struct err *err)
{
    struct part *part = &run->parts[id];
    int rc;
    if (id == PART_API && (rc = take_address(run, &part->listen, err)) < 0) {
        return rc;
    }
    if ((id == PART_API || id == PART_WORKER) && (rc = take_address(run, &part->admin, err)) < 0) {
        return rc;
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
    return http_get(part->admin, "/readyz", READY_POLL_MS, NULL) == 200;
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
    if (!part->admin || part_admin_ready(part)) {
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
        if (rc == -EAGAIN && run->way->gone && run->way->gone(run, part, err) < 0) {
            return -ECHILD;
        }
        if (rc != -EAGAIN) {
            return rc;
        }
        if (keeper_interrupted()) {
            return err_set(err, -EINTR, "interrupted");
        }
        if (clock_mono_ns() > deadline_ns) {
            struct buf why = {0};
            http_get(part->admin, "/readyz", READY_POLL_MS, &why);
            rc = err_set(err, -ETIMEDOUT, "%s is not ready after %d s%s%.*s; see %s", part->who,
                         timeout_ms / 1000, why.len > 0 ? ": " : "",
                         (int)strcspn(why.data ? why.data : "", "\n"), why.data ? why.data : "",
                         part->look_at);
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

#include "compose.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "comparison.h"
#include "keeper.h"

enum {
    ARGS_MAX = 24,
    ENV_MAX = 24,
    CHECK_MS = 20000,
    BUILD_MS = 30 * 60 * 1000,
    ACTION_MS = 60000,
    END_MS = 90000,
    STOP_MS = 10000,
    GRACE_MS = 60000, /* for what the verdict does around load and drain */
    TICK_MS = 50,
    LOG_MAX = 64 * 1024 * 1024
};

/* ---- calling docker ---- */

/* The environment in which it reads the files: the person's own, and these. */
struct docker {
    const char *file, *project; /* NULL: not about a project */
    char *log_path;
    const char *env[ENV_MAX + 1];
    size_t env_count;
};

/* Starts docker with words ("kill", "worker", NULL). shown: its standard output is ours. */
static int docker_start(const struct docker *docker, struct process *process, const char *who,
                        const char *const *words, bool shown, struct err *err)
{
    const char *argv[ARGS_MAX + 1] = {"docker"};
    size_t count = 1;
    if (docker->file) {
        const char *const project[] = {"compose", "-f", docker->file, "-p", docker->project};
        for (size_t i = 0; i < sizeof(project) / sizeof(project[0]); i++) {
            argv[count++] = project[i];
        }
    }
    for (; *words && count < ARGS_MAX; words++) {
        argv[count++] = *words;
    }
    const struct process_plan plan = {.who = who,
                                      .argv = argv,
                                      .env = docker->env,
                                      .log_path = docker->log_path,
                                      .keep_env = true,
                                      .show = shown};
    int rc = process_start(process, &plan, err);
    if (rc == -ENOENT) {
        rc =
            err_set(err, rc,
                    "there is no docker in PATH: install Docker Engine with its compose plugin, or "
                    "run without --through compose");
    }
    return rc;
}

/* Runs it to its end. -EINTR when we are to stop (unless `anyway`); -EIO and a sentence when it did
 * not succeed. */
static int docker_call(const struct docker *docker, const char *who, const char *const *words,
                       int timeout_ms, bool anyway, struct err *err)
{
    struct process process = {0};
    int64_t deadline_ns = clock_mono_ns() + timeout_ms * NS_PER_MS;
    int rc = docker_start(docker, &process, who, words, false, err);
    while (rc == 0 && !process_ended(&process)) {
        if (!anyway && keeper_interrupted()) {
            rc = err_set(err, -EINTR, "interrupted");
        } else if (clock_mono_ns() > deadline_ns) {
            rc = err_set(err, -ETIMEDOUT, "%s did not end within %d s; see %s", who,
                         timeout_ms / 1000, docker->log_path);
        }
        keeper_nap(TICK_MS);
    }
    if (rc < 0) {
        process_stop(&process, SIGTERM, STOP_MS);
    } else if (!WIFEXITED(process.status) || WEXITSTATUS(process.status) != 0) {
        struct buf words_of_it = {0};
        process_last_words(docker->log_path, &words_of_it);
        rc = err_set(err, -EIO, "%s failed: %s", who, words_of_it.data ? words_of_it.data : "");
        buf_free(&words_of_it);
    }
    process_free(&process);
    return rc;
}

/* ---- before anything is started ---- */

char *compose_find(const char *named, struct err *err)
{
    const char *const places[] = {"compose", SLUICE_COMPOSE, NULL};
    const char *const only[] = {named, NULL};
    for (const char *const *at = named ? only : places; *at; at++) {
        char *base = xasprintf("%s/base.yaml", *at);
        char *dir = file_exists(base) ? realpath(*at, NULL) : NULL;
        free(base);
        if (dir) {
            return dir;
        }
    }
    err_set(err, -ENOENT,
            "%s holds no base.yaml: expected the folder compose of a checkout of sluice "
            "(--compose-dir)",
            named ? named : "./compose");
    return NULL;
}

static char *file_of(const struct compose *compose, const char *sink)
{
    return xasprintf("%s/%s.yaml", compose->dir, sink);
}

bool compose_has(const struct compose *compose, const char *sink)
{
    char *file = file_of(compose, sink);
    bool has = file_exists(file);
    free(file);
    return has;
}

/* The engine's answer is of no interest, only that it comes. */
static int check_engine(struct docker *docker, struct err *err)
{
    static const char *const words[] = {"version", "--format", "{{.Server.Version}}", NULL};
    struct err said = {0};
    int rc = docker_call(docker, "docker version", words, CHECK_MS, false, &said);
    if (rc == -EIO || rc == -ETIMEDOUT) {
        return err_set(err, rc,
                       "the Docker engine does not answer: %s; start it, or say where it is "
                       "(DOCKER_HOST, docker context use)",
                       said.text);
    }
    return rc < 0 ? err_set(err, rc, "%s", said.text) : 0;
}

static int check_plugin(struct docker *docker, struct err *err)
{
    static const char *const words[] = {"compose", "version", "--short", NULL};
    struct buf said = {0};
    int rc = docker_call(docker, "docker compose version", words, CHECK_MS, false, err);
    if (rc == -EIO) {
        return err_set(err, rc,
                       "docker has no compose plugin (docker compose version failed): install it "
                       "(docker-compose-plugin, or docker-compose-v2)");
    }
    if (rc == 0) {
        process_last_words(docker->log_path, &said);
        const char *version = said.data ? said.data : "";
        long major = strtol(version + (*version == 'v'), NULL, 10);
        if (major < 2) {
            rc = err_set(err, -ENOTSUP,
                         "docker compose is version \"%s\", wanted 2 or later: install the compose "
                         "plugin of Docker",
                         version);
        }
    }
    buf_free(&said);
    return rc;
}

int compose_check(struct err *err)
{
    char path[] = "/tmp/sluice-docker-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0) {
        return err_set(err, -errno, "%s: %s", path, strerror(errno));
    }
    close(fd);
    struct docker docker = {.log_path = path};
    int rc = check_plugin(&docker, err);
    if (rc == 0) {
        rc = check_engine(&docker, err);
    }
    unlink(path);
    return rc;
}

int compose_enter(const struct compose *compose, const struct scenario *scenario, struct err *err)
{
    struct buf text = {0};
    char *copy = xasprintf("%s/scenario.yaml", compose->comparison);
    int rc = file_read(scenario->file, LOG_MAX, &text, err);
    if (rc == 0) {
        rc = file_write(copy, text.data ? text.data : "", text.len, err);
    }
    if (rc == 0 && chmod(copy, 0644) < 0) {
        rc = err_set(err, -errno, "%s: %s", compose->comparison, strerror(errno));
    }
    if (rc == 0) {
        rc = comparison_share(compose->comparison, err);
    }
    free(copy);
    buf_free(&text);
    return rc;
}

/* ---- faults ---- */

struct action {
    int64_t at_ns; /* from the load's begin */
    const char *verb, *service;
    char option[32]; /* or "" */
};

enum { ACTIONS_MAX = 2 * SCENARIO_FAULTS_MAX };

static int compare_actions(const void *left, const void *right)
{
    const struct action *a = left, *b = right;
    return (a->at_ns > b->at_ns) - (a->at_ns < b->at_ns);
}

static size_t plan_actions(const struct run_request *request, struct action actions[ACTIONS_MAX])
{
    static const char *const begins[] = {
        [FAULT_KILL] = "kill", [FAULT_TERM] = "stop", [FAULT_PAUSE] = "pause"};
    static const char *const ends[] = {
        [FAULT_KILL] = "start", [FAULT_TERM] = "start", [FAULT_PAUSE] = "unpause"};
    const struct scenario *scenario = request->scenario;
    size_t count = 0;
    for (size_t i = 0; i < scenario->fault_count; i++) {
        const struct scenario_fault *fault = &scenario->faults[i];
        if (!(request->fault_bits >> i & 1)) {
            continue;
        }
        const char *service = fault_who_names[fault->who];
        struct action *begin = &actions[count++];
        *begin =
            (struct action){.at_ns = fault->at_ns, .verb = begins[fault->what], .service = service};
        if (fault->what ==
            FAULT_TERM) { /* with the server's own signal, and killed when it is due */
            snprintf(begin->option, sizeof(begin->option), "--timeout=%lld",
                     (long long)(fault->for_ns / NS_PER_S));
        }
        actions[count++] = (struct action){
            .at_ns = fault->at_ns + fault->for_ns, .verb = ends[fault->what], .service = service};
    }
    qsort(actions, count, sizeof(*actions), compare_actions);
    return count;
}

static int act(const struct docker *docker, const struct run_request *request,
               const struct action *action, struct err *err)
{
    char *who = xasprintf("docker compose %s %s", action->verb, action->service);
    const char *words[] = {action->verb, action->option[0] ? action->option : action->service,
                           action->option[0] ? action->service : NULL, NULL};
    printf("%s: %.1f s: %s %s\n", request->label, (double)action->at_ns / 1e9, action->verb,
           action->service);
    fflush(stdout);
    int rc = docker_call(docker, who, words, ACTION_MS, false, err);
    free(who);
    return rc;
}

/* The load's begin by the monotonic clock, once the verdict has written it; 0: not yet. */
static int64_t load_start_ns(const struct run_request *request)
{
    char *path = xasprintf("%s/load", request->dir);
    struct buf text = {0};
    int64_t start_ns = 0;
    if (file_read(path, 64, &text, NULL) == 0 && text.len > 0) {
        int64_t ahead_us = strtoll(text.data, NULL, 10) - clock_wall_us();
        start_ns = clock_mono_ns() + ahead_us * NS_PER_US;
    }
    buf_free(&text);
    free(path);
    return start_ns;
}

/* ---- one run ---- */

static void add_env(struct docker *docker, char *text)
{
    if (docker->env_count == ENV_MAX) {
        abort();
    }
    docker->env[docker->env_count++] = text;
}

static void set_environment(struct docker *docker, const struct compose *compose,
                            const struct run_request *request)
{
    const char *slash = strrchr(compose->comparison, '/');
    const char *const ports[] = {"MAIN", "API", "API_ADMIN", "WORKER_ADMIN", "SINK", "SINK_ADMIN"};
    add_env(docker,
            xasprintf("SLUICE_RUNS=%.*s", (int)(slash - compose->comparison), compose->comparison));
    add_env(docker, xasprintf("SLUICE_RUN=%s", slash + 1));
    add_env(docker, xasprintf("SLUICE_SCENARIO=/runs/%s/scenario.yaml", slash + 1));
    add_env(docker, xasprintf("SLUICE_SET=%s", compose->sets));
    add_env(docker, xasprintf("SLUICE_SEED=%llu", (unsigned long long)request->seed));
    add_env(docker, xasprintf("SLUICE_REPEAT=%u", request->repeat));
    add_env(docker, xasprintf("SLUICE_FAULTS=%s", request->fault_bits ? "yes" : "no"));
    add_env(docker, xasprintf("SLUICE_ALLOW_UNSAFE=%s", request->allow_unsafe ? "yes" : "no"));
    /* Any that is free: another project may have the usual ones. */
    for (size_t i = 0; i < sizeof(ports) / sizeof(ports[0]); i++) {
        add_env(docker, xasprintf("SLUICE_%s_PORT=0", ports[i]));
    }
}

static void free_environment(struct docker *docker)
{
    for (size_t i = 0; i < docker->env_count; i++) {
        union {
            const char *in;
            char *out;
        } text = {.in = docker->env[i]};
        free(text.out);
    }
}

/* Follows the verdict to its end, and makes the faults meanwhile. */
static int follow(const struct docker *docker, const struct run_request *request,
                  struct process *verdict, struct err *err)
{
    struct action actions[ACTIONS_MAX];
    size_t count = plan_actions(request, actions), done = 0;
    int64_t start_ns = 0, deadline_ns = INT64_MAX;
    while (!process_ended(verdict)) {
        if (keeper_interrupted()) {
            return err_set(err, -EINTR, "interrupted");
        }
        if (start_ns == 0 && (start_ns = load_start_ns(request)) != 0) {
            deadline_ns = start_ns + scenario_load_ns(request->scenario) +
                          request->scenario->timeout_ns + request->drain_timeout_ns +
                          GRACE_MS * NS_PER_MS;
        }
        if (start_ns != 0 && done < count && clock_mono_ns() >= start_ns + actions[done].at_ns) {
            int rc = act(docker, request, &actions[done++], err);
            if (rc < 0) {
                return rc;
            }
        }
        if (clock_mono_ns() > deadline_ns) {
            return err_set(err, -ETIMEDOUT, "the verdict did not come in time; see %s",
                           docker->log_path);
        }
        keeper_nap(TICK_MS);
    }
    return 0;
}

/* What sluice said last in the log, in whatever container; else docker's own last line. */
static int say_why(const struct docker *docker, struct err *err)
{
    static const char mark[] = "sluice: ";
    struct buf log = {0}, last = {0};
    const char *said = NULL;
    if (file_read(docker->log_path, LOG_MAX, &log, NULL) == 0 && log.len > 0) {
        for (const char *at = log.data; (at = strstr(at, mark)); at += sizeof(mark) - 1) {
            if (at == log.data || at[-1] == '\n') {
                said = at + sizeof(mark) - 1;
            }
        }
    }
    process_last_words(docker->log_path, &last);
    int rc = said ? err_set(err, -EIO, "%.*s", (int)strcspn(said, "\n"), said)
                  : err_set(err, -EIO, "the containers did not come up: %s",
                            last.data ? last.data : "docker said nothing");
    buf_free(&log);
    buf_free(&last);
    return rc;
}

static int bring_up(const struct docker *docker, const struct compose *compose,
                    const struct run_request *request, struct err *err)
{
    static const char *const build[] = {"build", NULL};
    char *drain = xasprintf("--env=SLUICE_DRAIN_TIMEOUT=%lldms",
                            (long long)(request->drain_timeout_ns / NS_PER_MS));
    /* The comparison's report is made here, at its end. */
    const char *const run[] = {"run",
                               "--rm",
                               "-T",
                               "--env=SLUICE_REPORT=no",
                               isatty(STDOUT_FILENO) ? "--env=SLUICE_PROGRESS=5s"
                                                     : "--env=SLUICE_PROGRESS=0",
                               drain,
                               "verdict",
                               NULL};
    static const char *const logs[] = {"logs", "--no-color", "--no-log-prefix", "prepare", NULL};
    struct process verdict = {0};
    int rc = 0;
    printf("%s: %s\n", request->label, "bringing up the containers");
    fflush(stdout);
    if (compose->build) {
        rc = docker_call(docker, "docker compose build", build, BUILD_MS, false, err);
    }
    if (rc == 0) {
        rc = docker_start(docker, &verdict, "the verdict", run, true, err);
    }
    if (rc == 0) {
        rc = follow(docker, request, &verdict, err);
    }
    process_stop(&verdict, SIGTERM, STOP_MS);
    process_free(&verdict);
    free(drain);
    /* By its manifest: docker's own failures have the exit code of a verdict that found a loss. */
    if (rc == 0 && comparison_look(request->dir, request->scenario, request->fault_bits) !=
                       COMPARISON_RUN_COMPLETE) {
        struct err unheard = {0};
        docker_call(docker, "docker compose logs", logs, END_MS, true, &unheard);
        rc = say_why(docker, err);
    }
    return rc;
}

/* With all that it made. Whatever has happened. */
static void take_down(const struct docker *docker, const struct run_request *request)
{
    static const char *const logs[] = {"logs", "--no-color", "--timestamps", NULL};
    static const char *const down[] = {"down", "--volumes", "--remove-orphans", "--timeout=5",
                                       NULL};
    struct err err = {0};
    docker_call(docker, "docker compose logs", logs, END_MS, true, &err);
    if (docker_call(docker, "docker compose down", down, END_MS, true, &err) < 0) {
        fprintf(stderr,
                "sluice: %s: WARNING: containers may be left: %s; docker compose -f %s -p %s down "
                "--volumes removes them\n",
                request->label, err.text, docker->file, docker->project);
    }
}

/* Into the run's folder, if the containers made it. */
static void keep_log(const struct docker *docker, const struct run_request *request)
{
    char *kept = xasprintf("%s/logs/compose.log", request->dir);
    (void)!rename(docker->log_path, kept);
    free(kept);
}

enum run_outcome compose_run(const struct compose *compose, const struct run_request *request,
                             struct err *err)
{
    const char *sink = request->driver->name;
    char *file = file_of(compose, sink);
    char *project = xasprintf("sluice-%s-%u-%08x", sink, request->repeat,
                              (unsigned)(clock_wall_us() / 1000 & UINT32_MAX));
    struct docker docker = {
        .file = file,
        .project = project,
        .log_path = xasprintf("%s/compose-%s-%u.log", compose->comparison, sink, request->repeat)};
    set_environment(&docker, compose, request);
    int rc = bring_up(&docker, compose, request, err);
    take_down(&docker, request);
    keep_log(&docker, request);
    free_environment(&docker);
    free(docker.log_path);
    free(project);
    free(file);
    return keeper_interrupted() ? RUN_INTERRUPTED : rc < 0 ? RUN_FAILED : RUN_COMPLETE;
}

#include "pod_main.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "common/stop.h"
#include "metrics/metrics.h"
#include "pod.h"
#include "ready.h"
#include "record.h"

enum { EXIT_OK = 0, EXIT_USAGE = 2, EXIT_UNUSABLE = 3 };

static const int64_t look_ns = 50 * NS_PER_MS;

struct pod_program {
    const struct options *options;
    struct pod_settings settings;
    struct ready ready;
    char *role, *run_folder;
    struct metrics *metrics;
    struct pod *pod;
    int stop_fd;
    int64_t interval_ns;
};

static bool ask_ready(void *arg)
{
    return ready_now(arg);
}

static int read_settings(struct pod_program *program, struct err *err)
{
    const char *who = options_string(program->options, "pod");
    const char *ready = options_string(program->options, "ready");
    size_t watches;
    options_list(program->options, "watch", &watches);
    if (!options_string(program->options, "metrics"))
        return err_set(err, -EINVAL,
                       "--metrics=FILE|DIR/ is needed (or SLUICE_METRICS): where the events go");
    if (watches > 0)
        return err_set(err, -EINVAL, "--pod and --watch are two ways to watch; leave one out");
    if (who[0] == '\0' || strspn(who, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(who))
        return err_set(err, -EINVAL,
                       "--pod=%s: it takes the name of a part, such as worker or main-db", who);
    program->settings.who = who;
    program->settings.proc_root = "/proc";
    program->settings.cgroup_root = options_string(program->options, "cgroup-root");
    program->settings.self = getpid();
    program->interval_ns = options_duration_ns(program->options, "interval");
    if (!ready)
        return 0;
    program->settings.ready = ask_ready;
    program->settings.ready_arg = &program->ready;
    return ready_parse(ready, &program->ready, err);
}

/* The folder of a path, without links; NULL when there is none. Free it. */
static char *folder_of(const char *path)
{
    char *real = realpath(path, NULL);
    char *slash = real ? strrchr(real, '/') : NULL;
    if (slash)
        *slash = '\0';
    return real;
}

/* Process 1 inherits what the part leaves behind; nobody else would bury it. */
static void reap_orphans(void)
{
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
}

/* Sleeps until the next look; returns a signal that came, or 0. */
static int await_look(const struct pod_program *program)
{
    struct pollfd stop = {.fd = program->stop_fd, .events = POLLIN};
    struct timespec wait = {.tv_nsec = look_ns};
    return ppoll(&stop, 1, &wait, NULL) > 0 ? stop_signal(program->stop_fd) : 0;
}

/* A pod must be there before its part, and so before the run's folder. Returns a signal, or 0. */
static int await_folder(const struct pod_program *program)
{
    const char *path = options_string(program->options, "metrics");
    bool told = false;
    if (path[0] == '\0' || path[strlen(path) - 1] != '/')
        return 0;
    while (access(path, F_OK) < 0) {
        if (!told)
            log_info("waiting for the folder %s", path);
        told = true;
        reap_orphans();
        int signal = await_look(program);
        if (signal > 0)
            return signal;
    }
    return 0;
}

static int open_metrics(struct pod_program *program, struct err *err)
{
    int rc = metrics_open_as(&program->metrics, options_string(program->options, "metrics"),
                             program->role, err);
    if (rc < 0)
        return rc;
    program->run_folder = folder_of(metrics_path(program->metrics));
    record_start(program->metrics, program->options, program->settings.who,
                 options_string(program->options, "sink"), pod_net_note);
    return 0;
}

static int close_metrics(struct pod_program *program, const char *why)
{
    if (program->metrics)
        record_stop(program->metrics, why);
    int rc = metrics_close(program->metrics);
    program->metrics = NULL;
    free(program->run_folder);
    program->run_folder = NULL;
    return rc;
}

/* The folder's name may be a link, which the next run points at a folder of its own. */
static int follow_run(struct pod_program *program, struct err *err)
{
    const char *path = options_string(program->options, "metrics");
    if (path[strlen(path) - 1] != '/')
        return 0;
    char *now = realpath(path, NULL);
    bool same = !now || (program->run_folder && strcmp(now, program->run_folder) == 0);
    free(now);
    if (same)
        return 0;
    if (close_metrics(program, "another run has begun") < 0)
        log_warning("some events of the last run could not be written");
    int rc = open_metrics(program, err);
    if (rc == 0)
        pod_follow(program->pod, program->metrics, program->run_folder);
    return rc;
}

static int start(struct pod_program *program, struct err *err)
{
    int rc = open_metrics(program, err);
    if (rc < 0)
        return rc;
    program->settings.run_folder = program->run_folder;
    program->settings.metrics = program->metrics;
    program->pod = pod_new(&program->settings);
    return 0;
}

/* Looks and ticks until a stop is asked for; returns the signal, or a negative errno. */
static int run(struct pod_program *program, struct err *err)
{
    int64_t tick_due_ns = clock_mono_ns();
    for (;;) {
        pod_look(program->pod);
        reap_orphans();
        int64_t now_ns = clock_mono_ns();
        if (now_ns >= tick_due_ns) {
            int rc = follow_run(program, err);
            if (rc == 0)
                rc = pod_tick(program->pod, err);
            if (rc < 0)
                return rc;
            metrics_flush(program->metrics);
            /* A tick that comes late is left out rather than made up for. */
            tick_due_ns +=
                program->interval_ns * ((now_ns - tick_due_ns) / program->interval_ns + 1);
        }
        int signal = await_look(program);
        if (signal > 0)
            return signal;
    }
}

int pod_main(const struct options *options)
{
    struct pod_program program = {.options = options, .stop_fd = -1};
    struct err err = {0};
    int code = EXIT_USAGE;
    if (read_settings(&program, &err) < 0)
        goto out;
    code = EXIT_UNUSABLE;
    program.role = xasprintf("sampler-%s", program.settings.who);
    program.stop_fd = stop_open(&err);
    if (program.stop_fd < 0)
        goto out;
    int rc = await_folder(&program);
    if (rc == 0)
        rc = start(&program, &err);
    if (rc == 0)
        rc = run(&program, &err);
    if (rc > 0) {
        code = EXIT_OK;
        if (program.pod &&
            pod_tick(program.pod, &err) < 0) /* so that totals are those of the end */
            log_warning("%s", err.text);
        err.text[0] = '\0';
    }
    if (close_metrics(&program, rc > 0 ? stop_signal_name(rc) : err.text) < 0 && code == EXIT_OK)
        code = EXIT_UNUSABLE;
out:
    if (err.text[0])
        log_error("%s", err.text);
    pod_free(program.pod);
    if (program.stop_fd >= 0)
        close(program.stop_fd);
    free(program.role);
    return code;
}

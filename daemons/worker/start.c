/* start.c: settings, start and end of the program. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/options.h"
#include "common/admin.h"
#include "common/stop.h"
#include "maindb/maindb.h"
#include "settings/settings.h"
#include "worker/drain.h"
#include "worker/pause.h"
#include "worker/worker.h"

enum { EXIT_USAGE = 2, EXIT_START = 3 };

#define STOP_NS (4 * NS_PER_S) /* of the 5 s that a stop may take */

struct program {
    struct options *options;
    const struct sink_driver *driver;
    struct sink *sink;
    struct metrics *metrics;
    struct admin *admin;
    struct drain drain;
    bool drain_is_started;
    int signal; /* the one that ended it, 0: none yet */
    int stop_fd;
};

static void write_start(struct program *program)
{
    struct metrics_event event = {0};
    struct buf settings = {0};
    options_json(program->options, &settings);
    metrics_begin(&event, "start");
    metrics_string(&event, "role", "worker");
    metrics_string(&event, "sink", program->driver->name);
    metrics_string(&event, "version", SLUICE_VERSION);
    metrics_int(&event, "pid", getpid());
    metrics_json(&event, "settings", settings.data);
    metrics_write(program->metrics, &event);
    metrics_flush(program->metrics);
    metrics_event_free(&event);
    buf_free(&settings);
}

static void write_stop(struct program *program, const char *why)
{
    struct metrics_event event = {0};
    metrics_begin(&event, "stop");
    metrics_string(&event, "role", "worker");
    metrics_string(&event, "why", why);
    metrics_write(program->metrics, &event);
    metrics_flush(program->metrics);
    metrics_event_free(&event);
}

/* Sleeps between two attempts. true: a signal came. */
static bool wait_or_stop(struct program *program, int64_t duration_ns)
{
    if (pause_sleep(program->stop_fd, duration_ns)) {
        program->signal = stop_signal(program->stop_fd);
    }
    return program->signal != 0;
}

static int set_up_and_open(struct program *program, struct err *err)
{
    int rc = program->driver->setup(program->options, err);
    if (rc == 0) {
        rc = program->driver->open(&program->sink, SINK_DRAIN, program->options, err);
    }
    return rc < 0 ? err_prefix(err, "sink %s", program->driver->name) : 0;
}

/* In what order the parts of a system start must not matter, so what may come up yet is waited for.
 */
static bool worth_waiting(int code)
{
    return code == -EAGAIN || code == -ENOENT || code == -ENOTCONN || code == -ECONNREFUSED ||
           code == -ETIMEDOUT || code == -EIO;
}

static int open_sink(struct program *program, struct err *err)
{
    int64_t until_ns = clock_mono_ns() + options_duration_ns(program->options, "start-wait");
    struct pause pause = {.max_ns = options_duration_ns(program->options, "back-off-max"),
                          .seed = (unsigned)getpid()};
    for (;;) {
        int rc = set_up_and_open(program, err);
        if (rc == 0 || !worth_waiting(rc) || clock_mono_ns() >= until_ns) {
            return rc;
        }
        int64_t pause_ns = pause_next_ns(&pause);
        log_warning("%s; next attempt in %.2f s", err->text, (double)pause_ns / (double)NS_PER_S);
        if (wait_or_stop(program, pause_ns)) {
            return -ECANCELED;
        }
    }
}

/* A main DB that is away is waited for without end, as it is later; a wrong one is told at once. */
static int check_main(struct program *program, struct err *err)
{
    struct maindb *main = NULL;
    struct pause pause = {.max_ns = options_duration_ns(program->options, "back-off-max"),
                          .seed = (unsigned)getpid()};
    int rc = maindb_open(&main, options_string(program->options, "main-url"), "sluice-worker", err);
    while (rc == 0) {
        rc = maindb_check(main, err);
        if (rc != -EAGAIN) {
            break;
        }
        int64_t pause_ns = pause_next_ns(&pause);
        log_warning("%s; next attempt in %.2f s", err->text, (double)pause_ns / (double)NS_PER_S);
        rc = wait_or_stop(program, pause_ns) ? -ECANCELED : 0;
    }
    maindb_close(main);
    return rc;
}

static int start_lanes(struct program *program, struct err *err)
{
    const struct options *options = program->options;
    const struct drain_settings settings = {
        .lanes = (unsigned)options_int(options, "lanes"),
        .batch_max = (unsigned)options_int(options, "batch"),
        .batch_wait_ms =
            (int)((options_duration_ns(options, "batch-wait") + NS_PER_MS - 1) / NS_PER_MS),
        .back_off_max_ns = options_duration_ns(options, "back-off-max"),
        .start_wait_ns = options_duration_ns(options, "start-wait"),
        .main_url = options_string(options, "main-url"),
    };
    program->drain_is_started = true;
    int rc = drain_start(&program->drain, &settings, program->driver, program->sink,
                         program->metrics, err);
    atomic_store(&program->drain.counters.main_checked, rc == 0);
    return rc;
}

static int start(struct program *program, struct err *err)
{
    int rc = program->stop_fd = stop_open(err);
    if (rc < 0) {
        return rc;
    }
    rc = metrics_open_as(&program->metrics, options_string(program->options, "metrics"), "worker",
                         err);
    if (rc < 0) {
        return rc;
    }
    struct admin_source source = {.healthy = drain_healthy,
                                  .ready = drain_ready,
                                  .metrics = drain_metrics,
                                  .arg = &program->drain.counters};
    rc = admin_start(&program->admin, options_string(program->options, "admin"), &source, err);
    if (rc < 0) {
        return rc;
    }
    write_start(program);
    rc = open_sink(program, err);
    if (rc == 0) {
        rc = check_main(program, err);
    }
    return rc == 0 ? start_lanes(program, err) : rc;
}

/* Until a signal, or until a lane finds that a person must act. */
static void run_lanes(struct program *program)
{
    struct pollfd polled[] = {
        {.fd = program->stop_fd, .events = POLLIN},
        {.fd = drain_failed_fd(&program->drain), .events = POLLIN},
    };
    while (program->signal == 0 && !polled[1].revents) {
        if (poll(polled, 2, -1) > 0 && polled[0].revents) {
            program->signal = stop_signal(program->stop_fd);
        }
    }
}

/* Returns 0, or the code of what stopped the lanes. A lane stuck in a sink or a main DB must not
 * keep the process: it holds nothing that would not be delivered again. */
static int stop_lanes(struct program *program, struct err *err)
{
    int64_t deadline_ns = clock_mono_ns() + STOP_NS;
    drain_stop(&program->drain);
    if (!drain_join(&program->drain, deadline_ns)) {
        bool failed = atomic_load(&program->drain.counters.failed);
        metrics_flush(program->metrics);
        _exit(failed ? EXIT_START : 0);
    }
    program->driver->close(program->sink, deadline_ns);
    program->sink = NULL;
    return drain_end(&program->drain, err);
}

static void stop(struct program *program)
{
    admin_stop(program->admin);
    if (program->sink) {
        program->driver->close(program->sink, clock_mono_ns());
    }
    if (metrics_close(program->metrics) < 0) {
        log_warning("some events could not be written to the file of --metrics");
    }
    if (program->stop_fd >= 0) {
        close(program->stop_fd);
    }
}

static int check_settings(struct program *program, struct err *err)
{
    int rc = sink_select(program->options, &program->driver, err);
    if (rc == 0) {
        rc = options_require(program->options, worker_options, err);
    }
    if (rc == 0 && !(program->driver->flags & SINK_DRAINS)) {
        rc = err_set(err, -EINVAL,
                     "--sink=%s: nothing can be drained from this sink, so it needs no worker",
                     program->driver->name);
    }
    return rc;
}

static int run(struct program *program)
{
    struct err err = {0};
    if (check_settings(program, &err) < 0) {
        fprintf(stderr, "sluice-worker: %s\n", err.text);
        return EXIT_USAGE;
    }
    int rc = start(program, &err);
    if (rc == 0) {
        log_info("%d lanes drain the sink %s", program->drain.counters.lanes,
                 program->driver->name);
        run_lanes(program);
    }
    if (program->drain_is_started) {
        struct err failure = {0};
        int stopped = stop_lanes(program, &failure);
        if (rc == 0 && stopped < 0) {
            rc = stopped;
            err = failure;
        }
    }
    if (rc < 0 && program->signal == 0) {
        if (program->metrics) {
            write_stop(program, err.text);
        }
        fprintf(stderr, "sluice-worker: %s\n", err.text);
        stop(program);
        return EXIT_START;
    }
    write_stop(program, stop_signal_name(program->signal));
    log_info("stopped by %s", stop_signal_name(program->signal));
    stop(program);
    return 0;
}

int worker_main(int argc, char *argv[])
{
    struct program program = {.stop_fd = -1, .drain = {.stop_fd = -1}};
    int exit_code = 0;
    log_init("sluice-worker");
    program.options = options_new(
        "sluice-worker",
        "Takes tasks from a sink and commits them to the main DB, each exactly once in effect.");
    options_add(program.options, "Worker", worker_options);
    options_add(program.options, "Worker", options_file_table);
    sink_add_options(program.options);
    if (options_start(program.options, argc, argv, &exit_code)) {
        exit_code = run(&program);
    }
    options_free(program.options);
    return exit_code;
}

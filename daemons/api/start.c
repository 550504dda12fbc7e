/* start.c: settings, start and end of the program. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/log.h"
#include "common/admin.h"
#include "common/hostport.h"
#include "common/stop.h"
#include "settings/settings.h"

enum { EXIT_USAGE = 2, EXIT_START = 3 };

/* Descriptors that are no client connections: log, metrics, sink, epoll, admin port. */
enum { OTHER_DESCRIPTORS = 128 };

struct program {
    struct options *options;
    const struct sink_driver *driver;
    struct api_settings settings;
    struct metrics *metrics;
    struct admin *admin;
    struct api api;
    bool api_is_started;
    int stop_fd, upkeep_fd;
};

static void read_settings(struct program *program)
{
    const struct options *options = program->options;
    struct api_settings *settings = &program->settings;
    settings->limits.tasks = options_int(options, "in-flight-max");
    settings->limits.bytes = options_size_bytes(options, "in-flight-bytes-max");
    settings->limits.backlog_tasks = options_int(options, "backlog-max");
    settings->limits.backlog_bytes = options_size_bytes(options, "backlog-bytes-max");
    settings->body_max_bytes = (size_t)options_size_bytes(options, "body-max");
    settings->ack_deadline_ns = options_duration_ns(options, "ack-deadline");
    settings->request_timeout_ns = options_duration_ns(options, "request-timeout");
    settings->idle_timeout_ns = options_duration_ns(options, "idle-timeout");
    settings->connections_max = (unsigned)options_int(options, "connections-max");
}

/* The default number of connections gives way to the limit of open files; one that was asked for
 * does not. */
static int make_room_for_connections(struct program *program, struct err *err)
{
    struct rlimit limit;
    unsigned *connections = &program->settings.connections_max;
    rlim_t wanted = (rlim_t)*connections + OTHER_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= wanted) {
        return 0;
    }
    if (limit.rlim_max < wanted) {
        if (options_is_set(program->options, "connections-max") ||
            limit.rlim_max <= OTHER_DESCRIPTORS) {
            return err_set(err, -EMFILE,
                           "--connections-max=%u needs %llu open files and the limit is %llu; "
                           "raise it (ulimit -Hn) or lower --connections-max",
                           *connections, (unsigned long long)wanted,
                           (unsigned long long)limit.rlim_max);
        }
        wanted = limit.rlim_max;
        *connections = (unsigned)(wanted - OTHER_DESCRIPTORS);
        log_warning("the limit of open files allows for %u connections only", *connections);
    }
    limit.rlim_cur = wanted;
    return setrlimit(RLIMIT_NOFILE, &limit) < 0
               ? err_set(err, -errno, "cannot raise the limit of open files: %s", strerror(errno))
               : 0;
}

static int check_sink(struct program *program, struct err *err)
{
    const struct sink_driver *driver = program->driver;
    int rc = driver->setup(program->options, err);
    if (rc < 0) {
        return rc;
    }
    struct err found = {0};
    rc = driver->preflight(program->options, &found);
    if (rc == -ENODATA) {
        log_warning("unverified: %s", found.text);
        return 0;
    }
    if (rc == -EPERM && options_bool(program->options, "allow-unsafe")) {
        log_warning("unsafe, and started because of --allow-unsafe: %s", found.text);
        return 0;
    }
    if (rc == -EPERM) {
        return err_set(err, rc, "%s (or start with --allow-unsafe)", found.text);
    }
    return rc < 0 ? err_set(err, rc, "%s", found.text) : 0;
}

static void write_start(struct program *program)
{
    struct metrics_event event = {0};
    struct buf settings = {0};
    options_json(program->options, &settings);
    metrics_begin(&event, "start");
    metrics_string(&event, "role", "api");
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
    metrics_string(&event, "role", "api");
    metrics_string(&event, "why", why);
    metrics_write(program->metrics, &event);
    metrics_event_free(&event);
}

/* Everything that can fail, cheapest first; what was taken is given back by stop(). */
static int start(struct program *program, struct hostport *address, struct err *err)
{
    const struct options *options = program->options;
    const char *metrics_path = options_string(options, "metrics");
    struct sink *sink = NULL;
    int rc = program->stop_fd = stop_open(err);
    if (rc < 0) {
        return rc;
    }
    rc = program->upkeep_fd = stop_open_other(SIGUSR1, err);
    if (rc < 0) {
        return rc;
    }
    rc = make_room_for_connections(program, err);
    if (rc < 0) {
        return rc;
    }
    rc = metrics_open_as(&program->metrics, metrics_path, "api", err);
    if (rc < 0) {
        return rc;
    }
    int listen_fd = hostport_listen(address, "listen", err);
    if (listen_fd < 0) {
        return listen_fd;
    }
    rc = check_sink(program, err);
    if (rc == 0) {
        rc = program->driver->open(&sink, SINK_INGEST, options, err);
    }
    if (rc < 0) {
        close(listen_fd);
        return err_prefix(err, "sink %s", program->driver->name);
    }
    program->api_is_started = true;
    rc = api_start(&program->api, &program->settings, listen_fd, program->driver, sink,
                   metrics_path && metrics_path[0] ? program->metrics : NULL, err);
    if (rc < 0) {
        return rc;
    }
    struct admin_source source = {.healthy = counters_healthy,
                                  .ready = counters_ready,
                                  .metrics = counters_metrics,
                                  .arg = &program->api.counters};
    return admin_start(&program->admin, options_string(options, "admin"), &source, err);
}

static void stop(struct program *program)
{
    admin_stop(program->admin);
    if (program->api_is_started) {
        api_free(&program->api);
    }
    if (metrics_close(program->metrics) < 0) {
        log_warning("some events could not be written to the file of --metrics");
    }
    if (program->stop_fd >= 0) {
        close(program->stop_fd);
    }
    if (program->upkeep_fd >= 0) {
        close(program->upkeep_fd);
    }
}

static int run(struct program *program)
{
    struct err err = {0};
    struct hostport address;
    int rc = sink_select(program->options, &program->driver, &err);
    if (rc == 0) {
        rc = hostport_parse(options_string(program->options, "listen"), &address, &err);
        if (rc < 0) {
            err_prefix(&err, "--listen");
        }
    }
    if (rc < 0) {
        fprintf(stderr, "sluice-api: %s\n", err.text);
        return EXIT_USAGE;
    }
    read_settings(program);
    rc = start(program, &address, &err);
    if (rc < 0) {
        fprintf(stderr, "sluice-api: %s\n", err.text);
        stop(program);
        return EXIT_START;
    }
    write_start(program);
    log_info("listening on http://%s, sink %s: %s", address.text, program->driver->name,
             program->driver->promise);
    int signal = api_run(&program->api, program->stop_fd, program->upkeep_fd);
    write_stop(program, stop_signal_name(signal));
    log_info("stopped by %s", stop_signal_name(signal));
    stop(program);
    return 0;
}

int api_main(int argc, char *argv[])
{
    struct program program = {.stop_fd = -1, .upkeep_fd = -1};
    int exit_code = 0;
    log_init("sluice-api");
    program.options = options_new(
        "sluice-api", "Takes tasks by HTTP, puts each into a sink, and answers when it is safe.");
    options_add(program.options, "Server", api_options);
    options_add(program.options, "Server", options_file_table);
    options_add(program.options, "Bounds", limit_options);
    sink_add_options(program.options);
    if (options_start(program.options, argc, argv, &exit_code)) {
        exit_code = run(&program);
    }
    options_free(program.options);
    return exit_code;
}

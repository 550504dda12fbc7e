/* sluice-sampler: what each part of a run uses, how much waits in the sink, how many rows are in
 * the main DB, once every --interval; with --pod, what one part uses and when it was gone. It takes
 * part in nothing: killing it changes no run but its figures. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/options.h"
#include "common/stop.h"
#include "disk.h"
#include "netdiag.h"
#include "part.h"
#include "periodic.h"
#include "pod_main.h"
#include "probes.h"
#include "record.h"
#include "sampler.h"

enum { EXIT_OK = 0, EXIT_USAGE = 2, EXIT_UNUSABLE = 3 };

/* How long the last look at sink and main DB may take once a stop is asked for. */
enum { SETTLE_NS = 2000000000 };

static const struct option_spec sampler_options[] = {
    {.name = "watch",
     .type = OPTION_LIST,
     .unit = "WHO=PIDFILE",
     .help = "a part of the run to watch: its name, and the file that holds its process id now"},
    {.name = "interval",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "1s",
     .min = 10 * NS_PER_MS,
     .max = 3600 * NS_PER_S,
     .help = "from one sample to the next"},
    {.name = "metrics",
     .type = OPTION_STRING,
     .unit = "FILE|DIR/",
     .required = true,
     .help = "where the events go, as JSON lines; in DIR/, the first sampler-N.jsonl (of a pod: "
             "sampler-WHO-N.jsonl) that is not there yet"},
    {.name = "disk-of",
     .type = OPTION_STRING,
     .unit = "DIR",
     .help = "the folder on whose disk the run keeps its state: what that disk writes and how "
             "often it flushes, for whomever; none: nothing is told of disks"},
    {.name = "main-url",
     .type = OPTION_URL,
     .unit = "URL",
     .help = "the main DB whose rows are counted; none: they are not"},
    {.name = NULL},
};

static const struct option_spec pod_options[] = {
    {.name = "pod",
     .type = OPTION_STRING,
     .unit = "WHO",
     .help = "watch only the part WHO (api, worker, sink, main-db, loadgen), whose process and "
             "network namespaces this process shares; needs no --sink"},
    {.name = "ready",
     .type = OPTION_STRING,
     .unit = "KIND:HOST:PORT",
     .help = "when the part is ready: tcp:HOST:PORT takes connections, http:HOST:PORT/PATH answers "
             "200 (without /PATH: /readyz), postgres:HOST:PORT takes sessions, valkey:HOST:PORT "
             "answers PING; without: once it has run for half a second"},
    {.name = "cgroup-root",
     .type = OPTION_STRING,
     .unit = "DIR",
     .default_text = "/sys/fs/cgroup",
     .help = "the host's view of control groups"},
    {.name = NULL},
};

struct program {
    struct options *options;
    const struct sink_driver *driver;
    struct metrics *metrics;
    struct part *parts;
    size_t part_count;
    char disk[DISK_NAME_BYTES]; /* "": none */
    struct sampler *sampler;
    struct sink_probe sink_probe;
    struct db_probe db_probe;
    struct periodic *sink_thread, *db_thread;
    int stop_fd;
    int64_t interval_ns;
};

static int read_settings(struct program *program, struct err *err)
{
    int rc = options_require(program->options, sampler_options, err);
    if (rc == 0)
        rc = sink_select(program->options, &program->driver, err);
    if (rc < 0)
        return rc;
    program->interval_ns = options_duration_ns(program->options, "interval");
    size_t count;
    const char *const *watches = options_list(program->options, "watch", &count);
    /* One more: what watching costs is part of the picture. */
    program->parts = xcalloc(count + 1, sizeof(*program->parts));
    for (size_t i = 0; i < count; i++) {
        rc = part_parse(watches[i], &program->parts[i], err);
        if (rc < 0)
            return rc;
        program->part_count++;
        for (size_t other = 0; other < i; other++)
            if (strcmp(program->parts[other].who, program->parts[i].who) == 0)
                return err_set(err, -EINVAL, "--watch=%s: another --watch has the same name",
                               watches[i]);
        if (strcmp(program->parts[i].who, "sampler") == 0)
            return err_set(err, -EINVAL,
                           "--watch=%s: the sampler watches itself under that name already",
                           watches[i]);
    }
    program->parts[program->part_count++] =
        (struct part){.who = xstrdup("sampler"), .pid = getpid()};
    return 0;
}

/* A disk that can't be told is a figure less, no more. */
static void choose_disk(struct program *program)
{
    const char *dir = options_string(program->options, "disk-of");
    struct err why = {0};
    if (dir && disk_find("/sys", dir, program->disk, &why) < 0)
        log_warning("nothing is told of the disk of %s: %s", dir, why.text);
}

static int start(struct program *program, struct err *err)
{
    int rc = metrics_open_as(&program->metrics, options_string(program->options, "metrics"),
                             "sampler", err);
    if (rc < 0)
        return rc;
    const char *main_url = options_string(program->options, "main-url");
    if (main_url) {
        rc = maindb_open(&program->db_probe.db, main_url, "sluice-sampler", err);
        if (rc < 0)
            return rc;
    }
    choose_disk(program);
    program->sampler = sampler_new("/proc", program->parts, program->part_count,
                                   program->disk[0] ? program->disk : NULL, program->metrics);
    record_start(program->metrics, program->options, NULL, program->driver->name, netdiag_note);
    program->sink_probe.driver = program->driver;
    program->sink_probe.options = program->options;
    program->sink_probe.metrics = program->db_probe.metrics = program->metrics;
    program->sink_probe.interval_ns = program->db_probe.interval_ns = program->interval_ns;
    rc = periodic_start(&program->sink_thread, sink_probe_turn, &program->sink_probe, err);
    if (rc == 0 && main_url)
        rc = periodic_start(&program->db_thread, db_probe_turn, &program->db_probe, err);
    return rc;
}

/* Ticks until a stop is asked for; returns the signal, or a negative errno. */
static int run(struct program *program, struct err *err)
{
    int64_t due_ns = clock_mono_ns();
    for (;;) {
        int rc = sampler_tick(program->sampler, err);
        if (rc < 0)
            return rc;
        metrics_flush(program->metrics);
        /* A tick that comes late is left out rather than made up for. */
        int64_t now_ns = clock_mono_ns();
        due_ns += program->interval_ns * ((now_ns - due_ns) / program->interval_ns + 1);
        while ((now_ns = clock_mono_ns()) < due_ns) {
            struct pollfd stop = {.fd = program->stop_fd, .events = POLLIN};
            struct timespec wait = {.tv_sec = (due_ns - now_ns) / NS_PER_S,
                                    .tv_nsec = (due_ns - now_ns) % NS_PER_S};
            if (ppoll(&stop, 1, &wait, NULL) <= 0)
                continue;
            int signal = stop_signal(program->stop_fd);
            if (signal > 0)
                return signal;
        }
    }
}

/* The last sample, so that totals are those of the end. true when no thread is left. */
static bool settle(struct program *program, const char *why)
{
    int64_t deadline_ns = clock_mono_ns() + SETTLE_NS;
    bool sink_ended = periodic_stop(program->sink_thread, deadline_ns);
    bool db_ended = periodic_stop(program->db_thread, deadline_ns);
    struct err err;
    if (program->sampler && sampler_tick(program->sampler, &err) < 0)
        log_error("%s", err.text);
    if (!sink_ended)
        log_warning("the sink's last backlog is not known: it did not answer");
    if (!db_ended)
        log_warning("the main DB's last count is not known: it did not answer");
    record_stop(program->metrics, why);
    metrics_flush(program->metrics);
    return sink_ended && db_ended;
}

int main(int argc, char *argv[])
{
    log_init("sluice-sampler");
    struct program program = {.stop_fd = -1};
    struct err err = {0};
    int code;
    program.options =
        options_new("sluice-sampler", "Samples what the parts of a run use, the sink's "
                                      "backlog and the rows in the main DB.");
    options_add(program.options, "Sampling", sampler_options);
    options_add(program.options, "Sampling", options_file_table);
    options_add(program.options, "A part in a container", pod_options);
    sink_add_options(program.options);
    if (!options_start(program.options, argc, argv, &code))
        goto out;
    if (options_string(program.options, "pod")) {
        code = pod_main(program.options);
        goto out;
    }
    code = EXIT_USAGE;
    if (read_settings(&program, &err) < 0)
        goto out;
    code = EXIT_UNUSABLE;
    program.stop_fd = stop_open(&err);
    if (program.stop_fd < 0)
        goto out;
    if (start(&program, &err) == 0) {
        int rc = run(&program, &err);
        if (rc > 0)
            code = EXIT_OK;
        if (!settle(&program, rc > 0 ? stop_signal_name(rc) : err.text))
            _exit(code); /* a thread that hangs in a server still uses what would be freed */
    } else if (!periodic_stop(program.sink_thread, clock_mono_ns() + SETTLE_NS)) {
        log_error("%s", err.text);
        _exit(code);
    }

out:
    if (err.text[0])
        log_error("%s", err.text);
    sampler_free(program.sampler);
    sink_probe_close(&program.sink_probe);
    db_probe_close(&program.db_probe);
    if (metrics_close(program.metrics) < 0 && code == EXIT_OK)
        code = EXIT_UNUSABLE;
    for (size_t i = 0; i < program.part_count; i++)
        part_free(&program.parts[i]);
    free(program.parts);
    if (program.stop_fd >= 0)
        close(program.stop_fd);
    options_free(program.options);
    return code;
}

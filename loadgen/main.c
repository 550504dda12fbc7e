/* sluice-loadgen: drives POST /task by a schedule (open loop), or flat out with --max. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "attack.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/options.h"
#include "common/stop.h"
#include "flat.h"
#include "ledger.h"
#include "recorder.h"
#include "start.h"

static const char summary[] =
    "usage: sluice-loadgen --target=HOST:PORT [options]\n\n"
    "Sends POST /task by a schedule, whether or not earlier requests are answered (open loop), "
    "counts each\n"
    "latency from the time the request was due, and writes what became of every id. With --max it "
    "keeps\n"
    "every connection busy instead (closed loop) and prints rates.\n\n"
    "Exit status: 0 when the load ran to its end; 130 or 143 when SIGINT or SIGTERM cut it short "
    "(what was\n"
    "out got 2 s to be answered, and the ledger is complete for what was due until then); 2 for a "
    "mistake in\n"
    "the options; 3 when the target can't be reached, the ledger can't be written, or the file of "
    "--start-file\n"
    "did not come in time.";

#define GRACE_NS (2 * NS_PER_S)

static const struct option_spec load_options[] = {
    {.name = "target",
     .type = OPTION_STRING,
     .unit = "HOST:PORT",
     .required = true,
     .help = "where to send"},
    {.name = "path",
     .type = OPTION_STRING,
     .unit = "PATH",
     .default_text = "/task",
     .help = "the request's path"},
    {.name = "rps",
     .type = OPTION_DECIMAL,
     .unit = "N",
     .default_text = "500",
     .help = "requests a second, before each phase's rate factor"},
    {.name = "pacing",
     .type = OPTION_CHOICE,
     .unit = "paced|burst",
     .choices = "paced|burst",
     .default_text = "paced",
     .help = "evenly spaced, or a second's quota back to back at the top of each second"},
    {.name = "phase",
     .type = OPTION_LIST,
     .unit = "NAME:DURATION:RATE",
     .help = "a phase of the load, RATE a factor of --rps; repeatable, in order; without: "
             "steady:10s:1"},
    {.name = "connections",
     .type = OPTION_INT,
     .unit = "N",
     .default_text = "100",
     .min = 1,
     .max = 60000,
     .help = "connections kept open"},
    {.name = "connections-max",
     .type = OPTION_INT,
     .unit = "N",
     .default_text = "1000",
     .min = 1,
     .max = 60000,
     .help = "as many are opened while more requests are due at once; past that they wait in line"},
    {.name = "payload-bytes",
     .type = OPTION_INT,
     .unit = "N",
     .default_text = "512",
     .min = 0,
     .max = 64 * 1024 * 1024,
     .help = "length of a task's payload"},
    {.name = "timeout",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "10s",
     .min = NS_PER_MS,
     .max = 3600 * NS_PER_S,
     .help = "a request is given up this long after it was due"},
    {.name = "seed",
     .type = OPTION_STRING,
     .unit = "N",
     .help = "ids and bodies follow from it; without: one that was never used"},
    {.name = "start-at",
     .type = OPTION_INT,
     .unit = "MICROSECONDS",
     .help = "unix time of the schedule's begin; without: as soon as the connections are open"},
    {.name = "start-file",
     .type = OPTION_STRING,
     .unit = "FILE",
     .help = "the same, from a file with that number as its only line, which is waited for"},
    {.name = "start-wait",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "5m",
     .max = 24 * 3600 * NS_PER_S,
     .help = "how long --start-file is waited for"},
    {.name = "spin",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "50us",
     .min = 0,
     .max = 10 * NS_PER_MS,
     .help = "stay awake this long before a request is due, to be on time; costs that much CPU"},
    {.name = NULL},
};

static const struct option_spec record_options[] = {
    {.name = "ledger",
     .type = OPTION_STRING,
     .unit = "FILE",
     .help = "write every id and its outcome here; must not exist yet"},
    {.name = "metrics",
     .type = OPTION_STRING,
     .unit = "FILE|DIR/",
     .help = "append events here, JSON lines; in DIR/, to the first loadgen-N.jsonl that is not "
             "there yet"},
    {.name = NULL},
};

static const struct option_spec flat_options[] = {
    {.name = "max",
     .type = OPTION_BOOL,
     .default_text = "no",
     .help = "closed loop, flat out on all --connections; no schedule, no ledger, no metrics"},
    {.name = "duration",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "5s",
     .min = NS_PER_MS,
     .max = 3600 * NS_PER_S,
     .help = "how long, with --max"},
    {.name = NULL},
};

static unsigned connections_max(const struct options *options)
{
    int64_t kept = options_int(options, "connections");
    int64_t max = options_bool(options, "max") ? kept : options_int(options, "connections-max");

    return (unsigned)(max > kept ? max : kept);
}

/* One that is given, or random bits (ids of two loads into one database must not meet). */
static int choose_seed(const struct options *options, uint64_t *seed, struct err *err)
{
    const char *text = options_string(options, "seed");
    char *end;

    if (!text) {
        if (getrandom(seed, sizeof(*seed), 0) != (ssize_t)sizeof(*seed))
            *seed = (uint64_t)clock_wall_us();
        return 0;
    }
    errno = 0;
    *seed = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0)
        return err_set(err, -EINVAL, "--seed=%s: expected a number from 0 to 18446744073709551615",
                       text);
    return 0;
}

static int load_pace(const struct options *options, struct pace *pace, struct err *err)
{
    enum pacing pacing =
        strcmp(options_string(options, "pacing"), "burst") == 0 ? PACING_BURST : PACING_PACED;
    size_t count;
    const char *const *phases = options_list(options, "phase", &count);
    int rc = pace_init(pace, options_decimal(options, "rps"), pacing, err);

    if (rc == 0 && count == 0)
        rc = pace_add_text(pace, "steady:10s:1", err);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = pace_add_text(pace, phases[i], err);
    return rc;
}

/* What can be told to be wrong before anything is opened. */
static int check(const struct options *options, struct pace *pace, struct err *err)
{
    static const char *const not_flat[] = {"phase",      "ledger", "metrics", "start-at",
                                           "start-file", "rps",    "pacing"};
    int rc = options_require(options, load_options, err);

    if (rc < 0)
        return rc;
    if (options_string(options, "path")[0] != '/' ||
        strpbrk(options_string(options, "path"), " \r\n\t"))
        return err_set(err, -EINVAL, "--path must begin with / and hold no white space");
    for (size_t i = 0; options_bool(options, "max") && i < sizeof(not_flat) / sizeof(not_flat[0]);
         i++)
        if (options_is_set(options, not_flat[i]))
            return err_set(err, -EINVAL,
                           "--max has no schedule and keeps no record; leave out --%s",
                           not_flat[i]);
    if (options_is_set(options, "duration") && !options_bool(options, "max"))
        return err_set(err, -EINVAL,
                       "--duration goes with --max; a schedule's length is that of its "
                       "phases, as in --phase=steady:5s:1");
    if (options_is_set(options, "start-at") && options_is_set(options, "start-file"))
        return err_set(err, -EINVAL,
                       "--start-at and --start-file both say when the load begins; leave one out");
    if (options_is_set(options, "start-at") &&
        options_int(options, "start-at") > clock_wall_us() + 86400 * US_PER_S)
        return err_set(err, -EINVAL,
                       "--start-at lies over a day ahead; it is unix time in microseconds");
    return load_pace(options, pace, err);
}

static int allow_descriptors(unsigned connections, struct err *err)
{
    struct rlimit limit;
    rlim_t wanted = (rlim_t)connections + 64;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= wanted)
        return 0;
    if (limit.rlim_max < wanted)
        return err_set(err, -EMFILE,
                       "%u connections need %u descriptors, and this process may have %u; lower "
                       "--connections and --connections-max or raise `ulimit -Hn`",
                       connections, (unsigned)wanted, (unsigned)limit.rlim_max);
    limit.rlim_cur = wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        return err_set(err, -errno, "cannot raise the limit on descriptors: %s", strerror(errno));
    return 0;
}

static int run_flat(const struct options *options, const struct target *target, uint64_t seed,
                    int stop_fd, struct err *err)
{
    const struct flat_config config = {
        .target = target,
        .path = options_string(options, "path"),
        .connections = connections_max(options),
        .payload_bytes = (size_t)options_int(options, "payload-bytes"),
        .seed = seed,
        .duration_ns = options_duration_ns(options, "duration"),
        .wake_fd = stop_fd,
    };
    struct flat_result result;
    int rc = flat_run(&config, &result, err);

    if (rc < 0)
        return rc;
    printf("requests_per_s %.1f\ncpu_us_per_request %.2f\np50_ms %.3f\np99_ms %.3f\nmax_ms %.3f\n",
           (double)result.answers / result.seconds, result.cpu_us_per_answer,
           (double)result.p50_ns / 1e6, (double)result.p99_ns / 1e6, (double)result.max_ns / 1e6);
    printf("seconds %.3f\nanswers %" PRIu64 "\ndurable %" PRIu64 "\nrefused %" PRIu64
           "\nunknown %" PRIu64 "\nwrong_id %" PRIu64 "\nlost %" PRIu64 "\nrefused_dials %" PRIu64
           "\nlocal_failures %" PRIu64 "\nconnections_used %u\n",
           result.seconds, result.answers, result.durable, result.refused, result.unknown,
           result.wrong_ids, result.lost, result.refused_dials, result.local_failures,
           result.connections_used);
    return 0;
}

static void write_start(struct metrics *metrics, const struct options *options, uint64_t seed,
                        int64_t start_us, const struct pace *pace)
{
    struct metrics_event event = {0};
    struct buf settings = {0};
    char seed_text[32];

    options_json(options, &settings);
    metrics_begin(&event, "start");
    metrics_string(&event, "role", "loadgen");
    metrics_string(&event, "version", SLUICE_VERSION);
    metrics_int(&event, "pid", getpid());
    snprintf(seed_text, sizeof(seed_text), "%" PRIu64, seed); // beyond 2^53: no JSON number
    metrics_string(&event, "seed", seed_text);
    metrics_int(&event, "start_us", start_us);
    metrics_int(&event, "requests", (int64_t)pace_count(pace));
    metrics_json(&event, "settings", settings.data);
    metrics_write(metrics, &event);
    metrics_flush(metrics);
    metrics_event_free(&event);
    buf_free(&settings);
}

static void write_stop(struct metrics *metrics, const char *why, const struct attack_result *result)
{
    struct metrics_event event = {0};

    metrics_begin(&event, "stop");
    metrics_string(&event, "role", "loadgen");
    metrics_string(&event, "why", why);
    metrics_bool(&event, "complete", strcmp(why, "done") == 0);
    metrics_int(&event, "due", (int64_t)result->due);
    metrics_int(&event, "wrong_ids", (int64_t)result->wrong_ids);
    metrics_int(&event, "garbage", (int64_t)result->garbage);
    metrics_int(&event, "dials", (int64_t)result->dials);
    metrics_int(&event, "refused_dials", (int64_t)result->refused_dials);
    metrics_int(&event, "local_failures", (int64_t)result->local_failures);
    metrics_int(&event, "idle_closes", (int64_t)result->idle_closes);
    metrics_write(metrics, &event);
    metrics_event_free(&event);
}

static void settle(void *arg, const struct settled *settled)
{
    recorder_add(arg, settled);
}

/* What an open-loop run has open. */
struct load {
    struct metrics *metrics;
    struct ledger *ledger;
    struct recorder *recorder;
    struct attack_progress progress;
    int64_t start_ns, start_wall_us;
    uint64_t seed;
};

/* The schedule's begin by both clocks, tied together once: a wall clock that is set during the load
 * moves no time in the ledger. */
static int choose_start(const struct options *options, int stop_fd, struct load *load,
                        struct err *err)
{
    const char *file = options_string(options, "start-file");
    int64_t wall_us, ahead_us;

    load->start_wall_us = options_int(options, "start-at");
    if (file) {
        int rc = start_file_wait(file, options_duration_ns(options, "start-wait"), stop_fd,
                                 &load->start_wall_us, err);
        if (rc != 0)
            return rc;
    }
    wall_us = clock_wall_us();
    load->start_ns = clock_mono_ns();
    if (!file && !options_is_set(options, "start-at")) {
        load->start_ns += 100 * NS_PER_MS; // enough to open some connections
        load->start_wall_us = wall_us + 100 * 1000;
        return 0;
    }
    ahead_us = load->start_wall_us - wall_us;
    if (ahead_us < 0)
        return err_set(err, -EINVAL,
                       "%s passed %" PRId64 " ms ago; the load would begin with a burst of what "
                       "is overdue",
                       file ? file : "--start-at", -ahead_us / 1000);
    if (ahead_us > 86400 * US_PER_S)
        return err_set(err, -EINVAL, "%s lies over a day ahead; it is unix time in microseconds",
                       file ? file : "--start-at");
    load->start_ns += ahead_us * NS_PER_US;
    return 0;
}

/* 0; 1 when a signal came before the start did. */
static int open_load(const struct options *options, const struct pace *pace, int stop_fd,
                     struct load *load, struct err *err)
{
    const char *path = options_string(options, "ledger");
    /* First, so that who writes the start file can tell that somebody waits for it. */
    int rc = metrics_open_as(&load->metrics, options_string(options, "metrics"), "loadgen", err);

    if (rc == 0)
        rc = choose_start(options, stop_fd, load, err);
    if (rc == 0 && path)
        rc = ledger_open(&load->ledger, path, load->seed,
                         (size_t)options_int(options, "payload-bytes"), load->start_wall_us, err);
    if (rc != 0)
        return rc;
    write_start(load->metrics, options, load->seed, load->start_wall_us, pace);
    load->recorder = recorder_start(&(struct recorder_config){
        .pace = pace,
        .ledger = load->ledger,
        .metrics = load->metrics,
        .start_ns = load->start_ns,
        .start_wall_us = load->start_wall_us,
        .live = isatty(STDERR_FILENO),
        .progress = &load->progress,
    });
    return 0;
}

/* Returns the exit status, or a negative errno. */
static int run_load(const struct options *options, const struct target *target,
                    const struct pace *pace, uint64_t seed, int stop_fd, struct err *err)
{
    struct load load = {.seed = seed};
    struct attack_result result = {0};
    const char *why = "done";
    int status = 0, rc, closed, signal;

    rc = open_load(options, pace, stop_fd, &load, err);
    if (rc == 1)
        status = 128 + stop_signal(stop_fd);
    if (rc != 0)
        goto out;
    rc = attack_run(
        &(struct attack_config){
            .pace = pace,
            .target = target,
            .path = options_string(options, "path"),
            .connections = (unsigned)options_int(options, "connections"),
            .connections_max = connections_max(options),
            .payload_bytes = (size_t)options_int(options, "payload-bytes"),
            .seed = load.seed,
            .start_ns = load.start_ns,
            .timeout_ns = options_duration_ns(options, "timeout"),
            .spin_ns = options_duration_ns(options, "spin"),
            .wake_fd = stop_fd,
            .grace_ns = GRACE_NS,
            .settle = settle,
            .arg = load.recorder,
            .progress = &load.progress,
        },
        &result, err);
    signal = stop_signal(stop_fd);
    if (rc < 0) {
        why = err->text;
    } else if (signal) {
        why = stop_signal_name(signal);
        status = 128 + signal;
    } else if (result.interrupted) {
        why = "the ledger can't be written";
    }
    closed = recorder_stop(load.recorder);
    if (rc == 0 && closed < 0)
        rc = err_set(err, closed, "ledger or metrics could not be written: %s", strerror(-closed));
    write_stop(load.metrics, why, &result);
out:
    if (rc > 0) // a signal before the start
        rc = 0;
    closed = ledger_close(load.ledger, rc == 0, rc == 0 ? err : NULL);
    if (load.ledger && rc < 0 && result.due == 0) // nothing was sent: no evidence, only in the way
        unlink(options_string(options, "ledger"));
    if (rc == 0)
        rc = closed;
    closed = metrics_close(load.metrics);
    if (rc == 0 && closed < 0)
        rc = err_set(err, closed, "the metrics could not be written: %s", strerror(-closed));
    return rc < 0 ? rc : status;
}

int main(int argc, char **argv)
{
    struct options *options = options_new("sluice-loadgen", summary);
    struct target target;
    struct pace pace;
    struct err err = {0};
    uint64_t seed = 0;
    int status = 0, stop_fd = -1, rc;

    log_init("sluice-loadgen");
    options_add(options, "Load", load_options);
    options_add(options, "Load", options_file_table);
    options_add(options, "Record", record_options);
    options_add(options, "Greatest rate", flat_options);
    if (!options_start(options, argc, argv, &status))
        goto out;
    if (check(options, &pace, &err) < 0 || choose_seed(options, &seed, &err) < 0 ||
        target_parse(options_string(options, "target"), &target, &err) == -EINVAL) {
        log_error("%s", err.text);
        status = 2;
        goto out;
    }
    rc = err.code; // a name that can't be resolved is no mistake on the command line
    if (rc == 0)
        rc = stop_fd = stop_open(&err);
    if (rc >= 0)
        rc = allow_descriptors(connections_max(options), &err);
    if (rc == 0)
        rc = options_bool(options, "max") ? run_flat(options, &target, seed, stop_fd, &err)
                                          : run_load(options, &target, &pace, seed, stop_fd, &err);
    status = rc < 0 ? 3 : rc;
    if (rc < 0)
        log_error("%s", err.text);
out:
    if (stop_fd >= 0)
        close(stop_fd);
    options_free(options);
    return status;
}

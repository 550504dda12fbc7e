/* sluice run SCENARIO: a comparison. Checks everything that can be checked, then makes the runs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/file.h"
#include "command.h"
#include "comparison.h"
#include "compose.h"
#include "keeper.h"
#include "run.h"
#include "state.h"
#include "verdict.h"

static const struct option_spec run_options[] = {
    {.name = "sink",
     .type = OPTION_LIST,
     .unit = "NAME",
     .help = "a sink to run against; without: all there are (sluice sinks)"},
    {.name = "set",
     .type = OPTION_LIST,
     .unit = "KEY=VALUE",
     .help = "override a key of the scenario, such as load.rps=2000; several with ; between them"},
    {.name = "repeat",
     .type = OPTION_INT,
     .unit = "N",
     .default_text = "1",
     .min = 1,
     .max = 100,
     .help = "runs for each sink, the order of the sinks turned by one each time"},
    {.name = "resume",
     .type = OPTION_BOOL,
     .help = "go on with the newest comparison of this very scenario: keep its complete runs, make "
             "the others anew; it must be of the same sinks, made the same way"},
    {.name = "require-sla",
     .type = OPTION_BOOL,
     .help = "exit 1 also when a contender missed the SLA"},
    {.name = "allow-unsafe",
     .type = OPTION_BOOL,
     .help = "run even though a server's settings void the comparison; every report says so"},
    {.name = "through",
     .type = OPTION_CHOICE,
     .unit = "native|compose",
     .choices = "native|compose",
     .default_text = "native",
     .help = "where the parts run: as private processes, or in containers (docker compose)"},
    {.name = "drain-timeout",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .help =
         "longest wait for an empty sink after the load; without: a minute and twice what rows, "
         "lanes and row delay need"},
    {.name = "seed",
     .type = OPTION_INT,
     .unit = "N",
     .help = "ids and bodies follow from it; without: a fresh one (the manifest says which)"},
    {.name = NULL},
};

static const struct option_spec place_options[] = {
    {.name = "runs",
     .type = OPTION_STRING,
     .unit = "DIR",
     .default_text = "runs",
     .help = "where comparisons are kept"},
    {.name = "state",
     .type = OPTION_STRING,
     .unit = "DIR",
     .help = "where servers and the WAL keep their data meanwhile, on the disk to be measured; "
             "without: /var/tmp/sluice-state-<uid>"},
    {.name = "keep-state", .type = OPTION_BOOL, .help = "leave that data there at the end"},
    {.name = "sink-url",
     .type = OPTION_URL,
     .unit = "URL",
     .help = "the server of the one sink that needs one, instead of a private one; with a password "
             "only by SLUICE_SINK_URL or @file"},
    {.name = "main-url",
     .type = OPTION_URL,
     .unit = "URL",
     .help = "a main database (PostgreSQL) instead of a private one; the tables lie in a schema of "
             "their own, sluice"},
    {.name = "compose-dir",
     .type = OPTION_STRING,
     .unit = "DIR",
     .help =
         "where base.yaml and SINK.yaml are, for --through compose; without: compose, here or in "
         "sluice's sources"},
    {.name = "build",
     .type = OPTION_BOOL,
     .default_text = "yes",
     .help = "with --through compose: build the image anew where its sources have changed"},
    {.name = "daemons",
     .type = OPTION_STRING,
     .unit = "DIR",
     .help = "look there first for sluice-api, sluice-worker, sluice-sampler and sluice-loadgen"},
    {.name = NULL},
};

enum { SINKS_MAX = 32 };

struct choice {
    const struct sink_driver *driver;
    uint32_t fault_bits, background_bits;
};

struct comparison {
    const struct options *options;
    struct scenario scenario;
    struct choice choices[SINKS_MAX];
    size_t choice_count;
    unsigned repeat;
    const char *main_url, *sink_url; /* servers that are given, and not ours; NULL: ours */
    const struct sink_driver *given; /* whose server sink_url is */
    char *dir, *base;
    char *daemons;
    uint64_t seed;
    bool resumed;
    bool in_containers;
    struct compose compose; /* with in_containers */
    int exit_code;
};

/* ---- checks: nothing is started before they are through ---- */

static int choose_sinks(struct comparison *comparison, struct err *err)
{
    size_t count;
    const char *const *names = options_list(comparison->options, "sink", &count);
    for (size_t i = 0; i < (count > 0 ? count : SINKS_MAX); i++) {
        const struct sink_driver *driver = count > 0 ? sink_find(names[i]) : sink_drivers[i];
        if (!driver && count == 0) {
            break;
        }
        if (!driver) {
            struct buf known = {0};
            for (size_t k = 0; sink_drivers[k]; k++) {
                buf_printf(&known, "%s%s", k > 0 ? ", " : "", sink_drivers[k]->name);
            }
            int rc = err_set(err, -EINVAL, "--sink %s: expected one of %s", names[i], known.data);
            buf_free(&known);
            return rc;
        }
        for (size_t k = 0; k < comparison->choice_count; k++) {
            if (comparison->choices[k].driver == driver) {
                return err_set(err, -EINVAL,
                               "--sink %s: it is named twice; --repeat makes several "
                               "runs",
                               names[i]);
            }
        }
        if (comparison->choice_count == SINKS_MAX) {
            return err_set(err, -EINVAL, "--sink: at most %d", SINKS_MAX);
        }
        comparison->choices[comparison->choice_count++].driver = driver;
    }
    return 0;
}

/* Servers that are given: whose, and that nothing is to befall them. */
static int check_given(struct comparison *comparison, struct err *err)
{
    const struct scenario *scenario = &comparison->scenario;
    size_t count = 0;
    comparison->sink_url = options_string(comparison->options, "sink-url");
    comparison->main_url = options_string(comparison->options, "main-url");
    for (size_t i = 0; comparison->sink_url && i < comparison->choice_count; i++) {
        const struct sink_driver *driver = comparison->choices[i].driver;
        if (settings_find(driver->options, "sink-url") || server_for_sink(driver->name)) {
            comparison->given = driver;
            count++;
        }
    }
    if (comparison->sink_url && count != 1) {
        return err_set(err, -EINVAL,
                       "--sink-url is the server of one sink, and %zu of those chosen have one: "
                       "name it, as in --sink rabbit",
                       count);
    }
    for (size_t i = 0; i < scenario->fault_count; i++) {
        const struct scenario_fault *fault = &scenario->faults[i];
        bool sink = fault->who == FAULT_SINK && comparison->sink_url;
        if (sink || (fault->who == FAULT_MAIN_DB && comparison->main_url)) {
            return err_set(err, -EINVAL,
                           "%s: the %s is not ours (--%s-url), and nothing may befall it: expected "
                           "no such fault (--set 'faults=[]')",
                           fault->place, fault_who_names[fault->who], sink ? "sink" : "main");
        }
    }
    return 0;
}

/* What only private processes can have, and sinks that no file is written for. */
static int check_compose(struct comparison *comparison, struct err *err)
{
    static const char *const native_only[] = {"sink-url", "main-url", "state", "keep-state",
                                              "daemons"};
    const struct options *options = comparison->options;
    struct compose *compose = &comparison->compose;
    size_t set_count, kept = 0;
    for (size_t i = 0; i < sizeof(native_only) / sizeof(native_only[0]); i++) {
        if (options_is_set(options, native_only[i])) {
            return err_set(err, -EINVAL,
                           "--%s is not for --through compose: docs/compose.md says what takes its "
                           "place",
                           native_only[i]);
        }
    }
    compose->dir = compose_find(options_string(options, "compose-dir"), err);
    if (!compose->dir) {
        return -EINVAL;
    }
    options_list(options, "sink", &set_count);
    for (size_t i = 0; i < comparison->choice_count; i++) {
        const char *sink = comparison->choices[i].driver->name;
        if (compose_has(compose, sink)) {
            comparison->choices[kept++] = comparison->choices[i];
        } else if (set_count > 0) {
            return err_set(err, -EINVAL, "--sink %s: there is no %s/%s.yaml", sink, compose->dir,
                           sink);
        }
    }
    comparison->choice_count = kept;
    const char *const *sets = options_list(options, "set", &set_count);
    struct buf joined = {0};
    for (size_t i = 0; i < set_count; i++) {
        buf_printf(&joined, "%s%s", i > 0 ? ";" : "", sets[i]);
    }
    compose->sets = joined.data ? joined.data : xstrdup("");
    compose->build = options_bool(options, "build");
    return 0;
}

/* A control goes without the faults that it can't have; a contender must have them all. */
static int assign_faults(struct comparison *comparison, struct err *err)
{
    const struct scenario *scenario = &comparison->scenario;
    for (size_t i = 0; i < scenario->fault_count; i++) {
        const struct scenario_fault *fault = &scenario->faults[i];
        const struct choice *without = NULL;
        bool anybody = false;
        for (size_t k = 0; k < comparison->choice_count; k++) {
            struct choice *choice = &comparison->choices[k];
            if (fault_can(choice->driver, fault)) {
                choice->fault_bits |= UINT32_C(1) << i;
                anybody = true;
            } else if (!without || !(choice->driver->flags & SINK_CONTROL)) {
                without = choice;
            }
        }
        if (without && (!anybody || !(without->driver->flags & SINK_CONTROL))) {
            return err_set(err, -EINVAL,
                           "%s: the sink %s has no %s: expected a fault that it can have, or none "
                           "(--set 'faults=[]')",
                           fault->place, without->driver->name,
                           fault->who == FAULT_SINK ? "server of its own" : "worker");
        }
    }
    return 0;
}

/* One schedule serves all sinks: each has what it can have of it. */
static void assign_background(struct comparison *comparison)
{
    const struct scenario *scenario = &comparison->scenario;
    for (size_t k = 0; k < comparison->choice_count; k++) {
        struct choice *choice = &comparison->choices[k];
        for (size_t i = 0; i < scenario->background_count; i++) {
            enum background_who who = scenario->background[i].who;
            bool ours = !(who == BACKGROUND_MAIN_DB && comparison->main_url) &&
                        !(who == BACKGROUND_SINK && choice->driver == comparison->given);
            if (ours && background_can(choice->driver, &scenario->background[i])) {
                choice->background_bits |= UINT32_C(1) << i;
            }
        }
    }
}

static int read_scenario(struct comparison *comparison, struct err *err)
{
    size_t count, set_count;
    const char *const *args = options_args(comparison->options, &count);
    const char *const *sets = options_list(comparison->options, "set", &set_count);
    if (count != 1) {
        return err_set(err, -EINVAL,
                       "run takes one scenario: sluice run quick, or the path of a "
                       "file; sluice run --help says more");
    }
    return scenario_open(&comparison->scenario, args[0], sets, set_count, err);
}

static int check(struct comparison *comparison, struct err *err)
{
    int rc = read_scenario(comparison, err);
    if (rc == 0) {
        rc = choose_sinks(comparison, err);
    }
    if (rc == 0) {
        rc = settings_check_sink(&comparison->scenario, err);
    }
    if (rc == 0 && comparison->in_containers) {
        rc = check_compose(comparison, err);
    }
    if (rc == 0) {
        rc = check_given(comparison, err);
    }
    if (rc == 0) {
        rc = assign_faults(comparison, err);
        assign_background(comparison);
    }
    const char *daemons = options_string(comparison->options, "daemons");
    if (rc == 0 && daemons && !(comparison->daemons = realpath(daemons, NULL))) {
        rc = err_set(err, -EINVAL, "--daemons %s: %s", daemons, strerror(errno));
    }
    return rc;
}

/* ---- the runs ---- */

static uint64_t seed_of(const struct comparison *comparison, unsigned repeat)
{
    uint64_t seed;
    if (comparison->resumed && comparison_seed(comparison->dir, repeat, &seed)) {
        return seed;
    }
    /* One seed for all sinks of a repeat: they get the same ids and bodies. */
    return (comparison->seed + repeat - 1) & INT64_MAX;
}

static void say_skipped_faults(const struct comparison *comparison, const struct choice *choice,
                               const char *label)
{
    const struct scenario *scenario = &comparison->scenario;
    for (size_t i = 0; i < scenario->fault_count; i++) {
        if (!(choice->fault_bits >> i & 1)) {
            printf("%s: has no %s, so the fault at %.0f s is left out\n", label,
                   fault_who_names[scenario->faults[i].who],
                   (double)scenario->faults[i].at_ns / 1e9);
        }
    }
}

static void say_skipped_background(const struct comparison *comparison, const struct choice *choice,
                                   const char *label)
{
    const struct scenario *scenario = &comparison->scenario;
    struct buf skipped = {0};
    for (size_t i = 0; i < scenario->background_count; i++) {
        const struct scenario_background *item = &scenario->background[i];
        if (!(choice->background_bits >> i & 1)) {
            buf_printf(&skipped, "%s%s of %s at %.0f s", skipped.len > 0 ? ", " : "",
                       background_do_names[item->what], background_who_names[item->who],
                       (double)item->at_ns / 1e9);
        }
    }
    if (skipped.len > 0) {
        printf("%s: left out, since this sink has no such thing, or the server is not ours: %s\n",
               label, skipped.data);
    }
    buf_free(&skipped);
}

/* One run. False: go no further. */
static bool make_run(struct comparison *comparison, const struct choice *choice, unsigned repeat,
                     const char *label)
{
    struct err err = {0};
    const struct options *options = comparison->options;
    char *dir = xasprintf("%s/%s/%u", comparison->dir, choice->driver->name, repeat);
    enum comparison_run there = comparison_look(dir, &comparison->scenario, choice->fault_bits);
    bool go_on = true;
    if (there == COMPARISON_RUN_COMPLETE) {
        printf("%s: complete already, kept\n", label);
        verdict_audit(dir, label, &comparison->exit_code);
        free(dir);
        return true;
    }
    if (there == COMPARISON_RUN_OTHER) {
        printf("%s: not complete, made anew\n", label);
    }
    say_skipped_faults(comparison, choice, label);
    say_skipped_background(comparison, choice, label);
    int rc = there == COMPARISON_RUN_OTHER ? file_remove_tree(dir, &err) : 0;
    if (rc == 0 && !comparison->in_containers) {
        rc = file_mkdirs(dir, 0755, &err);
    }
    enum run_outcome outcome = RUN_FAILED;
    if (rc == 0) {
        int64_t drain_ns = options_is_set(options, "drain-timeout")
                               ? options_duration_ns(options, "drain-timeout")
                               : scenario_drain_timeout_ns(&comparison->scenario);
        struct run_request request = {
            .scenario = &comparison->scenario,
            .driver = choice->driver,
            .fault_bits = choice->fault_bits,
            .background_bits = choice->background_bits,
            .repeat = repeat,
            .seed = seed_of(comparison, repeat),
            .dir = dir,
            .base = comparison->base,
            .daemons = comparison->daemons,
            .main_url = comparison->main_url,
            .sink_url = choice->driver == comparison->given ? comparison->sink_url : NULL,
            .drain_timeout_ns = drain_ns,
            .allow_unsafe = options_bool(options, "allow-unsafe"),
            .keep_state = options_bool(options, "keep-state"),
            .label = label};
        outcome = comparison->in_containers ? compose_run(&comparison->compose, &request, &err)
                                            : run_perform(&request, &err);
    }
    if (outcome == RUN_COMPLETE) {
        verdict_audit(dir, label, &comparison->exit_code);
    } else {
        go_on = false;
        if (outcome == RUN_FAILED) {
            fflush(stdout);
            fprintf(stderr, "sluice: %s: %s\n", label, err.text);
            comparison->exit_code = EXIT_UNUSABLE;
        }
    }
    free(dir);
    return go_on;
}

static void make_runs(struct comparison *comparison)
{
    unsigned number = 0, total = comparison->repeat * (unsigned)comparison->choice_count;
    for (unsigned repeat = 1; repeat <= comparison->repeat; repeat++) {
        for (size_t i = 0; i < comparison->choice_count; i++) {
            /* Turned by one each time, so that no sink is always the first after a quiet minute. */
            const struct choice *choice =
                &comparison->choices[(i + repeat - 1) % comparison->choice_count];
            char *label = xasprintf("[%u/%u] %s", ++number, total, choice->driver->name);
            bool go_on = make_run(comparison, choice, repeat, label);
            free(label);
            if (!go_on) {
                return;
            }
        }
    }
}

/* ---- around them ---- */

static int compare_texts(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* "rabbit wal", sorted: their order is no other comparison. */
static void name_sinks(const struct comparison *comparison, struct buf *out)
{
    const char **names = xcalloc(comparison->choice_count + 1, sizeof(*names));
    for (size_t i = 0; i < comparison->choice_count; i++) {
        names[i] = comparison->choices[i].driver->name;
    }
    qsort(names, comparison->choice_count, sizeof(*names), compare_texts);
    for (size_t i = 0; i < comparison->choice_count; i++) {
        buf_printf(out, "%s%s", i > 0 ? " " : "", names[i]);
    }
    free(names);
}

/* The comparison's folder: a new one, or one to go on with. */
static int open_comparison(struct comparison *comparison, struct err *err)
{
    const char *runs = options_string(comparison->options, "runs");
    const char *through = options_string(comparison->options, "through");
    struct buf sinks = {0};
    int rc = 0;
    name_sinks(comparison, &sinks);
    if (options_bool(comparison->options, "resume")) {
        rc = comparison_find(runs, &comparison->scenario, sinks.data, through, &comparison->dir,
                             err);
        comparison->resumed = comparison->dir != NULL;
        if (comparison->dir) {
            printf("goes on with %s\n", comparison->dir);
        } else if (rc == 0) {
            printf("nothing to resume: %s holds no comparison of this very scenario\n", runs);
        }
    }
    if (rc == 0 && !comparison->dir) {
        rc = comparison_create(runs, comparison->scenario.name, &comparison->dir, err);
        rc = rc == 0 ? comparison_sign(comparison->dir, sinks.data, through, err) : rc;
    }
    buf_free(&sinks);
    return rc;
}

static int open_places(struct comparison *comparison, struct err *err)
{
    const struct options *options = comparison->options;
    struct account account;
    int rc = comparison->in_containers ? compose_check(err) : 0;
    if (rc == 0) {
        rc = account_for_servers(&account, err);
    }
    if (rc == 0) {
        rc = state_base(options_string(options, "state"), &account, &comparison->base, err);
    }
    if (rc < 0) {
        return rc;
    }
    rc = open_comparison(comparison, err);
    if (rc == 0 && comparison->in_containers) {
        comparison->compose.comparison = comparison->dir;
        rc = compose_enter(&comparison->compose, &comparison->scenario, err);
    }
    if (rc == 0 && options_is_set(options, "seed")) {
        comparison->seed = (uint64_t)options_int(options, "seed");
    } else if (rc == 0 && getrandom(&comparison->seed, sizeof(comparison->seed), 0) < 0) {
        comparison->seed = (uint64_t)clock_wall_us();
    }
    return rc;
}

static void say_interrupted(const struct comparison *comparison)
{
    const struct sink_driver *given = comparison->given;
    int64_t tasks =
        given ? given_tasks_left(&comparison->scenario, given, comparison->sink_url) : 0;
    fprintf(stderr, "sluice: interrupted; all that was started is stopped; ");
    if (tasks == 0) {
        fprintf(stderr, "--resume goes on with %s\n", comparison->dir);
        return;
    }
    if (tasks > 0) {
        fprintf(stderr, "%lld tasks stay in the sink %s, which is not ours", (long long)tasks,
                given->name);
    } else {
        fprintf(stderr, "the sink %s, which is not ours, does not tell how many tasks stay in it",
                given->name);
    }
    fprintf(stderr,
            "; once they are thrown away (sluice clean --sink %s --sink-url=... --discard-tasks), "
            "--resume goes on with %s\n",
            given->name, comparison->dir);
}

static int compare(struct comparison *comparison)
{
    struct err err = {0};
    bool allow_unsafe = options_bool(comparison->options, "allow-unsafe");
    /* --resume may find that nothing is left to do, whether or not they are still there. */
    if (!options_bool(comparison->options, "resume") &&
        given_try(&comparison->scenario, comparison->given, comparison->sink_url,
                  comparison->main_url, allow_unsafe, &err) < 0) {
        return command_fail(EXIT_UNUSABLE, err.text);
    }
    int rc = open_places(comparison, &err);
    if (rc < 0) {
        state_leave(comparison->base);
        return command_fail(rc == -EINVAL ? EXIT_MISTAKE : EXIT_UNUSABLE, err.text);
    }
    printf("%s: %zu sink%s, %u run%s each, %.0f s of load; results in %s\n",
           comparison->scenario.name, comparison->choice_count,
           comparison->choice_count == 1 ? "" : "s", comparison->repeat,
           comparison->repeat == 1 ? "" : "s",
           (double)scenario_load_ns(&comparison->scenario) / 1e9, comparison->dir);
    if (busy_enter(comparison->base)) {
        fprintf(stderr, "sluice: WARNING: another sluice runs on this machine now; the figures of "
                        "both are void, and the report says so\n");
    }
    make_runs(comparison);
    int number = keeper_interrupted();
    if (number) {
        comparison->exit_code = 128 + number;
        say_interrupted(comparison);
    } else {
        verdict_report(comparison->dir, options_bool(comparison->options, "require-sla"),
                       &comparison->exit_code);
    }
    state_leave(comparison->base);
    return comparison->exit_code;
}

static int run_main(int argc, char *argv[])
{
    struct options *options =
        options_new("sluice run", "compares sinks: the same load and faults against each, every "
                                  "task counted, one report");
    options_add(options, "Runs", run_options);
    options_add(options, "Places", place_options);
    struct comparison comparison = {.options = options};
    int code;
    if (command_start(options, argc, argv, "SCENARIO [--sink NAME]... [--set KEY=VALUE]...", NULL,
                      &code)) {
        struct err err = {0};
        comparison.repeat = (unsigned)options_int(options, "repeat");
        comparison.in_containers = strcmp(options_string(options, "through"), "compose") == 0;
        int rc = check(&comparison, &err);
        if (rc < 0) {
            code = command_fail(EXIT_MISTAKE, err.text);
        } else {
            keeper_enter();
            code = compare(&comparison);
        }
    }
    scenario_free(&comparison.scenario);
    free(comparison.dir);
    free(comparison.daemons);
    free(comparison.compose.dir);
    free(comparison.compose.sets);
    options_free(options);
    return code;
}

const struct command command_run = {
    .name = "run",
    .summary = "run a scenario against sinks, audit and report",
    .run = run_main,
};

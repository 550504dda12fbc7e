/* sluice prepare SCENARIO: makes the servers ready and a run's folder, for parts that others start.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attended.h"
#include "base/clock.h"
#include "base/file.h"
#include "command.h"
#include "comparison.h"
#include "keeper.h"
#include "metrics/metrics.h"
#include "settings/settings.h"

static const struct option_spec prepare_options[] = {
    {.name = "run",
     .type = OPTION_STRING,
     .unit = "NAME",
     .help = "name of the comparison's folder in --runs; runs of several sinks with one name make "
             "one comparison; without: scenario and time"},
    {.name = "repeat",
     .type = OPTION_INT,
     .unit = "N",
     .default_text = "0",
     .max = 100,
     .help = "number of this run of the sink; 0: the first that is free"},
    {.name = "seed",
     .type = OPTION_INT,
     .unit = "N",
     .help = "ids and bodies follow from it; without: a fresh one (the manifest says which)"},
    {.name = "wait",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "60s",
     .max = 3600 * NS_PER_S,
     .help = "how long a server may take to answer"},
    {.name = NULL},
};

static const char prepare_more[] =
    "\nMakes the main database and the sink ready, EMPTIES both (unless --main-given, "
    "--sink-given),\n"
    "and makes the run's folder: DIR/<name>/<sink>/<n>/, to which LINK leads from then on. There "
    "it\n"
    "writes api.options, worker.options and loadgen.options, which those take by --options-file.\n"
    "Settings of api and worker in the environment are checked, too. Then `sluice attend` can "
    "begin.\n"
    "Every flag is also a variable: SLUICE_RUN for --run.\n";

/* The parts may run as somebody else, and whoever looks at the results as a third one. */
enum { RUNS_MAX = 100 };

/* ---- the run's folder ---- */

/* Says what a person can do about it. */
static int refuse_folder(int rc, struct err *err)
{
    char text[sizeof(err->text)];
    snprintf(text, sizeof(text), "%s", err->text);
    return rc == -EEXIST ? rc
                         : err_set(err, rc,
                                   "%s: user %d must be able to write there (chmod 777 the folder "
                                   "that holds the runs)",
                                   text, (int)geteuid());
}

static int make_shared(const char *path, struct err *err)
{
    if (mkdir(path, 0777) < 0) {
        return err_set(err, -errno, "%s cannot be made: %s", path, strerror(errno));
    }
    (void)comparison_share(path, NULL); /* it may be another's */
    return 0;
}

static int make_shared_once(const char *path, struct err *err)
{
    int rc = make_shared(path, err);
    return rc == -EEXIST ? 0 : rc;
}

/* RUNS/NAME, made unless it is there. */
static int make_comparison(const struct options *options, const char *scenario, char **dir,
                           struct err *err)
{
    const char *runs = options_string(options, "runs"), *name = options_string(options, "run");
    if (!name) {
        int rc = comparison_create(runs, scenario, dir, err);
        if (rc == 0) {
            (void)comparison_share(*dir, NULL);
        }
        return rc;
    }
    int rc = file_mkdirs(runs, 0755, err);
    char *path = xasprintf("%s/%s", runs, name);
    if (rc == 0) {
        rc = make_shared_once(path, err);
    }
    if (rc == 0 && !(*dir = realpath(path, NULL))) {
        rc = err_set(err, -errno, "%s: %s", path, strerror(errno));
    }
    free(path);
    return rc;
}

static int make_run_folder(const struct options *options, const struct attended *attended,
                           unsigned *number, char **run_dir, struct err *err)
{
    int64_t wanted = options_int(options, "repeat");
    char *comparison = NULL;
    int rc = make_comparison(options, attended->scenario.name, &comparison, err);
    if (rc < 0) {
        return refuse_folder(rc, err);
    }
    char *sink_dir = xasprintf("%s/%s", comparison, attended->request.driver->name);
    rc = make_shared_once(sink_dir, err);
    for (*number = wanted > 0 ? (unsigned)wanted : 1; rc == 0; ++*number) {
        *run_dir = xasprintf("%s/%u", sink_dir, *number);
        rc = make_shared(*run_dir, err);
        if (rc == 0) {
            break;
        }
        free(*run_dir);
        *run_dir = NULL;
        rc = rc == -EEXIST && wanted == 0 && *number < RUNS_MAX ? 0 : rc;
    }
    char *logs = rc == 0 ? xasprintf("%s/logs", *run_dir) : NULL;
    rc = logs ? make_shared(logs, err) : rc;
    free(logs);
    free(sink_dir);
    free(comparison);
    return rc < 0 ? refuse_folder(rc, err) : 0;
}

/* ---- the link ---- */

/* A part of an earlier run that goes on would write to servers that are about to be emptied. */
static int check_nobody_there(const char *link, struct err *err)
{
    char *dir = realpath(link, NULL);
    DIR *folder = dir ? opendir(dir) : NULL;
    int rc = 0;
    for (const struct dirent *entry; rc == 0 && folder && (entry = readdir(folder));) {
        const char *end = strrchr(entry->d_name, '.');
        if (!end || strcmp(end, ".jsonl") != 0) {
            continue;
        }
        char *path = xasprintf("%s/%s", dir, entry->d_name);
        if (metrics_alive(path, NULL) == 1) {
            rc = err_set(
                err, -EBUSY,
                "an earlier run is not over: a process still writes %s; end its parts first "
                "(docker compose down)",
                path);
        }
        free(path);
    }
    if (folder) {
        closedir(folder);
    }
    free(dir);
    return rc;
}

static int point_link(const char *link, const char *run_dir, struct err *err)
{
    char *fresh = xasprintf("%s.%d", link, (int)getpid());
    int rc = 0;
    unlink(fresh);
    if (symlink(run_dir, fresh) < 0 || rename(fresh, link) < 0) {
        rc = err_set(err, -errno, "%s cannot be made to lead to %s: %s", link, run_dir,
                     strerror(errno));
        unlink(fresh);
    }
    free(fresh);
    return rc;
}

/* ---- all of it ---- */

static void choose_seed(const struct options *options, uint64_t *seed)
{
    if (options_is_set(options, "seed")) {
        *seed = (uint64_t)options_int(options, "seed");
    } else if (getrandom(seed, sizeof(*seed), 0) < 0) {
        *seed = (uint64_t)clock_wall_us();
    }
    *seed &= INT64_MAX;
}

static int prepare(const struct options *options, struct attended *attended, struct err *err)
{
    struct run_request *request = &attended->request;
    const struct run_prepare plan = {.wait_ns = options_duration_ns(options, "wait"),
                                     .main_given = attended->main_given,
                                     .sink_given = attended->sink_given};
    char *dir = NULL;
    choose_seed(options, &request->seed);
    int rc = check_nobody_there(attended->now, err);
    if (rc == 0) {
        rc = make_run_folder(options, attended, &request->repeat, &dir, err);
    }
    if (rc == 0) {
        assert(dir);
        request->dir = request->base = dir;
        rc = run_prepare(request, &plan, err);
        rc = rc == 0 ? point_link(attended->now, dir, err) : rc;
    }
    if (rc == 0) {
        printf("%s: prepared %s\n", request->label, dir);
    } else if (dir) {
        struct err late = {0};
        if (file_remove_tree(dir, &late) < 0) { /* it was never a run */
            fprintf(stderr, "sluice: %s\n", late.text);
        }
    }
    free(dir);
    return rc;
}

static int check(const struct options *options, struct err *err)
{
    const char *name = options_string(options, "run");
    if (name && (strchr(name, '/') || name[0] == '.' || name[0] == '\0')) {
        return err_set(
            err, -EINVAL,
            "--run (or SLUICE_RUN): \"%s\" is no name of a folder: expected one without / "
            "that does not begin with a dot",
            name);
    }
    /* Of the daemons that may be given the same environment: a container that ends over a setting
     * tells nobody but its own log. */
    return settings_check_environment(err);
}

static int prepare_main(int argc, char *argv[])
{
    struct options *options = options_new(
        "sluice prepare", "makes servers and a folder ready for a run whose parts others start");
    options_add(options, "Preparing", prepare_options);
    attended_add_options(options);
    struct attended attended = {0};
    struct err err = {0};
    int code;
    if (command_start(options, argc, argv, "SCENARIO --sink NAME [--runs DIR] [--now LINK]",
                      prepare_more, &code)) {
        int rc = attended_read(&attended, options, &err);
        if (rc == 0) {
            rc = check(options, &err);
        }
        if (rc < 0) {
            code = command_fail(EXIT_MISTAKE, err.text);
        } else {
            keeper_enter();
            rc = prepare(options, &attended, &err);
            int number = keeper_interrupted();
            code = rc == 0  ? EXIT_OK
                   : number ? 128 + number
                            : command_fail(EXIT_UNUSABLE, err.text);
        }
        if (rc != -EBUSY) { /* then the link is an earlier run's still */
            attended_why_write(&attended, code, err.text);
        }
    }
    attended_free(&attended);
    options_free(options);
    return code;
}

const struct command command_prepare = {
    .name = "prepare",
    .summary = "make servers and a folder ready for a run whose parts others start",
    .run = prepare_main,
};

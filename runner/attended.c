#include "attended.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

static const struct option_spec attended_options[] = {
    {.name = "scenario",
     .type = OPTION_STRING,
     .unit = "NAME|FILE",
     .help = "the scenario, when it is not named as a word"},
    {.name = "set",
     .type = OPTION_LIST,
     .unit = "KEY=VALUE",
     .help = "override a key of the scenario, such as load.rps=2000; several with ; between them"},
    {.name = "runs",
     .type = OPTION_STRING,
     .unit = "DIR",
     .default_text = "runs",
     .help = "where comparisons are kept"},
    {.name = "now",
     .type = OPTION_STRING,
     .unit = "LINK",
     .help = "a symbolic link to the folder of the run that is prepared, for those who take part; "
             "without: now, in --runs"},
    {.name = "main-url",
     .type = OPTION_URL,
     .unit = "URL",
     .help = "the main database; with a password only by SLUICE_MAIN_URL or @file"},
    {.name = "main-given",
     .type = OPTION_BOOL,
     .help = "that server is somebody's own: it must hold no tasks, and is never emptied"},
    {.name = "sink-given", .type = OPTION_BOOL, .help = "the same of the sink's server"},
    {.name = "faults",
     .type = OPTION_BOOL,
     .help = "somebody carries out the scenario's faults, and they must be seen; without: faults "
             "come by hand or not at all"},
    {.name = "allow-unsafe",
     .type = OPTION_BOOL,
     .help = "go on even though a server's settings void the comparison; every report says so"},
    {.name = NULL},
};

enum { WHY_MAX = 4096 };

void attended_add_options(struct options *options)
{
    options_add(options, "Run", attended_options);
    sink_add_options(options);
}

static int read_scenario(struct attended *attended, const struct options *options, struct err *err)
{
    size_t words, set_count;
    const char *const *args = options_args(options, &words);
    const char *name = words == 1 ? args[0] : options_string(options, "scenario");
    const char *const *sets = options_list(options, "set", &set_count);
    if (words > 1 || !name) {
        return err_set(
            err, -EINVAL,
            "one scenario must be named, as a word or by SLUICE_SCENARIO: a name such as "
            "quick, or the path of a file");
    }
    int rc = scenario_open(&attended->scenario, name, sets, set_count, err);
    if (rc < 0 && words == 0) { /* then it came from the environment, as a rule */
        err_prefix(err, strncmp(err->text, "--set", 5) == 0 ? "SLUICE_SET" : "SLUICE_SCENARIO");
    }
    return rc;
}

static int choose_faults(struct attended *attended, struct err *err)
{
    const struct scenario *scenario = &attended->scenario;
    const struct sink_driver *driver = attended->request.driver;
    for (size_t i = 0; i < scenario->fault_count; i++) {
        const struct scenario_fault *fault = &scenario->faults[i];
        if (fault_can(driver, fault)) {
            attended->request.fault_bits |= UINT32_C(1) << i;
        } else if (!(driver->flags & SINK_CONTROL)) {
            return err_set(err, -EINVAL,
                           "%s: the sink %s has no %s: expected a fault that it can have",
                           fault->place, driver->name, fault_who_names[fault->who]);
        }
    }
    return 0;
}

/* What can be forced from here: what a Postgres does when it is asked by a client. */
static void choose_background(struct attended *attended)
{
    const struct scenario *scenario = &attended->scenario;
    const struct sink_driver *driver = attended->request.driver;
    bool sink = !attended->sink_given && server_for_sink(driver->name) == &server_postgres;
    for (size_t i = 0; i < scenario->background_count; i++) {
        const struct scenario_background *item = &scenario->background[i];
        if (background_can(driver, item) &&
            ((item->who == BACKGROUND_MAIN_DB && !attended->main_given) ||
             (item->who == BACKGROUND_SINK && sink))) {
            attended->request.background_bits |= UINT32_C(1) << i;
        }
    }
}

/* -EINVAL: a server that this sink needs is not named. */
static int check_urls(const struct attended *attended, const struct options *options,
                      struct err *err)
{
    const char *name = attended->request.driver->name;
    if (!options_string(options, "main-url")) {
        return err_set(err, -EINVAL, "the main database is not named: SLUICE_MAIN_URL=URL");
    }
    if (server_for_sink(name) && !options_string(options, "sink-url")) {
        return err_set(err, -EINVAL,
                       "the sink %s has a server, which is not named: SLUICE_SINK_URL=URL", name);
    }
    return 0;
}

int attended_read(struct attended *attended, struct options *options, struct err *err)
{
    struct run_request *request = &attended->request;
    request->scenario = &attended->scenario;
    request->sink_options = options;
    const char *now = options_string(options, "now");
    attended->now = now ? xstrdup(now) : xasprintf("%s/now", options_string(options, "runs"));
    attended->main_given = options_bool(options, "main-given");
    attended->sink_given = options_bool(options, "sink-given");
    int rc = read_scenario(attended, options, err);
    if (rc == 0) {
        rc = sink_select(options, &request->driver, err);
    }
    if (rc == 0) {
        rc = settings_check_sink(&attended->scenario, err);
    }
    if (rc == 0) {
        rc = check_urls(attended, options, err);
    }
    if (rc == 0 && options_bool(options, "faults")) {
        rc = choose_faults(attended, err);
    }
    if (rc < 0) {
        return rc;
    }
    choose_background(attended);
    request->allow_unsafe = options_bool(options, "allow-unsafe");
    request->label = request->driver->name;
    request->main_url = attended->main_given ? options_string(options, "main-url") : NULL;
    request->sink_url = attended->sink_given && server_for_sink(request->driver->name)
                            ? options_string(options, "sink-url")
                            : NULL;
    return 0;
}

void attended_free(struct attended *attended)
{
    scenario_free(&attended->scenario);
    free(attended->now);
}

void attended_why_write(const struct attended *attended, int exit_code, const char *text)
{
    char *path = xasprintf("%s.why", attended->now);
    char *line = xasprintf("%d %s\n", exit_code, text);
    if (exit_code == 0) {
        unlink(path);
    } else {
        (void)file_write(path, line, strlen(line), NULL); /* it has been said already */
    }
    free(line);
    free(path);
}

int attended_why_read(const struct attended *attended, struct buf *text)
{
    char *path = xasprintf("%s.why", attended->now), *end = NULL;
    struct buf line = {0};
    long code = 0;
    if (file_read(path, WHY_MAX, &line, NULL) == 0 && line.len > 0) {
        code = strtol(line.data, &end, 10);
        buf_printf(text, "%.*s", (int)strcspn(end, "\n"), end + (*end == ' '));
    }
    buf_free(&line);
    free(path);
    return code > 0 && code < 256 ? (int)code : 0;
}

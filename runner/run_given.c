#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "given.h"
#include "run.h"

/* The first answer of a sink that was just connected may take a moment. */

int given_start_main(struct one_run *run, struct err *err)
{
    int rc = given_main_open(&run->given_main, run->request->main_url, err);
    if (rc == 0) {
        run->main_url = given_main_url(run->given_main);
    }
    return rc;
}

void server_describe_by_url(struct one_run *run, const char *role, const char *name,
                            const char *version, const char *url)
{
    bool read = version[0] != '\0';
    size_t shown_bytes = strlen(url) + 16;
    char *shown = xmalloc(shown_bytes);
    char *unread = xasprintf("%s is a server that others started: replicas%s and all settings that "
                             "the preflight does not name",
                             role, read ? "" : ", version");
    url_redact(url, shown, shown_bytes);
    version = read ? version : "unverified";
    buf_printf(&run->servers, "%s\n  {\"role\": \"%s\", \"name\": \"%s\", \"version\": ",
               run->servers.len > 0 ? "," : "", role, name);
    buf_json_string(&run->servers, version, strlen(version));
    buf_puts(&run->servers, ", \"replicas\": 0, \"settings\": {\"url\": ");
    buf_json_string(&run->servers, shown, strlen(shown));
    buf_puts(&run->servers, "}}");
    json_item(&run->unverified, unread);
    free(unread);
    free(shown);
}

void given_describe(struct one_run *run, const char *role, const char *name, const char *version,
                    const char *url)
{
    size_t shown_bytes = strlen(url) + 16;
    char *shown = xmalloc(shown_bytes);
    server_describe_by_url(run, role, name, version, url);
    run_say(run, "%s: %s (%s), which is not ours: it is not started, stopped or configured", role,
            url_redact(url, shown, shown_bytes), version[0] != '\0' ? version : "unverified");
    free(shown);
}

/* Somebody's tasks would be drained into this run's main DB, and take its audit for fools. */
static int check_empty(const struct sink_driver *driver, const struct options *options,
                       struct err *err)
{
    int64_t tasks = 0;
    int rc = driver->flags & SINK_DRAINS ? given_count_tasks(driver, options, &tasks, err) : 0;
    if (tasks > 0) {
        rc = err_set(err, -EBUSY,
                     "it holds %lld tasks already, which this run would drain: let their own "
                     "worker do that, or throw them away (sluice clean --sink %s --sink-url=... "
                     "--discard-tasks)",
                     (long long)tasks, driver->name);
    }
    return rc;
}

static int check_apart(const struct sink_driver *driver, const char *sink_url, const char *main_url,
                       struct err *err)
{
    bool is_postgres = server_for_sink(driver->name) == &server_postgres;
    struct err unknown = {0};
    if (main_url && is_postgres && given_same_server(sink_url, main_url, &unknown) == 1) {
        return err_set(err, -EPERM,
                       "its server is the main DB's, found one, wanted two: they share a log, "
                       "whose flush is what is measured");
    }
    return 0;
}

int given_hold_sink(struct one_run *run, struct err *err)
{
    const struct sink_driver *driver = run->request->driver;
    int rc = hold_take(&run->sink_hold, driver, run->sink_options, err);
    return rc < 0 ? err_prefix(err, "sink %s", driver->name) : 0;
}

int given_check_sink(struct one_run *run, struct err *err)
{
    const struct run_request *request = run->request;
    int rc = check_empty(request->driver, run->sink_options, err);
    return rc < 0 ? rc : check_apart(request->driver, run->sink_url, request->main_url, err);
}

/* ---- before anything is started ---- */

/* What makes a comparison void stops it, unless that is allowed. */
static int judge(int rc, bool allow_unsafe, struct err *err)
{
    if (rc == -ENODATA || (rc == -EPERM && allow_unsafe)) {
        return 0; /* the run says so */
    }
    if (rc == -EPERM) {
        err_set(err, rc, "%s (--allow-unsafe runs it anyway, and every report says so)", err->text);
    }
    return rc;
}

/* *options: to be freed in any case. */
static int make_options(struct options **options, const struct scenario *scenario,
                        const struct sink_driver *driver, const char *url, struct err *err)
{
    *options = options_new("sluice", "");
    sink_add_options(*options);
    int rc = options_set(*options, "sink", driver->name, "runner", err);
    for (size_t i = 0; rc == 0 && i < scenario->sink_count; i++) {
        const struct scenario_sink_option *setting = &scenario->sink[i];
        rc = options_set(*options, setting->name, setting->text, setting->place, err);
    }
    return rc == 0 ? options_set(*options, "sink-url", url, "runner", err) : rc;
}

static int try_sink(const struct scenario *scenario, const struct sink_driver *driver,
                    const char *url, const char *main_url, bool allow_unsafe, struct err *err)
{
    struct options *options;
    struct hold *hold = NULL;
    int rc = make_options(&options, scenario, driver, url, err);
    if (rc == 0) {
        rc = hold_take(&hold, driver, options, err);
    }
    if (rc == 0) {
        rc = driver->setup(options, err);
    }
    if (rc == 0) {
        rc = judge(driver->preflight(options, err), allow_unsafe, err);
    }
    if (rc == 0) {
        rc = check_empty(driver, options, err);
    }
    if (rc == 0) {
        rc = judge(check_apart(driver, url, main_url, err), allow_unsafe, err);
    }
    hold_release(hold);
    options_free(options);
    if (rc < 0) {
        err_prefix(err, "sink %s", driver->name);
    }
    return rc;
}

int given_try(const struct scenario *scenario, const struct sink_driver *driver,
              const char *sink_url, const char *main_url, bool allow_unsafe, struct err *err)
{
    int rc = main_url ? judge(given_main_try(main_url, err), allow_unsafe, err) : 0;
    if (rc == 0 && driver) {
        rc = try_sink(scenario, driver, sink_url, main_url, allow_unsafe, err);
    }
    return rc;
}

int64_t given_tasks_left(const struct scenario *scenario, const struct sink_driver *driver,
                         const char *sink_url)
{
    struct options *options;
    struct err err = {0};
    int64_t tasks = 0;
    int rc = make_options(&options, scenario, driver, sink_url, &err);
    if (rc == 0 && driver->flags & SINK_DRAINS) {
        rc = given_count_tasks(driver, options, &tasks, &err);
    }
    options_free(options);
    return rc < 0 ? -1 : tasks;
}

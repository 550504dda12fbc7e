#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "given.h"
#include "run.h"

/* The first answer of a sink that was just connected may take a moment. */
#define BACKLOG_NS (10 * NS_PER_S)

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
static int check_empty(struct one_run *run, struct err *err)
{
    const struct sink_driver *driver = run->request->driver;
    struct sink_backlog backlog = {.tasks = -1};
    struct sink *probe;
    int rc = driver->open(&probe, SINK_PROBE, run->sink_options, err);
    if (rc < 0) {
        return rc;
    }
    int64_t until_ns = clock_mono_ns() + BACKLOG_NS;
    do {
        rc = driver->backlog(probe, &backlog);
        clock_sleep_ns(50 * NS_PER_MS);
    } while ((rc < 0 || backlog.tasks < 0) && clock_mono_ns() < until_ns);
    driver->close(probe, clock_mono_ns() + NS_PER_S);
    if (rc < 0 || backlog.tasks < 0) {
        return err_set(err, -EIO, "it does not tell how many tasks it holds already");
    }
    if (backlog.tasks > 0) {
        return err_set(err, -EBUSY,
                       "it holds %lld tasks already, which this run would drain: let their own "
                       "worker do that, or throw them away (sluice clean --sink %s --sink-url=... "
                       "--discard-tasks)",
                       (long long)backlog.tasks, driver->name);
    }
    return 0;
}

int given_check_sink(struct one_run *run, struct err *err)
{
    int rc = run->request->driver->flags & SINK_DRAINS ? check_empty(run, err) : 0;
    bool is_postgres = server_for_sink(run->request->driver->name) == &server_postgres;
    if (rc == 0 && run->request->main_url && is_postgres) {
        struct err unknown = {0};
        if (given_same_server(run->sink_url, run->request->main_url, &unknown) == 1) {
            rc = err_set(err, -EPERM,
                         "its server is the main DB's, found one, wanted two: they share a log, "
                         "whose flush is what is measured");
        }
    }
    return rc;
}

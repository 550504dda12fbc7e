/* What has to be there before others start a run's parts: servers that answer and hold nothing, and
 * the files from which the parts take their settings. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "keeper.h"
#include "maindb/maindb.h"
#include "run.h"

enum { AGAIN_MS = 250 };

/* Will asking again not help? */
static bool is_final(int rc)
{
    static const int codes[] = {-EINVAL, -EPERM, -EACCES, -EEXIST, -EBUSY, -ENOTSUP, -EINTR};
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        if (rc == codes[i]) {
            return true;
        }
    }
    return false;
}

/* Asks until it is done, for as long as the server does not answer. */
static int insist(struct one_run *run, const char *who, int64_t wait_ns,
                  int (*ask)(struct one_run *run, struct err *err), struct err *err)
{
    int64_t deadline_ns = clock_mono_ns() + wait_ns;
    struct err last = {0};
    for (;;) {
        int rc = ask(run, &last);
        if (rc == 0) {
            return 0;
        }
        if (keeper_interrupted()) {
            return err_set(err, -EINTR, "interrupted");
        }
        if (is_final(rc)) {
            return err_set(err, rc, "%s", last.text);
        }
        if (clock_mono_ns() > deadline_ns) {
            return err_set(err, -ETIMEDOUT,
                           "%s did not answer within %lld s: %s; its log (docker compose logs %s) "
                           "says why, also when its volume is of another version of the server "
                           "(docker compose down -v removes it)",
                           who, (long long)(wait_ns / NS_PER_S), last.text, who);
        }
        keeper_nap(AGAIN_MS);
    }
}

static int set_up_main(struct one_run *run, struct err *err)
{
    return maindb_setup(run->main_url, run->request->scenario->row_delay_ns, err);
}

/* With all that an earlier run left there. */
static int renew_sink(struct one_run *run, struct err *err)
{
    const struct sink_driver *driver = run->request->driver;
    int rc = driver->remove ? driver->remove(run->sink_options, err) : 0;
    if (rc == 0) {
        rc = driver->setup(run->sink_options, err);
    }
    return rc < 0 ? err_prefix(err, "sink %s", driver->name) : 0;
}

/* Held until it is looked at; from its begin on, `sluice attend` holds it. */
static int set_up_sink(struct one_run *run, struct err *err)
{
    const struct sink_driver *driver = run->request->driver;
    int rc = given_hold_sink(run, err);
    if (rc < 0) {
        return rc;
    }
    rc = driver->setup(run->sink_options, err);
    if (rc == 0) {
        rc = given_check_sink(run, err);
    }
    hold_release(run->sink_hold);
    run->sink_hold = NULL;
    return rc < 0 ? err_prefix(err, "sink %s", driver->name) : 0;
}

static int check_main_empty(const struct one_run *run, struct err *err)
{
    struct maindb *db;
    struct maindb_counts counts = {0};
    int rc = maindb_open(&db, run->main_url, "sluice", err);
    if (rc == 0) {
        rc = maindb_count(db, &counts, err);
        maindb_close(db);
    }
    int64_t rows = counts.tasks + counts.dead;
    if (rc == 0 && rows > 0) {
        rc = err_set(err, -EBUSY,
                     "main DB: the tables task and task_dead hold %lld rows, which would count as "
                     "this run's, and the server is not ours (--main-given): empty them first",
                     (long long)rows);
    }
    return rc;
}

static int make_ready(struct one_run *run, const struct run_prepare *prepare, struct err *err)
{
    int rc = insist(run, "main-db", prepare->wait_ns, set_up_main, err);
    if (rc == 0) {
        rc = prepare->main_given ? check_main_empty(run, err) : maindb_empty(run->main_url, err);
    }
    if (rc == 0) {
        rc = insist(run, "sink", prepare->wait_ns, prepare->sink_given ? set_up_sink : renew_sink,
                    err);
    }
    return rc;
}

/* DIR/NAME.options */
static int write_options(const struct one_run *run, const char *name, bool sink,
                         void (*settings)(const struct run_request *request, struct buf *lines),
                         struct err *err)
{
    const struct run_request *request = run->request;
    struct buf lines = {0};
    buf_printf(&lines, "# from the scenario %s\n", request->scenario->name);
    if (sink) {
        buf_printf(&lines, "sink=%s\n", request->driver->name);
        buf_puts(&lines, run->sink_lines.data ? run->sink_lines.data : "");
    }
    settings(request, &lines);
    char *path = xasprintf("%s/%s.options", request->dir, name);
    int rc = file_write(path, lines.data, lines.len, err);
    free(path);
    buf_free(&lines);
    return rc;
}

int run_prepare(const struct run_request *request, const struct run_prepare *prepare,
                struct err *err)
{
    struct one_run run = {.request = request,
                          .main_url = options_string(request->sink_options, "main-url"),
                          .sink_url = options_string(request->sink_options, "sink-url")};
    int rc = servers_set_sink_options(&run, err);
    if (rc == 0) {
        rc = make_ready(&run, prepare, err);
    }
    if (rc == 0) {
        rc = write_options(&run, "api", true, settings_api, err);
    }
    if (rc == 0) {
        rc = write_options(&run, "worker", true, settings_worker, err);
    }
    if (rc == 0) {
        rc = write_options(&run, "loadgen", false, settings_loadgen, err);
    }
    if (rc == 0) {
        rc = manifest_write(&run, "interrupted", "it was prepared, and no verdict came", err);
    }
    buf_free(&run.sink_lines);
    return rc;
}

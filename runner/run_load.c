/* From the first request to the empty sink. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "keeper.h"
#include "maindb/maindb.h"
#include "run.h"

enum {
    LEAD_MS = 1500,    /* from the start of the generator to the start of the load */
    LOAD_GRACE_S = 30, /* past the last phase and the timeout */
    DRAIN_POLL_MS = 250,
    DRAIN_SURE_MS = 600,  /* an exact zero must last this long */
    DRAIN_GUESS_MS = 5000 /* an estimated one this long */
};

/* ---- the load ---- */

static void nap_until(int64_t when_ns)
{
    int64_t left_ms = (when_ns - clock_mono_ns() + NS_PER_MS - 1) / NS_PER_MS;
    keeper_nap(left_ms > 1000 ? 1000 : (int)(left_ms > 0 ? left_ms : 0));
}

double load_seconds(const struct one_run *run)
{
    return (double)(clock_mono_ns() - run->load_start_ns) / 1e9;
}

int load_drive(struct one_run *run, struct err *err)
{
    const struct scenario *scenario = run->request->scenario;
    int64_t load_ns = scenario_load_ns(scenario);
    run->start_us = clock_wall_us() + LEAD_MS * 1000LL;
    run->load_start_ns = clock_mono_ns() + LEAD_MS * NS_PER_MS;
    int rc = manifest_write(run, "interrupted", "the runner was ended during the load", err);
    if (rc == 0) {
        rc = run->way->start_load(run, err);
    }
    if (rc < 0) {
        return rc;
    }
    run_say(run, "load: %.0f s at %lld requests/s", (double)load_ns / 1e9,
            (long long)scenario->rps);
    int64_t deadline_ns =
        run->load_start_ns + load_ns + scenario->timeout_ns + LOAD_GRACE_S * NS_PER_S;
    while ((rc = run->way->load_over(run, err)) == 0) {
        int64_t next_ns;
        rc = run->way->step(run, &next_ns, err);
        if (rc < 0) {
            return rc;
        }
        if ((rc = run_guard(run, err)) < 0) {
            return rc;
        }
        if (clock_mono_ns() > deadline_ns) {
            return err_set(err, -ETIMEDOUT, "the load generator did not end in time; see %s",
                           run->parts[PART_LOADGEN].look_at);
        }
        nap_until(next_ns);
    }
    if (rc > 0) {
        run->load_end_us = run->start_us + load_ns / NS_PER_US;
    }
    return rc > 0 ? 0 : rc;
}

/* ---- the drain ---- */

static void show_backlog(struct one_run *run, int64_t tasks, double seconds)
{
    if (tasks < 0) {
        if (run_progress_due(run)) {
            run_say(run, "draining: the sink does not tell what it holds, after %.0f s", seconds);
        }
    } else if (run_progress_due(run)) {
        run_say(run, "draining: %lld tasks left after %.0f s", (long long)tasks, seconds);
    } else if (!run->request->places && isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r\033[K%s: draining: %lld tasks left after %.0f s", run->request->label,
                (long long)tasks, seconds);
    }
}

static void write_drained(struct one_run *run, int64_t backlog, double seconds)
{
    metrics_begin(&run->event, "drained");
    metrics_int(&run->event, "backlog", backlog);
    metrics_double(&run->event, "seconds", seconds);
    metrics_write(run->metrics, &run->event);
    metrics_flush(run->metrics);
}

/* Until the sink holds nothing, for long enough to be sure. *empty_ns: since when. */
static int wait_empty(struct one_run *run, int64_t begin_ns, int64_t *empty_ns, int64_t *tasks,
                      struct err *err)
{
    const struct sink_driver *driver = run->request->driver;
    int64_t deadline_ns = begin_ns + run->request->drain_timeout_ns;
    bool said = false;
    *tasks = -1;
    for (*empty_ns = 0;;) {
        int64_t next_ns;
        int rc = run->way->step(run, &next_ns, err);
        if (rc < 0) {
            return rc;
        }
        if ((rc = run_guard(run, err)) < 0) {
            return rc;
        }
        struct sink_backlog backlog = {.tasks = -1};
        rc = driver->backlog(run->probe, &backlog);
        int64_t now_ns = clock_mono_ns();
        int sure_ms = backlog.exact ? DRAIN_SURE_MS : DRAIN_GUESS_MS;
        if (rc == 0 && backlog.tasks >= 0) {
            *tasks = backlog.tasks;
        }
        if (rc < 0 || backlog.tasks != 0 || run->way->pending(run)) {
            *empty_ns = 0;
        } else if (*empty_ns == 0) {
            *empty_ns = now_ns - backlog.age_ns;
        } else if (now_ns - backlog.age_ns - *empty_ns > sure_ms * NS_PER_MS) {
            return 0;
        }
        if (!said && backlog.tasks > 0) {
            run_say(run, "load is over; draining %lld tasks", (long long)backlog.tasks);
            said = true;
        }
        show_backlog(run, *tasks, (double)(now_ns - begin_ns) / 1e9);
        if (now_ns > deadline_ns) {
            if (*tasks < 0) {
                return err_set(err, -ETIMEDOUT,
                               "the sink did not tell what it holds within %lld s after the load; "
                               "--drain-timeout gives it longer",
                               (long long)(run->request->drain_timeout_ns / NS_PER_S));
            }
            return err_set(err, -ETIMEDOUT,
                           "the sink still held %lld tasks %lld s after the load; "
                           "--drain-timeout gives it longer; see %s",
                           (long long)*tasks,
                           (long long)(run->request->drain_timeout_ns / NS_PER_S),
                           run->parts[PART_WORKER].look_at);
        }
        keeper_nap(DRAIN_POLL_MS);
    }
}

/* The evidence lies in the main DB: one that is down at the end may be started again, as any part.
 */
static int wait_main(struct one_run *run, int64_t begin_ns, struct err *err)
{
    int64_t deadline_ns = begin_ns + run->request->drain_timeout_ns;
    struct maindb *db;
    bool said = false;
    int rc = maindb_open(&db, run->main_url, "sluice", err);
    if (rc < 0) {
        return rc;
    }
    for (;;) {
        int64_t next_ns;
        struct err why = {0};
        rc = run->way->step(run, &next_ns, err);
        if (rc < 0 || (rc = run_guard(run, err)) < 0) {
            break;
        }
        int checked = maindb_check(db, &why);
        if (checked == 0 && !run->way->pending(run)) {
            break;
        }
        if (checked < 0 && checked != -EAGAIN) {
            rc = err_set(err, checked, "%s", why.text);
            break;
        }
        if (clock_mono_ns() > deadline_ns) {
            rc = err_set(err, -ENOTCONN,
                         "main-db did not come back within %lld s after the load "
                         "(--drain-timeout gives it longer): %s",
                         (long long)(run->request->drain_timeout_ns / NS_PER_S),
                         checked < 0 ? why.text : "a fault was not over");
            break;
        }
        if (checked < 0 && !said) {
            run_say(run, "load is over; waiting for main-db");
            said = true;
        }
        keeper_nap(DRAIN_POLL_MS);
    }
    maindb_close(db);
    return rc;
}

int load_drain(struct one_run *run, struct err *err)
{
    const struct sink_driver *driver = run->request->driver;
    int64_t begin_ns = run->load_start_ns + scenario_load_ns(run->request->scenario);
    if (!(driver->flags & SINK_DRAINS)) {
        return wait_main(run, begin_ns, err);
    }
    int64_t empty_ns, tasks;
    int rc = driver->open(&run->probe, SINK_PROBE, run->sink_options, err);
    if (rc < 0) {
        return rc;
    }
    rc = wait_empty(run, begin_ns, &empty_ns, &tasks, err);
    double seconds = rc == 0 && empty_ns > begin_ns ? (double)(empty_ns - begin_ns) / 1e9 : 0;
    if (rc == 0) {
        write_drained(run, 0, seconds);
        run_say(run, "drained %.1f s after the load", seconds);
    } else if (rc == -ETIMEDOUT) {
        write_drained(run, tasks, (double)(clock_mono_ns() - begin_ns) / 1e9);
    }
    driver->close(run->probe, clock_mono_ns() + NS_PER_S);
    run->probe = NULL;
    return rc == 0 ? wait_main(run, begin_ns, err) : rc;
}

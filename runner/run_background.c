/* Housekeeping of servers and sinks, forced on schedule, so that its effect on the latency is seen.
 *
 * It may take long, and a client library that waits for it must not hold up faults and deadlines,
 * so a forked helper does it: it ends when the runner does, and is killed when its time is over. It
 * tells by a pipe how it went. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "run.h"

enum { JOB_MAX_S = 60, UPKEEP_MAX_S = 30, UPKEEP_POLL_MS = 2 };

/* Small enough for a pipe to take whole. */
struct outcome {
    int code; /* 0, or negative errno */
    int64_t took_ns;
    struct err err;
};

static enum part_id part_of(enum background_who who)
{
    switch (who) {
    case BACKGROUND_MAIN_DB:
        return PART_MAIN_DB;
    case BACKGROUND_SINK:
        return PART_SINK;
    case BACKGROUND_API:
        return PART_API;
    }
    return PART_API;
}

bool background_can(const struct sink_driver *driver, const struct scenario_background *item)
{
    const char *what = background_do_names[item->what];
    switch (item->who) {
    case BACKGROUND_MAIN_DB:
        return server_kind_does(&server_postgres, what);
    case BACKGROUND_SINK:
        return server_kind_does(server_for_sink(driver->name), what);
    case BACKGROUND_API:
        return driver->upkeep_stat != NULL;
    }
    return false;
}

/* ---- in the helper ---- */

/* NaN-free: -1 when it can't be read at the moment. */
static double upkeep_figure(const struct sink_driver *driver, struct sink *probe)
{
    struct sink_stats stats = {0};
    if (driver->stats(probe, &stats) < 0) {
        return -1;
    }
    for (size_t i = 0; i < stats.count; i++) {
        if (strcmp(stats.items[i].name, driver->upkeep_stat) == 0) {
            return stats.items[i].value;
        }
    }
    return -1;
}

/* The ingesting process does it; that it is done shows from outside. */
static int do_upkeep(const struct one_run *run, struct err *err)
{
    const struct sink_driver *driver = run->request->driver;
    struct sink *probe;
    int rc = driver->open(&probe, SINK_PROBE, run->sink_options, err);
    if (rc < 0) {
        return rc;
    }
    double before = upkeep_figure(driver, probe);
    int64_t deadline_ns = clock_mono_ns() + UPKEEP_MAX_S * NS_PER_S;
    rc = process_signal(&run->parts[PART_API].process, SIGUSR1);
    if (rc < 0) {
        err_set(err, rc, "the api took no signal: %s", strerror(-rc));
    }
    while (rc == 0 && upkeep_figure(driver, probe) <= before) {
        if (clock_mono_ns() > deadline_ns) {
            rc = err_set(err, -ETIMEDOUT, "%s did not grow within %d s", driver->upkeep_stat,
                         UPKEEP_MAX_S);
        }
        usleep(UPKEEP_POLL_MS * 1000);
    }
    driver->close(probe, clock_mono_ns());
    return rc;
}

static _Noreturn void help(struct one_run *run, const struct scenario_background *item, int fd)
{
    struct err err = {0};
    struct part *part = &run->parts[part_of(item->who)];
    int64_t start_ns = clock_mono_ns();
    struct outcome outcome = {0};
    if (item->who == BACKGROUND_API) {
        outcome.code = do_upkeep(run, &err);
    } else {
        outcome.code =
            part->server.kind->background(&part->server, background_do_names[item->what], &err);
    }
    outcome.took_ns = clock_mono_ns() - start_ns;
    outcome.err = err;
    _exit(write(fd, &outcome, sizeof(outcome)) == (ssize_t)sizeof(outcome) ? 0 : 1);
}

/* ---- in the runner ---- */

static void begin_event(struct one_run *run, const struct scenario_background *item,
                        const char *state)
{
    metrics_begin(&run->event, "background");
    metrics_string(&run->event, "what", background_do_names[item->what]);
    metrics_string(&run->event, "who", background_who_names[item->who]);
    metrics_string(&run->event, "state", state);
}

static void end_event(struct one_run *run)
{
    metrics_write(run->metrics, &run->event);
    metrics_flush(run->metrics);
}

/* why NULL: it was done. */
static void write_end(struct one_run *run, size_t index, int64_t took_ns, const char *why)
{
    const struct scenario_background *item = &run->request->scenario->background[index];
    const char *what = background_do_names[item->what], *who = background_who_names[item->who];
    begin_event(run, item, "end");
    if (why) {
        metrics_bool(&run->event, "gave_up", true);
        metrics_string(&run->event, "why", why);
        run_say(run, "%.1f s: warning: the %s of the %s was given up: %s", load_seconds(run), what,
                who, why);
    } else {
        metrics_ms(&run->event, "took_ms", took_ns);
        run_say(run, "%.1f s: the %s of the %s took %.0f ms", load_seconds(run), what, who,
                (double)took_ns / 1e6);
    }
    end_event(run);
}

static int start_job(struct one_run *run, size_t index)
{
    struct background_job *job = &run->jobs[index];
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) {
        return -errno;
    }
    pid_t runner = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_NAME, "sluice-upkeep");
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != runner) {
            _exit(1);
        }
        help(run, &run->request->scenario->background[index], ends[1]);
    }
    int rc = pid < 0 ? -errno : 0;
    close(ends[1]);
    if (rc < 0) {
        close(ends[0]);
        return rc;
    }
    *job = (struct background_job){
        .pid = pid, .fd = ends[0], .deadline_ns = clock_mono_ns() + JOB_MAX_S * NS_PER_S};
    return 0;
}

static void begin(struct one_run *run, size_t index)
{
    const struct scenario_background *item = &run->request->scenario->background[index];
    const struct part *part = &run->parts[part_of(item->who)];
    begin_event(run, item, "begin");
    end_event(run);
    if (part->state != PART_UP) {
        /* An api that is just starting would die of the signal. */
        write_end(run, index, 0, "it was away at that time");
        return;
    }
    int rc = start_job(run, index);
    if (rc < 0) {
        write_end(run, index, 0, strerror(-rc));
    }
}

/* Its helper is gone. */
static void finish(struct one_run *run, size_t index, const char *otherwise)
{
    struct background_job *job = &run->jobs[index];
    struct outcome outcome;
    bool told = read(job->fd, &outcome, sizeof(outcome)) == (ssize_t)sizeof(outcome);
    close(job->fd);
    *job = (struct background_job){0};
    write_end(run, index, told ? outcome.took_ns : 0,
              !told              ? otherwise
              : outcome.code < 0 ? outcome.err.text
                                 : NULL);
}

static void give_up(struct one_run *run, size_t index, const char *why)
{
    struct background_job *job = &run->jobs[index];
    kill(job->pid, SIGKILL);
    while (waitpid(job->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    finish(run, index, why);
}

void background_step(struct one_run *run, int64_t *next_ns)
{
    const struct scenario *scenario = run->request->scenario;
    for (size_t i = 0; i < scenario->background_count; i++) {
        int64_t due_ns = run->load_start_ns + scenario->background[i].at_ns;
        uint32_t bit = UINT32_C(1) << i;
        if (!(run->request->background_bits & bit) || run->background_done & bit) {
            continue;
        }
        if (clock_mono_ns() >= due_ns) {
            run->background_done |= bit;
            begin(run, i);
        } else if (due_ns < *next_ns) {
            *next_ns = due_ns;
        }
    }
    for (size_t i = 0; i < scenario->background_count; i++) {
        const struct background_job *job = &run->jobs[i];
        if (job->pid > 0 && waitpid(job->pid, NULL, WNOHANG) == job->pid) {
            finish(run, i, "its helper ended without a word");
        } else if (job->pid > 0 && clock_mono_ns() > job->deadline_ns) {
            give_up(run, i, "it was not done within a minute");
        }
    }
}

void background_end(struct one_run *run)
{
    for (size_t i = 0; i < SCENARIO_BACKGROUND_MAX; i++) {
        if (run->jobs[i].pid > 0) {
            give_up(run, i, "the run was over before it was done");
        }
    }
}

/* Faults: those of the scenario, and deaths that somebody else caused.
 *
 * A part that is killed or asked to end by hand in the middle of a run is no failure of the run:
 * that is what runs are for. It is written down as a fault, started again after a second, and the
 * audit judges. A part that dies of itself (a crash, an error) fails the run. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "run.h"

enum { OUTSIDE_BACK_MS = 1000, OUTSIDE_DEATHS_MAX = 20, SERVER_STARTS_MAX = 10, TICK_MS = 20 };

bool fault_can(const struct sink_driver *driver, const struct scenario_fault *fault)
{
    switch (fault->who) {
    case FAULT_WORKER:
        return driver->flags & SINK_DRAINS;
    case FAULT_SINK:
        return server_for_sink(driver->name) != NULL;
    case FAULT_API:
    case FAULT_MAIN_DB:
        break;
    }
    return true;
}

static enum part_id part_of(enum fault_who who)
{
    switch (who) {
    case FAULT_API:
        return PART_API;
    case FAULT_WORKER:
        return PART_WORKER;
    case FAULT_SINK:
        return PART_SINK;
    case FAULT_MAIN_DB:
        return PART_MAIN_DB;
    }
    return PART_API;
}

static void begin_fault(struct one_run *run, struct part *part, enum fault_do what)
{
    if (part->in_fault) {
        return; /* it was down already: one window, not two */
    }
    part->in_fault = true;
    part->fault_what = what;
    run_event(run, "fault", fault_do_names[what], part->who);
}

static void do_fault(struct one_run *run, const struct scenario_fault *fault)
{
    struct part *part = &run->parts[part_of(fault->who)];
    bool server = part->id == PART_SINK || part->id == PART_MAIN_DB;
    run_say(run, "%.1f s: fault: %s %s for %g s", load_seconds(run), fault_do_names[fault->what],
            part->who, (double)fault->for_ns / 1e9);
    /* The event first: what the fault causes must lie inside its window. */
    begin_fault(run, part, fault->what);
    part->back_ns = clock_mono_ns() + fault->for_ns;
    if (!process_runs(part_process(part))) {
        part->state = PART_DOWN;
        return;
    }
    switch (fault->what) {
    case FAULT_KILL:
        process_kill_tree(part_process(part));
        part_forget_pid(run, part);
        part->state = PART_DOWN;
        break;
    case FAULT_TERM:
        process_signal(part_process(part), server ? part->server.kind->stop_signal : SIGTERM);
        part->state = PART_DOWN;
        break;
    case FAULT_PAUSE:
        if (server) {
            server_pause(&part->server);
        } else {
            process_signal_tree(&part->process, SIGSTOP);
        }
        part->state = PART_PAUSED;
        break;
    }
}

/* Was it somebody's hand (or the kernel's, for want of memory)? */
static bool from_outside(int status)
{
    return (WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM ||
                                    WTERMSIG(status) == SIGINT)) ||
           (WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static int bury(struct one_run *run, struct part *part, struct err *err)
{
    const struct process *process = part_process(part);
    const char *when =
        part->state == PART_STARTING ? "while it started" : "in the middle of the run";
    if (!from_outside(process->status) || ++part->outside_deaths > OUTSIDE_DEATHS_MAX) {
        return process_obituary(process, when, err);
    }
    char how[64];
    process_status_text(process->status, how, sizeof(how));
    run_say(run, "%.1f s: %s was ended from outside (%s); starting it again", load_seconds(run),
            part->who, how);
    if (part->id != PART_SAMPLER) {
        bool killed = WIFSIGNALED(process->status) && WTERMSIG(process->status) == SIGKILL;
        begin_fault(run, part, killed ? FAULT_KILL : FAULT_TERM);
    }
    part_forget_pid(run, part);
    part->state = PART_DOWN;
    part->back_ns = clock_mono_ns() + OUTSIDE_BACK_MS * NS_PER_MS;
    return 0;
}

/* A server that was killed from outside may have left children, in whose presence it won't start.
 */
static int bury_starting(struct one_run *run, struct part *part, struct err *err)
{
    bool server = part->id == PART_SINK || part->id == PART_MAIN_DB;
    if (!server || part->start_failures++ == SERVER_STARTS_MAX) {
        return bury(run, part, err);
    }
    part->state = PART_DOWN;
    part->back_ns = clock_mono_ns() + OUTSIDE_BACK_MS * NS_PER_MS;
    return 0;
}

/* Ready, and those that lean on it as well: only then is the fault over for a client. */
static int poll_recovered(struct one_run *run, struct part *part, struct err *err)
{
    int rc = part_poll_ready(run, part, err);
    if (rc != 0 || part->id == PART_API || part->id == PART_WORKER || part->id == PART_SAMPLER) {
        return rc;
    }
    bool api_leans = part->id == PART_SINK || run->request->driver->flags & SINK_NEEDS_MAIN;
    static const enum part_id others[] = {PART_API, PART_WORKER};
    for (size_t i = api_leans ? 0 : 1; i < 2; i++) {
        const struct part *other = &run->parts[others[i]];
        if (other->who && other->state == PART_UP && !part_admin_ready(other)) {
            return -EAGAIN;
        }
    }
    return 0;
}

static void come_back(struct part *part)
{
    if (part->id == PART_SINK || part->id == PART_MAIN_DB) {
        server_resume(&part->server);
    } else {
        process_signal_tree(&part->process, SIGCONT);
    }
    part->state = PART_STARTING;
    part->deadline_ns = clock_mono_ns() + 60 * NS_PER_S;
}

static int step_part(struct one_run *run, struct part *part, struct err *err)
{
    int64_t now_ns = clock_mono_ns();
    int rc;
    switch (part->state) {
    case PART_ABSENT:
    case PART_FINISHED:
        return 0;
    case PART_UP:
        return process_ended(part_process(part)) ? bury(run, part, err) : 0;
    case PART_PAUSED:
        if (process_ended(part_process(part))) {
            return bury(run, part, err);
        }
        if (now_ns >= part->back_ns) {
            come_back(part);
        }
        return 0;
    case PART_DOWN:
        if (process_ended(part_process(part))) { /* it was asked to */
            part_forget_pid(run, part);
        }
        if (now_ns < part->back_ns) {
            return 0;
        }
        process_kill_tree(part_process(part)); /* it was asked, had its time, and is still there */
        return part_start(run, part->id, err);
    case PART_STARTING:
        if (process_ended(part_process(part))) {
            return bury_starting(run, part, err);
        }
        rc = poll_recovered(run, part, err);
        if (rc == -EAGAIN && now_ns > part->deadline_ns) {
            return err_set(err, -ETIMEDOUT, "%s did not get ready again after its fault; see %s",
                           part->who, part_process(part)->log_path);
        }
        if (rc == -EAGAIN) {
            return 0;
        }
        if (rc == 0) {
            part->state = PART_UP;
            part->start_failures = 0;
            if (part->in_fault) {
                part->in_fault = false;
                run_event(run, "recovered", fault_do_names[part->fault_what], part->who);
                run_say(run, "%.1f s: %s is back", load_seconds(run), part->who);
            }
        }
        return rc;
    }
    return 0;
}

int faults_step(struct one_run *run, int64_t *next_ns, struct err *err)
{
    const struct scenario *scenario = run->request->scenario;
    *next_ns = clock_mono_ns() + TICK_MS * NS_PER_MS;
    for (size_t i = 0; i < scenario->fault_count; i++) {
        int64_t due_ns = run->load_start_ns + scenario->faults[i].at_ns;
        uint32_t bit = UINT32_C(1) << i;
        if (!(run->request->fault_bits & bit) || run->faults_done & bit) {
            continue;
        }
        if (clock_mono_ns() >= due_ns) {
            run->faults_done |= bit;
            do_fault(run, &scenario->faults[i]);
        } else if (due_ns < *next_ns) {
            *next_ns = due_ns;
        }
    }
    background_step(run, next_ns);
    for (size_t i = 0; i < PART_COUNT; i++) {
        struct part *part = &run->parts[i];
        if (part->id == PART_LOADGEN) {
            continue; /* run.c waits for its end */
        }
        int rc = step_part(run, part, err);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

bool faults_pending(const struct one_run *run)
{
    if (run->faults_done != run->request->fault_bits) {
        return true;
    }
    for (size_t i = 0; i < PART_COUNT; i++) {
        enum part_state state = run->parts[i].state;
        if (state == PART_DOWN || state == PART_PAUSED || run->parts[i].in_fault) {
            return true;
        }
    }
    return false;
}

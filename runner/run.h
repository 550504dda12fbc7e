/* run.h: one run: one scenario against one sink, once. Shared by the files that make it up:
 *
 *   run.c           the order of things, from the first folder to main.tsv; what both ways share
 *   run_attend.c    the order of things when others start the parts
 *   run_prepare.c   what has to be there before they do
 *   run_servers.c   main DB and sink: their settings, the preflight, what the manifest says of them
 *   run_settings.c  what the scenario says to the daemons
 *   run_load.c      from the first request to the empty sink
 *   run_evidence.c  what the main DB holds, counted and written out
 *   run_conditions.c  how busy the host, how fast the disk, whether the clock was set
 *   run_parts.c     the parts (servers, daemons): start, watch, restart
 *   run_faults.c    what befalls them, on schedule or from outside
 *   run_background.c  housekeeping of servers and sinks, forced on schedule
 *   run_given.c     servers that exist already, in the place of private ones
 *   run_probe.c     one task the whole way before the load begins
 *   run_manifest.c  manifest.json
 *
 * There are two ways (struct run_way): natively, sluice starts every part, and faults are its own;
 * or it attends a run whose parts others start and kill, and knows them by their addresses alone.
 *
 * A struct one_run lives from run_perform's (run_attend's) begin to its end; one thread does all of
 * it.
 */
#ifndef SLUICE_RUNNER_RUN_H
#define SLUICE_RUNNER_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/options.h"
#include "hold.h"
#include "load_watch.h"
#include "metrics/metrics.h"
#include "process.h"
#include "scenario.h"
#include "server.h"
#include "sink/sink.h"

/* Where the parts are that others start; all HOST:PORT. */
struct run_places {
    const char *api, *api_admin, *worker_admin;
    int64_t ready_wait_ns; /* for each of them to be ready */
    int64_t progress_ns;   /* a line on how far it is, as often; 0: none */
};

/* What the command decides; borrowed, unchanged during a run. */
struct run_request {
    const struct scenario *scenario;
    const struct sink_driver *driver;
    uint32_t fault_bits;      /* which of the scenario's faults this sink can have */
    uint32_t background_bits; /* which of its background items */
    unsigned repeat;          /* from 1 */
    uint64_t seed;
    const char *dir;     /* the run's folder, absolute; is there and empty */
    const char *base;    /* where state lies (state.h) */
    const char *daemons; /* folder searched for sluice-api ... before our own; or NULL */
    const char *main_url, *sink_url; /* servers that are given (given.h); NULL: private ones */
    int64_t drain_timeout_ns;
    bool allow_unsafe, keep_state;
    const char *label; /* "[1/3] wal", for messages */

    const char *parts_json; /* images and limits of containers, for the manifest; or NULL */
    const struct run_places *places; /* NULL: sluice starts the parts itself */
    struct options *sink_options; /* the sink's settings as they were given; NULL: as scenario and
                                     private servers have them */
};

enum run_outcome { RUN_COMPLETE, RUN_INTERRUPTED, RUN_FAILED };

/* Does all of it. On RUN_FAILED err holds one sentence. Whatever the outcome, nothing runs any
 * more, no state is left (unless keep_state), and the folder's manifest says how it ended. */
enum run_outcome run_perform(const struct run_request *request, struct err *err);

/* The same for a run whose parts others start; request->dir was prepared by run_prepare. Starts a
 * sampler of its own and nothing else; what others started goes on. Errors name the part, and what
 * to look at. */
enum run_outcome run_attend(const struct run_request *request, struct err *err);

/* Has nobody but run_prepare been at work in that folder? */
bool run_is_fresh(const char *dir);

/* Makes main DB and sink ready for a run, both empty, and writes what the parts need into
 * request->dir: the manifest, NAME.options. */
struct run_prepare {
    int64_t wait_ns; /* for the servers to answer */
    bool main_given,
        sink_given; /* that server is somebody's: it must be empty, and is not emptied */
};
int run_prepare(const struct run_request *request, const struct run_prepare *prepare,
                struct err *err);

/* ---- between the files ---- */

enum part_id { PART_API, PART_WORKER, PART_SINK, PART_MAIN_DB, PART_SAMPLER, PART_LOADGEN };
enum { PART_COUNT = 6 };

enum part_state {
    PART_ABSENT,   /* this run has none */
    PART_STARTING, /* started, not ready yet */
    PART_UP,
    PART_DOWN,     /* a fault took it; comes back at back_ns */
    PART_PAUSED,   /* stopped by SIGSTOP until back_ns */
    PART_FINISHED, /* was asked to end, or did so by itself at the end of its work */
};

struct part {
    enum part_id id;
    const char *who;
    enum part_state state;
    struct server server;     /* PART_SINK, PART_MAIN_DB */
    struct process process;   /* the others */
    unsigned incarnation;     /* from 1 */
    char *listen, *admin;     /* HOST:PORT; NULL: it has none */
    char *look_at;            /* what tells more of it, for messages */
    bool live;                /* it writes to our terminal, not to a log */
    bool in_fault;            /* a fault event was written, and no recovered event yet */
    enum fault_do fault_what; /* of that fault */
    int64_t back_ns;          /* PART_DOWN, PART_PAUSED: when it comes back */
    int64_t deadline_ns;      /* PART_STARTING: ready by then */
    unsigned outside_deaths;
    unsigned start_failures; /* in a row, after a fault */
    int64_t gone_ns; /* no incarnation of it lives since then; 0: one does, or none did yet */
};

/* A piece of housekeeping that is being done, by a process of its own; pid 0: none. */
struct background_job {
    pid_t pid;
    int fd; /* how it ended comes from there */
    int64_t deadline_ns;
};

struct one_run;

/* What differs between a run whose parts are ours and one that is attended. */
struct run_way {
    /* So that the load begins at run->start_us. */
    int (*start_load)(struct one_run *run, struct err *err);
    /* 0: the load generator is at work; 1: it is through; -ECHILD: it ended before that. */
    int (*load_over)(struct one_run *run, struct err *err);
    /* What is due by now; what became of the parts. next_ns: as faults_step. */
    int (*step)(struct one_run *run, int64_t *next_ns, struct err *err);
    /* Is a fault in progress or still to come? */
    bool (*pending)(const struct one_run *run);
    /* NULL, or: -ECHILD when a part that is waited for has ended and does not come again. */
    int (*gone)(struct one_run *run, struct part *part, struct err *err);
};

struct one_run {
    const struct run_request *request;
    const struct run_way *way;
    struct part parts[PART_COUNT];
    char *state_dir;
    struct given_main *given_main; /* NULL: the main DB is ours */
    struct hold *sink_hold;        /* of a sink that is given; or NULL */
    const char *main_url;          /* with the password; NULL until the server is there */
    const char *sink_url;          /* NULL: the sink has no server */
    struct options *sink_options;  /* for the driver's functions in this process */
    struct buf sink_lines;         /* the same for the daemons: "name=value\n" each, no secrets */
    struct sink *probe;
    struct metrics *metrics; /* runner.jsonl */
    struct metrics_event event;
    char main_version[96];
    bool neighbours;               /* another sluice ran at the same time, if only for a while */
    struct buf unsafe, unverified; /* JSON array elements */
    struct buf servers;            /* JSON array elements */
    int64_t load_start_ns;         /* monotonic; 0 before */
    int64_t progress_due_ns;
    struct load_watch watch; /* of a load generator that others started */
    int64_t start_us, load_end_us, end_us;
    uint32_t faults_done;
    uint32_t background_done; /* begun, at least */
    struct background_job jobs[SCENARIO_BACKGROUND_MAX];
};

/* run_servers.c */
/* The sink's options from scenario, command and the run's folder, and sink_lines from them. */
int servers_set_sink_options(struct one_run *run, struct err *err);
/* Reads its settings back. -EPERM: they void the comparison. */
int servers_check_main(struct one_run *run, struct err *err);
int servers_check_sink(struct one_run *run, struct err *err);
/* Into the manifest; version as it was read. Of a part with a server kind. */
int servers_describe(struct one_run *run, enum part_id id, const char *version, struct err *err);
int servers_start_main(struct one_run *run, struct err *err); /* the private one, or one given */
int servers_start_sink(struct one_run *run, struct err *err);
int servers_settle(struct one_run *run, struct err *err);            /* at rest before the load */
void sink_read_version(const struct one_run *run, char version[96]); /* "": it does not tell */

/* run_settings.c: appends "name=value\n" for each of a daemon's settings that the scenario decides.
 */
void settings_api(const struct run_request *request, struct buf *lines);
void settings_worker(const struct run_request *request, struct buf *lines);
void settings_loadgen(const struct run_request *request, struct buf *lines);
/* Names, types and ranges of the scenario's `sink` settings, by the drivers' own tables. */
int settings_check_sink(const struct scenario *scenario, struct err *err);
/* A table's entry of that name; NULL. */
const struct option_spec *settings_find(const struct option_spec *table, const char *name);

/* run_load.c */
int load_drive(struct one_run *run, struct err *err);
int load_drain(struct one_run *run, struct err *err); /* -ETIMEDOUT: it holds tasks still */
double load_seconds(const struct one_run *run);       /* since its begin */

/* run_evidence.c */
void evidence_count(struct one_run *run, const char *state); /* "begin", "end" */
int evidence_export(struct one_run *run, struct err *err);   /* main.tsv */

/* run_conditions.c: events for the report to judge by. A run without one lacks a figure, no more.
 */
void conditions_before(struct one_run *run);                   /* nothing is started yet */
void conditions_flush(struct one_run *run, const char *state); /* "begin", "end" */
void conditions_clock(struct one_run *run);                    /* since the load's begin */

/* run_parts.c */
int part_start(struct one_run *run, enum part_id id, struct err *err);
int part_start_server(struct one_run *run, enum part_id id, const struct server_kind *kind,
                      struct err *err);
struct process *part_process(struct part *part);
/* 0: it answers that it is ready; -EAGAIN: not yet; -ECHILD: it died (err). */
int part_poll_ready(struct one_run *run, struct part *part, struct err *err);
int part_wait_ready(struct one_run *run, enum part_id id, int timeout_ms, struct err *err);
void part_stop(struct one_run *run, enum part_id id); /* in order; SIGKILL if it must be */
void parts_stop_all(struct one_run *run, bool quickly);
void part_write_pid(struct one_run *run, struct part *part);
void part_forget_pid(struct one_run *run, struct part *part);
bool part_admin_ready(const struct part *part); /* GET /readyz says 200 */

/* run_faults.c: does what is due by now; writes fault and recovered events. -ECHILD and a sentence
 * when a part died of itself. next_ns: when to call again at the latest (monotonic). */
int faults_step(struct one_run *run, int64_t *next_ns, struct err *err);
bool faults_pending(const struct one_run *run); /* is one in progress or still to come? */

/* run_background.c: begins what is due by now and sees what has ended; writes background events.
 * Never waits, and whatever becomes of the housekeeping, the run goes on. next_ns: as above, only
 * ever brought forward. background_end: gives up all that has not ended. */
void background_step(struct one_run *run, int64_t *next_ns);
void background_end(struct one_run *run);
/* Can a run against this sink have that fault, that item of a schedule? */
bool fault_can(const struct sink_driver *driver, const struct scenario_fault *fault);
bool background_can(const struct sink_driver *driver, const struct scenario_background *item);

/* run_given.c: in the place of starting servers, for those that are given. */
int given_start_main(struct one_run *run, struct err *err);
/* Before anything is started or a folder made: do those that are given let themselves be used? What
 * a run would refuse, -EPERM aside when that is allowed, is refused here, in the same words. driver
 * and sink_url, or main_url, may be NULL: not given. */
int given_try(const struct scenario *scenario, const struct sink_driver *driver,
              const char *sink_url, const char *main_url, bool allow_unsafe, struct err *err);
/* How many tasks a run that was ended early left in a sink that is given; -1: it does not tell. */
int64_t given_tasks_left(const struct scenario *scenario, const struct sink_driver *driver,
                         const char *sink_url);
/* Into the manifest: a server of which no more is known than its URL tells, and perhaps its version
 * ("": it does not). */
void server_describe_by_url(struct one_run *run, const char *role, const char *name,
                            const char *version, const char *url);
/* The same, said to the person, too. */
void given_describe(struct one_run *run, const char *role, const char *name, const char *version,
                    const char *url);
/* Before the driver's setup: no other run is at work there, and none comes. */
int given_hold_sink(struct one_run *run, struct err *err);
/* After the driver's setup: nothing waits there, and it shares no server with the main DB. -EPERM:
 * it does, which makes the comparison void. */
int given_check_sink(struct one_run *run, struct err *err);

/* run_probe.c */
int probe_task(struct one_run *run, struct err *err);

/* run_manifest.c */
int manifest_write(const struct one_run *run, const char *outcome, const char *why,
                   struct err *err);
void json_item(struct buf *list, const char *text); /* appends a string to a list of items */

/* run.c: what both ways begin and end with. */
void run_name_parts(struct one_run *run);
int run_open_record(struct one_run *run, struct err *err); /* runner.jsonl */
/* While the run waits, about once a second: looks whether it is alone on this machine. -EINTR: the
 * user wants its end; -EBUSY: another has the sink that is given.
 */
int run_guard(struct one_run *run, struct err *err);
/* Stops what was started, ends the record, writes the manifest; rc and err: how it went. */
enum run_outcome run_end(struct one_run *run, int rc, struct err *err);

/* A line for the person: "[1/3] wal: text". */
void run_say(const struct one_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Is it time for another line on how far it is? */
bool run_progress_due(struct one_run *run);
void run_event(struct one_run *run, const char *name, const char *what, const char *who);

#endif

/* sink.h: where a task becomes durable before its client is answered. THE interface: both daemons
 * see only this.
 *
 * A driver is one `const struct sink_driver` in a file of its own (sink_NAME.c) and one line in the
 * registry (sink.c). The caller submits one task and the driver batches, because group commit is
 * what is being compared. Completion is pushed, because an HTTP request waits for it. Outcomes are
 * three, because a loss count that guesses is worthless.
 *
 * Threads: an ingest handle belongs to one event loop (one thread). A drain handle may have many
 * lanes; a lane belongs to one thread; lane functions of different lanes may run at the same time,
 * lane_open and lane_close included. A probe handle belongs to one thread.
 */
#ifndef SLUICE_SINK_SINK_H
#define SLUICE_SINK_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/options.h"
#include "task/task.h"

enum sink_role {
    SINK_INGEST, /* submit, fd, due_ns, process, ready */
    SINK_DRAIN,  /* lanes */
    SINK_PROBE,  /* backlog and stats only; must not disturb the others, takes no locks of theirs */
};

enum sink_outcome {
    SINK_DURABLE, /* as the promise says */
    SINK_REFUSED, /* surely not stored, and never will be */
    SINK_UNKNOWN, /* cannot tell: a lost connection, a nack, a failed flush, a deadline */
};

enum sink_flag {
    SINK_CONTROL = 1 << 0,       /* a yardstick, not a contender: its losses fail no run */
    SINK_DRAINS = 1 << 1,        /* has the drain side */
    SINK_BACKLOG_EXACT = 1 << 2, /* backlog() counts exactly, in flight included */
    SINK_NEEDS_MAIN = 1 << 3,    /* submits to the main DB itself (direct) */
    SINK_DURABLE_KILL = 1 << 4,  /* what was DURABLE survives a SIGKILL of every process */
};

/* Runs exactly once for every task that submit took; from process() or close(), never from submit.
 * batch: how many tasks shared the flush, statement or round trip that decided this one (>= 1). */
typedef void sink_done_fn(void *arg, enum sink_outcome outcome, unsigned batch);

struct sink_backlog {
    int64_t
        tasks; /* durable and not yet acknowledged by the worker, in flight included; -1 unknown */
    int64_t bytes;  /* their bodies, or what they occupy; -1 unknown */
    bool exact;     /* counted, not estimated */
    int64_t age_ns; /* how old these figures are */
};

struct sink_stat {
    const char *name; /* static; unit at its end: "live_bytes", "segments" */
    double value;
};
enum { SINK_STATS_MAX = 32 };
struct sink_stats {
    size_t count;
    struct sink_stat items[SINK_STATS_MAX];
};

/* One fetched batch. tasks and the bodies they point to belong to the lane and stay valid until
 * ack, release or lane_close of that lane. */
struct sink_batch {
    size_t count;
    const struct task *tasks;
    unsigned redelivered; /* how many the sink knows to have been delivered before; a lower bound */
};

/* Drivers embed these as the first member of their own structs. */
struct sink {
    const struct sink_driver *driver;
};
struct sink_lane {
    const struct sink_driver *driver;
};
struct sink_hold {
    const struct sink_driver *driver;
};

struct sink_driver {
    const char *name; /* --sink=NAME */
    const char
        *promise;   /* what DURABLE means here, one sentence: survives process / OS / disk / host */
    unsigned flags; /* enum sink_flag */
    const struct option_spec *options; /* every setting it reads, sink_common_options apart */

    /* Idempotent: makes table, stream, group, queue, folder. 0 or negative errno. */
    int (*setup)(const struct options *options, struct err *err);
    /* Reads the server's settings back. 0; -EPERM: a setting makes the comparison void (text:
     * setting, value found, value wanted); -ENODATA: could not be read back, unverified (text says
     * what). */
    int (*preflight)(const struct options *options, struct err *err);
    /* Takes away all that setup made (and all that is in it), and nothing else; nothing there: 0.
     * NULL: it leaves nothing behind. For servers and folders that are not ours to throw away.
     * -EBUSY: it is in use, as far as that can be told; -EEXIST: what is there is not ours. */
    int (*remove)(const struct options *options, struct err *err);
    /* Holds what setup() makes against a second run: two would drain each other's tasks. Daemons
     * neither take nor see it. It ends with the process that holds it, whatever ends that: at once,
     * or within the time that the text of -EBUSY names. Before setup(); options must outlive it;
     * one thread at a time. -EBUSY: somebody holds it. NULL (all three): nothing is to be held, or
     * open() does it. */
    int (*hold)(struct sink_hold **hold, const struct options *options, struct err *err);
    /* About once a second; waits for some seconds at most. 0: held, also when it had been lost with
     * its connection or server and was taken again; -EBUSY: somebody else has it by now; any other:
     * it cannot be told at the moment. */
    int (*hold_keep)(struct sink_hold *hold, struct err *err);
    void (*hold_end)(struct sink_hold *hold);
    /* What the server says it is ("PostgreSQL 15.18"). NULL: it has none, or none that tells. */
    int (*server_version)(const struct options *options, char *out, size_t out_bytes,
                          struct err *err);
    /* Connects nothing yet, but takes local locks. -EBUSY: another process has it. */
    int (*open)(struct sink **sink, enum sink_role role, const struct options *options,
                struct err *err);
    /* Settles every pending done first: waits for outcomes until deadline_ns (clock_mono_ns), then
     * UNKNOWN for what was given to the wire, REFUSED for what was not. NULL sink: nothing. */
    void (*close)(struct sink *sink, int64_t deadline_ns);
    int (*backlog)(struct sink *sink, struct sink_backlog *backlog); /* cheap: cached; -ENOTSUP */
    int (*stats)(struct sink *sink, struct sink_stats *stats);       /* may ask the server */

    /* Ingest. submit never blocks and only queues; the task (body too) is borrowed for the call.
     * 0: taken, done will run exactly once.
     * -EAGAIN: too much waits, or not connected; -ENOSPC: no room where it would be kept (disk,
     * quota, memory), surely not stored; -EIO: broken for good; then done never runs. */
    int (*submit)(struct sink *sink, const struct task *task, sink_done_fn *done, void *arg);
    int (*fd)(struct sink *sink); /* lifelong, polled for input; -1: none */
    /* Nanoseconds from now until process() must run at the latest; 0: now; -1: no need. */
    int64_t (*due_ns)(struct sink *sink);
    /* Connects, sends what is queued, flushes, reads answers, runs done. 0; -EIO: broken for good
     * (all pending done have run). Never blocks on a network; a disk may make it wait. */
    int (*process)(struct sink *sink);
    bool (*ready)(struct sink *sink); /* would a task be taken now? */
    /* What this kind must do inside the ingesting process now and then (wal: ending a segment),
     * asked for now, whether it is due or not. Returns at once; process() does it. 0; -ENOTSUP: it
     * has no such thing; -EIO: broken for good. */
    int (*upkeep)(struct sink *sink);
    /* Name of the figure in stats() that has grown once that is done; NULL: it has no such thing.
     */
    const char *upkeep_stat;
    /* Why ready() is false: -ENOTCONN, -ENOSPC, -EAGAIN or -EIO as submit, and a sentence for
     * people without its full stop, free of secrets and paths, good until the next call of this
     * driver. 0: it is not. NULL: the only reason there is is that it is not connected. Use
     * sink_why(). */
    int (*why)(struct sink *sink, const char **sentence);

    /* Drain. A lane has at most one open batch. A task may come again: the receiver is idempotent.
     * lane: 0..n-1, a stable name: what lane 7 held when its process died, lane 7 (or any lane of
     * the next process) gets at once. */
    int (*lane_open)(struct sink *sink, unsigned lane, struct sink_lane **out, struct err *err);
    /* Fills a batch: returns when it holds max tasks, or wait_ms after its first task came; waits
     * up to wait_ms for that first one. count (> 0), 0: nothing came, -EIO/-ENOTCONN and the like:
     * try later (the driver reconnects by itself), -ESHUTDOWN: broken for good. A worker lets one
     * of its lanes fetch at a time, so that batches fill alike for every sink; a driver must
     * bear several all the same. */
    int (*fetch)(struct sink_lane *lane, unsigned max, int wait_ms, struct sink_batch *batch);
    /* After -ESHUTDOWN: what happened and where, one sentence without its full stop, good until
     * lane_close; NULL or "": nothing is known beyond that. May be NULL. */
    const char *(*broken_by)(struct sink_lane *lane);
    /* Called about once a second from any lane that does not fetch. With a batch open (the main DB
     * works): renews its lease, answers heartbeats; 0, or negative: the batch will come again.
     * Without one (the lane waits for its turn, or after an error): keeps the connection, or brings
     * it back, so that the next fetch finds it; takes no task. 0: connected; > 0: connecting, to be
     * called again in so many milliseconds; negative: not connected, what is wrong says the next
     * fetch. Waits for 250 ms at most, since meanwhile the lane does not see that it is to stop. */
    int (*keep)(struct sink_lane *lane);
    int (*ack)(struct sink_lane *lane,
               struct sink_batch *batch); /* ends the batch, also on error */
    int (*release)(struct sink_lane *lane,
                   struct sink_batch *batch);   /* hand back, soon redelivered */
    void (*lane_close)(struct sink_lane *lane); /* releases an open batch */
};

extern const struct sink_driver *const sink_drivers[]; /* visible, NULL-terminated */

/* "sink-url", "sink-connections", "sink-batch-max": same meaning everywhere. */
extern const struct option_spec sink_common_options[];

const struct sink_driver *sink_find(const char *name); /* NULL when there is none */

/* Adds "sink" itself, sink_common_options and every driver's table to options. */
void sink_add_options(struct options *options);

/* The driver that --sink names, its required settings checked. -EINVAL: the text lists those there
 * are. */
int sink_select(const struct options *options, const struct sink_driver **driver, struct err *err);

/* driver->why, or what stands for it. *sentence is never NULL. */
int sink_why(const struct sink_driver *driver, struct sink *sink, const char **sentence);

const char *sink_outcome_name(enum sink_outcome outcome); /* "durable", "refused", "unknown" */

/* A fake source for drivers without a drain side, and other parts that a driver may lack: every
 * function returns -ENOTSUP, unless it says otherwise. Drivers may name
 * these in their tables so that no pointer is ever NULL. */
int sink_no_setup(const struct options *options, struct err *err);     /* returns 0 */
int sink_no_preflight(const struct options *options, struct err *err); /* returns 0 */
int sink_no_upkeep(struct sink *sink);
int sink_no_lane_open(struct sink *sink, unsigned lane, struct sink_lane **out, struct err *err);
int sink_no_fetch(struct sink_lane *lane, unsigned max, int wait_ms, struct sink_batch *batch);
int sink_no_keep(struct sink_lane *lane);
int sink_no_ack(struct sink_lane *lane, struct sink_batch *batch);
int sink_no_release(struct sink_lane *lane, struct sink_batch *batch);
void sink_no_lane_close(struct sink_lane *lane);

#endif

/* contract.h: one suite for every driver, through sink.h alone.
 *
 *     contract --sink=wal [--case=NAME ...] [--broken=FAULT] [settings of the sink]
 *
 * Each case runs in a process of its own (with helpers it may kill), against a sink nobody has
 * used, within a time limit; a crash or a hang is a failure like any other. What a driver's flags
 * say it does not do excuses it from cases by name, loudly. A world says how to get a fresh sink of
 * one kind, and how to look into it or hurt its server where the suite can; a driver without one is
 * emptied through its own lanes.
 *
 * To add a driver: nothing, if setup() and draining make it fresh; otherwise one struct world
 * (worlds.c).
 */
#ifndef SLUICE_SINK_CONTRACT_H
#define SLUICE_SINK_CONTRACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/options.h"
#include "sink/sink.h"

struct store;

struct contract {
    const struct sink_driver *driver;
    struct options *options;
    const struct world *world;
    int64_t patience_ns; /* nothing happens for so long: a failure */
    size_t largest_bytes;
    uint64_t seed;
    char folder[256]; /* this case's own, on a real disk; made and removed around it */
};

struct world {
    const char *sink;
    /* A sink nobody has used; sets options. Exits through contract_skip when there is no server. */
    void (*make)(struct contract *contract);
    void (*unmake)(struct contract *contract);
    /* Adds all that is stored to store, for a sink without a drain side. NULL: cannot look. */
    void (*look)(struct contract *contract, struct store *store);
    /* Ends every connection of the sink's server at once. NULL: cannot. */
    void (*cut)(struct contract *contract);
    /* For sinks with a server of their own: as if it were killed, and up again. NULL: cannot. */
    void (*server_stop)(struct contract *contract);
    void (*server_start)(struct contract *contract);
    /* As if it hung: it takes connections and answers nothing. NULL: cannot. */
    void (*server_pause)(struct contract *contract);
    void (*server_resume)(struct contract *contract);
};
extern const struct world *const worlds[]; /* NULL-terminated */
extern const struct world world_any;       /* for drivers without a world */

enum need {
    NEED_STORE = 1 << 0,   /* what is stored can be got out: lanes, or a world that can look */
    NEED_DRAIN = 1 << 1,   /* SINK_DRAINS */
    NEED_BACKLOG = 1 << 2, /* SINK_BACKLOG_EXACT */
    NEED_KILL = 1 << 3,    /* SINK_DURABLE_KILL */
    NEED_CUT = 1 << 4,
    NEED_SERVER = 1 << 5,
    NEED_PAUSE = 1 << 6,
};

struct contract_case {
    const char *name;
    unsigned needs; /* enum need */
    void (*run)(struct contract *contract);
};
extern const struct contract_case ingest_cases[], drain_cases[], kill_cases[],
    server_cases[]; /* NULL-terminated */

/* Ends the case's process: failed, or skipped. */
void contract_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void contract_skip(const char *why) __attribute__((noreturn));
void expect(bool condition, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A driver that is wrong on purpose in one way, around another. NULL: no such fault. */
const struct sink_driver *broken_driver(const char *fault, const struct sink_driver *around);

/* Tasks are a pure function of (seed, number), so that two processes agree on them. */
void make_task(const struct contract *contract, unsigned number, struct buf *body,
               struct task *task);

/* Tasks that came out of a sink, copied. */
struct store {
    struct task *tasks;
    size_t count, room;
    bool sorted; /* by id */
};
void store_add(struct store *store, const struct task *task);
size_t store_count(struct store *store, const struct task *task); /* all three parts equal */
void store_remove(struct store *store, const struct task *task);  /* one such */
void store_free(struct store *store);

/* The ingest side, driven as its contract says: poll fd, no longer than due_ns, process. */
struct sent {
    struct task task; /* owns its body */
    struct sender *sender;
    unsigned outcomes; /* how often done ran */
    enum sink_outcome outcome;
};
struct sender {
    struct contract *contract;
    struct sink *sink;
    struct sent **sent;
    size_t count, room;
    size_t settled; /* done ran at least once */
    bool in_submit;
    void (*settled_hook)(struct sent *sent, void *arg); /* may be NULL */
    void *hook_arg;
};
void sender_open(struct sender *sender, struct contract *contract); /* and waits until ready */
void sender_open_only(struct sender *sender, struct contract *contract);
int sender_submit(struct sender *sender, const struct task *task); /* what submit said */
void sender_send(struct sender *sender, const struct task *task);  /* must be taken, in the end */
void sender_send_numbers(struct sender *sender, unsigned first, unsigned count);
void sender_step(struct sender *sender, int64_t longest_ns); /* one turn of the loop */
void sender_finish(struct sender *sender);                   /* until all is settled */
void sender_close(struct sender *sender, int64_t grace_ns);  /* then all is settled, once */
void sender_free(struct sender *sender);                     /* after close */
void sender_take(struct sender *all, struct sender *closed); /* moves what it sent over */
size_t sender_outcomes(const struct sender *sender, enum sink_outcome outcome);

/* The drain side with one lane. An ingest side should be open somewhere, as an API would be. */
struct consumer {
    struct contract *contract;
    struct sink *sink;
    struct sink_lane *lane;
    struct sink_batch batch;
};
void consumer_open(struct consumer *consumer, struct contract *contract, unsigned lane);
/* Fetches, at least one task, within patience. Adds them to store unless NULL. */
size_t consumer_fetch(struct consumer *consumer, unsigned max, struct store *store);
size_t consumer_try(struct consumer *consumer, unsigned max, int wait_ms, struct store *store);
void consumer_ack(struct consumer *consumer);
void consumer_release(struct consumer *consumer);
void consumer_close(struct consumer *consumer);

/* Everything in the sink, acknowledged (lanes) or just seen (look). */
void collect(struct contract *contract, struct store *store);
/* Each DURABLE task is there (once, if exactly), no REFUSED one is, and nothing that was not sent.
 */
void check_stored(const struct sender *sender, struct store *store, bool exactly);

/* A helper process. It starts when told, after its maker has opened what it wants to open: so it
 * holds none of its maker's descriptors or locks. */
struct helper {
    pid_t pid;
    int go_fd, from_fd;
};
void helper_start(struct helper *helper, struct contract *contract,
                  void (*run)(struct contract *contract, int to_fd));
void helper_go(struct helper *helper);
/* Reads exactly len bytes, within patience. false: the helper has ended. */
bool helper_read(struct helper *helper, const struct contract *contract, void *bytes, size_t len);
void helper_kill(struct helper *helper); /* SIGKILL, and waits */
int helper_wait(struct helper *helper);  /* its exit status */

#endif

/* sink_valkey_conn.h: one non-blocking connection of the sink valkey's ingest side: looking up,
 * connecting, greeting, what it is expected to answer, losing it, coming back.
 *
 * Inside sink_valkey_ingest.c and sink_valkey_conn.c only; one thread. */
#ifndef SLUICE_SINK_SINK_VALKEY_CONN_H
#define SLUICE_SINK_SINK_VALKEY_CONN_H

#include "sink/sink_valkey.h"

#define VALKEY_LOOK_EVERY_NS (100 * NS_PER_MS)

struct valkey_waiter {
    struct valkey_waiter *next;
    sink_done_fn *done;
    void *arg;
    int64_t deadline_ns; /* from submit to outcome */
    char *command;       /* formatted by hiredis */
    size_t bytes;
    uint64_t end; /* where its command ends in all that the connection was given */
};

enum valkey_expected_kind {
    VALKEY_GREETING, /* password, database, name */
    VALKEY_TRIAL,    /* XLEN: is it usable now? */
    VALKEY_ADDED,    /* XADD */
    VALKEY_LENGTH,   /* XLEN */
    VALKEY_MEMORY,   /* MEMORY USAGE */
};

struct valkey_expected {
    enum valkey_expected_kind kind;
    struct valkey_waiter *waiter; /* VALKEY_ADDED */
    int64_t deadline_ns;
};

enum valkey_state {
    VALKEY_DOWN,       /* until retry_ns */
    VALKEY_LOOKING_UP, /* the host's name */
    VALKEY_CONNECTING,
    VALKEY_GREETED, /* the greeting is sent; replies are awaited */
    VALKEY_HELD,    /* connected, but the server is not ready; until retry_ns */
    VALKEY_READY,
};

struct valkey_conn {
    struct valkey_ingest *ingest;
    enum valkey_state state;
    redisContext *context; /* from VALKEY_GREETED on */
    int fd;                /* while VALKEY_CONNECTING */
    uint32_t events;       /* what the epoll set watches */
    int64_t deadline_ns;   /* of lookup, connecting and greeting */
    int64_t retry_ns, pause_ns;
    unsigned address;                 /* which of those found comes next */
    struct valkey_expected *expected; /* a ring */
    unsigned expected_head, expected_count, expected_room;
    unsigned in_flight; /* VALKEY_ADDED among them */
    uint64_t written;   /* bytes that hiredis has handed to the socket */
};

struct valkey_verdict {
    struct valkey_waiter *waiter;
    enum sink_outcome outcome;
};

struct valkey_ingest {
    const struct valkey_target *target;
    int epoll_fd;
    struct valkey_conn *conns;
    unsigned count;
    unsigned turn;
    unsigned ready;  /* connections in VALKEY_READY */
    unsigned window; /* most XADD on the wire of each */
    int64_t deadline_ns;
    unsigned seed;
    bool closing;
    struct valkey_waiter *queue, **queue_end; /* taken, not sent */
    struct valkey_waiter *lost;               /* to be told UNKNOWN */
    struct valkey_verdict *verdicts;          /* of one pass, told at its end */
    unsigned decided;                         /* how many they are */

    /* The server refuses everything: don't take tasks until then. */
    bool refusing;
    int64_t refused_until_ns, refused_pause_ns;

    /* The backlog. */
    int64_t tasks, bytes;
    int64_t looked_ns, memory_ns;
    bool looking, wanted;

    /* The host's addresses; a lookup is under way while lookup is set. */
    struct addrinfo *addresses;
    unsigned address_count;
    struct valkey_lookup *lookup;

    int64_t logged_ns;
    uint64_t losses;
};

/* sink_valkey_ingest.c */
void valkey_requeue(struct valkey_ingest *ingest, struct valkey_waiter *first,
                    struct valkey_waiter *last);

/* sink_valkey_conn.c */
void valkey_conn_init(struct valkey_conn *conn, struct valkey_ingest *ingest);
void valkey_conn_close(struct valkey_conn *conn); /* gives everything up, for good */
void valkey_conn_connected(struct valkey_conn *conn);
void valkey_conn_lost(struct valkey_conn *conn, const char *why);
void valkey_conn_hold(struct valkey_conn *conn);   /* the server is not ready: try it later */
void valkey_conn_usable(struct valkey_conn *conn); /* its trial went well */
void valkey_conn_add(struct valkey_conn *conn, struct valkey_waiter *waiter);
void valkey_conn_look(struct valkey_conn *conn, int64_t now_ns);
void valkey_conn_flush(struct valkey_conn *conn);
void valkey_conn_tick(struct valkey_conn *conn, int64_t now_ns);
int64_t valkey_conn_due_ns(const struct valkey_conn *conn); /* INT64_MAX: never */
struct valkey_expected valkey_conn_shift(struct valkey_conn *conn);
void valkey_forget_addresses(struct valkey_ingest *ingest);
void valkey_complain(struct valkey_ingest *ingest, const char *text);

#endif

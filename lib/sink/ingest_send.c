/* ingest_send.c: what is sent when, and what an answer (or none) means.
 *
 * A statement is a transaction of its own, so an error that the server answers with says that
 * nothing of it is stored, unless the session ended with it: then the commit may have been under
 * way. A task that was not given to a connection is surely not stored; one that was, and has no
 * answer, may be.
 */
#include "sink/ingest_send.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "maindb/maindb.h"
#include "maindb/pg.h"
#include "sink/ingest_batch.h"
#include "sink/ingest_table.h"
#include "sink/ingest_watch.h"

enum {
    CONNECTIONS_DEFAULT = 2,
    BATCH_MAX_DEFAULT = 1000,
    EVENTS_MAX = 64,
    SPARE_MAX = 8,
    BODY_BYTES_MAX = 256 << 20, /* far below what one statement may hold */
};

#define RETRY_MIN_NS      (50 * NS_PER_MS)
#define RETRY_MAX_NS      (2 * NS_PER_S)
#define LOG_EVERY_NS      (2 * NS_PER_S)
#define COUNT_SHORTEST_NS (500 * NS_PER_MS)

static const char statement_name[] = "sluice_insert";

struct watched { /* what epoll knows of a descriptor */
    int fd;
    uint32_t events;
};

struct connection {
    struct pg_link link;
    bool prepared;
    struct ingest_batch *batch; /* its statement is under way */
    PGresult *answer;           /* the first of its results */
    int64_t deadline_ns;        /* of the statement */
    int64_t retry_ns;           /* when to connect again, while down */
    int64_t pause_ns;           /* how long to wait after the next failure */
    struct watched watched;
};

struct ingest_send {
    struct pg_target *target;
    char *prepare_sql;
    int64_t deadline_ns; /* from submit to outcome */
    int64_t spacing_ns;
    size_t batch_max, batch_bytes;

    int epoll_fd;
    struct connection *connections;
    unsigned count;
    unsigned ready;  /* connected and prepared */
    unsigned flying; /* tasks whose statement is under way */
    unsigned queued;
    struct ingest_batch *first, *last; /* the queue; the last one is being filled */
    struct ingest_batch *spare;
    unsigned spares;
    int64_t sent_ns; /* when a statement was last begun */

    struct ingest_watch watch;
    struct watched watch_watched;
    int64_t stored_tasks, stored_bytes;             /* DURABLE so far */
    int64_t asked_stored_tasks, asked_stored_bytes; /* the same when the count under way began */
    int64_t known_stored_tasks, known_stored_bytes; /* when the count that is known began */

    unsigned seed;
    uint64_t losses, statements;
    int64_t logged_ns;
    bool closing;
};

int ingest_send_open(struct ingest_send **out, const struct options *options, struct err *err)
{
    const char *table;
    *out = NULL;
    int rc = ingest_table_name(&table, options, err);
    if (rc < 0) {
        return rc;
    }
    struct ingest_send *send = xcalloc(1, sizeof(*send));
    int64_t connections = options_int(options, "sink-connections");
    int64_t batch_max = options_int(options, "sink-batch-max");
    send->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    rc = send->epoll_fd < 0
             ? err_set(err, -errno, "no epoll: %s", strerror(errno))
             : pg_target_new(&send->target, options_string(options, "sink-url"), "sluice-api", err);
    if (rc < 0) {
        if (send->epoll_fd >= 0) {
            close(send->epoll_fd);
        }
        free(send);
        return rc;
    }
    send->deadline_ns = options_duration_ns(options, "ingest-deadline");
    send->spacing_ns = options_duration_ns(options, "ingest-spacing");
    send->batch_max = batch_max > 0 ? (size_t)batch_max : BATCH_MAX_DEFAULT;
    send->batch_bytes = (size_t)options_size_bytes(options, "ingest-batch-size");
    send->count = connections > 0 ? (unsigned)connections : CONNECTIONS_DEFAULT;
    send->connections = xcalloc(send->count, sizeof(*send->connections));
    for (unsigned i = 0; i < send->count; i++) {
        send->connections[i].watched.fd = -1;
    }
    send->seed = (unsigned)clock_mono_ns();
    /* The plan never depends on the arrays, so it is made once. The server gives a statement up
     * before its waiters do: then they are told that it is not stored. */
    send->prepare_sql =
        xasprintf("SET plan_cache_mode = force_generic_plan; SET statement_timeout = %lld; "
                  "PREPARE %s (uuid[], bigint[], bytea[]) AS "
                  "INSERT INTO %s (id, accepted_us, body) SELECT * FROM unnest($1, $2, $3)",
                  (long long)(send->deadline_ns / NS_PER_MS * 7 / 8), statement_name, table);
    ingest_watch_start(&send->watch, send->target, table, COUNT_SHORTEST_NS);
    send->watch_watched.fd = -1;
    *out = send;
    return 0;
}

int ingest_send_fd(const struct ingest_send *send)
{
    return send->epoll_fd;
}

static void complain(struct ingest_send *send, const char *text)
{
    int64_t now_ns = clock_mono_ns();
    if (!send->closing && (send->logged_ns == 0 || now_ns - send->logged_ns >= LOG_EVERY_NS)) {
        send->logged_ns = now_ns;
        log_warning("sink ingest: %s (%u of %u connections are up)", text, send->ready,
                    send->count);
    }
}

/* ---- batches ---- */

static struct ingest_batch *take_spare(struct ingest_send *send)
{
    struct ingest_batch *batch = send->spare;
    if (!batch) {
        return ingest_batch_new();
    }
    send->spare = batch->next;
    send->spares--;
    batch->next = NULL;
    return batch;
}

static void give_back(struct ingest_send *send, struct ingest_batch *batch)
{
    if (send->spares >= SPARE_MAX) {
        ingest_batch_free(batch);
        return;
    }
    ingest_batch_clear(batch);
    batch->next = send->spare;
    send->spare = batch;
    send->spares++;
}

static struct ingest_batch *take_first(struct ingest_send *send)
{
    struct ingest_batch *batch = send->first;
    send->first = batch->next;
    if (!send->first) {
        send->last = NULL;
    }
    batch->next = NULL;
    send->queued -= (unsigned)(batch->count - batch->settled);
    return batch;
}

/* The statement of a batch is decided. The connection must not have it any more. */
static void settle(struct ingest_send *send, struct ingest_batch *batch, enum sink_outcome outcome)
{
    unsigned together = (unsigned)batch->count;
    send->flying -= together;
    if (outcome == SINK_DURABLE) {
        send->stored_tasks += together;
        for (size_t i = 0; i < batch->count; i++) {
            send->stored_bytes += (int64_t)batch->waiters[i].body_bytes;
        }
    }
    ingest_batch_settle(batch, outcome, together);
    give_back(send, batch);
}

int ingest_send_submit(struct ingest_send *send, const struct task *task, sink_done_fn *done,
                       void *arg)
{
    if (!ingest_send_ready(send)) {
        return -EAGAIN;
    }
    if (task->body_bytes > BODY_BYTES_MAX) {
        return -EMSGSIZE;
    }
    struct ingest_batch *last = send->last;
    if (!last || last->count >= send->batch_max ||
        ingest_batch_bytes(last) + task->body_bytes > send->batch_bytes) {
        last = take_spare(send);
        if (send->last) {
            send->last->next = last;
        } else {
            send->first = last;
        }
        send->last = last;
    }
    const struct ingest_waiter waiter = {
        .done = done, .arg = arg, .deadline_ns = clock_mono_ns() + send->deadline_ns};
    ingest_batch_add(last, task, &waiter);
    send->queued++;
    return 0;
}

/* Those that have waited for a connection for too long. */
static void expire_queued(struct ingest_send *send, int64_t now_ns)
{
    while (send->first && ingest_batch_deadline_ns(send->first) <= now_ns) {
        struct ingest_batch *batch = send->first;
        size_t before = batch->settled;
        ingest_batch_expire(batch, now_ns, SINK_REFUSED);
        send->queued -= (unsigned)(batch->settled - before);
        if (batch->settled < batch->count) {
            ingest_batch_forget_settled(batch);
        } else {
            give_back(send, take_first(send));
        }
    }
}

/* ---- connections ---- */

static void connection_lost(struct ingest_send *send, struct connection *connection,
                            const char *text)
{
    if (connection->prepared) {
        send->ready--;
        send->losses++;
    }
    connection->prepared = false;
    pg_drop(&connection->link);
    connection->watched.fd = -1; /* closing took it out of the epoll set */
    PQclear(connection->answer);
    connection->answer = NULL;
    int64_t pause_ns = connection->pause_ns > 0 ? connection->pause_ns : RETRY_MIN_NS;
    connection->retry_ns = clock_mono_ns() + pause_ns / 2 + rand_r(&send->seed) % (pause_ns / 2);
    connection->pause_ns = 2 * pause_ns < RETRY_MAX_NS ? 2 * pause_ns : RETRY_MAX_NS;
    complain(send, text);
    if (connection->batch) {
        struct ingest_batch *batch = connection->batch;
        connection->batch = NULL;
        settle(send, batch, SINK_UNKNOWN);
    }
}

static void link_failed(struct ingest_send *send, struct connection *connection)
{
    char text[400];
    pg_message(&connection->link, connection->answer, text, sizeof(text));
    connection_lost(send, connection, text);
}

/* What to wake for; NULL: the watch. While connecting, libpq may close one socket and open another
 * of the same number, so what was registered says nothing then (trusted: false). */
static int wake_for(struct ingest_send *send, struct connection *connection,
                    struct watched *watched, int fd, short wants, bool trusted)
{
    uint32_t events =
        (wants & POLLIN ? (uint32_t)EPOLLIN : 0) | (wants & POLLOUT ? (uint32_t)EPOLLOUT : 0);
    if (trusted && fd == watched->fd && events == watched->events) {
        return 0;
    }
    struct epoll_event event = {.events = events, .data.ptr = connection};
    if (epoll_ctl(send->epoll_fd, EPOLL_CTL_MOD, fd, &event) < 0 &&
        (errno != ENOENT || epoll_ctl(send->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)) {
        return -errno;
    }
    *watched = (struct watched){fd, events};
    return 0;
}

static void watch_connection(struct ingest_send *send, struct connection *connection, short wants)
{
    if (connection->link.state == PG_DOWN) {
        return;
    }
    int rc = wake_for(send, connection, &connection->watched, PQsocket(connection->link.conn),
                      wants, connection->link.state == PG_READY);
    if (rc < 0) {
        connection_lost(send, connection, strerror(-rc));
    }
}

static void flush_and_watch(struct ingest_send *send, struct connection *connection)
{
    int unsent = PQflush(connection->link.conn);
    if (unsent < 0) {
        link_failed(send, connection);
        return;
    }
    watch_connection(send, connection, (short)(POLLIN | (unsent ? POLLOUT : 0)));
}

static bool is_idle(const struct connection *connection)
{
    return connection->prepared && !connection->batch;
}

static void begin_prepare(struct ingest_send *send, struct connection *connection)
{
    connection->watched.fd = -1;
    connection->deadline_ns = clock_mono_ns() + send->deadline_ns;
    if (PQsendQuery(connection->link.conn, send->prepare_sql) != 1) {
        link_failed(send, connection);
        return;
    }
    flush_and_watch(send, connection);
}

/* Hands the first of the queue to an idle connection. */
static void begin_insert(struct ingest_send *send, struct connection *connection, int64_t now_ns)
{
    struct ingest_batch *batch = take_first(send);
    unsigned count = (unsigned)batch->count;
    if (ingest_batch_send(batch, connection->link.conn, statement_name) != 1) {
        /* Nothing was sent, so it goes back to where it was. */
        batch->next = send->first;
        send->first = batch;
        send->last = send->last ? send->last : batch;
        send->queued += count;
        link_failed(send, connection);
        return;
    }
    connection->batch = batch;
    connection->deadline_ns = now_ns + send->deadline_ns;
    send->flying += count;
    send->sent_ns = now_ns;
    send->statements++;
    flush_and_watch(send, connection);
}

/* From now on; 0: something may be sent now; -1: nothing waits, or no connection is idle. */
static int64_t send_due_ns(const struct ingest_send *send, int64_t now_ns)
{
    unsigned idle = 0;
    for (unsigned i = 0; send->first && i < send->count; i++) {
        idle += is_idle(&send->connections[i]);
    }
    if (idle == 0) {
        return -1;
    }
    /* What is full waits for nothing, and neither does a lone task. */
    bool may_grow = send->first == send->last && send->queued < send->batch_max;
    int64_t left_ns = send->sent_ns + send->spacing_ns - now_ns;
    return may_grow && send->queued > 1 && left_ns > 0 ? left_ns : 0;
}

/* The server answered with an error in the place of a commit. */
static enum sink_outcome outcome_of_error(const PGresult *answer)
{
    const char *sqlstate = pg_sqlstate(answer);
    bool doubtful = strlen(sqlstate) != 5 || pg_ends_session(answer) ||
                    strncmp(sqlstate, "08", 2) == 0 || strcmp(sqlstate, "40003") == 0;
    return doubtful ? SINK_UNKNOWN : SINK_REFUSED;
}

static void insert_over(struct ingest_send *send, struct connection *connection, PGresult *answer)
{
    struct ingest_batch *batch = connection->batch;
    enum sink_outcome outcome = SINK_DURABLE;
    bool table_is_wrong = false;
    char text[400];
    connection->batch = NULL;
    if (PQresultStatus(answer) != PGRES_COMMAND_OK) {
        outcome = outcome_of_error(answer);
        table_is_wrong = maindb_judge(pg_sqlstate(answer)) == MAINDB_FATAL;
        complain(send, pg_message(&connection->link, answer, text, sizeof(text)));
    } else if (strtoull(PQcmdTuples(answer), NULL, 10) != batch->count) {
        outcome = SINK_UNKNOWN; /* somebody's trigger or rule */
        complain(send, "the server has not stored what it was given; is there a trigger?");
    }
    PQclear(answer);
    /* First new work for the server, then those that waited for the old. */
    int64_t now_ns = clock_mono_ns();
    if (outcome == SINK_DURABLE && send_due_ns(send, now_ns) == 0) {
        begin_insert(send, connection, now_ns);
    }
    settle(send, batch, outcome);
    if (table_is_wrong && connection->link.state == PG_READY) {
        /* Preparing anew will tell, and until it succeeds the sink is not ready. */
        connection_lost(send, connection, "the table has changed or is gone");
    }
}

static void prepare_over(struct ingest_send *send, struct connection *connection, PGresult *answer)
{
    bool well = PQresultStatus(answer) == PGRES_COMMAND_OK;
    if (!well) {
        connection->answer = answer; /* says why */
        link_failed(send, connection);
        return;
    }
    PQclear(answer);
    connection->prepared = true;
    connection->pause_ns = 0;
    send->ready++;
}

/* All results of what was sent are in. */
static void answered(struct ingest_send *send, struct connection *connection)
{
    PGresult *answer = connection->answer;
    connection->answer = NULL;
    if (connection->batch) {
        insert_over(send, connection, answer);
    } else if (!connection->prepared) {
        prepare_over(send, connection, answer);
    } else {
        PQclear(answer);
    }
}

static void read_answers(struct ingest_send *send, struct connection *connection)
{
    PGconn *conn = connection->link.conn;
    if (PQconsumeInput(conn) != 1) {
        link_failed(send, connection);
        return;
    }
    while (connection->link.state == PG_READY && !is_idle(connection) && !PQisBusy(conn)) {
        PGresult *result = PQgetResult(conn);
        bool failed = connection->answer && PQresultStatus(connection->answer) == PGRES_FATAL_ERROR;
        if (!result) {
            answered(send, connection);
        } else if (failed) {
            PQclear(result); /* the first error decides */
        } else {
            PQclear(connection->answer);
            connection->answer = result;
        }
    }
    if (connection->link.state == PG_READY && PQstatus(conn) != CONNECTION_OK) {
        link_failed(send, connection);
    }
    if (connection->link.state == PG_READY) {
        flush_and_watch(send, connection);
    }
}

static void advance(struct ingest_send *send, struct connection *connection)
{
    if (connection->link.state == PG_READY) {
        read_answers(send, connection);
        return;
    }
    struct err err = {0};
    int rc = pg_step(&connection->link, &err);
    if (rc < 0) {
        connection_lost(send, connection, err.text);
    } else if (rc == 1) {
        begin_prepare(send, connection);
    } else {
        watch_connection(send, connection, connection->link.wants);
    }
}

static void connect_again(struct ingest_send *send, struct connection *connection)
{
    struct err err = {0};
    if (pg_start(&connection->link, send->target, &err) < 0) {
        connection_lost(send, connection, err.text);
        return;
    }
    watch_connection(send, connection, connection->link.wants);
}

/* When this connection wants attention without an event; INT64_MAX: never. */
static int64_t connection_due_ns(const struct connection *connection)
{
    switch (connection->link.state) {
    case PG_DOWN:
        return connection->retry_ns;
    case PG_CONNECTING:
    case PG_SETTING:
        return connection->link.deadline_ns;
    case PG_READY:
        break;
    }
    if (is_idle(connection)) {
        return INT64_MAX;
    }
    int64_t waiter_ns = connection->batch ? ingest_batch_deadline_ns(connection->batch) : INT64_MAX;
    return waiter_ns < connection->deadline_ns ? waiter_ns : connection->deadline_ns;
}

static void look_at_clock(struct ingest_send *send, struct connection *connection, int64_t now_ns)
{
    if (connection_due_ns(connection) > now_ns) {
        return;
    }
    if (connection->link.state == PG_DOWN) {
        connect_again(send, connection);
    } else if (connection->link.state != PG_READY) {
        advance(send, connection); /* pg_step knows that it took too long */
    } else if (now_ns >= connection->deadline_ns) {
        connection_lost(send, connection, "the server has not answered in time");
    } else {
        /* They waited in the queue for a part of their time; the statement has its own. */
        ingest_batch_expire(connection->batch, now_ns, SINK_UNKNOWN);
    }
}

/* ---- the count ---- */

static void step_watch(struct ingest_send *send)
{
    bool asked = send->watch.asking;
    short events = 0;
    bool counted = ingest_watch_step(&send->watch);
    if (counted) {
        send->known_stored_tasks = send->asked_stored_tasks;
        send->known_stored_bytes = send->asked_stored_bytes;
    }
    if (send->watch.asking && (!asked || counted)) {
        send->asked_stored_tasks = send->stored_tasks;
        send->asked_stored_bytes = send->stored_bytes;
    }
    int fd = ingest_watch_fd(&send->watch, &events);
    if (fd < 0) {
        send->watch_watched.fd = -1;
    } else if (wake_for(send, NULL, &send->watch_watched, fd, events,
                        send->watch.link.state == PG_READY) < 0) {
        ingest_watch_stop(&send->watch);
        send->watch_watched.fd = -1;
    }
}

int ingest_send_backlog(const struct ingest_send *send, struct sink_backlog *backlog)
{
    const struct ingest_watch *watch = &send->watch;
    if (watch->answered_ns == 0) {
        return -EAGAIN;
    }
    int64_t since = send->stored_tasks - send->known_stored_tasks;
    backlog->tasks = watch->tasks + since;
    backlog->bytes = watch->bytes + send->stored_bytes - send->known_stored_bytes;
    backlog->exact = since == 0;
    backlog->age_ns = clock_mono_ns() - watch->asked_ns;
    return 0;
}

void ingest_send_stats(const struct ingest_send *send, struct sink_stats *stats)
{
    const struct sink_stat items[] = {
        {"connections_up", send->ready},
        {"tasks_in_flight", send->flying},
        {"tasks_queued", send->queued},
        {"statements", (double)send->statements},
        {"connections_lost", (double)send->losses},
    };
    stats->count = sizeof(items) / sizeof(items[0]);
    memcpy(stats->items, items, sizeof(items));
}

/* ---- the loop's calls ---- */

void ingest_send_process(struct ingest_send *send)
{
    struct epoll_event events[EVENTS_MAX];
    int count;
    bool watch_is_due = false;
    do {
        count = epoll_wait(send->epoll_fd, events, EVENTS_MAX, 0);
        for (int i = 0; i < count; i++) {
            struct connection *connection = events[i].data.ptr;
            if (!connection) {
                watch_is_due = true;
            } else if (connection->link.state != PG_DOWN) {
                advance(send, connection);
            }
        }
    } while (count == EVENTS_MAX);
    int64_t now_ns = clock_mono_ns();
    for (unsigned i = 0; i < send->count; i++) {
        look_at_clock(send, &send->connections[i], now_ns);
    }
    expire_queued(send, now_ns);
    for (unsigned i = 0; i < send->count && send_due_ns(send, now_ns) == 0; i++) {
        if (is_idle(&send->connections[i])) {
            begin_insert(send, &send->connections[i], now_ns);
        }
    }
    ingest_watch_expect(&send->watch,
                        send->watch.tasks + send->stored_tasks - send->known_stored_tasks);
    if (watch_is_due || ingest_watch_due_ns(&send->watch) <= now_ns) {
        step_watch(send);
    }
}

static int64_t earlier(int64_t a_ns, int64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

int64_t ingest_send_due_ns(const struct ingest_send *send)
{
    int64_t now_ns = clock_mono_ns();
    int64_t due_ns = ingest_watch_due_ns(&send->watch);
    int64_t left_ns = send_due_ns(send, now_ns);
    if (left_ns >= 0) {
        due_ns = earlier(due_ns, now_ns + left_ns);
    }
    for (unsigned i = 0; i < send->count; i++) {
        due_ns = earlier(due_ns, connection_due_ns(&send->connections[i]));
    }
    if (send->first) {
        due_ns = earlier(due_ns, ingest_batch_deadline_ns(send->first));
    }
    return due_ns > now_ns ? due_ns - now_ns : 0;
}

bool ingest_send_ready(const struct ingest_send *send)
{
    return send->ready > 0 && !send->closing;
}

static void wait_for_outcomes(struct ingest_send *send, int64_t deadline_ns)
{
    while (send->queued + send->flying > 0) {
        int64_t left_ns = deadline_ns - clock_mono_ns();
        if (left_ns <= 0) {
            return;
        }
        int64_t wait_ns = earlier(ingest_send_due_ns(send), left_ns);
        struct timespec timeout = {.tv_sec = wait_ns / NS_PER_S, .tv_nsec = wait_ns % NS_PER_S};
        struct pollfd polled = {.fd = send->epoll_fd, .events = POLLIN};
        ppoll(&polled, 1, &timeout, NULL);
        ingest_send_process(send);
    }
}

void ingest_send_close(struct ingest_send *send, int64_t deadline_ns)
{
    send->closing = true;
    wait_for_outcomes(send, deadline_ns);
    for (unsigned i = 0; i < send->count; i++) {
        struct connection *connection = &send->connections[i];
        struct ingest_batch *batch = connection->batch;
        connection->batch = NULL;
        PQclear(connection->answer);
        pg_drop(&connection->link);
        if (batch) {
            settle(send, batch, SINK_UNKNOWN);
        }
    }
    while (send->first) {
        struct ingest_batch *batch = take_first(send);
        ingest_batch_settle(batch, SINK_REFUSED, 1);
        give_back(send, batch);
    }
    while (send->spare) {
        ingest_batch_free(take_spare(send));
    }
    ingest_watch_stop(&send->watch);
    close(send->epoll_fd);
    pg_target_free(send->target);
    free(send->prepare_sql);
    free(send->connections);
    free(send);
}

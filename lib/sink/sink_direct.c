/* sink_direct.c: a control that writes the main DB inside the request: one insert a task, each in a
 * transaction of its own, on a pool of connections. It shows what a client waits for without a
 * sink.
 *
 * A task is durable once its insert has committed. What the main DB refuses for good goes to the
 * dead letters, as the worker would put it there (rows.h has the statements): then it is as safe as
 * it can be. A task waits in a queue until a connection is free; once its statement was given to a
 * connection, only the server's answer decides it, and without one it is UNKNOWN.
 */
#include "sink/drivers.h"

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
#include "maindb/rows.h"

enum { CONNECTIONS_DEFAULT = 32, EVENTS_MAX = 64 };

#define ANSWER_NS    (60 * NS_PER_S) /* longest wait for a statement */
#define RETRY_MIN_NS (50 * NS_PER_MS)
#define RETRY_MAX_NS (2 * NS_PER_S)
#define LOG_EVERY_NS (2 * NS_PER_S)

struct waiting {
    struct waiting *next;
    struct task task; /* owns its body, which lies behind this struct */
    sink_done_fn *done;
    void *arg;
    char sqlstate[6]; /* why its insert was refused; "": it was not */
    char detail[ROWS_DETAIL_BYTES];
};

struct connection {
    struct pg_link link;
    struct waiting *current; /* the task whose statement is under way */
    bool settling;           /* it is the second statement */
    PGresult *answer;
    int64_t deadline_ns; /* of the statement */
    int64_t retry_ns;    /* when to connect again, while down */
    int64_t pause_ns;    /* how long to wait after the next failure */
    int watched_fd;
    uint32_t watched_events;
};

struct direct {
    struct sink base;
    struct pg_target *target;
    int epoll_fd;
    struct connection *connections;
    unsigned count;
    unsigned ready;     /* connected */
    unsigned in_flight; /* statements under way */
    unsigned queued;    /* waiting for a connection */
    struct waiting *first;
    struct waiting **last;
    struct rows rows;
    unsigned seed;
    uint64_t losses; /* connections lost */
    int64_t logged_ns;
    bool closing;
};

static const struct option_spec direct_options[] = {
    {.name = "main-url",
     .type = OPTION_URL,
     .unit = "URL",
     .required = true,
     .help = "the main DB's Postgres; with a password only by environment or @file"},
    {.name = NULL},
};

static struct direct *direct_of(struct sink *sink)
{
    return (struct direct *)sink;
}

static int direct_setup(const struct options *options, struct err *err)
{
    struct maindb *main = NULL;
    int rc = maindb_open(&main, options_string(options, "main-url"), "sluice-api", err);
    if (rc == 0) {
        rc = maindb_check(main, err); /* its tables, and the row delay, are the run's to make */
    }
    maindb_close(main);
    return rc;
}

static int direct_preflight(const struct options *options, struct err *err)
{
    char version[64];
    return maindb_preflight(options_string(options, "main-url"), version, sizeof(version), err);
}

static int direct_open(struct sink **out, enum sink_role role, const struct options *options,
                       struct err *err)
{
    *out = NULL;
    if (role == SINK_DRAIN) {
        return err_set(err, -ENOTSUP,
                       "the sink direct writes the main DB itself: there is nothing to drain");
    }
    struct direct *direct = xcalloc(1, sizeof(*direct));
    direct->base.driver = &sink_direct;
    direct->last = &direct->first;
    direct->seed = (unsigned)clock_mono_ns();
    direct->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int rc = direct->epoll_fd < 0 ? err_set(err, -errno, "no epoll: %s", strerror(errno)) : 0;
    if (rc == 0) {
        rc = pg_target_new(&direct->target, options_string(options, "main-url"), "sluice-api", err);
    }
    if (rc < 0) {
        if (direct->epoll_fd >= 0) {
            close(direct->epoll_fd);
        }
        free(direct);
        return rc;
    }
    if (role == SINK_INGEST) {
        int64_t connections = options_int(options, "sink-connections");
        direct->count = connections > 0 ? (unsigned)connections : CONNECTIONS_DEFAULT;
        direct->connections = xcalloc(direct->count, sizeof(*direct->connections));
        for (unsigned i = 0; i < direct->count; i++) {
            direct->connections[i].watched_fd = -1;
        }
    }
    *out = &direct->base;
    return 0;
}

static void settle(struct waiting *waiting, enum sink_outcome outcome)
{
    waiting->done(waiting->arg, outcome, 1);
    free(waiting);
}

static void complain(struct direct *direct, const char *text)
{
    int64_t now_ns = clock_mono_ns();
    if (direct->logged_ns == 0 || now_ns - direct->logged_ns >= LOG_EVERY_NS) {
        direct->logged_ns = now_ns;
        log_warning("sink direct: %s (%u of %u connections are up)", text, direct->ready,
                    direct->count);
    }
}

/* The task whose statement is under way, taken from its connection. */
static struct waiting *take_current(struct direct *direct, struct connection *connection)
{
    struct waiting *waiting = connection->current;
    connection->current = NULL;
    connection->settling = false;
    direct->in_flight--;
    return waiting;
}

/* The connection is gone; what it was doing may be done or not. It comes back by itself. */
static void connection_lost(struct direct *direct, struct connection *connection, const char *text)
{
    if (connection->link.state == PG_READY) {
        direct->ready--;
        direct->losses++;
    }
    pg_drop(&connection->link);
    connection->watched_fd = -1; /* closing took it out of the epoll set */
    PQclear(connection->answer);
    connection->answer = NULL;
    int64_t pause_ns = connection->pause_ns > 0 ? connection->pause_ns : RETRY_MIN_NS;
    connection->retry_ns = clock_mono_ns() + pause_ns / 2 + rand_r(&direct->seed) % (pause_ns / 2);
    connection->pause_ns = 2 * pause_ns < RETRY_MAX_NS ? 2 * pause_ns : RETRY_MAX_NS;
    if (!direct->closing) {
        complain(direct, text);
    }
    if (connection->current) {
        settle(take_current(direct, connection), SINK_UNKNOWN);
    }
}

static void link_failed(struct direct *direct, struct connection *connection)
{
    char text[400];
    pg_message(&connection->link, connection->answer, text, sizeof(text));
    connection_lost(direct, connection, text);
}

/* What to wake for. While connecting, libpq may close one socket and open another of the same
 * number, so what was registered says nothing then. */
static void watch(struct direct *direct, struct connection *connection, short wants)
{
    if (connection->link.state == PG_DOWN) {
        return;
    }
    int fd = PQsocket(connection->link.conn);
    uint32_t events =
        (wants & POLLIN ? (uint32_t)EPOLLIN : 0) | (wants & POLLOUT ? (uint32_t)EPOLLOUT : 0);
    if (connection->link.state == PG_READY && fd == connection->watched_fd &&
        events == connection->watched_events) {
        return;
    }
    struct epoll_event event = {.events = events, .data.ptr = connection};
    if (epoll_ctl(direct->epoll_fd, EPOLL_CTL_MOD, fd, &event) < 0 &&
        (errno != ENOENT || epoll_ctl(direct->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)) {
        connection_lost(direct, connection, strerror(errno));
        return;
    }
    connection->watched_fd = fd;
    connection->watched_events = events;
}

static void flush_and_watch(struct direct *direct, struct connection *connection)
{
    int unsent = PQflush(connection->link.conn);
    if (unsent < 0) {
        link_failed(direct, connection);
        return;
    }
    watch(direct, connection, (short)(POLLIN | (unsent ? POLLOUT : 0)));
}

/* Hands the first queued task to an idle connection. */
static void begin_insert(struct direct *direct, struct connection *connection)
{
    struct waiting *waiting = direct->first;
    rows_clear(&direct->rows);
    rows_add(&direct->rows, &waiting->task, NULL, NULL);
    if (rows_send_insert(connection->link.conn, &direct->rows) != 1) {
        link_failed(direct, connection); /* nothing was sent: the task stays where it is */
        return;
    }
    direct->first = waiting->next;
    if (!direct->first) {
        direct->last = &direct->first;
    }
    direct->queued--;
    direct->in_flight++;
    connection->current = waiting;
    connection->deadline_ns = clock_mono_ns() + ANSWER_NS;
    flush_and_watch(direct, connection);
}

static void begin_settle(struct direct *direct, struct connection *connection)
{
    struct waiting *waiting = connection->current;
    bool refused = waiting->sqlstate[0] != '\0';
    rows_clear(&direct->rows);
    rows_add(&direct->rows, &waiting->task, refused ? waiting->sqlstate : NULL,
             refused ? waiting->detail : NULL);
    connection->settling = true;
    if (rows_send_settle(connection->link.conn, &direct->rows) != 1) {
        link_failed(direct, connection);
        return;
    }
    flush_and_watch(direct, connection);
}

/* An error that came instead of a commit: was the row surely not stored? A statement cut off by the
 * server's end, by a cancel or by a storage failure may have been past its commit. */
static enum sink_outcome outcome_of_error(const char *sqlstate)
{
    static const char *const doubtful[] = {"08", "40003", "57", "58", "XX"};
    if (strlen(sqlstate) != 5) {
        return SINK_UNKNOWN;
    }
    for (size_t i = 0; i < sizeof(doubtful) / sizeof(doubtful[0]); i++) {
        if (strncmp(sqlstate, doubtful[i], strlen(doubtful[i])) == 0) {
            return SINK_UNKNOWN;
        }
    }
    return SINK_REFUSED;
}

/* The statement failed. true: a dead letter is to be written. */
static bool judge_failure(struct direct *direct, struct connection *connection,
                          const PGresult *answer)
{
    const char *sqlstate = pg_sqlstate(answer);
    struct waiting *waiting = connection->current;
    if (!connection->settling && maindb_judge(sqlstate) == MAINDB_ROW) {
        memcpy(waiting->sqlstate, sqlstate, sizeof(waiting->sqlstate) - 1);
        rows_detail(answer, waiting->detail);
        return true;
    }
    char text[400];
    pg_message(&connection->link, answer, text, sizeof(text));
    complain(direct, text);
    /* Unsettled, the task may be there from an earlier attempt. */
    enum sink_outcome outcome = connection->settling ? SINK_UNKNOWN : outcome_of_error(sqlstate);
    settle(take_current(direct, connection), outcome);
    return false;
}

/* All results of the statement are in. */
static void statement_over(struct direct *direct, struct connection *connection)
{
    PGresult *answer = connection->answer;
    connection->answer = NULL;
    ExecStatusType status = PQresultStatus(answer);
    bool settle_next = false;
    if (status != PGRES_TUPLES_OK) {
        settle_next = judge_failure(direct, connection, answer);
    } else if (!connection->settling) {
        settle_next = PQntuples(answer) == 0; /* its id, or it itself, is there already */
        if (!settle_next) {
            settle(take_current(direct, connection), SINK_DURABLE);
        }
    } else {
        bool absent = rows_read_settled(answer).absent > 0; /* a trigger drops rows */
        settle(take_current(direct, connection), absent ? SINK_REFUSED : SINK_DURABLE);
    }
    PQclear(answer);
    if (settle_next) {
        begin_settle(direct, connection);
    }
}

static void read_answers(struct direct *direct, struct connection *connection)
{
    PGconn *conn = connection->link.conn;
    if (PQconsumeInput(conn) != 1) {
        link_failed(direct, connection);
        return;
    }
    while (connection->current && connection->link.state == PG_READY && !PQisBusy(conn)) {
        PGresult *result = PQgetResult(conn);
        if (!result) {
            statement_over(direct, connection);
        } else if (connection->answer) {
            PQclear(result); /* the first one decides */
        } else {
            connection->answer = result;
        }
    }
    if (connection->link.state == PG_READY && PQstatus(conn) != CONNECTION_OK) {
        link_failed(direct, connection);
    }
    if (connection->link.state == PG_READY) {
        flush_and_watch(direct, connection);
    }
}

static void advance(struct direct *direct, struct connection *connection)
{
    if (connection->link.state == PG_READY) {
        read_answers(direct, connection);
        return;
    }
    struct err err = {0};
    int rc = pg_step(&connection->link, &err);
    if (rc < 0) {
        connection_lost(direct, connection, err.text);
        return;
    }
    if (rc == 1) {
        direct->ready++;
        connection->pause_ns = 0;
        connection->watched_fd = -1;
    }
    watch(direct, connection, rc == 1 ? POLLIN : connection->link.wants);
}

static void connect_again(struct direct *direct, struct connection *connection)
{
    struct err err = {0};
    if (pg_start(&connection->link, direct->target, &err) < 0) {
        connection_lost(direct, connection, err.text);
        return;
    }
    watch(direct, connection, connection->link.wants);
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
    return connection->current ? connection->deadline_ns : INT64_MAX;
}

static void look_at_clocks(struct direct *direct)
{
    int64_t now_ns = clock_mono_ns();
    for (unsigned i = 0; i < direct->count; i++) {
        struct connection *connection = &direct->connections[i];
        if (connection_due_ns(connection) > now_ns) {
            continue;
        }
        if (connection->link.state == PG_DOWN) {
            connect_again(direct, connection);
        } else if (connection->link.state == PG_READY) {
            connection_lost(direct, connection, "a statement got no answer within 60 s");
        } else {
            advance(direct, connection); /* pg_step knows that it took too long */
        }
    }
}

static bool is_idle(const struct connection *connection)
{
    return connection->link.state == PG_READY && !connection->current;
}

static int direct_process(struct sink *sink)
{
    struct direct *direct = direct_of(sink);
    struct epoll_event events[EVENTS_MAX];
    int count;
    do {
        count = epoll_wait(direct->epoll_fd, events, EVENTS_MAX, 0);
        for (int i = 0; i < count; i++) {
            struct connection *connection = events[i].data.ptr;
            if (connection->link.state != PG_DOWN) {
                advance(direct, connection);
            }
        }
    } while (count == EVENTS_MAX);
    look_at_clocks(direct);
    for (unsigned i = 0; i < direct->count && direct->first; i++) {
        if (is_idle(&direct->connections[i])) {
            begin_insert(direct, &direct->connections[i]);
        }
    }
    return 0;
}

static int64_t direct_due_ns(struct sink *sink)
{
    struct direct *direct = direct_of(sink);
    int64_t due_ns = INT64_MAX;
    for (unsigned i = 0; i < direct->count; i++) {
        const struct connection *connection = &direct->connections[i];
        if (direct->first && is_idle(connection)) {
            return 0;
        }
        int64_t one_ns = connection_due_ns(connection);
        due_ns = one_ns < due_ns ? one_ns : due_ns;
    }
    if (due_ns == INT64_MAX) {
        return -1;
    }
    int64_t left_ns = due_ns - clock_mono_ns();
    return left_ns > 0 ? left_ns : 0;
}

static bool direct_ready(struct sink *sink)
{
    return direct_of(sink)->ready > 0 && !direct_of(sink)->closing;
}

static int direct_submit(struct sink *sink, const struct task *task, sink_done_fn *done, void *arg)
{
    struct direct *direct = direct_of(sink);
    if (!direct_ready(sink)) {
        return -EAGAIN;
    }
    struct waiting *waiting = xmalloc(sizeof(*waiting) + task->body_bytes);
    *waiting = (struct waiting){.task = *task, .done = done, .arg = arg};
    if (task->body_bytes > 0) {
        memcpy(waiting + 1, task->body, task->body_bytes);
    }
    waiting->task.body = waiting + 1;
    *direct->last = waiting;
    direct->last = &waiting->next;
    direct->queued++;
    return 0;
}

static void direct_close(struct sink *sink, int64_t deadline_ns)
{
    if (!sink) {
        return;
    }
    struct direct *direct = direct_of(sink);
    direct->closing = true;
    while (direct->queued + direct->in_flight > 0) {
        int64_t left_ns = deadline_ns - clock_mono_ns();
        if (left_ns <= 0) {
            break;
        }
        int64_t due_ns = direct_due_ns(sink);
        int64_t wait_ns = due_ns >= 0 && due_ns < left_ns ? due_ns : left_ns;
        struct timespec timeout = {.tv_sec = wait_ns / NS_PER_S, .tv_nsec = wait_ns % NS_PER_S};
        struct pollfd polled = {.fd = direct->epoll_fd, .events = POLLIN};
        ppoll(&polled, 1, &timeout, NULL);
        direct_process(sink);
    }
    for (unsigned i = 0; i < direct->count; i++) {
        struct connection *connection = &direct->connections[i];
        if (connection->current) {
            settle(take_current(direct, connection), SINK_UNKNOWN);
        }
        PQclear(connection->answer);
        pg_drop(&connection->link);
    }
    while (direct->first) {
        struct waiting *waiting = direct->first;
        direct->first = waiting->next;
        settle(waiting, SINK_REFUSED);
    }
    close(direct->epoll_fd);
    rows_free(&direct->rows);
    pg_target_free(direct->target);
    free(direct->connections);
    free(direct);
}

static int direct_fd(struct sink *sink)
{
    return direct_of(sink)->epoll_fd;
}

static int direct_backlog(struct sink *sink, struct sink_backlog *backlog)
{
    (void)sink;
    *backlog = (struct sink_backlog){.exact = true}; /* durable means in the main DB: none waits */
    return 0;
}

static int direct_stats(struct sink *sink, struct sink_stats *stats)
{
    const struct direct *direct = direct_of(sink);
    const struct sink_stat items[] = {
        {"connections_up", direct->ready},
        {"statements_in_flight", direct->in_flight},
        {"tasks_queued", direct->queued},
        {"connections_lost", (double)direct->losses},
    };
    stats->count = direct->count > 0 ? sizeof(items) / sizeof(items[0]) : 0;
    memcpy(stats->items, items, stats->count * sizeof(items[0]));
    return 0;
}

const struct sink_driver sink_direct = {
    .name = "direct",
    .promise =
        "committed to the main DB itself, one transaction a task: survives what that Postgres "
        "survives, and costs its row delay inside the request",
    .flags = SINK_CONTROL | SINK_NEEDS_MAIN | SINK_DURABLE_KILL,
    .options = direct_options,
    .setup = direct_setup,
    .preflight = direct_preflight,
    .open = direct_open,
    .close = direct_close,
    .backlog = direct_backlog,
    .stats = direct_stats,
    .submit = direct_submit,
    .fd = direct_fd,
    .due_ns = direct_due_ns,
    .process = direct_process,
    .ready = direct_ready,
    .upkeep = sink_no_upkeep,
    .lane_open = sink_no_lane_open,
    .fetch = sink_no_fetch,
    .keep = sink_no_keep,
    .ack = sink_no_ack,
    .release = sink_no_release,
    .lane_close = sink_no_lane_close,
};

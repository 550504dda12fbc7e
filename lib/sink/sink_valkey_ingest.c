/* sink_valkey_ingest.c: the API's side of the sink valkey: pipelined XADD on non-blocking
 * connections, all inside the owner's loop.
 *
 * hiredis formats and parses; what is in flight is our own list, in the order of the replies. A
 * connection that broke, or kept an answer back for too long, is never used again: the server has
 * its commands or has not, so they are UNKNOWN; only those whose last byte was never handed to the
 * socket surely were not executed, and go back to the head of the queue. */
#include "sink/sink_valkey.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "sink/sink_valkey_conn.h"

/* A server takes at most 16 KiB from a connection in each turn of its loop, and flushes once a
 * turn: one connection alone, however much it has on the wire, would share each flush among 25
 * tasks of 512 bytes. */
enum { WINDOW_DEFAULT = 50, CONNECTIONS_DEFAULT = 4, EVENTS_MAX = 64 };

/* While the server refuses everything, ask it again with one task after such a pause. */
#define REFUSED_MIN_NS (100 * NS_PER_MS)
#define REFUSED_MAX_NS (2 * NS_PER_S)

static struct valkey_ingest *ingest_of(struct sink *sink)
{
    return valkey_of(sink)->ingest;
}

struct valkey_ingest *valkey_ingest_new(struct valkey_sink *sink, const struct options *options,
                                        struct err *err)
{
    int64_t connections = options_int(options, "sink-connections");
    int64_t window = options_int(options, "sink-batch-max");
    struct valkey_ingest *ingest = xcalloc(1, sizeof(*ingest));
    ingest->target = &sink->target;
    ingest->queue_end = &ingest->queue;
    ingest->deadline_ns = options_duration_ns(options, "valkey-deadline");
    ingest->window = window > 0 ? (unsigned)window : WINDOW_DEFAULT;
    ingest->count = connections > 0 ? (unsigned)connections : CONNECTIONS_DEFAULT;
    ingest->seed = (unsigned)clock_mono_ns();
    ingest->bytes = ingest->tasks = -1;
    ingest->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (ingest->epoll_fd < 0) {
        err_set(err, -errno, "no epoll: %s", strerror(errno));
        free(ingest);
        return NULL;
    }
    ingest->verdicts = xcalloc((size_t)ingest->window * ingest->count, sizeof(*ingest->verdicts));
    ingest->conns = xcalloc(ingest->count, sizeof(*ingest->conns));
    for (unsigned i = 0; i < ingest->count; i++) {
        valkey_conn_init(&ingest->conns[i], ingest);
    }
    return ingest;
}

/* ---- the queue ---- */

static struct valkey_waiter *take_first(struct valkey_ingest *ingest)
{
    struct valkey_waiter *waiter = ingest->queue;
    ingest->queue = waiter->next;
    if (!ingest->queue) {
        ingest->queue_end = &ingest->queue;
    }
    waiter->next = NULL;
    return waiter;
}

static void settle(struct valkey_waiter *waiter, enum sink_outcome outcome, unsigned batch)
{
    sink_done_fn *done = waiter->done;
    void *arg = waiter->arg;
    redisFreeCommand(waiter->command);
    free(waiter);
    done(arg, outcome, batch);
}

static void settle_list(struct valkey_waiter *list, enum sink_outcome outcome)
{
    while (list) {
        struct valkey_waiter *next = list->next;
        settle(list, outcome, 1);
        list = next;
    }
}

void valkey_requeue(struct valkey_ingest *ingest, struct valkey_waiter *first,
                    struct valkey_waiter *last)
{
    last->next = ingest->queue;
    if (!ingest->queue) {
        ingest->queue_end = &last->next;
    }
    ingest->queue = first;
}

/* Would a task be taken? Changes in process() only, so that ready and submit agree. */
static bool takes(const struct valkey_ingest *ingest)
{
    return !ingest->closing && !ingest->refusing && ingest->ready > 0;
}

int valkey_submit(struct sink *sink, const struct task *task, sink_done_fn *done, void *arg)
{
    struct valkey_ingest *ingest = ingest_of(sink);
    char accepted[24];
    if (!takes(ingest)) {
        return ingest->closing ? -EIO : -EAGAIN;
    }
    int accepted_bytes = snprintf(accepted, sizeof(accepted), "%" PRId64, task->accepted_us);
    const char *words[] = {
        "XADD",    ingest->target->stream, "*", "id", (const char *)task->id, "t", accepted, "b",
        task->body};
    const size_t lengths[] = {4,
                              strlen(ingest->target->stream),
                              1,
                              2,
                              UUID_BYTES,
                              1,
                              (size_t)accepted_bytes,
                              1,
                              task->body_bytes};
    struct valkey_waiter *waiter = xcalloc(1, sizeof(*waiter));
    long long bytes = redisFormatCommandArgv(&waiter->command, 9, words, lengths);
    if (bytes < 0) {
        free(waiter);
        return -EAGAIN;
    }
    waiter->bytes = (size_t)bytes;
    waiter->done = done;
    waiter->arg = arg;
    waiter->deadline_ns = clock_mono_ns() + ingest->deadline_ns;
    *ingest->queue_end = waiter;
    ingest->queue_end = &waiter->next;
    return 0;
}

/* ---- replies ---- */

/* Errors that a server gives before it executes anything. What is not in here may come from a proxy
 * in between, which may have passed the command on. */
static bool surely_refused(const redisReply *reply)
{
    static const char *const codes[] = {"OOM",        "MISCONF",    "READONLY", "NOAUTH",
                                        "NOPERM",     "WRONGTYPE",  "MOVED",    "ASK",
                                        "NOREPLICAS", "CLUSTERDOWN"};
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        if (valkey_is_error(reply, codes[i])) {
            return true;
        }
    }
    return false;
}

/* Errors that pass by themselves, and soon; nothing was executed. */
static bool passes_by(const redisReply *reply)
{
    return valkey_is_error(reply, "LOADING") || valkey_is_error(reply, "BUSY") ||
           valkey_is_error(reply, "TRYAGAIN");
}

/* A reply to XADD. True with the outcome; false: the task is to be sent again. */
static bool judge_added(struct valkey_ingest *ingest, const redisReply *reply,
                        enum sink_outcome *outcome)
{
    if (reply->type == REDIS_REPLY_STRING) {
        *outcome = SINK_DURABLE;
        ingest->refused_pause_ns = 0;
        return true;
    }
    if (passes_by(reply)) {
        return false;
    }
    struct err err = {0};
    valkey_judge(ingest->target, "XADD", reply, &err);
    valkey_complain(ingest, err.text);
    *outcome = surely_refused(reply) ? SINK_REFUSED : SINK_UNKNOWN;
    if (*outcome == SINK_REFUSED && !ingest->refusing) {
        int64_t pause_ns = 2 * ingest->refused_pause_ns;
        pause_ns = pause_ns < REFUSED_MIN_NS ? REFUSED_MIN_NS : pause_ns;
        ingest->refused_pause_ns = pause_ns < REFUSED_MAX_NS ? pause_ns : REFUSED_MAX_NS;
        ingest->refused_until_ns = clock_mono_ns() + ingest->refused_pause_ns;
        ingest->refusing = true;
    }
    return true;
}

/* Can this be the answer to such a command? If not, answers and commands are out of step. */
static bool fits(enum valkey_expected_kind kind, const redisReply *reply)
{
    switch (reply->type) {
    case REDIS_REPLY_ERROR:
        return true;
    case REDIS_REPLY_STRING:
        return kind == VALKEY_ADDED;
    case REDIS_REPLY_INTEGER:
        return kind == VALKEY_TRIAL || kind == VALKEY_LENGTH || kind == VALKEY_MEMORY;
    case REDIS_REPLY_NIL:
        return kind == VALKEY_MEMORY; /* no such key */
    case REDIS_REPLY_STATUS:
        return kind == VALKEY_GREETING;
    default:
        return false;
    }
}

static void take_length(struct valkey_ingest *ingest, const redisReply *reply)
{
    ingest->looking = false;
    if (reply->type == REDIS_REPLY_INTEGER) {
        ingest->tasks = reply->integer;
        ingest->looked_ns = clock_mono_ns();
        ingest->wanted = false;
    }
}

/* One reply that is not for a task. false: the connection is of no use. */
static bool take_other(struct valkey_conn *conn, enum valkey_expected_kind kind,
                       const redisReply *reply)
{
    struct valkey_ingest *ingest = conn->ingest;
    struct err err = {0};
    switch (kind) {
    case VALKEY_GREETING:
        if (valkey_greeted(ingest->target, reply, &err) < 0) {
            valkey_conn_lost(conn, err.text);
            return false;
        }
        return true;
    case VALKEY_TRIAL:
        if (passes_by(reply)) {
            valkey_judge(ingest->target, "XLEN", reply, &err);
            valkey_complain(ingest, err.text);
            valkey_conn_hold(conn);
            return true;
        }
        if (valkey_is_error(reply, NULL) && !valkey_is_error(reply, "NOPERM")) {
            valkey_judge(ingest->target, "XLEN", reply, &err);
            valkey_conn_lost(conn, err.text);
            return false;
        }
        take_length(ingest, reply);
        valkey_conn_usable(conn);
        return true;
    case VALKEY_LENGTH:
        take_length(ingest, reply);
        return true;
    case VALKEY_MEMORY:
        ingest->bytes = reply->type == REDIS_REPLY_INTEGER ? reply->integer : -1;
        return true;
    case VALKEY_ADDED:
        break;
    }
    assert(false);
    return false;
}

/* All replies that are in the reader. Outcomes are told later, when those of all connections are
 * known: what a server flushed together it answers together. */
static void take_replies(struct valkey_conn *conn)
{
    struct valkey_ingest *ingest = conn->ingest;
    struct valkey_waiter *again = NULL;
    struct valkey_waiter *again_last = NULL;
    for (;;) {
        void *object = NULL;
        errno = 0;
        int rc = redisGetReplyFromReader(conn->context, &object);
        redisReply *reply = object;
        if (rc == REDIS_OK && !reply) {
            break;
        }
        if (rc != REDIS_OK || conn->expected_count == 0 ||
            !fits(conn->expected[conn->expected_head].kind, reply)) {
            struct err err = {0};
            valkey_broken(ingest->target, conn->context, &err);
            freeReplyObject(reply);
            valkey_conn_lost(conn, rc != REDIS_OK ? err.text : "an answer to another question");
            break;
        }
        struct valkey_expected expected = valkey_conn_shift(conn);
        bool usable = true;
        if (expected.kind != VALKEY_ADDED) {
            usable = take_other(conn, expected.kind, reply);
        } else if (judge_added(ingest, reply, &ingest->verdicts[ingest->decided].outcome)) {
            ingest->verdicts[ingest->decided++].waiter = expected.waiter;
        } else {
            expected.waiter->next = NULL;
            *(again ? &again_last->next : &again) = expected.waiter;
            again_last = expected.waiter;
        }
        freeReplyObject(reply);
        if (!usable) {
            break;
        }
    }
    if (again) {
        valkey_requeue(ingest, again, again_last);
        if (conn->state == VALKEY_READY) {
            valkey_conn_hold(conn);
        }
    }
}

static void settle_decided(struct valkey_ingest *ingest)
{
    for (unsigned i = 0; i < ingest->decided; i++) {
        settle(ingest->verdicts[i].waiter, ingest->verdicts[i].outcome, ingest->decided);
    }
    ingest->decided = 0;
}

static void read_conn(struct valkey_conn *conn)
{
    errno = 0;
    if (redisBufferRead(conn->context) != REDIS_OK) {
        struct err err = {0};
        valkey_broken(conn->ingest->target, conn->context, &err);
        valkey_conn_lost(conn, err.text);
        return;
    }
    take_replies(conn);
}

/* ---- sending ---- */

/* The next connection, in turn, that may be given a task; NULL: all windows are full. */
static struct valkey_conn *with_room(struct valkey_ingest *ingest)
{
    for (unsigned i = 0; i < ingest->count; i++) {
        struct valkey_conn *conn = &ingest->conns[(ingest->turn + i) % ingest->count];
        if (conn->state == VALKEY_READY && conn->in_flight < ingest->window) {
            ingest->turn = (ingest->turn + i + 1) % ingest->count;
            return conn;
        }
    }
    return NULL;
}

static void send_queued(struct valkey_ingest *ingest)
{
    struct valkey_conn *conn;
    while (ingest->queue && (conn = with_room(ingest))) {
        valkey_conn_add(conn, take_first(ingest));
    }
}

/* How long is the stream? Asked on the way, by the first usable connection. */
static void look(struct valkey_ingest *ingest, int64_t now_ns)
{
    bool stale = now_ns - ingest->looked_ns >= VALKEY_LOOK_EVERY_NS;
    for (unsigned i = 0; stale && !ingest->looking && i < ingest->count; i++) {
        struct valkey_conn *conn = &ingest->conns[i];
        if (conn->state == VALKEY_READY && (ingest->wanted || conn->in_flight > 0)) {
            valkey_conn_look(conn, now_ns);
            ingest->looking = true;
            ingest->wanted = false;
        }
    }
}

/* ---- clocks ---- */

static void expire(struct valkey_ingest *ingest, int64_t now_ns)
{
    while (ingest->queue && ingest->queue->deadline_ns <= now_ns) {
        settle(take_first(ingest), SINK_REFUSED, 1); /* never sent */
    }
    if (ingest->refusing && ingest->refused_until_ns <= now_ns) {
        ingest->refusing = false;
    }
    for (unsigned i = 0; i < ingest->count; i++) {
        valkey_conn_tick(&ingest->conns[i], now_ns);
    }
}

/* Tasks of connections that were given up. */
static void settle_lost(struct valkey_ingest *ingest)
{
    while (ingest->lost) {
        struct valkey_waiter *lost = ingest->lost;
        ingest->lost = NULL;
        settle_list(lost, SINK_UNKNOWN);
    }
}

int64_t valkey_due_ns(struct sink *sink)
{
    struct valkey_ingest *ingest = ingest_of(sink);
    int64_t now_ns = clock_mono_ns();
    int64_t due_ns = INT64_MAX;
    if (ingest->queue) {
        due_ns = ingest->queue->deadline_ns;
    }
    if (ingest->refusing && ingest->refused_until_ns < due_ns) {
        due_ns = ingest->refused_until_ns;
    }
    for (unsigned i = 0; i < ingest->count; i++) {
        const struct valkey_conn *conn = &ingest->conns[i];
        int64_t conn_due_ns = valkey_conn_due_ns(conn);
        bool has_work = (ingest->queue && conn->in_flight < ingest->window) ||
                        (ingest->wanted && !ingest->looking);
        if (conn->state == VALKEY_READY && has_work) {
            return 0;
        }
        due_ns = conn_due_ns < due_ns ? conn_due_ns : due_ns;
    }
    if (due_ns == INT64_MAX) {
        return -1;
    }
    return due_ns > now_ns ? due_ns - now_ns : 0;
}

int valkey_process(struct sink *sink)
{
    struct valkey_ingest *ingest = ingest_of(sink);
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(ingest->epoll_fd, events, EVENTS_MAX, 0);
    for (int i = 0; i < count; i++) {
        struct valkey_conn *conn = events[i].data.ptr;
        if (conn->state == VALKEY_CONNECTING) {
            valkey_conn_connected(conn);
        } else if (conn->context && (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP))) {
            read_conn(conn);
        }
    }
    settle_decided(ingest);
    int64_t now_ns = clock_mono_ns();
    expire(ingest, now_ns);
    send_queued(ingest);
    look(ingest, now_ns);
    for (unsigned i = 0; i < ingest->count; i++) {
        valkey_conn_flush(&ingest->conns[i]);
    }
    settle_lost(ingest);
    return 0;
}

int valkey_fd(struct sink *sink)
{
    return ingest_of(sink)->epoll_fd;
}

bool valkey_ready(struct sink *sink)
{
    return takes(ingest_of(sink));
}

int valkey_why(struct sink *sink, const char **sentence)
{
    const struct valkey_ingest *ingest = ingest_of(sink);
    if (takes(ingest)) {
        return 0;
    }
    if (!ingest->closing && ingest->ready > 0) {
        *sentence = "the sink's server refuses to write, as when its memory is used up";
        return -ENOSPC;
    }
    *sentence = "the sink is not connected";
    return -ENOTCONN;
}

int valkey_ingest_backlog(struct valkey_ingest *ingest, struct sink_backlog *backlog)
{
    int64_t now_ns = clock_mono_ns();
    if (ingest->looked_ns == 0) {
        ingest->wanted = true;
        return -ENOTCONN;
    }
    ingest->wanted = now_ns - ingest->looked_ns >= VALKEY_LOOK_EVERY_NS;
    *backlog = (struct sink_backlog){.tasks = ingest->tasks,
                                     .bytes = ingest->tasks == 0 ? 0 : ingest->bytes,
                                     .exact = true,
                                     .age_ns = now_ns - ingest->looked_ns};
    return 0;
}

/* ---- the end ---- */

static bool has_work(const struct valkey_ingest *ingest)
{
    bool any = ingest->queue != NULL;
    for (unsigned i = 0; i < ingest->count; i++) {
        any = any || ingest->conns[i].in_flight > 0;
    }
    return any;
}

void valkey_ingest_close(struct valkey_ingest *ingest, int64_t deadline_ns)
{
    struct valkey_sink shell = {.ingest = ingest};
    ingest->closing = true;
    while (has_work(ingest) && clock_mono_ns() < deadline_ns) {
        int64_t due_ns = valkey_due_ns(&shell.base);
        int64_t left_ns = deadline_ns - clock_mono_ns();
        int64_t wait_ns = due_ns < 0 || due_ns > left_ns ? left_ns : due_ns;
        struct pollfd polled = {.fd = ingest->epoll_fd, .events = POLLIN};
        poll(&polled, 1, wait_ns > 0 ? (int)(wait_ns / NS_PER_MS) + 1 : 0);
        valkey_process(&shell.base);
    }
    for (unsigned i = 0; i < ingest->count; i++) {
        valkey_conn_close(&ingest->conns[i]);
    }
    settle_lost(ingest);
    while (ingest->queue) {
        settle(take_first(ingest), SINK_REFUSED, 1);
    }
    valkey_forget_addresses(ingest);
    close(ingest->epoll_fd);
    free(ingest->verdicts);
    free(ingest->conns);
    free(ingest);
}

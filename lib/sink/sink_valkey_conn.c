/* sink_valkey_conn.c: a non-blocking connection of the sink valkey's ingest side. */
#include "sink/sink_valkey_conn.h"

#include <assert.h>
#include <errno.h>
#include <hiredis/sds.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

#define RETRY_MIN_NS (20 * NS_PER_MS)
#define RETRY_MAX_NS (2 * NS_PER_S)
#define LOG_EVERY_NS (2 * NS_PER_S)
/* How often to ask whether a lookup is done, or a TLS handshake can go on. */
#define POLL_NS (5 * NS_PER_MS)
/* The server's estimate of the bytes costs it more than the count. */
#define MEMORY_EVERY_NS NS_PER_S

void valkey_complain(struct valkey_ingest *ingest, const char *text)
{
    int64_t now_ns = clock_mono_ns();
    if (ingest->logged_ns == 0 || now_ns - ingest->logged_ns >= LOG_EVERY_NS) {
        ingest->logged_ns = now_ns;
        log_warning("sink valkey: %s (%u of %u connections are usable)", text, ingest->ready,
                    ingest->count);
    }
}

void valkey_conn_init(struct valkey_conn *conn, struct valkey_ingest *ingest)
{
    conn->ingest = ingest;
    conn->fd = -1;
    conn->expected_room = ingest->window + 16; /* beside tasks: a greeting, a trial, a look */
    conn->expected = xcalloc(conn->expected_room, sizeof(*conn->expected));
}

/* ---- what is awaited ---- */

static void expect_reply(struct valkey_conn *conn, enum valkey_expected_kind kind,
                         struct valkey_waiter *waiter, int64_t deadline_ns)
{
    assert(conn->expected_count < conn->expected_room);
    unsigned at = (conn->expected_head + conn->expected_count) % conn->expected_room;
    conn->expected[at] = (struct valkey_expected){kind, waiter, deadline_ns};
    conn->expected_count++;
    conn->in_flight += kind == VALKEY_ADDED;
}

struct valkey_expected valkey_conn_shift(struct valkey_conn *conn)
{
    assert(conn->expected_count > 0);
    struct valkey_expected expected = conn->expected[conn->expected_head];
    conn->expected_head = (conn->expected_head + 1) % conn->expected_room;
    conn->expected_count--;
    conn->in_flight -= expected.kind == VALKEY_ADDED;
    return expected;
}

static int64_t reply_due_ns(const struct valkey_conn *conn)
{
    int64_t due_ns = INT64_MAX;
    for (unsigned i = 0; i < conn->expected_count; i++) {
        const struct valkey_expected *one =
            &conn->expected[(conn->expected_head + i) % conn->expected_room];
        due_ns = one->deadline_ns < due_ns ? one->deadline_ns : due_ns;
    }
    return due_ns;
}

/* ---- states ---- */

static void set_state(struct valkey_conn *conn, enum valkey_state state)
{
    conn->ingest->ready -= conn->state == VALKEY_READY;
    conn->ingest->ready += state == VALKEY_READY;
    conn->state = state;
}

static int64_t next_pause_ns(struct valkey_conn *conn)
{
    int64_t pause_ns = conn->pause_ns > 0 ? conn->pause_ns : RETRY_MIN_NS;
    conn->pause_ns = 2 * pause_ns < RETRY_MAX_NS ? 2 * pause_ns : RETRY_MAX_NS;
    return pause_ns / 2 + rand_r(&conn->ingest->seed) % (pause_ns / 2);
}

/* Whose commands were given to the connection: those whose last byte left are UNKNOWN. The others
 * surely were not executed: back to the head of the queue, in their order. */
static void give_back_tasks(struct valkey_conn *conn)
{
    struct valkey_ingest *ingest = conn->ingest;
    struct valkey_waiter *unsent = NULL;
    struct valkey_waiter *unsent_last = NULL;
    struct valkey_waiter **lost_end = &ingest->lost;
    while (*lost_end) {
        lost_end = &(*lost_end)->next;
    }
    while (conn->expected_count > 0) {
        struct valkey_expected expected = valkey_conn_shift(conn);
        ingest->looking = ingest->looking && expected.kind != VALKEY_LENGTH;
        if (expected.kind != VALKEY_ADDED) {
            continue;
        }
        struct valkey_waiter *waiter = expected.waiter;
        waiter->next = NULL;
        /* Under TLS, what hiredis has not let go of may be in records that have left. */
        if (waiter->end <= conn->written || ingest->target->tls) {
            *lost_end = waiter;
            lost_end = &waiter->next;
        } else {
            *(unsent ? &unsent_last->next : &unsent) = waiter;
            unsent_last = waiter;
        }
    }
    if (unsent) {
        valkey_requeue(ingest, unsent, unsent_last);
    }
}

static void drop(struct valkey_conn *conn)
{
    give_back_tasks(conn);
    redisFree(conn->context); /* its socket leaves the epoll set by being closed */
    conn->context = NULL;
    if (conn->fd >= 0) {
        close(conn->fd);
        conn->fd = -1;
    }
    conn->events = 0;
    set_state(conn, VALKEY_DOWN);
}

void valkey_conn_lost(struct valkey_conn *conn, const char *why)
{
    struct valkey_ingest *ingest = conn->ingest;
    bool was_ready = conn->state == VALKEY_READY;
    drop(conn);
    ingest->losses += was_ready;
    conn->retry_ns = clock_mono_ns() + next_pause_ns(conn);
    if (!ingest->closing) {
        valkey_complain(ingest, why);
    }
}

void valkey_conn_close(struct valkey_conn *conn)
{
    drop(conn);
    free(conn->expected);
}

void valkey_conn_hold(struct valkey_conn *conn)
{
    set_state(conn, VALKEY_HELD);
    conn->retry_ns = clock_mono_ns() + next_pause_ns(conn);
}

void valkey_conn_usable(struct valkey_conn *conn)
{
    struct valkey_ingest *ingest = conn->ingest;
    conn->pause_ns = 0;
    set_state(conn, VALKEY_READY);
    if (ingest->logged_ns != 0 && ingest->ready == ingest->count) {
        ingest->logged_ns = 0;
        log_info("sink valkey: connected to %s", ingest->target->shown);
    }
}

/* ---- looking up ---- */

/* Shared by the loop and the thread that asks; whoever lets go last frees it. */
struct valkey_lookup {
    atomic_int holders;
    atomic_bool done;
    int rc; /* of getaddrinfo; with found, valid once it is done */
    struct addrinfo *found;
    char *host, port[8];
};

static void let_go(struct valkey_lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->holders, 1) == 1) {
        if (lookup->found) {
            freeaddrinfo(lookup->found);
        }
        free(lookup->host);
        free(lookup);
    }
}

static void *ask_for_addresses(void *arg)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct valkey_lookup *lookup = arg;
    lookup->rc = getaddrinfo(lookup->host, lookup->port, &hints, &lookup->found);
    atomic_store(&lookup->done, true);
    let_go(lookup);
    return NULL;
}

/* A name may take a resolver many seconds, and nobody can call it off: a thread waits for it. NULL:
 * there is no thread to be had. */
static struct valkey_lookup *begin_lookup(const struct valkey_target *target)
{
    struct valkey_lookup *lookup = xcalloc(1, sizeof(*lookup));
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    lookup->host = xstrdup(target->host);
    memcpy(lookup->port, target->port, sizeof(lookup->port));
    atomic_init(&lookup->holders, 2);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the program's own threads */
    int rc = pthread_create(&thread, NULL, ask_for_addresses, lookup);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        free(lookup->host);
        free(lookup);
        return NULL;
    }
    pthread_detach(thread);
    return lookup;
}

static void keep_addresses(struct valkey_ingest *ingest, struct addrinfo *addresses)
{
    if (ingest->addresses) {
        freeaddrinfo(ingest->addresses);
    }
    ingest->addresses = addresses;
    ingest->address_count = 0;
    for (const struct addrinfo *at = addresses; at; at = at->ai_next) {
        ingest->address_count++;
    }
}

static void end_lookup(struct valkey_ingest *ingest)
{
    if (ingest->lookup) {
        let_go(ingest->lookup);
        ingest->lookup = NULL;
    }
}

/* Numbers need nobody to be asked. 0: there are addresses; -EAGAIN: not yet; other: none. */
static int look_up(struct valkey_ingest *ingest, struct err *err)
{
    const struct addrinfo numeric = {.ai_family = AF_UNSPEC,
                                     .ai_socktype = SOCK_STREAM,
                                     .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    const struct valkey_target *target = ingest->target;
    struct addrinfo *addresses = NULL;
    int rc = 0;
    if (!ingest->lookup && getaddrinfo(target->host, target->port, &numeric, &addresses) != 0) {
        ingest->lookup = begin_lookup(target);
        rc = ingest->lookup ? 0 : EAI_MEMORY;
    }
    if (ingest->lookup) {
        if (!atomic_load(&ingest->lookup->done)) {
            return -EAGAIN;
        }
        rc = ingest->lookup->rc;
        addresses = ingest->lookup->found;
        ingest->lookup->found = NULL;
        end_lookup(ingest);
    }
    if (rc != 0) {
        return err_set(err, -EHOSTUNREACH, "%s: the host's name cannot be looked up: %s",
                       target->shown, gai_strerror(rc));
    }
    keep_addresses(ingest, addresses);
    return ingest->address_count > 0 ? 0 : -EHOSTUNREACH;
}

void valkey_forget_addresses(struct valkey_ingest *ingest)
{
    end_lookup(ingest);
    keep_addresses(ingest, NULL);
}

/* ---- connecting ---- */

static int watch(struct valkey_conn *conn, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = conn};
    if (conn->events == events) {
        return 0;
    }
    int how = conn->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    conn->events = events;
    return epoll_ctl(conn->ingest->epoll_fd, how, fd, &event) < 0 ? -errno : 0;
}

static void connect_now(struct valkey_conn *conn)
{
    struct valkey_ingest *ingest = conn->ingest;
    struct err err = {0};
    int rc = look_up(ingest, &err);
    if (rc == -EAGAIN) {
        set_state(conn, VALKEY_LOOKING_UP);
        return;
    }
    if (rc < 0) {
        valkey_conn_lost(conn, err.text);
        return;
    }
    const struct addrinfo *address = ingest->addresses;
    assert(address);
    for (unsigned i = conn->address++ % ingest->address_count; i > 0; i--) {
        address = address->ai_next;
    }
    conn->fd = valkey_socket(address);
    rc = conn->fd < 0 ? conn->fd : watch(conn, conn->fd, EPOLLIN | EPOLLOUT);
    if (rc < 0) {
        err_set(&err, rc, "%s: no connection: %s", ingest->target->shown, strerror(-rc));
        valkey_conn_lost(conn, err.text);
        return;
    }
    set_state(conn, VALKEY_CONNECTING);
}

/* XLEN is a command of the kind that a server still loading refuses, and says whether the key is a
 * stream, and gives the first figure of the backlog. */
static void begin_trial(struct valkey_conn *conn)
{
    struct valkey_command command = {0};
    valkey_begin(&command, "XLEN");
    valkey_word(&command, conn->ingest->target->stream);
    valkey_append(conn->context, &command);
    valkey_command_free(&command);
    conn->deadline_ns = clock_mono_ns() + VALKEY_CONNECT_NS;
    expect_reply(conn, VALKEY_TRIAL, NULL, conn->deadline_ns);
    set_state(conn, VALKEY_GREETED);
}

void valkey_conn_connected(struct valkey_conn *conn)
{
    struct valkey_ingest *ingest = conn->ingest;
    struct err err = {0};
    int code = 0;
    socklen_t len = sizeof(code);
    if (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &code, &len) < 0 || code != 0) {
        err_set(&err, -ECONNREFUSED, "%s: no connection: %s", ingest->target->shown,
                strerror(code ? code : errno));
        valkey_conn_lost(conn, err.text);
        return;
    }
    conn->context = valkey_adopt(ingest->target, conn->fd, false, &err);
    conn->fd = -1;
    if (!conn->context) {
        conn->events = 0;
        valkey_conn_lost(conn, err.text);
        return;
    }
    conn->written = 0;
    for (int left = valkey_greet(ingest->target, conn->context, "sluice-api"); left > 0; left--) {
        expect_reply(conn, VALKEY_GREETING, NULL, conn->deadline_ns);
    }
    begin_trial(conn);
}

/* ---- sending ---- */

void valkey_conn_add(struct valkey_conn *conn, struct valkey_waiter *waiter)
{
    /* No memory ends hiredis's context; then the next flush says so. */
    redisAppendFormattedCommand(conn->context, waiter->command, waiter->bytes);
    waiter->end = conn->written + sdslen(conn->context->obuf);
    expect_reply(conn, VALKEY_ADDED, waiter, waiter->deadline_ns);
}

void valkey_conn_look(struct valkey_conn *conn, int64_t now_ns)
{
    struct valkey_ingest *ingest = conn->ingest;
    struct valkey_command command = {0};
    valkey_begin(&command, "XLEN");
    valkey_word(&command, ingest->target->stream);
    valkey_append(conn->context, &command);
    expect_reply(conn, VALKEY_LENGTH, NULL, now_ns + ingest->deadline_ns);
    if (ingest->memory_ns == 0 || now_ns - ingest->memory_ns >= MEMORY_EVERY_NS) {
        ingest->memory_ns = now_ns;
        valkey_begin(&command, "MEMORY");
        valkey_word(&command, "USAGE");
        valkey_word(&command, ingest->target->stream);
        valkey_append(conn->context, &command);
        expect_reply(conn, VALKEY_MEMORY, NULL, now_ns + ingest->deadline_ns);
    }
    valkey_command_free(&command);
}

void valkey_conn_flush(struct valkey_conn *conn)
{
    int done = 0;
    if (!conn->context) {
        return;
    }
    size_t before = sdslen(conn->context->obuf);
    if (before > 0 && !conn->context->err) {
        errno = 0;
        if (redisBufferWrite(conn->context, &done) == REDIS_OK) {
            conn->written += before - sdslen(conn->context->obuf);
        }
    }
    if (conn->context->err) {
        struct err err = {0};
        valkey_broken(conn->ingest->target, conn->context, &err);
        valkey_conn_lost(conn, err.text);
        return;
    }
    /* During a TLS handshake the socket is writable all the time and nothing can be written. */
    bool shaking = conn->ingest->target->tls && conn->state == VALKEY_GREETED;
    bool more = sdslen(conn->context->obuf) > 0 && !shaking;
    int rc = watch(conn, conn->context->fd, EPOLLIN | (more ? EPOLLOUT : 0u));
    if (rc < 0) {
        valkey_conn_lost(conn, strerror(-rc));
    }
}

/* ---- clocks ---- */

int64_t valkey_conn_due_ns(const struct valkey_conn *conn)
{
    switch (conn->state) {
    case VALKEY_DOWN:
        return conn->retry_ns;
    case VALKEY_LOOKING_UP:
        return clock_mono_ns() + POLL_NS;
    case VALKEY_CONNECTING:
        return conn->deadline_ns;
    case VALKEY_GREETED:
        if (conn->ingest->target->tls && sdslen(conn->context->obuf) > 0) {
            return clock_mono_ns() + POLL_NS;
        }
        return reply_due_ns(conn);
    case VALKEY_HELD: {
        int64_t reply_ns = reply_due_ns(conn);
        return reply_ns < conn->retry_ns ? reply_ns : conn->retry_ns;
    }
    case VALKEY_READY:
        break;
    }
    return reply_due_ns(conn);
}

void valkey_conn_tick(struct valkey_conn *conn, int64_t now_ns)
{
    char text[300];
    const char *shown = conn->ingest->target->shown;
    if (conn->context && reply_due_ns(conn) <= now_ns) {
        snprintf(text, sizeof(text), "%s: no answer in time; the connection is given up", shown);
        valkey_conn_lost(conn, text);
        return;
    }
    switch (conn->state) {
    case VALKEY_DOWN:
        if (conn->retry_ns <= now_ns) {
            conn->deadline_ns = now_ns + VALKEY_CONNECT_NS;
            connect_now(conn);
        }
        break;
    case VALKEY_LOOKING_UP:
    case VALKEY_CONNECTING:
        if (conn->deadline_ns <= now_ns) {
            snprintf(text, sizeof(text), "%s: no connection in time", shown);
            valkey_conn_lost(conn, text);
        } else if (conn->state == VALKEY_LOOKING_UP) {
            connect_now(conn);
        }
        break;
    case VALKEY_HELD:
        if (conn->retry_ns <= now_ns) {
            begin_trial(conn);
        }
        break;
    case VALKEY_GREETED:
    case VALKEY_READY:
        break;
    }
}

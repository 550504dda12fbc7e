#include "client.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"

enum { EVENTS_MAX = 64, RECEIVE_BYTES = 64 * 1024 };

enum connection_state { CONNECTION_CLOSED, CONNECTION_DIALING, CONNECTION_IDLE, CONNECTION_BUSY };

struct connection {
    int fd;
    enum connection_state state;
    bool polls_output;
    uint64_t tag;
    int64_t dial_ns;
    struct buf in;                      /* what came of a response that was not complete at once */
    struct buf out;                     /* what the kernel did not take at once */
    size_t out_offset;                  /* of that already sent */
    struct connection *previous, *next; /* list of idle or of closed ones */
};

/* Doubly linked, because any idle connection may be closed by its peer. */
struct list {
    struct connection *first, *last;
};

struct client {
    struct client_config config;
    struct connection *connections;
    struct list idle, closed;
    struct client_counts counts;
    int epoll_fd, timer_fd;
    int64_t armed_ns; /* what the timer is set to */
    char timer_tag, wake_tag;
    char scratch[RECEIVE_BYTES];
};

static void list_push(struct list *list, struct connection *c)
{
    c->next = NULL;
    c->previous = list->last;
    if (list->last)
        list->last->next = c;
    else
        list->first = c;
    list->last = c;
}

static void list_remove(struct list *list, struct connection *c)
{
    if (c->previous)
        c->previous->next = c->next;
    else
        list->first = c->next;
    if (c->next)
        c->next->previous = c->previous;
    else
        list->last = c->previous;
}

static int watch(struct client *client, int fd, uint32_t events, void *tag, struct err *err)
{
    struct epoll_event event = {.events = events, .data.ptr = tag};

    if (epoll_ctl(client->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        return err_set(err, -errno, "cannot poll a descriptor: %s", strerror(errno));
    return 0;
}

int client_open(struct client **out, const struct client_config *config, struct err *err)
{
    struct client *client = xcalloc(1, sizeof(*client));
    int rc;

    client->config = *config;
    client->armed_ns = INT64_MAX;
    client->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    client->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    client->connections = xcalloc(config->connections_max, sizeof(*client->connections));
    for (unsigned i = 0; i < config->connections_max; i++) {
        client->connections[i].fd = -1;
        list_push(&client->closed, &client->connections[i]);
    }
    if (client->epoll_fd < 0 || client->timer_fd < 0) {
        rc = err_set(err, -errno, "cannot make an epoll or timer descriptor: %s", strerror(errno));
        goto out;
    }
    // By edges: each expiry and each signal is told once, and nobody has to read it away.
    rc = watch(client, client->timer_fd, EPOLLIN | EPOLLET, &client->timer_tag, err);
    if (rc == 0 && config->wake_fd >= 0)
        rc = watch(client, config->wake_fd, EPOLLIN | EPOLLET, &client->wake_tag, err);
out:
    if (rc < 0) {
        client_close(client);
        return rc;
    }
    *out = client;
    return 0;
}

void client_close(struct client *client)
{
    if (!client)
        return;
    for (unsigned i = 0; i < client->config.connections_max; i++) {
        if (client->connections[i].fd >= 0)
            close(client->connections[i].fd);
        buf_free(&client->connections[i].in);
        buf_free(&client->connections[i].out);
    }
    if (client->timer_fd >= 0)
        close(client->timer_fd);
    if (client->epoll_fd >= 0)
        close(client->epoll_fd);
    free(client->connections);
    free(client);
}

const struct client_counts *client_counts(const struct client *client)
{
    return &client->counts;
}

static void connection_close(struct client *client, struct connection *c)
{
    switch (c->state) {
    case CONNECTION_IDLE:
        list_remove(&client->idle, c);
        client->counts.idle--;
        break;
    case CONNECTION_BUSY:
        client->counts.busy--;
        break;
    case CONNECTION_DIALING:
        client->counts.dialing--;
        break;
    case CONNECTION_CLOSED:
        return;
    }
    close(c->fd); // leaves the epoll set with it: the descriptor has no copy
    c->fd = -1;
    c->state = CONNECTION_CLOSED;
    buf_clear(&c->in);
    buf_clear(&c->out);
    list_push(&client->closed, c);
}

static void connection_idle(struct client *client, struct connection *c)
{
    if (c->state == CONNECTION_DIALING)
        client->counts.dialing--;
    else
        client->counts.busy--;
    c->state = CONNECTION_IDLE;
    client->counts.idle++;
    list_push(&client->idle, c);
}

static void poll_output(struct client *client, struct connection *c, bool output)
{
    struct epoll_event event = {.events = EPOLLIN | (output ? (uint32_t)EPOLLOUT : 0),
                                .data.ptr = c};
    int rc;

    if (c->polls_output == output)
        return;
    c->polls_output = output;
    rc = epoll_ctl(client->epoll_fd, EPOLL_CTL_MOD, c->fd, &event);
    assert(rc == 0); // a descriptor of our own, in the set
}

/* Errors that come from this machine's limits, not from the peer or the way to it. */
static bool is_local_error(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM ||
           error == EADDRNOTAVAIL || error == EAGAIN || error == ENOSPC;
}

/* Returns 0 or a positive errno. */
static int dial_one(struct client *client, struct connection *c)
{
    const struct sockaddr *address = (const struct sockaddr *)&client->config.address;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
    int one = 1, error = 0;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return errno;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(fd, address, client->config.address_len) < 0 && errno != EINPROGRESS)
        error = errno;
    else if (epoll_ctl(client->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        error = errno;
    if (error) {
        close(fd);
        return error;
    }
    list_remove(&client->closed, c);
    c->fd = fd;
    c->polls_output = true;
    c->state = CONNECTION_DIALING;
    c->dial_ns = clock_mono_ns();
    client->counts.dialing++;
    return 0;
}

unsigned client_dial(struct client *client, unsigned count)
{
    unsigned tried = 0;

    while (tried < count && client->closed.first) {
        int error = dial_one(client, client->closed.first);

        tried++;
        client->counts.dials++;
        if (error) {
            bool local = is_local_error(error);

            client->config.handler->dial_failed(client->config.arg, error, local, clock_mono_ns());
            if (local)
                break;
        }
    }
    return tried;
}

unsigned client_drop_dials(struct client *client, int64_t age_ns)
{
    int64_t before_ns = clock_mono_ns() - age_ns;
    unsigned dropped = 0;

    for (unsigned i = 0; client->counts.dialing > 0 && i < client->config.connections_max; i++) {
        struct connection *c = &client->connections[i];

        if (c->state == CONNECTION_DIALING && c->dial_ns <= before_ns) {
            connection_close(client, c);
            dropped++;
        }
    }
    return dropped;
}

void client_trim(struct client *client, unsigned count)
{
    while (count-- > 0 && client->idle.first)
        connection_close(client, client->idle.first);
}

void client_cancel(struct client *client, int connection)
{
    assert(client->connections[connection].state == CONNECTION_BUSY);
    connection_close(client, &client->connections[connection]);
}

int client_send(struct client *client, uint64_t tag, const void *bytes, size_t len,
                int64_t *sent_ns)
{
    struct connection *c;

    while ((c = client->idle.first) != NULL) {
        ssize_t n;

        *sent_ns = clock_mono_ns();
        n = send(c->fd, bytes, len, MSG_NOSIGNAL);
        if (n <= 0) { // closed by its peer, and we had not seen it yet; nothing was sent
            client->counts.idle_closes++;
            connection_close(client, c);
            continue;
        }
        list_remove(&client->idle, c);
        client->counts.idle--;
        client->counts.busy++;
        c->state = CONNECTION_BUSY;
        c->tag = tag;
        if ((size_t)n < len) {
            buf_append(&c->out, (const char *)bytes + n, len - (size_t)n);
            c->out_offset = 0;
            poll_output(client, c, true);
        }
        return (int)(c - client->connections);
    }
    return -EAGAIN;
}

static void lose(struct client *client, struct connection *c, const char *why)
{
    uint64_t tag = c->tag;

    connection_close(client, c);
    client->config.handler->lost(client->config.arg, tag, why, clock_mono_ns());
}

static void flush_output(struct client *client, struct connection *c)
{
    ssize_t n = send(c->fd, c->out.data + c->out_offset, c->out.len - c->out_offset, MSG_NOSIGNAL);

    if (n < 0) // an answer may still lie in the receive buffer: reading tells, so no end here
        n = errno == EAGAIN || errno == EINTR ? 0 : (ssize_t)(c->out.len - c->out_offset);
    c->out_offset += (size_t)n;
    if (c->out_offset == c->out.len) {
        buf_clear(&c->out);
        poll_output(client, c, false);
    }
}

/* Bytes for a busy connection; len 0: its peer has closed. */
static void take_bytes(struct client *client, struct connection *c, const char *bytes, size_t len)
{
    struct response response;
    const char *why = "connection closed before the answer";
    bool eof = len == 0, kept = c->in.len > 0;
    int64_t now_ns = clock_mono_ns();
    ssize_t rc = -EBADMSG;

    if (kept) {
        buf_append(&c->in, bytes, len);
        bytes = c->in.data;
        len = c->in.len;
    }
    if (len > 0)
        rc = response_parse(bytes, len, eof, &response, &why);
    if (rc < 0) {
        lose(client, c, why);
        return;
    }
    if (rc == 0) {
        if (!kept)
            buf_append(&c->in, bytes, len);
        return;
    }
    client->config.handler->answer(client->config.arg, c->tag, (int)(c - client->connections),
                                   &response, now_ns);
    buf_clear(&c->in);
    // An answer before the whole request was sent, or bytes nobody asked for: out of step.
    if (!response.keep_alive || (size_t)rc < len || c->out.len > 0 || eof) {
        connection_close(client, c);
    } else {
        connection_idle(client, c);
        client->config.handler->idle(client->config.arg);
    }
}

static void dial_done(struct client *client, struct connection *c)
{
    int error = 0;
    socklen_t len = sizeof(error);

    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
        error = errno;
    if (error) {
        connection_close(client, c);
        client->config.handler->dial_failed(client->config.arg, error, is_local_error(error),
                                            clock_mono_ns());
        return;
    }
    poll_output(client, c, false);
    connection_idle(client, c);
    client->config.handler->idle(client->config.arg);
}

static void handle_event(struct client *client, struct connection *c, uint32_t events)
{
    ssize_t n;

    if (c->state == CONNECTION_CLOSED) // closed by an earlier event of the same wait
        return;
    if (c->state == CONNECTION_DIALING) {
        dial_done(client, c);
        return;
    }
    if ((events & EPOLLOUT) && c->out.len > 0)
        flush_output(client, c);
    if (!(events & (EPOLLIN | EPOLLERR | EPOLLHUP)))
        return;
    n = recv(c->fd, client->scratch, sizeof(client->scratch), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (c->state == CONNECTION_IDLE) { // closed, or it speaks unasked
        client->counts.idle_closes++;
        connection_close(client, c);
    } else if (n < 0) {
        lose(client, c, "connection reset");
    } else {
        take_bytes(client, c, client->scratch, (size_t)n);
    }
}

static void arm(struct client *client, int64_t wake_ns)
{
    struct itimerspec spec = {0};
    int rc;

    if (client->armed_ns == wake_ns)
        return;
    client->armed_ns = wake_ns;
    if (wake_ns != INT64_MAX) {
        spec.it_value.tv_sec = wake_ns / NS_PER_S;
        spec.it_value.tv_nsec = wake_ns % NS_PER_S;
    }
    rc = timerfd_settime(client->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
    assert(rc == 0); // a valid time
}

bool client_wait(struct client *client, int64_t deadline_ns, int events_max)
{
    struct epoll_event events[EVENTS_MAX];
    bool woken = false, spins = true;
    int count, timeout_ms;

    if (events_max > EVENTS_MAX)
        events_max = EVENTS_MAX;
    do {
        int64_t wake_ns =
            deadline_ns == INT64_MAX ? INT64_MAX : deadline_ns - client->config.spin_ns;

        spins = wake_ns <= clock_mono_ns();
        timeout_ms = spins ? 0 : -1;
        if (!spins)
            arm(client, wake_ns);
        count = epoll_wait(client->epoll_fd, events, events_max, timeout_ms);
        for (int i = 0; i < count; i++) {
            void *tag = events[i].data.ptr;

            if (tag == &client->wake_tag) {
                woken = true;
            } else if (tag == &client->timer_tag) {
                client->armed_ns = INT64_MAX; // it has run out, so nothing is armed
            } else {
                handle_event(client, tag, events[i].events);
            }
        }
    } while (count <= 0 && clock_mono_ns() < deadline_ns);
    return woken;
}

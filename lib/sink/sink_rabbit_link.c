/* sink_rabbit_link.c: from a socket to frames and back. */
#include "sink/sink_rabbit_link.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "sink/sink_rabbit_login.h"
#include "sink/sink_rabbit_lookup.h"

enum {
    READ_BYTES = 32 << 10,
    READS_MAX = 32,           /* a step, so that one connection does not starve the rest */
    METHOD_ROOM_BYTES = 4096, /* the largest method we send: tables, names up to 255 bytes */
    OUT_KEPT_BYTES = 1 << 20, /* sent bytes that may lie before the rest */
    USER_TIMEOUT_MS = 20000,  /* data that nobody acknowledges ends a connection */
    LOOKUP_EVERY_MS = 5,
    PROTOCOL_HEADER = 'A', /* the codec's frame type for "AMQP" and a version */
};

int rabbit_link_problem(struct rabbit_link *link, int code, const char *format, ...)
{
    char text[384];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return err_set(&link->problem, code, "%s: %s", link->target->where, text);
}

void rabbit_link_init(struct rabbit_link *link, const struct rabbit_target *target,
                      const char *name, rabbit_frame_fn *on_frame, void *arg)
{
    *link = (struct rabbit_link){
        .target = target, .name = name, .on_frame = on_frame, .arg = arg, .fd = -1};
}

static void close_socket(struct rabbit_link *link)
{
    rabbit_tls_end(link->tls);
    link->tls = NULL;
    if (link->fd >= 0) {
        close(link->fd);
        link->fd = -1;
    }
    if (link->codec) {
        amqp_destroy_connection(link->codec);
        link->codec = NULL;
    }
}

void rabbit_link_drop(struct rabbit_link *link)
{
    close_socket(link);
    rabbit_lookup_cancel(&link->lookup);
    if (link->addresses) {
        freeaddrinfo(link->addresses);
        link->addresses = link->address = NULL;
    }
    buf_clear(&link->out);
    link->out_sent = 0;
    link->more = link->blocked = false;
    link->state = RABBIT_DOWN;
}

void rabbit_link_free(struct rabbit_link *link)
{
    rabbit_link_drop(link);
    buf_free(&link->out);
}

/* ---- connecting ---- */

static int open_socket(struct rabbit_link *link)
{
    const struct addrinfo *address = link->address;
    const int on = 1;
    const unsigned user_timeout_ms = USER_TIMEOUT_MS;
    link->fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (link->fd < 0) {
        return -errno;
    }
    link->generation++;
    setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(link->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms, sizeof(user_timeout_ms));
    if (connect(link->fd, address->ai_addr, address->ai_addrlen) < 0 && errno != EINPROGRESS) {
        return -errno;
    }
    link->state = RABBIT_CONNECT;
    return 0;
}

/* From link->address on, the first that a connection can at least be tried to. */
static int try_addresses(struct rabbit_link *link, int rc)
{
    while (link->address) {
        rc = open_socket(link);
        if (rc == 0) {
            return 0;
        }
        close_socket(link);
        link->address = link->address->ai_next;
    }
    return rabbit_link_problem(link, rc, "cannot connect: %s", strerror(-rc));
}

static int lookup_done(struct rabbit_link *link, int rc, const char *why)
{
    if (rc == -EAGAIN) {
        return 0;
    }
    if (rc < 0) {
        return rabbit_link_problem(link, rc, "the host's name cannot be looked up: %s", why);
    }
    link->address = link->addresses;
    return try_addresses(link, -EADDRNOTAVAIL);
}

int rabbit_link_start(struct rabbit_link *link)
{
    assert(link->state == RABBIT_DOWN);
    const char *why = "";
    int64_t now_ns = clock_mono_ns();
    link->problem = (struct err){0};
    link->queued = link->given = 0;
    link->ended = false;
    link->version = 0;
    link->heartbeat_s = 0;
    link->frame_max = 4096; /* until tuned, as the standard says */
    link->start_by_ns = now_ns + link->target->connect_ns;
    link->last_in_ns = link->last_out_ns = now_ns;
    link->state = RABBIT_LOOKUP;
    int rc = rabbit_lookup_start(&link->lookup, link->target->host, link->target->port,
                                 &link->addresses, &why);
    rc = lookup_done(link, rc, why);
    if (rc < 0) {
        rabbit_link_drop(link);
    }
    return rc;
}

static int look_up(struct rabbit_link *link)
{
    const char *why = "";
    int rc = rabbit_lookup_poll(&link->lookup, &link->addresses, &why);
    return lookup_done(link, rc, why);
}

static int begin_login(struct rabbit_link *link)
{
    link->codec = amqp_new_connection();
    if (!link->codec) {
        return rabbit_link_problem(link, -ENOMEM, "no memory");
    }
    buf_append(&link->out, "AMQP\0\0\x09\x01", 8);
    link->queued += 8;
    link->state = RABBIT_LOGIN;
    return 0;
}

static int tls_handshake(struct rabbit_link *link)
{
    struct err err = {0};
    int rc = rabbit_tls_handshake(link->tls, &err);
    if (rc == -EAGAIN) {
        return 0;
    }
    return rc < 0 ? rabbit_link_problem(link, rc, "%s", err.text) : begin_login(link);
}

static int finish_connect(struct rabbit_link *link)
{
    struct pollfd polled = {.fd = link->fd, .events = POLLOUT};
    int error = 0;
    socklen_t len = sizeof(error);
    if (poll(&polled, 1, 0) <= 0) {
        return 0;
    }
    if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0) {
        error = errno;
    }
    if (error != 0) {
        close_socket(link);
        link->address = link->address->ai_next;
        return try_addresses(link, -error);
    }
    if (!link->target->tls) {
        return begin_login(link);
    }
    struct err err = {0};
    int rc = rabbit_tls_start(&link->tls, link->target, link->fd, &err);
    if (rc < 0) {
        return rabbit_link_problem(link, rc, "%s", err.text);
    }
    link->state = RABBIT_TLS;
    return tls_handshake(link);
}

/* ---- reading ---- */

static int on_frame(struct rabbit_link *link, const amqp_frame_t *frame)
{
    if (frame->channel != 0) {
        if (link->state != RABBIT_OPEN) {
            return rabbit_link_problem(link, -EPROTO, "a frame of a channel before the login");
        }
        return link->on_frame(link->arg, frame);
    }
    if (frame->frame_type == AMQP_FRAME_METHOD) {
        return rabbit_login_frame(link, frame);
    }
    if (frame->frame_type == PROTOCOL_HEADER) {
        return rabbit_link_problem(link, -EPROTONOSUPPORT,
                                   "it speaks no AMQP 0-9-1, or wants TLS (amqps://)");
    }
    return 0; /* a heartbeat */
}

static int feed(struct rabbit_link *link, void *bytes, size_t len)
{
    amqp_bytes_t rest = {.len = len, .bytes = bytes};
    while (rest.len > 0) {
        amqp_frame_t frame;
        int used = amqp_handle_input(link->codec, rest, &frame);
        if (used < 0) {
            return rabbit_link_problem(
                link, -EPROTO, "what it sends is no AMQP (%s): is that RabbitMQ's %s port?",
                amqp_error_string2(used), link->target->tls ? "TLS" : "AMQP");
        }
        rest.bytes = (char *)rest.bytes + used;
        rest.len -= (size_t)used;
        if (frame.frame_type == 0) {
            continue;
        }
        int rc = on_frame(link, &frame);
        /* After each frame, since between chunks one is nearly always half there. */
        amqp_maybe_release_buffers_on_channel(link->codec, frame.channel);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int end_of_stream(struct rabbit_link *link, int rc)
{
    if (link->ended) {
        return rabbit_link_problem(link, -ENOTCONN, "closed");
    }
    const char *when = link->state == RABBIT_OPEN ? "it closed the connection"
                       : link->version > 0
                           ? "it closed the connection during the login (check user, password and "
                             "virtual host of --sink-url)"
                           : "it closed the connection before a word of AMQP: is it RabbitMQ, and "
                             "does it want TLS (amqps://)?";
    return rc == 0 ? rabbit_link_problem(link, -ECONNRESET, "%s", when)
                   : rabbit_link_problem(link, rc, "%s: %s", when, strerror(-rc));
}

static int read_frames(struct rabbit_link *link)
{
    char bytes[READ_BYTES];
    link->more = false;
    for (int i = 0; i < READS_MAX; i++) {
        ssize_t got = link->tls ? rabbit_tls_recv(link->tls, bytes, sizeof(bytes))
                                : recv(link->fd, bytes, sizeof(bytes), 0);
        int rc = got >= 0 ? 0 : link->tls ? (int)got : -errno;
        if (rc == -EAGAIN || rc == -EINTR) {
            return 0;
        }
        if (got <= 0) {
            return end_of_stream(link, rc);
        }
        link->last_in_ns = clock_mono_ns();
        rc = feed(link, bytes, (size_t)got);
        if (rc < 0) {
            return rc;
        }
        if (!link->tls && (size_t)got < sizeof(bytes)) {
            return 0;
        }
    }
    link->more = true;
    return 0;
}

/* ---- writing ---- */

size_t rabbit_link_unsent(const struct rabbit_link *link)
{
    return link->out.len - link->out_sent;
}

static void tidy_out(struct rabbit_link *link)
{
    if (link->out_sent == link->out.len) {
        buf_clear(&link->out);
        link->out_sent = 0;
    } else if (link->out_sent > OUT_KEPT_BYTES) {
        memmove(link->out.data, link->out.data + link->out_sent, link->out.len - link->out_sent);
        link->out.len -= link->out_sent;
        link->out_sent = 0;
    }
}

static int write_some(struct rabbit_link *link)
{
    while (rabbit_link_unsent(link) > 0) {
        const char *bytes = link->out.data + link->out_sent;
        size_t len = rabbit_link_unsent(link);
        uint64_t before = link->queued - len;
        ssize_t sent = link->tls ? rabbit_tls_send(link->tls, bytes, len)
                                 : send(link->fd, bytes, len, MSG_NOSIGNAL);
        int rc = sent >= 0 ? 0 : link->tls ? (int)sent : -errno;
        /* TLS may have sent part of what it says it could not take. */
        uint64_t given = before + (sent >= 0 ? (uint64_t)sent : link->tls ? len : 0);
        link->given = given > link->given ? given : link->given;
        if (rc == -EAGAIN || rc == -EINTR) {
            return 0;
        }
        if (rc < 0) {
            return end_of_stream(link, rc);
        }
        link->out_sent += (size_t)sent;
        link->last_out_ns = clock_mono_ns();
        tidy_out(link);
    }
    return 0;
}

void rabbit_link_say(struct rabbit_link *link)
{
    (void)write_some(link);
}

/* What the server said before it closed is in the socket still, and says more than EPIPE. */
static int write_or_read_why(struct rabbit_link *link)
{
    int rc = write_some(link);
    if (rc < 0) {
        int said = read_frames(link);
        rc = said < 0 ? said : rc;
    }
    return rc;
}

int rabbit_link_flush(struct rabbit_link *link)
{
    if (link->state < RABBIT_LOGIN) {
        return link->state == RABBIT_DOWN ? -ENOTCONN : 0;
    }
    int rc = write_or_read_why(link);
    if (rc < 0) {
        rabbit_link_drop(link);
    }
    return rc;
}

static char *begin_frame(struct rabbit_link *link, size_t payload_room)
{
    buf_reserve(&link->out, payload_room + 8);
    return link->out.data + link->out.len;
}

static void put16(char *at, unsigned value)
{
    at[0] = (char)(value >> 8);
    at[1] = (char)value;
}

static void put32(char *at, uint32_t value)
{
    put16(at, value >> 16);
    put16(at + 2, value & 0xffff);
}

static void end_frame(struct rabbit_link *link, uint8_t type, amqp_channel_t channel,
                      size_t payload_bytes)
{
    char *frame = link->out.data + link->out.len;
    frame[0] = (char)type;
    put16(frame + 1, channel);
    put32(frame + 3, (uint32_t)payload_bytes);
    frame[7 + payload_bytes] = (char)AMQP_FRAME_END;
    link->out.len += payload_bytes + 8;
    link->queued += payload_bytes + 8;
}

void rabbit_link_method(struct rabbit_link *link, amqp_channel_t channel, amqp_method_number_t id,
                        void *decoded)
{
    assert(link->state >= RABBIT_LOGIN);
    char *frame = begin_frame(link, METHOD_ROOM_BYTES);
    amqp_bytes_t room = {.len = METHOD_ROOM_BYTES - 4, .bytes = frame + 7 + 4};
    int len = amqp_encode_method(id, decoded, room);
    assert(len >= 0);
    put32(frame + 7, id);
    end_frame(link, AMQP_FRAME_METHOD, channel, (size_t)len + 4);
}

void rabbit_link_content(struct rabbit_link *link, amqp_channel_t channel,
                         amqp_basic_properties_t *properties, const void *body, size_t body_bytes)
{
    enum { FIXED = 12 };
    char *frame = begin_frame(link, METHOD_ROOM_BYTES);
    amqp_bytes_t room = {.len = METHOD_ROOM_BYTES - FIXED, .bytes = frame + 7 + FIXED};
    int len = amqp_encode_properties(AMQP_BASIC_CLASS, properties, room);
    assert(len >= 0);
    put16(frame + 7, AMQP_BASIC_CLASS);
    put16(frame + 9, 0);
    put32(frame + 11, (uint32_t)((uint64_t)body_bytes >> 32));
    put32(frame + 15, (uint32_t)body_bytes);
    end_frame(link, AMQP_FRAME_HEADER, channel, (size_t)len + FIXED);
    for (size_t at = 0; at < body_bytes;) {
        size_t part = body_bytes - at;
        part = part < link->frame_max - 8 ? part : link->frame_max - 8;
        frame = begin_frame(link, part);
        memcpy(frame + 7, (const char *)body + at, part);
        end_frame(link, AMQP_FRAME_BODY, channel, part);
        at += part;
    }
}

/* ---- time ---- */

static int64_t half_heartbeat_ns(const struct rabbit_link *link)
{
    return link->heartbeat_s * NS_PER_S / 2;
}

static int keep_alive(struct rabbit_link *link, int64_t now_ns)
{
    if (link->state != RABBIT_OPEN) {
        if (now_ns < link->start_by_ns) {
            return 0;
        }
        const char *what = link->state == RABBIT_LOOKUP    ? "its name could not be looked up"
                           : link->state == RABBIT_CONNECT ? "no answer to the connection"
                           : link->state == RABBIT_TLS     ? "no answer to the TLS handshake"
                           : link->version > 0             ? "the login was not done"
                                                           : "not a word of AMQP came";
        bool silent = link->state > RABBIT_TLS && link->version == 0;
        return rabbit_link_problem(link, -ETIMEDOUT, "%s within %.3g s%s", what,
                                   (double)link->target->connect_ns / (double)NS_PER_S,
                                   silent ? ": is it RabbitMQ, and does it want TLS (amqps://)?"
                                          : "");
    }
    if (link->heartbeat_s == 0) {
        return 0;
    }
    if (now_ns - link->last_in_ns > 4 * half_heartbeat_ns(link)) {
        return rabbit_link_problem(link, -ETIMEDOUT, "nothing came from it for %u s",
                                   2 * link->heartbeat_s);
    }
    if (now_ns - link->last_out_ns >= half_heartbeat_ns(link) && rabbit_link_unsent(link) == 0) {
        begin_frame(link, 0);
        end_frame(link, AMQP_FRAME_HEARTBEAT, 0, 0);
        return write_some(link);
    }
    return 0;
}

int64_t rabbit_link_due_ns(const struct rabbit_link *link, int64_t now_ns)
{
    if (link->state == RABBIT_DOWN) {
        return -1;
    }
    if (link->more) {
        return 0;
    }
    int64_t at_ns = link->start_by_ns;
    if (link->state == RABBIT_LOOKUP) {
        return LOOKUP_EVERY_MS * NS_PER_MS;
    }
    if (link->state == RABBIT_OPEN) {
        if (link->heartbeat_s == 0) {
            return -1;
        }
        at_ns = link->last_in_ns + 4 * half_heartbeat_ns(link);
        if (rabbit_link_unsent(link) == 0 && link->last_out_ns + half_heartbeat_ns(link) < at_ns) {
            at_ns = link->last_out_ns + half_heartbeat_ns(link);
        }
    }
    return at_ns > now_ns ? at_ns - now_ns : 0;
}

short rabbit_link_events(const struct rabbit_link *link)
{
    bool out = link->state == RABBIT_CONNECT || (link->tls && rabbit_tls_wants_out(link->tls)) ||
               (link->state >= RABBIT_LOGIN && rabbit_link_unsent(link) > 0);
    return (short)(POLLIN | (out ? POLLOUT : 0));
}

static int step_once(struct rabbit_link *link)
{
    switch (link->state) {
    case RABBIT_DOWN:
        return -ENOTCONN;
    case RABBIT_LOOKUP:
        return link->lookup ? look_up(link) : 0;
    case RABBIT_CONNECT:
        return finish_connect(link);
    case RABBIT_TLS:
        return tls_handshake(link);
    case RABBIT_LOGIN:
    case RABBIT_OPEN: {
        int rc = read_frames(link);
        return rc < 0 ? rc : write_or_read_why(link);
    }
    }
    return -ENOTCONN;
}

int rabbit_link_step(struct rabbit_link *link)
{
    enum rabbit_state before;
    int rc;
    do {
        before = link->state;
        rc = step_once(link);
    } while (rc == 0 && link->state != before);
    if (rc == 0) {
        rc = keep_alive(link, clock_mono_ns());
    }
    if (rc < 0 && link->state != RABBIT_DOWN) {
        rabbit_link_drop(link);
    }
    return rc;
}

int rabbit_link_wait(struct rabbit_link *link, int64_t until_ns)
{
    int64_t now_ns = clock_mono_ns();
    int64_t wait_ns = until_ns - now_ns;
    int64_t due_ns = rabbit_link_due_ns(link, now_ns);
    if (link->state == RABBIT_DOWN) {
        return -ENOTCONN;
    }
    wait_ns = due_ns >= 0 && due_ns < wait_ns ? due_ns : wait_ns;
    wait_ns = wait_ns > 0 ? wait_ns : 0;
    struct timespec timeout = {.tv_sec = wait_ns / NS_PER_S, .tv_nsec = wait_ns % NS_PER_S};
    struct pollfd polled = {.fd = link->fd, .events = rabbit_link_events(link)};
    ppoll(&polled, 1, &timeout, NULL);
    return rabbit_link_step(link);
}

void rabbit_link_end(struct rabbit_link *link, int64_t until_ns)
{
    if (link->state == RABBIT_OPEN) {
        amqp_connection_close_t goodbye = {.reply_code = AMQP_REPLY_SUCCESS,
                                           .reply_text = amqp_cstring_bytes("done")};
        rabbit_link_method(link, 0, AMQP_CONNECTION_CLOSE_METHOD, &goodbye);
        int rc = rabbit_link_flush(link);
        while (rc == 0 && !link->ended && clock_mono_ns() < until_ns) {
            rc = rabbit_link_wait(link, until_ns);
        }
    }
    rabbit_link_drop(link);
}

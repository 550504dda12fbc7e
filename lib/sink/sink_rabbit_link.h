/* sink_rabbit_link.h: one AMQP 0-9-1 connection that never blocks.
 *
 * rabbitmq-c is the codec here (frames, methods, properties, tables); the socket is our own,
 * because rabbitmq-c's sends have no deadline and its wait functions can hang on a silent peer (see
 * docs/adr). Whoever owns a link calls rabbit_link_step when its descriptor is ready or its due
 * time has come; frames of channels 1 and up go to on_frame, those of channel 0 are dealt with
 * here.
 *
 * Ownership: target and name must outlive the link; a frame is valid during on_frame only. Not
 * thread-safe: one thread at a time. Errors: negative errno, and problem says it in a sentence.
 */
#ifndef SLUICE_SINK_SINK_RABBIT_LINK_H
#define SLUICE_SINK_SINK_RABBIT_LINK_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "sink/rabbitmq_c.h"
#include "sink/sink_rabbit_target.h"
#include "sink/sink_rabbit_tls.h"

enum rabbit_state {
    RABBIT_DOWN,
    RABBIT_LOOKUP, /* the host's name is being looked up; no descriptor yet */
    RABBIT_CONNECT,
    RABBIT_TLS,
    RABBIT_LOGIN,
    RABBIT_OPEN, /* channels may be opened */
};

/* 0, or negative with link->problem set: the connection is given up. May queue, not step. */
typedef int rabbit_frame_fn(void *arg, const amqp_frame_t *frame);

struct rabbit_lookup;

struct rabbit_link {
    const struct rabbit_target *target;
    const char *name; /* as the server lists this connection */
    rabbit_frame_fn *on_frame;
    void *arg;

    enum rabbit_state state;
    int fd;              /* -1: none */
    unsigned generation; /* counts sockets: fd numbers come again */
    bool more;           /* there may be input that poll does not show */
    bool blocked;        /* connection.blocked: the server reads nothing from us */
    bool ended;          /* connection.close-ok came */
    char blocked_why[128];
    int version; /* 31008 is 3.10.8; 0: unknown */
    char version_text[32];
    unsigned heartbeat_s;
    size_t frame_max;
    uint64_t queued, given; /* bytes since start: appended; offered to the socket */
    struct err problem;     /* why it is down */

    /* Its own. */
    struct rabbit_tls *tls;
    amqp_connection_state_t codec;
    struct rabbit_lookup *lookup;
    struct addrinfo *addresses, *address;
    struct buf out;
    size_t out_sent;
    int64_t start_by_ns, last_in_ns, last_out_ns;
};

void rabbit_link_init(struct rabbit_link *link, const struct rabbit_target *target,
                      const char *name, rabbit_frame_fn *on_frame, void *arg);
/* Begins to connect, from state RABBIT_DOWN. 0 or negative. */
int rabbit_link_start(struct rabbit_link *link);
/* Does what can be done now: connects, reads, writes, keeps the heartbeat. 0; negative: it is down,
 * problem says why; queued and given keep their values. */
int rabbit_link_step(struct rabbit_link *link);
/* Writes what is queued, as far as the socket takes it. */
int rabbit_link_flush(struct rabbit_link *link);
/* poll(2) events to wait for, and nanoseconds until a step is due; -1: none, 0: now. */
short rabbit_link_events(const struct rabbit_link *link);
int64_t rabbit_link_due_ns(const struct rabbit_link *link, int64_t now_ns);
/* For owners with a thread of their own: waits until something happens or until_ns, and steps. */
int rabbit_link_wait(struct rabbit_link *link, int64_t until_ns);
/* Says goodbye, waiting until until_ns for an answer, and is down. */
void rabbit_link_end(struct rabbit_link *link, int64_t until_ns);
void rabbit_link_drop(struct rabbit_link *link); /* down at once */
void rabbit_link_free(struct rabbit_link *link);

/* Queue a method, or a message's header and body, on a channel. */
void rabbit_link_method(struct rabbit_link *link, amqp_channel_t channel, amqp_method_number_t id,
                        void *decoded);
void rabbit_link_content(struct rabbit_link *link, amqp_channel_t channel,
                         amqp_basic_properties_t *properties, const void *body, size_t body_bytes);
size_t rabbit_link_unsent(const struct rabbit_link *link);

/* Sets problem to "WHERE: text"; returns code. */
int rabbit_link_problem(struct rabbit_link *link, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* For a channel.close: answers it and sets problem. -ENOENT, -EACCES, -EEXIST (406: something of
 * that name with other properties), -EPROTO. */
int rabbit_link_channel_closed(struct rabbit_link *link, const amqp_frame_t *frame);
const char *rabbit_method_name(amqp_method_number_t id); /* "method 0x..." when not known */

#endif

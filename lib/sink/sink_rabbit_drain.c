/* sink_rabbit_drain.c: a lane: one connection, one channel, one consumer called lane-N.
 *
 * A lane consumes only while it fetches: then its consumer is cancelled, so that no task waits
 * behind a lane that is busy or awaits its turn, and a fetch may ask for any number (the prefetch
 * is the batch). Deliveries are kept in the order of their tags; an open batch is the first of
 * them, so that one ack or nack with `multiple` covers exactly the batch. */
#include "sink/sink_rabbit_drain.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "sink/drivers.h"
#include "sink/sink_rabbit_link.h"
#include "sink/sink_rabbit_queue.h"
#include "sink/sink_rabbit_retry.h"
#include "sink/sink_rabbit_tally.h"

enum { CHANNEL = 1 };

/* Longer than any main DB should be away: the server's default would take a batch from a lane after
 * 30 minutes. Servers that don't know the argument (before 3.11.15) pass over it. */
enum { CONSUMER_TIMEOUT_MS = 24 * 3600 * 1000 };

enum { PREFETCH_MAX = 65535 }; /* what basic.qos can say */

#define GOODBYE_NS (500 * NS_PER_MS)
/* A fetch waits so much longer for its consumer to be there, and to be gone again. */
#define ATTACH_NS NS_PER_S
enum { KEEP_SOON_MS = 10 }; /* between the steps of a login */

struct delivery {
    uint64_t tag;
    struct task task;
    bool redelivered;
    char *body; /* NULL while it is not complete and empty */
};

struct rabbit_lane {
    struct sink_lane base;
    const struct rabbit_target *target;
    struct rabbit_link link;
    struct rabbit_retry retry;
    char name[32];      /* of the connection; the consumer's tag is its second word */
    bool channel_asked; /* on this connection */
    enum {
        NO_CONSUMER,
        ASKED_FOR, /* no consume-ok yet */
        ATTACHED,
        CANCELLED, /* no cancel-ok yet: more may come */
    } consumer;
    unsigned prefetch; /* the consumer's */
    size_t told;       /* how many tasks the tally says are held here */

    /* Deliveries, complete ones first to last; the last may be incomplete. */
    struct delivery *held;
    size_t held_count, held_room;
    bool incoming;       /* the last one is incomplete */
    bool has_header;     /* of the incomplete one */
    bool foreign;        /* the incomplete one is no task */
    uint64_t body_bytes; /* it will have */

    struct task *tasks; /* of the open batch */
    size_t tasks_room;
    size_t open;    /* size of the open batch: held[0..open-1] */
    bool open_lost; /* its connection is gone: the server gives it to somebody else */
};

static struct rabbit_lane *lane_of(struct sink_lane *lane)
{
    return (struct rabbit_lane *)lane;
}

/* ---- deliveries ---- */

static size_t complete(const struct rabbit_lane *lane)
{
    return lane->held_count - (lane->incoming ? 1 : 0);
}

static void forget(struct rabbit_lane *lane, size_t from, size_t to)
{
    if (from == to) {
        return;
    }
    for (size_t i = from; i < to; i++) {
        free(lane->held[i].body);
    }
    memmove(lane->held + from, lane->held + to, (lane->held_count - to) * sizeof(*lane->held));
    lane->held_count -= to - from;
}

static int on_deliver(struct rabbit_lane *lane, const amqp_basic_deliver_t *deliver)
{
    if (lane->held_count == lane->held_room) {
        lane->held_room = lane->held_room > 0 ? 2 * lane->held_room : 64;
        lane->held = xrealloc(lane->held, lane->held_room * sizeof(*lane->held));
    }
    lane->held[lane->held_count++] =
        (struct delivery){.tag = deliver->delivery_tag, .redelivered = deliver->redelivered};
    lane->incoming = true;
    lane->has_header = lane->foreign = false;
    return 0;
}

/* No task can have been acknowledged for it; kept, it would come again and again. */
static void reject_foreign(struct rabbit_lane *lane)
{
    struct delivery *delivery = &lane->held[lane->held_count - 1];
    amqp_basic_reject_t reject = {.delivery_tag = delivery->tag, .requeue = 0};
    log_error("%s: a message of %llu bytes in the queue %s is no task (message-id or header "
              "accepted_us is missing); it is removed",
              lane->name, (unsigned long long)lane->body_bytes, lane->target->queue);
    rabbit_link_method(&lane->link, CHANNEL, AMQP_BASIC_REJECT_METHOD, &reject);
    lane->incoming = false;
    forget(lane, lane->held_count - 1, lane->held_count);
}

static void finish_delivery(struct rabbit_lane *lane)
{
    struct delivery *delivery = &lane->held[lane->held_count - 1];
    if (lane->foreign) {
        reject_foreign(lane);
        return;
    }
    delivery->task.body = delivery->body;
    lane->incoming = false;
}

static int on_header(struct rabbit_lane *lane, const amqp_frame_t *frame)
{
    struct delivery *delivery = &lane->held[lane->held_count - 1];
    lane->body_bytes = frame->payload.properties.body_size;
    if (lane->body_bytes > SIZE_MAX / 4) {
        return rabbit_link_problem(&lane->link, -EPROTO, "a message of impossible size");
    }
    lane->has_header = true;
    lane->foreign = frame->payload.properties.class_id != AMQP_BASIC_CLASS ||
                    rabbit_properties_read(frame->payload.properties.decoded, delivery->task.id,
                                           &delivery->task.accepted_us) < 0;
    if (!lane->foreign) {
        delivery->body = xmalloc((size_t)lane->body_bytes + 1);
    }
    if (lane->body_bytes == 0) {
        finish_delivery(lane);
    }
    return 0;
}

static int on_body(struct rabbit_lane *lane, const amqp_frame_t *frame)
{
    struct delivery *delivery = &lane->held[lane->held_count - 1];
    const amqp_bytes_t *part = &frame->payload.body_fragment;
    size_t have = delivery->task.body_bytes;
    if (part->len > lane->body_bytes - have) {
        return rabbit_link_problem(&lane->link, -EPROTO, "a message longer than its header says");
    }
    if (!lane->foreign) {
        memcpy(delivery->body + have, part->bytes, part->len);
    }
    delivery->task.body_bytes = have + part->len;
    if (delivery->task.body_bytes == lane->body_bytes) {
        finish_delivery(lane);
    }
    return 0;
}

static int on_method(struct rabbit_lane *lane, const amqp_frame_t *frame)
{
    switch (frame->payload.method.id) {
    case AMQP_BASIC_DELIVER_METHOD:
        return on_deliver(lane, frame->payload.method.decoded);
    case AMQP_CHANNEL_OPEN_OK_METHOD:
    case AMQP_BASIC_QOS_OK_METHOD:
        return 0;
    case AMQP_BASIC_CANCEL_OK_METHOD:
        lane->consumer = NO_CONSUMER;
        return 0;
    case AMQP_BASIC_CONSUME_OK_METHOD:
        lane->consumer = ATTACHED;
        rabbit_retry_works(&lane->retry, &lane->link);
        return 0;
    case AMQP_BASIC_CANCEL_METHOD:
        return rabbit_link_problem(
            &lane->link, -ENOENT, "the queue %s, or one that counts, is gone", lane->target->queue);
    case AMQP_CHANNEL_CLOSE_METHOD:
        return rabbit_link_channel_closed(&lane->link, frame);
    default:
        return rabbit_link_problem(&lane->link, -EPROTO, "unexpected %s",
                                   rabbit_method_name(frame->payload.method.id));
    }
}

static int on_frame(void *arg, const amqp_frame_t *frame)
{
    struct rabbit_lane *lane = arg;
    if (frame->channel == CHANNEL) {
        if (frame->frame_type == AMQP_FRAME_METHOD && !lane->incoming) {
            return on_method(lane, frame);
        }
        if (frame->frame_type == AMQP_FRAME_HEADER && lane->incoming && !lane->has_header) {
            return on_header(lane, frame);
        }
        if (frame->frame_type == AMQP_FRAME_BODY && lane->incoming && lane->has_header) {
            return on_body(lane, frame);
        }
    }
    return rabbit_link_problem(&lane->link, -EPROTO, "unexpected frame of type %d on channel %d",
                               frame->frame_type, frame->channel);
}

/* ---- connection ---- */

/* The server has requeued all that came on it. An open batch stays readable until it is ended. */
static void lost(struct rabbit_lane *lane)
{
    lane->open_lost = lane->open > 0;
    lane->incoming = false;
    forget(lane, lane->open, lane->held_count);
    lane->channel_asked = false;
    lane->consumer = NO_CONSUMER;
    lane->told = 0;
    rabbit_retry_lost(&lane->retry, &lane->link);
}

static amqp_bytes_t consumer_tag(const struct rabbit_lane *lane)
{
    return amqp_cstring_bytes(lane->name + strlen("sluice "));
}

static void consume(struct rabbit_lane *lane, unsigned prefetch)
{
    amqp_basic_qos_t qos = {.prefetch_count = (uint16_t)prefetch};
    amqp_table_entry_t timeout = {.key = amqp_cstring_bytes("x-consumer-timeout")};
    timeout.value.kind = AMQP_FIELD_KIND_I32;
    timeout.value.value.i32 = CONSUMER_TIMEOUT_MS;
    amqp_basic_consume_t consume = {
        .queue = amqp_cstring_bytes(lane->target->queue),
        .consumer_tag = consumer_tag(lane),
        .arguments = {.num_entries = 1, .entries = &timeout},
    };
    rabbit_link_method(&lane->link, CHANNEL, AMQP_BASIC_QOS_METHOD, &qos);
    rabbit_link_method(&lane->link, CHANNEL, AMQP_BASIC_CONSUME_METHOD, &consume);
    lane->prefetch = prefetch;
    lane->consumer = ASKED_FOR;
}

static void cancel(struct rabbit_lane *lane)
{
    if (lane->consumer == ASKED_FOR || lane->consumer == ATTACHED) {
        amqp_basic_cancel_t cancel = {.consumer_tag = consumer_tag(lane)};
        rabbit_link_method(&lane->link, CHANNEL, AMQP_BASIC_CANCEL_METHOD, &cancel);
        lane->consumer = CANCELLED;
    }
}

static void tell(struct rabbit_lane *lane, size_t held)
{
    rabbit_tally_change(&lane->link, CHANNEL, lane->told, held);
    lane->told = held;
}

/* Queues what a lane that wants `prefetch` tasks needs next (0: only to be connected). */
static void advance(struct rabbit_lane *lane, unsigned prefetch)
{
    struct rabbit_link *link = &lane->link;
    if (link->state != RABBIT_OPEN) {
        return;
    }
    if (!lane->channel_asked) {
        rabbit_channel_open(link, CHANNEL);
        rabbit_tally_declare(link, CHANNEL, false);
        lane->channel_asked = true;
    }
    if (prefetch == 0) {
        return;
    }
    if (lane->consumer == NO_CONSUMER) {
        consume(lane, prefetch);
    } else if (lane->prefetch != prefetch) {
        cancel(lane); /* and again with the other number, once it is gone */
    }
}

/* One step without waiting; connects when it is time to. 0, or negative: not connected. */
static int step(struct rabbit_lane *lane, unsigned prefetch)
{
    struct rabbit_link *link = &lane->link;
    int rc = 0;
    if (link->state == RABBIT_DOWN) {
        if (clock_mono_ns() < lane->retry.at_ns) {
            return -ENOTCONN;
        }
        rc = rabbit_link_start(link);
    }
    if (rc == 0) {
        rc = rabbit_link_step(link);
    }
    if (rc == 0) {
        advance(lane, prefetch);
        rc = rabbit_link_flush(link);
    }
    if (rc < 0) {
        lost(lane);
    }
    return rc;
}

/* Sleeps until the socket, the link or until_ns asks for a step. */
static void nap(struct rabbit_lane *lane, int64_t until_ns)
{
    struct rabbit_link *link = &lane->link;
    int64_t now_ns = clock_mono_ns();
    int64_t wait_ns = until_ns - now_ns;
    int64_t due_ns =
        link->state == RABBIT_DOWN ? lane->retry.at_ns - now_ns : rabbit_link_due_ns(link, now_ns);
    if (link->state == RABBIT_DOWN && due_ns < 0) {
        due_ns = 0;
    }
    wait_ns = due_ns >= 0 && due_ns < wait_ns ? due_ns : wait_ns;
    if (wait_ns > 0) {
        struct timespec timeout = {.tv_sec = wait_ns / NS_PER_S, .tv_nsec = wait_ns % NS_PER_S};
        struct pollfd polled = {.fd = link->fd, .events = rabbit_link_events(link)};
        ppoll(&polled, 1, &timeout, NULL);
    }
}

int rabbit_drain_lane_open(const struct rabbit_target *target, unsigned number,
                           struct sink_lane **out, struct err *err)
{
    struct rabbit_lane *lane = xcalloc(1, sizeof(*lane));
    *out = NULL;
    lane->base.driver = &sink_rabbit;
    lane->target = target;
    snprintf(lane->name, sizeof(lane->name), "sluice lane-%u", number);
    rabbit_link_init(&lane->link, target, lane->name, on_frame, lane);
    int rc = step(lane, 0);
    while (rc == 0 && lane->link.state != RABBIT_OPEN) {
        nap(lane, lane->link.start_by_ns);
        rc = step(lane, 0);
    }
    if (rc < 0) {
        rc = err_set(err, rc, "%s", lane->link.problem.text);
        rabbit_link_free(&lane->link);
        free(lane->held);
        free(lane);
        return rc;
    }
    *out = &lane->base;
    return 0;
}

/* ---- batches ---- */

static int open_batch(struct rabbit_lane *lane, size_t count, struct sink_batch *batch)
{
    if (count > lane->tasks_room) {
        lane->tasks = xrealloc(lane->tasks, count * sizeof(*lane->tasks));
        lane->tasks_room = count;
    }
    for (size_t i = 0; i < count; i++) {
        lane->tasks[i] = lane->held[i].task;
        batch->redelivered += lane->held[i].redelivered;
    }
    lane->open = count;
    lane->open_lost = false;
    tell(lane, lane->held_count);
    (void)step(lane, 0); /* should it fail, the batch is open all the same, and lost */
    batch->count = count;
    batch->tasks = lane->tasks;
    return (int)count;
}

/* Ends the consumer, so that what is held now is all there is. What was under way still comes, and
 * has room: the prefetch was the batch. */
static void stop_consuming(struct rabbit_lane *lane)
{
    int64_t until_ns = clock_mono_ns() + ATTACH_NS;
    bool complete_set = lane->consumer == ATTACHED && complete(lane) >= lane->prefetch;
    cancel(lane);
    while (lane->consumer == CANCELLED && !complete_set && clock_mono_ns() < until_ns) {
        if (step(lane, 0) < 0) {
            return;
        }
        if (lane->consumer == CANCELLED) {
            nap(lane, until_ns);
        }
    }
}

/* May more come, or is there nothing because nothing can come yet? */
static bool attaching(const struct rabbit_lane *lane)
{
    return lane->link.state == RABBIT_OPEN && lane->consumer != ATTACHED;
}

int rabbit_drain_fetch(struct sink_lane *base, unsigned max, int wait_ms, struct sink_batch *batch)
{
    struct rabbit_lane *lane = lane_of(base);
    unsigned prefetch = max < PREFETCH_MAX ? max : PREFETCH_MAX;
    int64_t begin_ns = clock_mono_ns();
    int64_t end_ns = begin_ns + wait_ms * NS_PER_MS;
    int64_t attach_by_ns = end_ns + ATTACH_NS;
    bool first = true, was_attached = lane->consumer == ATTACHED;
    assert(lane->open == 0 && max > 0);
    *batch = (struct sink_batch){0};
    for (;;) {
        int rc = step(lane, complete(lane) >= max ? 0 : prefetch);
        int64_t now_ns = clock_mono_ns();
        size_t count = complete(lane);
        if ((count > 0 && first) || (lane->consumer == ATTACHED && !was_attached && count == 0)) {
            end_ns = now_ns + wait_ms * NS_PER_MS;
        }
        first = first && count == 0;
        was_attached = lane->consumer == ATTACHED;
        bool over = now_ns >= end_ns && (count > 0 || !attaching(lane) || now_ns >= attach_by_ns);
        if (count >= max || over) {
            stop_consuming(lane);
            count = complete(lane);
            if (count > 0) {
                return open_batch(lane, count < max ? count : max, batch);
            }
            if (over) {
                return rc < 0 ? -ENOTCONN : 0; /* why is in the log; it comes back by itself */
            }
            continue; /* lost with its connection in the last moment */
        }
        nap(lane, now_ns >= end_ns ? attach_by_ns : end_ns);
    }
}

int rabbit_drain_keep(struct sink_lane *base)
{
    struct rabbit_lane *lane = lane_of(base);
    if (step(lane, 0) < 0 || lane->open_lost) {
        return -ENOTCONN;
    }
    return lane->link.state == RABBIT_OPEN || lane->open > 0 ? 0 : KEEP_SOON_MS;
}

/* After its ack or nack was queued, which must come first: then nothing is counted too early. */
static int end_batch(struct rabbit_lane *lane)
{
    bool was_lost = lane->open_lost;
    forget(lane, 0, lane->open);
    lane->open = 0;
    lane->open_lost = false;
    if (was_lost) {
        return -ENOTCONN;
    }
    tell(lane, lane->held_count);
    return step(lane, 0) < 0 ? -ENOTCONN : 0;
}

int rabbit_drain_ack(struct sink_lane *base, struct sink_batch *batch)
{
    struct rabbit_lane *lane = lane_of(base);
    batch->count = 0;
    if (!lane->open_lost && lane->open > 0) {
        amqp_basic_ack_t ack = {.delivery_tag = lane->held[lane->open - 1].tag, .multiple = 1};
        rabbit_link_method(&lane->link, CHANNEL, AMQP_BASIC_ACK_METHOD, &ack);
    }
    return end_batch(lane);
}

int rabbit_drain_release(struct sink_lane *base, struct sink_batch *batch)
{
    struct rabbit_lane *lane = lane_of(base);
    batch->count = 0;
    if (!lane->open_lost && lane->open > 0) {
        amqp_basic_nack_t nack = {
            .delivery_tag = lane->held[lane->open - 1].tag, .multiple = 1, .requeue = 1};
        rabbit_link_method(&lane->link, CHANNEL, AMQP_BASIC_NACK_METHOD, &nack);
    }
    (void)end_batch(lane); /* of a lost connection the server has handed all back by itself */
    return 0;
}

void rabbit_drain_lane_close(struct sink_lane *base)
{
    struct rabbit_lane *lane = lane_of(base);
    struct sink_batch batch = {0};
    if (lane->open > 0) {
        rabbit_drain_release(base, &batch);
    }
    /* What waits for a next fetch is handed back by the end of the connection. */
    cancel(lane);
    rabbit_link_end(&lane->link, clock_mono_ns() + GOODBYE_NS);
    lane->incoming = false;
    forget(lane, 0, lane->held_count);
    rabbit_link_free(&lane->link);
    free(lane->held);
    free(lane->tasks);
    free(lane);
}

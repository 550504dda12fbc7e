/* sink_rabbit_drain.c: a lane: one connection, one channel, one consumer called lane-N.
 *
 * The server pushes up to the prefetch, which is the largest batch that was asked for. Deliveries
 * are kept in the order of their tags; an open batch is the first of them, so one ack or nack with
 * `multiple` covers exactly the batch. What comes while a batch is open waits for the next fetch.
 */
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

enum { CHANNEL = 1 };

/* Longer than any main DB should be away: the server's default would take a batch from a lane after
 * 30 minutes. Servers that don't know the argument (before 3.11.15) pass over it. */
enum { CONSUMER_TIMEOUT_MS = 24 * 3600 * 1000 };

enum { PREFETCH_MAX = 65535 }; /* what basic.qos can say */

#define GOODBYE_NS (500 * NS_PER_MS)
#define ATTACH_NS  NS_PER_S /* a fetch waits so much longer for its consumer to be there */

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
    char name[32];       /* of the connection */
    char consumer[32];   /* its tag */
    bool attached;       /* the consumer there is has been confirmed */
    bool channel_asked;  /* on this connection */
    unsigned prefetch;   /* of the consumer there is or that was asked for; 0: none */
    unsigned generation; /* of consumers on this connection */

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
    case AMQP_BASIC_CANCEL_OK_METHOD:
        return 0;
    case AMQP_BASIC_CONSUME_OK_METHOD:
        lane->attached = true;
        rabbit_retry_works(&lane->retry, &lane->link);
        return 0;
    case AMQP_BASIC_CANCEL_METHOD:
        return rabbit_link_problem(&lane->link, -ENOENT, "the queue %s is gone",
                                   lane->target->queue);
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
    lane->channel_asked = lane->attached = false;
    lane->prefetch = 0;
    lane->generation = 0;
    rabbit_retry_lost(&lane->retry, &lane->link);
}

/* Starts, or goes on with, what the lane needs to receive `prefetch`. 0 or negative. */
static int advance(struct rabbit_lane *lane, unsigned prefetch)
{
    struct rabbit_link *link = &lane->link;
    if (link->state != RABBIT_OPEN) {
        return 0;
    }
    if (!lane->channel_asked) {
        rabbit_channel_open(link, CHANNEL);
        lane->channel_asked = true;
    }
    if (prefetch <= lane->prefetch) {
        return 0;
    }
    if (lane->prefetch > 0) {
        /* What it has delivered stays ours; the next one may deliver more at a time. */
        amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes(lane->consumer)};
        rabbit_link_method(link, CHANNEL, AMQP_BASIC_CANCEL_METHOD, &cancel);
        lane->generation++;
        snprintf(lane->consumer, sizeof(lane->consumer), "%.20s.%u", lane->name + strlen("sluice "),
                 lane->generation % 10000);
    } else {
        snprintf(lane->consumer, sizeof(lane->consumer), "%.20s", lane->name + strlen("sluice "));
    }
    amqp_basic_qos_t qos = {.prefetch_count = (uint16_t)prefetch};
    amqp_table_entry_t timeout = {.key = amqp_cstring_bytes("x-consumer-timeout")};
    timeout.value.kind = AMQP_FIELD_KIND_I32;
    timeout.value.value.i32 = CONSUMER_TIMEOUT_MS;
    amqp_basic_consume_t consume = {
        .queue = amqp_cstring_bytes(lane->target->queue),
        .consumer_tag = amqp_cstring_bytes(lane->consumer),
        .arguments = {.num_entries = 1, .entries = &timeout},
    };
    rabbit_link_method(link, CHANNEL, AMQP_BASIC_QOS_METHOD, &qos);
    rabbit_link_method(link, CHANNEL, AMQP_BASIC_CONSUME_METHOD, &consume);
    lane->prefetch = prefetch;
    lane->attached = false;
    return rabbit_link_flush(link);
}

/* One step without waiting; connects when it is time to. 0, or negative: not connected. */
static int step(struct rabbit_lane *lane, unsigned prefetch)
{
    struct rabbit_link *link = &lane->link;
    int rc = 0;
    if (link->state == RABBIT_DOWN) {
        if (clock_mono_ns() < lane->retry.at_ns) {
            return link->problem.code != 0 ? link->problem.code : -ENOTCONN;
        }
        rc = rabbit_link_start(link);
    }
    if (rc == 0) {
        rc = rabbit_link_step(link);
    }
    if (rc == 0) {
        rc = advance(lane, prefetch);
    }
    if (rc == 0 && link->state >= RABBIT_LOGIN) {
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
    batch->count = count;
    batch->tasks = lane->tasks;
    return (int)count;
}

int rabbit_drain_fetch(struct sink_lane *base, unsigned max, int wait_ms, struct sink_batch *batch)
{
    struct rabbit_lane *lane = lane_of(base);
    unsigned prefetch = max < PREFETCH_MAX ? max : PREFETCH_MAX;
    int64_t begin_ns = clock_mono_ns();
    int64_t end_ns = begin_ns + wait_ms * NS_PER_MS;
    bool first = complete(lane) == 0;
    bool was_attached = lane->attached;
    assert(lane->open == 0 && max > 0);
    *batch = (struct sink_batch){0};
    for (;;) {
        int rc = step(lane, prefetch);
        size_t count = complete(lane);
        if (!lane->attached && lane->link.state == RABBIT_OPEN) {
            /* Nothing can come yet, so that nothing came would say nothing of the queue. */
            int64_t patient_ns = begin_ns + wait_ms * NS_PER_MS + ATTACH_NS;
            end_ns = count == 0 ? patient_ns : end_ns;
        } else if (lane->attached && !was_attached) {
            was_attached = true;
            end_ns = clock_mono_ns() + wait_ms * NS_PER_MS;
        }
        if (count > 0 && first) {
            end_ns = clock_mono_ns() + wait_ms * NS_PER_MS;
            first = false;
        }
        int64_t now_ns = clock_mono_ns();
        if (count >= max || (count > 0 && now_ns >= end_ns)) {
            return open_batch(lane, count < max ? count : max, batch);
        }
        if (now_ns >= end_ns) {
            return rc < 0 ? -ENOTCONN : 0; /* why is in the log; it comes back by itself */
        }
        nap(lane, end_ns);
    }
}

int rabbit_drain_keep(struct sink_lane *base)
{
    struct rabbit_lane *lane = lane_of(base);
    return step(lane, lane->prefetch) < 0 || lane->open_lost ? -ENOTCONN : 0;
}

static void end_batch(struct rabbit_lane *lane)
{
    forget(lane, 0, lane->open);
    lane->open = 0;
}

int rabbit_drain_ack(struct sink_lane *base, struct sink_batch *batch)
{
    struct rabbit_lane *lane = lane_of(base);
    int rc = lane->open_lost ? -ENOTCONN : 0;
    batch->count = 0;
    if (rc == 0 && lane->open > 0) {
        amqp_basic_ack_t ack = {.delivery_tag = lane->held[lane->open - 1].tag, .multiple = 1};
        rabbit_link_method(&lane->link, CHANNEL, AMQP_BASIC_ACK_METHOD, &ack);
        end_batch(lane);
        rc = step(lane, lane->prefetch) < 0 ? -ENOTCONN : 0;
    }
    end_batch(lane);
    return rc;
}

int rabbit_drain_release(struct sink_lane *base, struct sink_batch *batch)
{
    struct rabbit_lane *lane = lane_of(base);
    batch->count = 0;
    if (!lane->open_lost && lane->open > 0) {
        amqp_basic_nack_t nack = {
            .delivery_tag = lane->held[lane->open - 1].tag, .multiple = 1, .requeue = 1};
        rabbit_link_method(&lane->link, CHANNEL, AMQP_BASIC_NACK_METHOD, &nack);
        end_batch(lane);
        (void)step(lane, lane->prefetch); /* should it fail, the server hands them back by itself */
        return 0;
    }
    end_batch(lane); /* the server has handed it back already */
    return 0;
}

/* With the queue's answer the server has dealt with all that was sent before it. */
static void settle(struct rabbit_lane *lane, int64_t until_ns)
{
    if (lane->link.state == RABBIT_OPEN && lane->prefetch > 0) {
        amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes(lane->consumer)};
        rabbit_link_method(&lane->link, CHANNEL, AMQP_BASIC_CANCEL_METHOD, &cancel);
    }
    rabbit_link_end(&lane->link, until_ns);
}

void rabbit_drain_lane_close(struct sink_lane *base)
{
    struct rabbit_lane *lane = lane_of(base);
    struct sink_batch batch = {0};
    if (lane->open > 0) {
        rabbit_drain_release(base, &batch);
    }
    /* What waits for a next fetch is handed back by the end of the connection. */
    settle(lane, clock_mono_ns() + GOODBYE_NS);
    lane->incoming = false;
    forget(lane, 0, lane->held_count);
    rabbit_link_free(&lane->link);
    free(lane->held);
    free(lane->tasks);
    free(lane);
}

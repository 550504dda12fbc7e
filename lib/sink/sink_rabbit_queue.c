#include "sink/sink_rabbit_queue.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "sink/drivers.h"
#include "sink/sink_rabbit_tally.h"

#define ACCEPTED_HEADER "accepted_us"

enum {
    VERSION_QUORUM = 30800,        /* the first with quorum queues */
    VERSION_DELIVERY_LIMIT = 40000 /* from here on a limit of 20 drops, unless told otherwise */
};

static amqp_table_entry_t text_argument(const char *key, const char *text)
{
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes(key)};
    entry.value.kind = AMQP_FIELD_KIND_UTF8;
    entry.value.value.bytes = amqp_cstring_bytes(text);
    return entry;
}

void rabbit_channel_open(struct rabbit_link *link, amqp_channel_t channel)
{
    amqp_channel_open_t open = {.out_of_band = amqp_empty_bytes};
    rabbit_link_method(link, channel, AMQP_CHANNEL_OPEN_METHOD, &open);
}

void rabbit_queue_declare(struct rabbit_link *link, amqp_channel_t channel, bool passive)
{
    amqp_table_entry_t arguments[3] = {
        text_argument("x-queue-type", "quorum"),
        /* Should somebody's policy limit the length, a publish is refused, and nothing is dropped.
         */
        text_argument("x-overflow", "reject-publish"),
    };
    int count = 2;
    if (link->version >= VERSION_DELIVERY_LIMIT) {
        arguments[count].key = amqp_cstring_bytes("x-delivery-limit");
        arguments[count].value.kind = AMQP_FIELD_KIND_I32;
        arguments[count].value.value.i32 = -1; /* none */
        count++;
    }
    amqp_queue_declare_t declare = {
        .queue = amqp_cstring_bytes(link->target->queue),
        .passive = passive,
        .durable = 1,
    };
    if (!passive) {
        declare.arguments = (amqp_table_t){.num_entries = count, .entries = arguments};
    }
    rabbit_link_method(link, channel, AMQP_QUEUE_DECLARE_METHOD, &declare);
}

/* ---- messages ---- */

void rabbit_properties_set(struct rabbit_properties *properties, const uint8_t id[UUID_BYTES],
                           int64_t accepted_us)
{
    uuid_format(id, properties->id);
    properties->header = (amqp_table_entry_t){.key = amqp_cstring_bytes(ACCEPTED_HEADER)};
    properties->header.value.kind = AMQP_FIELD_KIND_I64;
    properties->header.value.value.i64 = accepted_us;
    properties->basic = (amqp_basic_properties_t){
        ._flags =
            AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_HEADERS_FLAG,
        .delivery_mode = AMQP_DELIVERY_PERSISTENT,
        .message_id = {.len = UUID_TEXT_BYTES - 1, .bytes = properties->id},
        .headers = {.num_entries = 1, .entries = &properties->header},
    };
}

int rabbit_properties_read(const amqp_basic_properties_t *basic, uint8_t id[UUID_BYTES],
                           int64_t *accepted_us)
{
    if (!(basic->_flags & AMQP_BASIC_MESSAGE_ID_FLAG) ||
        !(basic->_flags & AMQP_BASIC_HEADERS_FLAG) ||
        uuid_parse(basic->message_id.bytes, basic->message_id.len, id) < 0) {
        return -EBADMSG;
    }
    for (int i = 0; i < basic->headers.num_entries; i++) {
        const amqp_table_entry_t *entry = &basic->headers.entries[i];
        if (entry->key.len == strlen(ACCEPTED_HEADER) &&
            memcmp(entry->key.bytes, ACCEPTED_HEADER, entry->key.len) == 0 &&
            entry->value.kind == AMQP_FIELD_KIND_I64) {
            *accepted_us = entry->value.value.i64;
            return 0;
        }
    }
    return -EBADMSG;
}

/* ---- one question, one answer ---- */

struct visit {
    struct rabbit_target target;
    struct rabbit_link link;
    unsigned wanted; /* answers still to come */
    bool closed;     /* a channel was closed instead */
    amqp_channel_t channel;
};

static int visit_frame(void *arg, const amqp_frame_t *frame)
{
    struct visit *visit = arg;
    if (frame->frame_type != AMQP_FRAME_METHOD) {
        return 0;
    }
    if (frame->payload.method.id == AMQP_CHANNEL_CLOSE_METHOD) {
        visit->closed = true;
        rabbit_link_channel_closed(&visit->link, frame);
    } else if (visit->wanted > 0) {
        visit->wanted--;
    }
    return 0;
}

/* Waits for the answers to what was queued. 0; negative: problem says why; a closed channel too. */
static int visit_wait(struct visit *visit, unsigned answers)
{
    int64_t until_ns = clock_mono_ns() + visit->target.connect_ns;
    int rc = 0;
    visit->wanted = answers;
    visit->closed = false;
    while (rc == 0 && visit->wanted > 0 && !visit->closed) {
        if (clock_mono_ns() >= until_ns) {
            return rabbit_link_problem(&visit->link, -ETIMEDOUT, "no answer within %.3g s",
                                       (double)visit->target.connect_ns / (double)NS_PER_S);
        }
        rc = rabbit_link_wait(&visit->link, until_ns);
    }
    return rc == 0 && visit->closed ? visit->link.problem.code : rc;
}

static int visit_open_channel(struct visit *visit)
{
    rabbit_channel_open(&visit->link, ++visit->channel);
    return visit_wait(visit, 1);
}

static void visit_end(struct visit *visit)
{
    rabbit_link_end(&visit->link, clock_mono_ns() + NS_PER_S / 5);
    rabbit_link_free(&visit->link);
    rabbit_target_free(&visit->target);
}

/* On failure everything is given back. */
static int visit_begin(struct visit *visit, const struct options *options, const char *name,
                       struct err *err)
{
    *visit = (struct visit){0};
    int rc = rabbit_target_read(&visit->target, options, err);
    if (rc < 0) {
        return rc;
    }
    rabbit_link_init(&visit->link, &visit->target, name, visit_frame, visit);
    rc = rabbit_link_start(&visit->link);
    while (rc == 0 && visit->link.state != RABBIT_OPEN) {
        rc = rabbit_link_wait(&visit->link, visit->link.start_by_ns);
    }
    if (rc == 0 && visit->link.version > 1 && visit->link.version < VERSION_QUORUM) {
        rc = rabbit_link_problem(&visit->link, -ENOTSUP,
                                 "RabbitMQ %s has no quorum queues; wanted: 3.8 or later",
                                 visit->link.version_text);
    }
    if (rc == 0) {
        rc = visit_open_channel(visit);
    }
    if (rc < 0) {
        err_set(err, rc, "%s", visit->link.problem.text);
        visit_end(visit);
    }
    return rc;
}

static int visit_declare(struct visit *visit, bool passive)
{
    rabbit_queue_declare(&visit->link, visit->channel, passive);
    return visit_wait(visit, 1);
}

int rabbit_queue_setup(const struct options *options, struct err *err)
{
    struct visit visit;
    int rc = visit_begin(&visit, options, "sluice setup", err);
    if (rc < 0) {
        return rc;
    }
    rc = visit_declare(&visit, true);
    bool made = rc == -ENOENT;
    if (made) {
        rc = visit_open_channel(&visit);
        rc = rc == 0 ? visit_declare(&visit, false) : rc;
    }
    if (rc == 0) {
        rabbit_tally_declare(&visit.link, visit.channel, true);
        rc = visit_wait(&visit, RABBIT_TALLY_DIGITS);
    }
    if (rc == 0 && made) {
        clock_sleep_ns(RABBIT_QUEUE_SETTLES_NS);
    }
    if (rc < 0) {
        err_set(err, rc, "%s", visit.link.problem.text);
    }
    visit_end(&visit);
    return rc;
}

static int refuse_shape(const struct visit *visit, int code, struct err *err)
{
    return err_set(err, code,
                   "the queue %s is not as the sink rabbit needs it: %s; wanted: durable, "
                   "x-queue-type quorum, x-overflow reject-publish%s, no other argument; "
                   "remove it, or name another with --rabbit-queue",
                   visit->target.queue, visit->link.problem.text,
                   visit->link.version >= VERSION_DELIVERY_LIMIT ? ", x-delivery-limit -1" : "");
}

int rabbit_queue_preflight(const struct options *options, struct err *err)
{
    struct visit visit;
    int rc = visit_begin(&visit, options, "sluice setup", err);
    if (rc < 0) {
        return rc;
    }
    rc = visit_declare(&visit, false);
    if (rc == -EEXIST) {
        rc = refuse_shape(&visit, -EPERM, err);
    } else if (rc < 0) {
        err_set(err, rc, "%s", visit.link.problem.text);
    } else {
        rc = err_set(err, -ENODATA,
                     "%s: policies cannot be read over AMQP: one with message-ttl, expires or "
                     "delivery-limit for the queue %s would drop tasks (rabbitmqctl list_policies)",
                     visit.target.where, visit.target.queue);
    }
    visit_end(&visit);
    return rc;
}

int rabbit_queue_remove(const struct options *options, struct err *err)
{
    struct visit visit;
    int rc = visit_begin(&visit, options, "sluice setup", err);
    if (rc < 0) {
        return rc;
    }
    /* Declared as ours: the server compares, and refuses what somebody else made. */
    amqp_queue_delete_t remove = {.queue = amqp_cstring_bytes(visit.target.queue)};
    rc = visit_declare(&visit, true);
    bool absent = rc == -ENOENT;
    if (absent) {
        rc = visit_open_channel(&visit);
    } else if (rc == 0) {
        rc = visit_declare(&visit, false);
    }
    if (rc == -EEXIST) {
        refuse_shape(&visit, rc, err);
        visit_end(&visit);
        return rc;
    }
    if (rc == 0 && !absent) {
        rabbit_link_method(&visit.link, visit.channel, AMQP_QUEUE_DELETE_METHOD, &remove);
        rc = visit_wait(&visit, 1);
    }
    if (rc == 0) {
        rabbit_tally_remove(&visit.link, visit.channel);
    } else {
        err_set(err, rc, "%s", visit.link.problem.text);
    }
    visit_end(&visit); /* its goodbye comes after all that was queued */
    return rc;
}

/* ---- against a second run ---- */

struct queue_hold {
    struct sink_hold base;
    const struct options *options;
    struct visit visit; /* its connection, while open */
    bool open;
    int64_t busy_ns; /* since when another connection has it; 0: it has not */
};

static int declare_lock(struct visit *visit)
{
    amqp_table_entry_t arguments[1] = {text_argument("x-queue-type", "classic")};
    char name[256]; /* as the tally's */
    snprintf(name, sizeof(name), "%s.lock", visit->target.queue);
    amqp_queue_declare_t declare = {
        .queue = amqp_cstring_bytes(name),
        .exclusive = 1,
        .auto_delete = 1,
        .arguments = {.num_entries = 1, .entries = arguments},
    };
    rabbit_link_method(&visit->link, visit->channel, AMQP_QUEUE_DECLARE_METHOD, &declare);
    return visit_wait(visit, 1);
}

static int take_hold(struct queue_hold *hold, struct err *err)
{
    struct visit *visit = &hold->visit;
    int rc = visit_begin(visit, hold->options, "sluice hold", err);
    if (rc < 0) {
        return rc;
    }
    rc = declare_lock(visit);
    hold->open = rc == 0;
    if (visit->closed && rc == -EAGAIN) { /* RESOURCE_LOCKED: another connection's */
        rc = err_set(
            err, -EBUSY,
            "%s: another sluice is at work with the queue %s (it has %s.lock): wait for its "
            "end, or name another queue with --rabbit-queue",
            visit->target.where, visit->target.queue, visit->target.queue);
    } else if (rc < 0) {
        err_set(err, rc, "%s", visit->link.problem.text);
    }
    if (rc < 0) {
        visit_end(visit);
    }
    return rc;
}

int rabbit_queue_hold(struct sink_hold **out, const struct options *options, struct err *err)
{
    struct queue_hold *hold = xcalloc(1, sizeof(*hold));
    hold->base.driver = &sink_rabbit;
    hold->options = options;
    *out = NULL;
    int rc = take_hold(hold, err);
    if (rc < 0) {
        free(hold);
        return rc;
    }
    *out = &hold->base;
    return 0;
}

int rabbit_queue_hold_keep(struct sink_hold *base, struct err *err)
{
    struct queue_hold *hold = (struct queue_hold *)base;
    if (hold->open) {
        if (rabbit_link_step(&hold->visit.link) == 0 && !hold->visit.closed) {
            return 0;
        }
        visit_end(&hold->visit);
        hold->open = false;
    }
    int rc = take_hold(hold, err);
    int64_t now_ns = clock_mono_ns();
    hold->busy_ns = rc != -EBUSY ? 0 : hold->busy_ns > 0 ? hold->busy_ns : now_ns;
    /* The server may not know yet that our last connection is gone; it hears no heartbeat. */
    int64_t doubt_ns = 3 * options_duration_ns(hold->options, "rabbit-heartbeat");
    return rc == -EBUSY && now_ns - hold->busy_ns < doubt_ns ? -EAGAIN : rc;
}

void rabbit_queue_hold_end(struct sink_hold *base)
{
    struct queue_hold *hold = (struct queue_hold *)base;
    if (hold->open) {
        visit_end(&hold->visit);
    }
    free(hold);
}

int rabbit_queue_version(const struct options *options, char *out, size_t out_bytes,
                         struct err *err)
{
    struct visit visit;
    int rc = visit_begin(&visit, options, "sluice setup", err);
    if (rc < 0) {
        return rc;
    }
    bool told = visit.link.version_text[0] != '\0';
    snprintf(out, out_bytes, "RabbitMQ %s", told ? visit.link.version_text : "of unknown version");
    visit_end(&visit);
    return 0;
}

#include "sink/sink_rabbit_tally.h"

#include <stdio.h>

/* They go by themselves once nobody has used them for a day. */
enum { EXPIRES_MS = 24 * 3600 * 1000, LAST = RABBIT_TALLY_DIGITS - 1 };

/* Name lengths: rabbit_target_read allows 200 bytes for the queue. */
static amqp_bytes_t digit_name(const struct rabbit_link *link, unsigned digit, char text[256])
{
    snprintf(text, 256, "%s.held-%u", link->target->queue, 1u << digit);
    return amqp_cstring_bytes(text);
}

void rabbit_tally_declare(struct rabbit_link *link, amqp_channel_t channel, bool answers)
{
    amqp_table_entry_t arguments[2] = {{.key = amqp_cstring_bytes("x-expires")},
                                       {.key = amqp_cstring_bytes("x-queue-type")}};
    arguments[0].value.kind = AMQP_FIELD_KIND_I32;
    arguments[0].value.value.i32 = EXPIRES_MS;
    arguments[1].value.kind = AMQP_FIELD_KIND_UTF8;
    arguments[1].value.value.bytes = amqp_cstring_bytes("classic");
    for (unsigned digit = 0; digit < RABBIT_TALLY_DIGITS; digit++) {
        char name[256];
        amqp_queue_declare_t declare = {
            .queue = digit_name(link, digit, name),
            .durable = 1, /* what is not durable is on its way out of RabbitMQ */
            .nowait = !answers,
            .arguments = {.num_entries = 2, .entries = arguments},
        };
        rabbit_link_method(link, channel, AMQP_QUEUE_DECLARE_METHOD, &declare);
    }
}

/* How many consumers stand for a digit of n: 0 or 1, but for the last, which has no next. */
static size_t consumers_of(size_t n, unsigned digit)
{
    return digit == LAST ? n >> LAST : (n >> digit) & 1;
}

void rabbit_tally_change(struct rabbit_link *link, amqp_channel_t channel, size_t from, size_t to)
{
    for (unsigned digit = 0; digit < RABBIT_TALLY_DIGITS; digit++) {
        size_t has = consumers_of(from, digit), wants = consumers_of(to, digit);
        char name[256], tag[64];
        for (size_t i = wants; i < has; i++) {
            snprintf(tag, sizeof(tag), "held-%u.%zu", 1u << digit, i);
            amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes(tag), .nowait = 1};
            rabbit_link_method(link, channel, AMQP_BASIC_CANCEL_METHOD, &cancel);
        }
        for (size_t i = has; i < wants; i++) {
            snprintf(tag, sizeof(tag), "held-%u.%zu", 1u << digit, i);
            amqp_basic_consume_t consume = {.queue = digit_name(link, digit, name),
                                            .consumer_tag = amqp_cstring_bytes(tag),
                                            .nowait = 1};
            rabbit_link_method(link, channel, AMQP_BASIC_CONSUME_METHOD, &consume);
        }
    }
}

int64_t rabbit_tally_held(unsigned digit, uint32_t consumers)
{
    return (int64_t)consumers << digit;
}

void rabbit_tally_remove(struct rabbit_link *link, amqp_channel_t channel)
{
    for (unsigned digit = 0; digit < RABBIT_TALLY_DIGITS; digit++) {
        char name[256];
        amqp_queue_delete_t remove = {.queue = digit_name(link, digit, name), .nowait = 1};
        rabbit_link_method(link, channel, AMQP_QUEUE_DELETE_METHOD, &remove);
    }
}

/* sink_rabbit_queue.h: our queue on the server: how it is declared, made, checked and removed; what
 * a message carries of a task. Functions that take options connect, wait (no longer than the
 * connect timeout for each answer), and disconnect. */
#ifndef SLUICE_SINK_SINK_RABBIT_QUEUE_H
#define SLUICE_SINK_SINK_RABBIT_QUEUE_H

#include "base/clock.h"
#include "sink/sink.h"
#include "sink/sink_rabbit_link.h"
#include "task/task.h"

/* A server that is killed sooner after it has made a queue may forget it, with what it had
 * confirmed: it writes the queue's registration (a dets table of ra's, auto_save 500 ms) only once
 * that has been left alone for half a second. Nothing may be confirmed to anybody before. */
#define RABBIT_QUEUE_SETTLES_NS (2 * NS_PER_S)

/* Queues a queue.declare of target->queue. passive: only asks. Otherwise with the arguments that
 * this server's version needs: another queue of that name is then refused (406). */
void rabbit_queue_declare(struct rabbit_link *link, amqp_channel_t channel, bool passive);
void rabbit_channel_open(struct rabbit_link *link, amqp_channel_t channel);

/* A task's id and time as properties of its message; text and entry must live as long. */
struct rabbit_properties {
    char id[UUID_TEXT_BYTES];
    amqp_table_entry_t header;
    amqp_basic_properties_t basic;
};
void rabbit_properties_set(struct rabbit_properties *properties, const uint8_t id[UUID_BYTES],
                           int64_t accepted_us);
/* -EBADMSG: no message of ours. */
int rabbit_properties_read(const amqp_basic_properties_t *basic, uint8_t id[UUID_BYTES],
                           int64_t *accepted_us);

/* As sink.h says of setup and preflight. */
int rabbit_queue_setup(const struct options *options, struct err *err);
int rabbit_queue_preflight(const struct options *options, struct err *err);
/* Deletes the queue with all that is in it; one that is not there is no error. -EEXIST: it was not
 * made by setup. */
int rabbit_queue_remove(const struct options *options, struct err *err);
/* As sink.h says of hold: an exclusive queue, NAME.lock, which the server deletes with the
 * connection that declared it. */
int rabbit_queue_hold(struct sink_hold **hold, const struct options *options, struct err *err);
int rabbit_queue_hold_keep(struct sink_hold *hold, struct err *err);
void rabbit_queue_hold_end(struct sink_hold *hold);
int rabbit_queue_version(const struct options *options, char *out, size_t out_bytes,
                         struct err *err);

#endif

/* sink_rabbit_tally.h: how many tasks the lanes hold, told through the server itself.
 *
 * AMQP tells how many messages are ready, not how many are out with consumers; only the management
 * plugin does, if it is there, and seconds late. So a lane that holds n tasks consumes from empty
 * classic queues of our own, one for each binary digit of n (QUEUE.held-1, -2, -4, ...). The number
 * of consumers, which every declare answers with, times the digit's weight, summed, is what all
 * lanes of all workers hold. When a lane dies its consumers go with its connection, as its tasks
 * do.
 */
#ifndef SLUICE_SINK_SINK_RABBIT_TALLY_H
#define SLUICE_SINK_SINK_RABBIT_TALLY_H

#include "sink/sink_rabbit_link.h"

enum { RABBIT_TALLY_DIGITS = 12 };

/* Queues the declares of all digits; with answers (in their order) or without. Idempotent. */
void rabbit_tally_declare(struct rabbit_link *link, amqp_channel_t channel, bool answers);
/* Queues what turns a lane's `from` into `to` on its channel; needs no answer. */
void rabbit_tally_change(struct rabbit_link *link, amqp_channel_t channel, size_t from, size_t to);
/* What a declare's answer adds to the sum. */
int64_t rabbit_tally_held(unsigned digit, uint32_t consumers);
/* Queues the deletes of all digits, without answers. */
void rabbit_tally_remove(struct rabbit_link *link, amqp_channel_t channel);

#endif

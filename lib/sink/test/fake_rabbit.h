/* fake_rabbit.h: a peer that speaks just enough AMQP 0-9-1 to be taken for RabbitMQ, and does what
 * a real one cannot be made to do: be silent, confirm in odd orders, block, return, break off
 * anywhere.
 *
 * It answers a login, channels, declares and consumers by itself, in a thread of its own; confirms,
 * returns, deliveries and ends are sent by the test. One connection at a time is the current one:
 * the last that was opened. All functions may be called from the test's thread only.
 */
#ifndef SLUICE_SINK_TEST_FAKE_RABBIT_H
#define SLUICE_SINK_TEST_FAKE_RABBIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/uuid.h"
#include "sink/rabbitmq_c.h"

struct fake_rabbit;

struct fake_published {
    uint8_t id[UUID_BYTES];
    int64_t accepted_us;
    size_t body_bytes;
    bool mandatory, persistent;
};

struct fake_rabbit *fake_start(void);
void fake_stop(struct fake_rabbit *fake);
int fake_port(const struct fake_rabbit *fake);

/* What it does from the next connection, or the next byte, on. */
void fake_be_mute(struct fake_rabbit *fake, bool mute); /* accepts, and never says a word */
void fake_be_deaf(struct fake_rabbit *fake, bool deaf); /* stops reading what is sent */
void fake_greet(struct fake_rabbit *fake, const char *bytes, size_t len); /* instead of AMQP */
void fake_refuse_login(struct fake_rabbit *fake, unsigned code, const char *text);
void fake_set_heartbeat(struct fake_rabbit *fake, unsigned seconds); /* offered from now on */
void fake_set_queue(struct fake_rabbit *fake, uint32_t messages, uint32_t consumers);
void fake_lose_queue(struct fake_rabbit *fake); /* passive declares say 404 until a real one */

/* How often. */
unsigned fake_connections(struct fake_rabbit *fake);
unsigned fake_real_declares(struct fake_rabbit *fake); /* of the queue itself */
/* Methods of this kind since the start, on all connections. */
unsigned fake_count(struct fake_rabbit *fake, amqp_method_number_t id);
size_t fake_published_count(struct fake_rabbit *fake); /* complete messages */
struct fake_published fake_published(struct fake_rabbit *fake, size_t index);
uint64_t fake_last_tag(struct fake_rabbit *fake); /* of basic.ack, nack, reject; bit 63: multiple */

/* On the current connection. False: there is none. */
bool fake_method(struct fake_rabbit *fake, amqp_channel_t channel, amqp_method_number_t id,
                 void *decoded);
bool fake_confirm(struct fake_rabbit *fake, uint64_t tag, bool multiple);
bool fake_nack(struct fake_rabbit *fake, uint64_t tag, bool multiple);
/* A message as basic.return or basic.deliver (tag > 0) carries it. chop: one byte a write. */
bool fake_message(struct fake_rabbit *fake, uint64_t tag, const uint8_t id[UUID_BYTES],
                  int64_t accepted_us, const void *body, size_t body_bytes, bool chop);
bool fake_bytes(struct fake_rabbit *fake, const void *bytes, size_t len);
void fake_cut(struct fake_rabbit *fake); /* ends the current connection */

#endif

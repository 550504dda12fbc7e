/* valkey_sender.h: an ingest side of the sink valkey, driven as its contract says, for tests that
 * need to stop in the middle. */
#ifndef SLUICE_SINK_TEST_VALKEY_SENDER_H
#define SLUICE_SINK_TEST_VALKEY_SENDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/options.h"
#include "sink/sink.h"

enum { SENDER_TASKS_MAX = 20000 };

struct sender {
    struct options *options;
    struct sink *sink;
    unsigned count, settled;
    unsigned char times[SENDER_TASKS_MAX]; /* how often done ran; the number is accepted_us */
    enum sink_outcome outcome[SENDER_TASKS_MAX];
    unsigned outcomes[3];
};

/* Options of the sink valkey on 127.0.0.1:port. password, stream: may be NULL. */
struct options *valkey_options(int port, const char *password, const char *stream);
void set_option(struct options *options, const char *name, const char *text);

void sender_open(struct sender *sender, struct options *options);
void sender_turn(struct sender *sender, int64_t longest_ns);
bool sender_ready_within(struct sender *sender, int64_t duration_ns);
/* Fails the test when submit says anything else than `wanted`. */
void sender_submit(struct sender *sender, size_t body_bytes, int wanted);
/* Turns the loop until all is settled; false: not within the time. */
bool sender_settled_within(struct sender *sender, int64_t duration_ns);
void sender_close(struct sender *sender, int64_t grace_ns); /* then each was told once */
/* The body of a task, a function of its number. */
void sender_body(unsigned number, size_t body_bytes, char *out);

#endif

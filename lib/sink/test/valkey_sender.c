#include "valkey_sender.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "sink/drivers.h"

void set_option(struct options *options, const char *name, const char *text)
{
    struct err err = {0};
    if (options_set(options, name, text, "test", &err) != 0) {
        fail_msg("%s", err.text);
    }
}

struct options *valkey_options(int port, const char *password, const char *stream)
{
    char url[200];
    struct options *options = options_new("test", "");
    options_add(options, "Sink", sink_common_options);
    options_add(options, "Sink valkey", sink_valkey_options);
    snprintf(url, sizeof(url), "redis://%s%s%s127.0.0.1:%d/0", password ? ":" : "",
             password ? password : "", password ? "@" : "", port);
    set_option(options, "sink-url", url);
    if (stream) {
        set_option(options, "valkey-stream", stream);
    }
    return options;
}

/* done's argument is a place in times: both the sender and the number follow from it. */
static struct sender *the_sender;

static void on_done(void *arg, enum sink_outcome outcome, unsigned batch)
{
    unsigned number = (unsigned)((unsigned char *)arg - the_sender->times);
    assert_true(batch >= 1);
    assert_int_equal(the_sender->times[number], 0);
    the_sender->times[number] = 1;
    the_sender->outcome[number] = outcome;
    the_sender->outcomes[outcome]++;
    the_sender->settled++;
}

void sender_open(struct sender *sender, struct options *options)
{
    struct err err = {0};
    memset(sender, 0, sizeof(*sender));
    the_sender = sender;
    sender->options = options;
    int rc = sink_valkey.open(&sender->sink, SINK_INGEST, options, &err);
    if (rc != 0) {
        fail_msg("open: %d: %s", rc, err.text);
    }
}

void sender_turn(struct sender *sender, int64_t longest_ns)
{
    int64_t due_ns = sink_valkey.due_ns(sender->sink);
    int64_t wait_ns = due_ns < 0 || due_ns > longest_ns ? longest_ns : due_ns;
    wait_ns = wait_ns > 0 ? wait_ns : 0;
    struct timespec timeout = {.tv_sec = wait_ns / NS_PER_S, .tv_nsec = wait_ns % NS_PER_S};
    struct pollfd polled = {.fd = sink_valkey.fd(sender->sink), .events = POLLIN};
    ppoll(&polled, 1, &timeout, NULL);
    assert_int_equal(sink_valkey.process(sender->sink), 0);
}

bool sender_ready_within(struct sender *sender, int64_t duration_ns)
{
    int64_t until_ns = clock_mono_ns() + duration_ns;
    while (!sink_valkey.ready(sender->sink) && clock_mono_ns() < until_ns) {
        sender_turn(sender, 20 * NS_PER_MS);
    }
    return sink_valkey.ready(sender->sink);
}

void sender_body(unsigned number, size_t body_bytes, char *out)
{
    for (size_t i = 0; i < body_bytes; i++) {
        out[i] = (char)(number * 31 + i + i / 251); /* every byte value */
    }
}

void sender_submit(struct sender *sender, size_t body_bytes, int wanted)
{
    assert_true(sender->count < SENDER_TASKS_MAX);
    unsigned number = sender->count;
    char *body = malloc(body_bytes + 1);
    sender_body(number, body_bytes, body);
    struct task task = {.accepted_us = number, .body = body, .body_bytes = body_bytes};
    task_synth_id(7, number, task.id);
    int rc = sink_valkey.submit(sender->sink, &task, on_done, &sender->times[number]);
    free(body);
    assert_int_equal(rc, wanted);
    sender->count += rc == 0;
}

bool sender_settled_within(struct sender *sender, int64_t duration_ns)
{
    int64_t until_ns = clock_mono_ns() + duration_ns;
    while (sender->settled < sender->count && clock_mono_ns() < until_ns) {
        sender_turn(sender, 20 * NS_PER_MS);
    }
    return sender->settled == sender->count;
}

void sender_close(struct sender *sender, int64_t grace_ns)
{
    sink_valkey.close(sender->sink, clock_mono_ns() + grace_ns);
    sender->sink = NULL;
    assert_int_equal(sender->settled, sender->count);
    options_free(sender->options);
    sender->options = NULL;
}

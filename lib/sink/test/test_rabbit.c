/* Oracle: what AMQP 0-9-1 and RabbitMQ's confirms say a peer may do, done by a scripted peer
 * (fake_rabbit.h), and the outcome that sink.h demands for each: only what was confirmed is
 * DURABLE, only what is surely not stored is REFUSED. No time is measured; a call that hangs ends
 * in the test's time limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/options.h"
#include "fake_rabbit.h"
#include "sink/drivers.h"

enum { SENT_MAX = 512, NONE = -1 };

struct fixture {
    struct fake_rabbit *fake;
    struct options *options;
    struct sink *sink;
    struct sink_lane *lane;
    int outcomes[SENT_MAX];
    unsigned batches[SENT_MAX];
    unsigned count; /* submitted */
};

static void set(struct fixture *fixture, const char *name, const char *text)
{
    struct err err = {0};
    if (options_set(fixture->options, name, text, "test", &err) < 0) {
        fail_msg("%s", err.text);
    }
}

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof(*fixture));
    fixture->fake = fake_start();
    fixture->options = options_new("test", "");
    options_add(fixture->options, "Sink", sink_common_options);
    options_add(fixture->options, "Sink", sink_rabbit_options);
    char *url = xasprintf("amqp://user:very-secret@127.0.0.1:%d", fake_port(fixture->fake));
    set(fixture, "sink-url", url);
    set(fixture, "rabbit-connect-timeout", "10s");
    set(fixture, "rabbit-confirm-timeout", "60s");
    free(url);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    if (fixture->lane) {
        sink_rabbit.lane_close(fixture->lane);
    }
    sink_rabbit.close(fixture->sink, 0);
    options_free(fixture->options);
    fake_stop(fixture->fake);
    free(fixture);
    return 0;
}

static void done(void *arg, enum sink_outcome outcome, unsigned batch);

static struct fixture *of_done; /* done's arg is the index; one fixture at a time */

static void done(void *arg, enum sink_outcome outcome, unsigned batch)
{
    size_t index = (size_t)(int *)arg - (size_t)of_done->outcomes;
    index /= sizeof(of_done->outcomes[0]);
    assert_int_equal(of_done->outcomes[index], NONE);
    of_done->outcomes[index] = (int)outcome;
    of_done->batches[index] = batch;
}

static void turn(struct fixture *fixture)
{
    int64_t due_ns = sink_rabbit.due_ns(fixture->sink);
    int wait_ms = due_ns < 0 || due_ns > 5 * NS_PER_MS ? 5 : (int)(due_ns / NS_PER_MS);
    struct pollfd polled = {.fd = sink_rabbit.fd(fixture->sink), .events = POLLIN};
    poll(&polled, 1, wait_ms);
    assert_int_equal(sink_rabbit.process(fixture->sink), 0);
}

/* Goes on until the condition holds; the test's time limit is the only other end. */
#define UNTIL(condition)                                                                           \
    while (!(condition)) {                                                                         \
        turn(fixture);                                                                             \
    }

static void open_ingest(struct fixture *fixture)
{
    struct err err = {0};
    of_done = fixture;
    if (sink_rabbit.open(&fixture->sink, SINK_INGEST, fixture->options, &err) < 0) {
        fail_msg("%s", err.text);
    }
    UNTIL(sink_rabbit.ready(fixture->sink));
}

static int submit_body(struct fixture *fixture, uint64_t number, const void *body, size_t bytes)
{
    struct task task = {.accepted_us = 1000 + (int64_t)number, .body = body, .body_bytes = bytes};
    unsigned index = fixture->count;
    assert_true(index < SENT_MAX);
    task_synth_id(7, number, task.id);
    fixture->outcomes[index] = NONE;
    int rc = sink_rabbit.submit(fixture->sink, &task, done, &fixture->outcomes[index]);
    fixture->count += rc == 0;
    return rc;
}

static void submit(struct fixture *fixture, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(submit_body(fixture, fixture->count, "body", 4), 0);
    }
}

/* A first confirm: until then the driver sends one message at a time. */
static void prove(struct fixture *fixture)
{
    submit(fixture, 1);
    UNTIL(fake_published_count(fixture->fake) == 1);
    fake_confirm(fixture->fake, 1, false);
    UNTIL(fixture->outcomes[0] == SINK_DURABLE);
}

static void expect_outcomes(const struct fixture *fixture, const int *wanted, unsigned from)
{
    for (unsigned i = from; i < fixture->count; i++) {
        assert_int_equal(fixture->outcomes[i], wanted[i - from]);
    }
}

static unsigned settled(const struct fixture *fixture)
{
    unsigned count = 0;
    for (unsigned i = 0; i < fixture->count; i++) {
        count += fixture->outcomes[i] != NONE;
    }
    return count;
}

/* ---- publishing ---- */

static void what_is_published(void **state)
{
    struct fixture *fixture = *state;
    open_ingest(fixture);
    prove(fixture);
    submit(fixture, 20);
    UNTIL(fake_published_count(fixture->fake) == 21);
    for (size_t i = 0; i < 21; i++) {
        struct fake_published message = fake_published(fixture->fake, i);
        uint8_t id[UUID_BYTES];
        task_synth_id(7, i, id);
        assert_memory_equal(message.id, id, UUID_BYTES);
        assert_int_equal(message.accepted_us, 1000 + (int64_t)i);
        assert_int_equal(message.body_bytes, 4);
        assert_true(message.mandatory);
        assert_true(message.persistent);
    }
}

static void confirms_in_any_order(void **state)
{
    struct fixture *fixture = *state;
    const int N = NONE, D = SINK_DURABLE;
    open_ingest(fixture);
    prove(fixture);     /* tag 1 */
    submit(fixture, 8); /* tags 2 to 9 */
    UNTIL(fake_published_count(fixture->fake) == 9);
    fake_confirm(fixture->fake, 5, false);
    UNTIL(settled(fixture) == 2);
    expect_outcomes(fixture, (const int[]){N, N, N, D, N, N, N, N}, 1);
    fake_confirm(fixture->fake, 3, false);
    UNTIL(settled(fixture) == 3);
    expect_outcomes(fixture, (const int[]){N, D, N, D, N, N, N, N}, 1);
    fake_confirm(fixture->fake, 6, true); /* 2, 4, 6: the others are decided */
    UNTIL(settled(fixture) == 6);
    expect_outcomes(fixture, (const int[]){D, D, D, D, D, N, N, N}, 1);
    assert_int_equal(fixture->batches[1], 3);
    assert_int_equal(fixture->batches[4], 1);
    fake_confirm(fixture->fake, 6, true); /* again: nothing */
    fake_confirm(fixture->fake, 0, true); /* all there are */
    UNTIL(settled(fixture) == 9);
    expect_outcomes(fixture, (const int[]){D, D, D, D, D, D, D, D}, 1);
    assert_int_equal(fake_connections(fixture->fake), 1);
}

static void a_nack_is_unknown(void **state)
{
    struct fixture *fixture = *state;
    const int U = SINK_UNKNOWN, D = SINK_DURABLE;
    open_ingest(fixture);
    prove(fixture);
    submit(fixture, 5); /* tags 2 to 6 */
    UNTIL(fake_published_count(fixture->fake) == 6);
    fake_nack(fixture->fake, 4, false);
    fake_confirm(fixture->fake, 2, false);
    fake_nack(fixture->fake, 5, true); /* 3 and 5 */
    fake_confirm(fixture->fake, 6, false);
    UNTIL(settled(fixture) == 6);
    expect_outcomes(fixture, (const int[]){D, U, U, U, D}, 1);
}

static void the_window_is_kept(void **state)
{
    struct fixture *fixture = *state;
    set(fixture, "sink-batch-max", "10");
    open_ingest(fixture);
    prove(fixture);
    submit(fixture, 30);
    UNTIL(fake_published_count(fixture->fake) >= 11);
    for (int i = 0; i < 20; i++) {
        turn(fixture);
    }
    assert_int_equal(fake_published_count(fixture->fake), 11);
    fake_confirm(fixture->fake, 4, false); /* one leaves, one follows */
    UNTIL(fake_published_count(fixture->fake) == 12);
    fake_confirm(fixture->fake, 0, true);
    UNTIL(fake_published_count(fixture->fake) == 22);
    fake_confirm(fixture->fake, 0, true);
    UNTIL(fake_published_count(fixture->fake) == 31);
    fake_confirm(fixture->fake, 0, true);
    UNTIL(settled(fixture) == 31);
}

static void a_return_is_refused(void **state)
{
    struct fixture *fixture = *state;
    const int D = SINK_DURABLE, R = SINK_REFUSED, U = SINK_UNKNOWN;
    uint8_t id[UUID_BYTES];
    open_ingest(fixture);
    prove(fixture);
    submit(fixture, 3);                                              /* tags 2 to 4 */
    assert_int_equal(submit_body(fixture, 2, "body", 4), 0);         /* 5: like number 2, tag 3 */
    assert_int_equal(submit_body(fixture, 3, "longer body", 11), 0); /* 6: another than tag 4 */
    UNTIL(fake_published_count(fixture->fake) == 6);
    task_synth_id(7, 1, id);
    fake_message(fixture->fake, 0, id, 1001, "body", 4, true); /* tag 2 */
    task_synth_id(7, 2, id);
    fake_message(fixture->fake, 0, id, 1002, "body", 4, false); /* tag 3, or 5? */
    task_synth_id(7, 3, id);
    fake_message(fixture->fake, 0, id, 1003, "longer body", 11, false); /* tag 6 alone */
    fake_confirm(fixture->fake, 6, true);
    UNTIL(settled(fixture) == 6);
    expect_outcomes(fixture, (const int[]){R, U, D, U, R}, 1);
}

static void a_lost_queue_is_made_again(void **state)
{
    struct fixture *fixture = *state;
    uint8_t id[UUID_BYTES];
    open_ingest(fixture);
    prove(fixture);
    fake_lose_queue(fixture->fake);
    submit(fixture, 1);
    UNTIL(fake_published_count(fixture->fake) == 2);
    task_synth_id(7, 1, id);
    fake_message(fixture->fake, 0, id, 1001, "body", 4, false);
    fake_confirm(fixture->fake, 2, false);
    UNTIL(settled(fixture) == 2 && fake_real_declares(fixture->fake) == 1);
    assert_int_equal(fixture->outcomes[1], SINK_REFUSED);
    UNTIL(sink_rabbit.ready(fixture->sink));
    assert_int_equal(fake_connections(fixture->fake), 1);
}

static void blocked_takes_and_sends_nothing(void **state)
{
    struct fixture *fixture = *state;
    amqp_connection_blocked_t blocked = {.reason = amqp_cstring_bytes("low on disk")};
    amqp_connection_unblocked_t unblocked = {0};
    set(fixture, "sink-batch-max", "4");
    set(fixture, "rabbit-confirm-timeout", "300ms");
    open_ingest(fixture);
    prove(fixture);
    submit(fixture, 6); /* four on the wire, two queued */
    UNTIL(fake_published_count(fixture->fake) == 5);
    fake_method(fixture->fake, 0, AMQP_CONNECTION_BLOCKED_METHOD, &blocked);
    UNTIL(!sink_rabbit.ready(fixture->sink));
    assert_int_equal(submit_body(fixture, 100, "body", 4), -EAGAIN);
    fake_confirm(fixture->fake, 2, false); /* there is room, and nothing may use it */
    UNTIL(fixture->outcomes[1] == SINK_DURABLE);
    UNTIL(settled(fixture) == 7); /* by their deadline */
    const int D = SINK_DURABLE, U = SINK_UNKNOWN, R = SINK_REFUSED;
    expect_outcomes(fixture, (const int[]){D, U, U, U, R, R}, 1);
    assert_int_equal(fake_published_count(fixture->fake), 5);
    struct sink_stats stats;
    assert_int_equal(sink_rabbit.stats(fixture->sink, &stats), 0);
    for (size_t i = 0; i < stats.count; i++) {
        assert_true(strcmp(stats.items[i].name, "blocked") != 0 || stats.items[i].value == 1);
    }
    fake_method(fixture->fake, 0, AMQP_CONNECTION_UNBLOCKED_METHOD, &unblocked);
    UNTIL(sink_rabbit.ready(fixture->sink));
    fake_confirm(fixture->fake, 5, true); /* late ones: their tasks are decided already */
    submit(fixture, 1);
    UNTIL(fake_published_count(fixture->fake) == 6);
    fake_confirm(fixture->fake, 6, false);
    UNTIL(settled(fixture) == 8);
    assert_int_equal(fixture->outcomes[7], SINK_DURABLE);
    assert_int_equal(fake_connections(fixture->fake), 1);
}

/* It reads nothing and says nothing, with more to send than the sockets hold. */
static void a_silent_peer_holds_nobody(void **state)
{
    struct fixture *fixture = *state;
    static char body[1 << 20];
    memset(body, 's', sizeof(body));
    set(fixture, "rabbit-confirm-timeout", "500ms");
    open_ingest(fixture);
    prove(fixture);
    fake_be_deaf(fixture->fake, true);
    for (uint64_t i = 1; i <= 60; i++) {
        assert_int_equal(submit_body(fixture, i, body, sizeof(body)), 0);
    }
    UNTIL(settled(fixture) == 61);
    unsigned unknown = 0;
    for (unsigned i = 1; i <= 60; i++) {
        assert_int_not_equal(fixture->outcomes[i], SINK_DURABLE);
        unknown += fixture->outcomes[i] == SINK_UNKNOWN;
    }
    /* Some were given to the wire; most of 60 MiB cannot have been. */
    assert_in_range(unknown, 1, 30);
    assert_false(sink_rabbit.ready(fixture->sink));
    fake_be_deaf(fixture->fake, false);
    UNTIL(sink_rabbit.ready(fixture->sink));
}

static void silent_from_the_start(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    set(fixture, "rabbit-connect-timeout", "200ms");
    fake_be_mute(fixture->fake, true);
    assert_int_equal(sink_rabbit.setup(fixture->options, &err), -ETIMEDOUT);
    assert_non_null(strstr(err.text, "within 0.2 s"));
    assert_null(strstr(err.text, "very-secret"));
    assert_int_equal(sink_rabbit.open(&fixture->sink, SINK_INGEST, fixture->options, NULL), 0);
    while (fake_connections(fixture->fake) < 4) { /* and it goes on trying */
        turn(fixture);
        assert_false(sink_rabbit.ready(fixture->sink));
    }
    fake_be_mute(fixture->fake, false);
    UNTIL(sink_rabbit.ready(fixture->sink));
}

/* Each way to lose a connection with tasks on the wire. */
enum loss { CUT, CHANNEL_CLOSE, CONNECTION_CLOSE, GARBAGE, FALSE_CONFIRM, NONSENSE, LOSSES };

static void lose(struct fake_rabbit *fake, enum loss how)
{
    amqp_channel_close_t channel = {.reply_code = AMQP_PRECONDITION_FAILED,
                                    .reply_text = amqp_cstring_bytes("no more")};
    amqp_connection_close_t connection = {.reply_code = AMQP_CONNECTION_FORCED,
                                          .reply_text = amqp_cstring_bytes("shutdown")};
    amqp_basic_get_ok_t nonsense = {.delivery_tag = 1};
    switch (how) {
    case CUT:
        fake_cut(fake);
        break;
    case CHANNEL_CLOSE:
        fake_method(fake, 1, AMQP_CHANNEL_CLOSE_METHOD, &channel);
        break;
    case CONNECTION_CLOSE:
        fake_method(fake, 0, AMQP_CONNECTION_CLOSE_METHOD, &connection);
        break;
    case GARBAGE:
        fake_bytes(fake, "\xff\xff\xff\xff\xff\xff\xff\xff\xff", 9);
        break;
    case FALSE_CONFIRM:
        fake_confirm(fake, 1000, true);
        break;
    case NONSENSE:
        fake_method(fake, 1, AMQP_BASIC_GET_OK_METHOD, &nonsense);
        break;
    case LOSSES:
        break;
    }
}

static void a_loss_is_unknown_and_mended(void **state)
{
    struct fixture *fixture = *state;
    set(fixture, "sink-batch-max", "5");
    open_ingest(fixture);
    for (int how = CUT; how < LOSSES; how++) {
        unsigned before = fixture->count;
        size_t sent = fake_published_count(fixture->fake);
        unsigned connections = fake_connections(fixture->fake);
        UNTIL(sink_rabbit.ready(fixture->sink));
        submit(fixture, 1); /* proves this connection */
        UNTIL(fake_published_count(fixture->fake) == sent + 1);
        fake_confirm(fixture->fake, 1, false);
        UNTIL(settled(fixture) == before + 1);
        submit(fixture, 8); /* five on the wire, three queued */
        UNTIL(fake_published_count(fixture->fake) == sent + 6);
        fake_confirm(fixture->fake, 3, false);
        UNTIL(settled(fixture) == before + 2);
        UNTIL(fake_published_count(fixture->fake) == sent + 7);
        lose(fixture->fake, (enum loss)how);
        UNTIL(settled(fixture) == before + 7);
        const int D = SINK_DURABLE, U = SINK_UNKNOWN, N = NONE;
        expect_outcomes(fixture, (const int[]){D, U, D, U, U, U, U, N, N}, before);
        /* What had not been sent goes out on the next connection. */
        UNTIL(fake_published_count(fixture->fake) == sent + 8);
        assert_true(fake_connections(fixture->fake) > connections);
        fake_confirm(fixture->fake, 1, false);
        UNTIL(fake_published_count(fixture->fake) == sent + 9);
        fake_confirm(fixture->fake, 2, false);
        UNTIL(settled(fixture) == before + 9);
        fake_cut(fixture->fake);
        UNTIL(!sink_rabbit.ready(fixture->sink));
    }
}

static void close_tells_wire_from_queue(void **state)
{
    struct fixture *fixture = *state;
    const int D = SINK_DURABLE, U = SINK_UNKNOWN, R = SINK_REFUSED;
    set(fixture, "sink-batch-max", "3");
    open_ingest(fixture);
    prove(fixture);
    submit(fixture, 5);
    UNTIL(fake_published_count(fixture->fake) == 4);
    sink_rabbit.close(fixture->sink, clock_mono_ns() + 50 * NS_PER_MS);
    fixture->sink = NULL;
    expect_outcomes(fixture, (const int[]){D, U, U, U, R, R}, 0);
}

static void too_long_a_body_is_refused(void **state)
{
    struct fixture *fixture = *state;
    size_t bytes = ((size_t)16 << 20) + 1;
    char *body = xcalloc(1, bytes);
    open_ingest(fixture);
    prove(fixture);
    assert_int_equal(submit_body(fixture, 1, body, bytes), 0);
    assert_int_equal(fixture->outcomes[1], NONE); /* never from submit */
    assert_int_equal(sink_rabbit.due_ns(fixture->sink), 0);
    UNTIL(settled(fixture) == 2);
    assert_int_equal(fixture->outcomes[1], SINK_REFUSED);
    assert_int_equal(submit_body(fixture, 2, body, bytes - 1), 0); /* in 129 frames */
    UNTIL(fake_published_count(fixture->fake) == 2);
    assert_int_equal(fake_published(fixture->fake, 1).body_bytes, bytes - 1);
    free(body);
}

/* ---- who it talks to ---- */

static void expect_setup(struct fixture *fixture, int code, const char *text)
{
    struct err err = {0};
    int rc = sink_rabbit.setup(fixture->options, &err);
    if (rc != code || !strstr(err.text, text) || strstr(err.text, "very-secret")) {
        fail_msg("setup: %d: \"%s\"; wanted %d and \"%s\", and no password", rc, err.text, code,
                 text);
    }
}

static void strangers_are_told_apart(void **state)
{
    struct fixture *fixture = *state;
    fake_refuse_login(fixture->fake, 403, "ACCESS_REFUSED - no");
    expect_setup(fixture, -EACCES, "check user and password");
    fake_refuse_login(fixture->fake, 530, "NOT_ALLOWED - vhost");
    expect_setup(fixture, -ENOENT, "NOT_ALLOWED - vhost");
    fake_greet(fixture->fake, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
    expect_setup(fixture, -EPROTO, "is no AMQP");
    fake_greet(fixture->fake, "AMQP\x03\x01\x00\x00", 8);
    expect_setup(fixture, -EPROTONOSUPPORT, "speaks no AMQP 0-9-1");
    fake_greet(fixture->fake, "\x15\x03\x03\x00\x02\x02\x46", 7); /* a TLS alert, and silence */
    set(fixture, "rabbit-connect-timeout", "100ms");
    expect_setup(fixture, -ETIMEDOUT, "not a word of AMQP");
    set(fixture, "sink-url", "amqp://user:very-secret@127.0.0.1:1");
    expect_setup(fixture, -ECONNREFUSED, "cannot connect");
    set(fixture, "sink-url", "amqp://user:very-secret@no-such-host.invalid");
    set(fixture, "rabbit-connect-timeout", "10s");
    expect_setup(fixture, -EHOSTUNREACH, "cannot be looked up");
    set(fixture, "sink-url", "redis://user:very-secret@127.0.0.1");
    expect_setup(fixture, -EINVAL, "no AMQP URL");
    set(fixture, "sink-url", "amqp://user:very-secret@127.0.0.1");
    set(fixture, "rabbit-queue", "orders");
    expect_setup(fixture, -EINVAL, "must begin with sluice");
}

static void tls_to_a_plain_port_is_said(void **state)
{
    struct fixture *fixture = *state;
    char *url = xasprintf("amqps://user:very-secret@127.0.0.1:%d", fake_port(fixture->fake));
    fake_greet(fixture->fake, "AMQP\x00\x00\x09\x01", 8);
    set(fixture, "sink-url", url);
    expect_setup(fixture, sink_rabbit.setup(fixture->options, NULL), "TLS");
    free(url);
}

/* ---- consuming ---- */

static void open_lane(struct fixture *fixture)
{
    struct err err = {0};
    if (sink_rabbit.open(&fixture->sink, SINK_DRAIN, fixture->options, &err) < 0 ||
        sink_rabbit.lane_open(fixture->sink, 0, &fixture->lane, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

static int fetch(struct fixture *fixture, unsigned max, struct sink_batch *batch)
{
    int count;
    do {
        count = sink_rabbit.fetch(fixture->lane, max, 20, batch);
    } while (count == 0 || count == -ENOTCONN);
    return count;
}

/* Until the lane consumes (once more), so that there is a connection to deliver on. */
static void wait_consumer(struct fixture *fixture)
{
    struct sink_batch batch;
    unsigned before = fake_count(fixture->fake, AMQP_BASIC_QOS_METHOD);
    while (fake_count(fixture->fake, AMQP_BASIC_QOS_METHOD) == before) {
        assert_int_equal(sink_rabbit.fetch(fixture->lane, 3, 5, &batch), 0);
    }
}

static void deliveries_in_pieces(void **state)
{
    struct fixture *fixture = *state;
    struct sink_batch batch;
    uint8_t id[UUID_BYTES];
    open_lane(fixture);
    wait_consumer(fixture);
    for (unsigned i = 1; i <= 3; i++) {
        task_synth_id(9, i, id);
        assert_true(fake_message(fixture->fake, i, id, -5, "a body in two frames", i * 6, true));
    }
    assert_int_equal(fetch(fixture, 3, &batch), 3);
    assert_int_equal(batch.redelivered, 1); /* the fake says so of even tags */
    for (unsigned i = 0; i < 3; i++) {
        task_synth_id(9, i + 1, id);
        assert_memory_equal(batch.tasks[i].id, id, UUID_BYTES);
        assert_int_equal(batch.tasks[i].accepted_us, -5);
        assert_int_equal(batch.tasks[i].body_bytes, 6 * (i + 1));
        assert_memory_equal(batch.tasks[i].body, "a body in two frames", 6 * (i + 1));
    }
    assert_int_equal(sink_rabbit.ack(fixture->lane, &batch), 0);
    while (fake_count(fixture->fake, AMQP_BASIC_ACK_METHOD) == 0) {
        sink_rabbit.keep(fixture->lane);
    }
    assert_true(fake_last_tag(fixture->fake) == (3 | (uint64_t)1 << 63));
}

static void what_is_no_task_is_removed(void **state)
{
    struct fixture *fixture = *state;
    struct sink_batch batch;
    uint8_t id[UUID_BYTES];
    open_lane(fixture);
    wait_consumer(fixture);
    fake_message(fixture->fake, 1, NULL, 0, "somebody else's", 15, false);
    fake_message(fixture->fake, 2, NULL, 0, NULL, 0, false);
    task_synth_id(9, 3, id);
    fake_message(fixture->fake, 3, id, 1, "ours", 4, false);
    assert_int_equal(fetch(fixture, 3, &batch), 1);
    assert_memory_equal(batch.tasks[0].id, id, UUID_BYTES);
    assert_int_equal(fake_count(fixture->fake, AMQP_BASIC_REJECT_METHOD), 2);
    assert_int_equal(sink_rabbit.release(fixture->lane, &batch), 0);
    while (fake_count(fixture->fake, AMQP_BASIC_NACK_METHOD) == 0) {
        sink_rabbit.keep(fixture->lane);
    }
    assert_true(fake_last_tag(fixture->fake) == (3 | (uint64_t)1 << 63));
}

/* An ack on another connection would acknowledge what was delivered there. */
static void a_lost_batch_is_not_acknowledged(void **state)
{
    struct fixture *fixture = *state;
    struct sink_batch batch;
    uint8_t id[UUID_BYTES];
    open_lane(fixture);
    wait_consumer(fixture);
    for (unsigned i = 1; i <= 2; i++) {
        task_synth_id(9, i, id);
        fake_message(fixture->fake, i, id, 1, "body", 4, false);
    }
    assert_int_equal(fetch(fixture, 2, &batch), 2);
    fake_cut(fixture->fake);
    while (sink_rabbit.keep(fixture->lane) == 0) {
        clock_sleep_ns(NS_PER_MS);
    }
    while (fake_connections(fixture->fake) < 2) {
        sink_rabbit.keep(fixture->lane);
        clock_sleep_ns(NS_PER_MS);
    }
    assert_memory_equal(batch.tasks[1].body, "body", 4); /* still ours to read */
    assert_int_equal(sink_rabbit.ack(fixture->lane, &batch), -ENOTCONN);
    wait_consumer(fixture);
    task_synth_id(9, 2, id);
    fake_message(fixture->fake, 1, id, 1, "body", 4, false);
    assert_int_equal(fetch(fixture, 1, &batch), 1);
    assert_int_equal(fake_count(fixture->fake, AMQP_BASIC_ACK_METHOD), 0);
    assert_int_equal(sink_rabbit.ack(fixture->lane, &batch), 0);
}

/* Half a delivery and then nothing: the heartbeat finds out. */
static void a_silent_server_is_left(void **state)
{
    struct fixture *fixture = *state;
    struct sink_batch batch;
    fake_set_heartbeat(fixture->fake, 1);
    open_lane(fixture);
    wait_consumer(fixture);
    fake_bytes(fixture->fake, "\x01\x00\x01\x00\x00\x00\x20\x00\x3c", 9);
    while (fake_connections(fixture->fake) < 2) {
        assert_true(sink_rabbit.fetch(fixture->lane, 3, 50, &batch) <= 0);
    }
}

static void the_lane_keeps_its_heartbeat(void **state)
{
    struct fixture *fixture = *state;
    struct sink_batch batch;
    uint8_t id[UUID_BYTES];
    fake_set_heartbeat(fixture->fake, 1);
    open_lane(fixture);
    wait_consumer(fixture);
    task_synth_id(9, 1, id);
    fake_message(fixture->fake, 1, id, 1, "body", 4, false);
    assert_int_equal(fetch(fixture, 1, &batch), 1);
    for (int i = 0; i < 30; i++) { /* 3 s, as long as the main DB may take */
        fake_bytes(fixture->fake, "\x08\x00\x00\x00\x00\x00\x00\xce", 8);
        assert_int_equal(sink_rabbit.keep(fixture->lane), 0);
        clock_sleep_ns(100 * NS_PER_MS);
    }
    assert_int_equal(sink_rabbit.ack(fixture->lane, &batch), 0);
    assert_int_equal(fake_connections(fixture->fake), 1);
}

static void a_doubtful_zero_is_asked_again(void **state)
{
    struct fixture *fixture = *state;
    struct sink_backlog backlog;
    fake_set_queue(fixture->fake, 17, 4);
    assert_int_equal(sink_rabbit.open(&fixture->sink, SINK_PROBE, fixture->options, NULL), 0);
    while (sink_rabbit.backlog(fixture->sink, &backlog) != 0) {
    }
    assert_int_equal(backlog.tasks, 17);
    assert_true(backlog.exact);
    fake_set_queue(fixture->fake, 0, 0);
    unsigned asked = fake_count(fixture->fake, AMQP_QUEUE_DECLARE_METHOD);
    while (backlog.tasks == 17) {
        assert_int_equal(sink_rabbit.backlog(fixture->sink, &backlog), 0);
    }
    assert_int_equal(backlog.tasks, 0);
    /* Two rounds at least, of one queue and the counting ones. */
    assert_true(fake_count(fixture->fake, AMQP_QUEUE_DECLARE_METHOD) >= asked + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_published, setup, teardown),
        cmocka_unit_test_setup_teardown(confirms_in_any_order, setup, teardown),
        cmocka_unit_test_setup_teardown(a_nack_is_unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(the_window_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(a_return_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lost_queue_is_made_again, setup, teardown),
        cmocka_unit_test_setup_teardown(blocked_takes_and_sends_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_silent_peer_holds_nobody, setup, teardown),
        cmocka_unit_test_setup_teardown(silent_from_the_start, setup, teardown),
        cmocka_unit_test_setup_teardown(a_loss_is_unknown_and_mended, setup, teardown),
        cmocka_unit_test_setup_teardown(close_tells_wire_from_queue, setup, teardown),
        cmocka_unit_test_setup_teardown(too_long_a_body_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(strangers_are_told_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(tls_to_a_plain_port_is_said, setup, teardown),
        cmocka_unit_test_setup_teardown(deliveries_in_pieces, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_no_task_is_removed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lost_batch_is_not_acknowledged, setup, teardown),
        cmocka_unit_test_setup_teardown(a_silent_server_is_left, setup, teardown),
        cmocka_unit_test_setup_teardown(the_lane_keeps_its_heartbeat, setup, teardown),
        cmocka_unit_test_setup_teardown(a_doubtful_zero_is_asked_again, setup, teardown),
    };
    signal(SIGPIPE, SIG_IGN);
    log_init("test_rabbit");
    log_set_level(LOG_LEVEL_ERROR); /* losses are what this is about */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

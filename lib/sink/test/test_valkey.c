/* Oracle: the real server, read by a plain connection: what is DURABLE is in the stream with the
 * same bytes, what is REFUSED is not, however the connection or the server ended; and the server's
 * own list of pending entries. SLUICE_TEST_VALKEY_URL and _CONTROL say where it is and who can stop
 * it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "server_control.h"
#include "sink/drivers.h"
#include "valkey_peer.h"
#include "valkey_sender.h"
#include "valkey_server.h"

static char stream[64];
static redisContext *server; /* a plain connection */
static struct sender sender; /* large */

static long long ask_integer(const char *format, const char *argument)
{
    redisReply *reply = redisCommand(server, format, argument);
    assert_non_null(reply);
    long long value = reply->type == REDIS_REPLY_INTEGER ? reply->integer : -1;
    freeReplyObject(reply);
    return value;
}

static void tell(const char *format, const char *argument)
{
    redisReply *reply = redisCommand(server, format, argument);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR) {
        fail_msg("%s: %s", format, reply->str);
    }
    freeReplyObject(reply);
}

static void reconnect(void)
{
    redisFree(server);
    server = NULL;
    for (int i = 0; i < 500 && !server; i++) {
        server = valkey_server_connect();
        usleep(server ? 0 : 10000);
    }
    assert_non_null(server);
}

static struct options *options_now(int port)
{
    struct options *options = valkey_options(port, valkey_server_password(), stream);
    set_option(options, "valkey-deadline", "3s");
    return options;
}

static int setup(void **state)
{
    static unsigned round;
    struct err err = {0};
    (void)state;
    snprintf(stream, sizeof(stream), "sluice:test:%d:%u", (int)getpid(), round++);
    reconnect();
    struct options *options = options_now(valkey_server_port());
    int rc = sink_valkey.setup(options, &err);
    options_free(options);
    if (rc != 0) {
        print_error("setup: %s\n", err.text);
    }
    return rc;
}

static int teardown(void **state)
{
    (void)state;
    reconnect();
    tell("DEL %s", stream);
    redisFree(server);
    server = NULL;
    return 0;
}

/* How often each task is in the stream, with the bytes that were sent (body_bytes of each the
 * same). */
static void count_stored(unsigned *stored, size_t body_bytes)
{
    redisReply *reply = redisCommand(server, "XRANGE %s - +", stream);
    char *body = malloc(body_bytes + 1);
    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    memset(stored, 0, SENDER_TASKS_MAX * sizeof(*stored));
    for (size_t i = 0; i < reply->elements; i++) {
        const redisReply *fields = reply->element[i]->element[1];
        assert_int_equal(fields->elements, 6);
        unsigned number = (unsigned)strtoul(fields->element[3]->str, NULL, 10);
        uint8_t id[UUID_BYTES];
        task_synth_id(7, number, id);
        sender_body(number, body_bytes, body);
        assert_true(number < SENDER_TASKS_MAX);
        assert_int_equal(fields->element[1]->len, UUID_BYTES);
        assert_memory_equal(fields->element[1]->str, id, UUID_BYTES);
        assert_int_equal(fields->element[5]->len, body_bytes);
        assert_memory_equal(fields->element[5]->str, body, body_bytes);
        stored[number]++;
    }
    free(body);
    freeReplyObject(reply);
}

static void check_outcomes(size_t body_bytes)
{
    unsigned *stored = calloc(SENDER_TASKS_MAX, sizeof(*stored));
    count_stored(stored, body_bytes);
    for (unsigned i = 0; i < sender.count; i++) {
        if (sender.outcome[i] == SINK_DURABLE && stored[i] != 1) {
            fail_msg("task %u of %u is DURABLE and stored %u times", i, sender.count, stored[i]);
        }
        if (sender.outcome[i] == SINK_REFUSED && stored[i] != 0) {
            fail_msg("task %u of %u is REFUSED and stored", i, sender.count);
        }
        assert_true(stored[i] <= 1); /* nothing is sent twice by itself, UNKNOWN neither */
    }
    free(stored);
}

/* ---- the ingest side ---- */

/* Cuts every connection after each number of bytes in turn, in both directions: in the greeting, in
 * and between commands and answers. */
static void cut_at_every_phase(void **state)
{
    struct peer *peer = peer_proxy(valkey_server_port());
    (void)state;
    sender_open(&sender, options_now(peer_port(peer)));
    for (long cut = 1; cut < 1800; cut += cut < 200 ? 3 : 41) {
        bool up = (cut / 3) % 2 == 0;
        peer_cut_after(peer, up ? cut : -1, up ? -1 : cut);
        /* Which is in force for those made from now on: so end those that there are. */
        tell("CLIENT KILL TYPE normal SKIPME %s", "yes");
        for (int i = 0; i < 6; i++) {
            sender_turn(&sender, 10 * NS_PER_MS);
            for (int k = 0; k < 3 && sink_valkey.ready(sender.sink); k++) {
                sender_submit(&sender, 150, 0);
            }
        }
        peer_cut_after(peer, -1, -1);
        assert_true(sender_ready_within(&sender, 10 * NS_PER_S));
        sender_submit(&sender, 150, 0);
        assert_true(sender_settled_within(&sender, 10 * NS_PER_S));
    }
    assert_true(sender.outcomes[SINK_DURABLE] > 100);
    assert_true(sender.outcomes[SINK_UNKNOWN] > 0); /* else no cut fell where it should */
    sender_close(&sender, NS_PER_S);
    peer_end(peer);
    check_outcomes(150);
}

static void large_bodies_cut(void **state)
{
    struct peer *peer = peer_proxy(valkey_server_port());
    (void)state;
    sender_open(&sender, options_now(peer_port(peer)));
    assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
    for (int round = 0; round < 4; round++) {
        peer_cut_after(peer, 3000000 + 700001 * round, -1);
        tell("CLIENT KILL TYPE normal SKIPME %s", "yes");
        assert_true(sender_ready_within(&sender, 10 * NS_PER_S) ||
                    sender_ready_within(&sender, 10 * NS_PER_S));
        for (int i = 0; i < 12 && sink_valkey.ready(sender.sink); i++) {
            sender_submit(&sender, 1000000, 0);
        }
        assert_true(sender_settled_within(&sender, 20 * NS_PER_S));
    }
    sender_close(&sender, 5 * NS_PER_S);
    peer_end(peer);
    check_outcomes(1000000);
}

static void server_killed_and_started(void **state)
{
    struct err err = {0};
    (void)state;
    sender_open(&sender, options_now(valkey_server_port()));
    for (int round = 0; round < 3; round++) {
        assert_true(sender_ready_within(&sender, 10 * NS_PER_S));
        for (int i = 0; i < 400; i++) {
            if (sink_valkey.ready(sender.sink)) {
                sender_submit(&sender, 300, 0);
            }
            if (i % 20 == 19) {
                sender_turn(&sender, 0);
            }
        }
        assert_int_equal(server_control("valkey", "kill", &err), 0);
        int64_t until_ns = clock_mono_ns() + 5 * NS_PER_S;
        while (sink_valkey.ready(sender.sink) && clock_mono_ns() < until_ns) {
            sender_turn(&sender, 5 * NS_PER_MS);
        }
        assert_false(sink_valkey.ready(sender.sink));
        sender_submit(&sender, 300, -EAGAIN);
        assert_int_equal(server_control("valkey", "start", &err), 0);
        assert_true(sender_settled_within(&sender, 10 * NS_PER_S));
    }
    sender_close(&sender, NS_PER_S);
    assert_true(sender.outcomes[SINK_DURABLE] > 0);
    reconnect();
    check_outcomes(300);
}

static void server_paused_past_the_deadline(void **state)
{
    struct err err = {0};
    struct options *options = options_now(valkey_server_port());
    (void)state;
    set_option(options, "valkey-deadline", "700ms");
    sender_open(&sender, options);
    assert_true(sender_ready_within(&sender, 10 * NS_PER_S));
    for (int i = 0; i < 100; i++) {
        sender_submit(&sender, 300, 0);
    }
    assert_true(sender_settled_within(&sender, 10 * NS_PER_S));
    assert_int_equal(server_control("valkey", "pause", &err), 0);
    for (int i = 0; i < 500; i++) {
        sender_submit(&sender, 300, 0);
    }
    assert_true(sender_settled_within(&sender, 10 * NS_PER_S));
    assert_int_equal(sender.outcomes[SINK_DURABLE], 100);
    assert_true(sender.outcomes[SINK_UNKNOWN] >= 50);  /* a window at least */
    assert_true(sender.outcomes[SINK_REFUSED] >= 200); /* four windows are 200 */
    assert_false(sink_valkey.ready(sender.sink));
    assert_int_equal(server_control("valkey", "resume", &err), 0);
    assert_true(sender_ready_within(&sender, 10 * NS_PER_S));
    sender_submit(&sender, 300, 0);
    assert_true(sender_settled_within(&sender, 10 * NS_PER_S));
    assert_int_equal(sender.outcome[600], SINK_DURABLE);
    sender_close(&sender, NS_PER_S);
    check_outcomes(300);
}

static void no_room_is_refused(void **state)
{
    redisReply *before = redisCommand(server, "CONFIG GET maxmemory");
    char text[32];
    (void)state;
    assert_int_equal(before->elements, 2);
    sender_open(&sender, options_now(valkey_server_port()));
    assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
    sender_submit(&sender, 1000, 0);
    assert_true(sender_settled_within(&sender, 5 * NS_PER_S));
    tell("CONFIG SET maxmemory %s", "100000"); /* less than an empty one takes */
    for (int i = 0; i < 10; i++) {
        sender_submit(&sender, 1000, 0);
    }
    assert_true(sender_settled_within(&sender, 5 * NS_PER_S));
    assert_int_equal(sender.outcomes[SINK_REFUSED], 10);
    snprintf(text, sizeof(text), "%s", before->element[1]->str);
    tell("CONFIG SET maxmemory %s", text);
    assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
    sender_submit(&sender, 1000, 0);
    assert_true(sender_settled_within(&sender, 5 * NS_PER_S));
    assert_int_equal(sender.outcomes[SINK_DURABLE], 2);
    sender_close(&sender, NS_PER_S);
    freeReplyObject(before);
    check_outcomes(1000);
}

static void the_backlog_comes_along(void **state)
{
    struct sink_backlog backlog;
    (void)state;
    sender_open(&sender, options_now(valkey_server_port()));
    assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
    for (int i = 0; i < 70; i++) {
        sender_submit(&sender, 1000, 0);
    }
    assert_true(sender_settled_within(&sender, 5 * NS_PER_S));
    int64_t until_ns = clock_mono_ns() + 5 * NS_PER_S;
    do {
        sender_turn(&sender, 10 * NS_PER_MS);
        assert_int_equal(sink_valkey.backlog(sender.sink, &backlog), 0);
    } while ((backlog.tasks != 70 || backlog.bytes < 70000) && clock_mono_ns() < until_ns);
    assert_int_equal(backlog.tasks, 70);
    assert_true(backlog.exact && backlog.bytes >= 70000);
    sender_close(&sender, NS_PER_S);
}

/* ---- setup and preflight ---- */

static void expect_err(int rc, const struct err *err, int code, const char *says)
{
    if (rc != code || !strstr(err->text, says)) {
        fail_msg("%d (%s), wanted %d with \"%s\"", rc, err->text, code, says);
    }
    assert_null(strstr(err->text, valkey_server_password()));
}

static void mistakes_are_told(void **state)
{
    struct err err = {0};
    char url[128];
    (void)state;
    struct options *options = valkey_options(valkey_server_port(), "wrong", stream);
    expect_err(sink_valkey.setup(options, &err), &err, -EACCES, "refuses the user or the password");
    options_free(options);
    options = valkey_options(valkey_server_port(), NULL, stream);
    expect_err(sink_valkey.setup(options, &err), &err, -EACCES, "the URL has none");
    options_free(options);
    options = options_now(valkey_server_port());
    snprintf(url, sizeof(url), "redis://:%s@127.0.0.1:%d/4711", valkey_server_password(),
             valkey_server_port());
    set_option(options, "sink-url", url);
    expect_err(sink_valkey.setup(options, &err), &err, -EINVAL, "no database 4711");
    options_free(options);
    tell("DEL %s", stream);
    tell("RPUSH %s 1", stream);
    options = options_now(valkey_server_port());
    expect_err(sink_valkey.setup(options, &err), &err, -EEXIST, "is a list, not a stream");
    options_free(options);
}

static void preflight_reads_the_settings_back(void **state)
{
    struct err err = {0};
    struct options *options = options_now(valkey_server_port());
    static const struct {
        const char *name, *wrong, *right;
    } settings[] = {{"appendfsync", "everysec", "always"},
                    {"no-appendfsync-on-rewrite", "yes", "no"},
                    {"maxmemory-policy", "allkeys-lru", "noeviction"}};
    (void)state;
    assert_int_equal(sink_valkey.preflight(options, &err), 0);
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        char says[100];
        freeReplyObject(
            redisCommand(server, "CONFIG SET %s %s", settings[i].name, settings[i].wrong));
        snprintf(says, sizeof(says), "%s is \"%s\"; wanted: \"%s\"", settings[i].name,
                 settings[i].wrong, settings[i].right);
        int rc = sink_valkey.preflight(options, &err);
        freeReplyObject(
            redisCommand(server, "CONFIG SET %s %s", settings[i].name, settings[i].right));
        expect_err(rc, &err, -EPERM, says);
    }
    /* Snapshots void nothing. */
    freeReplyObject(redisCommand(server, "CONFIG SET save %s", "3600 1"));
    int rc = sink_valkey.preflight(options, &err);
    freeReplyObject(redisCommand(server, "CONFIG SET save %s", ""));
    assert_int_equal(rc, 0);
    assert_int_equal(sink_valkey.preflight(options, &err), 0);
    options_free(options);
}

/* A user who may do what a task needs, and no more. */
static void a_user_with_few_rights(void **state)
{
    struct err err = {0};
    char url[128];
    (void)state;
    tell("ACL SETUSER sluice-test reset on >pw ~sluice* +@stream +type +multi +exec +select %s",
         "+auth");
    struct options *options = options_now(valkey_server_port());
    snprintf(url, sizeof(url), "redis://sluice-test:pw@127.0.0.1:%d", valkey_server_port());
    set_option(options, "sink-url", url);
    assert_int_equal(sink_valkey.setup(options, &err), 0);
    expect_err(sink_valkey.preflight(options, &err), &err, -ENODATA, "could not be read back");
    sender_open(&sender, options);
    assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
    sender_submit(&sender, 10, 0);
    assert_true(sender_settled_within(&sender, 5 * NS_PER_S));
    assert_int_equal(sender.outcomes[SINK_DURABLE], 1);
    sender_close(&sender, NS_PER_S);
    tell("ACL DELUSER %s", "sluice-test");
}

static void removal_takes_the_stream_and_nothing_else(void **state)
{
    struct err err = {0};
    char *beside = xasprintf("%s:beside", stream);
    struct options *options = options_now(valkey_server_port());
    (void)state;
    tell("SET %s 1", beside);
    tell("XADD %s * a b", stream);
    assert_int_equal(sink_valkey.remove(options, &err), 0);
    assert_int_equal(ask_integer("EXISTS %s", stream), 0);
    assert_int_equal(ask_integer("EXISTS %s", beside), 1);
    assert_int_equal(sink_valkey.remove(options, &err), 0); /* nothing there */
    tell("RPUSH %s 1", stream);
    expect_err(sink_valkey.remove(options, &err), &err, -EEXIST, "is a list, not a stream");
    assert_int_equal(ask_integer("EXISTS %s", stream), 1); /* somebody else's */
    tell("DEL %s", beside);
    options_free(options);
    free(beside);
}

static void held_by_one_at_a_time(void **state)
{
    struct err err = {0};
    struct sink_hold *hold = NULL, *other = NULL;
    char *key = xasprintf("%s:lock", stream);
    struct options *options = options_now(valkey_server_port());
    (void)state;
    assert_int_equal(sink_valkey.hold(&hold, options, &err), 0);
    expect_err(sink_valkey.hold(&other, options, &err), &err, -EBUSY, "another sluice is at work");
    assert_in_range(ask_integer("PTTL %s", key), 1, 15000); /* a killed one's goes by itself */
    assert_int_equal(sink_valkey.hold_keep(hold, &err), 0);
    tell("DEL %s", key); /* as a server that forgot it */
    assert_int_equal(sink_valkey.hold_keep(hold, &err), 0);
    assert_int_equal(ask_integer("EXISTS %s", key), 1);
    tell("CLIENT KILL TYPE %s", "normal");
    assert_int_equal(sink_valkey.hold_keep(hold, &err), -ENOTCONN);
    assert_int_equal(sink_valkey.hold_keep(hold, &err), 0);
    sink_valkey.hold_end(hold);
    assert_int_equal(ask_integer("EXISTS %s", key), 0);

    assert_int_equal(sink_valkey.hold(&hold, options, &err), 0);
    tell("SET %s another", key);
    expect_err(sink_valkey.hold_keep(hold, &err), &err, -EBUSY, "another sluice is at work");
    sink_valkey.hold_end(hold);
    assert_int_equal(ask_integer("EXISTS %s", key), 1); /* it is the other's */
    tell("DEL %s", key);
    options_free(options);
    free(key);
}

/* ---- the drain side ---- */

struct drain {
    struct options *options;
    struct sink *sink;
    struct sink_lane *lanes[2];
    struct sink_batch batch;
};

static void drain_open(struct drain *drain, int port, unsigned lanes)
{
    struct err err = {0};
    *drain = (struct drain){.options = options_now(port)};
    set_option(drain->options, "valkey-claim-after", "2s");
    assert_int_equal(sink_valkey.open(&drain->sink, SINK_DRAIN, drain->options, &err), 0);
    for (unsigned i = 0; i < lanes; i++) {
        int rc = sink_valkey.lane_open(drain->sink, i, &drain->lanes[i], &err);
        if (rc != 0) {
            fail_msg("lane_open: %d: %s", rc, err.text);
        }
    }
}

static void drain_close(struct drain *drain)
{
    for (unsigned i = 0; i < 2; i++) {
        if (drain->lanes[i]) {
            sink_valkey.lane_close(drain->lanes[i]);
        }
    }
    sink_valkey.close(drain->sink, 0);
    options_free(drain->options);
}

static void send_tasks(unsigned count)
{
    sender_open(&sender, options_now(valkey_server_port()));
    assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
    for (unsigned i = 0; i < count; i++) {
        sender_submit(&sender, 100, 0);
    }
    assert_true(sender_settled_within(&sender, 10 * NS_PER_S));
    assert_int_equal(sender.outcomes[SINK_DURABLE], count);
    sender_close(&sender, NS_PER_S);
}

/* Fetches until `wanted` came or nothing more does; errors pass. */
static unsigned fetch_within(struct drain *drain, unsigned lane, unsigned wanted, bool ack)
{
    int64_t until_ns = clock_mono_ns() + 10 * NS_PER_S;
    unsigned got = 0;
    while (got < wanted && clock_mono_ns() < until_ns) {
        int count = sink_valkey.fetch(drain->lanes[lane], wanted - got, 50, &drain->batch);
        got += count > 0 ? (unsigned)count : 0;
        if (count > 0 && ack) {
            assert_int_equal(sink_valkey.ack(drain->lanes[lane], &drain->batch), 0);
        } else if (count > 0) {
            break;
        }
    }
    return got;
}

static long long pending(void)
{
    redisReply *reply = redisCommand(server, "XPENDING %s sluice", stream);
    long long count = reply->type == REDIS_REPLY_ARRAY ? reply->element[0]->integer : -1;
    freeReplyObject(reply);
    return count;
}

static void an_ack_leaves_nothing(void **state)
{
    struct drain drain;
    (void)state;
    send_tasks(50);
    drain_open(&drain, valkey_server_port(), 1);
    assert_int_equal(fetch_within(&drain, 0, 50, false), 50);
    assert_int_equal(pending(), 50);
    assert_int_equal(drain.batch.redelivered, 0);
    assert_int_equal(sink_valkey.ack(drain.lanes[0], &drain.batch), 0);
    assert_int_equal(pending(), 0);
    assert_int_equal(ask_integer("XLEN %s", stream), 0);
    drain_close(&drain);
}

static void a_lost_group_begins_again(void **state)
{
    struct drain drain;
    (void)state;
    send_tasks(20);
    drain_open(&drain, valkey_server_port(), 1);
    assert_int_equal(fetch_within(&drain, 0, 5, true), 5);
    tell("XGROUP DESTROY %s sluice", stream);
    assert_int_equal(fetch_within(&drain, 0, 15, true), 15);
    tell("DEL %s", stream); /* as FLUSHALL would */
    assert_int_equal(sink_valkey.fetch(drain.lanes[0], 1, 10, &drain.batch), 0);
    send_tasks(7);
    assert_int_equal(fetch_within(&drain, 0, 7, true), 7);
    drain_close(&drain);
}

/* Lane 1 takes over what lane 0 no longer keeps; what it keeps, it keeps. */
static void the_idle_is_claimed_and_the_kept_is_not(void **state)
{
    struct drain drain;
    (void)state;
    send_tasks(30);
    drain_open(&drain, valkey_server_port(), 2);
    struct sink_batch held = {0};
    assert_int_equal(sink_valkey.fetch(drain.lanes[0], 10, 100, &held), 10);
    int64_t until_ns = clock_mono_ns() + 9 * NS_PER_S; /* two looks at least, and claim-after */
    unsigned got = 0;
    while (clock_mono_ns() < until_ns) {
        assert_int_equal(sink_valkey.keep(drain.lanes[0]), 0);
        int count = sink_valkey.fetch(drain.lanes[1], 100, 200, &drain.batch);
        assert_true(count >= 0);
        got += (unsigned)count;
        if (count > 0) {
            assert_int_equal(drain.batch.redelivered, 0);
            assert_int_equal(sink_valkey.ack(drain.lanes[1], &drain.batch), 0);
        }
    }
    assert_int_equal(got, 20);
    /* Now it is silent. */
    int count = 0;
    until_ns = clock_mono_ns() + 15 * NS_PER_S;
    while (count == 0 && clock_mono_ns() < until_ns) {
        count = sink_valkey.fetch(drain.lanes[1], 100, 200, &drain.batch);
    }
    assert_int_equal(count, 10);
    assert_int_equal(drain.batch.redelivered, 10);
    assert_int_equal(sink_valkey.ack(drain.lanes[1], &drain.batch), 0);
    assert_int_equal(sink_valkey.ack(drain.lanes[0], &held), 0); /* too late does no harm */
    assert_int_equal(ask_integer("XLEN %s", stream), 0);
    drain_close(&drain);
}

/* A lane that is cut off in every phase loses nothing and acknowledges what it could not before. */
static void lanes_cut_at_every_phase(void **state)
{
    struct peer *peer = peer_proxy(valkey_server_port());
    struct drain drain;
    unsigned char *seen = calloc(SENDER_TASKS_MAX, 1);
    unsigned failures = 0;
    (void)state;
    send_tasks(300);
    drain_open(&drain, peer_port(peer), 1);
    int64_t until_ns = clock_mono_ns() + 40 * NS_PER_S;
    for (long cut = 10; ask_integer("XLEN %s", stream) > 0; cut += 23) {
        assert_true(clock_mono_ns() < until_ns);
        bool up = (cut / 23) % 2 == 0;
        peer_cut_after(peer, cut > 3000 ? -1 : up ? cut : -1, cut > 3000 ? -1 : up ? -1 : cut);
        tell("CLIENT KILL TYPE normal SKIPME %s", "yes");
        int count = sink_valkey.fetch(drain.lanes[0], 5, 20, &drain.batch);
        for (int i = 0; i < count; i++) {
            seen[drain.batch.tasks[i].accepted_us] = 1;
        }
        if (count > 0) {
            sink_valkey.keep(drain.lanes[0]);
            failures += sink_valkey.ack(drain.lanes[0], &drain.batch) < 0;
        } else {
            failures += count < 0;
            usleep(5000);
        }
    }
    assert_true(failures > 10); /* else no cut fell where it should */
    for (unsigned i = 0; i < 300; i++) {
        if (!seen[i]) {
            fail_msg("task %u is gone, and no lane got it", i);
        }
    }
    assert_int_equal(pending(), 0);
    drain_close(&drain);
    peer_end(peer);
    free(seen);
}

static void what_is_no_task_is_out_of_the_way(void **state)
{
    struct drain drain;
    (void)state;
    tell("XADD %s * some thing", stream);
    send_tasks(3);
    tell("XADD %s * id short t 1 b x", stream);
    drain_open(&drain, valkey_server_port(), 1);
    assert_int_equal(fetch_within(&drain, 0, 3, true), 3);
    assert_int_equal(sink_valkey.fetch(drain.lanes[0], 10, 10, &drain.batch), 0);
    assert_int_equal(ask_integer("XLEN %s", stream), 0);
    assert_int_equal(pending(), 0);
    drain_close(&drain);
}

/* Entries deleted by hand while a lane held them. */
static void the_deleted_is_passed_over(void **state)
{
    struct drain drain;
    (void)state;
    send_tasks(10);
    drain_open(&drain, valkey_server_port(), 1);
    assert_int_equal(fetch_within(&drain, 0, 10, false), 10);
    redisReply *range = redisCommand(server, "XRANGE %s - + COUNT 4", stream);
    for (size_t i = 0; i < range->elements; i++) {
        freeReplyObject(
            redisCommand(server, "XDEL %s %s", stream, range->element[i]->element[0]->str));
    }
    freeReplyObject(range);
    assert_int_equal(sink_valkey.release(drain.lanes[0], &drain.batch), 0);
    assert_int_equal(fetch_within(&drain, 0, 6, true), 6);
    assert_int_equal(pending(), 0);
    drain_close(&drain);
}

static void a_batch_outlives_the_server(void **state)
{
    struct err err = {0};
    struct drain drain;
    (void)state;
    send_tasks(10);
    drain_open(&drain, valkey_server_port(), 1);
    assert_int_equal(fetch_within(&drain, 0, 10, false), 10);
    assert_int_equal(server_control("valkey", "kill", &err), 0);
    assert_true(sink_valkey.keep(drain.lanes[0]) < 0);
    assert_true(sink_valkey.ack(drain.lanes[0], &drain.batch) < 0);
    assert_true(sink_valkey.fetch(drain.lanes[0], 10, 10, &drain.batch) < 0);
    assert_int_equal(server_control("valkey", "start", &err), 0);
    reconnect();
    assert_int_equal(fetch_within(&drain, 0, 10, false), 10);
    assert_int_equal(drain.batch.redelivered, 10);
    assert_int_equal(sink_valkey.ack(drain.lanes[0], &drain.batch), 0);
    assert_int_equal(ask_integer("XLEN %s", stream), 0);
    drain_close(&drain);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    log_init("test_valkey");
    log_set_level(LOG_LEVEL_ERROR);
    if (!valkey_server_url() || !server_can_be_controlled("valkey")) {
        const char *ci = getenv("CI");
        printf(
            "SKIP: no server: SLUICE_TEST_VALKEY_URL and SLUICE_TEST_VALKEY_CONTROL are not set; "
            "run it below `sluice with valkey --`\n");
        return ci && strcmp(ci, "true") == 0 ? 1 : 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cut_at_every_phase, setup, teardown),
        cmocka_unit_test_setup_teardown(large_bodies_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(server_killed_and_started, setup, teardown),
        cmocka_unit_test_setup_teardown(server_paused_past_the_deadline, setup, teardown),
        cmocka_unit_test_setup_teardown(no_room_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(the_backlog_comes_along, setup, teardown),
        cmocka_unit_test_setup_teardown(mistakes_are_told, setup, teardown),
        cmocka_unit_test_setup_teardown(preflight_reads_the_settings_back, setup, teardown),
        cmocka_unit_test_setup_teardown(a_user_with_few_rights, setup, teardown),
        cmocka_unit_test_setup_teardown(held_by_one_at_a_time, setup, teardown),
        cmocka_unit_test_setup_teardown(removal_takes_the_stream_and_nothing_else, setup, teardown),
        cmocka_unit_test_setup_teardown(an_ack_leaves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lost_group_begins_again, setup, teardown),
        cmocka_unit_test_setup_teardown(the_idle_is_claimed_and_the_kept_is_not, setup, teardown),
        cmocka_unit_test_setup_teardown(lanes_cut_at_every_phase, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_no_task_is_out_of_the_way, setup, teardown),
        cmocka_unit_test_setup_teardown(the_deleted_is_passed_over, setup, teardown),
        cmocka_unit_test_setup_teardown(a_batch_outlives_the_server, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

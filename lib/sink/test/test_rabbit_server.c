/* Oracle: what a real RabbitMQ holds afterwards, taken out through a lane of the driver: what was
 * DURABLE is there, what was REFUSED is not; and what its preflight must find in queues that the
 * test has made otherwise, with rabbitmq-c alone. No time is measured. */
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
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "server_control.h"
#include "sink/drivers.h"
#include "sink/rabbitmq_c.h"

enum { SENT_MAX = 4000, NONE = -1 };

struct fixture {
    struct options *options;
    char queue[64];
    struct sink *api, *worker;
    struct sink_lane *lane;
    struct sent {
        struct fixture *fixture;
        int outcome;
        unsigned stored; /* how often it came out */
    } sent[SENT_MAX];
    unsigned count, settled;
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
    fixture->options = options_new("test", "");
    options_add(fixture->options, "Sink", sink_common_options);
    options_add(fixture->options, "Sink", sink_rabbit_options);
    snprintf(fixture->queue, sizeof(fixture->queue), "sluice-test-%d-%lld", getpid(),
             (long long)clock_wall_us());
    set(fixture, "sink-url", server_url("rabbit"));
    set(fixture, "rabbit-queue", fixture->queue);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    if (fixture->lane) {
        sink_rabbit.lane_close(fixture->lane);
    }
    sink_rabbit.close(fixture->worker, 0);
    sink_rabbit.close(fixture->api, 0);
    set(fixture, "sink-url", server_url("rabbit"));
    sink_rabbit.remove(fixture->options, NULL);
    options_free(fixture->options);
    free(fixture);
    return 0;
}

static void control(const char *command)
{
    struct err err = {0};
    if (server_control("rabbit", command, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

static void run_setup(struct fixture *fixture)
{
    struct err err = {0};
    if (sink_rabbit.setup(fixture->options, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

static void done(void *arg, enum sink_outcome outcome, unsigned batch)
{
    struct sent *sent = arg;
    assert_int_equal(sent->outcome, NONE);
    assert_true(batch >= 1);
    sent->outcome = (int)outcome;
    sent->fixture->settled++;
}

static void turn(struct fixture *fixture)
{
    int64_t due_ns = sink_rabbit.due_ns(fixture->api);
    int wait_ms = due_ns < 0 || due_ns > 20 * NS_PER_MS ? 20 : (int)(due_ns / NS_PER_MS);
    struct pollfd polled = {.fd = sink_rabbit.fd(fixture->api), .events = POLLIN};
    poll(&polled, 1, wait_ms);
    assert_int_equal(sink_rabbit.process(fixture->api), 0);
}

static void wait_ready(struct fixture *fixture, bool ready)
{
    while (sink_rabbit.ready(fixture->api) != ready) {
        turn(fixture);
    }
}

static void open_api(struct fixture *fixture)
{
    assert_int_equal(sink_rabbit.open(&fixture->api, SINK_INGEST, fixture->options, NULL), 0);
    wait_ready(fixture, true);
}

/* Submits what is taken at once; returns how many were. */
static unsigned submit(struct fixture *fixture, unsigned count)
{
    unsigned taken = 0;
    for (unsigned i = 0; i < count; i++) {
        struct sent *sent = &fixture->sent[fixture->count];
        struct task task = {.accepted_us = fixture->count, .body = "a body", .body_bytes = 6};
        assert_true(fixture->count < SENT_MAX);
        *sent = (struct sent){.fixture = fixture, .outcome = NONE};
        task_synth_id(5, fixture->count, task.id);
        if (sink_rabbit.submit(fixture->api, &task, done, sent) == 0) {
            fixture->count++;
            taken++;
        }
    }
    return taken;
}

static void settle(struct fixture *fixture)
{
    while (fixture->settled < fixture->count) {
        turn(fixture);
    }
}

static unsigned outcomes(const struct fixture *fixture, unsigned from, enum sink_outcome outcome)
{
    unsigned count = 0;
    for (unsigned i = from; i < fixture->count; i++) {
        count += fixture->sent[i].outcome == (int)outcome;
    }
    return count;
}

static void open_lane(struct fixture *fixture, unsigned number)
{
    struct err err = {0};
    if (!fixture->worker) {
        assert_int_equal(sink_rabbit.open(&fixture->worker, SINK_DRAIN, fixture->options, NULL), 0);
    }
    if (sink_rabbit.lane_open(fixture->worker, number, &fixture->lane, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

static void count_stored(struct fixture *fixture, const struct sink_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        int64_t number = batch->tasks[i].accepted_us;
        assert_in_range(number, 0, fixture->count - 1);
        fixture->sent[number].stored++;
    }
}

/* Until the queue is empty, and is said to be. */
static void drain_all(struct fixture *fixture)
{
    struct sink_batch batch;
    int empty = 0;
    if (!fixture->lane) {
        open_lane(fixture, 0);
    }
    while (empty < 5) {
        int got = sink_rabbit.fetch(fixture->lane, 100, 100, &batch);
        empty = got == 0 ? empty + 1 : 0;
        if (got > 0) {
            count_stored(fixture, &batch);
            assert_int_equal(sink_rabbit.ack(fixture->lane, &batch), 0);
        }
    }
}

static void check_stored(const struct fixture *fixture)
{
    for (unsigned i = 0; i < fixture->count; i++) {
        const struct sent *sent = &fixture->sent[i];
        if (sent->outcome == SINK_DURABLE && sent->stored == 0) {
            fail_msg("task %u was DURABLE and is lost", i);
        }
        if (sent->outcome == SINK_REFUSED && sent->stored > 0) {
            fail_msg("task %u was REFUSED and is stored", i);
        }
    }
}

/* ---- queues of others ---- */

static amqp_connection_state_t connect_by_hand(void)
{
    struct amqp_connection_info info;
    char *url = xstrdup(server_url("rabbit"));
    amqp_default_connection_info(&info);
    assert_int_equal(amqp_parse_url(url, &info), AMQP_STATUS_OK);
    amqp_connection_state_t connection = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(connection);
    assert_int_equal(amqp_socket_open(socket, info.host, info.port), AMQP_STATUS_OK);
    amqp_login(connection, info.vhost, 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, info.user,
               info.password);
    amqp_channel_open(connection, 1);
    free(url);
    return connection;
}

static void end_by_hand(amqp_connection_state_t connection)
{
    assert_int_equal(amqp_get_rpc_reply(connection).reply_type, AMQP_RESPONSE_NORMAL);
    amqp_connection_close(connection, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(connection);
}

static void declare_by_hand(const struct fixture *fixture, const char *type, const char *key,
                            int value)
{
    amqp_table_entry_t entries[2] = {{.key = amqp_cstring_bytes("x-queue-type")},
                                     {.key = amqp_cstring_bytes(key)}};
    entries[0].value.kind = AMQP_FIELD_KIND_UTF8;
    entries[0].value.value.bytes = amqp_cstring_bytes(type);
    entries[1].value.kind = AMQP_FIELD_KIND_I32;
    entries[1].value.value.i32 = value;
    amqp_table_t arguments = {.num_entries = key[0] ? 2 : 1, .entries = entries};
    amqp_connection_state_t connection = connect_by_hand();
    amqp_queue_declare(connection, 1, amqp_cstring_bytes(fixture->queue), 0, 1, 0, 0, arguments);
    end_by_hand(connection);
}

static void remove_by_hand(const struct fixture *fixture)
{
    amqp_connection_state_t connection = connect_by_hand();
    amqp_queue_delete(connection, 1, amqp_cstring_bytes(fixture->queue), 0, 0);
    end_by_hand(connection);
}

static void expect_preflight(struct fixture *fixture, int code, const char *text)
{
    struct err err = {0};
    int rc = sink_rabbit.preflight(fixture->options, &err);
    if (rc != code || !strstr(err.text, text)) {
        fail_msg("preflight: %d: \"%s\"; wanted %d and \"%s\"", rc, err.text, code, text);
    }
}

static void preflight_reads_the_queue_back(void **state)
{
    struct fixture *fixture = *state;
    const struct {
        const char *type, *key;
        int value;
        const char *found;
    } others[] = {
        {"classic", "", 0, "x-queue-type"},       {"quorum", "", 0, "x-overflow"},
        {"quorum", "x-max-length", 5, "x-"},      {"quorum", "x-delivery-limit", 5, "x-"},
        {"quorum", "x-message-ttl", 60000, "x-"},
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        declare_by_hand(fixture, others[i].type, others[i].key, others[i].value);
        run_setup(fixture); /* leaves it as it is */
        expect_preflight(fixture, -EPERM, others[i].found);
        assert_int_equal(sink_rabbit.remove(fixture->options, NULL), -EEXIST);
        expect_preflight(fixture, -EPERM, others[i].found); /* it is there still */
        remove_by_hand(fixture);
    }
    assert_int_equal(sink_rabbit.remove(fixture->options, NULL), 0); /* none is no error */
    run_setup(fixture);
    run_setup(fixture);
    expect_preflight(fixture, -ENODATA, "policies cannot be read");
}

static void held_by_one_at_a_time(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    struct sink_hold *hold = NULL, *other = NULL;
    assert_int_equal(sink_rabbit.hold(&hold, fixture->options, &err), 0);
    assert_int_equal(sink_rabbit.hold(&other, fixture->options, &err), -EBUSY);
    assert_non_null(strstr(err.text, "another sluice is at work with the queue"));
    assert_int_equal(sink_rabbit.hold_keep(hold, &err), 0);
    sink_rabbit.hold_end(hold);
    assert_int_equal(sink_rabbit.hold(&hold, fixture->options, &err), 0);
    control("kill"); /* lost with its server, and taken again */
    int rc = 0;
    for (int tries = 0; tries < 100 && rc == 0; tries++) {
        rc = sink_rabbit.hold_keep(hold, &err);
        clock_sleep_ns(20 * NS_PER_MS);
    }
    assert_int_not_equal(rc, 0);
    assert_int_not_equal(rc, -EBUSY);
    control("start");
    rc = -EAGAIN;
    for (int tries = 0; tries < 600 && rc != 0; tries++) {
        rc = sink_rabbit.hold_keep(hold, &err);
        clock_sleep_ns(50 * NS_PER_MS);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(sink_rabbit.hold(&other, fixture->options, &err), -EBUSY);
    sink_rabbit.hold_end(hold);
}

static void wrong_credentials_are_said(void **state)
{
    struct fixture *fixture = *state;
    struct amqp_connection_info info;
    struct err err = {0};
    char *copy = xstrdup(server_url("rabbit"));
    amqp_default_connection_info(&info);
    assert_int_equal(amqp_parse_url(copy, &info), AMQP_STATUS_OK);
    char *url = xasprintf("amqp://%s:very-secret@%s:%d", info.user, info.host, info.port);
    set(fixture, "sink-url", url);
    assert_int_equal(sink_rabbit.setup(fixture->options, &err), -EACCES);
    assert_non_null(strstr(err.text, "check user and password"));
    assert_null(strstr(err.text, "very-secret"));
    free(url);
    url = xasprintf("amqp://%s:%s@%s:%d/no-such-vhost", info.user, info.password, info.host,
                    info.port);
    set(fixture, "sink-url", url);
    assert_int_equal(sink_rabbit.setup(fixture->options, &err), -ENOENT);
    assert_non_null(strstr(err.text, "no-such-vhost"));
    assert_null(strstr(err.text, info.password));
    free(url);
    free(copy);
}

/* ---- faults ---- */

static void a_deleted_queue_takes_nothing(void **state)
{
    struct fixture *fixture = *state;
    run_setup(fixture);
    open_api(fixture);
    submit(fixture, 50);
    settle(fixture);
    assert_int_equal(outcomes(fixture, 0, SINK_DURABLE), 50);
    assert_int_equal(sink_rabbit.remove(fixture->options, NULL), 0);
    submit(fixture, 50);
    settle(fixture);
    /* Returned (refused), or nacked while the server still takes the queue apart (unknown). */
    assert_true(outcomes(fixture, 50, SINK_REFUSED) + outcomes(fixture, 50, SINK_UNKNOWN) > 0);
    unsigned before = fixture->count;
    while (outcomes(fixture, before, SINK_DURABLE) == 0) { /* until it has been made again */
        wait_ready(fixture, true);
        submit(fixture, 5);
        settle(fixture);
    }
    drain_all(fixture);
    for (unsigned i = 0; i < 50; i++) { /* went with the queue, and nobody can know */
        fixture->sent[i].stored = 1;
    }
    check_stored(fixture);
}

static void a_paused_server_costs_unknowns(void **state)
{
    struct fixture *fixture = *state;
    set(fixture, "rabbit-confirm-timeout", "400ms");
    set(fixture, "rabbit-connect-timeout", "400ms");
    run_setup(fixture);
    open_api(fixture);
    submit(fixture, 20);
    settle(fixture);
    control("pause");
    poll(NULL, 0, 200); /* its threads stop one by one, and the last may still confirm */
    submit(fixture, 300);
    settle(fixture); /* by the deadline, with nobody there */
    assert_int_equal(outcomes(fixture, 20, SINK_DURABLE), 0);
    assert_true(outcomes(fixture, 20, SINK_UNKNOWN) > 0);
    wait_ready(fixture, false);
    assert_int_equal(submit(fixture, 1), 0);
    control("resume");
    wait_ready(fixture, true);
    unsigned before = fixture->count;
    submit(fixture, 100);
    settle(fixture);
    assert_int_equal(outcomes(fixture, before, SINK_UNKNOWN), 0);
    set(fixture, "rabbit-connect-timeout", "5s");
    drain_all(fixture);
    check_stored(fixture);
}

/* In flight on both sides: what is on the wire, and a batch that a lane holds. */
static void a_killed_server_loses_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct sink_batch batch = {0};
    run_setup(fixture);
    open_api(fixture);
    submit(fixture, 200);
    settle(fixture);
    assert_int_equal(outcomes(fixture, 0, SINK_DURABLE), 200);
    open_lane(fixture, 0);
    int got = sink_rabbit.fetch(fixture->lane, 40, 2000, &batch);
    assert_int_equal(got, 40);
    submit(fixture, 200);
    turn(fixture);
    control("kill");
    wait_ready(fixture, false);
    settle(fixture);
    while (sink_rabbit.keep(fixture->lane) == 0) {
        clock_sleep_ns(10 * NS_PER_MS);
    }
    assert_int_equal(sink_rabbit.ack(fixture->lane, &batch), -ENOTCONN);
    control("start");
    unsigned before = fixture->count;
    while (outcomes(fixture, before, SINK_DURABLE) == 0) { /* its queue may have no leader yet */
        wait_ready(fixture, true);
        submit(fixture, 5);
        settle(fixture);
    }
    drain_all(fixture);
    check_stored(fixture);
    for (unsigned i = 0; i < 200; i++) {
        assert_true(fixture->sent[i].stored > 0); /* the 40 of the lost batch, too */
    }
}

/* From 4.0 on a quorum queue drops what has come back 20 times, unless it is told otherwise. */
static void many_deliveries_drop_nothing(void **state)
{
    struct fixture *fixture = *state;
    run_setup(fixture);
    open_api(fixture);
    submit(fixture, 5);
    settle(fixture);
    assert_int_equal(outcomes(fixture, 0, SINK_DURABLE), 5);
    open_lane(fixture, 0);
    for (int i = 0; i < 50; i++) {
        struct sink_batch batch = {0};
        int got = sink_rabbit.fetch(fixture->lane, 5, 5000, &batch);
        if (got != 5) {
            fail_msg("delivery %d: %d tasks came, wanted all 5 again", i + 1, got);
        }
        if (i % 2 == 0) {
            assert_int_equal(sink_rabbit.release(fixture->lane, &batch), 0);
        } else { /* the lane ends with its batch */
            sink_rabbit.lane_close(fixture->lane);
            open_lane(fixture, 0);
        }
    }
    drain_all(fixture);
    check_stored(fixture);
}

static void the_backlog_follows_the_queue(void **state)
{
    struct fixture *fixture = *state;
    run_setup(fixture);
    open_api(fixture);
    submit(fixture, 3);
    settle(fixture);
    struct sink *probe = NULL;
    struct sink_backlog backlog = {.tasks = -1};
    assert_int_equal(sink_rabbit.open(&probe, SINK_PROBE, fixture->options, NULL), 0);
    while (sink_rabbit.backlog(probe, &backlog) < 0 || backlog.tasks != 3) {
        clock_sleep_ns(10 * NS_PER_MS);
    }
    struct sink_stats stats = {0};
    assert_int_equal(sink_rabbit.stats(probe, &stats), 0);
    assert_true(stats.count > 0);
    drain_all(fixture);
    while (sink_rabbit.backlog(probe, &backlog) < 0 || backlog.tasks != 0) {
        clock_sleep_ns(10 * NS_PER_MS);
    }
    assert_true(backlog.exact);
    sink_rabbit.close(probe, 0);
}

int main(int argc, char *argv[])
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(preflight_reads_the_queue_back, setup, teardown),
        cmocka_unit_test_setup_teardown(held_by_one_at_a_time, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_credentials_are_said, setup, teardown),
        cmocka_unit_test_setup_teardown(the_backlog_follows_the_queue, setup, teardown),
        cmocka_unit_test_setup_teardown(many_deliveries_drop_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_deleted_queue_takes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_paused_server_costs_unknowns, setup, teardown),
        cmocka_unit_test_setup_teardown(a_killed_server_loses_nothing, setup, teardown),
    };
    if (!server_url("rabbit") || !server_can_be_controlled("rabbit")) {
        const char *ci = getenv("CI");
        printf("SKIP: no server: run it below `sluice with rabbit --`, which sets "
               "SLUICE_TEST_RABBIT_URL and SLUICE_TEST_RABBIT_CONTROL\n");
        return ci && strcmp(ci, "true") == 0 ? 1 : 77;
    }
    signal(SIGPIPE, SIG_IGN);
    log_init("test_rabbit_server");
    log_set_level(LOG_LEVEL_ERROR);
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

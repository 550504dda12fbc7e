/* Oracle: the table, read by a plain connection, and what was done to the server on purpose:
 * DURABLE is in the table, REFUSED is not, and what nobody can know is UNKNOWN. No time is
 * measured. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "ingest_parts.h"
#include "proxy.h"
#include "server_control.h"

static void tasks_go_together(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct ingest_outcome outcomes[61];
    ingest_set(fixture->options, "sink-connections", "1");
    ingest_open_api(fixture);
    ingest_submit(fixture->api, 0, &outcomes[0]);
    sink_ingest.process(fixture->api); /* alone, and at once */
    for (unsigned i = 1; i < 61; i++) {
        ingest_submit(fixture->api, i, &outcomes[i]);
    }
    ingest_settle(fixture->api, outcomes, 61);
    assert_int_equal(outcomes[0].batch, 1);
    for (unsigned i = 1; i < 61; i++) {
        assert_int_equal(outcomes[i].outcome, SINK_DURABLE);
        assert_int_equal(outcomes[i].batch, 60);
    }
    assert_int_equal(
        testdb_int(&fixture->db, "SELECT count(DISTINCT xmin::text) FROM sluice_ingest"), 2);
}

/* The way many would write it: one task a statement, on 32 connections at once. */
static void one_task_a_statement_on_many_connections(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct ingest_outcome outcomes[100];
    ingest_set(fixture->options, "sink-connections", "32");
    ingest_set(fixture->options, "sink-batch-max", "1");
    ingest_open_api(fixture);
    /* All must have prepared their statement, since a lock on the table would make that wait, too;
     * and have heard of it. */
    int64_t prepared = 0;
    for (int i = 0; i < 1000 && prepared < 32; i++) {
        ingest_turn(fixture->api);
        prepared = testdb_int(&fixture->db,
                              "SELECT count(*) FROM pg_stat_activity WHERE datname = '%s' "
                              "AND application_name = 'sluice-api' AND state = 'idle' "
                              "AND query LIKE '%%PREPARE%%'",
                              fixture->db.name);
    }
    assert_int_equal(prepared, 32);
    for (int i = 0; i < 20; i++) {
        ingest_turn(fixture->api);
    }
    /* While somebody has the table locked, each connection holds one. */
    testdb_run(&fixture->db, "BEGIN; LOCK TABLE sluice_ingest IN SHARE MODE");
    for (unsigned i = 0; i < 100; i++) {
        ingest_submit(fixture->api, i, &outcomes[i]);
    }
    struct sink_stats stats;
    for (int i = 0; i < 5; i++) {
        sink_ingest.process(fixture->api);
    }
    assert_int_equal(sink_ingest.stats(fixture->api, &stats), 0);
    assert_string_equal(stats.items[1].name, "tasks_in_flight");
    assert_int_equal((int)stats.items[1].value, 32);
    assert_string_equal(stats.items[2].name, "tasks_queued");
    assert_int_equal((int)stats.items[2].value, 68);
    testdb_run(&fixture->db, "COMMIT");
    ingest_settle(fixture->api, outcomes, 100);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(outcomes[i].outcome, SINK_DURABLE);
        assert_int_equal(outcomes[i].batch, 1);
    }
    assert_int_equal(
        testdb_int(&fixture->db, "SELECT count(DISTINCT xmin::text) FROM sluice_ingest"), 100);
}

static void a_batch_has_bounds(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct ingest_outcome outcomes[30];
    ingest_set(fixture->options, "sink-batch-max", "7");
    ingest_open_api(fixture);
    for (unsigned i = 0; i < 30; i++) {
        ingest_submit(fixture->api, i, &outcomes[i]);
    }
    ingest_settle(fixture->api, outcomes, 30);
    assert_int_equal(outcomes[0].batch, 7);
    assert_int_equal(outcomes[27].batch, 7);
    assert_int_equal(outcomes[28].batch, 2);
    ingest_close_api(fixture, NS_PER_S);

    ingest_set(fixture->options, "sink-batch-max", "0");
    ingest_set(fixture->options, "ingest-batch-size", "1kB");
    ingest_open_api(fixture);
    for (unsigned i = 0; i < 30; i++) {
        ingest_submit(fixture->api, 100 + i, &outcomes[i]);
    }
    ingest_settle(fixture->api, outcomes, 30);
    for (unsigned i = 0; i < 30; i++) {
        assert_in_range(outcomes[i].batch, 1, 24); /* of 44 bytes and more */
    }
    assert_in_range(outcomes[0].batch, 10, 24);
    assert_int_equal(ingest_rows(fixture), 60);
}

/* An error in the place of a commit: surely not stored, and the next ones are not touched by it. */
static void a_refused_batch_is_not_stored(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct ingest_outcome outcomes[20];
    ingest_open_api(fixture);
    testdb_run(&fixture->db,
               "ALTER TABLE sluice_ingest ADD CONSTRAINT c CHECK (accepted_us <> 13)");
    for (unsigned i = 0; i < 20; i++) {
        ingest_submit(fixture->api, i, &outcomes[i]);
    }
    ingest_settle(fixture->api, outcomes, 20);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(outcomes[i].outcome, SINK_REFUSED);
    }
    assert_int_equal(ingest_rows(fixture), 0);
    assert_true(sink_ingest.ready(fixture->api));
    ingest_put(fixture, 20, 20);
    assert_int_equal(ingest_rows(fixture), 20);
}

/* What a trigger swallowed is not durable, whatever the server says. */
static void a_swallowed_row_is_not_durable(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct ingest_outcome outcome;
    ingest_open_api(fixture);
    testdb_run(&fixture->db,
               "CREATE FUNCTION drops() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; "
               "END$$; CREATE TRIGGER drops BEFORE INSERT ON sluice_ingest FOR EACH ROW "
               "EXECUTE FUNCTION drops()");
    ingest_submit(fixture->api, 1, &outcome);
    ingest_settle(fixture->api, &outcome, 1);
    assert_int_equal(outcome.outcome, SINK_UNKNOWN);
}

/* A session that ends in the middle of a statement; an error that ends only the statement. */
static void errors_have_their_outcomes(void **state)
{
    struct ingest_fixture *fixture = *state;
    static const struct {
        const char *sqlstate;
        int outcome;
    } cases[] = {{"53100", SINK_REFUSED}, {"40001", SINK_REFUSED}, {"57014", SINK_REFUSED},
                 {"58030", SINK_REFUSED}, {"XX000", SINK_REFUSED}, {"40003", SINK_UNKNOWN},
                 {"08006", SINK_UNKNOWN}, {"42501", SINK_REFUSED}};
    ingest_open_api(fixture);
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ingest_outcome outcome;
        testdb_run(&fixture->db,
                   "CREATE OR REPLACE FUNCTION raises() RETURNS trigger LANGUAGE plpgsql AS "
                   "$$BEGIN RAISE EXCEPTION 'told to' USING ERRCODE = '%s'; END$$; CREATE OR "
                   "REPLACE TRIGGER raises BEFORE INSERT ON sluice_ingest FOR EACH ROW EXECUTE "
                   "FUNCTION raises()",
                   cases[i].sqlstate);
        ingest_submit(fixture->api, i, &outcome);
        ingest_settle(fixture->api, &outcome, 1);
        if (outcome.outcome != cases[i].outcome) {
            fail_msg("%s: outcome %d", cases[i].sqlstate, outcome.outcome);
        }
    }
    assert_int_equal(ingest_rows(fixture), 0);
}

/* The commit is done and its answer never comes. */
static void a_lost_answer_is_unknown(void **state)
{
    static const char bind[] = "\0sluice_insert"; /* as it stands in the message */
    struct ingest_fixture *fixture = *state;
    struct proxy proxy;
    struct ingest_outcome outcome;
    struct options *direct = fixture->options;
    proxy_start(&proxy, &fixture->db, bind, sizeof(bind));
    fixture->options = ingest_options(proxy.url);
    ingest_set(fixture->options, "sink-connections", "1");
    ingest_open_api(fixture);
    ingest_submit(fixture->api, 1, &outcome);
    ingest_settle(fixture->api, &outcome, 1);
    ingest_close_api(fixture, 0);
    options_free(fixture->options);
    fixture->options = direct;
    assert_int_equal(proxy_end(&proxy), 1);
    assert_int_equal(outcome.outcome, SINK_UNKNOWN);
    assert_int_equal(ingest_rows(fixture), 1);
}

/* The table goes while it is used, and comes back. */
static void a_dropped_table(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct ingest_outcome outcome;
    ingest_set(fixture->options, "sink-connections", "1");
    ingest_open_api(fixture);
    testdb_run(&fixture->db, "DROP TABLE sluice_ingest");
    ingest_submit(fixture->api, 1, &outcome);
    ingest_settle(fixture->api, &outcome, 1);
    assert_int_equal(outcome.outcome, SINK_REFUSED);
    assert_false(sink_ingest.ready(fixture->api));
    struct task task = ingest_task(3);
    assert_int_equal(sink_ingest.submit(fixture->api, &task, NULL, NULL), -EAGAIN);
    assert_int_equal(sink_ingest.setup(fixture->options, NULL), 0);
    for (int i = 0; i < 1000 && !sink_ingest.ready(fixture->api); i++) {
        ingest_turn(fixture->api);
    }
    ingest_put(fixture, 4, 10);
    assert_int_equal(ingest_rows(fixture), 10);
}

/* A statement that hangs in the server: it is given up there before it is here. */
static void a_locked_table_refuses(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct ingest_outcome outcomes[3];
    ingest_set(fixture->options, "sink-connections", "1");
    ingest_set(fixture->options, "ingest-deadline", "800ms");
    ingest_open_api(fixture);
    testdb_run(&fixture->db, "BEGIN; LOCK TABLE sluice_ingest IN SHARE MODE");
    ingest_submit(fixture->api, 0, &outcomes[0]);
    sink_ingest.process(fixture->api);
    ingest_submit(fixture->api, 1, &outcomes[1]);
    ingest_submit(fixture->api, 2, &outcomes[2]);
    ingest_settle(fixture->api, outcomes, 3);
    assert_int_equal(outcomes[0].outcome, SINK_REFUSED);
    testdb_run(&fixture->db, "COMMIT");
    ingest_put(fixture, 10, 5);
    for (unsigned i = 0; i < 3; i++) {
        struct task task = ingest_task(i);
        int64_t there = testdb_has(&fixture->db, "sluice_ingest", &task);
        assert_true(outcomes[i].outcome != SINK_REFUSED || there == 0);
        assert_true(outcomes[i].outcome != SINK_DURABLE || there == 1);
    }
}

static void control(const char *command)
{
    struct err err = {0};
    if (server_control("ingest", command, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

/* What was given to the wire is UNKNOWN, what was not is REFUSED, each at its own deadline. */
static void a_hanging_server(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct ingest_outcome outcomes[6];
    if (!server_can_be_controlled("ingest")) {
        skip();
    }
    ingest_set(fixture->options, "sink-connections", "1");
    ingest_set(fixture->options, "ingest-deadline", "600ms");
    ingest_open_api(fixture);
    control("pause");
    for (unsigned i = 0; i < 3; i++) {
        ingest_submit(fixture->api, i, &outcomes[i]);
    }
    sink_ingest.process(fixture->api);
    for (unsigned i = 3; i < 6; i++) {
        ingest_submit(fixture->api, i, &outcomes[i]);
    }
    ingest_settle(fixture->api, outcomes, 6);
    assert_false(sink_ingest.ready(fixture->api));
    control("resume");
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(outcomes[i].outcome, i < 3 ? SINK_UNKNOWN : SINK_REFUSED);
    }
    for (int i = 0; i < 1000 && !sink_ingest.ready(fixture->api); i++) {
        ingest_turn(fixture->api);
    }
    ingest_put(fixture, 10, 5);
    for (unsigned i = 3; i < 6; i++) {
        struct task task = ingest_task(i);
        assert_int_equal(testdb_has(&fixture->db, "sluice_ingest", &task), 0);
    }
}

/* Connected anew, what waited in the queue is sent; nothing of it was refused for the loss. */
static void a_queue_outlives_a_connection(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct ingest_outcome outcomes[12];
    ingest_set(fixture->options, "sink-connections", "1");
    ingest_open_api(fixture);
    testdb_run(&fixture->db, "BEGIN; LOCK TABLE sluice_ingest IN SHARE MODE");
    ingest_submit(fixture->api, 0, &outcomes[0]);
    sink_ingest.process(fixture->api);
    for (unsigned i = 1; i < 12; i++) {
        ingest_submit(fixture->api, i, &outcomes[i]);
    }
    testdb_run(&fixture->db,
               "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '%s' "
               "AND pid <> pg_backend_pid()",
               fixture->db.name);
    ingest_settle(fixture->api, outcomes, 1);
    assert_int_equal(outcomes[0].outcome, SINK_UNKNOWN);
    testdb_run(&fixture->db, "COMMIT");
    ingest_settle(fixture->api, outcomes, 12);
    for (unsigned i = 1; i < 12; i++) {
        assert_int_equal(outcomes[i].outcome, SINK_DURABLE);
    }
}

static struct sink *resubmit_to;
static unsigned resubmitted;

static void on_done_resubmit(void *arg, enum sink_outcome outcome, unsigned batch)
{
    struct task task = ingest_task(99);
    (void)outcome;
    (void)batch;
    (*(unsigned *)arg)++;
    if (sink_ingest.submit(resubmit_to, &task, on_done_resubmit, arg) == 0) {
        resubmitted++;
    }
}

/* One connection stands in a lock; the rest is queued; there is no time; and clients try again. */
static void close_tells_wire_from_queue(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct ingest_outcome outcomes[6];
    struct task task = ingest_task(50);
    unsigned done = 0;
    ingest_set(fixture->options, "sink-connections", "1");
    ingest_open_api(fixture);
    testdb_run(&fixture->db, "BEGIN; LOCK TABLE sluice_ingest IN SHARE MODE");
    for (unsigned i = 0; i < 3; i++) {
        ingest_submit(fixture->api, i, &outcomes[i]);
    }
    sink_ingest.process(fixture->api);
    for (unsigned i = 3; i < 6; i++) {
        ingest_submit(fixture->api, i, &outcomes[i]);
    }
    resubmit_to = fixture->api;
    assert_int_equal(sink_ingest.submit(fixture->api, &task, on_done_resubmit, &done), 0);
    ingest_close_api(fixture, 50 * NS_PER_MS);
    testdb_run(&fixture->db, "COMMIT");
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(outcomes[i].outcome, i < 3 ? SINK_UNKNOWN : SINK_REFUSED);
    }
    assert_int_equal(done, 1);
    assert_int_equal(resubmitted, 0);
}

/* The API's own figure: at once never too few, and exact again after the next count. */
static void backlog_of_the_api(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct sink_backlog backlog = {0};
    ingest_open_api(fixture);
    for (int i = 0; i < 1000 && sink_ingest.backlog(fixture->api, &backlog) != 0; i++) {
        ingest_turn(fixture->api);
    }
    assert_int_equal(backlog.tasks, 0);
    ingest_put(fixture, 0, 25);
    assert_int_equal(sink_ingest.backlog(fixture->api, &backlog), 0);
    assert_true(backlog.tasks >= 25);
    assert_true(backlog.bytes >= 25 * 6);
    for (int i = 0; i < 1000 && !(backlog.exact && backlog.tasks == 25); i++) {
        ingest_turn(fixture->api);
        assert_int_equal(sink_ingest.backlog(fixture->api, &backlog), 0);
        assert_true(backlog.tasks >= 25);
    }
    assert_true(backlog.exact);
    assert_int_equal(backlog.tasks, 25);
    assert_int_equal(backlog.bytes,
                     testdb_int(&fixture->db, "SELECT sum(length(body)) FROM sluice_ingest"));
}

int main(void)
{
#define CASE(test)                                                                                 \
    cmocka_unit_test_setup_teardown(test, ingest_fixture_setup, ingest_fixture_teardown)
    const struct CMUnitTest tests[] = {
        CASE(tasks_go_together),
        CASE(one_task_a_statement_on_many_connections),
        CASE(a_batch_has_bounds),
        CASE(a_refused_batch_is_not_stored),
        CASE(a_swallowed_row_is_not_durable),
        CASE(errors_have_their_outcomes),
        CASE(a_lost_answer_is_unknown),
        CASE(a_dropped_table),
        CASE(a_locked_table_refuses),
        CASE(a_hanging_server),
        CASE(a_queue_outlives_a_connection),
        CASE(close_tells_wire_from_queue),
        CASE(backlog_of_the_api),
    };
    log_set_level(LOG_LEVEL_ERROR);
    ingest_need_server();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Oracle: the tables, read by a plain connection, and SQLSTATEs raised on purpose: DURABLE is in
 * task or task_dead, REFUSED in neither, and what nobody can know is UNKNOWN. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/options.h"
#include "proxy.h"
#include "sink/drivers.h"
#include "testdb.h"

struct fixture {
    struct testdb db;
    struct options *options;
    struct sink *sink;
};

static struct options *options_for(const char *url, const char *connections)
{
    struct err err = {0};
    struct options *options = options_new("test", "");
    options_add(options, "Sink", sink_common_options);
    options_add(options, "Sink", sink_direct.options);
    assert_int_equal(options_set(options, "main-url", url, "test", &err), 0);
    assert_int_equal(options_set(options, "sink-connections", connections, "test", &err), 0);
    return options;
}

static void turn(struct sink *sink)
{
    int64_t due_ns = sink_direct.due_ns(sink);
    int64_t wait_ns = due_ns < 0 || due_ns > NS_PER_S ? NS_PER_S : due_ns;
    struct timespec timeout = {.tv_sec = wait_ns / NS_PER_S, .tv_nsec = wait_ns % NS_PER_S};
    struct pollfd polled = {.fd = sink_direct.fd(sink), .events = POLLIN};
    ppoll(&polled, 1, &timeout, NULL);
    assert_int_equal(sink_direct.process(sink), 0);
}

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof(*fixture));
    testdb_open(&fixture->db, 0);
    fixture->options = options_for(fixture->db.url, "3");
    assert_int_equal(sink_direct.setup(fixture->options, NULL), 0);
    assert_int_equal(sink_direct.open(&fixture->sink, SINK_INGEST, fixture->options, NULL), 0);
    for (int i = 0; i < 1000 && !sink_direct.ready(fixture->sink); i++) {
        turn(fixture->sink);
    }
    assert_true(sink_direct.ready(fixture->sink));
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    sink_direct.close(fixture->sink, clock_mono_ns() + NS_PER_S);
    options_free(fixture->options);
    testdb_close(&fixture->db);
    free(fixture);
    return 0;
}

static void on_done(void *arg, enum sink_outcome outcome, unsigned batch)
{
    assert_int_equal(batch, 1);
    *(int *)arg = (int)outcome;
}

static struct task make(unsigned char number, const char *body)
{
    return (struct task){
        .id = {number}, .accepted_us = 1000 + number, .body = body, .body_bytes = strlen(body)};
}

/* Submits one task and waits for its outcome. */
static int outcome_of(struct fixture *fixture, const struct task *task)
{
    int outcome = -1;
    assert_int_equal(sink_direct.submit(fixture->sink, task, on_done, &outcome), 0);
    for (int i = 0; i < 1000 && outcome < 0; i++) {
        turn(fixture->sink);
    }
    return outcome;
}

static void duplicates_and_conflicts(void **state)
{
    struct fixture *fixture = *state;
    struct task first = make(1, "first");
    struct task other = make(1, "other");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(outcome_of(fixture, &first), SINK_DURABLE);
        assert_int_equal(outcome_of(fixture, &other), SINK_DURABLE);
    }
    assert_int_equal(testdb_has(&fixture->db, "task", &first), 1);
    assert_int_equal(testdb_has(&fixture->db, "task_dead", &other), 1);
    assert_int_equal(testdb_int(&fixture->db, "SELECT count(*) FROM task_dead WHERE reason = "
                                              "'conflict'"),
                     1);
    assert_int_equal(testdb_int(&fixture->db, "SELECT count(*) FROM task"), 1);
}

static void errors_have_their_outcomes(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        const char *sqlstate;
        int outcome;
        const char *table; /* where the task is then */
    } cases[] = {
        {"23514", SINK_DURABLE, "task_dead"}, {"22P02", SINK_DURABLE, "task_dead"},
        {"54000", SINK_DURABLE, "task_dead"}, {"53100", SINK_REFUSED, NULL},
        {"42501", SINK_REFUSED, NULL},        {"40001", SINK_REFUSED, NULL},
        {"P0001", SINK_REFUSED, NULL},        {"40003", SINK_UNKNOWN, NULL},
        {"57014", SINK_UNKNOWN, NULL},        {"58030", SINK_UNKNOWN, NULL},
        {"XX000", SINK_UNKNOWN, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        testdb_run(&fixture->db,
                   "CREATE OR REPLACE FUNCTION raises() RETURNS trigger LANGUAGE plpgsql AS "
                   "$$BEGIN RAISE EXCEPTION 'told to' USING ERRCODE = '%s'; END$$; CREATE OR "
                   "REPLACE TRIGGER raises BEFORE INSERT ON task FOR EACH ROW EXECUTE FUNCTION "
                   "raises()",
                   cases[i].sqlstate);
        struct task task = make((unsigned char)(10 + i), "body");
        int outcome = outcome_of(fixture, &task);
        if (outcome != cases[i].outcome) {
            fail_msg("%s: outcome %d", cases[i].sqlstate, outcome);
        }
        assert_int_equal(testdb_has(&fixture->db, "task", &task), 0);
        assert_int_equal(testdb_has(&fixture->db, "task_dead", &task), cases[i].table ? 1 : 0);
    }
    assert_int_equal(testdb_int(&fixture->db, "SELECT count(*) FROM task_dead WHERE reason = "
                                              "sqlstate AND detail LIKE 'told to%%'"),
                     3);
    testdb_run(&fixture->db, "DROP TRIGGER raises ON task");
    struct task task = make(99, "after");
    assert_int_equal(outcome_of(fixture, &task), SINK_DURABLE); /* the sessions are still good */
}

static void a_dropped_row_is_refused(void **state)
{
    struct fixture *fixture = *state;
    testdb_run(&fixture->db, "CREATE FUNCTION drops() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "
                             "RETURN NULL; END$$; CREATE TRIGGER drops BEFORE INSERT ON task FOR "
                             "EACH ROW EXECUTE FUNCTION drops()");
    struct task task = make(1, "body");
    assert_int_equal(outcome_of(fixture, &task), SINK_REFUSED);
}

/* The insert commits, and its answer never comes. */
static void a_lost_answer_is_unknown(void **state)
{
    struct fixture *fixture = *state;
    struct proxy proxy;
    proxy_start(&proxy, &fixture->db, "INSERT INTO task", strlen("INSERT INTO task"));
    struct options *options = options_for(proxy.url, "1");
    struct sink *sink = NULL;
    int outcome = -1;
    struct task task = make(1, "body");
    assert_int_equal(sink_direct.open(&sink, SINK_INGEST, options, NULL), 0);
    for (int i = 0; i < 1000 && !sink_direct.ready(sink); i++) {
        turn(sink);
    }
    assert_int_equal(sink_direct.submit(sink, &task, on_done, &outcome), 0);
    for (int i = 0; i < 1000 && outcome < 0; i++) {
        turn(sink);
    }
    sink_direct.close(sink, 0);
    options_free(options);
    assert_int_equal(proxy_end(&proxy), 1);
    assert_int_equal(outcome, SINK_UNKNOWN);
    assert_int_equal(testdb_has(&fixture->db, "task", &task), 1);
}

/* Three connections, nine tasks, a main DB that does not answer. */
static void close_tells_wire_from_queue(void **state)
{
    struct fixture *fixture = *state;
    testdb_run(&fixture->db, "SELECT task_set_row_delay(1000)");
    int outcomes[9];
    for (unsigned char i = 0; i < 9; i++) {
        struct task task = make(i, "body");
        outcomes[i] = -1;
        assert_int_equal(sink_direct.submit(fixture->sink, &task, on_done, &outcomes[i]), 0);
    }
    struct sink_stats stats;
    int64_t asleep = 0;
    for (int i = 0; i < 1000 && asleep < 3; i++) {
        assert_int_equal(sink_direct.process(fixture->sink), 0);
        asleep = testdb_int(&fixture->db,
                            "SELECT count(*) FROM pg_stat_activity WHERE datname = "
                            "'%s' AND wait_event = 'PgSleep'",
                            fixture->db.name);
        clock_sleep_ns(5 * NS_PER_MS);
    }
    assert_int_equal(asleep, 3);
    assert_int_equal(sink_direct.stats(fixture->sink, &stats), 0);
    assert_string_equal(stats.items[2].name, "tasks_queued");
    assert_int_equal((int)stats.items[2].value, 6);
    sink_direct.close(fixture->sink, clock_mono_ns() + 50 * NS_PER_MS);
    fixture->sink = NULL;
    for (int i = 0; i < 9; i++) {
        assert_int_equal(outcomes[i], i < 3 ? SINK_UNKNOWN : SINK_REFUSED);
    }
}

static void without_a_server(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    struct options *options = options_for("postgresql://u@127.0.0.1:1/d", "2");
    struct sink *sink = NULL;
    int outcome = -1;
    struct task task = make(1, "body");
    assert_int_equal(sink_direct.setup(options, &err), -EAGAIN);
    assert_int_equal(sink_direct.open(&sink, SINK_DRAIN, options, &err), -ENOTSUP);
    assert_int_equal(sink_direct.open(&sink, SINK_INGEST, options, &err), 0); /* connects nothing */
    for (int i = 0; i < 5; i++) {
        turn(sink);
        assert_false(sink_direct.ready(sink));
        assert_int_equal(sink_direct.submit(sink, &task, on_done, &outcome), -EAGAIN);
    }
    sink_direct.close(sink, 0);
    assert_int_equal(outcome, -1);
    options_free(options);

    testdb_run(&fixture->db, "DROP TABLE task");
    assert_int_equal(sink_direct.setup(fixture->options, &err), -EPERM);
    assert_non_null(strstr(err.text, "42P01"));
}

int main(void)
{
    testdb_need_server();
    log_set_level(LOG_LEVEL_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(duplicates_and_conflicts, setup, teardown),
        cmocka_unit_test_setup_teardown(errors_have_their_outcomes, setup, teardown),
        cmocka_unit_test_setup_teardown(a_dropped_row_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lost_answer_is_unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(close_tells_wire_from_queue, setup, teardown),
        cmocka_unit_test_setup_teardown(without_a_server, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

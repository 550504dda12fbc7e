/* Oracle: the table and the server's list of sessions, read by a plain connection: what is taken,
 * by whom, and what is left. No time is measured; leases are left to run out. */
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

struct lanes {
    struct sink *sink;
    struct sink_lane *lane[2];
    struct sink_batch batch[2];
};

static void open_lanes(struct ingest_fixture *fixture, struct lanes *lanes)
{
    struct err err = {0};
    *lanes = (struct lanes){0};
    assert_int_equal(sink_ingest.open(&lanes->sink, SINK_DRAIN, fixture->options, &err), 0);
    for (unsigned i = 0; i < 2; i++) {
        if (sink_ingest.lane_open(lanes->sink, i, &lanes->lane[i], &err) < 0) {
            fail_msg("%s", err.text);
        }
    }
}

static void close_lanes(struct lanes *lanes)
{
    sink_ingest.lane_close(lanes->lane[0]);
    sink_ingest.lane_close(lanes->lane[1]);
    sink_ingest.close(lanes->sink, clock_mono_ns());
}

static int fetch(struct lanes *lanes, unsigned lane, unsigned max, int wait_ms)
{
    return sink_ingest.fetch(lanes->lane[lane], max, wait_ms, &lanes->batch[lane]);
}

/* Tries for a while: a session that was cut is made anew. */
static int fetch_some(struct lanes *lanes, unsigned lane, unsigned max)
{
    int count = 0;
    for (int i = 0; i < 100 && count <= 0; i++) {
        count = fetch(lanes, lane, max, 50);
    }
    return count;
}

static int ack(struct lanes *lanes, unsigned lane)
{
    return sink_ingest.ack(lanes->lane[lane], &lanes->batch[lane]);
}

static int release(struct lanes *lanes, unsigned lane)
{
    return sink_ingest.release(lanes->lane[lane], &lanes->batch[lane]);
}

static void cut_lane(struct ingest_fixture *fixture, unsigned lane)
{
    assert_int_equal(testdb_int(&fixture->db,
                                "SELECT count(pg_terminate_backend(pid, 5000)) FROM "
                                "pg_stat_activity WHERE datname = '%s' AND "
                                "application_name = 'sluice-worker lane-%u'",
                                fixture->db.name, lane),
                     1);
}

/* The end of a session may take a moment to be heard of. */
static void expect_lost(struct lanes *lanes, unsigned lane)
{
    int rc = 0;
    for (int i = 0; i < 1000 && rc == 0; i++) {
        rc = sink_ingest.keep(lanes->lane[lane]);
        clock_sleep_ns(5 * NS_PER_MS);
    }
    assert_int_equal(rc, -ENOTCONN);
}

static void add_row(struct ingest_fixture *fixture, long long seq)
{
    testdb_run(&fixture->db,
               "INSERT INTO sluice_ingest (seq, id, accepted_us, body) OVERRIDING SYSTEM VALUE "
               "VALUES (%lld, gen_random_uuid(), %lld, 'x')",
               seq, seq);
}

/* Sequence numbers are drawn before rows are visible: one may appear far behind those that were
 * taken. A cursor would never see it. */
static void a_late_row_with_a_low_number(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct lanes lanes;
    open_lanes(fixture, &lanes);
    add_row(fixture, 1000000);
    assert_int_equal(fetch_some(&lanes, 0, 10), 1);
    assert_int_equal(ack(&lanes, 0), 0);
    add_row(fixture, 999999); /* near */
    assert_int_equal(fetch_some(&lanes, 1, 10), 1);
    assert_int_equal(lanes.batch[1].tasks[0].accepted_us, 999999);
    assert_int_equal(ack(&lanes, 1), 0);
    add_row(fixture, 3); /* far */
    assert_int_equal(fetch_some(&lanes, 0, 10), 1);
    assert_int_equal(lanes.batch[0].tasks[0].accepted_us, 3);
    assert_int_equal(ack(&lanes, 0), 0);
    /* Even where there is never a moment without newer ones. */
    long long seq = 2000000;
    int64_t seen_us = 0;
    int64_t until_ns = clock_mono_ns() + 60 * NS_PER_S;
    add_row(fixture, 7);
    while (seen_us != 7 && clock_mono_ns() < until_ns) {
        add_row(fixture, ++seq);
        assert_int_equal(fetch_some(&lanes, 0, 1), 1);
        seen_us = lanes.batch[0].tasks[0].accepted_us;
        assert_int_equal(ack(&lanes, 0), 0);
    }
    assert_int_equal(seen_us, 7);
    close_lanes(&lanes);
}

static void what_was_given_back_is_known(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct lanes lanes;
    ingest_open_api(fixture);
    ingest_put(fixture, 0, 10);
    open_lanes(fixture, &lanes);
    assert_int_equal(fetch(&lanes, 0, 6, 50), 6);
    assert_int_equal(lanes.batch[0].redelivered, 0);
    assert_int_equal(release(&lanes, 0), 0);
    assert_int_equal(fetch(&lanes, 1, 10, 50), 10);
    assert_int_equal(lanes.batch[1].redelivered, 6);
    cut_lane(fixture, 1);
    assert_int_equal(fetch_some(&lanes, 0, 100), 10);
    assert_int_equal(lanes.batch[0].redelivered, 10);
    assert_int_equal(ack(&lanes, 0), 0);
    assert_int_equal(ingest_rows(fixture), 0);
    close_lanes(&lanes);
}

/* Far behind what is being taken now, and still the very next fetch has it. */
static void what_was_given_back_comes_at_once(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct lanes lanes;
    open_lanes(fixture, &lanes);
    add_row(fixture, 5);
    assert_int_equal(fetch_some(&lanes, 0, 10), 1);
    add_row(fixture, 1000000);
    assert_int_equal(fetch_some(&lanes, 1, 10), 1);
    assert_int_equal(ack(&lanes, 1), 0);
    assert_int_equal(fetch(&lanes, 1, 10, 1100), 0); /* from the start just now, and again soon */
    assert_int_equal(release(&lanes, 0), 0);
    assert_int_equal(fetch(&lanes, 1, 10, 1), 1);
    assert_int_equal(lanes.batch[1].tasks[0].accepted_us, 5);
    assert_int_equal(ack(&lanes, 1), 0);
    close_lanes(&lanes);
}

/* The session is lost while the main DB works, and nobody else has taken the rows. */
static void ack_after_a_lost_session(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct lanes lanes;
    ingest_open_api(fixture);
    ingest_put(fixture, 0, 10);
    open_lanes(fixture, &lanes);
    assert_int_equal(fetch(&lanes, 0, 4, 50), 4);
    cut_lane(fixture, 0);
    assert_int_equal(ack(&lanes, 0), 0);
    assert_int_equal(ingest_rows(fixture), 6);
    assert_int_equal(fetch_some(&lanes, 0, 100), 6);
    assert_int_equal(ack(&lanes, 0), 0);
    assert_int_equal(ingest_rows(fixture), 0);
    close_lanes(&lanes);
}

/* ... and somebody has: his work is not taken from under him. */
static void ack_of_what_another_lane_has(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct lanes lanes;
    ingest_open_api(fixture);
    ingest_put(fixture, 0, 10);
    open_lanes(fixture, &lanes);
    assert_int_equal(fetch(&lanes, 0, 10, 50), 10);
    cut_lane(fixture, 0);
    assert_int_equal(fetch_some(&lanes, 1, 4), 4);
    expect_lost(&lanes, 0);
    assert_true(ack(&lanes, 0) < 0); /* the caller knows that some come again */
    assert_int_equal(ingest_rows(fixture), 4);
    assert_int_equal(sink_ingest.keep(lanes.lane[1]), 0);
    assert_int_equal(ack(&lanes, 1), 0);
    assert_int_equal(ingest_rows(fixture), 0);
    close_lanes(&lanes);
}

/* Alive and silent: the lease runs out. Alive and keeping: it does not. */
static void leases_end_without_keep(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct lanes lanes;
    ingest_set(fixture->options, "ingest-lease", "1s");
    ingest_open_api(fixture);
    ingest_put(fixture, 0, 10);
    open_lanes(fixture, &lanes);
    assert_int_equal(fetch(&lanes, 0, 10, 50), 10);
    int64_t until_ns = clock_mono_ns() + 3 * NS_PER_S;
    while (clock_mono_ns() < until_ns) {
        assert_int_equal(sink_ingest.keep(lanes.lane[0]), 0);
        assert_int_equal(fetch(&lanes, 1, 10, 50), 0);
    }
    assert_int_equal(fetch_some(&lanes, 1, 10), 10); /* no keep() of lane 0 any more */
    assert_int_equal(lanes.batch[1].redelivered, 10);
    expect_lost(&lanes, 0);
    assert_int_equal(release(&lanes, 0), 0);
    assert_int_equal(ack(&lanes, 1), 0);
    assert_int_equal(ingest_rows(fixture), 0);
    close_lanes(&lanes);
}

/* A transaction stands open only where a batch does; acks wait for no flush, tasks do. */
static void sessions_are_as_they_should_be(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct lanes lanes;
    ingest_open_api(fixture);
    open_lanes(fixture, &lanes);
    assert_int_equal(fetch(&lanes, 0, 10, 50), 0);
    ingest_put(fixture, 0, 10);
    assert_int_equal(fetch(&lanes, 1, 10, 50), 10);
    static const char sql[] = "SELECT string_agg(state, ', ' ORDER BY application_name) FROM "
                              "pg_stat_activity WHERE datname = '%s' AND application_name LIKE "
                              "'sluice-worker%%'";
    char *states = testdb_text(&fixture->db, sql, fixture->db.name);
    assert_string_equal(states, "idle, idle in transaction");
    free(states);
    assert_int_equal(ack(&lanes, 1), 0);
    states = testdb_text(&fixture->db, sql, fixture->db.name);
    assert_string_equal(states, "idle, idle");
    free(states);
    close_lanes(&lanes);
}

/* A table that is gone is no reason to try without end. */
static void without_its_table(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct lanes lanes;
    struct sink_lane *lane = NULL;
    struct err err = {0};
    open_lanes(fixture, &lanes);
    testdb_run(&fixture->db, "DROP TABLE sluice_ingest");
    assert_int_equal(fetch(&lanes, 0, 10, 50), -ESHUTDOWN);
    assert_int_equal(sink_ingest.lane_open(lanes.sink, 2, &lane, &err), -EPERM);
    assert_non_null(strstr(err.text, "sluice_ingest"));
    close_lanes(&lanes);
}

/* Two tables in one database are two sinks. */
static void tables_are_kept_apart(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct lanes lanes;
    ingest_open_api(fixture);
    ingest_put(fixture, 0, 5);
    ingest_set(fixture->options, "ingest-table", "sluice_other");
    assert_int_equal(sink_ingest.setup(fixture->options, NULL), 0);
    open_lanes(fixture, &lanes);
    assert_int_equal(fetch(&lanes, 0, 10, 50), 0);
    close_lanes(&lanes);
    assert_int_equal(ingest_rows(fixture), 5);
}

int main(void)
{
#define CASE(test)                                                                                 \
    cmocka_unit_test_setup_teardown(test, ingest_fixture_setup, ingest_fixture_teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_late_row_with_a_low_number),
        CASE(what_was_given_back_is_known),
        CASE(what_was_given_back_comes_at_once),
        CASE(ack_after_a_lost_session),
        CASE(ack_of_what_another_lane_has),
        CASE(leases_end_without_keep),
        CASE(sessions_are_as_they_should_be),
        CASE(without_its_table),
        CASE(tables_are_kept_apart),
    };
    log_set_level(LOG_LEVEL_ERROR);
    ingest_need_server();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

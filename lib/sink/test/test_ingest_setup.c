/* Oracle: the server's catalogue, and what a user must be told: one sentence, without the password,
 * whatever is wrong with the URL, the server, its settings or the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "ingest_parts.h"
#include "maindb/maindb.h"

#define SECRET "open-sesame"

/* A server of another kind: says something and hangs up, or is silent. */
struct stranger {
    int listener;
    const char *says; /* NULL: nothing, ever */
    char url[128];
    pthread_t thread;
};

static void *stranger_thread(void *arg)
{
    struct stranger *stranger = arg;
    char bytes[256];
    int client;
    while ((client = accept(stranger->listener, NULL, NULL)) >= 0) {
        while (recv(client, bytes, sizeof(bytes), 0) > 0) {
            if (stranger->says) {
                send(client, stranger->says, strlen(stranger->says), MSG_NOSIGNAL);
                break;
            }
        }
        close(client);
    }
    return NULL;
}

static void stranger_start(struct stranger *stranger, const char *says)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t address_bytes = sizeof(address);
    stranger->says = says;
    stranger->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(stranger->listener, (struct sockaddr *)&address, address_bytes), 0);
    assert_int_equal(listen(stranger->listener, 4), 0);
    getsockname(stranger->listener, (struct sockaddr *)&address, &address_bytes);
    snprintf(stranger->url, sizeof(stranger->url), "postgresql://u:" SECRET "@127.0.0.1:%d/d",
             ntohs(address.sin_port));
    assert_int_equal(pthread_create(&stranger->thread, NULL, stranger_thread, stranger), 0);
}

static void stranger_end(struct stranger *stranger)
{
    shutdown(stranger->listener, SHUT_RDWR);
    pthread_join(stranger->thread, NULL);
    close(stranger->listener);
}

/* setup() and preflight() alike. */
static void expect_refusal(const char *url, int code, const char *part)
{
    int (*const calls[])(const struct options *, struct err *) = {sink_ingest.setup,
                                                                  sink_ingest.preflight};
    for (size_t i = 0; i < 2; i++) {
        struct options *options = ingest_options(url);
        struct err err = {0};
        int rc = calls[i](options, &err);
        if (rc != code || !strstr(err.text, part) || strstr(err.text, SECRET) ||
            strchr(err.text, '\n')) {
            fail_msg("%s: expected %d and \"%s\", got %d and: %s", url, code, part, rc, err.text);
        }
        options_free(options);
    }
}

static void bad_urls(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct stranger http, silent;
    char *wrong_password = xasprintf("%s password='" SECRET "'", fixture->db.url);
    char *wrong_database = xasprintf("%s dbname='sluice_nowhere'", fixture->db.url);
    char *wants_tls = xasprintf("%s sslmode=require", fixture->db.url);
    stranger_start(&http, "HTTP/1.1 400 Bad Request\r\n\r\n");
    stranger_start(&silent, NULL);
    char *impatient = xasprintf("%s?connect_timeout=2", silent.url);
    expect_refusal("redis://u:" SECRET "@127.0.0.1:1/0", -EINVAL, "is not a Postgres URL");
    expect_refusal("postgresql://u:" SECRET "@127.0.0.1:99999/d", -EINVAL, "its port");
    expect_refusal("postgresql://u:" SECRET "@127.0.0.1:1/d", -EAGAIN, "Connection refused");
    expect_refusal(wrong_password, -EACCES, "password authentication failed");
    expect_refusal(wrong_database, -EACCES, "\"sluice_nowhere\" does not exist");
    expect_refusal(wants_tls, -EAGAIN, "server does not support SSL");
    expect_refusal(http.url, -EAGAIN, "received invalid response to SSL negotiation");
    expect_refusal(impatient, -EAGAIN, "no connection within 2 s");
    stranger_end(&http);
    stranger_end(&silent);
    free(impatient);
    free(wrong_password);
    free(wrong_database);
    free(wants_tls);
}

static void the_main_db_is_refused(void **state)
{
    struct ingest_fixture *fixture = *state;
    testdb_run(&fixture->db, "DROP TABLE sluice_ingest");
    assert_int_equal(maindb_setup(fixture->db.url, 0, NULL), 0);
    expect_refusal(fixture->db.url, -EBUSY, "is the main DB");
    assert_int_equal(testdb_int(&fixture->db, "SELECT count(*) FROM pg_class WHERE relname LIKE "
                                              "'sluice%%'"),
                     0);
}

static void something_else_of_that_name(void **state)
{
    struct ingest_fixture *fixture = *state;
    static const char *const others[] = {
        "CREATE TABLE sluice_ingest (seq bigint, id uuid, body text)",
        "CREATE VIEW sluice_ingest AS SELECT 1::bigint AS seq, null::uuid AS id, "
        "1::bigint AS accepted_us, ''::bytea AS body",
        /* the right columns, but nobody makes the numbers */
        "CREATE TABLE sluice_ingest (seq bigint PRIMARY KEY, id uuid, accepted_us bigint, body "
        "bytea)",
        "CREATE TABLE sluice_ingest (seq bigint GENERATED ALWAYS AS IDENTITY, id uuid, "
        "accepted_us bigint, body bytea)",
    };
    testdb_run(&fixture->db, "DROP TABLE sluice_ingest");
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        testdb_run(&fixture->db, "%s", others[i]);
        expect_refusal(fixture->db.url, -EEXIST, "sluice_ingest is there already");
        struct err err = {0};
        assert_int_equal(sink_ingest.remove(fixture->options, &err), -EEXIST);
        testdb_run(&fixture->db, i == 1 ? "DROP VIEW sluice_ingest" : "DROP TABLE sluice_ingest");
    }
}

static void names_are_checked(void **state)
{
    struct ingest_fixture *fixture = *state;
    static const char *const names[] = {
        "",         "tasks",    "sluice; drop",
        "sluice\"", "Sluice_a", "sluice_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct err err = {0};
        struct sink *sink = NULL;
        ingest_set(fixture->options, "ingest-table", names[i]);
        assert_int_equal(sink_ingest.setup(fixture->options, &err), -EINVAL);
        assert_non_null(strstr(err.text, "--ingest-table"));
        for (int role = SINK_INGEST; role <= SINK_PROBE; role++) {
            assert_int_equal(sink_ingest.open(&sink, (enum sink_role)role, fixture->options, &err),
                             -EINVAL);
        }
    }
}

static void set_up_twice(void **state)
{
    struct ingest_fixture *fixture = *state;
    static const char version_sql[] =
        "SELECT xmin::text || ' ' || array_to_string(reloptions, ' ') "
        "FROM pg_class WHERE relname = 'sluice_ingest'";
    char *first = testdb_text(&fixture->db, version_sql);
    assert_non_null(strstr(first, "autovacuum_vacuum_threshold=1000"));
    assert_non_null(strstr(first, "vacuum_truncate=false"));
    assert_int_equal(sink_ingest.setup(fixture->options, NULL), 0);
    char *second = testdb_text(&fixture->db, version_sql);
    assert_string_equal(first, second); /* nothing was done to it */
    assert_int_equal(testdb_int(&fixture->db, "SELECT count(*) FROM pg_index WHERE indrelid = "
                                              "'sluice_ingest'::regclass"),
                     1);
    assert_int_equal(testdb_int(&fixture->db, "SELECT (attstorage = 'e')::int FROM pg_attribute "
                                              "WHERE attrelid = 'sluice_ingest'::regclass AND "
                                              "attname = 'body'"),
                     1);
    /* A setting that somebody took away is put back. */
    testdb_run(&fixture->db, "ALTER TABLE sluice_ingest RESET (autovacuum_vacuum_threshold)");
    assert_int_equal(sink_ingest.setup(fixture->options, NULL), 0);
    char *third = testdb_text(&fixture->db, version_sql);
    assert_non_null(strstr(third, "autovacuum_vacuum_threshold=1000"));
    free(first);
    free(second);
    free(third);
}

static void unsafe_settings_are_told(void **state)
{
    struct ingest_fixture *fixture = *state;
    static const char *const names[] = {"fsync", "full_page_writes"};
    struct err err = {0};
    assert_int_equal(sink_ingest.preflight(fixture->options, &err), 0);
    for (size_t i = 0; i < 2; i++) {
        testdb_run(&fixture->db, "ALTER SYSTEM SET %s = off", names[i]);
        testdb_run(&fixture->db, "SELECT pg_reload_conf()");
        int rc = 0;
        for (int tries = 0; tries < 200 && rc == 0; tries++) { /* a reload takes a moment */
            rc = sink_ingest.preflight(fixture->options, &err);
            clock_sleep_ns(20 * NS_PER_MS);
        }
        testdb_run(&fixture->db, "ALTER SYSTEM RESET %s", names[i]);
        testdb_run(&fixture->db, "SELECT pg_reload_conf()");
        char *expected = xasprintf("%s is off, wanted on", names[i]);
        assert_int_equal(rc, -EPERM);
        assert_non_null(strstr(err.text, expected));
        free(expected);
        for (int tries = 0; tries < 200 && rc != 0; tries++) {
            rc = sink_ingest.preflight(fixture->options, &err);
            clock_sleep_ns(20 * NS_PER_MS);
        }
        assert_int_equal(rc, 0);
    }
    /* Off for everybody is overruled by the sessions themselves. */
    testdb_run(&fixture->db, "ALTER DATABASE %s SET synchronous_commit = off", fixture->db.name);
    assert_int_equal(sink_ingest.preflight(fixture->options, &err), 0);
    testdb_run(&fixture->db, "ALTER TABLE sluice_ingest SET UNLOGGED");
    assert_int_equal(sink_ingest.preflight(fixture->options, &err), -EPERM);
    assert_non_null(strstr(err.text, "table sluice_ingest is unlogged, wanted logged"));
    testdb_run(&fixture->db, "DROP TABLE sluice_ingest");
    assert_int_equal(sink_ingest.preflight(fixture->options, &err), -ENOENT);
}

static void what_is_to_be_watched(void **state)
{
    struct ingest_fixture *fixture = *state;
    static const char *const wanted[] = {"live_tuples", "dead_tuples", "autovacuums",
                                         "table_bytes", "wal_bytes",   "checkpoints_timed"};
    struct sink *probe = NULL;
    struct sink_stats stats;
    assert_int_equal(sink_ingest.open(&probe, SINK_PROBE, fixture->options, NULL), 0);
    assert_int_equal(sink_ingest.stats(probe, &stats), 0);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        bool found = false;
        for (size_t k = 0; k < stats.count; k++) {
            found = found || strcmp(stats.items[k].name, wanted[i]) == 0;
        }
        assert_true(found);
    }
    sink_ingest.close(probe, clock_mono_ns());
}

static void removed_without_a_trace(void **state)
{
    struct ingest_fixture *fixture = *state;
    testdb_run(&fixture->db, "CREATE TABLE sluice_mine (a int)");
    ingest_open_api(fixture);
    ingest_put(fixture, 0, 3);
    ingest_close_api(fixture, NS_PER_S);
    assert_int_equal(sink_ingest.remove(fixture->options, NULL), 0);
    assert_int_equal(sink_ingest.remove(fixture->options, NULL), 0); /* there is none */
    char *left = testdb_text(&fixture->db, "SELECT string_agg(relname, ' ') FROM pg_class WHERE "
                                           "relname LIKE 'sluice%%'");
    assert_string_equal(left, "sluice_mine");
    free(left);
}

#define END_SESSIONS                                                                               \
    "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE classid = 20260106 AND granted"

static void held_by_one_at_a_time(void **state)
{
    struct ingest_fixture *fixture = *state;
    struct err err = {0};
    struct sink_hold *hold = NULL, *other = NULL;
    assert_int_equal(sink_ingest.hold(&hold, fixture->options, &err), 0);
    assert_int_equal(sink_ingest.hold(&other, fixture->options, &err), -EBUSY);
    assert_non_null(strstr(err.text, "another sluice is at work with the table sluice_ingest"));
    assert_int_equal(sink_ingest.hold_keep(hold, &err), 0);
    assert_int_equal(testdb_int(&fixture->db, END_SESSIONS), 1); /* lost, and taken again */
    int rc = -EAGAIN;
    for (int tries = 0; tries < 100 && rc == -EAGAIN; tries++) {
        rc = sink_ingest.hold_keep(hold, &err);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(sink_ingest.hold(&other, fixture->options, &err), -EBUSY);

    assert_int_equal(testdb_int(&fixture->db, END_SESSIONS), 1); /* lost to another */
    rc = -EBUSY;
    for (int tries = 0; tries < 100 && rc == -EBUSY; tries++) {
        rc = sink_ingest.hold(&other, fixture->options, &err);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(sink_ingest.hold_keep(hold, &err), -EBUSY);
    sink_ingest.hold_end(hold);
    assert_int_equal(sink_ingest.hold_keep(other, &err), 0);
    sink_ingest.hold_end(other);
}

int main(void)
{
#define CASE(test)                                                                                 \
    cmocka_unit_test_setup_teardown(test, ingest_fixture_setup, ingest_fixture_teardown)
    const struct CMUnitTest tests[] = {
        CASE(bad_urls),
        CASE(the_main_db_is_refused),
        CASE(something_else_of_that_name),
        CASE(names_are_checked),
        CASE(set_up_twice),
        CASE(unsafe_settings_are_told),
        CASE(what_is_to_be_watched),
        CASE(removed_without_a_trace),
        CASE(held_by_one_at_a_time),
    };
    log_set_level(LOG_LEVEL_ERROR);
    ingest_need_server();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

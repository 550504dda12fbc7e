/* Oracle: pg_stat_activity for what goes on in the server, the table for what was stored, and a
 * proxy for what was on the wire. Times are only waited for, never judged: the row delays
 * here are far longer than the test's own time limit, so that a statement that is not ended is
 * seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "maindb/maindb.h"
#include "proxy.h"
#include "testdb.h"

#define FOREVER_S 1000.0

static const struct maindb_wait plain_wait = {.cancel_fd = -1};
static const struct task one_task = {.id = {1}, .accepted_us = 7, .body = "body", .body_bytes = 4};

static struct testdb db;

static int close_db(void **state)
{
    (void)state;
    testdb_close(&db);
    return 0;
}

static int open_quick(void **state)
{
    (void)state;
    testdb_open(&db, 0);
    return 0;
}

static int open_stuck(void **state)
{
    (void)state;
    testdb_open(&db, FOREVER_S);
    return 0;
}

/* Waits until that many sessions of ours sleep in the trigger. */
static void wait_for_sleepers(int64_t wanted)
{
    int64_t found = -1;
    for (int i = 0; i < 1000 && found != wanted; i++) {
        found = testdb_int(&db,
                           "SELECT count(*) FROM pg_stat_activity WHERE datname = '%s' AND "
                           "application_name = 'test' AND wait_event = 'PgSleep'",
                           db.name);
        clock_sleep_ns(10 * NS_PER_MS);
    }
    if (found != wanted) {
        fail_msg("%lld statements sleep in the server, wanted %lld", (long long)found,
                 (long long)wanted);
    }
}

struct committer {
    pthread_t thread;
    struct maindb *main;
    struct maindb_wait wait;
    struct maindb_result result;
    struct err err;
    int rc;
};

static void *commit_thread(void *arg)
{
    struct committer *committer = arg;
    committer->rc = maindb_commit(committer->main, &one_task, 1, &committer->wait,
                                  &committer->result, &committer->err);
    return NULL;
}

static void committer_start(struct committer *committer, const struct maindb_wait *wait)
{
    *committer = (struct committer){.wait = *wait};
    assert_int_equal(maindb_open(&committer->main, db.url, "test", NULL), 0);
    assert_int_equal(pthread_create(&committer->thread, NULL, commit_thread, committer), 0);
}

static void terminated_in_the_middle_is_transient(void **state)
{
    (void)state;
    struct committer committer;
    committer_start(&committer, &plain_wait);
    wait_for_sleepers(1);
    testdb_run(&db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                    "application_name = 'test'");
    pthread_join(committer.thread, NULL);
    assert_int_equal(committer.rc, -EAGAIN);
    testdb_run(&db, "SELECT task_set_row_delay(0)");
    commit_thread(&committer); /* the same object connects again */
    assert_int_equal(committer.rc, 0);
    assert_int_equal(committer.result.inserted, 1);
    maindb_close(committer.main);
}

static void cancel_ends_the_statement(void **state)
{
    (void)state;
    int cancel_fd = eventfd(0, EFD_NONBLOCK);
    struct maindb_wait wait = {.cancel_fd = cancel_fd};
    struct committer committer;
    committer_start(&committer, &wait);
    wait_for_sleepers(1);
    assert_int_equal(eventfd_write(cancel_fd, 1), 0);
    pthread_join(committer.thread, NULL);
    assert_int_equal(committer.rc, -ECANCELED);
    wait_for_sleepers(0);
    assert_int_equal(testdb_int(&db, "SELECT count(*) FROM task"), 0);
    commit_thread(&committer); /* still readable: nothing begins */
    assert_int_equal(committer.rc, -ECANCELED);
    testdb_run(&db, "SELECT task_set_row_delay(0)");
    committer.wait.cancel_fd = -1;
    commit_thread(&committer); /* and the object is as good as new */
    assert_int_equal(committer.rc, 0);
    maindb_close(committer.main);
    close(cancel_fd);
}

static int count_calls(void *arg)
{
    /* After three calls the statement has waited long enough. */
    int *fds = arg;
    if (++fds[1] == 3) {
        eventfd_write(fds[0], 1);
    }
    return -EIO; /* a failing keeper does not stop the commit */
}

static void keep_is_called_while_waiting(void **state)
{
    (void)state;
    int fds[2] = {eventfd(0, EFD_NONBLOCK), 0};
    struct maindb_wait wait = {
        .keep = count_calls, .arg = fds, .keep_every_ns = 5 * NS_PER_MS, .cancel_fd = fds[0]};
    struct committer committer;
    committer_start(&committer, &wait);
    pthread_join(committer.thread, NULL);
    assert_int_equal(committer.rc, -ECANCELED);
    assert_true(fds[1] >= 3);
    maindb_close(committer.main);
    close(fds[0]);
}

static void the_clients_deadline_ends_the_wait(void **state)
{
    (void)state;
    struct maindb_wait wait = {.cancel_fd = -1, .deadline_ns = 300 * NS_PER_MS};
    struct committer committer;
    committer_start(&committer, &wait);
    pthread_join(committer.thread, NULL);
    assert_int_equal(committer.rc, -EAGAIN);
    wait_for_sleepers(0);
    maindb_close(committer.main);
}

/* SIGKILL of a client: its statement must not go on sleeping, nor hold its ids. */
static void a_killed_clients_statement_ends(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        struct maindb *main = NULL;
        struct maindb_result result;
        maindb_open(&main, db.url, "test", NULL);
        maindb_commit(main, &one_task, 1, &plain_wait, &result, NULL);
        _exit(0);
    }
    wait_for_sleepers(1);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    wait_for_sleepers(0);
    testdb_run(&db, "SELECT task_set_row_delay(0)");
    struct committer committer;
    committer_start(&committer, &plain_wait);
    pthread_join(committer.thread, NULL);
    assert_int_equal(committer.rc, 0);
    assert_int_equal(committer.result.inserted, 1);
    maindb_close(committer.main);
}

static void a_lost_commit_answer_is_a_retry(void **state)
{
    (void)state;
    struct proxy proxy;
    proxy_start(&proxy, &db, "COMMIT", sizeof("COMMIT")); /* its NUL too: not COMMITTED */
    struct maindb *main = NULL;
    struct maindb_result result;
    assert_int_equal(maindb_open(&main, proxy.url, "test", NULL), 0);
    assert_int_equal(maindb_commit(main, &one_task, 1, &plain_wait, &result, NULL), -EAGAIN);
    assert_int_equal(proxy_end(&proxy), 1);
    assert_int_equal(testdb_has(&db, "task", &one_task), 1); /* it did commit */
    maindb_close(main);

    assert_int_equal(maindb_open(&main, db.url, "test", NULL), 0);
    assert_int_equal(maindb_commit(main, &one_task, 1, &plain_wait, &result, NULL), 0);
    assert_int_equal(result.redelivered, 1);
    maindb_close(main);
}

static int check_url(const char *url, struct err *err)
{
    struct maindb *main = NULL;
    int rc = maindb_open(&main, url, "test", err);
    if (rc == 0) {
        rc = maindb_check(main, err);
    }
    maindb_close(main);
    return rc;
}

static void bad_urls_are_told_apart(void **state)
{
    (void)state;
    struct err err = {0};
    struct testdb bare;
    testdb_open(&bare, -1);
    const char *password = PQpass(db.conn);
    bool asked = password && *password; /* a server that trusts takes any */
    password = asked ? password : "s3cret";
    const struct {
        const char *user_password;
        const char *path;
        int rc;
        const char *says;
    } cases[] = {
        {password, "no-such-database", -EPERM, "no-such-database"},
        {password, password, -EPERM, "database \"***\" does not"}, /* the server repeats it */
        {password, "postgres?user=no-such-user", -EPERM, "no-such-user"},
        {password, "postgres?port=1", -EAGAIN, "refused"},
        {"nnec", "postgres?port=1", -EAGAIN, "connection to"}, /* no stars inside of words */
        {password, "postgres?port=s3cret", -EINVAL, "not a Postgres URL"},
        {password, bare.name, -EPERM, "42P01"}, /* no tables there */
        {"wr0ng", bare.name, -EPERM, asked ? "28P01" : "42P01"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *url =
            xasprintf("postgresql://%s:%s@%s:%s/%s", PQuser(db.conn), cases[i].user_password,
                      PQhost(db.conn), PQport(db.conn), cases[i].path);
        char *secret = xasprintf("%s@", cases[i].user_password);
        int rc = check_url(url, &err);
        if (rc != cases[i].rc || !strstr(err.text, cases[i].says) || strstr(err.text, secret) ||
            strchr(err.text, '\n')) {
            fail_msg("%s: %d: %s", cases[i].path, rc, err.text);
        }
        free(secret);
        free(url);
    }
    testdb_close(&bare);
    assert_int_equal(check_url("http://127.0.0.1/", &err), -EINVAL);
    assert_int_equal(check_url("postgresql://127.0.0.1:port", &err), -EINVAL);
    assert_int_equal(check_url(db.url, &err), 0);
}

static void sessions_are_durable_and_checked(void **state)
{
    (void)state;
    testdb_run(&db, "ALTER DATABASE %s SET synchronous_commit = off", db.name);
    testdb_run(&db,
               "CREATE TABLE seen (name text, value text); CREATE FUNCTION look() RETURNS "
               "trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO seen SELECT name, setting "
               "FROM pg_settings WHERE name IN ('synchronous_commit', 'transaction_isolation', "
               "'client_connection_check_interval'); RETURN NEW; END$$; CREATE TRIGGER look "
               "BEFORE INSERT ON task FOR EACH ROW EXECUTE FUNCTION look()");
    testdb_run(&db, "ALTER DATABASE %s SET default_transaction_isolation = serializable", db.name);
    struct committer committer;
    committer_start(&committer, &plain_wait);
    pthread_join(committer.thread, NULL);
    assert_int_equal(committer.rc, 0);
    /* And when it goes row by row. */
    testdb_run(&db, "ALTER TABLE task ADD CHECK (body <> 'bad')");
    const struct task tasks[] = {{.id = {2}, .body = "bad", .body_bytes = 3},
                                 {.id = {3}, .body = "good", .body_bytes = 4}};
    assert_int_equal(maindb_commit(committer.main, tasks, 2, &plain_wait, &committer.result, NULL),
                     0);
    assert_int_equal(committer.result.dead, 1);
    maindb_close(committer.main);
    char *seen = testdb_text(
        &db, "SELECT string_agg(DISTINCT name || '=' || value, ' ' ORDER BY name || '=' || value) "
             "FROM seen");
    assert_string_equal(seen, "client_connection_check_interval=500 synchronous_commit=on "
                              "transaction_isolation=read committed");
    free(seen);
}

int main(void)
{
    testdb_need_server();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(terminated_in_the_middle_is_transient, open_stuck,
                                        close_db),
        cmocka_unit_test_setup_teardown(cancel_ends_the_statement, open_stuck, close_db),
        cmocka_unit_test_setup_teardown(keep_is_called_while_waiting, open_stuck, close_db),
        cmocka_unit_test_setup_teardown(the_clients_deadline_ends_the_wait, open_stuck, close_db),
        cmocka_unit_test_setup_teardown(a_killed_clients_statement_ends, open_stuck, close_db),
        cmocka_unit_test_setup_teardown(a_lost_commit_answer_is_a_retry, open_quick, close_db),
        cmocka_unit_test_setup_teardown(bad_urls_are_told_apart, open_quick, close_db),
        cmocka_unit_test_setup_teardown(sessions_are_durable_and_checked, open_quick, close_db),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

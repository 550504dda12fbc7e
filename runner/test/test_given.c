/* Oracle: PostgreSQL itself, asked through libpq: what lies on servers that were given, before and
 * after; and that the password is in no file of a run. Needs the servers of `sluice with main-db
 * ingest`, which are those that are given here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <libpq-fe.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "server_control.h"
#include "testdb.h"

static const char *sluice;
static char scratch[] = "/var/tmp/sluice-test-given-XXXXXX";

enum { ARGS_MAX = 40 };
#define SHORT                                                                                      \
    "--set", "faults=[]", "--set", "load.phases.0.for=500ms", "--set", "load.phases.1.for=1s",     \
        "--set", "load.phases.2.for=500ms", "--set", "load.rps=50", "--state", "state"

/* One database on each server. */
struct fixture {
    struct testdb main, sink;
};

static const char *use_server(const char *name)
{
    const char *url = server_url(name);
    if (url) {
        setenv("SLUICE_TEST_MAIN_URL", url, 1); /* where testdb makes its databases */
    }
    return url;
}

static char *main_server; /* SLUICE_TEST_MAIN_URL as it was */

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof(*fixture));
    setenv("SLUICE_TEST_MAIN_URL", main_server, 1);
    testdb_open(&fixture->main, -1);
    use_server("ingest");
    testdb_open(&fixture->sink, -1);
    setenv("SLUICE_MAIN_URL", fixture->main.url, 1);
    setenv("SLUICE_SINK_URL", fixture->sink.url, 1);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    testdb_close(&fixture->sink);
    setenv("SLUICE_TEST_MAIN_URL", main_server, 1);
    testdb_close(&fixture->main);
    free(fixture);
    return file_exists("runs") ? file_remove_tree("runs", NULL) : 0;
}

/* Exit code of `sluice args`; its output in out. */
static int run(struct buf *out, const char *const args[])
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        char *argv[ARGS_MAX + 2] = {xstrdup(sluice)};
        for (size_t i = 0; args[i]; i++) {
            argv[i + 1] = xstrdup(args[i]);
        }
        int fd = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0) {
            _exit(99);
        }
        execv(sluice, argv);
        _exit(98);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    buf_clear(out);
    file_read("out", 1024 * 1024, out, NULL);
    buf_puts(out, "");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void expect(int code, const char *part, const char *const args[])
{
    struct buf out = {0};
    int got = run(&out, args);
    if (got != code || !strstr(out.data, part)) {
        fail_msg("sluice %s %s ...: expected exit code %d and \"%s\", got %d and:\n%s", args[0],
                 args[1] ? args[1] : "", code, part, got, out.data);
    }
    buf_free(&out);
}
#define EXPECT(code, part, ...) expect(code, part, (const char *const[]){__VA_ARGS__, NULL})

static void expect_tables(struct testdb *db, const char *names)
{
    char *found = testdb_text(
        db, "SELECT coalesce(string_agg(schemaname || '.' || tablename, ' ' "
            "ORDER BY schemaname, tablename), '') FROM pg_tables WHERE schemaname NOT IN "
            "('pg_catalog', 'information_schema')");
    assert_string_equal(found, names);
    free(found);
}

/* No file of the run holds the text. */
static void expect_nowhere(const char *text)
{
    char *command = xasprintf("grep -rlF -e '%s' runs", text);
    assert_int_equal(WEXITSTATUS(system(command)), 1); /* NOLINT(cert-env33-c) */
    free(command);
}

static void runs_leave_only_what_is_ours(void **state)
{
    struct fixture *fixture = *state;
    testdb_run(&fixture->main, "CREATE TABLE task (mine int); CREATE TABLE task_dead (mine int)");
    testdb_run(&fixture->sink, "CREATE TABLE sluice_mine (mine int)");
    for (int i = 0; i < 2; i++) { /* the second one does not count what the first one left */
        EXPECT(0, "which is not ours: it is not started", "run", "quick", "--sink", "ingest",
               SHORT);
    }
    expect_tables(&fixture->main, "public.task public.task_dead sluice.task sluice.task_dead");
    expect_tables(&fixture->sink, "public.sluice_ingest public.sluice_mine");
    int64_t rows = testdb_int(&fixture->main, "SELECT count(*) FROM sluice.task");
    assert_in_range(rows, 50, 101); /* of one run: 75 of the load, one of the runner's own */
    assert_int_equal(testdb_int(&fixture->main, "SELECT count(*) FROM public.task"), 0);
    assert_int_equal(
        system("grep -q 'password=\\*\\*\\*' runs/*/ingest/1/manifest.json && " /* NOLINT */
               "grep -q 'is a server that others started' runs/*/ingest/1/manifest.json && "
               "test ! -e runs/*/ingest/1/logs/sink.log"),
        0);
    expect_nowhere(PQpass(fixture->main.conn));
    expect_nowhere(PQpass(fixture->sink.conn));

    EXPECT(0, "dropped the schema sluice", "clean", "--sink", "ingest");
    expect_tables(&fixture->main, "public.task public.task_dead");
    expect_tables(&fixture->sink, "public.sluice_mine");
}

static void waiting_tasks_are_not_touched(void **state)
{
    struct fixture *fixture = *state;
    EXPECT(0, "", "run", "quick", "--sink", "ingest", SHORT);
    testdb_run(&fixture->sink, "INSERT INTO sluice_ingest (id, accepted_us, body) VALUES "
                               "(gen_random_uuid(), 1, 'x')");
    EXPECT(3, "it holds 1 tasks already", "run", "quick", "--sink", "ingest", SHORT);
    EXPECT(3, "1 tasks wait in it", "clean", "--sink", "ingest");
    assert_int_equal(testdb_int(&fixture->sink, "SELECT count(*) FROM sluice_ingest"), 1);
    unsetenv("SLUICE_MAIN_URL");
    EXPECT(0, "name it, as in --sink", "clean");
    assert_int_equal(testdb_int(&fixture->sink, "SELECT count(*) FROM sluice_ingest"), 1);
    EXPECT(0, "the tasks that waited in it are gone", "clean", "--sink", "ingest",
           "--discard-tasks");
    expect_tables(&fixture->sink, "");
}

static void what_is_not_ours_is_refused(void **state)
{
    struct fixture *fixture = *state;
    testdb_run(&fixture->main, "CREATE SCHEMA sluice; CREATE TABLE sluice.task (mine int)");
    unsetenv("SLUICE_SINK_URL");
    EXPECT(3, "was not made by sluice", "run", "quick", "--sink", "memory", SHORT);
    EXPECT(3, "was not made by sluice", "clean");
    testdb_run(&fixture->main, "DROP SCHEMA sluice CASCADE");
    testdb_run(&fixture->main, "SELECT pg_advisory_lock(20260105, 3)");
    EXPECT(3, "another sluice is at work", "run", "quick", "--sink", "memory", SHORT);
    testdb_run(&fixture->main, "SELECT pg_advisory_unlock(20260105, 3)");
    setenv("SLUICE_SINK_URL", fixture->main.url, 1);
    EXPECT(3, "is the main DB", "run", "quick", "--sink", "ingest", SHORT);
    struct testdb other; /* another database of the same server */
    setenv("SLUICE_TEST_MAIN_URL", main_server, 1);
    testdb_open(&other, -1);
    setenv("SLUICE_SINK_URL", other.url, 1);
    EXPECT(3, "they share a log", "run", "quick", "--sink", "ingest", SHORT);
    EXPECT(0, "nothing that the sink ingest makes is left", "clean", "--sink", "ingest");
    expect_tables(&other, "");
    testdb_close(&other);
    use_server("ingest");
}

/* For all of the server, so that others must not use it meanwhile (RESOURCE_LOCK). */
static void set_full_page_writes(struct testdb *db, const char *value)
{
    testdb_run(db, "ALTER SYSTEM SET full_page_writes = %s", value);
    testdb_run(db, "SELECT pg_reload_conf()");
    for (int tries = 0; tries < 500; tries++) { /* a reload takes a moment */
        char *now = testdb_text(db, "SELECT current_setting('full_page_writes')");
        bool done = strcmp(now, value) == 0;
        free(now);
        if (done) {
            return;
        }
        poll(NULL, 0, 20);
    }
    fail_msg("full_page_writes does not become %s", value);
}

static void a_void_comparison_is_not_begun(void **state)
{
    struct fixture *fixture = *state;
    unsetenv("SLUICE_SINK_URL");
    set_full_page_writes(&fixture->main, "off");
    struct buf out = {0};
    const char *const args[] = {"run", "quick", "--sink", "memory", SHORT, NULL};
    int code = run(&out, args);
    set_full_page_writes(&fixture->main, "on");
    testdb_run(&fixture->main, "ALTER SYSTEM RESET full_page_writes");
    assert_int_equal(code, 3);
    assert_non_null(strstr(out.data, "full_page_writes is off, wanted on"));
    assert_non_null(strstr(out.data, "--allow-unsafe"));
    assert_false(file_exists("runs"));
    buf_free(&out);
}

static void mistakes_are_told(void **state)
{
    struct fixture *fixture = *state;
    EXPECT(2, "--sink-url is the server of one sink", "run", "quick");
    EXPECT(2, "--sink-url is the server of one sink", "run", "quick", "--sink", "wal");
    EXPECT(2, "the sink is not ours", "run", "quick", "--sink", "ingest", "--set",
           "faults.0.who=sink");
    EXPECT(2, "the main-db is not ours", "run", "quick", "--sink", "ingest", "--set",
           "faults.0.who=main-db");
    EXPECT(2, "the sink memory leaves nothing behind", "clean", "--sink", "memory");
    setenv("SLUICE_SINK_URL", "redis://127.0.0.1:1/0", 1);
    EXPECT(3, "is not a Postgres URL", "run", "quick", "--sink", "ingest", SHORT);
    char *wrong = xasprintf("%s password='open-sesame'", fixture->main.url);
    setenv("SLUICE_MAIN_URL", wrong, 1);
    struct buf out = {0};
    const char *const args[] = {"run", "quick", "--sink", "memory", SHORT, NULL};
    assert_int_equal(run(&out, args), 2); /* memory has no server that could be given */
    unsetenv("SLUICE_SINK_URL");
    assert_int_equal(run(&out, args), 3);
    assert_non_null(strstr(out.data, "password authentication failed"));
    assert_null(strstr(out.data, "open-sesame"));
    buf_free(&out);
    free(wrong);
}

int main(int argc, char *argv[])
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(runs_leave_only_what_is_ours),
        CASE(waiting_tasks_are_not_touched),
        CASE(what_is_not_ours_is_refused),
        CASE(a_void_comparison_is_not_begun),
        CASE(mistakes_are_told),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: test_given PATH-OF-SLUICE\n");
        return 2;
    }
    sluice = realpath(argv[1], NULL);
    if (!server_url("main-db") || !server_url("ingest")) {
        const char *ci = getenv("CI");
        printf("SKIP: no servers: run it below `sluice with main-db ingest --`\n");
        return ci && strcmp(ci, "true") == 0 ? 1 : 77;
    }
    main_server = xstrdup(server_url("main-db"));
    if (!mkdtemp(scratch) || chmod(scratch, 0755) < 0 || chdir(scratch) < 0) {
        return 1;
    }
    int code = cmocka_run_group_tests(tests, NULL, NULL);
    return chdir("/") == 0 && file_remove_tree(scratch, NULL) == 0 ? code : 1;
}

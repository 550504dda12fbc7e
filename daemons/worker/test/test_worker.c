/* Oracle: the main DB's tables and the sink's backlog, read by the test itself. The worker under
 * test is the program as it is (its own process, killed and stopped as a person would), on the sink
 * "plain". No timing is judged except that what must end does end before the test's own limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/options.h"
#include "maindb/maindb.h"
#include "sink_plain.h"
#include "testdb.h"

static const char *program; /* sluice-worker with the sink plain in its registry */

struct fixture {
    struct testdb db;
    char folder[64];
    struct options *options;
    struct sink *api, *probe;
    unsigned settled;
    int port;
    pid_t worker;
};

static char *path_in(struct fixture *fixture, const char *name)
{
    return xasprintf("%s/%s", fixture->folder, name);
}

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof(*fixture));
    struct err err = {0};
    testdb_open(&fixture->db, 0);
    snprintf(fixture->folder, sizeof(fixture->folder), "/var/tmp/sluice-worker-XXXXXX");
    assert_non_null(mkdtemp(fixture->folder));
    char *dir = path_in(fixture, "sink");
    fixture->options = options_new("test", "");
    options_add(fixture->options, "Sink", sink_plain.options);
    assert_int_equal(options_set(fixture->options, "plain-dir", dir, "test", &err), 0);
    free(dir);
    *state = fixture;
    return 0;
}

static void open_sink(struct fixture *fixture)
{
    assert_int_equal(sink_plain.setup(fixture->options, NULL), 0);
    assert_int_equal(sink_plain.open(&fixture->api, SINK_INGEST, fixture->options, NULL), 0);
    assert_int_equal(sink_plain.open(&fixture->probe, SINK_PROBE, fixture->options, NULL), 0);
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    if (fixture->worker > 0) {
        kill(fixture->worker, SIGKILL);
        waitpid(fixture->worker, NULL, 0);
    }
    sink_plain.close(fixture->api, 0);
    sink_plain.close(fixture->probe, 0);
    options_free(fixture->options);
    testdb_close(&fixture->db);
    file_remove_tree(fixture->folder, NULL);
    free(fixture);
    return 0;
}

static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
    getsockname(fd, (struct sockaddr *)&address, &bytes);
    close(fd);
    return ntohs(address.sin_port);
}

/* extra: one more flag, or NULL. */
static void start_worker(struct fixture *fixture, const char *extra)
{
    char *dir = path_in(fixture, "sink");
    char *metrics = path_in(fixture, "worker.jsonl");
    char *log = path_in(fixture, "worker.log");
    fixture->port = free_port();
    char *flags[] = {xasprintf("--plain-dir=%s", dir), xasprintf("--metrics=%s", metrics),
                     xasprintf("--admin=127.0.0.1:%d", fixture->port),
                     extra ? xstrdup(extra) : NULL};
    fixture->worker = fork();
    if (fixture->worker == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(fd, STDERR_FILENO);
        setenv("SLUICE_MAIN_URL", fixture->db.url, 1);
        execl(program, program, "--sink=plain", "--lanes=4", "--batch=25", "--batch-wait=20ms",
              "--back-off-max=100ms", flags[0], flags[1], flags[2], flags[3], NULL);
        _exit(127);
    }
    for (size_t i = 0; i < 4; i++) {
        free(flags[i]);
    }
    free(dir);
    free(metrics);
    free(log);
}

static int end_worker(struct fixture *fixture, int signal_number)
{
    int status = 0;
    if (signal_number != 0) {
        kill(fixture->worker, signal_number);
    }
    for (int i = 0; i < 1000; i++) {
        pid_t pid = waitpid(fixture->worker, &status, WNOHANG);
        if (pid == fixture->worker) {
            fixture->worker = 0;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        clock_sleep_ns(10 * NS_PER_MS);
    }
    fail_msg("the worker does not end");
    return -1;
}

static char *read_file(struct fixture *fixture, const char *name)
{
    struct buf text = {0};
    char *path = path_in(fixture, name);
    file_read(path, 64 << 20, &text, NULL); /* not there yet: empty */
    free(path);
    buf_puts(&text, "");
    return text.data ? text.data : xstrdup("");
}

static void expect_log(struct fixture *fixture, const char *text)
{
    char *log = NULL;
    for (int i = 0; i < 1000; i++) {
        free(log);
        log = read_file(fixture, "worker.log");
        if (strstr(log, text)) {
            free(log);
            return;
        }
        clock_sleep_ns(10 * NS_PER_MS);
    }
    fail_msg("the log never says '%s':\n%s", text, log);
}

static int admin_status(struct fixture *fixture, const char *path)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)fixture->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char answer[256] = {0};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0) {
        char *request = xasprintf("GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path);
        if (send(fd, request, strlen(request), MSG_NOSIGNAL) > 0) {
            recv(fd, answer, sizeof(answer) - 1, 0);
        }
        free(request);
    }
    close(fd);
    return strncmp(answer, "HTTP/1.1 ", 9) == 0 ? atoi(answer + 9) : 0;
}

static void wait_for_admin(struct fixture *fixture, const char *path, int status)
{
    int found = -1;
    for (int i = 0; i < 1000 && found != status; i++) {
        found = admin_status(fixture, path);
        clock_sleep_ns(found != status ? 10 * NS_PER_MS : 0);
    }
    assert_int_equal(found, status);
}

static void on_done(void *arg, enum sink_outcome outcome, unsigned batch)
{
    struct fixture *fixture = arg;
    (void)batch;
    assert_int_equal(outcome, SINK_DURABLE);
    fixture->settled++;
}

/* Tasks first..first+count-1, with the bodies that the audit would expect. */
static void make_task(unsigned number, struct buf *body, struct task *task)
{
    task_synth_id(4711, number, task->id);
    buf_clear(body);
    task_synth_body(task->id, 100, body);
    task->body = body->data;
    task->body_bytes = body->len;
    task->accepted_us = clock_wall_us();
}

static void put_tasks(struct fixture *fixture, unsigned first, unsigned count)
{
    struct buf body = {0};
    for (unsigned i = first; i < first + count; i++) {
        struct task task;
        make_task(i, &body, &task);
        assert_int_equal(sink_plain.submit(fixture->api, &task, on_done, fixture), 0);
    }
    assert_int_equal(sink_plain.process(fixture->api), 0);
    buf_free(&body);
}

static int64_t backlog(struct fixture *fixture)
{
    struct sink_backlog backlog;
    assert_int_equal(sink_plain.backlog(fixture->probe, &backlog), 0);
    return backlog.tasks;
}

static void wait_until_drained(struct fixture *fixture)
{
    for (int i = 0; i < 3000 && backlog(fixture) > 0; i++) {
        clock_sleep_ns(10 * NS_PER_MS);
    }
    assert_int_equal(backlog(fixture), 0);
}

static void expect_exactly(struct fixture *fixture, unsigned first, unsigned count)
{
    struct buf body = {0};
    assert_int_equal(testdb_int(&fixture->db, "SELECT count(*) FROM task"), count);
    for (unsigned i = first; i < first + count; i++) {
        struct task task;
        char id[UUID_TEXT_BYTES];
        make_task(i, &body, &task);
        assert_int_equal(testdb_int(&fixture->db,
                                    "SELECT count(*) FROM task WHERE id = '%s' AND body = '%s'",
                                    uuid_format(task.id, id), body.data),
                         1);
    }
    buf_free(&body);
}

/* Sums one field over all `committed` events. */
static int64_t sum_events(struct fixture *fixture, const char *field)
{
    char *events = read_file(fixture, "worker.jsonl");
    char *key = xasprintf("\"%s\":", field);
    int64_t sum = 0;
    char *rest = events;
    for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
        char *at = strstr(line, key);
        if (strstr(line, "\"committed\"") && at) {
            sum += strtoll(at + strlen(key), NULL, 10);
        }
    }
    free(events);
    free(key);
    return sum;
}

static void drains_and_stops(void **state)
{
    struct fixture *fixture = *state;
    open_sink(fixture);
    put_tasks(fixture, 0, 300);
    start_worker(fixture, NULL);
    wait_for_admin(fixture, "/readyz", 200);
    put_tasks(fixture, 300, 200);
    wait_until_drained(fixture);
    assert_int_equal(end_worker(fixture, SIGTERM), 0);
    expect_exactly(fixture, 0, 500);
    assert_int_equal(sum_events(fixture, "rows"), 500);
    assert_int_equal(sum_events(fixture, "inserted"), 500);
    assert_int_equal(sum_events(fixture, "redelivered"), 0);
    char *events = read_file(fixture, "worker.jsonl");
    assert_non_null(strstr(events, "\"start\""));
    assert_non_null(strstr(events, "\"SIGTERM\""));
    assert_non_null(strstr(events, "\"age_ms\":"));
    free(events);
}

/* Killed in the middle, while statements sleep in the main DB, again and again. */
static void survives_kills(void **state)
{
    struct fixture *fixture = *state;
    open_sink(fixture);
    testdb_run(&fixture->db, "SELECT task_set_row_delay(0.002)");
    put_tasks(fixture, 0, 800);
    for (int round = 0; round < 5; round++) {
        start_worker(fixture, NULL);
        wait_for_admin(fixture, "/readyz", 200);
        clock_sleep_ns((40 + 30 * round) * NS_PER_MS);
        assert_int_equal(end_worker(fixture, SIGKILL), 128 + SIGKILL);
    }
    start_worker(fixture, NULL);
    wait_until_drained(fixture);
    assert_int_equal(end_worker(fixture, SIGINT), 0);
    expect_exactly(fixture, 0, 800);
    /* Each row is in an event; one whose batch came twice is in two, as redelivered. */
    assert_int_equal(sum_events(fixture, "rows"),
                     sum_events(fixture, "inserted") + sum_events(fixture, "redelivered"));
    assert_true(sum_events(fixture, "rows") >= 800);
}

static unsigned count_events(struct fixture *fixture)
{
    char *events = read_file(fixture, "worker.jsonl");
    unsigned count = 0;
    for (const char *at = events; (at = strstr(at, "\"committed\"")) != NULL; at++) {
        count++;
    }
    free(events);
    return count;
}

/* Tasks trickle in while four lanes are idle, too slowly to be plenty (a batch in more than a
 * quarter of --batch-wait): one lane has them all. Left to compete, each takes a few, and it is 40
 * batches rather than 10. A test machine that stands still for the whole of --batch-wait cuts a
 * batch in two; half of them may be. */
static void idle_lanes_do_not_share_out_a_batch(void **state)
{
    struct fixture *fixture = *state;
    enum { ROUNDS = 10, BATCH = 25, STEP = 5 };
    open_sink(fixture);
    start_worker(fixture, "--batch-wait=1s");
    wait_for_admin(fixture, "/readyz", 200);
    clock_sleep_ns(200 * NS_PER_MS); /* all have looked for what was theirs before */
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < BATCH; i += STEP) {
            clock_sleep_ns(70 * NS_PER_MS);
            put_tasks(fixture, round * BATCH + i, STEP);
        }
        wait_until_drained(fixture);
    }
    assert_int_equal(end_worker(fixture, SIGTERM), 0);
    expect_exactly(fixture, 0, ROUNDS * BATCH);
    assert_true(count_events(fixture) >= ROUNDS);
    assert_true(count_events(fixture) <= ROUNDS + ROUNDS / 2);
}

/* None has a batch: one lane fetches, three wait for it. */
static void stops_while_lanes_wait_for_their_turn(void **state)
{
    struct fixture *fixture = *state;
    open_sink(fixture);
    start_worker(fixture, "--batch-wait=1s");
    wait_for_admin(fixture, "/readyz", 200);
    assert_int_equal(end_worker(fixture, SIGTERM), 0);
    char *log = read_file(fixture, "worker.log");
    assert_null(strstr(log, "does not end"));
    free(log);
}

static void stops_while_the_main_db_sleeps(void **state)
{
    struct fixture *fixture = *state;
    open_sink(fixture);
    testdb_run(&fixture->db, "SELECT task_set_row_delay(1000)");
    put_tasks(fixture, 0, 50);
    start_worker(fixture, NULL);
    int64_t asleep = 0;
    for (int i = 0; i < 1000 && asleep < 2; i++) {
        asleep = testdb_int(&fixture->db,
                            "SELECT count(*) FROM pg_stat_activity WHERE datname = "
                            "'%s' AND wait_event = 'PgSleep'",
                            fixture->db.name);
        clock_sleep_ns(10 * NS_PER_MS);
    }
    assert_true(asleep >= 2);
    assert_int_equal(end_worker(fixture, SIGTERM), 0);
    assert_int_equal(backlog(fixture), 50); /* nothing was acknowledged */
    char *log = read_file(fixture, "worker.log");
    assert_null(strstr(log, "does not end")); /* cancelled, and not just left behind */
    free(log);
    assert_int_equal(testdb_int(&fixture->db, "SELECT count(*) FROM task"), 0);
}

static void waits_for_a_main_db_that_is_away(void **state)
{
    struct fixture *fixture = *state;
    open_sink(fixture);
    put_tasks(fixture, 0, 100);
    testdb_run(&fixture->db, "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
                             "$$BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END$$; "
                             "CREATE TRIGGER full_disk BEFORE INSERT ON task FOR EACH ROW "
                             "EXECUTE FUNCTION full_disk()");
    start_worker(fixture, NULL);
    expect_log(fixture, "no room (53100); next attempt in");
    wait_for_admin(fixture, "/readyz", 503); /* all lanes fail */
    wait_for_admin(fixture, "/healthz", 200);
    assert_int_equal(backlog(fixture), 100);
    testdb_run(&fixture->db, "DROP TRIGGER full_disk ON task");
    wait_until_drained(fixture);
    testdb_run(&fixture->db,
               "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname "
               "= '%s' AND pid <> pg_backend_pid()",
               fixture->db.name);
    put_tasks(fixture, 100, 100);
    wait_until_drained(fixture);
    wait_for_admin(fixture, "/readyz", 200);
    assert_int_equal(end_worker(fixture, SIGTERM), 0);
    expect_exactly(fixture, 0, 200);
    assert_int_equal(testdb_int(&fixture->db, "SELECT count(*) FROM task_dead"), 0);
}

static void a_person_must_act(void **state)
{
    struct fixture *fixture = *state;
    open_sink(fixture);
    start_worker(fixture, NULL);
    wait_for_admin(fixture, "/readyz", 200);
    testdb_run(&fixture->db, "ALTER TABLE task RENAME TO elsewhere");
    put_tasks(fixture, 0, 60);
    assert_int_equal(end_worker(fixture, 0), 3); /* by itself */
    expect_log(fixture, "42P01");
    assert_int_equal(backlog(fixture), 60);
    start_worker(fixture, NULL); /* nor does it start like that */
    assert_int_equal(end_worker(fixture, 0), 3);
    testdb_run(&fixture->db, "ALTER TABLE elsewhere RENAME TO task");
    start_worker(fixture, NULL);
    wait_until_drained(fixture);
    assert_int_equal(end_worker(fixture, SIGTERM), 0);
    expect_exactly(fixture, 0, 60);
}

static void refused_tasks_do_not_stop_it(void **state)
{
    struct fixture *fixture = *state;
    open_sink(fixture);
    testdb_run(&fixture->db, "ALTER TABLE task ADD CHECK (get_byte(uuid_send(id), 15) %% 10 <> 3)");
    put_tasks(fixture, 0, 400);
    put_tasks(fixture, 0, 100); /* and some come twice */
    start_worker(fixture, NULL);
    wait_until_drained(fixture);
    assert_int_equal(end_worker(fixture, SIGTERM), 0);
    int64_t rows = testdb_int(&fixture->db, "SELECT count(*) FROM task");
    int64_t dead = testdb_int(&fixture->db, "SELECT count(*) FROM task_dead");
    assert_int_equal(rows + dead, 400);
    assert_true(dead > 10);
    assert_int_equal(sum_events(fixture, "inserted"), rows);
    assert_int_equal(sum_events(fixture, "dead"), dead);
    assert_int_equal(sum_events(fixture, "redelivered"), 100);
    assert_int_equal(testdb_int(&fixture->db, "SELECT count(*) FROM task_dead WHERE reason <> "
                                              "'23514'"),
                     0);
}

static void starts_before_the_sink(void **state)
{
    struct fixture *fixture = *state;
    char *dir = path_in(fixture, "sink");
    char *away = path_in(fixture, "away");
    assert_int_equal(symlink(away, dir), 0); /* to nowhere yet: not even setup can make it */
    start_worker(fixture, NULL);
    expect_log(fixture, "next attempt in");
    assert_int_equal(admin_status(fixture, "/readyz"), 503);
    unlink(dir);
    open_sink(fixture);
    put_tasks(fixture, 0, 30);
    wait_until_drained(fixture);
    assert_int_equal(end_worker(fixture, SIGTERM), 0);

    sink_plain.close(fixture->api, 0);
    sink_plain.close(fixture->probe, 0);
    fixture->api = fixture->probe = NULL;
    file_remove_tree(dir, NULL);
    assert_int_equal(symlink(away, dir), 0);
    start_worker(fixture, "--start-wait=0");
    assert_int_equal(end_worker(fixture, 0), 3);
    start_worker(fixture, NULL); /* and a signal ends the waiting */
    wait_for_admin(fixture, "/readyz", 503);
    assert_int_equal(end_worker(fixture, SIGTERM), 0);
    free(dir);
    free(away);
}

static void keeps_a_second_worker_out(void **state)
{
    struct fixture *fixture = *state;
    open_sink(fixture);
    start_worker(fixture, NULL);
    wait_for_admin(fixture, "/readyz", 200);
    pid_t first = fixture->worker;
    start_worker(fixture, NULL);
    assert_int_equal(end_worker(fixture, 0), 3);
    expect_log(fixture, "is in use: another process has its drain side");
    fixture->worker = first;
    assert_int_equal(end_worker(fixture, SIGTERM), 0);
}

static void mistakes_are_told(void **state)
{
    struct fixture *fixture = *state;
    open_sink(fixture);
    static const char *const flags[] = {"--sink=nowhere", "--lanes=0", "--main-url=http://x/",
                                        "--batch-wait=5", "--metrics=/nonexistent/x/"};
    static const int codes[] = {2, 2, 3, 2, 3};
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        start_worker(fixture, flags[i]);
        assert_int_equal(end_worker(fixture, 0), codes[i]);
    }
}

int main(int argc, char *argv[])
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s PATH-OF-WORKER\n", argv[0]);
        return 2;
    }
    testdb_need_server();
    program = argv[1];
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(drains_and_stops, setup, teardown),
        cmocka_unit_test_setup_teardown(survives_kills, setup, teardown),
        cmocka_unit_test_setup_teardown(idle_lanes_do_not_share_out_a_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(stops_while_lanes_wait_for_their_turn, setup, teardown),
        cmocka_unit_test_setup_teardown(stops_while_the_main_db_sleeps, setup, teardown),
        cmocka_unit_test_setup_teardown(waits_for_a_main_db_that_is_away, setup, teardown),
        cmocka_unit_test_setup_teardown(a_person_must_act, setup, teardown),
        cmocka_unit_test_setup_teardown(refused_tasks_do_not_stop_it, setup, teardown),
        cmocka_unit_test_setup_teardown(starts_before_the_sink, setup, teardown),
        cmocka_unit_test_setup_teardown(keeps_a_second_worker_out, setup, teardown),
        cmocka_unit_test_setup_teardown(mistakes_are_told, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Oracle: --help of sluice-loadgen (exit statuses) and docs/metrics.md (what it leaves). Runs the
 * program, whose path is the first argument, against a server in this process (server.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "server.h"

static const char *program;

struct fixture {
    char folder[64];
    char ledger_path[96], metrics_path[96], out[96];
    char ledger[112], metrics[112]; /* the options that name them */
    char target[64];
    struct server *server;
    struct buf text;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    strcpy(f->folder, "/tmp/test-loadgen-XXXXXX");
    if (!mkdtemp(f->folder))
        return -1;
    snprintf(f->ledger_path, sizeof(f->ledger_path), "%s/ledger.tsv", f->folder);
    snprintf(f->metrics_path, sizeof(f->metrics_path), "%s/loadgen.jsonl", f->folder);
    snprintf(f->ledger, sizeof(f->ledger), "--ledger=%s", f->ledger_path);
    snprintf(f->metrics, sizeof(f->metrics), "--metrics=%s", f->metrics_path);
    snprintf(f->out, sizeof(f->out), "%s/out", f->folder);
    f->server = server_start(script_durable, NULL);
    snprintf(f->target, sizeof(f->target), "--target=127.0.0.1:%d", server_port(f->server));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    if (f->server)
        server_stop(f->server);
    file_remove_tree(f->folder, NULL);
    buf_free(&f->text);
    free(f);
    return 0;
}

/* A generator that waits for its start does so with its metrics file open. */
static void await_file(const char *path)
{
    while (access(path, F_OK) < 0)
        clock_sleep_ns(NS_PER_MS);
}

static pid_t start(struct fixture *f, const char *const *arguments)
{
    const char *argv[16] = {program};
    pid_t pid;

    for (int i = 0; arguments[i]; i++)
        argv[i + 1] = arguments[i];
    pid = fork();
    if (pid == 0) {
        if (!freopen(f->out, "w", stdout) || !freopen(f->out, "a", stderr))
            _exit(99);
        execv(program, (char *const *)(uintptr_t)argv);
        _exit(99);
    }
    return pid;
}

/* Exit status; what it said is in f->text. */
static int finish(struct fixture *f, pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    buf_clear(&f->text);
    assert_int_equal(file_read(f->out, 1 << 20, &f->text, NULL), 0);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int run(struct fixture *f, const char *const *arguments)
{
    return finish(f, start(f, arguments));
}

#define RUN(f, ...) run(f, (const char *const[]){__VA_ARGS__, NULL})

static char *read_text(struct fixture *f, const char *path)
{
    buf_clear(&f->text);
    assert_int_equal(file_read(path, 1 << 20, &f->text, NULL), 0);
    return f->text.data;
}

static void whole_load(void **state)
{
    struct fixture *f = *state;
    char *text;

    assert_int_equal(RUN(f, f->target, "--rps=100", "--phase=a:100ms:1", "--phase=b:100ms:2",
                         "--seed=18446744073709551615", "--payload-bytes=10", "--connections=2",
                         f->ledger, f->metrics),
                     0);
    assert_non_null(strstr(f->text.data, "phase b: 20 of 20 requests"));
    text = read_text(f, f->ledger_path);
    assert_ptr_equal(strstr(text, "#sluice-ledger 1 seed=18446744073709551615 payload_bytes=10\n"),
                     text);
    assert_non_null(strstr(text, "\n#end rows=30\n"));
    text = read_text(f, f->metrics_path);
    assert_non_null(strstr(text, "\"ev\": \"start\", \"role\": \"loadgen\""));
    assert_non_null(strstr(text, "\"why\": \"done\", \"complete\": true, \"due\": 30"));
    // The same again would write over evidence.
    assert_int_equal(RUN(f, f->target, f->ledger), 3);
    assert_non_null(strstr(read_text(f, f->ledger_path), "\n#end rows=30\n"));
}

/* A rate of 0 is a pause: first, in the middle and last. */
static void silent_phases(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(RUN(f, f->target, "--rps=100", "--phase=a:100ms:0", "--phase=b:100ms:1",
                         "--phase=c:100ms:0", "--phase=d:100ms:1", "--phase=e:100ms:0", f->ledger,
                         f->metrics),
                     0);
    assert_non_null(strstr(f->text.data, "phase a: 0 of 0 requests"));
    assert_non_null(strstr(f->text.data, "phase e: 0 of 0 requests"));
    assert_non_null(strstr(read_text(f, f->ledger_path), "\n#end rows=20\n"));
}

static void signals(void **state)
{
    static const struct {
        int signal, status;
        const char *why;
    } cases[] = {{SIGINT, 130, "\"why\": \"SIGINT\", \"complete\": false"},
                 {SIGTERM, 143, "\"why\": \"SIGTERM\", \"complete\": false"}};
    struct fixture *f = *state;

    for (int i = 0; i < 2; i++) {
        const char *arguments[] = {f->target, "--phase=a:600s:1", f->ledger, f->metrics, NULL};
        unsigned before = server_requests(f->server);
        pid_t pid = start(f, arguments);

        server_await(f->server, before + 20);
        kill(pid, cases[i].signal);
        assert_int_equal(finish(f, pid), cases[i].status);
        assert_non_null(strstr(read_text(f, f->metrics_path), cases[i].why));
        assert_non_null(strstr(read_text(f, f->ledger_path), "\n#end rows="));
        unlink(f->ledger_path);
    }
}

static void nobody_listens(void **state)
{
    struct fixture *f = *state;

    server_stop(f->server);
    f->server = NULL;
    assert_int_equal(RUN(f, f->target, f->ledger, f->metrics), 3);
    assert_non_null(strstr(f->text.data, "cannot connect to 127.0.0.1:"));
    assert_int_equal(access(f->ledger_path, F_OK), -1); // nothing was sent
    assert_non_null(strstr(read_text(f, f->metrics_path), "\"complete\": false"));
    assert_int_equal(RUN(f, f->target, "--max"), 3);
}

static void flat_out(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(RUN(f, f->target, "--max", "--duration=100ms", "--connections=3"), 0);
    assert_memory_equal(f->text.data, "requests_per_s ", 15);
    assert_non_null(strstr(f->text.data, "\nlost 0\n"));
    assert_non_null(strstr(f->text.data, "\nconnections_used 3\n"));
}

static void mistakes(void **state)
{
    static const struct {
        const char *arguments[4];
        const char *names;
    } cases[] = {
        {{"--rps=5"}, "--target"},
        {{"--target=127.0.0.1"}, "HOST:PORT"},
        {{"--target=127.0.0.1:http"}, "number"},
        {{"--target=127.0.0.1:1", "--rps=-1"}, "rps"},
        {{"--target=127.0.0.1:1", "--pacing=even"}, "paced"},
        {{"--target=127.0.0.1:1", "--phase=a:1:1"}, "duration"},
        {{"--target=127.0.0.1:1", "--phase=a:1s:1", "--phase=a:1s:1"}, "twice"},
        {{"--target=127.0.0.1:1", "--max", "--ledger=x"}, "--ledger"},
        {{"--target=127.0.0.1:1", "--duration=5s"}, "--max"},
        {{"--target=127.0.0.1:1", "--path=task"}, "--path"},
        {{"--target=127.0.0.1:1", "--start-at=9000000000000000000"}, "microseconds"},
        {{"--target=127.0.0.1:1", "--seed=-1"}, "--seed"},
        {{"--target=127.0.0.1:1", "--seed=18446744073709551616"}, "--seed"},
        {{"--target=127.0.0.1:1", "--nonsense"}, "nonsense"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (run(f, cases[i].arguments) != 2 || !strstr(f->text.data, cases[i].names))
            fail_msg("%s %s: \"%s\"", cases[i].arguments[0], cases[i].arguments[1], f->text.data);
    }
    assert_int_equal(RUN(f, f->target, "--start-at=1700000000000000"), 3); // passed
    assert_non_null(strstr(f->text.data, "--start-at passed"));
    assert_int_equal(RUN(f, "--version"), 0);
    assert_int_equal(RUN(f, "--help"), 0);
    assert_non_null(strstr(f->text.data, "Exit status"));
}

/* Sent at the time it was told, and by then connected. */
static void starts_at(void **state)
{
    struct fixture *f = *state;
    int64_t start_us = clock_wall_us() + US_PER_S;
    long long due_us, sent_us;
    const char *first_row;
    char option[64];

    snprintf(option, sizeof(option), "--start-at=%lld", (long long)start_us);
    assert_int_equal(RUN(f, f->target, option, "--rps=10", "--phase=a:100ms:1", f->ledger), 0);
    first_row = strchr(read_text(f, f->ledger_path), '\n');
    assert_non_null(first_row);
    assert_int_equal(sscanf(first_row, "%*s %lld %lld", &due_us, &sent_us), 2);
    assert_int_equal(due_us, start_us);
    assert_true(sent_us >= due_us);
}

/* The same from a file that comes later; what is wrong with it is said. */
static void starts_by_a_file(void **state)
{
    struct fixture *f = *state;
    char start_path[96], option[112], text[64];
    long long due_us;

    snprintf(start_path, sizeof(start_path), "%s/load", f->folder);
    snprintf(option, sizeof(option), "--start-file=%s", start_path);
    assert_int_equal(RUN(f, f->target, option, "--start-wait=50ms", f->ledger), 3);
    assert_non_null(strstr(f->text.data, "--start-wait"));
    assert_int_equal(access(f->ledger_path, F_OK), -1);
    static const char *const bad[] = {"", "soon\n", "17000000000000 1\n", "-5\n", "17\n18\n"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(file_write(start_path, bad[i], strlen(bad[i]), NULL), 0);
        assert_int_equal(RUN(f, f->target, option, f->ledger), 3);
        assert_non_null(strstr(f->text.data, "no start file"));
    }
    assert_int_equal(file_write(start_path, "1700000000000000\n", 17, NULL), 0);
    assert_int_equal(RUN(f, f->target, option, f->ledger), 3);
    assert_non_null(strstr(f->text.data, "ms ago"));
    unlink(start_path);

    char folder[112], metrics_1[112];
    snprintf(folder, sizeof(folder), "--metrics=%s/", f->folder);
    snprintf(metrics_1, sizeof(metrics_1), "%s/loadgen-1.jsonl", f->folder);
    const char *const arguments[] = {f->target, option, "--rps=10", "--phase=a:100ms:1",
                                     f->ledger, folder, NULL};
    pid_t pid = start(f, arguments);
    await_file(metrics_1);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
    int64_t start_us = clock_wall_us() + US_PER_S;
    int len = snprintf(text, sizeof(text), "%lld\n", (long long)start_us);
    assert_int_equal(file_write(start_path, text, (size_t)len, NULL), 0);
    assert_int_equal(finish(f, pid), 0);
    const char *first_row = strchr(read_text(f, f->ledger_path), '\n');
    assert_non_null(first_row);
    assert_int_equal(sscanf(first_row, "%*s %lld", &due_us), 1);
    assert_int_equal(due_us, start_us);
}

/* A signal while it waits ends it, without a ledger. */
static void stops_while_it_waits(void **state)
{
    struct fixture *f = *state;
    char option[112], metrics[112];

    snprintf(option, sizeof(option), "--start-file=%s/load", f->folder);
    snprintf(metrics, sizeof(metrics), "%s/loadgen.jsonl", f->folder);
    const char *const arguments[] = {f->target, option, f->ledger, f->metrics, NULL};
    pid_t pid = start(f, arguments);
    await_file(metrics);
    kill(pid, SIGTERM);
    assert_int_equal(finish(f, pid), 143);
    /* A fixture is always there, which the analyser cannot know. */
    assert_int_equal(access(f->ledger_path, F_OK), -1); /* NOLINT(*NonNullParamChecker) */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(whole_load),     TEST(silent_phases),    TEST(signals),
        TEST(nobody_listens), TEST(flat_out),         TEST(mistakes),
        TEST(starts_at),      TEST(starts_by_a_file), TEST(stops_while_it_waits),
    };

    if (argc != 2)
        return 2;
    program = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Oracle: what the kernel says of processes that were started (exit status, /proc, files they
 * wrote), and http answers written by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "http.h"
#include "process.h"

static char scratch[] = "/var/tmp/sluice-test-process-XXXXXX";

static void start_shell(struct process *process, const char *script, const char *log_name)
{
    const char *argv[] = {"/bin/sh", "-c", script, NULL};
    const char *env[] = {"ADDED=yes", NULL};
    char *log_path = xasprintf("%s/%s", scratch, log_name);
    struct process_plan plan = {
        .who = "shell", .argv = argv, .env = env, .log_path = log_path, .cwd = scratch};
    struct err err = {0};
    if (process_start(process, &plan, &err) < 0) {
        fail_msg("%s", err.text);
    }
    free(log_path);
}

static void settings_of_the_users_shell_stay_out(void **state)
{
    (void)state;
    struct process process;
    struct buf log = {0};
    setenv("SLUICE_LISTEN", "0.0.0.0:80", 1);
    setenv("OTHER", "kept", 1);
    setenv("ADDED", "old", 1);
    start_shell(&process, "echo \"<$SLUICE_LISTEN> <$OTHER> <$ADDED> $(pwd)\"", "env.log");
    assert_true(process_wait(&process, 5000));
    assert_int_equal(process.status, 0);
    assert_int_equal(file_read(process.log_path, 4096, &log, NULL), 0);
    char *expected = xasprintf("<> <kept> <yes> %s\n", scratch);
    assert_string_equal(log.data, expected);
    free(expected);
    buf_free(&log);
    unsetenv("SLUICE_LISTEN");
    process_free(&process);
}

static void a_program_that_is_not_there(void **state)
{
    (void)state;
    const char *argv[] = {"/no/such/program", NULL};
    struct process process;
    struct process_plan plan = {.who = "api", .argv = argv};
    struct err err = {0};
    assert_int_equal(process_start(&process, &plan, &err), -ENOENT);
    assert_non_null(strstr(err.text, "api could not be started"));
    assert_non_null(strstr(err.text, "/no/such/program"));
    assert_false(process_runs(&process));
    plan.cwd = "/no/such/folder";
    argv[0] = "/bin/true";
    assert_int_equal(process_start(&process, &plan, &err), -ENOENT);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nothing is left to be collected */
}

static void an_obituary_names_log_and_last_line(void **state)
{
    (void)state;
    struct process process;
    struct err err = {0};
    start_shell(&process, "echo first; printf 'disk\\tis full\\n\\n'; exit 3", "last.log");
    assert_true(process_wait(&process, 5000));
    assert_int_equal(process_obituary(&process, "while it started", &err), -ECHILD);
    char *expected = xasprintf("shell ended while it started (exit code 3); its log %s/last.log "
                               "ends: disk is full",
                               scratch);
    assert_string_equal(err.text, expected);
    free(expected);
    process_free(&process);
}

/* Reads "pid pid" from a file that the shell writes. */
static void read_pids(const char *name, pid_t pids[2])
{
    char *path = xasprintf("%s/%s", scratch, name);
    int a = 0, b = 0;
    for (int tries = 0; tries < 500 && b == 0; tries++) {
        FILE *file = fopen(path, "re");
        if (file) {
            if (fscanf(file, "%d %d", &a, &b) != 2) {
                b = 0;
            }
            fclose(file);
        }
        poll(NULL, 0, 10);
    }
    assert_true(b > 0);
    free(path);
    pids[0] = a;
    pids[1] = b;
}

static char state_of(pid_t pid)
{
    char path[64], line[512];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file) {
        return '-';
    }
    size_t len = fread(line, 1, sizeof(line) - 1, file);
    fclose(file);
    line[len] = '\0';
    const char *rest = strrchr(line, ')');
    return rest ? rest[2] : '?';
}

static bool becomes(pid_t pid, const char *states)
{
    for (int tries = 0; tries < 500; tries++) {
        if (strchr(states, state_of(pid))) {
            return true;
        }
        poll(NULL, 0, 10);
    }
    return false;
}

static void a_pause_holds_the_whole_tree(void **state)
{
    (void)state;
    struct process process;
    pid_t pids[2];
    start_shell(&process, "sleep 600 & a=$!; setsid sleep 600 & echo $a $! > tree; wait",
                "tree.log");
    read_pids("tree", pids);
    process_signal_tree(&process, SIGSTOP);
    assert_true(becomes(process.pid, "T"));
    assert_true(becomes(pids[0], "T"));
    assert_true(becomes(pids[1], "T"));
    process_signal_tree(&process, SIGCONT);
    assert_true(becomes(process.pid, "S"));
    assert_true(becomes(pids[0], "S"));
    assert_true(becomes(pids[1], "S"));
    process_kill_tree(&process);
    assert_false(process_runs(&process));
    assert_int_equal(WTERMSIG(process.status), SIGKILL);
    assert_true(becomes(pids[0], "-Z"));
    assert_true(becomes(pids[1], "-Z"));
    process_free(&process);
}

static void stop_asks_first_and_then_insists(void **state)
{
    (void)state;
    struct process process;
    pid_t pids[2];
    start_shell(&process, "trap 'exit 0' TERM; echo 1 1 > ready1; while :; do sleep 0.05; done",
                "polite.log");
    read_pids("ready1", pids);
    assert_true(process_stop(&process, SIGTERM, 5000));
    process_free(&process);
    start_shell(&process, "trap '' TERM; echo 1 1 > ready2; while :; do sleep 0.05; done",
                "deaf.log");
    read_pids("ready2", pids);
    assert_false(process_stop(&process, SIGTERM, 300));
    assert_false(process_runs(&process));
    process_free(&process);
    /* One that is stopped by SIGSTOP must be able to hear. */
    start_shell(&process, "trap 'exit 0' TERM; echo 1 1 > ready3; while :; do sleep 0.05; done",
                "paused.log");
    read_pids("ready3", pids);
    process_signal_tree(&process, SIGSTOP);
    assert_true(process_stop(&process, SIGTERM, 5000));
    process_free(&process);
}

/* ---- http: a server that says what it is told to ---- */

static int serve(const char *answer, pid_t *server)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t len = sizeof(address);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(fd, 5), 0);
    getsockname(fd, (struct sockaddr *)&address, &len);
    fflush(NULL);
    *server = fork();
    if (*server == 0) {
        int peer = accept(fd, NULL, NULL);
        char request[8192];
        (void)!read(peer, request, sizeof(request));
        if (!answer) {
            poll(NULL, 0, 10000);
        } else {
            file_write_all(peer, answer, strlen(answer));
        }
        close(peer);
        _exit(0);
    }
    close(fd);
    return ntohs(address.sin_port);
}

static void http_answers(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        int code;
        const char *body;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n", 200, "ok\n"},
        {"HTTP/1.1 503 Service Unavailable\r\n\r\nnot yet", 503, "not yet"},
        {"HTTP/1.0 202 Accepted\r\n\r\n", 202, ""},
        {"", -EPROTO, ""},
        {"garbage\r\n\r\n", -EPROTO, ""},
        {"HTTP/1.1 200 OK\r\n", -EPROTO, ""},
        {NULL, -ETIMEDOUT, ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        pid_t server;
        struct buf body = {0};
        char address[32];
        snprintf(address, sizeof(address), i % 2 ? "127.0.0.1:%d" : "localhost:%d",
                 serve(cases[i].answer, &server));
        assert_int_equal(http_get(address, "/readyz", cases[i].answer ? 5000 : 200, &body),
                         cases[i].code);
        assert_string_equal(body.data ? body.data : "", cases[i].body);
        buf_free(&body);
        kill(server, SIGKILL);
        waitpid(server, NULL, 0);
        assert_int_equal(http_get(address, "/readyz", 1000, NULL), -ECONNREFUSED);
    }
}

static void http_addresses(void **state)
{
    (void)state;
    static const char *const good[] = {"api:9101", "127.0.0.1:1", "[::1]:65535", "a.b-c:80"};
    static const char *const bad[] = {"",      "api",       "api:",    ":80",
                                      "api:0", "api:65536", "api:80x", "api:+8"};
    struct err err = {0};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(http_address_check(good[i], &err), 0);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(http_address_check(bad[i], &err), -EINVAL);
        assert_non_null(strstr(err.text, "HOST:PORT"));
        assert_int_equal(http_get(bad[i], "/readyz", 100, NULL), -EINVAL);
    }
    assert_int_equal(http_get("nosuch.invalid:80", "/readyz", 100, NULL), -EHOSTUNREACH);
}

static int make_scratch(void **state)
{
    (void)state;
    return mkdtemp(scratch) ? 0 : -1;
}

static int remove_scratch(void **state)
{
    (void)state;
    return file_remove_tree(scratch, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_of_the_users_shell_stay_out),
        cmocka_unit_test(a_program_that_is_not_there),
        cmocka_unit_test(an_obituary_names_log_and_last_line),
        cmocka_unit_test(a_pause_holds_the_whole_tree),
        cmocka_unit_test(stop_asks_first_and_then_insists),
        cmocka_unit_test(http_answers),
        cmocka_unit_test(http_addresses),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}

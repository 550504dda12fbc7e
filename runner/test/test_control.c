/* Oracle: PostgreSQL itself, asked through libpq after each command: it answers, refuses or hangs.
 * The client is another process and the one that tests use (lib/sink/test/server_control.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <libpq-fe.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "control.h"
#include "prefix.h"
#include "server_control.h"
#include "state.h"

static char scratch[] = "/var/tmp/sluice-test-control-XXXXXX";

enum answer { ANSWERS, REFUSES, HANGS };

static enum answer ask(const char *url)
{
    const char *const keys[] = {"dbname", "connect_timeout", NULL};
    const char *const values[] = {url, "2", NULL};
    PGconn *conn = PQconnectdbParams(keys, values, 1);
    enum answer answer = PQstatus(conn) == CONNECTION_OK                   ? ANSWERS
                         : strstr(PQerrorMessage(conn), "timeout expired") ? HANGS
                                                                           : REFUSES;
    PQfinish(conn);
    return answer;
}

/* Not cmocka's asserts: this runs in a child, whose exit code is looked at. */
static void demand(const char *command, int rc, const char *url, enum answer expected)
{
    struct err err = {0};
    int got = server_control("main-db", command, &err);
    if (got != rc || ask(url) != expected) {
        fprintf(stderr, "%s: %d (%s), and then the server answers as %d, not %d\n", command, got,
                err.text, (int)ask(url), (int)expected);
        _exit(1);
    }
}

static void use_server(const char *url)
{
    demand("start", 0, url, ANSWERS); /* it runs already */
    demand("kill", 0, url, REFUSES);
    demand("kill", 0, url, REFUSES);
    demand("start", 0, url, ANSWERS);
    demand("pause", 0, url, HANGS);
    demand("resume", 0, url, ANSWERS);
    demand("stop", 0, url, REFUSES);
    demand("start", 0, url, ANSWERS);
    demand("pause", 0, url, HANGS);
    demand("stop", 0, url, REFUSES);
    demand("start", 0, url, ANSWERS);
    demand("dance", -EIO, url, ANSWERS);
    demand("pause", 0, url, HANGS);
    demand("start", 0, url, ANSWERS);
    _exit(0);
}

/* Connects and says nothing, or half a line, for as long as it lives. */
static pid_t start_mute_client(const char *path)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
            write(fd, "ki", 2) == 2) {
            pause();
        }
        _exit(1);
    }
    return pid;
}

static void server_does_as_it_is_told(void **state)
{
    (void)state;
    struct server server;
    struct control control = {0};
    struct account account;
    struct err err = {0};
    char *log_path = xasprintf("%s/log", scratch);
    struct server_place place = {.who = "main-db",
                                 .state_dir = scratch,
                                 .base = scratch,
                                 .log_path = log_path,
                                 .clients = 20};
    assert_int_equal(account_for_servers(&account, &err), 0);
    if (server_start(&server, &server_postgres, &place, &err) < 0 ||
        control_open(&control, &server, scratch, "main-db", &err) < 0) {
        fail_msg("%s", err.text);
        return;
    }
    struct stat facts;
    assert_int_equal(stat(control.path, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0700);
    setenv("SLUICE_TEST_MAIN_CONTROL", control.path, 1);

    pid_t mute = start_mute_client(control.path);
    pid_t child = fork();
    if (child == 0) {
        use_server(server.url);
    }
    int status = 0;
    const struct control *const controls[] = {&control};
    while (waitpid(child, &status, WNOHANG) == 0) {
        control_serve(controls, 1, 20);
    }
    assert_int_equal(status, 0);
    kill(mute, SIGKILL);
    waitpid(mute, NULL, 0);
    control_close(&control);
    assert_false(file_exists(getenv("SLUICE_TEST_MAIN_CONTROL")));
    assert_true(server_stop(&server));
    server_free(&server);
    free(log_path);
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(scratch) && chmod(scratch, 0711) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return file_remove_tree(scratch, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(server_does_as_it_is_told),
    };
    char *bin;
    if (prefix_find_postgres(&bin, NULL) < 0) {
        const char *ci = getenv("CI");
        printf("SKIP: no PostgreSQL server; run scripts/deps\n");
        return ci && strcmp(ci, "true") == 0 ? 1 : 77;
    }
    free(bin);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

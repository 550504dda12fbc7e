/* Oracle: PostgreSQL itself, asked through libpq, and the kernel: who runs, as whom, on which port.
 */
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
#include <libpq-fe.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "prefix.h"
#include "server.h"
#include "state.h"

static char scratch[] = "/var/tmp/sluice-test-server-XXXXXX";
static char *base, *log_path;

static int start(struct server *server, const char *state_name, struct err *err)
{
    struct account ourselves = {0};
    char *dir;
    *err = (struct err){0};
    assert_int_equal(state_subdir(base, state_name, &ourselves, &dir, err), 0);
    chmod(dir, 0711);
    struct server_place place = {
        .who = "main-db", .state_dir = dir, .base = base, .log_path = log_path, .clients = 20};
    int rc = server_start(server, &server_postgres, &place, err);
    free(dir);
    return rc;
}

/* First value of a query, or NULL; free it. */
static char *ask(const char *url, const char *query)
{
    PGconn *conn = PQconnectdb(url);
    PGresult *result = PQexec(conn, query);
    char *value = NULL;
    if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) > 0) {
        value = xstrdup(PQgetvalue(result, 0, 0));
    } else if (PQresultStatus(result) == PGRES_COMMAND_OK) {
        value = xstrdup("done");
    }
    PQclear(result);
    PQfinish(conn);
    return value;
}

static void expect(const char *url, const char *query, const char *value)
{
    char *got = ask(url, query);
    if (!got || strcmp(got, value) != 0) {
        fail_msg("%s: expected %s, got %s", query, value, got ? got : "nothing");
    }
    free(got);
}

static void wait_ready(struct server *server)
{
    struct err err = {0};
    int rc = -EAGAIN;
    for (int tries = 0; tries < 3000 && rc == -EAGAIN; tries++) {
        rc = server_poll_ready(server, &err);
        poll(NULL, 0, 20);
    }
    if (rc != 0) {
        fail_msg("not ready: %s", err.text);
    }
}

static void lives_and_survives(void **state)
{
    (void)state;
    struct server server;
    struct err err;
    if (start(&server, "good", &err) < 0) {
        fail_msg("%s", err.text);
    }
    assert_non_null(strstr(server.version, "PostgreSQL 1"));
    expect(server.url, "SHOW fsync", "on");
    expect(server.url, "SHOW synchronous_commit", "on");
    expect(server.url, "SHOW full_page_writes", "on");
    expect(server.url, "SHOW listen_addresses", "127.0.0.1");
    expect(server.url, "SHOW unix_socket_directories", "");
    expect(server.url, "CREATE TABLE kept AS SELECT 41 + 1 AS n", "done");

    /* Without the password nobody gets in. */
    char *no_password = xasprintf("postgresql://sluice:wrong@127.0.0.1:%d/postgres", server.port);
    assert_null(ask(no_password, "SELECT 1"));
    free(no_password);

    /* Not as root, and the password in no command line. */
    char path[64];
    struct stat facts;
    snprintf(path, sizeof(path), "/proc/%d", (int)server.process.pid);
    assert_int_equal(stat(path, &facts), 0);
    assert_true(facts.st_uid != 0);
    struct buf line = {0};
    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)server.process.pid);
    assert_int_equal(file_read(path, 4096, &line, NULL), 0);
    assert_null(memmem(line.data, line.len, server.password, strlen(server.password)));
    buf_free(&line);
    assert_false(file_exists("/var/tmp/password"));

    struct buf settings = {0};
    assert_int_equal(server.kind->settings(&server, &settings, &err), 0);
    cJSON *json = cJSON_Parse(settings.data);
    assert_string_equal(cJSON_GetObjectItem(json, "fsync")->valuestring, "on");
    assert_string_equal(cJSON_GetObjectItem(json, "max_connections")->valuestring, "40");
    cJSON_Delete(json);
    buf_free(&settings);
    assert_int_equal(server.kind->settle(&server, &err), 0);

    /* Housekeeping on demand: a checkpoint moves the place where a recovery would start. */
    char *redo = ask(server.url, "SELECT redo_lsn FROM pg_control_checkpoint()");
    expect(server.url, "CREATE TABLE more AS SELECT 1 AS n", "done");
    assert_true(server_kind_does(server.kind, "checkpoint"));
    assert_int_equal(server.kind->background(&server, "checkpoint", &err), 0);
    char *moved = ask(server.url, "SELECT redo_lsn FROM pg_control_checkpoint()");
    assert_string_not_equal(redo, moved);
    free(redo);
    free(moved);
    assert_true(server_kind_does(server.kind, "vacuum"));
    assert_int_equal(server.kind->background(&server, "vacuum", &err), 0);
    static const char counts[] = "SELECT vacuum_count || '+' || analyze_count FROM "
                                 "pg_stat_user_tables WHERE relname = 'more'";
    for (int tries = 0; tries < 500; tries++) { /* a session tells its counts when it ends */
        char *count = ask(server.url, counts);
        bool told = count && strcmp(count, "1+1") == 0;
        free(count);
        if (told) {
            break;
        }
        poll(NULL, 0, 20);
    }
    expect(server.url, counts, "1+1");
    assert_false(server_kind_does(server.kind, "aof-rewrite"));
    assert_false(server_kind_does(NULL, "vacuum"));

    /* SIGKILL, then the same port and data. */
    int port = server.port;
    server_kill(&server);
    assert_false(process_runs(&server.process));
    assert_null(ask(server.url, "SELECT 1"));
    assert_int_equal(server_relaunch(&server, &err), 0);
    wait_ready(&server);
    assert_int_equal(server.port, port);
    expect(server.url, "SELECT n FROM kept", "42");

    /* In order. */
    assert_true(server_stop(&server));
    assert_null(ask(server.url, "SELECT 1"));
    assert_true(server.kind->background(&server, "vacuum", &err) < 0);
    server_free(&server);
}

static void a_pause_stops_answers(void **state)
{
    (void)state;
    struct server server;
    struct err err;
    if (start(&server, "paused", &err) < 0) {
        fail_msg("%s", err.text);
    }
    server_pause(&server);
    char *slow = xasprintf("%s?connect_timeout=2", server.url);
    assert_null(ask(slow, "SELECT 1"));
    server_resume(&server);
    expect(slow, "SELECT 1", "1");
    free(slow);
    server_pause(&server);
    assert_true(server_stop(&server)); /* a paused one is stopped in order, too */
    server_free(&server);
}

static void make_program(const char *dir, const char *name, const char *text)
{
    char *path = xasprintf("%s/%s", dir, name);
    assert_int_equal(file_write(path, text, strlen(text), NULL), 0);
    chmod(path, 0755);
    free(path);
}

static void expect_failure(const char *bin, const char *state_name, const char *part)
{
    struct server server;
    struct err err;
    setenv("SLUICE_POSTGRES_BIN", bin, 1);
    int rc = start(&server, state_name, &err);
    unsetenv("SLUICE_POSTGRES_BIN");
    assert_true(rc < 0);
    if (!strstr(err.text, part)) {
        fail_msg("expected \"%s\" in: %s", part, err.text);
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nothing runs */
}

static void broken_servers_say_where_to_look(void **state)
{
    (void)state;
    char *bin = xasprintf("%s/bin", scratch);
    assert_int_equal(mkdir(bin, 0755), 0);
    expect_failure("/no/such/folder", "b1", "lacks initdb or postgres");
    make_program(bin, "postgres", "#!/bin/sh\necho 'FATAL: the dog ate it' >&2\nexit 1\n");
    expect_failure(bin, "b2", "lacks initdb or postgres");
    make_program(bin, "initdb", "#!/bin/sh\necho 'no room on disk' >&2\nexit 1\n");
    expect_failure(bin, "b3", "no room on disk");
    expect_failure(bin, "b4", log_path);
    make_program(bin, "initdb", "#!/bin/sh\nd=${1#--pgdata=}; mkdir \"$d\"\n");
    expect_failure(bin, "b5", "main-db ended while it started (exit code 1)");
    expect_failure(bin, "b6", "the dog ate it");
    expect_failure(bin, "b7", log_path);
    free(bin);
}

/* ---- state and ports ---- */

static void state_must_lie_on_a_disk_that_servers_may_enter(void **state)
{
    (void)state;
    struct account account;
    struct err err = {0};
    char *path;
    assert_int_equal(account_for_servers(&account, &err), 0);
    char type[64], device[64];
    state_filesystem("/dev/shm", type, sizeof(type), device, sizeof(device));
    if (strcmp(type, "tmpfs") == 0) {
        assert_int_equal(state_base("/dev/shm", &account, &path, &err), -EXDEV);
        assert_non_null(strstr(err.text, "--state DIR"));
        assert_null(path);
    }
    if (account.drop) {
        char *closed = xasprintf("%s/closed", scratch), *inner = xasprintf("%s/inner", closed);
        assert_int_equal(mkdir(closed, 0700), 0);
        assert_int_equal(state_base(inner, &account, &path, &err), -EACCES);
        assert_non_null(strstr(err.text, inner));
        free(closed);
        free(inner);
    }
}

static void clean_takes_only_what_is_dead_and_ours(void **state)
{
    (void)state;
    struct err err = {0};
    char *dead = NULL, *alive = NULL;
    char *other = xasprintf("%s/run-other", base);
    assert_int_equal(mkdir(other, 0755), 0); /* no owner file: not ours to remove */
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        char *dir;
        _exit(state_create(base, &dir, NULL) == 0 && rename(dir, "/dev/null") < 0 ? 0 : 1);
    }
    waitpid(child, NULL, 0);
    assert_int_equal(state_create(base, &alive, &err), 0);
    char *held_log = xasprintf("%s.main-db.log", alive);
    char *left_log = xasprintf("%s/run-gone.main-db.log", base);
    assert_int_equal(file_write(held_log, "a\n", 2, &err), 0);
    assert_int_equal(file_write(left_log, "a\n", 2, &err), 0);
    FILE *out = tmpfile();
    assert_int_equal(state_clean(base, out, &err), 2); /* a folder, and a log beside none */
    assert_true(file_exists(alive));
    assert_true(file_exists(held_log));
    assert_false(file_exists(left_log));
    unlink(held_log);
    free(held_log);
    free(left_log);
    assert_true(file_exists(other));
    assert_int_equal(state_clean_one(alive, out, &err), 0);
    assert_int_equal(state_clean_one(other, out, &err), -EINVAL);
    assert_int_equal(state_clean_one("/no/such", out, &err), -ENOENT);
    fclose(out);
    state_remove(alive, false);
    assert_false(file_exists(alive));
    free(alive);
    free(dead);
    rmdir(other);
    free(other);
}

static void ports_are_never_given_twice(void **state)
{
    (void)state;
    struct err err = {0};
    int pipe_ends[2];
    char byte;
    assert_int_equal(pipe(pipe_ends), 0);
    int first = port_take(base, &err), second = port_take(base, &err);
    assert_true(first > 1024 && second > 1024 && first != second);
    ports_give_back();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        byte = port_claim(base, first) == 0 ? 'y' : 'n';
        (void)!write(pipe_ends[1], &byte, 1);
        poll(NULL, 0, 60000);
        _exit(0);
    }
    assert_int_equal(read(pipe_ends[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    assert_int_equal(port_claim(base, first), -EADDRINUSE); /* another sluice has it */
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(port_claim(base, first), 0);           /* its mark alone holds nothing */
    assert_int_equal(port_claim(base, first), -EADDRINUSE); /* we have it */
    ports_give_back();
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)second)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(port_claim(base, second), -EADDRINUSE); /* a stranger listens there */
    close(listener);
    assert_int_equal(port_claim(base, second), 0);
    ports_give_back();
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

static void two_comparisons_see_each_other(void **state)
{
    (void)state;
    int pipe_ends[2];
    char byte = 0;
    assert_int_equal(pipe(pipe_ends), 0);
    assert_false(busy_enter(base));
    assert_false(busy_check());
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        busy_leave(); /* what was inherited; an own one, as another process has it */
        byte = busy_enter(base) ? 'y' : 'n';
        (void)!write(pipe_ends[1], &byte, 1);
        poll(NULL, 0, 60000);
        _exit(0);
    }
    assert_int_equal(read(pipe_ends[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    assert_true(busy_check());
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_false(busy_check());
    busy_leave();
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

static int set_up(void **state)
{
    (void)state;
    struct account account;
    struct err err = {0};
    if (!mkdtemp(scratch) || chmod(scratch, 0755) < 0 || account_for_servers(&account, &err) < 0) {
        return -1;
    }
    char *inner = xasprintf("%s/base", scratch);
    log_path = xasprintf("%s/main-db.log", scratch);
    int rc = state_base(inner, &account, &base, &err);
    if (rc < 0) {
        fprintf(stderr, "%s\n", err.text);
    }
    free(inner);
    return rc;
}

static int tear_down(void **state)
{
    (void)state;
    free(base);
    free(log_path);
    return file_remove_tree(scratch, NULL);
}

int main(void)
{
    char *bin;
    struct err err = {0};
    if (prefix_find_postgres(&bin, &err) < 0) {
        const char *ci = getenv("CI");
        printf("SKIP: %s\n", err.text);
        return ci && strcmp(ci, "true") == 0 ? 1 : 77;
    }
    free(bin);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lives_and_survives),
        cmocka_unit_test(a_pause_stops_answers),
        cmocka_unit_test(broken_servers_say_where_to_look),
        cmocka_unit_test(state_must_lie_on_a_disk_that_servers_may_enter),
        cmocka_unit_test(clean_takes_only_what_is_dead_and_ours),
        cmocka_unit_test(ports_are_never_given_twice),
        cmocka_unit_test(two_comparisons_see_each_other),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

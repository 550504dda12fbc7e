/* Oracle: what README and --help promise of start and stop: exit codes and one sentence when it
 * can't start; SIGTERM settles every task and answers its client; slow requests are ended; any
 * number of connections that are ready at one moment is served (128 is where libmicrohttpd's own
 * polling thread stalls); the events are those of docs/metrics.md. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "client.h"

static const char *binary, *scripted;

static size_t count_of(const char *text, const char *word)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word)) {
        count++;
    }
    return count;
}

static void cannot_start(const char *program, const char *const arguments[], int code,
                         const char *fragment)
{
    struct buf errors = {0};
    int got = run_to_end(program, arguments, &errors);
    const char *text = errors.data ? errors.data : "";
    if (got != code || !strstr(text, fragment) || count_of(text, "\n") != 1) {
        fail_msg("wanted exit %d and one line with \"%s\"; got %d: %s", code, fragment, got, text);
    }
    buf_free(&errors);
}

#define CANNOT_START(program, code, fragment, ...)                                                 \
    cannot_start(program, (const char *const[]){__VA_ARGS__, NULL}, code, fragment)

static void mistakes_exit_2(void **state)
{
    (void)state;
    CANNOT_START(binary, 2, "memory", "--allow-unsafe");
    CANNOT_START(binary, 2, "nonesuch", "--sink=nonesuch");
    CANNOT_START(binary, 2, "--listen", "--sink=memory", "--listen=nonsense");
    CANNOT_START(binary, 2, "body-max", "--sink=memory", "--body-max=1TiB");
    CANNOT_START(binary, 2, "bogus", "--sink=memory", "--bogus");
}

static void what_cannot_be_used_exits_3(void **state)
{
    (void)state;
    struct server server;
    server_start(&server, binary, (const char *const[]){"--sink=memory", NULL});
    char *taken = xasprintf("--listen=%s", server.address);
    CANNOT_START(binary, 3, "in use", "--sink=memory", taken);
    free(taken);
    taken = xasprintf("--admin=%s", server.admin);
    CANNOT_START(binary, 3, "--admin", "--sink=memory", taken);
    free(taken);
    server_stop(&server);
    CANNOT_START(binary, 3, "/nonesuch/", "--sink=memory", "--metrics=/nonesuch/x.jsonl");
    CANNOT_START(scripted, 3, "--allow-unsafe", "--sink=scripted", "--scripted-preflight=unsafe");
}

static void open_files_bound_connections(void **state)
{
    (void)state;
    struct server server;
    spawn_files_max = 200;
    CANNOT_START(binary, 3, "open files", "--sink=memory", "--connections-max=1000");
    server_start(&server, binary, (const char *const[]){"--sink=memory", NULL});
    assert_non_null(strstr(server.log.data, "72 connections only"));
    spawn_files_max = 0;
    server_stop(&server);
}

static void unsafe_only_when_told(void **state)
{
    (void)state;
    struct server server;
    server_start(&server, scripted,
                 (const char *const[]){"--sink=scripted", "--scripted-preflight=unsafe",
                                       "--allow-unsafe", NULL});
    assert_non_null(strstr(server.log.data, "unsafe"));
    server_stop(&server);
    server_start(&server, scripted,
                 (const char *const[]){"--sink=scripted", "--scripted-preflight=unverified", NULL});
    assert_non_null(strstr(server.log.data, "unverified"));
    server_stop(&server);
}

enum { IN_FLIGHT = 40 };

static void sigterm(const char *payload)
{
    struct server server;
    int fds[IN_FLIGHT];
    char *request = post_payload(payload);
    server_start(&server, scripted, (const char *const[]){"--sink=scripted", NULL});
    for (int i = 0; i < IN_FLIGHT; i++) {
        fds[i] = client_connect(server.address);
        client_send(fds[i], request, strlen(request));
    }
    int idle = client_connect(server.address);
    wait_for_metric(&server, "sluice_api_in_flight_tasks", IN_FLIGHT);
    kill(server.pid, SIGTERM);
    for (int i = 0; i < IN_FLIGHT; i++) {
        struct response response;
        client_receive(fds[i], &response, false);
        assert_int_equal(response.code, 202);
        assert_non_null(strstr(response.head.data, "Connection: close"));
        response_free(&response);
        assert_true(client_is_closed(fds[i]));
        close(fds[i]);
    }
    assert_int_equal(server_wait(&server), 0);
    assert_true(client_is_closed(idle));
    assert_int_equal(client_connect(server.address), -ECONNREFUSED);
    close(idle);
    free(request);
    buf_free(&server.log);
}

static void sigterm_settles_what_goes_on(void **state)
{
    (void)state;
    sigterm("slow 600");
}

static void sigterm_settles_what_only_close_decides(void **state)
{
    (void)state;
    sigterm("hold");
}

static void sigterm_refuses_new_tasks(void **state)
{
    (void)state;
    struct server server;
    struct response response;
    char *hold = post_payload("hold");
    char *durable = post_payload("durable");
    server_start(&server, scripted, (const char *const[]){"--sink=scripted", NULL});
    int waiting = client_connect(server.address);
    int other = client_connect(server.address);
    client_send(waiting, hold, strlen(hold));
    wait_for_metric(&server, "sluice_api_in_flight_tasks", 1);
    client_send(other, durable, strlen(durable));
    client_receive(other, &response, false);
    assert_int_equal(response.code, 202);
    response_free(&response);
    kill(server.pid, SIGTERM);
    wait_for_metric(&server, "sluice_api_ready", 0);
    client_send(other, durable, strlen(durable));
    client_receive(other, &response, false);
    assert_int_equal(response.code, 503);
    assert_non_null(strstr(response.body.data, "stopping"));
    response_free(&response);
    client_receive(waiting, &response, false);
    assert_int_equal(response.code, 202);
    response_free(&response);
    assert_int_equal(server_wait(&server), 0);
    close(waiting);
    close(other);
    free(hold);
    free(durable);
    buf_free(&server.log);
}

static void sigusr1_reaches_the_sink(void **state)
{
    (void)state;
    struct server server;
    struct response response;
    char *hold = post_payload("hold");
    server_start(&server, scripted, (const char *const[]){"--sink=scripted", NULL});
    for (int round = 0; round < 2; round++) {
        int waiting = client_connect(server.address);
        client_send(waiting, hold, strlen(hold));
        wait_for_metric(&server, "sluice_api_in_flight_tasks", 1);
        kill(server.pid, SIGUSR1);
        client_receive(waiting, &response, false);
        assert_int_equal(response.code, 202);
        response_free(&response);
        close(waiting);
    }
    server_stop(&server);
    /* A sink that has no upkeep only says so. */
    server_start(&server, binary, (const char *const[]){"--sink=memory", NULL});
    kill(server.pid, SIGUSR1);
    client_ask(server.address, hold, &response);
    assert_int_equal(response.code, 202);
    response_free(&response);
    free(hold);
    kill(server.pid, SIGTERM);
    assert_int_equal(server_wait(&server), 0);
    assert_non_null(strstr(server.log.data, "memory has none"));
    buf_free(&server.log);
}

static void slow_requests_are_ended(void **state)
{
    (void)state;
    static const char in_name[] = "P";
    static const char in_header[] = "POST /task HTTP/1.1\r\nHost: a\r\nX: ";
    static const char in_body[] =
        "POST /task HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        "Content-Length: 13\r\n\r\n{";
    static const char in_refused_body[] =
        "POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 13\r\n\r\n{";
    static const char *const parts[] = {in_name, in_header, in_body, in_refused_body};
    enum { PARTS = sizeof(parts) / sizeof(parts[0]) };
    struct server server;
    int fds[PARTS];
    server_start(&server, binary,
                 (const char *const[]){"--sink=memory", "--request-timeout=300ms", NULL});
    int idle = client_connect(server.address);
    for (size_t i = 0; i < PARTS; i++) {
        fds[i] = client_connect(server.address);
        client_send(fds[i], parts[i], strlen(parts[i]));
    }
    for (int turn = 0; turn < 200; turn++) { /* a byte now and then does not help */
        for (size_t i = 0; i < PARTS; i++) {
            client_send(fds[i], "x", turn < 3 ? 1 : 0);
        }
        usleep(10 * 1000);
    }
    for (size_t i = 0; i < PARTS; i++) {
        assert_true(client_is_closed(fds[i]));
        close(fds[i]);
    }
    wait_for_metric(&server, "sluice_api_slow_requests_total", PARTS);
    wait_for_metric(&server, "sluice_api_in_flight_tasks", 0);
    char *request = post_payload("x"); /* the idle one has lived on */
    struct response response;
    client_send(idle, request, strlen(request));
    client_receive(idle, &response, false);
    assert_int_equal(response.code, 202);
    response_free(&response);
    free(request);
    close(idle);
    server_stop(&server);
}

/* Stops the server's process while the requests are sent, so that all are ready at one moment. */
static void all_at_once(const struct server *server, int *fds, int count)
{
    char *request = post_payload("x");
    for (int round = 0; round < 3; round++) {
        kill(server->pid, SIGSTOP);
        for (int i = 0; i < count; i++) {
            client_send(fds[i], request, strlen(request));
        }
        kill(server->pid, SIGCONT);
        for (int i = 0; i < count; i++) {
            struct response response;
            client_receive(fds[i], &response, false);
            assert_int_equal(response.code, 202);
            response_free(&response);
        }
    }
    free(request);
}

static void any_number_of_connections(const char *program, const char *sink)
{
    static const int counts[] = {1, 2, 64, 127, 128, 129, 255, 256, 257, 384, 1000};
    enum { MAX = 1000 };
    struct rlimit limit;
    struct server server;
    int fds[MAX];
    int open_count = 0;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < MAX + 64 ? limit.rlim_max : MAX + 64;
    setrlimit(RLIMIT_NOFILE, &limit);
    server_start(&server, program, (const char *const[]){sink, NULL});
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        while (open_count < counts[i]) {
            fds[open_count] = client_connect(server.address);
            assert_true(fds[open_count] >= 0);
            open_count++;
        }
        all_at_once(&server, fds, counts[i]);
    }
    while (open_count > 0) {
        close(fds[--open_count]);
    }
    server_stop(&server);
}

static void connections_with_memory(void **state)
{
    (void)state;
    any_number_of_connections(binary, "--sink=memory");
}

static void more_connections_than_the_limit_wait(void **state)
{
    (void)state;
    struct server server;
    char *request = post_payload("x");
    struct response response;
    int fds[6];
    server_start(&server, binary,
                 (const char *const[]){"--sink=memory", "--connections-max=4", NULL});
    for (int i = 0; i < 6; i++) {
        fds[i] = client_connect(server.address);
        client_send(fds[i], request, strlen(request));
    }
    for (int i = 0; i < 6; i++) {
        client_receive(fds[i], &response, false);
        assert_int_equal(response.code, 202);
        response_free(&response);
        close(fds[i]); /* makes room for those that wait */
    }
    free(request);
    server_stop(&server);
}

static void events_are_written(void **state)
{
    (void)state;
    char folder[] = "/tmp/sluice-api-test-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *path = xasprintf("%s/api-1.jsonl", folder);
    char *argument = xasprintf("--metrics=%s", path);
    struct server server;
    server_start(&server, scripted, (const char *const[]){"--sink=scripted", argument, NULL});
    static const char *const payloads[] = {"durable", "refused", "unknown", "slow 3", "durable"};
    for (size_t i = 0; i < sizeof(payloads) / sizeof(payloads[0]); i++) {
        struct response response;
        char *request = post_payload(payloads[i]);
        client_ask(server.address, request, &response);
        response_free(&response);
        free(request);
    }
    server_stop(&server);
    struct buf lines = {0};
    assert_int_equal(file_read(path, 1 << 20, &lines, NULL), 0);
    assert_int_equal(count_of(lines.data, "\n"), 5);
    assert_int_equal(count_of(lines.data, "\"ev\": \"durable\""), 3);
    assert_int_equal(count_of(lines.data, "\"durable_ms\": "), 3);
    assert_int_equal(count_of(lines.data, "\"batch\": 1"), 3);
    assert_non_null(
        strstr(lines.data, "\"ev\": \"start\", \"role\": \"api\", \"sink\": \"scripted\""));
    assert_non_null(
        strstr(lines.data, "\"ev\": \"stop\", \"role\": \"api\", \"why\": \"SIGTERM\""));
    for (char *line = strtok(lines.data, "\n"); line; line = strtok(NULL, "\n")) {
        struct err err;
        if (json_check(line, strlen(line), &err) < 0) {
            fail_msg("%s: %s", err.text, line);
        }
    }
    assert_int_equal(file_remove_tree(folder, NULL), 0);
    buf_free(&lines);
    free(path);
    free(argument);
}

int main(int argc, char *argv[])
{
    if (argc < 3) {
        return 2;
    }
    binary = argv[1];
    scripted = argv[2];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_exit_2),
        cmocka_unit_test(what_cannot_be_used_exits_3),
        cmocka_unit_test(open_files_bound_connections),
        cmocka_unit_test(unsafe_only_when_told),
        cmocka_unit_test(sigterm_settles_what_goes_on),
        cmocka_unit_test(sigterm_settles_what_only_close_decides),
        cmocka_unit_test(sigterm_refuses_new_tasks),
        cmocka_unit_test(sigusr1_reaches_the_sink),
        cmocka_unit_test(slow_requests_are_ended),
        cmocka_unit_test(connections_with_memory),
        cmocka_unit_test(more_connections_than_the_limit_wait),
        cmocka_unit_test(events_are_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Oracle: the contracts of hostport.h, stop.h, guard.h and admin.h, asked over real loopback
 * sockets; guard's clock is an argument, so its deadlines are stepped and never waited for. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "common/admin.h"
#include "common/guard.h"
#include "common/hostport.h"
#include "common/stop.h"

static void hostport_accepts(void **state)
{
    (void)state;
    const char *cases[][2] = {{"127.0.0.1:8080", "127.0.0.1:8080"},
                              {"[::1]:80", "[::1]:80"},
                              {"0.0.0.0:0", "0.0.0.0:0"},
                              {"127.0.0.1:65535", "127.0.0.1:65535"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hostport hostport;
        struct err err = {0};
        assert_int_equal(hostport_parse(cases[i][0], &hostport, &err), 0);
        assert_string_equal(hostport.text, cases[i][1]);
    }
}

static void hostport_refuses(void **state)
{
    (void)state;
    const char *cases[] = {"",
                           "8080",
                           "127.0.0.1",
                           ":80",
                           "h:",
                           "1.2.3.4:x",
                           "1.2.3.4:65536",
                           "1.2.3.4:-1",
                           "::1:80",
                           "[]:80",
                           "1.2.3.4:http",
                           "1.2.3.4: 80",
                           "1.2.3.4:0000000080",
                           "no such host:80"};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hostport hostport;
        struct err err = {0};
        assert_int_equal(hostport_parse(cases[i], &hostport, &err), -EINVAL);
        assert_non_null(strstr(err.text, cases[i]));
    }
}

static void listen_names_a_taken_port(void **state)
{
    (void)state;
    struct hostport first;
    struct err err = {0};
    assert_int_equal(hostport_parse("127.0.0.1:0", &first, &err), 0);
    int fd = hostport_listen(&first, "listen", &err);
    assert_true(fd >= 0);
    assert_string_not_equal(first.text, "127.0.0.1:0");
    struct hostport second = first;
    assert_int_equal(hostport_listen(&second, "listen", &err), -EADDRINUSE);
    assert_non_null(strstr(err.text, first.text));
    assert_non_null(strstr(err.text, "--listen"));
    close(fd);
}

static void stop_takes_signals(void **state)
{
    (void)state;
    struct err err = {0};
    int fd = stop_open(&err);
    assert_true(fd >= 0);
    assert_int_equal(stop_signal(fd), 0);
    kill(getpid(), SIGTERM);
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 5000), 1);
    assert_int_equal(stop_signal(fd), SIGTERM);
    assert_int_equal(stop_signal(fd), 0);
    assert_string_equal(stop_signal_name(SIGTERM), "SIGTERM");
    close(fd);
}

static int connect_to(const char *address)
{
    struct hostport hostport;
    assert_int_equal(hostport_parse(address, &hostport, NULL), 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(
        connect(fd, (const struct sockaddr *)&hostport.address, hostport.address_bytes), 0);
    return fd;
}

struct pair {
    int client, server;
};

static struct pair tcp_pair(void)
{
    struct hostport hostport;
    assert_int_equal(hostport_parse("127.0.0.1:0", &hostport, NULL), 0);
    int listener = hostport_listen(&hostport, "listen", NULL);
    struct pair pair;
    pair.client = connect_to(hostport.text);
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 5000), 1);
    pair.server = accept(listener, NULL, NULL);
    assert_true(pair.server >= 0);
    close(listener);
    return pair;
}

static void send_and_arrive(struct pair pair, const char *text)
{
    assert_int_equal(send(pair.client, text, strlen(text), 0), (ssize_t)strlen(text));
    struct pollfd ready = {.fd = pair.server, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 5000), 1);
}

/* The peer of a shut socket reads the end of the stream. */
static bool is_shut(struct pair pair)
{
    char byte;
    return recv(pair.client, &byte, 1, MSG_DONTWAIT) == 0;
}

static void guard_ends_slow_headers_only(void **state)
{
    (void)state;
    struct guard guard;
    guard_init(&guard, 10 * NS_PER_S);
    struct pair idle = tcp_pair();
    struct pair slow = tcp_pair();
    struct guarded idle_connection, slow_connection;
    guard_add(&guard, &idle_connection, idle.server);
    guard_add(&guard, &slow_connection, slow.server);
    int64_t now_ns = 1000 * NS_PER_S;
    send_and_arrive(slow, "P");
    assert_int_equal(guard_sweep(&guard, now_ns), 0); /* the first byte is seen here */
    for (int second = 1; second < 10; second++) {
        send_and_arrive(slow, "O"); /* one byte now and then must not help */
        assert_int_equal(guard_sweep(&guard, now_ns + second * NS_PER_S), 0);
    }
    assert_int_equal(guard_sweep(&guard, now_ns + 10 * NS_PER_S), 1);
    assert_true(is_shut(slow));
    assert_false(is_shut(idle));
    assert_int_equal(guard_sweep(&guard, now_ns + 1000 * NS_PER_S), 0); /* each once; idle: never */
    guard_remove(&guard, &idle_connection);
    guard_remove(&guard, &slow_connection);
    assert_int_equal(guard.count, 0);
    close(idle.client), close(idle.server), close(slow.client), close(slow.server);
}

static void guard_starts_anew_after_a_request(void **state)
{
    (void)state;
    struct guard guard;
    guard_init(&guard, 10 * NS_PER_S);
    struct pair pair = tcp_pair();
    struct guarded connection;
    guard_add(&guard, &connection, pair.server);
    int64_t now_ns = 1000 * NS_PER_S;
    send_and_arrive(pair, "first request");
    guard_sweep(&guard, now_ns);
    guard_waiting(&connection);
    assert_int_equal(guard_sweep(&guard, now_ns + 100 * NS_PER_S), 0); /* the server's own turn */
    guard_between(&connection);
    for (int second = 101; second < 200; second += 9) { /* idle, and has received bytes before */
        assert_int_equal(guard_sweep(&guard, now_ns + second * NS_PER_S), 0);
    }
    send_and_arrive(pair, "x");
    assert_int_equal(guard_sweep(&guard, now_ns + 300 * NS_PER_S), 0);
    assert_int_equal(guard_sweep(&guard, now_ns + 309 * NS_PER_S), 0);
    guard_body(&connection, now_ns + 309 * NS_PER_S);
    assert_int_equal(guard_sweep(&guard, now_ns + 318 * NS_PER_S), 0);
    assert_false(is_shut(pair));
    assert_int_equal(guard_sweep(&guard, now_ns + 319 * NS_PER_S), 1);
    assert_true(is_shut(pair));
    guard_remove(&guard, &connection);
    close(pair.client), close(pair.server);
}

static void guard_ends_half_closed(void **state)
{
    (void)state;
    struct guard guard;
    guard_init(&guard, 10 * NS_PER_S);
    struct pair pair = tcp_pair();
    struct guarded connection;
    guard_add(&guard, &connection, pair.server);
    guard_waiting(&connection);
    shutdown(pair.client, SHUT_WR);
    struct pollfd ready = {.fd = pair.server, .events = POLLRDHUP};
    assert_int_equal(poll(&ready, 1, 5000), 1);
    guard_sweep(&guard, NS_PER_S);
    guard_sweep(&guard, 2 * NS_PER_S); /* it still waits for its answer */
    assert_false(is_shut(pair));
    guard_between(&connection);
    assert_int_equal(guard_sweep(&guard, 3 * NS_PER_S), 0);
    assert_false(is_shut(pair));
    assert_int_equal(guard_sweep(&guard, 4 * NS_PER_S), 0); /* ended, but not for being late */
    assert_true(is_shut(pair));
    guard_remove(&guard, &connection);
    close(pair.client), close(pair.server);
}

static atomic_bool fit;

static bool fit_now(void *arg, struct buf *why)
{
    (void)arg;
    if (!fit) {
        buf_puts(why, "not today");
    }
    return fit;
}

static void some_metrics(void *arg, struct buf *out)
{
    (void)arg;
    admin_metric(out, "sluice_test_total", "counter", "Things.", 42);
}

static void ask(const char *address, const char *request, struct buf *reply)
{
    buf_clear(reply);
    int fd = connect_to(address);
    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
    char bytes[4096];
    ssize_t got;
    while ((got = recv(fd, bytes, sizeof(bytes), 0)) > 0) {
        buf_append(reply, bytes, (size_t)got);
    }
    close(fd);
    assert_non_null(reply->data);
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

static void admin_answers(void **state)
{
    (void)state;
    struct admin_source source = {.healthy = fit_now, .ready = fit_now, .metrics = some_metrics};
    struct admin *admin;
    struct err err = {0};
    assert_int_equal(admin_start(&admin, "127.0.0.1:0", &source, &err), 0);
    struct buf reply = {0};
    fit = true;
    ask(admin_address(admin), GET("/healthz"), &reply);
    assert_non_null(strstr(reply.data, "HTTP/1.1 200"));
    assert_non_null(strstr(reply.data, "ok\n"));
    ask(admin_address(admin), GET("/metrics"), &reply);
    assert_non_null(strstr(reply.data, "# TYPE sluice_test_total counter\nsluice_test_total 42\n"));
    fit = false;
    ask(admin_address(admin), GET("/readyz"), &reply);
    assert_non_null(strstr(reply.data, "HTTP/1.1 503"));
    assert_non_null(strstr(reply.data, "not today\n"));
    ask(admin_address(admin), GET("/task"), &reply);
    assert_non_null(strstr(reply.data, "HTTP/1.1 404"));
    ask(admin_address(admin),
        "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n", &reply);
    assert_non_null(strstr(reply.data, "HTTP/1.1 405"));
    assert_non_null(strstr(reply.data, "Allow: GET, HEAD"));

    struct admin *second;
    assert_int_equal(admin_start(&second, admin_address(admin), &source, &err), -EADDRINUSE);
    assert_null(second);
    assert_non_null(strstr(err.text, "--admin"));
    assert_int_equal(admin_start(&second, "nonsense", &source, &err), -EINVAL);
    admin_stop(admin);
    admin_stop(NULL);
    buf_free(&reply);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostport_accepts),
        cmocka_unit_test(hostport_refuses),
        cmocka_unit_test(listen_names_a_taken_port),
        cmocka_unit_test(stop_takes_signals),
        cmocka_unit_test(guard_ends_slow_headers_only),
        cmocka_unit_test(guard_starts_anew_after_a_request),
        cmocka_unit_test(guard_ends_half_closed),
        cmocka_unit_test(admin_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

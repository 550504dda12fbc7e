/* Oracle: the sink's interface (sink.h) and the table of answers: the real front end with a sink
 * whose every outcome the test chooses (scripted_sink.c); what the client reads and /metrics
 * counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client.h"

static const char *scripted;

static void begin(struct server *server, const char *more)
{
    const char *arguments[] = {"--sink=scripted", more, NULL};
    server_start(server, scripted, arguments);
}

static void ask(const struct server *server, const char *payload, struct response *response)
{
    char *request = post_payload(payload);
    client_ask(server->address, request, response);
    free(request);
}

static void expect(const struct server *server, const char *payload, int code, const char *head,
                   const char *body)
{
    struct response response;
    ask(server, payload, &response);
    const char *got_head = response.head.data ? response.head.data : "";
    const char *got_body = response.body.data ? response.body.data : "";
    if (response.code != code || !strstr(got_head, head) || !strstr(got_body, body)) {
        fail_msg("%s: wanted %d, %s, %s; got %s%s", payload, code, head, body, got_head, got_body);
    }
    response_free(&response);
}

static int ask_admin(const struct server *server, const char *path)
{
    struct response response;
    char *request = xasprintf("GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path);
    client_ask(server->admin, request, &response);
    int code = response.code;
    free(request);
    response_free(&response);
    return code;
}

static void each_outcome_has_its_answer(void **state)
{
    (void)state;
    struct server server;
    begin(&server, NULL);
    expect(&server, "durable", 202, "application/json", "{\"id\":\"");
    expect(&server, "slow 5", 202, "", "{\"id\":\""); /* suspended and resumed */
    expect(&server, "refused", 503, "Retry-After: ", "\"reason\":\"sink_refused\"");
    expect(&server, "unknown", 504, "application/json", "\"id\":\"");
    expect(&server, "again", 503, "Retry-After: ", "sink_busy");
    expect(&server, "nospace", 503, "Retry-After: 5", "sink_refused");
    expect(&server, "toobig", 413, "", "too_large");
    expect(&server, "odd", 503, "Retry-After: ", "sink_refused");
    expect(&server, "durable", 202, "", "");
    wait_for_metric(&server, "sluice_api_outcomes_total{outcome=\"durable\"}", 3);
    wait_for_metric(&server, "sluice_api_outcomes_total{outcome=\"refused\"}", 1);
    wait_for_metric(&server, "sluice_api_outcomes_total{outcome=\"unknown\"}", 1);
    wait_for_metric(&server, "sluice_api_replies_total{code=\"202\",reason=\"accepted\"}", 3);
    wait_for_metric(&server, "sluice_api_in_flight_tasks", 0);
    wait_for_metric(&server, "sluice_api_in_flight_bytes", 0);
    assert_int_equal(ask_admin(&server, "/readyz"), 200);
    server_stop(&server);
}

static void a_deadline_is_504_and_the_late_outcome_is_safe(void **state)
{
    (void)state;
    struct server server;
    struct response response;
    char *hold = post_payload("hold");
    begin(&server, "--ack-deadline=50ms");
    int fd = client_connect(server.address);
    for (int i = 0; i < 3; i++) { /* the same connection each time */
        client_send(fd, hold, strlen(hold));
        client_receive(fd, &response, false);
        assert_int_equal(response.code, 504);
        assert_non_null(strstr(response.body.data, "\"reason\":\"deadline\",\"id\":\""));
        response_free(&response);
    }
    wait_for_metric(&server, "sluice_api_in_flight_tasks", 3);
    expect(&server, "release", 202, "", "");
    wait_for_metric(&server, "sluice_api_late_outcomes_total", 3);
    wait_for_metric(&server, "sluice_api_in_flight_tasks", 0);
    close(fd);
    free(hold);
    server_stop(&server);
}

static void a_client_that_leaves_harms_nobody(void **state)
{
    (void)state;
    struct server server;
    char *hold = post_payload("hold");
    begin(&server, NULL);
    for (int i = 0; i < 10; i++) {
        int fd = client_connect(server.address);
        client_send(fd, hold, strlen(hold));
        wait_for_metric(&server, "sluice_api_in_flight_tasks", i + 1);
        close(fd);
    }
    expect(&server, "release", 202, "", "");
    wait_for_metric(&server, "sluice_api_in_flight_tasks", 0);
    wait_for_metric(&server, "sluice_api_connections", 0);
    free(hold);
    server_stop(&server);
}

/* While it waits, the loop sleeps: some passes for ticks and questions, not one after the other. */
static void waiting_does_not_spin(void **state)
{
    (void)state;
    struct server server;
    struct response response;
    char *hold = post_payload("hold");
    begin(&server, NULL);
    int fd = client_connect(server.address);
    client_send(fd, hold, strlen(hold));
    wait_for_metric(&server, "sluice_api_in_flight_tasks", 1);
    double before = metric(&server, "sluice_api_loop_passes_total");
    usleep(500 * 1000);
    assert_true(metric(&server, "sluice_api_loop_passes_total") - before < 1000);
    expect(&server, "release", 202, "", "");
    client_receive(fd, &response, false);
    assert_int_equal(response.code, 202);
    response_free(&response);
    expect(&server, "break", 504, "", "");
    before = metric(&server, "sluice_api_loop_passes_total");
    usleep(500 * 1000); /* nor with a sink that has failed */
    assert_true(metric(&server, "sluice_api_loop_passes_total") - before < 1000);
    close(fd);
    free(hold);
    server_stop(&server);
}

static void tasks_in_flight_are_bounded(void **state)
{
    (void)state;
    struct server server;
    char *hold = post_payload("hold");
    int fds[3];
    begin(&server, "--in-flight-max=3");
    for (int i = 0; i < 3; i++) {
        fds[i] = client_connect(server.address);
        client_send(fds[i], hold, strlen(hold));
    }
    wait_for_metric(&server, "sluice_api_in_flight_tasks", 3);
    expect(&server, "durable", 503, "Retry-After: ", "in_flight_tasks");
    for (int i = 0; i < 3; i++) {
        close(fds[i]);
    }
    free(hold);
    server_stop(&server);
}

static void bytes_in_flight_are_bounded(void **state)
{
    (void)state;
    static const char head[] =
        "POST /task HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        "Content-Length: 90\r\n\r\n{";
    struct server server;
    begin(&server, "--in-flight-bytes-max=100");
    int fd = client_connect(server.address);
    client_send(fd, head, strlen(head)); /* reserves its 90 bytes before they come */
    wait_for_metric(&server, "sluice_api_in_flight_bytes", 90);
    expect(&server, "durable", 503, "Retry-After: ", "in_flight_bytes");
    close(fd);
    wait_for_metric(&server, "sluice_api_in_flight_bytes", 0);
    expect(&server, "durable", 202, "", "");
    static const char chunked[] =
        "POST /task HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\n32\r\n"
        "11111111111111111111111111111111111111111111111111\r\n33\r\n"
        "222222222222222222222222222222222222222222222222222\r\n0\r\n\r\n";
    struct response response;
    client_ask(server.address, chunked, &response);
    assert_int_equal(response.code, 503);
    response_free(&response);
    wait_for_metric(&server, "sluice_api_in_flight_bytes", 0);
    server_stop(&server);
}

static void the_backlog_is_bounded(void **state)
{
    (void)state;
    struct server server;
    begin(&server, "--backlog-max=100");
    expect(&server, "backlog 100 5", 202, "", "");
    wait_for_metric(&server, "sluice_api_backlog_tasks", 100);
    expect(&server, "durable", 503, "Retry-After: 5", "backlog_tasks");
    wait_for_metric(&server, "sluice_api_ready", 0);
    assert_int_equal(ask_admin(&server, "/readyz"), 503);
    assert_int_equal(ask_admin(&server, "/healthz"), 200);
    server_stop(&server);
    begin(&server, "--backlog-bytes-max=1000");
    expect(&server, "backlog 5 1000", 202, "", "");
    wait_for_metric(&server, "sluice_api_backlog_bytes", 1000);
    expect(&server, "durable", 503, "Retry-After: 5", "backlog_bytes");
    server_stop(&server);
}

static void a_broken_sink_turns_health_red(void **state)
{
    (void)state;
    struct server server;
    char *hold = post_payload("hold");
    struct response response;
    begin(&server, NULL);
    int fd = client_connect(server.address);
    client_send(fd, hold, strlen(hold));
    wait_for_metric(&server, "sluice_api_in_flight_tasks", 1);
    assert_int_equal(ask_admin(&server, "/healthz"), 200);
    expect(&server, "break", 504, "", "\"reason\":\"sink\"");
    client_receive(fd, &response, false); /* the one that waited, too */
    assert_int_equal(response.code, 504);
    response_free(&response);
    expect(&server, "durable", 503, "Retry-After: ", "sink_broken");
    wait_for_metric(&server, "sluice_api_healthy", 0);
    assert_int_equal(ask_admin(&server, "/healthz"), 503);
    assert_int_equal(ask_admin(&server, "/readyz"), 503);
    close(fd);
    free(hold);
    server_stop(&server);
    begin(&server, NULL); /* the same, told by submit */
    expect(&server, "broken", 503, "Retry-After: ", "sink_broken");
    wait_for_metric(&server, "sluice_api_healthy", 0);
    server_stop(&server);
}

static void a_sink_that_is_not_connected_is_503(void **state)
{
    (void)state;
    struct server server;
    begin(&server, NULL);
    expect(&server, "disconnect", 202, "", "");
    wait_for_metric(&server, "sluice_api_ready", 0);
    expect(&server, "durable", 503, "Retry-After: ", "not_connected");
    assert_int_equal(ask_admin(&server, "/healthz"), 200);
    server_stop(&server);
}

static void expect_not_ready(const struct server *server, const char *sentence)
{
    struct response response;
    client_ask(server->admin, "GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n", &response);
    assert_int_equal(response.code, 503);
    if (!strstr(response.body.data, sentence)) {
        fail_msg("/readyz does not say %s: %s", sentence, response.body.data);
    }
    response_free(&response);
}

static void a_sink_that_is_full_says_so(void **state)
{
    (void)state;
    struct server server;
    begin(&server, NULL);
    expect(&server, "fill", 202, "", "");
    wait_for_metric(&server, "sluice_api_ready", 0);
    expect(&server, "durable", 503, "Retry-After: 5",
           "\"reason\":\"sink_refused\",\"detail\":\"the shelf is full; nothing was stored");
    expect_not_ready(&server, "the shelf is full");
    assert_int_equal(ask_admin(&server, "/healthz"), 200);
    server_stop(&server);
    begin(&server, NULL);
    expect(&server, "disconnect", 202, "", "");
    wait_for_metric(&server, "sluice_api_ready", 0);
    expect_not_ready(&server, "the sink is not connected");
    server_stop(&server);
}

/* Refused while the body is still coming: read to its end, and the connection goes on. */
static void overload_keeps_connections(void **state)
{
    (void)state;
    struct server server;
    struct response response;
    char *request = post_payload("durable");
    begin(&server, NULL);
    int fd = client_connect(server.address);
    expect(&server, "disconnect", 202, "", "");
    wait_for_metric(&server, "sluice_api_ready", 0);
    for (int i = 0; i < 1000; i++) {
        client_send(fd, request, strlen(request));
        client_receive(fd, &response, false);
        assert_int_equal(response.code, 503);
        response_free(&response);
    }
    wait_for_metric(&server, "sluice_api_replies_total{code=\"503\",reason=\"not_connected\"}",
                    1000);
    close(fd);
    free(request);
    server_stop(&server);
}

int main(int argc, char *argv[])
{
    if (argc < 3) {
        return 2;
    }
    scripted = argv[2];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_outcome_has_its_answer),
        cmocka_unit_test(a_deadline_is_504_and_the_late_outcome_is_safe),
        cmocka_unit_test(a_client_that_leaves_harms_nobody),
        cmocka_unit_test(waiting_does_not_spin),
        cmocka_unit_test(tasks_in_flight_are_bounded),
        cmocka_unit_test(bytes_in_flight_are_bounded),
        cmocka_unit_test(the_backlog_is_bounded),
        cmocka_unit_test(a_broken_sink_turns_health_red),
        cmocka_unit_test(a_sink_that_is_not_connected_is_503),
        cmocka_unit_test(a_sink_that_is_full_says_so),
        cmocka_unit_test(overload_keeps_connections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

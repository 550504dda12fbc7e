/* Oracle: a scripted server in this process (server.h) that knows what it received and what it
 * answered, and the outcomes that docs/metrics.md gives to each. Nothing here depends on how fast
 * anything is: where order matters, the server waits for it by counting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "attack.h"
#include "base/clock.h"
#include "base/log.h"
#include "flat.h"
#include "server.h"
#include "task/task.h"

enum { SETTLED_MAX = 4096, SEED = 7 };

struct fixture {
    struct server *server;
    struct settled settled[SETTLED_MAX];
    unsigned count;
    unsigned by_outcome[OUTCOMES];
    struct attack_result result;
    struct attack_progress progress;
    void (*on_settle)(struct fixture *f, const struct settled *settled);
    int wake_fd;
    pthread_t thread;
    atomic_bool over;
    atomic_uint by_connection[512];
};

static void collect(void *arg, const struct settled *settled)
{
    struct fixture *f = arg;

    assert_true(f->count < SETTLED_MAX);
    f->settled[f->count++] = *settled;
    f->by_outcome[settled->outcome]++;
    if (f->on_settle)
        f->on_settle(f, settled);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    f->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    *state = f;
    return f->wake_fd < 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    if (f->server)
        server_stop(f->server);
    close(f->wake_fd);
    free(f);
    return 0;
}

/* A test's load: `rps` for `duration_ms`; 0 and NULL stand for what most tests want. */
struct load {
    double rps;
    int duration_ms;
    enum pacing pacing;
    unsigned connections, connections_max;
    int timeout_ms, grace_ms;
    size_t payload_bytes;
};

static void check_every_id_once(const struct fixture *f, const struct pace *pace)
{
    for (unsigned i = 0; i < f->result.due; i++) {
        uint8_t id[UUID_BYTES];
        unsigned found = 0;

        task_synth_id(SEED, i, id);
        for (unsigned k = 0; k < f->count; k++) {
            if (memcmp(f->settled[k].id, id, UUID_BYTES) == 0) {
                assert_int_equal(f->settled[k].due_ns, pace_due_ns(pace, i, NULL));
                found++;
            }
        }
        assert_int_equal(found, 1);
    }
    assert_int_equal(f->count, f->result.due);
    for (unsigned k = 0; k < f->count; k++) {
        const struct settled *s = &f->settled[k];

        assert_true(s->handled_ns >= s->due_ns && s->done_ns >= s->handled_ns);
        if (s->outcome == OUTCOME_UNSENT) {
            assert_int_equal(s->sent_ns, ATTACK_NEVER);
            assert_int_equal(s->code, 0);
        } else {
            assert_true(s->sent_ns >= s->handled_ns && s->done_ns >= s->sent_ns);
        }
    }
}

static int attack_port(struct fixture *f, int port, const struct load *load, struct err *err)
{
    struct attack_config config = {
        .path = "/task",
        .connections = load->connections ? load->connections : 4,
        .connections_max = load->connections_max ? load->connections_max : 64,
        .payload_bytes = load->payload_bytes ? load->payload_bytes : 32,
        .seed = SEED,
        .timeout_ns = (load->timeout_ms ? load->timeout_ms : 30000) * NS_PER_MS,
        .wake_fd = f->wake_fd,
        .grace_ns = load->grace_ms * NS_PER_MS,
        .settle = collect,
        .arg = f,
        .progress = &f->progress,
        .start_ns = clock_mono_ns() + 50 * NS_PER_MS,
    };
    struct target target;
    struct pace pace;
    char text[32];
    int rc;

    snprintf(text, sizeof(text), "127.0.0.1:%d", port);
    assert_int_equal(target_parse(text, &target, err), 0);
    assert_int_equal(pace_init(&pace, load->rps, load->pacing, err), 0);
    assert_int_equal(pace_add(&pace, "only", load->duration_ms * NS_PER_MS, 1, err), 0);
    config.pace = &pace;
    config.target = &target;
    rc = attack_run(&config, &f->result, err);
    if (rc == 0)
        check_every_id_once(f, &pace);
    return rc;
}

static void attack(struct fixture *f, server_script *script, const struct load *load)
{
    struct err err = {0};

    if (!f->server)
        f->server = server_start(script, f);
    if (attack_port(f, server_port(f->server), load, &err) < 0)
        fail_msg("%s", err.text);
}

static void expect(const struct fixture *f, unsigned durable, unsigned refused, unsigned unknown,
                   unsigned unsent)
{
    if (f->by_outcome[OUTCOME_DURABLE] != durable || f->by_outcome[OUTCOME_REFUSED] != refused ||
        f->by_outcome[OUTCOME_UNKNOWN] != unknown || f->by_outcome[OUTCOME_UNSENT] != unsent)
        fail_msg("durable %u, refused %u, unknown %u, unsent %u; expected %u, %u, %u, %u",
                 f->by_outcome[OUTCOME_DURABLE], f->by_outcome[OUTCOME_REFUSED],
                 f->by_outcome[OUTCOME_UNKNOWN], f->by_outcome[OUTCOME_UNSENT], durable, refused,
                 unknown, unsent);
}

static void answers_are_durable(void **state)
{
    struct fixture *f = *state;

    attack(f, script_durable, &(struct load){.rps = 400, .duration_ms = 250});
    expect(f, 100, 0, 0, 0);
    assert_int_equal(server_requests(f->server), 100);
    assert_false(f->result.interrupted);
}

static bool count_by_connection(struct server_request *request)
{
    struct fixture *f = request->arg;

    atomic_fetch_add(&f->by_connection[request->connection], 1);
    return script_durable(request);
}

/* Connections are used in turn, none idles while another does all the work: each of ten carries a
 * few of 40 requests. (Ten may be busy at once on a slow machine; then an eleventh takes part.) */
static void connections_take_turns(void **state)
{
    struct fixture *f = *state;

    attack(f, count_by_connection,
           &(struct load){.rps = 200, .duration_ms = 200, .connections = 10});
    expect(f, 40, 0, 0, 0);
    for (int i = 1; i <= 10; i++)
        assert_true(atomic_load(&f->by_connection[i]) >= 1);
}

static bool answer_after_all(struct server_request *request)
{
    if (server_await(request->server, 40))
        answer_id(request, 202, request->id);
    return true;
}

/* The server answers nobody before it has all 40 requests: a closed loop of 4 would never send the
 * 5th. */
static void slow_server_does_not_slow_the_schedule(void **state)
{
    struct fixture *f = *state;

    attack(f, answer_after_all, &(struct load){.rps = 200, .duration_ms = 200});
    expect(f, 40, 0, 0, 0);
    assert_true(server_connections_max(f->server) >= 40);
}

static bool answer_in_pairs(struct server_request *request)
{
    if (server_await(request->server, (request->number + 1) / 2 * 2))
        answer_id(request, 202, request->id);
    return true;
}

/* Past connections_max requests wait in line: none is lost, and no more connections are opened. */
static void line_when_connections_run_out(void **state)
{
    struct fixture *f = *state;

    attack(f, answer_in_pairs,
           &(struct load){.rps = 40,
                          .duration_ms = 1000,
                          .pacing = PACING_BURST,
                          .connections = 2,
                          .connections_max = 2});
    expect(f, 40, 0, 0, 0);
    assert_int_equal(server_connections_max(f->server), 2);
    for (unsigned i = 0; i < f->count; i++) // in the order in which they were due
        assert_memory_equal(f->settled[i].id + 10, ((uint8_t[]){0, 0, 0, 0, 0}), 5);
    assert_true(f->settled[39].sent_ns > f->settled[0].done_ns);
}

static bool answer_codes(struct server_request *request)
{
    static const int codes[] = {202, 503, 504, 400, 413, 500, 200, 201, 302, 429};

    answer_id(request, codes[(request->number - 1) % 10], request->id);
    return true;
}

/* One connection, so that the server's nth request is the load's nth. */
static void codes(void **state)
{
    struct fixture *f = *state;

    attack(f, answer_codes,
           &(struct load){.rps = 200, .duration_ms = 50, .connections = 1, .connections_max = 1});
    expect(f, 1, 4, 5, 0);
    assert_int_equal(f->settled[0].code, 202);
    assert_int_equal(f->settled[2].code, 504);
    assert_int_equal(f->settled[2].outcome, OUTCOME_UNKNOWN);
    assert_int_equal(f->settled[6].code, 200);
    assert_int_equal(f->settled[6].outcome, OUTCOME_UNKNOWN);
}

static bool answer_nothing_and_close(struct server_request *request)
{
    (void)request;
    return false;
}

/* Sent and never answered: unknown, and never sent again. */
static void close_after_request(void **state)
{
    struct fixture *f = *state;

    attack(f, answer_nothing_and_close, &(struct load){.rps = 200, .duration_ms = 100});
    expect(f, 0, 0, 20, 0);
    assert_int_equal(server_requests(f->server), 20);
    assert_int_equal(f->settled[0].code, 0);
    assert_int_equal(f->result.garbage, 0);
}

static bool answer_badly(struct server_request *request)
{
    static const char *const texts[] = {
        "220 mail.example.org ESMTP\r\n",
        "HTTP/1.1 202 Accepted\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 202 Accepted\r\nContent-Length: 45\r\n\r\n{\"id\":\"", // then closed
        "HTTP/1.1 202 Acc",
    };

    answer_bytes(request, texts[(request->number - 1) % 4]);
    return request->number % 4 == 1; // garbage alone must do, without a close
}

static void garbage_and_half_answers(void **state)
{
    struct fixture *f = *state;

    attack(f, answer_badly,
           &(struct load){.rps = 100, .duration_ms = 80, .connections = 1, .connections_max = 1});
    expect(f, 0, 0, 8, 0);
    assert_int_equal(f->settled[2].code, 0);
    assert_true(f->result.garbage >= 4);
}

static bool answer_wrong_ids(struct server_request *request)
{
    static const char *const bodies[] = {
        "{\"id\":\"00000000-0000-8000-8000-000000000000\"}",
        "{\"id\":\"",
        "{}",
        "{\"ID\":\"%s\"}",
        "{\"id\":\"%s\",\"id\":\"%s\"}",
        "{\"id\": \"%s\" , \"more\": [1]}\n", // this one is right
        "{\"id\":\"%s\"}x",
        "[\"id\",\"%s\"]",
    };
    char body[256], text[512];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(body, sizeof(body), bodies[(request->number - 1) % 8], request->id, request->id);
#pragma GCC diagnostic pop
    snprintf(text, sizeof(text), "HTTP/1.1 202 A\r\nContent-Length: %zu\r\n\r\n%s", strlen(body),
             body);
    answer_bytes(request, text);
    return true;
}

static void wrong_ids_vouch_for_nothing(void **state)
{
    struct fixture *f = *state;

    attack(f, answer_wrong_ids,
           &(struct load){.rps = 100, .duration_ms = 80, .connections = 1, .connections_max = 1});
    expect(f, 1, 0, 7, 0);
    assert_int_equal(f->settled[5].outcome, OUTCOME_DURABLE);
    assert_int_equal(f->settled[0].code, 202);
    assert_int_equal(f->result.wrong_ids, 7);
}

static bool answer_by_bytes(struct server_request *request)
{
    char text[256];

    snprintf(text, sizeof(text), "HTTP/1.1 202 A\r\nContent-Length: 45\r\n\r\n{\"id\":\"%s\"}",
             request->id);
    for (const char *byte = text; *byte; byte++)
        answer_bytes(request, (char[]){*byte, '\0'});
    return true;
}

static void answers_in_pieces(void **state)
{
    struct fixture *f = *state;

    attack(f, answer_by_bytes, &(struct load){.rps = 100, .duration_ms = 200});
    expect(f, 20, 0, 0, 0);
}

/* Larger than any socket buffer: what the kernel does not take at once follows later. */
static void large_requests(void **state)
{
    struct fixture *f = *state;

    attack(f, script_durable,
           &(struct load){.rps = 10, .duration_ms = 200, .payload_bytes = 8 * 1024 * 1024});
    expect(f, 2, 0, 0, 0);
}

/* Says that it closes, and does not: a request that comes on the same connection all the same gets
 * a 500. */
static bool answer_and_say_close(struct server_request *request)
{
    struct fixture *f = request->arg;
    char text[256];

    if (atomic_fetch_add(&f->by_connection[request->connection], 1) > 0) {
        answer_id(request, 500, request->id);
        return true;
    }
    snprintf(text, sizeof(text),
             "HTTP/1.1 202 A\r\nConnection: close\r\nContent-Length: 45\r\n\r\n{\"id\":\"%s\"}",
             request->id);
    answer_bytes(request, text);
    return true;
}

static void reconnects_after_close(void **state)
{
    struct fixture *f = *state;

    attack(f, answer_and_say_close, &(struct load){.rps = 200, .duration_ms = 100});
    expect(f, 20, 0, 0, 0);
    assert_true(server_connections(f->server) >= 20);
}

static bool answer_and_cut_the_idle(struct server_request *request)
{
    if (request->number == 1)
        server_close_others(request->server, request->fd);
    answer_id(request, 202, request->id);
    return true;
}

/* The second request, 400 ms later, would go to a connection that was cut while idle. */
static void idle_closes_go_unnoticed(void **state)
{
    struct fixture *f = *state;

    attack(f, answer_and_cut_the_idle, &(struct load){.rps = 2.5, .duration_ms = 1000});
    expect(f, 3, 0, 0, 0);
    assert_true(f->result.idle_closes >= 3);
    assert_true(server_connections(f->server) >= 7); // replaced though nobody needed them
}

static void refused_from_the_start(void **state)
{
    struct fixture *f = *state;
    struct server *gone = server_start(script_durable, NULL);
    int port = server_port(gone);
    struct err err = {0};

    server_stop(gone);
    assert_int_equal(attack_port(f, port, &(struct load){.rps = 10, .duration_ms = 100}, &err),
                     -ECONNREFUSED);
    assert_non_null(strstr(err.text, "refused"));
    assert_int_equal(f->count, 0);
}

static bool vanish_at_ten(struct server_request *request)
{
    if (request->number == 10) {
        server_vanish(request->server, -1);
        return false;
    }
    answer_id(request, 202, request->id);
    return true;
}

static void return_after_unsent(struct fixture *f, const struct settled *settled)
{
    if (settled->outcome == OUTCOME_UNSENT && f->by_outcome[OUTCOME_UNSENT] == 5)
        server_return(f->server);
}

/* The API dies with a request in its hands, stays away for a while, comes back: the load goes on by
 * itself, and says what it could not send. */
static void outage(void **state)
{
    struct fixture *f = *state;

    f->on_settle = return_after_unsent;
    attack(f, vanish_at_ten, &(struct load){.rps = 100, .duration_ms = 600});
    assert_true(f->by_outcome[OUTCOME_UNKNOWN] >= 1); // the tenth; those sent beside it, too
    assert_true(f->by_outcome[OUTCOME_UNSENT] >= 5);
    assert_true(f->by_outcome[OUTCOME_DURABLE] >= 10);
    assert_true(f->result.refused_dials >= 5);
    assert_int_equal(f->settled[f->count - 1].outcome, OUTCOME_DURABLE);
    assert_int_equal(f->by_outcome[OUTCOME_REFUSED], 0);
    for (unsigned i = 0; i < f->count; i++) // told as it happens, not at the timeout of 30 s
        assert_true(f->settled[i].done_ns - f->settled[i].due_ns < 20 * NS_PER_S);
}

static void timeout_after_sending(void **state)
{
    struct fixture *f = *state;

    attack(f, script_hang, &(struct load){.rps = 100, .duration_ms = 100, .timeout_ms = 60});
    expect(f, 0, 0, 10, 0);
    for (unsigned i = 0; i < f->count; i++)
        assert_true(f->settled[i].done_ns - f->settled[i].due_ns >= 60 * NS_PER_MS);
}

/* One connection, which hangs: those in line are given up in time as well, and nothing of them was
 * sent but for those that got a fresh connection after the first one's timeout. */
static void timeout_in_line(void **state)
{
    struct fixture *f = *state;

    attack(f, script_hang,
           &(struct load){.rps = 20,
                          .duration_ms = 1000,
                          .pacing = PACING_BURST,
                          .connections = 1,
                          .connections_max = 1,
                          .timeout_ms = 80});
    expect(f, 0, 0, 1, 19);
}

static bool answer_when_all_are_due(struct server_request *request)
{
    struct fixture *f = request->arg;

    for (int i = 0; i < 20000 && atomic_load(&f->progress.handled) < 3000; i++)
        clock_sleep_ns(NS_PER_MS);
    return script_durable(request);
}

/* More in line than the loop has room for at first: the line grows and keeps its order. */
static void long_line(void **state)
{
    struct fixture *f = *state;

    attack(f, answer_when_all_are_due,
           &(struct load){.rps = 6000, .duration_ms = 500, .connections = 1, .connections_max = 1});
    expect(f, 3000, 0, 0, 0);
    assert_int_equal(server_requests(f->server), 3000);
}

static void interrupt_at_ten(struct fixture *f, const struct settled *settled)
{
    (void)settled;
    if (f->count == 10)
        assert_int_equal(eventfd_write(f->wake_fd, 1), 0);
}

/* 12 requests get an answer at most; those on which the server sits are given their grace. */
static bool hang_every_fifth(struct server_request *request)
{
    return request->number % 5 == 0 ? script_hang(request) : script_durable(request);
}

static void interrupted(void **state)
{
    struct fixture *f = *state;

    f->on_settle = interrupt_at_ten;
    attack(f, hang_every_fifth, &(struct load){.rps = 50, .duration_ms = 60000, .grace_ms = 50});
    assert_true(f->result.interrupted);
    assert_true(f->result.due >= 12 && f->result.due < 3000);
    assert_true(f->by_outcome[OUTCOME_UNKNOWN] >= 2);
    assert_int_equal(f->by_outcome[OUTCOME_DURABLE] + f->by_outcome[OUTCOME_UNKNOWN],
                     f->result.due);
}

static bool interrupt_and_hang(struct server_request *request)
{
    struct fixture *f = request->arg;

    eventfd_write(f->wake_fd, 1);
    return script_hang(request);
}

/* What waits for a connection is settled at once, and not sent in the time of grace. */
static void interrupted_with_a_line(void **state)
{
    struct fixture *f = *state;

    attack(f, interrupt_and_hang,
           &(struct load){.rps = 20,
                          .duration_ms = 1000,
                          .pacing = PACING_BURST,
                          .connections = 1,
                          .connections_max = 1,
                          .grace_ms = 100});
    expect(f, 0, 0, 1, 19);
    assert_int_equal(f->settled[19].outcome, OUTCOME_UNKNOWN);
    assert_int_equal(server_requests(f->server), 1);
}

static void *interrupt_again_and_again(void *arg)
{
    struct fixture *f = arg;

    while (!atomic_load(&f->over)) {
        eventfd_write(f->wake_fd, 1);
        clock_sleep_ns(10 * NS_PER_MS);
    }
    return NULL;
}

static void start_interrupting(struct fixture *f, const struct settled *settled)
{
    (void)settled;
    if (f->count == 10)
        assert_int_equal(pthread_create(&f->thread, NULL, interrupt_again_and_again, f), 0);
}

/* A second signal does not wait for the grace: with it, this would last 30 s, until the timeout. */
static void interrupted_twice(void **state)
{
    struct fixture *f = *state;

    f->on_settle = start_interrupting;
    attack(f, hang_every_fifth,
           &(struct load){.rps = 50, .duration_ms = 60000, .grace_ms = 3600000});
    atomic_store(&f->over, true);
    pthread_join(f->thread, NULL);
    assert_true(f->result.interrupted);
    assert_true(f->by_outcome[OUTCOME_UNKNOWN] >= 2);
    for (unsigned i = 0; i < f->count; i++) // none had to wait for its timeout
        assert_true(f->settled[i].done_ns - f->settled[i].due_ns < 30 * NS_PER_S);
}

/* Due once and then a pause: the load still lasts to its end. */
static void lasts_to_its_end(void **state)
{
    struct fixture *f = *state;
    int64_t begin_ns = clock_mono_ns();

    attack(f, script_durable, &(struct load){.rps = 2, .duration_ms = 300});
    expect(f, 1, 0, 0, 0);
    assert_true(clock_mono_ns() - begin_ns >= 350 * NS_PER_MS);
}

/* By hand: 300 us late at first; the second follows after 100 us (allowed), the third after 1 ms
 * (250 us allowed, 750 us late), the fourth after 100 us: still late by what the third was. Another
 * due time starts afresh. 100 requests of 250 us: 25 ms, of which 20 ms are allowed. */
static void own_lateness_of_a_burst(void **state)
{
    struct own_lateness own = {.due_ns = -1};
    int64_t last_ns = 0;

    (void)state;
    assert_int_equal(own_lateness(&own, 0, 300000), 300000);
    assert_int_equal(own_lateness(&own, 0, 400000), 300000);
    assert_int_equal(own_lateness(&own, 0, 1400000), 1050000);
    assert_int_equal(own_lateness(&own, 0, 1500000), 1050000);
    assert_int_equal(own_lateness(&own, 2000000, 2000100), 100);
    assert_int_equal(own_lateness(&own, 4000000, 5000000), 1000000);
    for (int i = 0; i <= 100; i++)
        last_ns = own_lateness(&own, NS_PER_S, NS_PER_S + i * 250000);
    assert_int_equal(last_ns, 5 * NS_PER_MS);
}

static void flat_out(void **state)
{
    struct fixture *f = *state;
    struct flat_result result;
    struct target target;
    struct err err = {0};
    char text[32];

    f->server = server_start(script_durable, NULL);
    snprintf(text, sizeof(text), "127.0.0.1:%d", server_port(f->server));
    assert_int_equal(target_parse(text, &target, &err), 0);
    assert_int_equal(flat_run(&(struct flat_config){.target = &target,
                                                    .path = "/task",
                                                    .connections = 8,
                                                    .payload_bytes = 32,
                                                    .duration_ns = 200 * NS_PER_MS,
                                                    .wake_fd = -1},
                              &result, &err),
                     0);
    assert_true(result.answers > 0);
    assert_int_equal(result.durable, result.answers);
    assert_int_equal(result.lost, 0);
    assert_int_equal(result.connections_used, 8);
    assert_true(server_requests(f->server) <= result.answers + 8);
    assert_true(result.p50_ns > 0 && result.p50_ns <= result.p99_ns);
    assert_true(result.cpu_us_per_answer > 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(answers_are_durable),
        TEST(connections_take_turns),
        TEST(slow_server_does_not_slow_the_schedule),
        TEST(line_when_connections_run_out),
        TEST(codes),
        TEST(close_after_request),
        TEST(garbage_and_half_answers),
        TEST(wrong_ids_vouch_for_nothing),
        TEST(answers_in_pieces),
        TEST(large_requests),
        TEST(reconnects_after_close),
        TEST(idle_closes_go_unnoticed),
        TEST(refused_from_the_start),
        TEST(outage),
        TEST(timeout_after_sending),
        TEST(timeout_in_line),
        TEST(long_line),
        TEST(interrupted),
        TEST(interrupted_with_a_line),
        TEST(interrupted_twice),
        TEST(lasts_to_its_end),
        TEST(own_lateness_of_a_burst),
        TEST(flat_out),
    };

    log_set_level(LOG_LEVEL_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

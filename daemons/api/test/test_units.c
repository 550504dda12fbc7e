/* Oracle: the contracts in admission.h, framing.h, waiter.h and the helpers' part of sink.h;
 * framing's table is taken from RFC 9110 and 9112. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/admission.h"
#include "api/counters.h"
#include "api/framing.h"
#include "api/waiter.h"
#include "base/clock.h"
#include "sink/drivers.h"

static const struct admission_limits limits = {
    .tasks = 3, .bytes = 100, .backlog_tasks = 10, .backlog_bytes = 1000};

static void admission_bounds_tasks_and_bytes(void **state)
{
    (void)state;
    struct admission admission;
    admission_init(&admission, &limits);
    assert_int_equal(admission_check(&admission, 100), ADMISSION_OK);
    assert_int_equal(admission_check(&admission, 101), ADMISSION_BYTES);
    admission_enter(&admission, 60);
    assert_int_equal(admission_check(&admission, 40), ADMISSION_OK);
    assert_int_equal(admission_check(&admission, 41), ADMISSION_BYTES);
    assert_int_equal(admission_grow(&admission, 41), ADMISSION_BYTES);
    assert_int_equal(admission.bytes, 60);
    assert_int_equal(admission_grow(&admission, 40), ADMISSION_OK);
    admission_enter(&admission, 0);
    admission_enter(&admission, 0);
    assert_int_equal(admission_check(&admission, 0), ADMISSION_TASKS);
    admission_leave(&admission, 100);
    assert_int_equal(admission_check(&admission, 100), ADMISSION_OK);
    admission_leave(&admission, 0);
    admission_leave(&admission, 0);
    assert_int_equal(admission.tasks, 0);
    assert_int_equal(admission.bytes, 0);
}

static void admission_bounds_the_backlog_between_readings(void **state)
{
    (void)state;
    struct admission admission;
    admission_init(&admission, &limits);
    admission_backlog(&admission, 8, 0);
    assert_int_equal(admission_check(&admission, 1), ADMISSION_OK);
    admission_enter(&admission, 1); /* in flight counts: 8 + 1 */
    assert_int_equal(admission_check(&admission, 1), ADMISSION_OK);
    admission_durable(&admission, 1);
    admission_leave(&admission, 1);
    admission_enter(&admission, 1); /* 8 + 1 durable since + 1 in flight */
    assert_int_equal(admission_check(&admission, 1), ADMISSION_BACKLOG_TASKS);
    admission_backlog(&admission, 2, 0); /* a new reading forgets what was added */
    assert_int_equal(admission_check(&admission, 1), ADMISSION_OK);
    admission_backlog(&admission, 2, 950);
    assert_int_equal(admission_check(&admission, 49), ADMISSION_OK);
    assert_int_equal(admission_check(&admission, 50), ADMISSION_BACKLOG_BYTES);
    admission_backlog(&admission, -1, -1); /* unknown: no bound */
    assert_int_equal(admission_check(&admission, 50), ADMISSION_OK);
}

struct header {
    const char *name, *value;
};

static const char *fault_of(const char *version, const struct header *headers,
                            struct framing *framing)
{
    memset(framing, 0, sizeof(*framing));
    for (; headers->name; headers++) {
        framing_header(framing, headers->name, strlen(headers->name), headers->value,
                       headers->value ? strlen(headers->value) : 0);
    }
    return framing_end(framing, version);
}

static void framing_takes_plain_requests(void **state)
{
    (void)state;
    struct framing framing;
    struct header sized[] = {{"host", "a"},
                             {"content-LENGTH", " 12\t"},
                             {"Content-Type", "Application/JSON ; charset=utf-8"},
                             {"Expect", "100-Continue"},
                             {NULL, NULL}};
    assert_null(fault_of("HTTP/1.1", sized, &framing));
    assert_int_equal(framing.body_bytes, 12);
    assert_true(framing.json);
    assert_true(framing.expects_continue);
    assert_false(framing.chunked);
    assert_false(framing.coded);
    struct header chunked[] = {{"Host", "a"},
                               {"Transfer-Encoding", "Chunked"},
                               {"Content-Encoding", "gzip"},
                               {"Content-Type", "application/jsonp"},
                               {NULL, NULL}};
    assert_null(fault_of("HTTP/1.1", chunked, &framing));
    assert_true(framing.chunked);
    assert_true(framing.coded);
    assert_false(framing.json);
    struct header huge[] = {{"Content-Length", "99999999999999999999999999"}, {NULL, NULL}};
    assert_null(fault_of("HTTP/1.0", huge, &framing));
    assert_true(framing.body_bytes == INT64_MAX);
}

static void framing_refuses_doubt(void **state)
{
    (void)state;
    static const struct {
        const char *version;
        struct header headers[4];
    } cases[] = {
        {"HTTP/1.1", {{"Host", "a"}, {"Content-Length", "1"}, {"Content-Length", "1"}}},
        {"HTTP/1.1", {{"Host", "a"}, {"Content-Length", "1"}, {"Transfer-Encoding", "chunked"}}},
        {"HTTP/1.1",
         {{"Host", "a"}, {"Transfer-Encoding", "chunked"}, {"Transfer-Encoding", "chunked"}}},
        {"HTTP/1.1", {{"Host", "a"}, {"Transfer-Encoding", "gzip, chunked"}}},
        {"HTTP/1.1", {{"Host", "a"}, {"Transfer-Encoding", "identity"}}},
        {"HTTP/1.1", {{"Host", "a"}, {"Transfer-Encoding", ""}}},
        {"HTTP/1.1", {{"Host", "a"}, {"Transfer-Encoding", NULL}}},
        {"HTTP/1.0", {{"Transfer-Encoding", "chunked"}}},
        {"HTTP/1.1", {{"Host", "a"}, {"Content-Length ", "1"}}},
        {"HTTP/1.1", {{"Host", "a"}, {"Content-Length", "+1"}}},
        {"HTTP/1.1", {{"Host", "a"}, {"Content-Length", "1, 1"}}},
        {"HTTP/1.1", {{"Host", "a"}, {"Content-Length", "0x1"}}},
        {"HTTP/1.1", {{"Host", "a"}, {"Content-Length", ""}}},
        {"HTTP/1.1", {{"Host", "a"}, {"", "1"}}},
        {"HTTP/1.1", {{"Host", "a"}, {"X(", "1"}}},
        {"HTTP/1.1", {{"Host", "a"}, {"X\x80", "1"}}},
        {"HTTP/1.1", {{"Host", "a"}, {"X", "1\r2"}}},
        {"HTTP/1.1", {{"Content-Length", "1"}}},
        {"HTTP/1.1", {{"Host", "a"}, {"Host", "a"}}},
        {"HTTP/1.2", {{"Host", "a"}}},
        {"HTTP/2.0", {{"Host", "a"}}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct framing framing;
        if (!fault_of(cases[i].version, cases[i].headers, &framing)) {
            fail_msg("case %zu was taken", i);
        }
    }
}

static void waiters_keep_order_and_count(void **state)
{
    (void)state;
    struct waiters waiters = {0};
    struct waiter *taken[1000];
    struct connection *somebody = (struct connection *)&waiters;
    for (size_t i = 0; i < 1000; i++) {
        taken[i] = waiter_take(&waiters);
        taken[i]->connection = somebody;
    }
    assert_int_equal(waiters.taken, 1000);
    assert_ptr_equal(waiters.first, taken[0]);
    waiter_give_up(&waiters, taken[0]); /* no client any more, still taken */
    assert_ptr_equal(waiters.first, taken[1]);
    assert_null(taken[0]->connection);
    assert_int_equal(waiters.taken, 1000);
    waiter_put(&waiters, taken[500]); /* out of order */
    waiter_put(&waiters, taken[999]);
    assert_ptr_equal(waiters.last, taken[998]);
    size_t seen = 0;
    for (struct waiter *waiter = waiters.first; waiter; waiter = waiter->next) {
        seen++;
        assert_true(waiter->next == NULL || waiter->next->previous == waiter);
    }
    assert_int_equal(seen, 997);
    for (size_t i = 0; i < 999; i++) {
        if (i != 500) {
            waiter_put(&waiters, taken[i]);
        }
    }
    assert_int_equal(waiters.taken, 0);
    assert_null(waiters.first);
    assert_null(waiters.last);
    waiters_free(&waiters);
}

static void counters_tell_their_condition(void **state)
{
    (void)state;
    struct counters counters;
    counters_init(&counters);
    struct buf why = {0};
    assert_true(counters_healthy(&counters, &why));
    assert_true(counters_ready(&counters, &why));
    counter_set(&counters.busy_since_ns, clock_mono_ns() - 60 * NS_PER_S);
    assert_false(counters_healthy(&counters, &why));
    assert_non_null(strstr(why.data, "stuck"));
    assert_false(counters_ready(&counters, &why));
    counter_set(&counters.busy_since_ns, 0);
    for (int condition = API_STARTING; condition <= API_BROKEN; condition++) {
        atomic_store(&counters.condition, condition);
        buf_clear(&why);
        assert_false(counters_ready(&counters, &why));
        assert_true(why.len > 0);
        assert_int_equal(counters_healthy(&counters, &why), condition != API_BROKEN);
    }
    atomic_store(&counters.condition, API_NOT_READY);
    for (int i = 0; i < 2; i++) {
        const char *says = i == 0 ? "the quota is used up" : "the sink is not connected";
        counters_why(&counters, says);
        buf_clear(&why);
        assert_false(counters_ready(&counters, &why));
        assert_string_equal(why.data, says);
    }
    counters_free(&counters);
    buf_free(&why);
}

static void counters_sort_latencies(void **state)
{
    (void)state;
    struct counters counters;
    counters_init(&counters);
    for (int i = 0; i < 4; i++) {
        counters_outcome(&counters, SINK_DURABLE, 250 * NS_PER_US, 4); /* a bound belongs to it */
    }
    counters_outcome(&counters, SINK_DURABLE, 251 * NS_PER_US, 1);
    counters_outcome(&counters, SINK_DURABLE, 3600 * NS_PER_S, 1);
    counters_outcome(&counters, SINK_REFUSED, NS_PER_MS, 1);
    struct buf out = {0};
    counters_metrics(&counters, &out);
    const char *lines[] = {"sluice_api_durable_seconds_bucket{le=\"0.00025\"} 4\n",
                           "sluice_api_durable_seconds_bucket{le=\"0.0005\"} 5\n",
                           "sluice_api_durable_seconds_bucket{le=\"5\"} 5\n",
                           "sluice_api_durable_seconds_bucket{le=\"+Inf\"} 6\n",
                           "sluice_api_durable_seconds_count 6\n",
                           "sluice_api_batches_total 3\n",
                           "sluice_api_outcomes_total{outcome=\"refused\"} 1\n"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        if (!strstr(out.data, lines[i])) {
            fail_msg("no %s in: %s", lines[i], out.data);
        }
    }
    buf_free(&out);
}

static void sink_select_names_what_there_is(void **state)
{
    (void)state;
    struct err err = {0};
    const struct sink_driver *driver;
    char *bad[] = {(char *)"x", (char *)"--sink=vavlkey"};
    char *good[] = {(char *)"x", (char *)"--sink", (char *)"memory"};
    struct options *options = options_new("x", "y");
    sink_add_options(options);
    assert_int_equal(options_parse(options, 2, bad, &err), 0);
    assert_int_equal(sink_select(options, &driver, &err), -EINVAL);
    assert_non_null(strstr(err.text, "vavlkey"));
    assert_non_null(strstr(err.text, "memory"));
    assert_int_equal(options_parse(options, 3, good, &err), 0);
    assert_int_equal(sink_select(options, &driver, &err), 0);
    assert_ptr_equal(driver, &sink_memory);
    assert_ptr_equal(sink_find("memory"), &sink_memory);
    assert_null(sink_find("Memory"));
    options_free(options);
}

static void count_done(void *arg, enum sink_outcome outcome, unsigned batch)
{
    assert_int_equal(outcome, SINK_DURABLE);
    assert_int_equal(batch, 3);
    (*(int *)arg)++;
}

static void memory_decides_in_process_only(void **state)
{
    (void)state;
    struct sink *sink;
    struct err err;
    struct task task = {.body = "{}", .body_bytes = 2};
    int done = 0;
    assert_int_equal(sink_memory.open(&sink, SINK_DRAIN, NULL, &err), -ENOTSUP);
    assert_int_equal(sink_memory.open(&sink, SINK_INGEST, NULL, &err), 0);
    assert_int_equal(sink_memory.due_ns(sink), -1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sink_memory.submit(sink, &task, count_done, &done), 0);
    }
    assert_int_equal(done, 0);
    assert_int_equal(sink_memory.due_ns(sink), 0);
    assert_int_equal(sink_memory.process(sink), 0);
    assert_int_equal(done, 3);
    assert_int_equal(sink_memory.process(sink), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sink_memory.submit(sink, &task, count_done, &done), 0);
    }
    sink_memory.close(sink, 0);
    assert_int_equal(done, 6);
    sink_memory.close(NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(admission_bounds_tasks_and_bytes),
        cmocka_unit_test(admission_bounds_the_backlog_between_readings),
        cmocka_unit_test(framing_takes_plain_requests),
        cmocka_unit_test(framing_refuses_doubt),
        cmocka_unit_test(waiters_keep_order_and_count),
        cmocka_unit_test(counters_tell_their_condition),
        cmocka_unit_test(counters_sort_latencies),
        cmocka_unit_test(sink_select_names_what_there_is),
        cmocka_unit_test(memory_decides_in_process_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "ingest_parts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "server_control.h"

enum { TURNS_MAX = 1000 };

void ingest_need_server(void)
{
    const char *url = server_url("ingest");
    if (url) {
        setenv("SLUICE_TEST_MAIN_URL", url, 1);
        return;
    }
    const char *ci = getenv("CI");
    printf(
        "SKIP: no server: set SLUICE_TEST_INGEST_URL, or run it below `sluice with ingest --`\n");
    exit(ci && strcmp(ci, "true") == 0 ? 1 : 77);
}

void ingest_set(struct options *options, const char *name, const char *text)
{
    struct err err = {0};
    if (options_set(options, name, text, "test", &err) < 0) {
        fail_msg("%s", err.text);
    }
}

struct options *ingest_options(const char *url)
{
    struct options *options = options_new("test", "");
    options_add(options, "Sink", sink_common_options);
    options_add(options, "Sink", sink_ingest_options);
    ingest_set(options, "sink-url", url);
    return options;
}

int ingest_fixture_setup(void **state)
{
    struct ingest_fixture *fixture = xcalloc(1, sizeof(*fixture));
    struct err err = {0};
    testdb_open(&fixture->db, -1);
    fixture->options = ingest_options(fixture->db.url);
    if (sink_ingest.setup(fixture->options, &err) < 0) {
        fail_msg("%s", err.text);
    }
    *state = fixture;
    return 0;
}

int ingest_fixture_teardown(void **state)
{
    struct ingest_fixture *fixture = *state;
    sink_ingest.close(fixture->api, clock_mono_ns());
    options_free(fixture->options);
    testdb_close(&fixture->db);
    free(fixture);
    return 0;
}

void ingest_turn(struct sink *sink)
{
    const int64_t longest_ns = 100 * NS_PER_MS;
    int64_t due_ns = sink_ingest.due_ns(sink);
    int64_t wait_ns = due_ns < 0 || due_ns > longest_ns ? longest_ns : due_ns;
    struct timespec timeout = {.tv_nsec = wait_ns};
    struct pollfd polled = {.fd = sink_ingest.fd(sink), .events = POLLIN};
    ppoll(&polled, 1, &timeout, NULL);
    assert_int_equal(sink_ingest.process(sink), 0);
}

void ingest_open_api(struct ingest_fixture *fixture)
{
    assert_int_equal(sink_ingest.open(&fixture->api, SINK_INGEST, fixture->options, NULL), 0);
    for (int i = 0; i < TURNS_MAX && !sink_ingest.ready(fixture->api); i++) {
        ingest_turn(fixture->api);
    }
    assert_true(sink_ingest.ready(fixture->api));
}

void ingest_close_api(struct ingest_fixture *fixture, int64_t grace_ns)
{
    sink_ingest.close(fixture->api, clock_mono_ns() + grace_ns);
    fixture->api = NULL;
}

struct task ingest_task(unsigned number)
{
    static char body[32];
    struct task task = {.accepted_us = number, .body = body};
    task_synth_id(7, number, task.id);
    task.body_bytes = (size_t)snprintf(body, sizeof(body), "body %u", number);
    return task;
}

static void on_done(void *arg, enum sink_outcome outcome, unsigned batch)
{
    struct ingest_outcome *one = arg;
    assert_int_equal(one->outcome, -1);
    one->outcome = (int)outcome;
    one->batch = batch;
}

void ingest_submit(struct sink *sink, unsigned number, struct ingest_outcome *outcome)
{
    struct task task = ingest_task(number);
    *outcome = (struct ingest_outcome){.outcome = -1};
    assert_int_equal(sink_ingest.submit(sink, &task, on_done, outcome), 0);
}

void ingest_settle(struct sink *sink, const struct ingest_outcome *outcomes, unsigned count)
{
    for (int i = 0; i < TURNS_MAX; i++) {
        unsigned settled = 0;
        for (unsigned k = 0; k < count; k++) {
            settled += outcomes[k].outcome >= 0;
        }
        if (settled == count) {
            return;
        }
        ingest_turn(sink);
    }
    fail_msg("a task has no outcome");
}

void ingest_put(struct ingest_fixture *fixture, unsigned first, unsigned count)
{
    struct ingest_outcome *outcomes = xcalloc(count, sizeof(*outcomes));
    for (unsigned i = 0; i < count; i++) {
        ingest_submit(fixture->api, first + i, &outcomes[i]);
    }
    ingest_settle(fixture->api, outcomes, count);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(outcomes[i].outcome, SINK_DURABLE);
    }
    free(outcomes);
}

int64_t ingest_rows(struct ingest_fixture *fixture)
{
    return testdb_int(&fixture->db, "SELECT count(*) FROM sluice_ingest");
}

/* Oracle: what the settings promise, seen from sink.h: which outcome a task gets when the quota is
 * reached, the folder goes away or the time to close is over, and when due_ns asks for a flush. No
 * time is measured: due_ns only says what it waits for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/options.h"
#include "sink/drivers.h"

struct fixture {
    struct options *options;
    char folder[256];
    struct sink *api;
    unsigned outcomes[3];
    unsigned batch;     /* of the last outcome */
    struct sink *again; /* submit to it from done */
    unsigned long long numbers;
    int saved_stderr; /* while the log is heard; 0: it is not */
};

static void set(struct fixture *fixture, const char *name, const char *text)
{
    struct err err = {0};
    if (options_set(fixture->options, name, text, "test", &err) < 0) {
        fail_msg("%s", err.text);
    }
}

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof(*fixture));
    const char *tmp = getenv("TMPDIR");
    snprintf(fixture->folder, sizeof(fixture->folder), "%s/sluice-wal-XXXXXX",
             tmp && *tmp ? tmp : "/var/tmp");
    assert_non_null(mkdtemp(fixture->folder));
    fixture->options = options_new("test", "");
    options_add(fixture->options, "Sink", sink_common_options);
    options_add(fixture->options, "Sink", sink_wal.options);
    char *inside = xasprintf("%s/deep/log", fixture->folder);
    set(fixture, "wal-dir", inside);
    free(inside);
    set(fixture, "wal-segment-size", "4MiB");
    set(fixture, "wal-record-max", "1MiB");
    *state = fixture;
    return 0;
}

static char *heard_file(const struct fixture *fixture)
{
    return xasprintf("%s/stderr", fixture->folder);
}

/* From here on what the driver says goes to a file. */
static void hear(struct fixture *fixture)
{
    char *path = heard_file(fixture);
    fixture->saved_stderr = dup(STDERR_FILENO);
    assert_non_null(freopen(path, "a", stderr));
    free(path);
}

/* How many lines say `part`. */
static unsigned heard(const struct fixture *fixture, const char *part)
{
    struct buf text = {0};
    char *path = heard_file(fixture);
    unsigned count = 0;
    assert_int_equal(file_read(path, 1 << 20, &text, NULL), 0);
    for (const char *at = text.data; at && (at = strstr(at, part)); at++) {
        count++;
    }
    free(path);
    buf_free(&text);
    return count;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    if (fixture->saved_stderr > 0) {
        dup2(fixture->saved_stderr, STDERR_FILENO);
        close(fixture->saved_stderr);
    }
    sink_wal.close(fixture->api, clock_mono_ns() + NS_PER_S);
    file_remove_tree(fixture->folder, NULL);
    options_free(fixture->options);
    free(fixture);
    return 0;
}

static struct sink *open_role(struct fixture *fixture, enum sink_role role)
{
    struct err err = {0};
    struct sink *sink = NULL;
    if (sink_wal.open(&sink, role, fixture->options, &err) < 0) {
        fail_msg("%s", err.text);
    }
    return sink;
}

static void done(void *arg, enum sink_outcome outcome, unsigned batch);

static int submit(struct fixture *fixture, size_t body_bytes)
{
    static char body[4 << 20];
    struct task task = {.accepted_us = 1, .body = body, .body_bytes = body_bytes};
    memset(body, 'b', body_bytes);
    task_synth_id(1, ++fixture->numbers, task.id);
    return sink_wal.submit(fixture->api, &task, done, fixture);
}

static void done(void *arg, enum sink_outcome outcome, unsigned batch)
{
    struct fixture *fixture = arg;
    fixture->outcomes[outcome]++;
    fixture->batch = batch;
    if (fixture->again) {
        fixture->again = NULL;
        submit(fixture, 10);
    }
}

static unsigned drain(struct fixture *fixture, struct sink *worker)
{
    struct sink_lane *lane;
    struct sink_batch batch;
    unsigned total = 0;
    assert_int_equal(sink_wal.lane_open(worker, 0, &lane, NULL), 0);
    while (sink_wal.fetch(lane, 100, 50, &batch) > 0) {
        total += (unsigned)batch.count;
        assert_int_equal(sink_wal.ack(lane, &batch), 0);
    }
    sink_wal.lane_close(lane);
    (void)fixture;
    return total;
}

static void a_lone_task_is_flushed_at_once(void **state)
{
    struct fixture *fixture = *state;
    set(fixture, "wal-spacing", "1h");
    fixture->api = open_role(fixture, SINK_INGEST);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(submit(fixture, 10), 0);
        assert_int_equal(sink_wal.due_ns(fixture->api), 0);
        assert_int_equal(sink_wal.process(fixture->api), 0);
        assert_int_equal(fixture->outcomes[SINK_DURABLE], i + 1);
        assert_int_equal(fixture->batch, 1);
    }
    /* Two wait for the spacing, but not when they fill a batch. */
    assert_int_equal(submit(fixture, 10), 0);
    assert_int_equal(submit(fixture, 10), 0);
    assert_true(sink_wal.due_ns(fixture->api) > NS_PER_S);
    assert_int_equal(sink_wal.process(fixture->api), 0);
    assert_int_equal(fixture->outcomes[SINK_DURABLE], 3);
    assert_int_equal(submit(fixture, 256 << 10), 0);
    assert_int_equal(sink_wal.due_ns(fixture->api), 0);
    assert_int_equal(sink_wal.process(fixture->api), 0);
    assert_int_equal(fixture->outcomes[SINK_DURABLE], 5);
    assert_int_equal(fixture->batch, 2);
    assert_int_equal(sink_wal.process(fixture->api), 0);
    assert_int_equal(fixture->outcomes[SINK_DURABLE], 6);
}

static void a_fixed_timer_holds_even_a_lone_task(void **state)
{
    struct fixture *fixture = *state;
    set(fixture, "wal-flush-timer", "1h");
    fixture->api = open_role(fixture, SINK_INGEST);
    assert_int_equal(submit(fixture, 10), 0);
    assert_true(sink_wal.due_ns(fixture->api) > NS_PER_S);
    assert_int_equal(sink_wal.process(fixture->api), 0);
    assert_int_equal(fixture->outcomes[SINK_DURABLE], 0);
}

static void a_batch_is_capped_in_tasks(void **state)
{
    struct fixture *fixture = *state;
    set(fixture, "sink-batch-max", "3");
    set(fixture, "wal-spacing", "0");
    fixture->api = open_role(fixture, SINK_INGEST);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(submit(fixture, 10), 0);
    }
    assert_int_equal(sink_wal.process(fixture->api), 0);
    assert_int_equal(fixture->outcomes[SINK_DURABLE], 3);
    assert_int_equal(fixture->batch, 3);
    assert_int_equal(sink_wal.process(fixture->api), 0);
    assert_int_equal(sink_wal.process(fixture->api), 0);
    assert_int_equal(fixture->outcomes[SINK_DURABLE], 7);
    assert_int_equal(fixture->batch, 1);
}

static void a_done_may_submit(void **state)
{
    struct fixture *fixture = *state;
    fixture->api = open_role(fixture, SINK_INGEST);
    fixture->again = fixture->api;
    assert_int_equal(submit(fixture, 10), 0);
    assert_int_equal(sink_wal.process(fixture->api), 0);
    assert_int_equal(fixture->outcomes[SINK_DURABLE], 1);
    assert_int_equal(sink_wal.process(fixture->api), 0);
    assert_int_equal(fixture->outcomes[SINK_DURABLE], 2);
}

static void a_task_that_is_too_long_is_refused(void **state)
{
    struct fixture *fixture = *state;
    fixture->api = open_role(fixture, SINK_INGEST);
    assert_int_equal(submit(fixture, 2 << 20), 0);
    assert_int_equal(submit(fixture, 10), 0);
    assert_int_equal(submit(fixture, 2 << 20), 0);
    assert_int_equal(sink_wal.due_ns(fixture->api), 0);
    assert_int_equal(sink_wal.process(fixture->api), 0);
    assert_int_equal(fixture->outcomes[SINK_REFUSED], 2);
    assert_int_equal(fixture->outcomes[SINK_DURABLE], 1);
    /* Alone, too. */
    assert_int_equal(submit(fixture, 2 << 20), 0);
    assert_int_equal(sink_wal.process(fixture->api), 0);
    assert_int_equal(fixture->outcomes[SINK_REFUSED], 3);
}

static void the_quota_refuses_until_the_worker_has_caught_up(void **state)
{
    struct fixture *fixture = *state;
    unsigned taken = 0;
    set(fixture, "wal-quota", "12MiB");
    set(fixture, "wal-cursor-sync", "0");
    hear(fixture);
    fixture->api = open_role(fixture, SINK_INGEST);
    while (taken < 100 && fixture->outcomes[SINK_REFUSED] == 0 && submit(fixture, 900 << 10) == 0) {
        assert_int_equal(sink_wal.process(fixture->api), 0);
        taken++;
    }
    assert_true(taken > 8 && taken < 16);
    /* Full for all, though a small one would still find room: and the reason is told. */
    assert_false(sink_wal.ready(fixture->api));
    assert_int_equal(submit(fixture, 900 << 10), -ENOSPC);
    assert_int_equal(submit(fixture, 10), -ENOSPC);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(sink_wal.process(fixture->api), 0);
        assert_false(sink_wal.ready(fixture->api));
    }
    const char *sentence = NULL;
    assert_int_equal(sink_wal.why(fixture->api, &sentence), -ENOSPC);
    assert_non_null(strstr(sentence, "quota"));
    assert_null(strstr(sentence, fixture->folder));
    /* It does not ask to be called all the time, and goes on by itself. */
    assert_true(sink_wal.due_ns(fixture->api) >= 0);
    struct sink *worker = open_role(fixture, SINK_DRAIN);
    assert_int_equal(drain(fixture, worker), fixture->outcomes[SINK_DURABLE]);
    for (int i = 0; i < 1000 && !sink_wal.ready(fixture->api); i++) {
        assert_int_equal(sink_wal.process(fixture->api), 0);
    }
    assert_true(sink_wal.ready(fixture->api));
    assert_int_equal(sink_wal.why(fixture->api, &sentence), 0);
    assert_int_equal(heard(fixture, "tasks are refused"), 1);
    assert_int_equal(heard(fixture, "there is room again"), 1);
    unsigned durable = fixture->outcomes[SINK_DURABLE];
    assert_int_equal(submit(fixture, 900 << 10), 0);
    assert_int_equal(sink_wal.process(fixture->api), 0);
    assert_int_equal(fixture->outcomes[SINK_DURABLE], durable + 1);
    sink_wal.close(worker, 0);
}

static void a_failed_flush_is_unknown_and_final(void **state)
{
    struct fixture *fixture = *state;
    struct sink_stats stats;
    fixture->api = open_role(fixture, SINK_INGEST);
    assert_int_equal(submit(fixture, 10), 0);
    assert_int_equal(sink_wal.process(fixture->api), 0);
    char *segment = xasprintf("%s/deep/log/00000000000000000001.seg", fixture->folder);
    assert_int_equal(unlink(segment), 0); /* as if somebody had removed the folder */
    free(segment);
    set(fixture, "wal-spacing", "0");
    for (int i = 0; i < 5; i++) {
        assert_int_equal(submit(fixture, 10), 0);
    }
    int rc = 0;
    while (rc == 0 && fixture->outcomes[SINK_UNKNOWN] == 0 && sink_wal.due_ns(fixture->api) >= 0) {
        rc = sink_wal.process(fixture->api);
    }
    assert_int_equal(rc, -EIO);
    assert_int_equal(fixture->outcomes[SINK_UNKNOWN], 5);
    assert_int_equal(fixture->outcomes[SINK_DURABLE], 1);
    assert_false(sink_wal.ready(fixture->api));
    assert_int_equal(submit(fixture, 10), -EIO);
    assert_int_equal(sink_wal.process(fixture->api), -EIO);
    assert_int_equal(sink_wal.due_ns(fixture->api), -1);
    assert_int_equal(sink_wal.stats(fixture->api, &stats), 0);
    bool failed = false;
    for (size_t i = 0; i < stats.count; i++) {
        failed = failed || (strcmp(stats.items[i].name, "failed") == 0 && stats.items[i].value > 0);
    }
    assert_true(failed);
}

static void damage_is_named_with_its_place(void **state)
{
    struct fixture *fixture = *state;
    fixture->api = open_role(fixture, SINK_INGEST);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(submit(fixture, 1000), 0);
        assert_int_equal(sink_wal.process(fixture->api), 0);
    }
    char *segment = xasprintf("%s/deep/log/00000000000000000001.seg", fixture->folder);
    FILE *file = fopen(segment, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, 5632 + 100, SEEK_SET), 0); /* in the second batch */
    assert_int_equal(fputs("rot", file) >= 0, 1);
    fclose(file);
    struct sink *worker = open_role(fixture, SINK_DRAIN);
    struct sink_lane *lane;
    struct sink_batch batch;
    assert_int_equal(sink_wal.lane_open(worker, 0, &lane, NULL), 0);
    assert_int_equal(sink_wal.fetch(lane, 1, 50, &batch), 1);
    assert_int_equal(sink_wal.ack(lane, &batch), 0);
    assert_int_equal(sink_wal.fetch(lane, 1, 50, &batch), -ESHUTDOWN);
    const char *says = sink_wal.broken_by(lane);
    if (!strstr(says, segment) || !strstr(says, " at 5632: ")) {
        fail_msg("file and offset are missing: %s", says);
    }
    sink_wal.lane_close(lane);
    sink_wal.close(worker, 0);
    free(segment);
}

static void closing_too_late_refuses(void **state)
{
    struct fixture *fixture = *state;
    set(fixture, "wal-flush-timer", "1h");
    fixture->api = open_role(fixture, SINK_INGEST);
    assert_int_equal(submit(fixture, 10), 0);
    sink_wal.close(fixture->api, 0);
    assert_int_equal(fixture->outcomes[SINK_REFUSED], 1);
    /* Surely not stored. */
    fixture->api = open_role(fixture, SINK_INGEST);
    struct sink *worker = open_role(fixture, SINK_DRAIN);
    assert_int_equal(drain(fixture, worker), 0);
    sink_wal.close(worker, 0);
    assert_int_equal(submit(fixture, 10), 0);
    sink_wal.close(fixture->api, clock_mono_ns() + 10 * NS_PER_S);
    fixture->api = NULL;
    assert_int_equal(fixture->outcomes[SINK_DURABLE], 1);
}

static void sealed_only_reads_what_has_ended(void **state)
{
    struct fixture *fixture = *state;
    set(fixture, "wal-sealed-only", "yes");
    set(fixture, "wal-segment-age", "30ms");
    fixture->api = open_role(fixture, SINK_INGEST);
    struct sink *worker = open_role(fixture, SINK_DRAIN);
    assert_int_equal(submit(fixture, 10), 0);
    assert_int_equal(sink_wal.process(fixture->api), 0);
    assert_int_equal(drain(fixture, worker), 0);
    /* The loop alone, with nothing more submitted, ends the segment. */
    unsigned got = 0;
    for (int i = 0; i < 2000 && got == 0; i++) {
        int64_t due_ns = sink_wal.due_ns(fixture->api);
        if (due_ns < 0) {
            break;
        }
        clock_sleep_ns(due_ns);
        assert_int_equal(sink_wal.process(fixture->api), 0);
        struct sink_backlog backlog;
        assert_int_equal(sink_wal.backlog(fixture->api, &backlog), 0);
        assert_int_equal(backlog.tasks, 1);
        got = i % 20 == 19 ? drain(fixture, worker) : 0;
    }
    got += drain(fixture, worker);
    assert_int_equal(got, 1);
    sink_wal.close(worker, 0);
}

static double figure(struct sink *probe, const char *name)
{
    struct sink_stats stats;
    assert_int_equal(sink_wal.stats(probe, &stats), 0);
    for (size_t i = 0; i < stats.count; i++) {
        if (strcmp(stats.items[i].name, name) == 0) {
            return stats.items[i].value;
        }
    }
    fail_msg("stats has no %s", name);
    return 0;
}

/* As the owner's loop does, as long as there is anything to do. */
static void process_while_due(struct fixture *fixture)
{
    for (int64_t due_ns; (due_ns = sink_wal.due_ns(fixture->api)) >= 0;) {
        usleep((unsigned)(due_ns / NS_PER_US) + 1);
        assert_int_equal(sink_wal.process(fixture->api), 0);
    }
}

static void upkeep_ends_the_segment(void **state)
{
    struct fixture *fixture = *state;
    fixture->api = open_role(fixture, SINK_INGEST);
    struct sink *probe = open_role(fixture, SINK_PROBE);
    assert_string_equal(sink_wal.upkeep_stat, "rotations");
    for (unsigned round = 1; round <= 3; round++) {
        double before = figure(probe, sink_wal.upkeep_stat);
        assert_int_equal(submit(fixture, 1000), 0);
        process_while_due(fixture);
        assert_true(figure(probe, sink_wal.upkeep_stat) == before); /* not of itself */
        assert_int_equal(sink_wal.upkeep(fixture->api), 0);
        /* Tasks that come meanwhile belong to the segment that ends, and are not held up. */
        assert_int_equal(submit(fixture, 1000), 0);
        assert_int_equal(sink_wal.process(fixture->api), 0);
        process_while_due(fixture);
        assert_int_equal(fixture->outcomes[SINK_DURABLE], 2 * round);
        assert_true(figure(probe, sink_wal.upkeep_stat) == before + 1);
        /* Asked for once, done once. */
        process_while_due(fixture);
        assert_int_equal(sink_wal.upkeep(fixture->api), 0); /* an empty segment: nothing to end */
        assert_int_equal(sink_wal.process(fixture->api), 0);
        process_while_due(fixture);
        assert_true(figure(probe, sink_wal.upkeep_stat) == before + 1);
    }
    struct sink *worker = open_role(fixture, SINK_DRAIN);
    assert_int_equal(drain(fixture, worker), 6);
    sink_wal.close(worker, 0);
    sink_wal.close(probe, 0);
}

static void a_folder_in_memory_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    if (access("/dev/shm", W_OK) != 0) {
        skip();
    }
    set(fixture, "wal-dir", "/dev/shm");
    assert_int_equal(sink_wal.preflight(fixture->options, &err), -EPERM);
    assert_non_null(strstr(err.text, "tmpfs"));
}

static void bad_settings_are_named(void **state)
{
    struct fixture *fixture = *state;
    struct err err = {0};
    struct sink *sink;
    set(fixture, "wal-quota", "4MiB");
    assert_int_equal(sink_wal.open(&sink, SINK_INGEST, fixture->options, &err), -EINVAL);
    assert_non_null(strstr(err.text, "quota"));
    assert_null(sink);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_lone_task_is_flushed_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_fixed_timer_holds_even_a_lone_task, setup, teardown),
        cmocka_unit_test_setup_teardown(a_batch_is_capped_in_tasks, setup, teardown),
        cmocka_unit_test_setup_teardown(a_done_may_submit, setup, teardown),
        cmocka_unit_test_setup_teardown(a_task_that_is_too_long_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(the_quota_refuses_until_the_worker_has_caught_up, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_failed_flush_is_unknown_and_final, setup, teardown),
        cmocka_unit_test_setup_teardown(damage_is_named_with_its_place, setup, teardown),
        cmocka_unit_test_setup_teardown(closing_too_late_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(sealed_only_reads_what_has_ended, setup, teardown),
        cmocka_unit_test_setup_teardown(upkeep_ends_the_segment, setup, teardown),
        cmocka_unit_test_setup_teardown(a_folder_in_memory_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_settings_are_named, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

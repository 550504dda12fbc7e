/* Oracle: docs/metrics.md, with every figure worked out by hand from the few requests recorded;
 * histogram percentiles against the sorted samples themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "hist.h"
#include "ledger.h"
#include "recorder.h"
#include "task/task.h"

#define MS NS_PER_MS

struct fixture {
    char folder[64];
    char ledger[96];
    char metrics[96];
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    strcpy(f->folder, "/tmp/test-record-XXXXXX");
    if (!mkdtemp(f->folder))
        return -1;
    snprintf(f->ledger, sizeof(f->ledger), "%s/ledger.tsv", f->folder);
    snprintf(f->metrics, sizeof(f->metrics), "%s/loadgen.jsonl", f->folder);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    file_remove_tree(f->folder, NULL);
    free(f);
    return 0;
}

/* Four requests: durable after 2 ms, refused after 3 ms, unsent after 10 s, unknown after 10 s. */
static const struct settled settled[] = {
    {.id = {0x01, [15] = 0xff},
     .due_ns = 0,
     .handled_ns = 100000,
     .own_ns = 100000,
     .sent_ns = 1000000,
     .done_ns = 2 * MS,
     .code = 202,
     .outcome = OUTCOME_DURABLE,
     .phase = 0},
    {.id = {0x02},
     .due_ns = 500 * MS,
     .handled_ns = 500 * MS + 300000,
     .own_ns = 300000,
     .sent_ns = 500 * MS + 300000,
     .done_ns = 503 * MS,
     .code = 503,
     .outcome = OUTCOME_REFUSED,
     .phase = 0},
    {.id = {0x03},
     .due_ns = 1000 * MS,
     .handled_ns = 1001 * MS,
     .own_ns = MS,
     .sent_ns = ATTACK_NEVER,
     .done_ns = 11000 * MS,
     .outcome = OUTCOME_UNSENT,
     .phase = 1},
    {.id = {0x04},
     .due_ns = 1500 * MS,
     .handled_ns = 2500 * MS,
     .own_ns = 1000 * MS,
     .sent_ns = 2500 * MS,
     .done_ns = 11500 * MS,
     .outcome = OUTCOME_UNKNOWN,
     .phase = 1},
};

static const char ledger_text[] =
    "#sluice-ledger 1 seed=9 payload_bytes=512\n"
    "01000000-0000-0000-0000-"
    "0000000000ff\t1700000000000000\t1700000000001000\t1700000000002000\t202\t"
    "durable\ta\n"
    "02000000-0000-0000-0000-"
    "000000000000\t1700000000500000\t1700000000500300\t1700000000503000\t503\t"
    "refused\ta\n"
    "03000000-0000-0000-0000-000000000000\t1700000001000000\t0\t1700000011000000\t0\tunsent\tb\n"
    "04000000-0000-0000-0000-"
    "000000000000\t1700000001500000\t1700000002500000\t1700000011500000\t0\t"
    "unknown\tb\n";

static const int64_t start_wall_us = 1700000000000000;

static void expect_file(const char *path, const char *text, const char *end)
{
    struct buf found = {0}, want = {0};

    assert_int_equal(file_read(path, 1 << 20, &found, NULL), 0);
    buf_puts(&want, text);
    buf_puts(&want, end);
    assert_string_equal(found.data, want.data);
    buf_free(&found);
    buf_free(&want);
}

static void ledger_complete(void **state)
{
    struct fixture *f = *state;
    struct ledger *ledger;
    struct err err;

    assert_int_equal(ledger_open(&ledger, f->ledger, 9, 512, start_wall_us, &err), 0);
    for (int i = 0; i < 4; i++)
        ledger_row(ledger, &settled[i], i < 2 ? "a" : "b");
    assert_int_equal(ledger_flush(ledger), 0);
    expect_file(f->ledger, ledger_text, "");
    assert_int_equal(ledger_close(ledger, true, &err), 0);
    expect_file(f->ledger, ledger_text, "#end rows=4\n");

    assert_int_equal(ledger_open(&ledger, f->ledger, 9, 512, start_wall_us, &err), -EEXIST);
    assert_non_null(strstr(err.text, f->ledger));
    expect_file(f->ledger, ledger_text, "#end rows=4\n");
}

static void ledger_cut_short(void **state)
{
    struct fixture *f = *state;
    struct ledger *ledger;

    assert_int_equal(ledger_open(&ledger, f->ledger, 9, 512, start_wall_us, NULL), 0);
    for (int i = 0; i < 4; i++)
        ledger_row(ledger, &settled[i], i < 2 ? "a" : "b");
    assert_int_equal(ledger_close(ledger, false, NULL), 0);
    expect_file(f->ledger, ledger_text, "");
}

/* A ledger with an error in it never gets its "#end", whoever asks for it. */
static void ledger_disk_full(void **state)
{
    const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY}, little = {100, RLIM_INFINITY};
    struct fixture *f = *state;
    struct ledger *ledger;
    struct buf found = {0};
    struct err err;

    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(ledger_open(&ledger, f->ledger, 9, 512, start_wall_us, NULL), 0);
    ledger_row(ledger, &settled[0], "a");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    assert_int_equal(ledger_flush(ledger), -EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    assert_int_equal(ledger_close(ledger, true, &err), -EFBIG);
    assert_non_null(strstr(err.text, f->ledger));
    assert_int_equal(file_read(f->ledger, 1 << 20, &found, NULL), 0);
    assert_null(strstr(found.data, "#end"));
    buf_free(&found);
}

/* a: 2/s for 1 s; b: 2/s for 1 s. */
static void make_pace(struct pace *pace)
{
    assert_int_equal(pace_init(pace, 2, PACING_PACED, NULL), 0);
    assert_int_equal(pace_add(pace, "a", NS_PER_S, 1, NULL), 0);
    assert_int_equal(pace_add(pace, "b", NS_PER_S, 1, NULL), 0);
}

static double number(const cJSON *event, const char *field)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(event, field);

    if (!cJSON_IsNumber(item))
        fail_msg("no number \"%s\" in %s", field, cJSON_PrintUnformatted(event));
    return item->valuedouble;
}

static const char *string(const cJSON *event, const char *field)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(event, field);

    if (!cJSON_IsString(item))
        fail_msg("no string \"%s\" in %s", field, cJSON_PrintUnformatted(event));
    return item->valuestring;
}

/* The nth event (from 0) of that name, NULL when there are fewer. */
static cJSON *event_of(const char *path, const char *name, int nth)
{
    struct buf text = {0};
    cJSON *found = NULL;

    assert_int_equal(file_read(path, 1 << 20, &text, NULL), 0);
    for (char *line = strtok(text.data, "\n"); line && !found; line = strtok(NULL, "\n")) {
        cJSON *event = cJSON_Parse(line);

        assert_non_null(event);
        if (strcmp(string(event, "ev"), name) == 0 && nth-- == 0)
            found = event;
        else
            cJSON_Delete(event);
    }
    buf_free(&text);
    return found;
}

static void expect_phase(const char *path, int nth, const char *what, const char *phase_state,
                         double due_us)
{
    cJSON *event = event_of(path, "phase", nth);

    assert_non_null(event);
    assert_string_equal(string(event, "what"), what);
    assert_string_equal(string(event, "state"), phase_state);
    assert_true(number(event, "due_us") == due_us);
    assert_true(fabs(number(event, "ts") - due_us / 1e6) < 1e-5);
    assert_true(number(event, "rps") == 2);
    cJSON_Delete(event);
}

static void expect_lateness(const char *path, int nth, const char *phase, const double figures[9])
{
    static const char *const fields[9] = {"planned", "due",    "on_time",    "sent",      "p50_ms",
                                          "p99_ms",  "max_ms", "own_p50_ms", "own_p99_ms"};
    cJSON *event = event_of(path, "lateness", nth);

    assert_non_null(event);
    assert_string_equal(string(event, "phase"), phase);
    for (int i = 0; i < 9; i++)
        if (fabs(number(event, fields[i]) - figures[i]) > 1e-9)
            fail_msg("%s: %s is %g, expected %g", phase, fields[i], number(event, fields[i]),
                     figures[i]);
    cJSON_Delete(event);
}

static void record(struct fixture *f, int count, int64_t ago_ns, struct attack_progress *progress)
{
    struct recorder_config config = {
        .start_ns = clock_mono_ns() - ago_ns, .start_wall_us = start_wall_us, .progress = progress};
    struct recorder *recorder;
    struct pace pace;

    make_pace(&pace);
    config.pace = &pace;
    assert_int_equal(metrics_open(&config.metrics, f->metrics, NULL), 0);
    assert_int_equal(ledger_open(&config.ledger, f->ledger, 9, 512, start_wall_us, NULL), 0);
    recorder = recorder_start(&config);
    for (int i = 0; i < count; i++)
        recorder_add(recorder, &settled[i]);
    assert_int_equal(recorder_stop(recorder), 0);
    assert_int_equal(ledger_close(config.ledger, true, NULL), 0);
    assert_int_equal(metrics_close(config.metrics), 0);
}

static void recorder_whole_load(void **state)
{
    struct attack_progress progress = {0};
    struct fixture *f = *state;
    cJSON *event;

    record(f, 4, 12 * NS_PER_S, &progress);
    expect_file(f->ledger, ledger_text, "#end rows=4\n");

    event = event_of(f->metrics, "api_latency", 0);
    assert_string_equal(string(event, "id"), "01000000-0000-0000-0000-0000000000ff");
    assert_string_equal(string(event, "outcome"), "durable");
    assert_string_equal(string(event, "phase"), "a");
    assert_true(number(event, "code") == 202);
    assert_true(number(event, "latency_ms") == 2);
    assert_true(number(event, "service_ms") == 1);
    assert_true(number(event, "due_us") == 1700000000000000.0);
    assert_true(fabs(number(event, "ts") - 1700000000.002) < 1e-5);
    cJSON_Delete(event);
    event = event_of(f->metrics, "api_latency", 2);
    assert_string_equal(string(event, "outcome"), "unsent");
    assert_true(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(event, "service_ms")));
    assert_true(number(event, "latency_ms") == 10000);
    cJSON_Delete(event);
    assert_null(event_of(f->metrics, "api_latency", 4));

    expect_phase(f->metrics, 0, "a", "begin", 1700000000000000.0);
    expect_phase(f->metrics, 1, "a", "end", 1700000001000000.0);
    expect_phase(f->metrics, 2, "b", "begin", 1700000001000000.0);
    expect_phase(f->metrics, 3, "b", "end", 1700000002000000.0);
    expect_lateness(f->metrics, 0, "a", (double[]){2, 2, 2, 2, 0.3, 1, 1, 0.1, 0.3});
    // The last one was handled half a second after its phase's end, and one was never sent.
    expect_lateness(f->metrics, 1, "b", (double[]){2, 2, 1, 1, 1000, 1000, 1000, 1, 1000});
    assert_null(event_of(f->metrics, "lateness", 2));
}

/* Ended in the first phase: what was due is told, the second phase never began. */
static void recorder_interrupted(void **state)
{
    struct attack_progress progress = {0};
    struct fixture *f = *state;
    cJSON *event;

    record(f, 1, 0, &progress);
    expect_lateness(f->metrics, 0, "a", (double[]){2, 1, 1, 1, 1, 1, 1, 0.1, 0.1});
    expect_phase(f->metrics, 0, "a", "begin", 1700000000000000.0);
    event = event_of(f->metrics, "phase", 1);
    assert_string_equal(string(event, "state"), "end");
    assert_true(number(event, "due_us") < 1700000001000000.0);
    cJSON_Delete(event);
    assert_null(event_of(f->metrics, "phase", 2));
    assert_null(event_of(f->metrics, "lateness", 1));
}

/* A ledger that can't be written ends the load. */
static void recorder_disk_full(void **state)
{
    const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY}, little = {10, RLIM_INFINITY};
    struct attack_progress progress = {0};
    struct fixture *f = *state;
    struct recorder_config config = {.start_ns = clock_mono_ns(), .progress = &progress};
    struct recorder *recorder;
    struct pace pace;

    signal(SIGXFSZ, SIG_IGN);
    make_pace(&pace);
    config.pace = &pace;
    assert_int_equal(metrics_open(&config.metrics, NULL, NULL), 0);
    assert_int_equal(ledger_open(&config.ledger, f->ledger, 9, 512, start_wall_us, NULL), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    recorder = recorder_start(&config);
    recorder_add(recorder, &settled[0]);
    for (int i = 0; i < 1000 && !atomic_load(&progress.stop); i++)
        clock_sleep_ns(20 * MS);
    assert_true(atomic_load(&progress.stop));
    assert_int_equal(recorder_stop(recorder), -EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    assert_int_equal(ledger_close(config.ledger, true, NULL), -EFBIG);
    metrics_close(config.metrics);
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Nearest rank; exact to a microsecond (rounded up) below 65 ms, within 0.1 % above. */
static void percentiles(void **state)
{
    enum { COUNT = 5000 };
    static const double fractions[] = {0.001, 0.5, 0.9, 0.99, 0.999, 1};
    static int64_t samples[COUNT];
    unsigned seed = (unsigned)time(NULL), random = seed;
    struct hist *hist = hist_new();

    (void)state;
    assert_int_equal(hist_percentile_ns(hist, 0.5), 0);
    for (int i = 0; i < COUNT; i++) {
        // From 1 us to a quarter of an hour, as many in each doubling.
        samples[i] = (int64_t)exp2(10 + 30 * (double)rand_r(&random) / RAND_MAX);
        hist_add(hist, samples[i]);
    }
    qsort(samples, COUNT, sizeof(samples[0]), compare);
    for (size_t i = 0; i < sizeof(fractions) / sizeof(fractions[0]); i++) {
        int64_t exact = samples[(int)ceil(fractions[i] * (double)COUNT - 1e-9) - 1];
        int64_t found = hist_percentile_ns(hist, fractions[i]);
        int64_t slack = exact < 65 * MS ? 1000 : exact / 1000 + 1000;

        if (found < exact || found > exact + slack)
            fail_msg("seed %u: p%g is %lld, exactly %lld", seed, fractions[i] * 100,
                     (long long)found, (long long)exact);
    }
    assert_int_equal(hist_max_ns(hist), samples[COUNT - 1]);
    assert_int_equal(hist_count(hist), COUNT);
    hist_free(hist);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(ledger_complete),         TEST(ledger_cut_short),     TEST(ledger_disk_full),
        TEST(recorder_whole_load),     TEST(recorder_interrupted), TEST(recorder_disk_full),
        cmocka_unit_test(percentiles),
    };

    log_set_level(LOG_LEVEL_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

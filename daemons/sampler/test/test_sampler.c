/* Oracle: docs/metrics.md (names and units of the fields) and figures added up by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "fake_proc.h"
#include "periodic.h"
#include "sampler.h"

/* The nth line (from 0) of text that holds both pieces; "" when there is none. */
static const char *line_with(const char *text, const char *first, const char *second, unsigned nth)
{
    static char line[2048];
    for (const char *at = text; *at;) {
        size_t len = strcspn(at, "\n");
        assert_true(len < sizeof(line));
        memcpy(line, at, len);
        line[len] = '\0';
        assert_int_equal(json_check(line, len, NULL), 0);
        if (strstr(line, first) && strstr(line, second) && nth-- == 0)
            return line;
        at += len + (at[len] == '\n');
    }
    return "";
}

static double number_in(const char *line, const char *field)
{
    char *quoted = xasprintf("\"%s\":", field);
    const char *at = strstr(line, quoted);
    assert_non_null(at);
    at += strlen(quoted);
    free(quoted);
    char *end;
    double value = strtod(at, &end);
    assert_ptr_not_equal(end, at);
    return value;
}

static void test_events(void **state)
{
    (void)state;
    char *proc_root = fake_proc_new();
    char *path = xasprintf("%s/metrics.jsonl", proc_root);
    struct metrics *metrics;
    assert_int_equal(metrics_open(&metrics, path, NULL), 0);
    struct part parts[] = {{.who = (char[]){"main-db"}, .pid = 10},
                           {.who = (char[]){"gone"}, .pid = 99}};
    struct sampler *sampler = sampler_new(proc_root, parts, 2, "vda", metrics);
    const uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);
    struct fake_process process = {.pid = 10,
                                   .parent = 1,
                                   .own_ticks = 3 * hz,
                                   .start_ticks = 1,
                                   .rss_pages = 5,
                                   .read_bytes = 11,
                                   .write_bytes = 22};
    fake_proc_put(proc_root, &process);
    fake_proc_host(proc_root, "cpu  1000 0 0 1000 0 0 0 0 0 0\n");
    int64_t began_ns = clock_mono_ns();
    assert_int_equal(sampler_tick(sampler, NULL), 0);
    clock_sleep_ns(300 * NS_PER_MS);
    process.own_ticks += 300;
    char *stats = xasprintf("%s/diskstats", proc_root);
    static const char disk[] = "   1 0 vda 1 2 300 4 5 6 800 7 8 9 10 11 12 13 14 16 17\n";
    assert_int_equal(file_write(stats, disk, sizeof(disk) - 1, NULL), 0);
    free(stats);
    fake_proc_put(proc_root, &process);
    /* Of one core in a span of at least 300 ms: 3 ticks stolen, 6 spent on waiting for a disk. What
     * user time says does not count (host_cpu.h). */
    fake_proc_host(proc_root, "cpu  9000 0 0 1000 6 0 0 3 0 0\n");
    assert_int_equal(sampler_tick(sampler, NULL), 0);
    double span_s = (double)(clock_mono_ns() - began_ns) / (double)NS_PER_S;
    sampler_free(sampler);
    assert_int_equal(metrics_close(metrics), 0);

    struct buf text = {0};
    assert_int_equal(file_read(path, 1 << 20, &text, NULL), 0);
    const char *line = line_with(text.data, "\"os\"", "\"main-db\"", 0);
    assert_non_null(strstr(line, "\"cpu_pct\": null"));
    assert_int_equal(number_in(line, "cpu_s"), 3);
    assert_int_equal(number_in(line, "rss_bytes"), 5 * sysconf(_SC_PAGESIZE));
    assert_int_equal(number_in(line, "read_bytes"), 11);
    assert_int_equal(number_in(line, "write_bytes"), 22);
    assert_int_equal(number_in(line, "processes"), 1);
    line = line_with(text.data, "\"os\"", "\"main-db\"", 1);
    /* The sampler's own span is no longer than the one measured around it, no shorter than the
     * sleep. */
    double used_pct = 100.0 * 300 / (double)hz;
    assert_true(number_in(line, "cpu_pct") >= used_pct / span_s - 0.001);
    assert_true(number_in(line, "cpu_pct") <= used_pct / 0.3 + 0.001);
    line = line_with(text.data, "\"os\"", "\"gone\"", 1);
    assert_int_equal(number_in(line, "processes"), 0);
    assert_int_equal(number_in(line, "rss_bytes"), 0);
    assert_int_equal(number_in(line, "cpu_pct"), 0);
    line = line_with(text.data, "\"host\"", "", 0);
    assert_non_null(strstr(line, "\"busy_pct\": null"));
    assert_non_null(strstr(line, "\"disk\": \"vda\", \"disk_read_bytes\": null"));
    line = line_with(text.data, "\"host\"", "", 1);
    double least_ticks = 0.3 * (double)hz, most_ticks = span_s * (double)hz;
    assert_true(number_in(line, "busy_pct") >= 100 - 900 / least_ticks - 0.001);
    assert_true(number_in(line, "busy_pct") <= 100 - 900 / most_ticks + 0.001);
    assert_true(number_in(line, "steal_pct") <= 300 / least_ticks + 0.001);
    assert_true(number_in(line, "steal_pct") >= 300 / most_ticks - 0.001);
    assert_true(number_in(line, "iowait_pct") <= 600 / least_ticks + 0.001);
    assert_true(number_in(line, "iowait_pct") >= 600 / most_ticks - 0.001);
    assert_int_equal(number_in(line, "ours_pct"), 100); /* 300 ticks: more than there were */
    assert_int_equal(number_in(line, "disk_write_bytes"), 800 * 512);
    assert_int_equal(number_in(line, "disk_read_bytes"), 300 * 512);
    assert_int_equal(number_in(line, "disk_flushes"), 16);
    buf_free(&text);
    free(path);
    fake_proc_free(proc_root);
}

static void test_no_proc_is_an_error(void **state)
{
    (void)state;
    struct metrics *metrics;
    assert_int_equal(metrics_open(&metrics, NULL, NULL), 0);
    struct sampler *sampler = sampler_new("/nonexistent/proc", NULL, 0, NULL, metrics);
    struct err err = {0};
    assert_true(sampler_tick(sampler, &err) < 0);
    assert_non_null(strstr(err.text, "/nonexistent/proc"));
    sampler_free(sampler);
    metrics_close(metrics);
}

static int64_t count_turn(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
    return 3600 * NS_PER_S;
}

static void test_periodic_does_a_last_turn(void **state)
{
    (void)state;
    atomic_int turns = 0;
    struct periodic *periodic;
    assert_int_equal(periodic_start(&periodic, count_turn, &turns, NULL), 0);
    while (atomic_load(&turns) == 0)
        clock_sleep_ns(NS_PER_MS);
    assert_true(periodic_stop(periodic, clock_mono_ns() + 60 * NS_PER_S));
    assert_int_equal(atomic_load(&turns), 2);
    assert_true(periodic_stop(NULL, 0));
}

static atomic_bool let_go;
static int64_t stuck_turn(void *arg)
{
    (void)arg;
    while (!atomic_load(&let_go))
        clock_sleep_ns(NS_PER_MS);
    return 0;
}

static void test_periodic_that_hangs_is_left(void **state)
{
    (void)state;
    struct periodic *periodic;
    assert_int_equal(periodic_start(&periodic, stuck_turn, NULL, NULL), 0);
    assert_false(periodic_stop(periodic, clock_mono_ns() + 20 * NS_PER_MS));
    atomic_store(&let_go, true);
    assert_true(periodic_stop(periodic, clock_mono_ns() + 60 * NS_PER_S));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_no_proc_is_an_error),
        cmocka_unit_test(test_periodic_does_a_last_turn),
        cmocka_unit_test(test_periodic_that_hangs_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

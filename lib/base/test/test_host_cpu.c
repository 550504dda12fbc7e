/* Oracle: proc(5), and shares worked out by hand, those of a run in which the kernel's own sum of
 * all fields was 280 ticks in a second of two cores among them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/host_cpu.h"

static int read_text(const char *text, struct host_cpu *cpu)
{
    char dir[] = "/tmp/sluice-host-cpu-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/stat", dir);
    assert_int_equal(file_write(path, text, strlen(text), NULL), 0);
    int rc = host_cpu_read(dir, cpu);
    file_remove_tree(dir, NULL);
    return rc;
}

static void fields_are_told_apart(void **state)
{
    struct host_cpu cpu;
    (void)state;
    assert_int_equal(read_text("cpu  13235 3714 7844 230284 1159 1 301 16 900 0\n"
                               "cpu0 1 1 1 1 1 1 1 1 1 1\ncpu11 1 1 1 1 1 1 1 1 1 1\nintr 5 cpu2\n",
                               &cpu),
                     0);
    assert_int_equal(cpu.idle, 230284);
    assert_int_equal(cpu.iowait, 1159);
    assert_int_equal(cpu.steal, 16);
    assert_int_equal(cpu.cores, 2);
    assert_true(cpu.read_ns > 0 && cpu.read_ns <= clock_mono_ns());
}

static void what_is_none_is_refused(void **state)
{
    static const char *const bad[] = {"", "cpu  1 2 3 4 5 6 7", "cpu0 1 2 3 4 5 6 7 8 9\n",
                                      "cpu  1 2 3 4 5 6 7 8 9\nintr 1\n"};
    struct host_cpu cpu;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(read_text(bad[i], &cpu), -EBADMSG);
    assert_int_equal(host_cpu_read("/nonexistent", &cpu), -ENOENT);
    assert_int_equal(host_cpu_read("/proc", &cpu), 0);
    assert_true(cpu.cores >= 1);
}

static struct host_cpu after(const struct host_cpu *from, double seconds, double idle,
                             double iowait, double steal)
{
    double hz = (double)sysconf(_SC_CLK_TCK);
    struct host_cpu to = *from;
    to.read_ns += llround(seconds * (double)NS_PER_S);
    to.idle += (uint64_t)llround(idle * hz);
    to.iowait = (uint64_t)llround((double)from->iowait + iowait * hz);
    to.steal += (uint64_t)llround(steal * hz);
    return to;
}

static void shares_are_of_the_time_that_went_by(void **state)
{
    struct host_cpu from = {.idle = 700, .iowait = 50, .cores = 2, .read_ns = 5}, to;
    struct host_cpu_shares shares;
    (void)state;
    /* A second of two cores: 1.75 s idle and 0.03 s of waiting leave 0.22 s, 11 %, whatever the
     * ticks called user time (1.02 s there, which would be 36 %). */
    to = after(&from, 1, 1.75, 0.03, 0);
    assert_int_equal(host_cpu_between(&from, &to, &shares), 0);
    assert_true(fabs(shares.busy_pct - 11) < 1e-6);
    assert_true(fabs(shares.iowait_pct - 1.5) < 1e-6);
    assert_true(fabs(shares.steal_pct - 0) < 1e-6);
    assert_true(fabs(shares.tick_pct * (double)sysconf(_SC_CLK_TCK) - 50) < 1e-6);
    to = after(&from, 2, 1, 0.4, 0.6);
    assert_int_equal(host_cpu_between(&from, &to, &shares), 0);
    assert_true(fabs(shares.busy_pct - 50) < 1e-6);
    assert_true(fabs(shares.iowait_pct - 10) < 1e-6);
    assert_true(fabs(shares.steal_pct - 15) < 1e-6);
}

static void what_is_told_late_is_no_negative_share(void **state)
{
    struct host_cpu from = {.idle = 700, .iowait = 50, .cores = 1, .read_ns = 5}, to;
    struct host_cpu_shares shares;
    (void)state;
    to = after(&from, 1, 1.02, 0, 0);
    assert_int_equal(host_cpu_between(&from, &to, &shares), 0);
    assert_true(fabs(shares.busy_pct - 0) < 1e-6);
    to = after(&from, 1, 0.5, -0.1, 0);
    assert_int_equal(host_cpu_between(&from, &to, &shares), 0);
    assert_true(fabs(shares.busy_pct - 60) < 1e-6);
    assert_true(fabs(shares.iowait_pct - 0) < 1e-6);
    assert_int_equal(host_cpu_between(&from, &from, &shares), -ENODATA);
    assert_true(isnan(shares.busy_pct) && isnan(shares.tick_pct));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_told_apart),
        cmocka_unit_test(what_is_none_is_refused),
        cmocka_unit_test(shares_are_of_the_time_that_went_by),
        cmocka_unit_test(what_is_told_late_is_no_negative_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

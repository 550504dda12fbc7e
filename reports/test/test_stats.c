/* Oracle: values worked out by hand from the definitions in stats.h (nearest rank; population
 * standard deviation; a batch's rows spread evenly over its duration). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "reports/stats.h"

static void close_to(double value, double wanted)
{
    if (!(fabs(value - wanted) < 1e-9))
        fail_msg("%.12g instead of %.12g", value, wanted);
}

/* 1..n, added in a scrambled order. */
static struct samples one_to(unsigned n)
{
    struct samples samples = {0};
    for (unsigned i = 0; i < n; i++)
        samples_add(&samples, (double)(i * 7 % n + 1));
    return samples;
}

static void test_percentiles(void **state)
{
    (void)state;
    /* 1000 samples 1..1000 (7 and 1000 have no common divisor): the value is its own rank. */
    struct samples thousand = one_to(1000);
    close_to(samples_percentile(&thousand, 500), 500);
    close_to(samples_percentile(&thousand, 900), 900);
    close_to(samples_percentile(&thousand, 990), 990);
    close_to(samples_percentile(&thousand, 999), 999);
    close_to(samples_percentile(&thousand, 1000), 1000);
    samples_add(&thousand, 1001); /* ranks ceil(500.5), ceil(990.99), ceil(999.999) */
    close_to(samples_percentile(&thousand, 500), 501);
    close_to(samples_percentile(&thousand, 990), 991);
    close_to(samples_percentile(&thousand, 999), 1000);
    samples_free(&thousand);

    /* 100 samples: p99 is the 99th, not the maximum; 0.99 * 100 in binary is above 99. */
    struct samples hundred = one_to(100);
    close_to(samples_percentile(&hundred, 990), 99);
    close_to(samples_percentile(&hundred, 999), 100);
    close_to(samples_mean(&hundred), 50.5);
    samples_free(&hundred);

    struct samples one = one_to(1);
    close_to(samples_percentile(&one, 1), 1);
    close_to(samples_percentile(&one, 1000), 1);
    samples_free(&one);

    struct samples none = {0};
    assert_true(isnan(samples_percentile(&none, 990)));
    assert_true(isnan(samples_mean(&none)));
}

static void test_misses(void **state)
{
    (void)state;
    /* 99 answers and 1 miss: the p99 is the slowest answer. 98 and 2: it is a miss. */
    struct samples samples = one_to(99);
    samples_miss(&samples);
    close_to(samples_percentile(&samples, 990), 99);
    assert_true(isinf(samples_percentile(&samples, 1000)));
    samples_free(&samples);
    samples = one_to(98);
    samples_miss(&samples);
    samples_miss(&samples);
    assert_true(isinf(samples_percentile(&samples, 990)));
    close_to(samples_percentile(&samples, 500), 50);
    samples_free(&samples);
}

static void test_cv(void **state)
{
    (void)state;
    const double even[] = {5, 5, 5}, four[] = {4, 0, 4, 2}, none[] = {0, 0};
    close_to(stats_cv(even, 3), 0);
    close_to(stats_cv(four, 4), sqrt(2.75) / 2.5); /* deviations 1.5 2.5 1.5 0.5 */
    assert_true(isnan(stats_cv(none, 2)));
    assert_true(isnan(stats_cv(NULL, 0)));
}

static void test_spread(void **state)
{
    (void)state;
    const double three[] = {31, 12, 20}, two[] = {12, 20}, holes[] = {NAN, 3, INFINITY, NAN};
    struct spread spread = stats_spread(three, 3);
    close_to(spread.median, 20); /* not the mean, 21 */
    close_to(spread.min, 12);
    close_to(spread.max, 31);
    spread = stats_spread(two, 2);
    close_to(spread.median, 20); /* not 16, which no run had */
    spread = stats_spread(holes, 4);
    assert_int_equal(spread.n, 2);
    assert_true(isinf(spread.median));
    close_to(spread.min, 3);
    assert_int_equal(stats_spread(NULL, 0).n, 0);
}

static void test_spread_rows(void **state)
{
    (void)state;
    double bins[4] = {0};
    stats_spread_rows(bins, 4, 0.5, 2.5, 8); /* 4 a second */
    close_to(bins[0], 2);
    close_to(bins[1], 4);
    close_to(bins[2], 2);
    close_to(bins[3], 0);
    stats_spread_rows(bins, 4, 3, 3, 1); /* no duration */
    close_to(bins[3], 1);
    stats_spread_rows(bins, 4, -1, 1, 10); /* half of it before the bins */
    close_to(bins[0], 7);
    stats_spread_rows(bins, 4, 3, 7, 8); /* three quarters behind them */
    close_to(bins[3], 3);
    stats_spread_rows(bins, 4, 9, 9, 1);
    stats_spread_rows(bins, 4, -9, -9, 1);
    close_to(bins[0] + bins[1] + bins[2] + bins[3], 16);
}

static void test_slope(void **state)
{
    (void)state;
    static const double x[] = {0, 1, 2, 5}, up[] = {1, 3, 5, 11}, y[] = {0, 3, 1, 4};
    static const double same[] = {2, 2};
    close_to(stats_slope(x, up, 4), 2);
    /* means 2 and 2: (-2 x -2) + (-1 x 1) + (0 x -1) + (3 x 2) = 9; 4 + 1 + 0 + 9 = 14 */
    close_to(stats_slope(x, y, 4), 9.0 / 14);
    assert_true(isnan(stats_slope(same, y, 2)));
    assert_true(isnan(stats_slope(x, y, 0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percentiles), cmocka_unit_test(test_misses),
        cmocka_unit_test(test_cv),          cmocka_unit_test(test_spread),
        cmocka_unit_test(test_spread_rows), cmocka_unit_test(test_slope),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Oracle: tables worked out by hand from the rules in pace.h, and, for random schedules, those
 * rules checked one by one in rational arithmetic (the kth due time is the largest integer t with
 * t * rate <= k * 10^15). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "pace.h"

#define MS NS_PER_MS
#define S  NS_PER_S

static void expect_due(const struct pace *pace, const int64_t *due_ns, const size_t *phase,
                       size_t count)
{
    assert_int_equal(pace_count(pace), count);
    for (size_t n = 0; n < count; n++) {
        size_t found;

        assert_int_equal(pace_due_ns(pace, n, &found), due_ns[n]);
        assert_int_equal(found, phase[n]);
    }
}

/* 4/s for 1 s, 2/s for 1.2 s (0, 0.5 and 1.0 s into it: 3), a pause of 1 s, 1.5/s for 2 s. */
static void add_phases(struct pace *pace)
{
    assert_int_equal(pace_add(pace, "a", 1 * S, 1, NULL), 0);
    assert_int_equal(pace_add(pace, "b", 1200 * MS, 0.5, NULL), 0);
    assert_int_equal(pace_add(pace, "pause", 1 * S, 0, NULL), 0);
    assert_int_equal(pace_add(pace, "c", 2 * S, 0.375, NULL), 0);
}

static void paced_by_hand(void **state)
{
    static const int64_t due_ns[] = {0,         250 * MS,  500 * MS,  750 * MS,   1000 * MS,
                                     1500 * MS, 2000 * MS, 3200 * MS, 3866666666, 4533333333};
    static const size_t phase[] = {0, 0, 0, 0, 1, 1, 1, 3, 3, 3};
    struct pace pace;

    (void)state;
    assert_int_equal(pace_init(&pace, 4, PACING_PACED, NULL), 0);
    add_phases(&pace);
    expect_due(&pace, due_ns, phase, 10);
    assert_int_equal(pace_end_ns(&pace), 5200 * MS);
    assert_int_equal(pace.phases[2].count, 0);
}

static void burst_by_hand(void **state)
{
    static const int64_t due_ns[] = {0,         0,         0,         0,         1000 * MS,
                                     1000 * MS, 2000 * MS, 3200 * MS, 3200 * MS, 4200 * MS};
    static const size_t phase[] = {0, 0, 0, 0, 1, 1, 1, 3, 3, 3};
    struct pace pace;

    (void)state;
    assert_int_equal(pace_init(&pace, 4, PACING_BURST, NULL), 0);
    add_phases(&pace);
    expect_due(&pace, due_ns, phase, 10);
}

/* The article's load: 250/s for 30 s, 500/s for 300 s, 250/s for 30 s. */
static void article(void **state)
{
    struct pace pace;
    size_t phase;

    (void)state;
    assert_int_equal(pace_init(&pace, 500, PACING_PACED, NULL), 0);
    assert_int_equal(pace_add_text(&pace, "warm-up:30s:0.5", NULL), 0);
    assert_int_equal(pace_add_text(&pace, "steady:5m:1", NULL), 0);
    assert_int_equal(pace_add_text(&pace, "cool-down:30s:0.5", NULL), 0);
    assert_int_equal(pace_count(&pace), 7500 + 150000 + 7500);
    assert_int_equal(pace_due_ns(&pace, 7499, &phase), 29996 * MS);
    assert_int_equal(phase, 0);
    assert_int_equal(pace_due_ns(&pace, 7500, &phase), 30 * S);
    assert_int_equal(phase, 1);
    assert_int_equal(pace_due_ns(&pace, 7500 + 149999, &phase), 329998 * MS);
    assert_int_equal(pace_due_ns(&pace, 157500, &phase), 330 * S);
    assert_int_equal(phase, 2);
    assert_string_equal(pace.phases[2].name, "cool-down");
}

/* A year at a third of a million a second: no drift at the far end. 333333.333333/s is what a rate
 * of 1e6/3 becomes in millionths. */
static void huge(void **state)
{
    const int64_t rate_micro = 333333333333;
    struct pace pace;
    uint64_t count, n;

    (void)state;
    assert_int_equal(pace_init(&pace, 1e6 / 3, PACING_PACED, NULL), 0);
    assert_int_equal(pace_add(&pace, "year", PACE_DURATION_MAX_NS, 1, NULL), 0);
    assert_int_equal(pace.phases[0].rate_micro, rate_micro);
    // 31,622,400 s * 333,333.333333/s = 10,540,799,999,989.4592
    count = pace_count(&pace);
    assert_int_equal(count, 10540799999990);
    // Request k = 333,333,333,333 * m is due after exactly m * 10^6 s.
    n = (uint64_t)rate_micro * 31;
    assert_int_equal(pace_due_ns(&pace, n, NULL), 31000000 * S);
    assert_int_equal(pace_due_ns(&pace, n + 1, NULL), 31000000 * S + 3000);
    assert_true(pace_due_ns(&pace, count - 1, NULL) < PACE_DURATION_MAX_NS);
}

__extension__ typedef __int128 wide;

static void check_random(const struct pace *pace, unsigned seed)
{
    uint64_t n = 0;

    for (size_t i = 0; i < pace->phase_count; i++) {
        const struct pace_phase *phase = &pace->phases[i];
        const wide scale = (wide)1000000000 * 1000000;
        int64_t duration_ns = phase->end_ns - phase->begin_ns;
        bool good = true;

        for (uint64_t k = 0; k < phase->count; k++, n++) {
            size_t found;
            int64_t t = pace_due_ns(pace, n, &found) - phase->begin_ns;

            good &= found == i && (wide)t * phase->rate_micro <= (wide)k * scale &&
                    (wide)(t + 1) * phase->rate_micro > (wide)k * scale && t < duration_ns;
        }
        // One more would not lie before the end.
        good &= phase->rate_micro == 0 ||
                (wide)phase->count * scale >= (wide)duration_ns * phase->rate_micro;
        if (!good)
            fail_msg("seed %u, phase %zu (%lld ns at %lld micro)", seed, i, (long long)duration_ns,
                     (long long)phase->rate_micro);
    }
    assert_int_equal(n, pace_count(pace));
}

static void random_schedules(void **state)
{
    unsigned first = (unsigned)time(NULL);

    (void)state;
    for (unsigned round = 0; round < 200; round++) {
        unsigned seed = first + round, random = seed;
        struct pace pace;

        assert_int_equal(pace_init(&pace, (rand_r(&random) % 200000) / 1000.0, PACING_PACED, NULL),
                         0);
        for (int i = 0; i < 4; i++) {
            char name[16];

            snprintf(name, sizeof(name), "p%d", i);
            assert_int_equal(pace_add(&pace, name, 1 + rand_r(&random), // up to 2.1 s
                                      (rand_r(&random) % 3000) / 1000.0, NULL),
                             0);
        }
        check_random(&pace, seed);
    }
}

/* A burst holds what the paced schedule would have due in that second. */
static void burst_is_paced_by_second(void **state)
{
    struct pace paced, burst;

    (void)state;
    assert_int_equal(pace_init(&paced, 7.3, PACING_PACED, NULL), 0);
    assert_int_equal(pace_init(&burst, 7.3, PACING_BURST, NULL), 0);
    assert_int_equal(pace_add(&paced, "x", 10500 * MS, 1, NULL), 0);
    assert_int_equal(pace_add(&burst, "x", 10500 * MS, 1, NULL), 0);
    assert_int_equal(pace_count(&paced), 77); // ceil(76.65)
    assert_int_equal(pace_count(&burst), 77);
    for (uint64_t n = 0; n < 77; n++)
        assert_int_equal(pace_due_ns(&burst, n, NULL), pace_due_ns(&paced, n, NULL) / S * S);
}

static void refuses(void **state)
{
    static const struct {
        const char *text;
        const char *names; /* what the sentence must name */
    } bad[] = {
        {"steady", "name:duration:rate"},
        {"steady:1s", "name:duration:rate"},
        {":1s:1", "letters"},
        {"a b:1s:1", "letters"},
        {"a\tb:1s:1", "letters"},
        {"steady:1s:1", "twice"},
        {"x:0s:1", "longer than 0"},
        {"x:-1s:1", "duration"},
        {"x:10:1", "duration"},
        {"x:9000h:1", "a year"},
        {"x:1s:", "rate"},
        {"x:1s:-1", "rate"},
        {"x:1s:nan", "rate"},
        {"x:1s:1x", "rate"},
        {"x:1s:1:1", "rate"},
        {"x:1s:1e9", "requests a second"},
    };
    struct pace pace;
    struct err err;

    (void)state;
    assert_int_equal(pace_init(&pace, -1, PACING_PACED, &err), -EINVAL);
    assert_int_equal(pace_init(&pace, NAN, PACING_PACED, &err), -EINVAL);
    assert_int_equal(pace_init(&pace, 1e9, PACING_PACED, &err), -EINVAL);
    assert_int_equal(pace_init(&pace, 500, PACING_PACED, &err), 0);
    assert_int_equal(pace_add_text(&pace, "steady:1s:1", &err), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        memset(&err, 0, sizeof(err));
        if (pace_add_text(&pace, bad[i].text, &err) != -EINVAL || !strstr(err.text, bad[i].names))
            fail_msg("\"%s\" gave \"%s\", which should name \"%s\"", bad[i].text, err.text,
                     bad[i].names);
    }
    assert_int_equal(pace.phase_count, 1);
    for (int i = 1; i < PACE_PHASES_MAX; i++) {
        char name[16];

        snprintf(name, sizeof(name), "p%d", i);
        assert_int_equal(pace_add(&pace, name, S, 1, &err), 0);
    }
    assert_int_equal(pace_add(&pace, "one-more", S, 1, &err), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paced_by_hand),    cmocka_unit_test(burst_by_hand),
        cmocka_unit_test(article),          cmocka_unit_test(huge),
        cmocka_unit_test(random_schedules), cmocka_unit_test(burst_is_paced_by_second),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Oracle: a source made here, that counts who is in its functions and gives no task, so that no
 * main DB is ever asked. No time is judged; what never comes is ended by the test's limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "worker/drain.h"

enum { LANES = 8 };

const struct sink_driver *const sink_drivers[] = {NULL}; /* no other is needed */

struct fake_lane {
    struct sink_lane base;
    unsigned number;
};

/* What the fake source saw. */
static struct {
    atomic_int inside, inside_most; /* lanes in fetch */
    atomic_int fetches[LANES], unhurried[LANES], keeps[LANES];
    atomic_int closed;
    atomic_int failing; /* errno that fetch gives, negative; 0: none */
    atomic_bool hangs;  /* fetch does not come back */
    atomic_int keep_says;
} seen;

static int fake_lane_open(struct sink *sink, unsigned number, struct sink_lane **out,
                          struct err *err)
{
    (void)sink;
    (void)err;
    struct fake_lane *lane = xcalloc(1, sizeof(*lane));
    lane->number = number;
    *out = &lane->base;
    return 0;
}

static int fake_fetch(struct sink_lane *base, unsigned max, int wait_ms, struct sink_batch *batch)
{
    struct fake_lane *lane = (struct fake_lane *)base;
    int inside = atomic_fetch_add(&seen.inside, 1) + 1;
    if (inside > atomic_load(&seen.inside_most)) {
        atomic_store(&seen.inside_most, inside);
    }
    (void)max;
    *batch = (struct sink_batch){0};
    atomic_fetch_add(&seen.unhurried[lane->number], wait_ms > 0);
    do {
        clock_sleep_ns(NS_PER_MS);
    } while (atomic_load(&seen.hangs));
    atomic_fetch_sub(&seen.inside, 1);
    atomic_fetch_add(&seen.fetches[lane->number], 1);
    return atomic_load(&seen.failing);
}

static int fake_keep(struct sink_lane *base)
{
    atomic_fetch_add(&seen.keeps[((struct fake_lane *)base)->number], 1);
    return atomic_load(&seen.keep_says);
}

static void fake_lane_close(struct sink_lane *base)
{
    atomic_fetch_add(&seen.closed, 1);
    free(base);
}

static const struct sink_driver fake = {
    .name = "fake",
    .flags = SINK_DRAINS,
    .lane_open = fake_lane_open,
    .fetch = fake_fetch,
    .keep = fake_keep,
    .ack = sink_no_ack,
    .release = sink_no_release,
    .lane_close = fake_lane_close,
};

static struct drain drain;

static int setup(void **state)
{
    static const struct drain_settings settings = {.lanes = LANES,
                                                   .batch_max = 10,
                                                   .batch_wait_ms = 20,
                                                   .back_off_max_ns = 50 * NS_PER_MS,
                                                   .main_url = "postgresql://nowhere.invalid/x"};
    (void)state;
    drain = (struct drain){.stop_fd = -1};
    memset(&seen, 0, sizeof(seen));
    struct err err = {0};
    assert_int_equal(drain_start(&drain, &settings, &fake, NULL, NULL, &err), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    atomic_store(&seen.hangs, false);
    drain_stop(&drain);
    assert_true(drain_join(&drain, clock_mono_ns() + 60 * NS_PER_S));
    assert_int_equal(drain_end(&drain, NULL), 0);
    assert_int_equal(seen.closed, LANES);
    return 0;
}

static void wait_until_at_least(atomic_int *figure, int least)
{
    while (atomic_load(figure) < least) {
        clock_sleep_ns(NS_PER_MS);
    }
}

static void one_lane_at_a_time_fetches(void **state)
{
    (void)state;
    for (int i = 0; i < LANES; i++) {
        wait_until_at_least(&seen.fetches[i], 20);
    }
    assert_int_equal(seen.inside_most, 1);
    for (int i = 0; i < LANES; i++) { /* what it held before, at once; then patiently */
        int fetched = seen.fetches[i];
        assert_true(seen.unhurried[i] >= fetched - 1);
    }
}

/* A lane hangs in its sink. The others keep their connections meanwhile, as often as they are asked
 * to, and go home when they are told. */
static void others_keep_and_stop_while_one_hangs(void **state)
{
    (void)state;
    atomic_store(&seen.keep_says, 1);
    for (int i = 0; i < LANES; i++) {
        wait_until_at_least(&seen.fetches[i], 1);
    }
    atomic_store(&seen.hangs, true);
    wait_until_at_least(&seen.inside, 1);
    int kept[LANES];
    for (int i = 0; i < LANES; i++) {
        kept[i] = atomic_load(&seen.keeps[i]);
    }
    for (int busy = 0; busy < LANES - 1;) {
        busy = 0;
        for (int i = 0; i < LANES; i++) {
            busy += atomic_load(&seen.keeps[i]) >= kept[i] + 5;
        }
        clock_sleep_ns(NS_PER_MS);
    }
    assert_int_equal(seen.closed, 0);
    drain_stop(&drain);
    wait_until_at_least(&seen.closed, LANES - 1);
    assert_int_equal(seen.inside, 1);
    assert_false(drain_join(&drain, clock_mono_ns()));
}

/* A sink that is away: all lanes notice, none holds the turn while it backs off, and connections
 * are asked for outside of it. */
static void errors_do_not_hold_the_turn(void **state)
{
    (void)state;
    atomic_store(&seen.failing, -ENOTCONN);
    atomic_store(&seen.keep_says, -ENOTCONN);
    for (int i = 0; i < LANES; i++) {
        wait_until_at_least(&seen.keeps[i], 1);
        wait_until_at_least(&seen.fetches[i], 3);
    }
    assert_int_equal(seen.inside_most, 1);
    atomic_store(&seen.failing, 0);
    for (int i = 0; i < LANES; i++) {
        wait_until_at_least(&seen.fetches[i], 50);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_lane_at_a_time_fetches, setup, teardown),
        cmocka_unit_test_setup_teardown(others_keep_and_stop_while_one_hangs, setup, teardown),
        cmocka_unit_test_setup_teardown(errors_do_not_hold_the_turn, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Oracle: arithmetic. A pause lies between a half and the whole of 50 ms times 2^n, the maximum at
 * most. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "worker/pause.h"

static void pauses_grow_with_jitter(void **state)
{
    (void)state;
    bool differ = false;
    for (unsigned seed = 1; seed < 200; seed++) {
        struct pause pause = {.max_ns = NS_PER_S, .seed = seed};
        struct pause twin = {.max_ns = NS_PER_S, .seed = seed + 1};
        int64_t whole_ns = 50 * NS_PER_MS;
        for (int i = 0; i < 10; i++) {
            int64_t pause_ns = pause_next_ns(&pause);
            differ = differ || pause_ns != pause_next_ns(&twin);
            assert_true(pause_ns >= whole_ns / 2 && pause_ns <= whole_ns);
            whole_ns = 2 * whole_ns < NS_PER_S ? 2 * whole_ns : NS_PER_S;
        }
        pause_reset(&pause);
        assert_true(pause_next_ns(&pause) <= 50 * NS_PER_MS);
    }
    assert_true(differ);
}

static void a_small_maximum_holds(void **state)
{
    (void)state;
    struct pause pause = {.max_ns = NS_PER_MS, .seed = 1};
    for (int i = 0; i < 100; i++) {
        int64_t pause_ns = pause_next_ns(&pause);
        assert_true(pause_ns > 0 && pause_ns <= NS_PER_MS);
    }
}

static void a_stop_ends_the_sleep(void **state)
{
    (void)state;
    int fd = eventfd(1, 0);
    assert_true(pause_sleep(fd, 3600 * NS_PER_S));
    close(fd);
    fd = eventfd(0, 0);
    assert_false(pause_sleep(fd, NS_PER_MS));
    assert_false(pause_sleep(fd, -NS_PER_S));
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pauses_grow_with_jitter),
                                       cmocka_unit_test(a_small_maximum_holds),
                                       cmocka_unit_test(a_stop_ends_the_sleep)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

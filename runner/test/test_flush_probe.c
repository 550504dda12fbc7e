/* Oracle: nearest rank by hand. A probe of a real disk is only checked for what must be so. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "flush_probe.h"

static void test_ranks(void **state)
{
    (void)state;
    struct flush_probe probe;
    int64_t four[] = {4000, 1000, 3000, 2000}; /* p50: rank 2; p99: rank ceil(3.96) */
    flush_probe_rank(four, 4, &probe);
    assert_int_equal(probe.n, 4);
    assert_true(probe.p50_us == 2 && probe.p99_us == 4 && probe.max_us == 4);
    int64_t many[200]; /* 1..200 us, downwards: p50 rank 100, p99 rank 198 */
    for (int i = 0; i < 200; i++)
        many[i] = (200 - i) * 1000;
    flush_probe_rank(many, 200, &probe);
    assert_true(probe.p50_us == 100 && probe.p99_us == 198 && probe.max_us == 200);
}

static void test_here(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    char *dir = xasprintf("%s/sluice-flush-XXXXXX", base ? base : "/tmp");
    struct flush_probe probe = {0};
    struct err err = {0};
    assert_non_null(mkdtemp(dir));
    assert_int_equal(flush_probe(dir, 0, &probe, &err), 0);
    assert_int_equal(probe.n, 1); /* at least once */
    assert_int_equal(flush_probe(dir, 60 * NS_PER_S, &probe, &err), 0);
    assert_int_equal(probe.n, FLUSH_PROBE_MAX);
    assert_true(probe.p50_us > 0 && probe.p50_us <= probe.p99_us && probe.p99_us <= probe.max_us);
    assert_int_equal(rmdir(dir), 0); /* nothing is left */
    assert_int_equal(flush_probe(dir, NS_PER_S, &probe, &err), -ENOENT);
    free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks), cmocka_unit_test(test_here)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

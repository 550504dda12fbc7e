/*
 * Oracle: the test's own count of calls to malloc and its kin. Each of them fails once, in its
 * turn: the call that needed it says so and names no other reason, the next try succeeds, nothing
 * that was acknowledged is lost or comes twice, and when all is closed, all is freed.
 *
 * The linker puts these wrappers before the library's calls (--wrap); the simulator's go past them.
 */
#include "bench.h"
#include "one_test.h"

#include "wal/probe.h"
#include "wal/wal_group.h"

void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
char *__real_strdup(const char *);
void __real_free(void *);
void *__wrap_malloc(size_t);
void *__wrap_calloc(size_t, size_t);
void *__wrap_realloc(void *, size_t);
char *__wrap_strdup(const char *);
void __wrap_free(void *);

static unsigned countdown; /* to the call that fails; 0: none does */
static bool has_failed;
static long live; /* allocations not freed */

static bool fails(void)
{
    if (countdown == 0 || --countdown > 0) {
        return false;
    }
    has_failed = true;
    return true;
}

void *__wrap_malloc(size_t size)
{
    void *memory = fails() ? NULL : __real_malloc(size);
    live += memory != NULL;
    return memory;
}

void *__wrap_calloc(size_t count, size_t size)
{
    void *memory = fails() ? NULL : __real_calloc(count, size);
    live += memory != NULL;
    return memory;
}

void *__wrap_realloc(void *old, size_t size)
{
    void *memory = fails() ? NULL : __real_realloc(old, size);
    live += memory != NULL && old == NULL;
    return memory;
}

char *__wrap_strdup(const char *text)
{
    char *copy = fails() ? NULL : __real_strdup(text);
    live += copy != NULL;
    return copy;
}

void __wrap_free(void *memory)
{
    live -= memory != NULL;
    __real_free(memory);
}

struct life {
    struct bench *bench;
    struct wal_probe *probe;
    uint64_t last; /* acknowledged */
};

/* A call that fails must be the one whose memory was refused, or, for want of a next segment, a
 * refusal that ends by itself. */
static void check_failure(struct life *life, int result)
{
    assert_true(has_failed);
    assert_true(result == -ENOMEM || result == -ENOSPC);
    life->bench->sim->now_ns += 200000000;
    if (life->bench->wal != NULL) {
        bench_prepare(life->bench);
    }
}

static void open_writer(struct life *life)
{
    int result = bench_try_open(life->bench);
    if (result < 0) {
        assert_int_equal(result, -ENOMEM);
        assert_true(life->bench->err.text[0] != '\0');
        check_failure(life, result);
        bench_open(life->bench);
    }
}

static void open_reader(struct life *life)
{
    struct bench *bench = life->bench;
    int result = wal_reader_open(DIR_NAME, &bench->reader_options, &bench->reader, &bench->err);
    if (result < 0) {
        bench->reader = NULL;
        check_failure(life, result);
        bench_open_reader(bench);
    }
}

static void fill(struct life *life, uint64_t count, size_t size)
{
    struct bench *bench = life->bench;
    for (uint64_t n = life->last + 1; n <= life->last + count; n++) {
        int result = bench_append(bench, n, size);
        if (result < 0) {
            check_failure(life, result);
            assert_int_equal(bench_append(bench, n, size), 0);
        }
        result = wal_flush(bench->wal, NULL);
        if (result < 0) {
            check_failure(life, result);
            assert_int_equal(bench_append(bench, n, size), 0);
            assert_int_equal(wal_flush(bench->wal, NULL), 0);
        }
        result = wal_prepare(bench->wal);
        if (result < 0) {
            check_failure(life, result);
        }
    }
    life->last += count;
}

static void expect(struct life *life, uint64_t n, size_t size)
{
    struct wal_record record;
    unsigned char bytes[8192];
    int result = wal_reader_next(life->bench->reader, &record);
    if (result < 0) {
        check_failure(life, result);
        result = wal_reader_next(life->bench->reader, &record);
    }
    assert_int_equal(result, 1);
    bench_payload(bytes, size, n);
    assert_int_equal(record.lsn, n);
    assert_int_equal(record.count, size);
    assert_memory_equal(record.bytes, bytes, size);
}

static void done(struct life *life, uint64_t n)
{
    int result = wal_reader_done(life->bench->reader, n, n);
    if (result < 0) {
        check_failure(life, result);
        assert_int_equal(wal_reader_done(life->bench->reader, n, n), 0);
    }
}

/* Every second one is done, so that the list of ranges grows; the others are handed back. */
static void read_in_pieces(struct life *life, uint64_t first, size_t size)
{
    struct bench *bench = life->bench;
    for (uint64_t n = first; n <= life->last; n++) {
        expect(life, n, size);
        if (n % 2 == 0) {
            done(life, n);
        }
    }
    int result = wal_reader_release(bench->reader, first, life->last);
    if (result < 0) {
        check_failure(life, result);
        assert_int_equal(wal_reader_release(bench->reader, first, life->last), 0);
    }
    for (uint64_t n = first; n <= life->last; n++) {
        if (n % 2 == 1) {
            expect(life, n, size);
            done(life, n);
        }
    }
    bench_expect_none(bench);
}

static void look(struct life *life, bool scanned)
{
    struct bench *bench = life->bench;
    struct wal_probe *probe;
    struct wal_probe_stats stats;
    int result = wal_probe_open(DIR_NAME, &bench->sim->vfs, &probe, &bench->err);
    if (result < 0) {
        check_failure(life, result);
        assert_int_equal(wal_probe_open(DIR_NAME, &bench->sim->vfs, &probe, &bench->err), 0);
    }
    result = wal_probe_read(probe, &stats, &bench->err);
    if (result < 0) {
        check_failure(life, result);
        assert_int_equal(wal_probe_read(probe, &stats, &bench->err), 0);
    }
    assert_int_equal(stats.scanned, scanned);
    assert_int_equal(stats.durable_lsn, life->last);
    wal_probe_close(probe);
}

static struct life life_new(uint64_t seed)
{
    has_failed = false;
    live = 0;
    struct life life = {.bench = bench_new(seed)};
    live = 0; /* the bench is not the library's */
    return life;
}

static void life_end(struct life *life)
{
    countdown = 0;
    bench_close_reader(life->bench);
    bench_close(life->bench);
    assert_int_equal(live, 0);
    bench_free(life->bench);
}

/* Many small segments, so that lists of them grow; each opened anew with a tail to copy. */
static void many_segments(unsigned at)
{
    struct life life = life_new(1);
    struct bench *bench = life.bench;
    bench->options.segment_bytes = 8192;
    bench->options.record_max = 3000;
    bench->options.batch_max_bytes = 3000;
    countdown = at;
    open_writer(&life);
    fill(&life, 66, 2900);
    bench_close(bench);
    open_writer(&life);
    fill(&life, 4, 2900);
    open_reader(&life);
    read_in_pieces(&life, 1, 2900);
    look(&life, false);
    bench_kill(bench);
    bench->sim->boot_id[0] ^= 1u;
    look(&life, true);
    open_writer(&life);
    open_reader(&life);
    fill(&life, 3, 2900);
    read_in_pieces(&life, 71, 2900);
    life_end(&life);
}

static void each_allocation_fails_once(void **state)
{
    (void)state;
    unsigned at = 0;
    do {
        many_segments(++at);
    } while (has_failed);
    assert_true(at > 100); /* else the wrappers were not in the way */
}

/* The queue grows while records wait in it: none of them may go. */
static void the_queue_cannot_grow(void **state)
{
    (void)state;
    unsigned at = 0;
    do {
        struct life life = life_new(2);
        struct bench *bench = life.bench;
        uint64_t refused = 0;
        bench->options.segment_bytes = 4u << 20;
        bench_open(bench);
        bench_prepare(bench);
        countdown = ++at;
        for (uint64_t n = 1; n <= 300; n++) {
            int result = bench_append(bench, n, 8000);
            if (result < 0) {
                assert_int_equal(result, -ENOMEM);
                refused++;
                assert_int_equal(bench_append(bench, n, 8000), 0);
            }
        }
        countdown = 0;
        assert_int_equal(refused, has_failed);
        uint64_t durable = 0;
        while (wal_flush(bench->wal, &durable) > 0) {
        }
        assert_int_equal(durable, 300);
        bench_expect_all(bench, 1, 300, 8000);
        life_end(&life);
    } while (has_failed);
    assert_true(at > 2);
}

static void count_answer(void *arg, int result, uint64_t lsn)
{
    (void)lsn;
    *(int *)arg = result;
}

static void the_group_without_memory(void **state)
{
    (void)state;
    struct life life = life_new(3);
    struct wal_group *group;
    int answer = 1;
    bench_open(life.bench);
    countdown = 1;
    assert_int_equal(wal_group_start(life.bench->wal, NULL, &group), -ENOMEM);
    assert_int_equal(wal_group_start(life.bench->wal, NULL, &group), 0);
    countdown = 1; /* the flusher asks for none: nothing is queued */
    assert_int_equal(wal_group_submit(group, "x", 1, count_answer, &answer), -ENOMEM);
    assert_int_equal(wal_group_submit(group, "x", 1, count_answer, &answer), 0);
    wal_group_stop(group);
    assert_int_equal(answer, 0);
    life_end(&life);
}

int main(int count, char **arguments)
{
    one_test(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_fails_once),
        cmocka_unit_test(the_queue_cannot_grow),
        cmocka_unit_test(the_group_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Oracle: the order of the calls the simulated disk saw, and a power cut that keeps nothing it need
 * not keep. Failing calls: a flush that fails is final, no room is not.
 */
#include "bench.h"
#include "one_test.h"

static void fail_next(struct bench *bench, unsigned calls, int code)
{
    bench->sim->fail_calls = calls;
    bench->sim->fail_after = 0;
    bench->sim->fail_count = 1;
    bench->sim->fail_code = code;
}

static void a_failed_flush_is_final(void **state)
{
    (void)state;
    const unsigned calls[] = {SIM_SYNC, SIM_WRITE};
    for (int i = 0; i < 2; i++) {
        struct bench *bench = bench_new(200);
        uint64_t durable;
        bench_open(bench);
        bench_fill(bench, 1, 2, 100);
        assert_int_equal(bench_append(bench, 3, 100), 0);
        fail_next(bench, calls[i], -EIO);
        assert_int_equal(wal_flush(bench->wal, &durable), -EIO);
        assert_int_equal(durable, 2);
        /* The disk would work again: the log does not. */
        assert_int_equal(bench_append(bench, 4, 100), -EIO);
        assert_int_equal(wal_flush(bench->wal, &durable), -EIO);
        assert_int_equal(wal_prepare(bench->wal), -EIO);
        assert_int_equal(wal_prepare_due_ns(bench->wal), -1);
        assert_non_null(strstr(wal_problem(bench->wal), "segment 1"));
        assert_int_equal(wal_close(bench->wal), -EIO);
        bench->wal = NULL;
        bench_open(bench);
        bench_fill(bench, calls[i] == SIM_SYNC ? 4 : 3, 1, 100);
        bench_free(bench);
    }
}

/* The cache shows the batch, the disk lacks it: what recovery reports durable must outlive power.
 */
static void recovery_trusts_the_disk(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct bench *bench = bench_new(300 + seed);
        struct wal_stats stats;
        bench_open(bench);
        bench_fill(bench, 1, 2, 100);
        for (uint64_t n = 3; n <= 10; n++) {
            assert_int_equal(bench_append(bench, n, 700), 0);
        }
        fail_next(bench, SIM_SYNC, -EIO);
        assert_int_equal(wal_flush(bench->wal, NULL), -EIO);
        bench->sim->fail_calls = 0;
        bench_kill(bench);
        bench_open(bench);
        wal_stats(bench->wal, &stats);
        assert_int_equal(stats.durable_lsn, 10);
        bench_power_cut(bench);
        bench_open(bench);
        wal_stats(bench->wal, &stats);
        assert_int_equal(stats.durable_lsn, 10);
        bench_open_reader(bench);
        for (uint64_t n = 1; n <= 10; n++) {
            bench_expect(bench, n, n <= 2 ? 100 : 700);
        }
        bench_free(bench);
    }
}

/* The same with a disk too full for a fresh segment. */
static void recovery_trusts_the_disk_even_when_it_is_full(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct bench *bench = bench_new(400 + seed);
        struct wal_stats stats;
        bench_open(bench);
        bench_fill(bench, 1, 2, 100);
        assert_int_equal(bench_append(bench, 3, 5000), 0);
        fail_next(bench, SIM_SYNC, -EIO);
        assert_int_equal(wal_flush(bench->wal, NULL), -EIO);
        bench->sim->fail_calls = 0;
        bench_kill(bench);
        bench->sim->room_bytes = 1;
        for (int i = 0; i < 2; i++) {
            bench_open(bench);
            wal_stats(bench->wal, &stats);
            assert_int_equal(stats.durable_lsn, 3);
            assert_int_equal(bench_append(bench, 4, 100), -ENOSPC);
            bench_power_cut(bench);
        }
        bench->sim->room_bytes = 0;
        bench_open(bench);
        bench_open_reader(bench);
        bench_expect(bench, 1, 100);
        bench_expect(bench, 2, 100);
        bench_expect(bench, 3, 5000);
        bench_fill(bench, 4, 1, 100);
        bench_free(bench);
    }
}

static void no_room_to_prepare_refuses_and_resumes(void **state)
{
    (void)state;
    for (int allocate = 0; allocate < 2; allocate++) {
        struct bench *bench = bench_new(500);
        uint64_t taken = 0;
        int result = 0;
        bench->sim->no_allocate = allocate == 0;
        bench_open(bench);
        bench->sim->room_bytes = 90000;
        while (taken < 1000) {
            result = bench_append(bench, taken + 1, 600);
            if (result == 0) {
                result = wal_flush(bench->wal, NULL);
            }
            if (result < 0) {
                break;
            }
            taken++;
        }
        assert_int_equal(result, -ENOSPC);
        assert_int_equal(wal_room(bench->wal, 600), -ENOSPC);
        assert_true(wal_problem(bench->wal)[0] != '\0');
        /* Nothing spins meanwhile. */
        int64_t due_ns = wal_prepare_due_ns(bench->wal);
        assert_true(due_ns > 0 && due_ns <= 100000000);
        assert_int_equal(wal_prepare(bench->wal), 0);
        bench->sim->now_ns += due_ns;
        do {
            result = wal_prepare(bench->wal);
        } while (result > 0);
        assert_int_equal(result, -ENOSPC);
        bench->sim->room_bytes = 0;
        bench->sim->now_ns += 100000000;
        bench_prepare(bench);
        assert_int_equal(wal_room(bench->wal, 600), 0);
        bench_fill(bench, taken + 1, 60, 600);
        bench_kill(bench);
        bench_open(bench);
        bench_expect_all(bench, 1, taken + 60, 600);
        bench_free(bench);
    }
}

/* A record that fits into no segment but a fresh one, while the current one is nearly empty. */
static void no_room_for_a_large_record_ends_too(void **state)
{
    (void)state;
    static const unsigned char large[28500];
    struct bench *bench = bench_new(550);
    bench->options.record_max = sizeof large;
    bench_open(bench);
    bench_fill(bench, 1, 1, 100);
    bench->sim->room_bytes = 1;
    assert_int_equal(wal_append(bench->wal, large, sizeof large, NULL), 0);
    assert_int_equal(wal_flush(bench->wal, NULL), -ENOSPC);
    assert_int_equal(wal_room(bench->wal, sizeof large), -ENOSPC);
    bench->sim->room_bytes = 0;
    bench->sim->now_ns += 100000000;
    bench_prepare(bench);
    assert_int_equal(wal_append(bench->wal, large, sizeof large, NULL), 0);
    assert_int_equal(wal_flush(bench->wal, NULL), 0);
    bench_free(bench);
}

/* What a write without room left behind is never taken for a record, nor its number wasted. */
static void a_write_without_room_is_surely_not_stored(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct bench *bench = bench_new(600 + seed);
        bench_open(bench);
        bench_fill(bench, 1, 2, 100);
        for (uint64_t n = 3; n <= 8; n++) {
            assert_int_equal(bench_append(bench, n + 1000, 900), 0);
        }
        bench->sim->short_writes = true;
        bench->sim->fail_calls = SIM_WRITE;
        bench->sim->fail_after = (unsigned)(seed % 3);
        bench->sim->fail_count = 1;
        bench->sim->fail_code = -ENOSPC;
        int result = wal_flush(bench->wal, NULL);
        bench->sim->fail_calls = 0;
        bench->sim->short_writes = false;
        if (result == 0) {
            bench_free(bench); /* it was written before its turn to fail came */
            continue;
        }
        assert_int_equal(result, -ENOSPC);
        if (seed % 2 == 0) {
            bench_fill(bench, 3, 2, 100);
        }
        bench_kill(bench);
        bench_open(bench);
        bench_expect_all(bench, 1, seed % 2 == 0 ? 4 : 2, 100);
        bench_free(bench);
    }
}

static ssize_t (*padding_inner)(const struct wal_vfs *, int, const struct iovec *, int, uint64_t);

/* Takes header and records, and has no room for the zeros behind them. */
static ssize_t no_room_for_padding(const struct wal_vfs *vfs, int file, const struct iovec *parts,
                                   int count, uint64_t offset)
{
    return count > 1 ? padding_inner(vfs, file, parts, count - 1, offset) : -ENOSPC;
}

/* All of the batch was written: that it is surely not stored would be a lie. */
static void only_the_padding_finds_no_room(void **state)
{
    (void)state;
    struct bench *bench = bench_new(650);
    struct wal_stats stats;
    uint64_t durable;
    bench_open(bench);
    bench_fill(bench, 1, 2, 100);
    assert_int_equal(bench_append(bench, 3, 100), 0);
    padding_inner = bench->sim->vfs.pwritev;
    bench->sim->vfs.pwritev = no_room_for_padding;
    assert_int_equal(wal_flush(bench->wal, &durable), -EIO);
    assert_int_equal(durable, 2);
    bench->sim->vfs.pwritev = padding_inner;
    bench_kill(bench);
    bench_open(bench);
    wal_stats(bench->wal, &stats);
    assert_int_equal(stats.durable_lsn, 3);
    bench_expect_all(bench, 1, 3, 100);
    bench_free(bench);
}

static void short_and_interrupted_calls(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct bench *bench = bench_new(700 + seed);
        bench->sim->short_writes = true;
        bench_open(bench);
        bench_fill(bench, 1, 100, 700);
        bench_expect_all(bench, 1, 100, 700);
        bench_kill(bench);
        bench_open(bench);
        bench_expect_all(bench, 1, 100, 700);
        bench_free(bench);
    }
}

/* Each batch is on disk when it is reported: a power cut at once keeps it. */
static void nothing_is_reported_before_it_is_on_disk(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct bench *bench = bench_new(800 + seed);
        uint64_t last = 0;
        for (int life = 0; life < 4; life++) {
            bench_open(bench);
            uint64_t more = 1 + sim_random(bench->sim, 80);
            bench_fill(bench, last + 1, more, 600);
            last += more;
            for (uint64_t i = sim_random(bench->sim, 30); i > 0; i--) {
                wal_prepare(bench->wal);
            }
            bench_power_cut(bench);
        }
        bench_open(bench);
        bench_expect_all(bench, 1, last, 600);
        bench_free(bench);
    }
}

/* The disk lies: this suite must be able to find out, or it proves nothing. */
static unsigned losses(bool ignore_sync, bool ignore_sync_dir)
{
    unsigned lost = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct bench *bench = bench_new(900 + seed);
        struct wal_stats stats = {0};
        bench->sim->ignore_sync = ignore_sync;
        bench->sim->ignore_sync_dir = ignore_sync_dir;
        bench_open(bench);
        bench_fill(bench, 1, 80, 600);
        bench_power_cut(bench);
        if (bench_try_open(bench) == 0) {
            wal_stats(bench->wal, &stats);
        }
        lost += stats.durable_lsn != 80;
        bench_free(bench);
    }
    return lost;
}

static void a_lying_disk_is_found_out(void **state)
{
    (void)state;
    assert_int_equal(losses(false, false), 0);
    assert_true(losses(true, false) > 10);
    assert_true(losses(false, true) > 10);
}

static void the_folder_removed_while_open(void **state)
{
    (void)state;
    struct bench *bench = bench_new(1000);
    bench_open(bench);
    bench_fill(bench, 1, 2, 100);
    sim_remove(bench->sim, bench_segment(bench, 1));
    assert_int_equal(bench_append(bench, 3, 100), 0);
    assert_int_equal(wal_flush(bench->wal, NULL), -EIO);
    assert_non_null(strstr(wal_problem(bench->wal), "removed"));
    bench_free(bench);
}

/* Every call of open, append, flush, prepare, close fails once, each in its turn. */
static void every_call_fails_once(void **state)
{
    (void)state;
    const int codes[] = {-EIO, -ENOSPC, -EACCES, -EMFILE};
    for (int c = 0; c < 4; c++) {
        bool failed = true;
        for (unsigned after = 0; failed; after++) {
            struct bench *bench = bench_new(1100);
            uint64_t acked = 0;
            bench_open(bench);
            bench_fill(bench, 1, 40, 900);
            bench_close(bench);
            acked = 40;
            bench->sim->fail_calls = SIM_ANY;
            bench->sim->fail_after = after;
            bench->sim->fail_count = 1;
            bench->sim->fail_code = codes[c];
            uint64_t appended = 40;
            if (bench_try_open(bench) == 0) {
                uint64_t durable = 0;
                for (int i = 0; i < 40; i++) {
                    if (bench_append(bench, acked + 1, 900) == 0) {
                        appended = acked + 1;
                        wal_flush(bench->wal, &durable);
                        acked = durable;
                    }
                    wal_prepare(bench->wal);
                }
            } else {
                if (bench->err.text[0] == '\0') {
                    fail_msg("no text for call %u failing with %d", after, codes[c]);
                }
            }
            failed = bench->sim->fail_count == 0;
            bench->sim->fail_calls = 0;
            bench_power_cut(bench);
            bench_open(bench);
            struct wal_stats stats;
            wal_stats(bench->wal, &stats);
            assert_true(stats.durable_lsn == acked || stats.durable_lsn == appended);
            bench_expect_all(bench, 1, stats.durable_lsn, 900);
            bench_free(bench);
        }
    }
}

/* A crash at every call of a life that rotates, recycles and removes; then again in recovery. */
static void power_lost_at_every_call(void **state)
{
    (void)state;
    bool dead = true;
    for (unsigned at = 1; dead; at++) {
        struct bench *bench = bench_new(1200 + at);
        uint64_t acked = 0;
        uint64_t done = 0;
        bench->options.segment_bytes = 16384;
        bench->sim->cut_after = at;
        if (bench_try_open(bench) == 0) {
            if (wal_reader_open(DIR_NAME, &bench->reader_options, &bench->reader, &bench->err) <
                0) {
                bench->reader = NULL;
            }
            for (uint64_t n = 1; n <= 60 && bench_append(bench, n, 600) == 0; n++) {
                struct wal_record record;
                wal_flush(bench->wal, &acked);
                wal_prepare(bench->wal);
                if (bench->reader != NULL && wal_reader_next(bench->reader, &record) == 1 &&
                    wal_reader_done(bench->reader, record.lsn, record.lsn) == 0) {
                    done = record.lsn;
                }
            }
        }
        dead = bench->sim->dead;
        bench_power_cut(bench);
        bench->sim->cut_after = 1 + at % 40;
        bench_try_open(bench);
        bench_power_cut(bench);
        bench_open(bench);
        struct wal_stats stats;
        wal_stats(bench->wal, &stats);
        assert_true(stats.durable_lsn == acked || stats.durable_lsn == acked + 1);
        bench_open_reader(bench);
        struct wal_record record;
        uint64_t expected = 0;
        while (wal_reader_next(bench->reader, &record) == 1) {
            assert_true(expected == 0 ? record.lsn <= done + 2 : record.lsn == expected);
            expected = record.lsn + 1;
        }
        assert_true(expected == 0 ? stats.durable_lsn <= done + 1
                                  : expected == stats.durable_lsn + 1);
        bench_free(bench);
    }
}

int main(int count, char **arguments)
{
    one_test(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_flush_is_final),
        cmocka_unit_test(recovery_trusts_the_disk),
        cmocka_unit_test(recovery_trusts_the_disk_even_when_it_is_full),
        cmocka_unit_test(no_room_to_prepare_refuses_and_resumes),
        cmocka_unit_test(no_room_for_a_large_record_ends_too),
        cmocka_unit_test(a_write_without_room_is_surely_not_stored),
        cmocka_unit_test(only_the_padding_finds_no_room),
        cmocka_unit_test(short_and_interrupted_calls),
        cmocka_unit_test(nothing_is_reported_before_it_is_on_disk),
        cmocka_unit_test(a_lying_disk_is_found_out),
        cmocka_unit_test(the_folder_removed_while_open),
        cmocka_unit_test(every_call_fails_once),
        cmocka_unit_test(power_lost_at_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

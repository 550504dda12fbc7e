/*
 * Oracle: what was appended, kept by the test. Round trips, rotation, seals, room and quota, on a
 * simulated disk without faults.
 */
#include "bench.h"
#include "one_test.h"

#include "wal/format.h"
#include "wal/probe.h"

static void sizes_at_the_edges(void **state)
{
    (void)state;
    struct bench *bench = bench_new(1);
    const size_t sizes[] = {0, 1, 7, 8, 431, 432, 433, 7999, 8000};
    uint64_t lsn;
    bench_open(bench);
    bench_open_reader(bench);
    assert_int_equal(wal_append(bench->wal, NULL, 8001, NULL), -EMSGSIZE);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char bytes[8192];
        bench_payload(bytes, sizes[i], i + 1);
        assert_int_equal(wal_append(bench->wal, bytes, sizes[i], &lsn), 0);
        assert_int_equal(lsn, i + 1);
        assert_int_equal(wal_flush(bench->wal, NULL), 0);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        bench_expect(bench, i + 1, sizes[i]);
    }
    bench_expect_none(bench);
    bench_free(bench);
}

static void a_batch_holds_many_records_in_order(void **state)
{
    (void)state;
    struct bench *bench = bench_new(2);
    uint64_t durable = 0;
    uint64_t syncs;
    bench_open(bench);
    syncs = bench->sim->syncs;
    for (uint64_t n = 1; n <= 30; n++) {
        assert_int_equal(bench_append(bench, n, 100), 0);
    }
    assert_int_equal(wal_flush(bench->wal, &durable), 0);
    assert_int_equal(durable, 30);
    assert_int_equal(bench->sim->syncs, syncs + 1);
    bench_expect_all(bench, 1, 30, 100);
    bench_free(bench);
}

static void a_flush_is_capped_and_says_that_more_is_queued(void **state)
{
    (void)state;
    struct bench *bench = bench_new(3);
    uint64_t durable = 0;
    bench->options.batch_max_bytes = 64 + 2 * (16 + 100);
    bench_open(bench);
    for (uint64_t n = 1; n <= 5; n++) {
        assert_int_equal(bench_append(bench, n, 100), 0);
    }
    assert_int_equal(wal_flush(bench->wal, &durable), 1);
    assert_int_equal(durable, 2);
    assert_int_equal(wal_flush(bench->wal, &durable), 1);
    assert_int_equal(wal_flush(bench->wal, &durable), 0);
    assert_int_equal(durable, 5);
    assert_int_equal(wal_flush(bench->wal, &durable), 0);
    bench_expect_all(bench, 1, 5, 100);
    bench_free(bench);
}

static void nothing_is_read_before_its_flush(void **state)
{
    (void)state;
    struct bench *bench = bench_new(4);
    bench_open(bench);
    bench_open_reader(bench);
    assert_int_equal(bench_append(bench, 1, 50), 0);
    bench_expect_none(bench);
    assert_int_equal(wal_flush(bench->wal, NULL), 0);
    bench_expect(bench, 1, 50);
    bench_free(bench);
}

static void rotation_by_size_never_grows_a_file(void **state)
{
    (void)state;
    struct bench *bench = bench_new(5);
    struct wal_stats stats;
    bench_open(bench);
    uint64_t grown = bench->sim->size_changes;
    for (uint64_t n = 1; n <= 400; n++) {
        bench_fill(bench, n, 1, 600);
        wal_prepare(bench->wal);
    }
    wal_stats(bench->wal, &stats);
    assert_true(stats.segments > 10);
    assert_int_equal(stats.size_changes, 0);
    assert_int_equal(bench->sim->size_changes, grown);
    bench_expect_all(bench, 1, 400, 600);
    bench_free(bench);
}

static void what_is_done_is_recycled(void **state)
{
    (void)state;
    struct bench *bench = bench_new(6);
    struct wal_stats stats;
    bench_open(bench);
    bench_open_reader(bench);
    for (uint64_t n = 1; n <= 2000; n++) {
        bench_fill(bench, n, 1, 600);
        bench_expect(bench, n, 600);
        assert_int_equal(wal_reader_done(bench->reader, n, n), 0);
        wal_prepare(bench->wal);
    }
    wal_stats(bench->wal, &stats);
    assert_true(stats.segments <= 4);
    assert_true(stats.segments_recycled > 20);
    assert_true(stats.segments_made < 5);
    bench_free(bench);
}

static void a_segment_is_sealed_by_age(void **state)
{
    (void)state;
    struct bench *bench = bench_new(7);
    bench->options.segment_age_ns = 1000000000;
    bench->reader_options.sealed_only = true;
    bench_open(bench);
    bench_open_reader(bench);
    bench_fill(bench, 1, 1, 100);
    bench_expect_none(bench);
    bench->sim->now_ns += 600000000;
    bench_prepare(bench);
    bench_expect_none(bench);
    assert_true(wal_prepare_due_ns(bench->wal) <= 400000000);
    bench->sim->now_ns += 400000000;
    assert_int_equal(wal_prepare_due_ns(bench->wal), 0);
    bench_prepare(bench);
    bench_expect(bench, 1, 100);
    bench_fill(bench, 2, 1, 100);
    bench_expect_none(bench);
    bench_free(bench);
}

struct outcome {
    struct wal_stats wal;
    struct wal_reader_stats reader;
    int64_t due_ns;
};

/* A life with all that goes by time; `step_us` is by how much the wall clock is off, to and fro. */
static void live_by_the_clock(int64_t step_us, struct outcome *outcomes, int count)
{
    struct bench *bench = bench_new(40);
    bench->options.segment_age_ns = 1000000000;
    bench->reader_options.cursor_sync_ns = 250000000;
    bench_open(bench);
    bench_open_reader(bench);
    for (int i = 0; i < count; i++) {
        uint64_t n = (uint64_t)i + 1;
        bench->sim->now_ns += 130000000;
        bench->sim->wall_step_us = i % 3 == 0 ? step_us : i % 3 == 1 ? -step_us : 0;
        bench_fill(bench, n, 1, 100);
        bench_expect(bench, n, 100);
        assert_int_equal(wal_reader_done(bench->reader, n, n), 0);
        outcomes[i].due_ns = wal_prepare_due_ns(bench->wal);
        bench_prepare(bench);
        wal_stats(bench->wal, &outcomes[i].wal);
        wal_reader_stats(bench->reader, &outcomes[i].reader);
    }
    bench_free(bench);
}

static void the_wall_clock_steps(void **state)
{
    (void)state;
    struct outcome steady[50];
    struct outcome stepping[50];
    memset(steady, 0, sizeof steady);
    memset(stepping, 0, sizeof stepping);
    live_by_the_clock(0, steady, 50);
    live_by_the_clock(3600000000, stepping, 50); /* an hour */
    assert_memory_equal(steady, stepping, sizeof steady);
    assert_true(steady[49].wal.segments_made + steady[49].wal.segments_recycled > 4);
    assert_true(steady[49].reader.cursor_syncs > 10);
}

static void an_early_seal_gives_the_rest_of_the_file_back(void **state)
{
    (void)state;
    struct bench *bench = bench_new(8);
    bench->options.segment_age_ns = 1000000000;
    bench_open(bench);
    bench_fill(bench, 1, 1, 100);
    bench->sim->now_ns += 1000000000;
    bench_prepare(bench);
    assert_int_equal(sim_find(bench->sim, bench_segment(bench, 1))->size, 4096 + 512);
    bench_expect_all(bench, 1, 1, 100);
    bench_free(bench);
}

static void sealing_by_hand(void **state)
{
    (void)state;
    struct bench *bench = bench_new(9);
    bench->reader_options.sealed_only = true;
    bench_open(bench);
    bench_open_reader(bench);
    assert_int_equal(wal_seal(bench->wal), 0);
    bench_fill(bench, 1, 20, 600);
    assert_int_equal(wal_seal(bench->wal), -EAGAIN);
    bench_prepare(bench);
    assert_int_equal(wal_seal(bench->wal), 1);
    for (uint64_t n = 1; n <= 20; n++) {
        bench_expect(bench, n, 600);
    }
    /* Asked for early, a segment ends when the next one is made, although nothing else wants it. */
    bench_fill(bench, 21, 1, 100);
    bench_prepare(bench);
    assert_int_equal(wal_seal(bench->wal), -EAGAIN);
    bench_prepare(bench);
    assert_int_equal(wal_seal(bench->wal), 1);
    bench_expect(bench, 21, 100);
    assert_int_equal(wal_prepare_due_ns(bench->wal), 0); /* cuts the ended one to size */
    bench_prepare(bench);
    assert_int_equal(wal_prepare_due_ns(bench->wal), -1); /* no next one before it is wanted */
    bench_free(bench);
}

static void a_log_opens_again_with_all_its_records(void **state)
{
    (void)state;
    struct bench *bench = bench_new(10);
    struct wal_stats stats;
    bench_open(bench);
    bench_fill(bench, 1, 100, 500);
    bench_close(bench);
    bench_open(bench);
    wal_stats(bench->wal, &stats);
    assert_int_equal(stats.durable_lsn, 100);
    assert_int_equal(stats.next_lsn, 101);
    assert_int_equal(stats.epoch, 2);
    bench_fill(bench, 101, 50, 500);
    bench_expect_all(bench, 1, 150, 500);
    bench_free(bench);
}

static void every_open_starts_a_fresh_segment(void **state)
{
    (void)state;
    struct bench *bench = bench_new(11);
    for (unsigned i = 1; i <= 5; i++) {
        bench_open(bench);
        bench_fill(bench, i, 1, 100);
        assert_non_null(sim_find(bench->sim, bench_segment(bench, i)));
        bench_prepare(bench);
        bench_close(bench);
    }
    bench_open(bench);
    bench_expect_all(bench, 1, 5, 100);
    bench_free(bench);
}

static void many_restarts_do_not_eat_the_disk(void **state)
{
    (void)state;
    struct bench *bench = bench_new(12);
    struct wal_stats stats;
    bench->options.segment_bytes = 1 << 20;
    for (unsigned i = 1; i <= 40; i++) {
        bench_open(bench);
        bench_fill(bench, i, 1, 100);
        bench_prepare(bench);
        bench_kill(bench);
    }
    bench_open(bench);
    bench_prepare(bench);
    wal_stats(bench->wal, &stats);
    assert_true(stats.allocated_bytes < 4u << 20);
    bench_expect_all(bench, 1, 40, 100);
    bench_free(bench);
}

static void numbers_near_their_end(void **state)
{
    (void)state;
    const uint64_t firsts[] = {9, 99, UINT32_MAX - 1ull, (1ull << 32) + 1, INT64_MAX - 2ull};
    for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++) {
        struct bench *bench = bench_new(13 + i);
        bench->options.first_lsn = firsts[i];
        bench_open(bench);
        bench_close(bench);
        bench_open(bench);
        bench_fill(bench, firsts[i], 3, 100);
        bench_kill(bench);
        bench_open(bench);
        if (firsts[i] + 2 == INT64_MAX) {
            assert_int_equal(bench_append(bench, 1, 8), -EOVERFLOW);
        }
        bench_expect_all(bench, firsts[i], firsts[i] + 2, 100);
        bench_free(bench);
    }
}

static void the_quota_refuses_and_resumes(void **state)
{
    (void)state;
    struct bench *bench = bench_new(20);
    struct wal_stats stats;
    uint64_t taken = 0;
    int result = 0;
    bench->options.quota_bytes = 4 * bench->options.segment_bytes;
    bench_open(bench);
    bench_open_reader(bench);
    while (taken < 1000) {
        result = bench_append(bench, taken + 1, 600);
        if (result == 0) {
            result = wal_flush(bench->wal, NULL);
        }
        if (result < 0) {
            break;
        }
        taken++;
        wal_prepare(bench->wal);
    }
    assert_int_equal(result, -EDQUOT);
    assert_true(strstr(wal_problem(bench->wal), "quota") != NULL);
    wal_stats(bench->wal, &stats);
    assert_true(stats.allocated_bytes <= bench->options.quota_bytes);
    assert_true(wal_room(bench->wal, 600) == -EDQUOT);
    /* Reading and acknowledging go on, and make room without anything being opened anew. */
    for (uint64_t n = 1; n <= taken; n++) {
        bench_expect(bench, n, 600);
        assert_int_equal(wal_reader_done(bench->reader, n, n), 0);
    }
    bench_expect_none(bench);
    assert_int_equal(wal_prepare_due_ns(bench->wal), 0);
    bench_prepare(bench);
    assert_int_equal(wal_room(bench->wal, 600), 0);
    bench_fill(bench, taken + 1, 10, 600);
    bench_expect(bench, taken + 1, 600);
    bench_free(bench);
}

/* As the disk sees it. */
static uint64_t bytes_of_segments(struct bench *bench)
{
    uint64_t sum = 0;
    for (unsigned number = 1; number < 100; number++) {
        struct sim_file *file = sim_find(bench->sim, bench_segment(bench, number));
        sum += file == NULL ? 0 : file->size;
    }
    struct sim_file *spare = sim_find(bench->sim, "spare.tmp");
    return sum + (spare == NULL ? 0 : spare->size);
}

static void a_full_quota_survives_restarts(void **state)
{
    (void)state;
    struct bench *bench = bench_new(21);
    struct wal_stats stats;
    uint64_t taken = 0;
    bench->options.quota_bytes = 3 * bench->options.segment_bytes;
    bench_open(bench);
    while (bench_append(bench, taken + 1, 600) == 0 && wal_flush(bench->wal, NULL) == 0) {
        taken++;
    }
    for (int i = 0; i < 10; i++) {
        bench_kill(bench);
        bench_open(bench);
        wal_stats(bench->wal, &stats);
        assert_true(stats.allocated_bytes <= 4 * bench->options.segment_bytes);
        assert_true(bytes_of_segments(bench) <= 4 * bench->options.segment_bytes);
        assert_int_equal(stats.durable_lsn, taken);
    }
    bench_open_reader(bench);
    for (uint64_t n = 1; n <= taken; n++) {
        bench_expect(bench, n, 600);
        wal_reader_done(bench->reader, n, n);
    }
    bench_prepare(bench);
    bench_fill(bench, taken + 1, 1, 600);
    bench_free(bench);
}

static void the_queue_is_bounded(void **state)
{
    (void)state;
    struct bench *bench = bench_new(22);
    bench->options.queue_max_bytes = 1000;
    bench_open(bench);
    for (uint64_t n = 1; n <= 8; n++) {
        assert_int_equal(bench_append(bench, n, 100), 0);
    }
    assert_int_equal(bench_append(bench, 9, 100), -EAGAIN);
    assert_int_equal(wal_flush(bench->wal, NULL), 0);
    assert_int_equal(bench_append(bench, 9, 100), 0);
    bench_free(bench);
}

static void a_queue_longer_than_two_segments_is_flushed_first(void **state)
{
    (void)state;
    struct bench *bench = bench_new(23);
    uint64_t n = 1;
    bench_open(bench);
    while (bench_append(bench, n, 4000) == 0) {
        n++;
    }
    assert_true(n > 10 && n < 16);
    uint64_t durable;
    int result;
    do {
        result = wal_flush(bench->wal, &durable);
    } while (result > 0);
    assert_int_equal(result, 0);
    assert_int_equal(durable, n - 1);
    bench_expect_all(bench, 1, n - 1, 4000);
    bench_free(bench);
}

static void options_out_of_bounds(void **state)
{
    (void)state;
    struct bench *bench = bench_new(24);
    struct wal_options good = bench->options;
    bench->options.block_bytes = 513;
    assert_int_equal(bench_try_open(bench), -EINVAL);
    assert_non_null(strstr(bench->err.text, "block_bytes"));
    bench->options = good;
    bench->options.segment_bytes = 8192;
    assert_int_equal(bench_try_open(bench), -EINVAL);
    assert_non_null(strstr(bench->err.text, "segment_bytes"));
    bench->options = good;
    bench->options.quota_bytes = good.segment_bytes;
    assert_int_equal(bench_try_open(bench), -EINVAL);
    assert_non_null(strstr(bench->err.text, "quota_bytes"));
    bench->options = good;
    bench->options.record_max = UINT32_MAX;
    assert_int_equal(bench_try_open(bench), -EINVAL);
    bench->options = good;
    bench->options.batch_max_bytes = 0;
    assert_int_equal(bench_try_open(bench), -EINVAL);
    bench->options = good;
    bench->options.first_lsn = 0;
    assert_int_equal(bench_try_open(bench), -EINVAL);
    assert_false(bench->sim->dir_exists);
    bench_free(bench);
}

static void a_second_writer_is_refused(void **state)
{
    (void)state;
    struct bench *bench = bench_new(25);
    struct wal *second;
    bench_open(bench);
    assert_int_equal(wal_open(DIR_NAME, &bench->options, &second, &bench->err), -EBUSY);
    assert_non_null(strstr(bench->err.text, "writer"));
    bench_fill(bench, 1, 1, 100);
    bench_close(bench);
    bench_open(bench);
    bench_free(bench);
}

static void options_may_change_between_opens(void **state)
{
    (void)state;
    struct bench *bench = bench_new(26);
    bench_open(bench);
    bench_fill(bench, 1, 60, 1000);
    bench_kill(bench);
    bench->options.segment_bytes = 16384;
    bench->options.block_bytes = 4096;
    bench->options.batch_max_bytes = 1500;
    bench->options.record_max = 1000;
    bench_open(bench);
    bench_fill(bench, 61, 60, 1000);
    bench_kill(bench);
    bench->options.segment_bytes = 65536;
    bench->options.block_bytes = 512;
    bench_open(bench);
    bench_fill(bench, 121, 60, 1000);
    bench_expect_all(bench, 1, 180, 1000);
    bench_free(bench);
}

static void the_probe_knows_the_lag(void **state)
{
    (void)state;
    struct bench *bench = bench_new(27);
    struct wal_probe *probe;
    struct wal_probe_stats stats;
    assert_int_equal(wal_probe_open(DIR_NAME, &bench->sim->vfs, &probe, &bench->err), 0);
    assert_int_equal(wal_probe_read(probe, &stats, &bench->err), -ENOENT);
    bench_open(bench);
    assert_int_equal(wal_probe_read(probe, &stats, &bench->err), 0);
    assert_int_equal(stats.lag_records, 0);
    bench_fill(bench, 1, 10, 100);
    assert_int_equal(wal_probe_read(probe, &stats, &bench->err), 0);
    assert_int_equal(stats.lag_records, 10);
    assert_int_equal(stats.lag_bytes, 10 * 116);
    assert_int_equal(stats.rotations, 1);
    bench_prepare(bench);
    assert_int_equal(wal_seal(bench->wal), 1);
    assert_int_equal(wal_probe_read(probe, &stats, &bench->err), 0);
    assert_int_equal(stats.rotations, 2);
    bench_open_reader(bench);
    for (uint64_t n = 1; n <= 10; n++) {
        bench_expect(bench, n, 100);
    }
    wal_reader_done(bench->reader, 5, 6);
    wal_reader_done(bench->reader, 1, 2);
    assert_int_equal(wal_probe_read(probe, &stats, &bench->err), 0);
    assert_int_equal(stats.done_lsn, 2);
    assert_int_equal(stats.lag_records, 6);
    assert_false(stats.scanned);
    /* After a boot nobody has published yet: the files tell. */
    wal_probe_close(probe);
    bench_power_cut(bench);
    assert_int_equal(wal_probe_open(DIR_NAME, &bench->sim->vfs, &probe, &bench->err), 0);
    assert_int_equal(wal_probe_read(probe, &stats, &bench->err), 0);
    assert_true(stats.scanned);
    assert_int_equal(stats.durable_lsn, 10);
    assert_int_equal(stats.lag_records, 6);
    wal_probe_close(probe);
    bench_free(bench);
}

static void a_log_is_removed_when_nobody_has_it_open(void **state)
{
    (void)state;
    struct bench *bench = bench_new(22);
    const struct wal_vfs *vfs = &bench->sim->vfs;
    uint64_t lsn;
    assert_int_equal(wal_remove("nowhere", wal_vfs_posix(), &bench->err), 0);
    bench_open(bench);
    bench_open_reader(bench);
    bench_fill(bench, 1, 200, 1000); /* several segments */
    assert_int_equal(wal_remove(DIR_NAME, vfs, &bench->err), -EBUSY);
    bench_close(bench);
    assert_int_equal(wal_remove(DIR_NAME, vfs, &bench->err), -EBUSY);
    assert_non_null(strstr(bench->err.text, "reader"));
    bench_close_reader(bench);
    /* What is no log's is left alone, and so is the log beside it. */
    sim_copy_file(bench->sim, WAL_WRITER_LOCK_NAME, "letters");
    assert_int_equal(wal_remove(DIR_NAME, vfs, &bench->err), -EEXIST);
    assert_non_null(strstr(bench->err.text, "letters"));
    bench_expect_all(bench, 1, 200, 1000);
    sim_remove(bench->sim, "letters");
    assert_int_equal(wal_remove(DIR_NAME, vfs, &bench->err), 0);
    assert_int_equal(sim_count(bench->sim, WAL_SEGMENT_SUFFIX), 0);
    assert_null(sim_find(bench->sim, WAL_CURSOR_NAME));
    assert_int_equal(wal_remove(DIR_NAME, vfs, &bench->err), 0);
    bench_open(bench); /* a new log */
    unsigned char bytes[8];
    bench_payload(bytes, sizeof bytes, 1);
    assert_int_equal(wal_append(bench->wal, bytes, sizeof bytes, &lsn), 0);
    assert_int_equal(lsn, 1);
    bench_free(bench);
}

int main(int count, char **arguments)
{
    one_test(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_at_the_edges),
        cmocka_unit_test(a_batch_holds_many_records_in_order),
        cmocka_unit_test(a_flush_is_capped_and_says_that_more_is_queued),
        cmocka_unit_test(nothing_is_read_before_its_flush),
        cmocka_unit_test(rotation_by_size_never_grows_a_file),
        cmocka_unit_test(what_is_done_is_recycled),
        cmocka_unit_test(a_segment_is_sealed_by_age),
        cmocka_unit_test(the_wall_clock_steps),
        cmocka_unit_test(an_early_seal_gives_the_rest_of_the_file_back),
        cmocka_unit_test(sealing_by_hand),
        cmocka_unit_test(a_log_opens_again_with_all_its_records),
        cmocka_unit_test(every_open_starts_a_fresh_segment),
        cmocka_unit_test(many_restarts_do_not_eat_the_disk),
        cmocka_unit_test(numbers_near_their_end),
        cmocka_unit_test(the_quota_refuses_and_resumes),
        cmocka_unit_test(a_full_quota_survives_restarts),
        cmocka_unit_test(the_queue_is_bounded),
        cmocka_unit_test(a_queue_longer_than_two_segments_is_flushed_first),
        cmocka_unit_test(options_out_of_bounds),
        cmocka_unit_test(a_second_writer_is_refused),
        cmocka_unit_test(options_may_change_between_opens),
        cmocka_unit_test(the_probe_knows_the_lag),
        cmocka_unit_test(a_log_is_removed_when_nobody_has_it_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Oracle: the numbers of the records, and which of them the test said were done. Acks in any order,
 * handing back, restarts, and every way a cursor can be bad: no record is skipped, ever.
 */
#include "bench.h"
#include "one_test.h"

#include "wal/format.h"

#include <xxhash.h>

#define SIZE 100

static struct bench *with_records(uint64_t seed, uint64_t count)
{
    struct bench *bench = bench_new(seed);
    bench_open(bench);
    bench_fill(bench, 1, count, SIZE);
    bench_open_reader(bench);
    return bench;
}

static void read_to(struct bench *bench, uint64_t first, uint64_t last)
{
    for (uint64_t n = first; n <= last; n++) {
        bench_expect(bench, n, SIZE);
    }
}

static void restart_reader(struct bench *bench)
{
    bench_close_reader(bench);
    bench_open_reader(bench);
}

static void acks_in_any_order_survive_a_restart(void **state)
{
    (void)state;
    struct bench *bench = with_records(1, 20);
    struct wal_reader_stats stats;
    read_to(bench, 1, 20);
    assert_int_equal(wal_reader_done(bench->reader, 15, 20), 0);
    assert_int_equal(wal_reader_done(bench->reader, 3, 5), 0);
    assert_int_equal(wal_reader_done(bench->reader, 1, 1), 0);
    assert_int_equal(wal_reader_done(bench->reader, 10, 10), 0);
    wal_reader_stats(bench->reader, &stats);
    assert_int_equal(stats.done_lsn, 1);
    assert_int_equal(stats.out, 9);
    for (int i = 0; i < 3; i++) {
        restart_reader(bench);
        if (i == 1) {
            bench_kill(bench);
            bench_open(bench);
            bench_open_reader(bench);
        } else if (i == 2) {
            bench_power_cut(bench);
            bench_open(bench);
            bench_open_reader(bench);
        }
        bench_expect(bench, 2, SIZE);
        read_to(bench, 6, 9);
        read_to(bench, 11, 14);
        bench_expect_none(bench);
    }
    assert_int_equal(wal_reader_done(bench->reader, 1, 100), 0);
    wal_reader_stats(bench->reader, &stats);
    assert_int_equal(stats.done_lsn, 20);
    bench_fill(bench, 21, 1, SIZE);
    bench_expect(bench, 21, SIZE);
    bench_free(bench);
}

/* More holes than a cursor holds: those that don't fit come again. */
static void a_cursor_with_very_many_holes(void **state)
{
    (void)state;
    struct bench *bench = with_records(2, 2000);
    struct wal_record record;
    read_to(bench, 1, 2000);
    for (uint64_t n = 2; n <= 2000; n += 2) {
        assert_int_equal(wal_reader_done(bench->reader, n, n), 0);
    }
    restart_reader(bench);
    uint64_t expected = 1;
    uint64_t count = 0;
    while (wal_reader_next(bench->reader, &record) == 1) {
        assert_true(record.lsn == expected || (record.lsn == expected + 1 && expected % 2 == 0));
        expected = record.lsn + 1;
        count++;
    }
    assert_true(expected == 2001 || expected == 2000);
    assert_true(count >= 1000 && count < 2000 - 200);
    bench_free(bench);
}

static void what_is_handed_back_comes_first(void **state)
{
    (void)state;
    struct bench *bench = with_records(3, 300);
    struct wal_record record;
    read_to(bench, 1, 200);
    assert_int_equal(wal_reader_release(bench->reader, 50, 59), 0);
    assert_int_equal(wal_reader_release(bench->reader, 120, 120), 0);
    assert_int_equal(wal_reader_wait(bench->reader, 1000, 0), 111);
    for (uint64_t n = 50; n <= 59; n++) {
        assert_int_equal(wal_reader_next(bench->reader, &record), 1);
        assert_int_equal(record.lsn, n);
        assert_true(record.again);
    }
    bench_expect(bench, 120, SIZE);
    bench_expect(bench, 201, SIZE);
    /* Again, and done while handed back. */
    assert_int_equal(wal_reader_release(bench->reader, 1, 200), 0);
    assert_int_equal(wal_reader_done(bench->reader, 1, 198), 0);
    bench_expect(bench, 199, SIZE);
    bench_expect(bench, 200, SIZE);
    bench_expect(bench, 202, SIZE);
    bench_free(bench);
}

static void handing_back_over_segments_that_are_gone(void **state)
{
    (void)state;
    struct bench *bench = with_records(4, 300);
    read_to(bench, 1, 300);
    assert_int_equal(wal_reader_done(bench->reader, 1, 200), 0);
    bench_prepare(bench);
    assert_null(sim_find(bench->sim, bench_segment(bench, 1)));
    assert_int_equal(wal_reader_release(bench->reader, 150, 300), 0);
    read_to(bench, 201, 300);
    bench_expect_none(bench);
    bench_free(bench);
}

static void ranges_that_are_not_out_are_left_alone(void **state)
{
    (void)state;
    struct bench *bench = with_records(5, 10);
    assert_int_equal(wal_reader_done(bench->reader, 1, 1), -EINVAL); /* nothing read yet */
    read_to(bench, 1, 5);
    assert_int_equal(wal_reader_done(bench->reader, 3, 2), -EINVAL);
    assert_int_equal(wal_reader_done(bench->reader, 4, 1000), 0);
    assert_int_equal(wal_reader_release(bench->reader, 6, 1000), 0);
    read_to(bench, 6, 10);
    restart_reader(bench);
    read_to(bench, 1, 3);
    read_to(bench, 6, 10);
    bench_free(bench);
}

/* The reader is killed at any time: what was not done comes again, and what comes was not done or
 * done within the last sync. */
static void the_cursor_is_flushed_as_often_as_told(void **state)
{
    (void)state;
    struct bench *bench = with_records(6, 50);
    struct wal_reader_stats stats;
    bench_close_reader(bench);
    bench->reader_options.cursor_sync_ns = 1000000000;
    bench_open_reader(bench);
    read_to(bench, 1, 50);
    wal_reader_stats(bench->reader, &stats);
    uint64_t syncs = stats.cursor_syncs;
    for (uint64_t n = 1; n <= 40; n++) {
        bench->sim->now_ns += 100000000;
        assert_int_equal(wal_reader_done(bench->reader, n, n), 0);
    }
    wal_reader_stats(bench->reader, &stats);
    assert_int_equal(stats.cursor_syncs - syncs, 4);
    assert_int_equal(stats.synced_lsn, 40);
    assert_int_equal(wal_reader_done(bench->reader, 41, 45), 0);
    assert_int_equal(wal_reader_flush_due_ns(bench->reader), 1000000000);
    /* A process that dies loses nothing it said was done; a machine loses the last second. */
    bench_kill(bench);
    bench_open(bench);
    bench_open_reader(bench);
    read_to(bench, 46, 50);
    assert_int_equal(wal_reader_flush(bench->reader), 0);
    bench_free(bench);
}

/* What was done and flushed is not read again, though the cursor's file is new. */
static void what_is_done_outlives_a_power_cut(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct bench *bench = with_records(200 + seed, 20);
        read_to(bench, 1, 20);
        assert_int_equal(wal_reader_done(bench->reader, 1, 10), 0);
        assert_int_equal(wal_reader_flush(bench->reader), 0);
        bench_power_cut(bench);
        bench_open(bench);
        bench_open_reader(bench);
        read_to(bench, 11, 20);
        bench_free(bench);
    }
}

/* Only what is on disk may be removed by the writer. */
static void nothing_is_removed_before_the_cursor_is_on_disk(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct bench *bench = with_records(100 + seed, 200);
        bench_close_reader(bench);
        bench->reader_options.cursor_sync_ns = INT64_MAX / 4;
        bench_open_reader(bench);
        read_to(bench, 1, 200);
        assert_int_equal(wal_reader_done(bench->reader, 1, 180), 0);
        bench_prepare(bench);
        assert_non_null(sim_find(bench->sim, bench_segment(bench, 1)));
        bench_power_cut(bench);
        bench_open(bench);
        bench_open_reader(bench);
        struct wal_record record;
        assert_int_equal(wal_reader_next(bench->reader, &record), 1);
        assert_true(record.lsn == 1 || record.lsn == 181);
        bench_free(bench);
    }
}

/* A new reader takes over what its dead predecessor had written and not flushed; power is lost in
 * the middle of that. What the predecessor had flushed must not be lost with it. */
static void taking_over_a_cursor_that_is_not_on_disk(void **state)
{
    (void)state;
    bool dead = true;
    for (unsigned at = 1; dead; at++) {
        for (uint64_t seed = 0; seed < 20; seed++) {
            struct bench *bench = with_records(1000 + seed, 80);
            struct wal_record record;
            read_to(bench, 1, 60);
            assert_int_equal(wal_reader_done(bench->reader, 1, 40), 0); /* flushed */
            bench_close_reader(bench);
            bench->reader_options.cursor_sync_ns = INT64_MAX / 4;
            bench_open_reader(bench);
            read_to(bench, 41, 60);
            assert_int_equal(wal_reader_done(bench->reader, 41, 50), 0);
            assert_int_equal(wal_reader_flush(bench->reader), 0);
            assert_int_equal(wal_reader_done(bench->reader, 51, 60), 0);
            bench->sim->dead = true;
            bench_close_reader(bench);
            bench->sim->dead = false;
            bench->sim->cut_after = at;
            if (wal_reader_open(DIR_NAME, &bench->reader_options, &bench->reader, &bench->err) ==
                0) {
                wal_reader_next(bench->reader, &record);
            } else {
                bench->reader = NULL;
            }
            dead = bench->sim->dead;
            bench_power_cut(bench);
            bench_open(bench);
            bench_open_reader(bench);
            assert_int_equal(wal_reader_next(bench->reader, &record), 1);
            assert_true(record.lsn == 51 || record.lsn == 61);
            bench_free(bench);
        }
    }
}

static void numbers_go_on_when_nothing_is_left(void **state)
{
    (void)state;
    struct bench *bench = with_records(30, 5);
    struct wal_record record;
    struct wal_stats stats;
    read_to(bench, 1, 5);
    assert_int_equal(wal_reader_done(bench->reader, 1, 5), 0);
    bench_kill(bench);
    bench_open(bench);
    bench_open_reader(bench);
    assert_int_equal(wal_reader_next(bench->reader, &record), 0);
    bench_prepare(bench);
    assert_null(sim_find(bench->sim, bench_segment(bench, 1)));
    bench_power_cut(bench);
    sim_remove(bench->sim, "cursor");
    bench_open(bench);
    wal_stats(bench->wal, &stats);
    assert_int_equal(stats.next_lsn, 6);
    bench_free(bench);
}

static void a_cursor_that_cannot_be_written(void **state)
{
    (void)state;
    const unsigned calls[] = {SIM_WRITE, SIM_SYNC};
    for (int i = 0; i < 2; i++) {
        struct bench *bench = with_records(7, 10);
        struct wal_record record;
        read_to(bench, 1, 5);
        bench->sim->fail_calls = calls[i];
        bench->sim->fail_count = 1;
        bench->sim->fail_code = -EIO;
        assert_int_equal(wal_reader_done(bench->reader, 1, 5), -EIO);
        assert_non_null(strstr(wal_reader_problem(bench->reader), "cursor"));
        assert_int_equal(wal_reader_next(bench->reader, &record), -EIO);
        bench_close_reader(bench);
        bench->sim->fail_calls = 0;
        bench_kill(bench);
        bench_open(bench);
        bench_open_reader(bench);
        assert_int_equal(wal_reader_next(bench->reader, &record), 1);
        assert_true(record.lsn == 1 || record.lsn == 6);
        bench_free(bench);
    }
}

static struct bench *with_cursor_at_40(uint64_t seed)
{
    struct bench *bench = with_records(seed, 80);
    read_to(bench, 1, 60);
    assert_int_equal(wal_reader_done(bench->reader, 1, 30), 0);
    assert_int_equal(wal_reader_done(bench->reader, 31, 40), 0);
    bench_close_reader(bench);
    return bench;
}

static void one_bad_cursor_slot_falls_back_to_the_other(void **state)
{
    (void)state;
    for (size_t slot = 0; slot < 2; slot++) {
        for (size_t byte = 0; byte < 72; byte += 5) {
            struct bench *bench = with_cursor_at_40(8);
            unsigned char value = sim_find(bench->sim, "cursor")->cache[slot * 4096 + byte] ^ 0x40u;
            sim_poke(bench->sim, "cursor", slot * 4096 + byte, &value, 1);
            bench_open_reader(bench);
            struct wal_record record;
            assert_int_equal(wal_reader_next(bench->reader, &record), 1);
            assert_true(record.lsn == 41 || record.lsn == 31);
            bench_free(bench);
        }
    }
}

static void a_bad_cursor_replays_the_oldest(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct bench *bench = with_cursor_at_40(9);
        unsigned char zeros[8192] = {0};
        switch (kind) {
        case 0:
            sim_poke(bench->sim, "cursor", 0, zeros, sizeof zeros);
            break;
        case 1:
            sim_remove(bench->sim, "cursor");
            break;
        case 2:
            sim_cut(bench->sim, "cursor", 0);
            break;
        default:
            sim_cut(bench->sim, "cursor", 30);
        }
        bench_open_reader(bench);
        read_to(bench, 1, 80);
        struct wal_reader_stats stats;
        wal_reader_stats(bench->reader, &stats);
        assert_true((stats.warning[0] != '\0') == (kind != 1));
        bench_free(bench);
    }
}

/* Writes both slots. */
static void put_cursor(struct bench *bench, const struct wal_cursor_slot *slot)
{
    static unsigned char bytes[WAL_CURSOR_BYTES];
    memset(bytes, 0, sizeof bytes);
    wal_cursor_encode(slot, bytes);
    wal_cursor_encode(slot, bytes + WAL_CURSOR_SLOT_BYTES);
    sim_poke(bench->sim, "cursor", 0, bytes, sizeof bytes);
}

static void a_cursor_whose_place_is_wrong(void **state)
{
    (void)state;
    const struct {
        uint64_t number, offset;
    } places[] = {{1, 5000}, {1, 4096}, {1, 4608}, {1, 28672},     {1, 0},
                  {0, 0},    {7, 4096}, {2, 4096}, {1, UINT64_MAX}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct bench *bench = with_cursor_at_40(10);
        struct wal_cursor_slot slot = {0};
        unsigned char bytes[WAL_CURSOR_SLOT_BYTES];
        memcpy(bytes, sim_find(bench->sim, "cursor")->cache, sizeof bytes);
        assert_true(wal_cursor_decode(&slot, bytes));
        slot.lsn = 40;
        slot.generation = 100;
        slot.number = places[i].number;
        slot.offset = places[i].offset;
        put_cursor(bench, &slot);
        if (i % 2 == 0) {
            bench_power_cut(bench);
            bench_open(bench);
        }
        bench_open_reader(bench);
        read_to(bench, 41, 80);
        bench_expect_none(bench);
        bench_free(bench);
    }
}

/* With a right checksum over what there is room for: nothing behind the slot is looked at. */
static void a_cursor_that_promises_too_many_ranges(void **state)
{
    (void)state;
    const uint32_t counts[] = {WAL_CURSOR_DONE_MAX + 1, 252, UINT32_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct bench *bench = with_cursor_at_40(13);
        unsigned char slot[WAL_CURSOR_SLOT_BYTES + 1024];
        memset(slot, 0, sizeof slot);
        memcpy(slot, sim_find(bench->sim, "cursor")->cache, WAL_CURSOR_SLOT_BYTES);
        for (unsigned byte = 0; byte < 4; byte++) {
            slot[12 + byte] = (unsigned char)(counts[i] >> (8 * byte));
        }
        for (uint64_t range = 0; range < counts[i] && range < 300; range++) {
            uint64_t lsn = 42 + 2 * range;
            if (72 + range * 16 + 16 <= sizeof slot) {
                memcpy(slot + 72 + range * 16, &lsn, 8);
                memcpy(slot + 72 + range * 16 + 8, &lsn, 8);
            }
        }
        if (counts[i] < 300) {
            uint64_t sum = XXH3_64bits_withSeed(slot, 64, 0xC2B2AE3D27D4EB4Fu);
            sum = XXH3_64bits_withSeed(slot + 72, (size_t)counts[i] * 16, sum);
            memcpy(slot + 64, &sum, 8);
        }
        struct wal_cursor_slot decoded;
        assert_false(wal_cursor_decode(&decoded, slot));
        bench_free(bench);
    }
}

static void a_cursor_ahead_of_the_log(void **state)
{
    (void)state;
    /* The log has lost its tail, the cursor has not: new records must not count as done. */
    struct bench *bench = with_records(11, 100);
    struct wal_stats stats;
    read_to(bench, 1, 100);
    assert_int_equal(wal_reader_done(bench->reader, 1, 100), 0);
    bench_close_reader(bench);
    bench_power_cut(bench);
    sim_remove(bench->sim, bench_segment(bench, 2));
    bench_open(bench);
    wal_stats(bench->wal, &stats);
    assert_int_equal(stats.next_lsn, 101);
    bench_fill(bench, 101, 3, SIZE);
    bench_open_reader(bench);
    read_to(bench, 101, 103);
    bench_free(bench);

    /* A cursor from nowhere, beyond anything durable, appears while the writer runs. */
    bench = with_cursor_at_40(12);
    struct wal_cursor_slot slot = {0};
    unsigned char bytes[WAL_CURSOR_SLOT_BYTES];
    memcpy(bytes, sim_find(bench->sim, "cursor")->cache, sizeof bytes);
    assert_true(wal_cursor_decode(&slot, bytes));
    slot.lsn = 1000;
    slot.generation = 100;
    put_cursor(bench, &slot);
    bench_open_reader(bench);
    read_to(bench, 1, 80);
    struct wal_reader_stats reader_stats;
    wal_reader_stats(bench->reader, &reader_stats);
    assert_non_null(strstr(reader_stats.warning, "ahead"));
    bench_free(bench);
}

static void a_cursor_of_another_log(void **state)
{
    (void)state;
    struct bench *bench = with_cursor_at_40(13);
    struct bench *other = with_cursor_at_40(14);
    sim_poke(bench->sim, "cursor", 0, sim_find(other->sim, "cursor")->cache, 8192);
    bench_kill(bench);
    bench_open(bench);
    bench_open_reader(bench);
    read_to(bench, 1, 80);
    bench_free(bench);
    bench_free(other);
}

static void a_second_reader_is_refused(void **state)
{
    (void)state;
    struct bench *bench = with_records(15, 3);
    struct wal_reader *second;
    assert_int_equal(wal_reader_open(DIR_NAME, &bench->reader_options, &second, &bench->err),
                     -EBUSY);
    assert_non_null(strstr(bench->err.text, "reader"));
    read_to(bench, 1, 3);
    restart_reader(bench);
    bench_free(bench);
}

static void a_reader_before_any_writer(void **state)
{
    (void)state;
    struct bench *bench = bench_new(16);
    bench_open_reader(bench);
    bench_expect_none(bench);
    assert_int_equal(wal_reader_wait(bench->reader, 1, 10), 0);
    bench_open(bench);
    bench_expect_none(bench);
    /* Its first record is in the first segment, though a second one is prepared already. */
    bench->options.segment_age_ns = 1;
    bench_prepare(bench);
    bench_fill(bench, 1, 100, SIZE);
    read_to(bench, 1, 100);
    bench_free(bench);
}

static void a_reader_outlives_its_writers(void **state)
{
    (void)state;
    struct bench *bench = with_records(17, 10);
    uint64_t last = 10;
    read_to(bench, 1, 10);
    for (int i = 0; i < 20; i++) {
        if (i % 3 == 0) {
            bench_close(bench);
        } else {
            bench->sim->dead = true;
            bench_close(bench);
            bench->sim->dead = false;
        }
        bench_expect_none(bench);
        bench_open(bench);
        bench_fill(bench, last + 1, 7, SIZE);
        read_to(bench, last + 1, last + 7);
        last += 7;
        assert_int_equal(wal_reader_done(bench->reader, 1, last - 5), 0);
        bench_prepare(bench);
    }
    struct wal_stats stats;
    wal_stats(bench->wal, &stats);
    assert_true(stats.segments <= 5);
    bench_free(bench);
}

/* After a boot, the reader believes nothing until the writer has made sure. */
static void after_a_boot_the_reader_waits_for_the_writer(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) { /* the map comes back whole, too */
        struct bench *bench = with_records(300 + seed, 10);
        bench_close_reader(bench);
        bench_power_cut(bench);
        bench_open_reader(bench);
        bench_expect_none(bench);
        bench_open(bench);
        read_to(bench, 1, 10);
        bench_free(bench);
    }
}

static void a_dead_writers_records_can_be_read(void **state)
{
    (void)state;
    struct bench *bench = with_records(19, 10);
    bench_kill(bench);
    bench_open_reader(bench);
    read_to(bench, 1, 10);
    bench_expect_none(bench);
    bench_free(bench);
}

static void another_log_in_the_same_place(void **state)
{
    (void)state;
    struct bench *bench = with_records(20, 10);
    struct wal_record record;
    read_to(bench, 1, 10);
    bench->sim->dead = true;
    bench_close(bench);
    bench->sim->dead = false;
    struct bench *other = with_records(21, 5);
    struct sim_file *file = sim_find(other->sim, bench_segment(other, 1));
    sim_poke(bench->sim, bench_segment(bench, 1), 0, file->cache, file->size);
    sim_remove(bench->sim, "cursor");
    bench_open(bench);
    assert_int_equal(wal_reader_next(bench->reader, &record), -ESTALE);
    bench_free(bench);
    bench_free(other);
}

/* In the real world a folder is removed below a reader that sleeps. */
static void the_folder_removed_below_the_reader(void **state)
{
    (void)state;
    struct bench *bench = with_records(22, 1);
    read_to(bench, 1, 1);
    sim_remove(bench->sim, "shared");
    assert_int_equal(wal_reader_wait(bench->reader, 1, 10), -ENOENT);
    bench_free(bench);
}

int main(int count, char **arguments)
{
    one_test(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(acks_in_any_order_survive_a_restart),
        cmocka_unit_test(a_cursor_with_very_many_holes),
        cmocka_unit_test(what_is_handed_back_comes_first),
        cmocka_unit_test(handing_back_over_segments_that_are_gone),
        cmocka_unit_test(ranges_that_are_not_out_are_left_alone),
        cmocka_unit_test(the_cursor_is_flushed_as_often_as_told),
        cmocka_unit_test(what_is_done_outlives_a_power_cut),
        cmocka_unit_test(nothing_is_removed_before_the_cursor_is_on_disk),
        cmocka_unit_test(taking_over_a_cursor_that_is_not_on_disk),
        cmocka_unit_test(numbers_go_on_when_nothing_is_left),
        cmocka_unit_test(a_cursor_that_cannot_be_written),
        cmocka_unit_test(one_bad_cursor_slot_falls_back_to_the_other),
        cmocka_unit_test(a_bad_cursor_replays_the_oldest),
        cmocka_unit_test(a_cursor_whose_place_is_wrong),
        cmocka_unit_test(a_cursor_that_promises_too_many_ranges),
        cmocka_unit_test(a_cursor_ahead_of_the_log),
        cmocka_unit_test(a_cursor_of_another_log),
        cmocka_unit_test(a_second_reader_is_refused),
        cmocka_unit_test(a_reader_before_any_writer),
        cmocka_unit_test(a_reader_outlives_its_writers),
        cmocka_unit_test(after_a_boot_the_reader_waits_for_the_writer),
        cmocka_unit_test(a_dead_writers_records_can_be_read),
        cmocka_unit_test(another_log_in_the_same_place),
        cmocka_unit_test(the_folder_removed_below_the_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

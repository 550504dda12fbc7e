/*
 * Oracle: the test knows which records were durable, and where it did the damage. A tail that was
 * never acknowledged is dropped; damage to anything that was is refused, and the place named.
 */
#include "bench.h"
#include "one_test.h"

#include "wal/format.h"

/* The first batch is at 4096; 100-byte records flushed one by one lie 512 apart. */
#define AT(n) (4096 + ((n)-1) * 512)

/* Three durable records, then a batch of three more whose flush failed: all of it written. */
static struct bench *with_tail(uint64_t seed)
{
    struct bench *bench = bench_new(seed);
    bench_open(bench);
    bench_fill(bench, 1, 3, 100);
    for (uint64_t n = 4; n <= 6; n++) {
        assert_int_equal(bench_append(bench, n, 300), 0);
    }
    bench->sim->fail_calls = SIM_SYNC;
    bench->sim->fail_count = 1;
    bench->sim->fail_code = -EIO;
    assert_int_equal(wal_flush(bench->wal, NULL), -EIO);
    bench->sim->fail_calls = 0;
    bench_kill(bench);
    return bench;
}

static void torn_at_every_byte(void **state)
{
    (void)state;
    size_t bytes = 64 + 3 * (16 + 300);
    for (size_t keep = 0; keep <= bytes; keep++) {
        struct bench *bench = with_tail(100);
        sim_cut(bench->sim, bench_segment(bench, 1), AT(4) + keep);
        bool whole = keep == bytes;
        bench_power_cut(bench);
        bench_open(bench);
        struct wal_stats stats;
        wal_stats(bench->wal, &stats);
        assert_int_equal(stats.durable_lsn, whole ? 6 : 3);
        /* And once more: recover, append, recover. */
        bench_fill(bench, stats.durable_lsn + 1, 2, 100);
        bench_kill(bench);
        bench_open(bench);
        bench_open_reader(bench);
        for (uint64_t n = 1; n <= stats.durable_lsn + 2; n++) {
            bench_expect(bench, n, n > 3 && whole && n <= 6 ? 300 : 100);
        }
        bench_expect_none(bench);
        bench_free(bench);
    }
}

static void zero_from_every_sector(void **state)
{
    (void)state;
    unsigned char zeros[4096] = {0};
    for (size_t at = AT(4); at < AT(4) + 1024; at += 64) {
        struct bench *bench = with_tail(101);
        sim_poke(bench->sim, bench_segment(bench, 1), at, zeros, sizeof zeros);
        bench_power_cut(bench);
        bench_open(bench);
        bench_expect_all(bench, 1, 3, 100);
        bench_free(bench);
    }
}

static void hole_inside_the_last_batch(void **state)
{
    (void)state;
    unsigned char zeros[512] = {0};
    struct bench *bench = with_tail(102);
    sim_poke(bench->sim, bench_segment(bench, 1), AT(4) + 512, zeros, sizeof zeros);
    bench_power_cut(bench);
    bench_open(bench);
    bench_expect_all(bench, 1, 3, 100);
    /* What lies behind the hole stays dead. */
    bench_fill(bench, 4, 3, 100);
    bench_kill(bench);
    bench_open(bench);
    bench_expect_all(bench, 1, 6, 100);
    bench_free(bench);
}

/* Torn or rot, nobody can tell: what is not taken for records is not destroyed either. */
static void what_was_torn_is_kept(void **state)
{
    (void)state;
    struct bench *bench = with_tail(103);
    const char *name = bench_segment(bench, 1);
    unsigned char before[2048];
    sim_poke(bench->sim, name, AT(4) + 100, "xx", 2);
    memcpy(before, sim_find(bench->sim, name)->cache + AT(4), sizeof before);
    bench_power_cut(bench);
    bench_open(bench);
    bench_prepare(bench); /* cuts old segments to size */
    struct sim_file *file = sim_find(bench->sim, bench_segment(bench, 1));
    assert_true(file->size < bench->options.segment_bytes);
    assert_true(file->size >= AT(4) + sizeof before);
    assert_memory_equal(file->cache + AT(4), before, 64 + 3 * (16 + 300));
    bench_free(bench);
}

static void any_flipped_bit_is_found(void **state)
{
    (void)state;
    /* Of the first batch's 180 bytes; a durable one follows. */
    for (size_t byte = 0; byte < 64 + 16 + 100; byte++) {
        struct bench *bench = bench_new(103);
        bench_open(bench);
        bench_fill(bench, 1, 3, 100);
        bench_kill(bench);
        const char *name = bench_segment(bench, 1);
        unsigned char value = sim_find(bench->sim, name)->cache[AT(1) + byte];
        value = (unsigned char)(value ^ 1u << byte % 8);
        sim_poke(bench->sim, name, AT(1) + byte, &value, 1);
        bench_power_cut(bench);
        bench_refused(bench, "00000000000000000001.seg at 4096");
        bench_free(bench);
    }
}

static void rot_in_the_middle_is_named_and_nothing_changed(void **state)
{
    (void)state;
    struct bench *bench = bench_new(104);
    bench_open(bench);
    bench_fill(bench, 1, 100, 100);
    bench_power_cut(bench);
    const char *name = bench_segment(bench, 1);
    sim_poke(bench->sim, name, AT(30) + 90, "xx", 2);
    struct sim_file *file = sim_find(bench->sim, name);
    unsigned char *before = malloc(file->size);
    memcpy(before, file->cache, file->size);
    size_t size = file->size;
    bench_refused(bench, "00000000000000000001.seg at 18944");
    assert_non_null(strstr(bench->err.text, "records that fail their checksums"));
    bench_refused(bench, "at 18944");
    file = sim_find(bench->sim, name);
    assert_int_equal(file->size, size);
    assert_memory_equal(file->cache, before, size);
    free(before);
    bench_free(bench);
}

static void rot_at_the_end_of_a_sealed_segment(void **state)
{
    (void)state;
    struct bench *bench = bench_new(105);
    bench_open(bench);
    bench_fill(bench, 1, 100, 100); /* 56 a segment */
    bench_power_cut(bench);
    sim_poke(bench->sim, bench_segment(bench, 1), AT(56), "xx", 2);
    bench_refused(bench, "00000000000000000001.seg at");
    bench_free(bench);
}

static void rot_in_the_last_batch_is_told_by_the_shared_map(void **state)
{
    (void)state;
    struct bench *bench = bench_new(106);
    bench_open(bench);
    bench_fill(bench, 1, 3, 100);
    bench_kill(bench); /* no power cut: the map still says that 3 was durable */
    sim_poke(bench->sim, bench_segment(bench, 1), AT(3) + 100, "xx", 2);
    bench_refused(bench, "00000000000000000001.seg at 5120");
    /* After a boot nobody can tell it from a write that was not acknowledged. */
    bench_power_cut(bench);
    bench_open(bench);
    bench_expect_all(bench, 1, 2, 100);
    bench_free(bench);
}

static void a_length_that_lies(void **state)
{
    (void)state;
    const uint32_t lengths[] = {0, 101, 512, 65536, INT32_MAX, UINT32_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct bench *bench = bench_new(107);
        bench_open(bench);
        bench_fill(bench, 1, 2, 100);
        bench_power_cut(bench);
        sim_poke(bench->sim, bench_segment(bench, 1), AT(2) + 64, &lengths[i], 4);
        bench_open(bench);
        bench_expect_all(bench, 1, 1, 100);
        bench_free(bench);
    }
}

/* A batch whose header, with a right checksum, promises more than there can be. */
static void a_batch_that_lies(void **state)
{
    (void)state;
    struct bench *bench = bench_new(108);
    bench_open(bench);
    bench_fill(bench, 1, 2, 100);
    bench_power_cut(bench);
    const char *name = bench_segment(bench, 1);
    struct wal_segment_header segment;
    struct sim_file *file = sim_find(bench->sim, name);
    assert_int_equal(wal_segment_header_decode(&segment, file->cache), 0);
    struct wal_batch_header batch = {
        .record_count = UINT32_MAX, .body_bytes = UINT32_MAX, .first_lsn = 2, .durable_lsn = 1};
    unsigned char bytes[WAL_BATCH_HEADER_BYTES];
    wal_batch_header_encode(&batch, segment.salt, AT(2), bytes);
    sim_poke(bench->sim, name, AT(2), bytes, sizeof bytes);
    bench_open(bench);
    bench_expect_all(bench, 1, 1, 100);
    bench_free(bench);
}

/* An attempt without room, then another at the same place: the same numbers, lengths and salt. What
 * a power cut mixes from both was never written by anybody. */
static void a_batch_mixed_from_two_attempts(void **state)
{
    (void)state;
    struct bench *refused = bench_new(130);
    struct bench *bench = bench_new(130);
    bench_open(refused);
    bench_open(bench);
    for (uint64_t n = 1; n <= 2; n++) {
        assert_int_equal(bench_append(refused, n + 70, 1000), 0);
        assert_int_equal(bench_append(bench, n, 1000), 0);
    }
    assert_int_equal(wal_flush(refused->wal, NULL), 0);
    assert_int_equal(wal_flush(bench->wal, NULL), 0);
    size_t second = 4096 + 64 + 16 + 1000;
    struct sim_file *file = sim_find(refused->sim, bench_segment(refused, 1));
    bench_power_cut(bench);
    sim_poke(bench->sim, bench_segment(bench, 1), second, file->cache + second, 1016);
    bench_open(bench);
    struct wal_stats stats;
    wal_stats(bench->wal, &stats);
    assert_int_equal(stats.durable_lsn, 0);
    bench_free(bench);
    bench_free(refused);
}

static void put_batch(struct bench *bench, const struct wal_batch_header *batch, size_t at)
{
    const char *name = bench_segment(bench, 1);
    struct wal_segment_header segment;
    struct wal_batch_header copy = *batch;
    unsigned char bytes[WAL_BATCH_HEADER_BYTES + WAL_RECORD_HEADER_BYTES] = {0};
    struct sim_file *file = sim_find(bench->sim, name);
    assert_int_equal(wal_segment_header_decode(&segment, file->cache), 0);
    wal_record_header_encode(bytes + WAL_BATCH_HEADER_BYTES, 0);
    copy.body_checksum =
        wal_body_seal(bytes + WAL_BATCH_HEADER_BYTES, 1, batch->first_lsn, segment.salt);
    wal_batch_header_encode(&copy, segment.salt, at, bytes);
    sim_poke(bench->sim, name, at, bytes, sizeof bytes);
}

/* All checksums fit, the numbers don't: no crash makes this. */
static void a_batch_out_of_order(void **state)
{
    (void)state;
    const struct wal_batch_header batches[] = {
        {.record_count = 1, .body_bytes = 16, .first_lsn = 4, .durable_lsn = 2},
        {.record_count = 1, .body_bytes = 16, .first_lsn = 3, .durable_lsn = 1},
        {.record_count = 1, .body_bytes = 16, .first_lsn = 2, .durable_lsn = 1},
        {.record_count = 1, .body_bytes = 16, .first_lsn = 3, .durable_lsn = 2, .flags = 1},
    };
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        struct bench *bench = bench_new(131);
        bench_open(bench);
        bench_fill(bench, 1, 2, 100);
        bench_power_cut(bench);
        put_batch(bench, &batches[i], AT(3));
        bench_refused(bench, "at 5120: a batch that belongs elsewhere");
        bench_free(bench);
    }
}

/* What may be asked of memory is known from the header alone. */
static void the_bounds_of_a_batch(void **state)
{
    (void)state;
    const struct wal_segment_header segment = {
        .segment_bytes = 65536, .block_bytes = 512, .batch_limit = 8192, .salt = 5};
    const struct {
        uint64_t offset;
        struct wal_batch_header batch;
        enum wal_place place;
    } cases[] = {
        {4096, {1, 8128, 0, 1, 0, 0, 0}, WAL_PLACE_VALID},
        {4096, {1, 8129, 0, 1, 0, 0, 0}, WAL_PLACE_HEADER},     /* over the limit */
        {65536 - 80, {1, 16, 0, 1, 0, 0, 0}, WAL_PLACE_VALID},  /* to the last byte */
        {65536 - 79, {1, 16, 0, 1, 0, 0, 0}, WAL_PLACE_HEADER}, /* past the end */
        {4096, {2, 31, 0, 1, 0, 0, 0}, WAL_PLACE_HEADER},       /* more than fit */
        {4096, {0, 16, 0, 1, 0, 0, 0}, WAL_PLACE_HEADER},       /* none */
        {4096, {UINT32_MAX, UINT32_MAX, 0, 1, 0, 0, 0}, WAL_PLACE_HEADER},
        {4096, {1, 16, 0, 5, 5, 0, 0}, WAL_PLACE_HEADER}, /* durable before itself */
        {4096, {1, 16, 0, 0, 0, 0, 0}, WAL_PLACE_HEADER}, /* number 0 */
        {4096, {1, 16, 0, INT64_MAX, 0, 0, 0}, WAL_PLACE_VALID},
        {4096, {2, 32, 0, INT64_MAX, 0, 0, 0}, WAL_PLACE_HEADER}, /* past the last number */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char bytes[WAL_BATCH_HEADER_BYTES];
        struct wal_batch_header batch;
        wal_batch_header_encode(&cases[i].batch, segment.salt, cases[i].offset, bytes);
        assert_int_equal(wal_batch_header_decode(&batch, &segment, cases[i].offset, bytes),
                         cases[i].place);
    }
}

static void stale_bytes_of_a_recycled_segment(void **state)
{
    (void)state;
    struct bench *bench = bench_new(109);
    uint64_t n = 0;
    bench_open(bench);
    bench_open_reader(bench);
    struct wal_stats stats;
    do {
        n++;
        bench_fill(bench, n, 1, 100);
        bench_expect(bench, n, 100);
        assert_int_equal(wal_reader_done(bench->reader, n, n), 0);
        wal_prepare(bench->wal);
        wal_stats(bench->wal, &stats);
    } while (stats.segments_recycled < 3 || n % 56 != 10);
    /* Behind the last record now lie old ones, whole, with right checksums of their own time. */
    bench_power_cut(bench);
    bench_open(bench);
    wal_stats(bench->wal, &stats);
    assert_int_equal(stats.durable_lsn, n);
    bench_fill(bench, n + 1, 3, 100);
    bench_open_reader(bench);
    bench_expect(bench, n + 1, 100);
    bench_free(bench);
}

static void a_batch_copied_to_another_place(void **state)
{
    (void)state;
    struct bench *bench = bench_new(110);
    bench_open(bench);
    bench_fill(bench, 1, 3, 100);
    bench_power_cut(bench);
    const char *name = bench_segment(bench, 1);
    unsigned char bytes[512];
    memcpy(bytes, sim_find(bench->sim, name)->cache + AT(2), sizeof bytes);
    sim_poke(bench->sim, name, AT(4), bytes, sizeof bytes);
    bench_open(bench);
    bench_expect_all(bench, 1, 3, 100);
    bench_free(bench);
}

static struct bench *three_segments(uint64_t seed)
{
    struct bench *bench = bench_new(seed);
    bench_open(bench);
    bench_fill(bench, 1, 150, 100);
    bench_power_cut(bench);
    return bench;
}

static void a_missing_segment(void **state)
{
    (void)state;
    struct bench *bench = three_segments(111);
    sim_remove(bench->sim, bench_segment(bench, 2));
    bench_refused(bench, "records 57 to 112");
    assert_non_null(strstr(bench->err.text, "00000000000000000003.seg"));
    bench_free(bench);
}

static void an_emptied_segment_in_the_middle(void **state)
{
    (void)state;
    struct bench *bench = three_segments(112);
    sim_cut(bench->sim, bench_segment(bench, 2), 0);
    bench_refused(bench, "records 57 to 112");
    bench_free(bench);
}

static void swapped_segments(void **state)
{
    (void)state;
    struct bench *bench = three_segments(113);
    sim_copy_file(bench->sim, bench_segment(bench, 1), "x");
    char two[40];
    snprintf(two, sizeof two, "%s", bench_segment(bench, 2));
    sim_copy_file(bench->sim, two, bench_segment(bench, 1));
    sim_copy_file(bench->sim, "x", two);
    bench_refused(bench, "00000000000000000001.seg at 24");
    bench_free(bench);
}

static void a_segment_of_another_log(void **state)
{
    (void)state;
    struct bench *bench = three_segments(114);
    struct bench *other = three_segments(115);
    struct sim_file *file = sim_find(other->sim, bench_segment(other, 2));
    sim_poke(bench->sim, bench_segment(bench, 2), 0, file->cache, file->size);
    bench_refused(bench, "another log");
    bench_free(bench);
    bench_free(other);
}

static void a_damaged_segment_header(void **state)
{
    (void)state;
    struct bench *bench = three_segments(116);
    sim_poke(bench->sim, bench_segment(bench, 3), 33, "x", 1);
    bench_refused(bench, "00000000000000000003.seg at 0");
    bench_free(bench);
}

/* A header, with a right checksum, says that records were durable which its own batches hold: the
 * log would open, take records behind numbers that never were, and not open again. */
static void a_header_that_vouches_for_too_much(void **state)
{
    (void)state;
    for (uint64_t base_lsn = 0; base_lsn <= 2; base_lsn++) {
        struct bench *bench = bench_new(132);
        struct wal_segment_header header;
        unsigned char bytes[WAL_HEADER_BYTES];
        bench_open(bench);
        bench_fill(bench, 1, 3, 100);
        bench_power_cut(bench);
        const char *name = bench_segment(bench, 1);
        assert_int_equal(wal_segment_header_decode(&header, sim_find(bench->sim, name)->cache), 0);
        header.base_lsn = base_lsn * 50;
        wal_segment_header_encode(&header, bytes);
        sim_poke(bench->sim, name, 0, bytes, sizeof bytes);
        if (base_lsn > 0) {
            bench_refused(bench, "at 4096: a batch that belongs elsewhere");
        } else {
            bench_open(bench);
        }
        bench_free(bench);
    }
}

static void a_format_of_another_version(void **state)
{
    (void)state;
    struct bench *bench = three_segments(117);
    sim_poke(bench->sim, bench_segment(bench, 3), 8, "\2", 1);
    assert_int_equal(bench_try_open(bench), -ENOTSUP);
    assert_non_null(strstr(bench->err.text, "version"));
    bench_free(bench);
}

static void an_empty_newest_segment(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 1, 4096, 32768};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct bench *bench = three_segments(118);
        sim_copy_file(bench->sim, bench_segment(bench, 1), "x");
        sim_cut(bench->sim, "x", 0);
        sim_cut(bench->sim, "x", sizes[i]);
        sim_copy_file(bench->sim, "x", bench_segment(bench, 4));
        bench_open(bench);
        bench_fill(bench, 151, 1, 100);
        bench_expect_all(bench, 1, 151, 100);
        bench_free(bench);
    }
}

static void strangers_files_are_left_alone(void **state)
{
    (void)state;
    struct bench *bench = three_segments(119);
    static const char *const names[] = {"0000000000000000001.seg",
                                        "000000000000000000001.seg",
                                        "99999999999999999999.seg",
                                        "00000000000000000001.seg.bak",
                                        "-0000000000000000001.seg",
                                        "README",
                                        "lost+found"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        sim_copy_file(bench->sim, bench_segment(bench, 1), names[i]);
    }
    bench_open(bench);
    bench_fill(bench, 151, 100, 100);
    bench_expect_all(bench, 1, 250, 100);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_non_null(sim_find(bench->sim, names[i]));
    }
    bench_free(bench);
}

static void segments_are_ordered_by_number(void **state)
{
    (void)state;
    struct bench *bench = bench_new(120);
    bench_open(bench);
    bench_fill(bench, 1, 56 * 12, 100); /* past segment 10 */
    bench_power_cut(bench);
    bench_open(bench);
    bench_expect_all(bench, 1, 56 * 12, 100);
    bench_free(bench);
}

/* The oldest segments are gone, but the cursor is not past them. */
static void the_oldest_segment_is_missing(void **state)
{
    (void)state;
    struct bench *bench = bench_new(121);
    bench_open(bench);
    bench_fill(bench, 1, 150, 100);
    bench_open_reader(bench);
    bench_expect(bench, 1, 100);
    wal_reader_done(bench->reader, 1, 1);
    bench_close_reader(bench);
    bench_power_cut(bench);
    sim_remove(bench->sim, bench_segment(bench, 1));
    bench_refused(bench, "records 2 to 56");
    bench_free(bench);
}

static void damage_to_what_is_done_does_not_matter(void **state)
{
    (void)state;
    struct bench *bench = bench_new(122);
    bench_open(bench);
    bench_open_reader(bench);
    bench_fill(bench, 1, 150, 100);
    for (uint64_t n = 1; n <= 120; n++) {
        bench_expect(bench, n, 100);
        wal_reader_done(bench->reader, n, n);
    }
    bench_close_reader(bench);
    bench_power_cut(bench);
    sim_poke(bench->sim, bench_segment(bench, 1), AT(30), "xx", 2);
    sim_remove(bench->sim, bench_segment(bench, 2));
    bench_open(bench);
    bench_expect_all(bench, 121, 150, 100);
    bench_free(bench);
}

static void the_reader_refuses_rot_too(void **state)
{
    (void)state;
    for (uint64_t count = 10; count <= 100; count += 90) { /* in one segment, in two */
        struct bench *bench = bench_new(123);
        struct wal_record record;
        bench_open(bench);
        bench_fill(bench, 1, count, 100);
        sim_poke(bench->sim, bench_segment(bench, 1), AT(5) + 70, "xx", 2);
        bench_open_reader(bench);
        for (uint64_t n = 1; n <= 4; n++) {
            bench_expect(bench, n, 100);
        }
        assert_int_equal(wal_reader_next(bench->reader, &record), -EBADMSG);
        const char *problem = wal_reader_problem(bench->reader);
        assert_non_null(strstr(problem, "00000000000000000001.seg at 6144"));
        assert_int_equal(wal_reader_next(bench->reader, &record), -EBADMSG);
        assert_int_equal(wal_reader_wait(bench->reader, 1, 1000), -EBADMSG);
        bench_free(bench);
    }
}

int main(int count, char **arguments)
{
    one_test(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(torn_at_every_byte),
        cmocka_unit_test(zero_from_every_sector),
        cmocka_unit_test(hole_inside_the_last_batch),
        cmocka_unit_test(what_was_torn_is_kept),
        cmocka_unit_test(any_flipped_bit_is_found),
        cmocka_unit_test(rot_in_the_middle_is_named_and_nothing_changed),
        cmocka_unit_test(rot_at_the_end_of_a_sealed_segment),
        cmocka_unit_test(rot_in_the_last_batch_is_told_by_the_shared_map),
        cmocka_unit_test(a_length_that_lies),
        cmocka_unit_test(a_batch_that_lies),
        cmocka_unit_test(a_batch_mixed_from_two_attempts),
        cmocka_unit_test(a_batch_out_of_order),
        cmocka_unit_test(the_bounds_of_a_batch),
        cmocka_unit_test(stale_bytes_of_a_recycled_segment),
        cmocka_unit_test(a_batch_copied_to_another_place),
        cmocka_unit_test(a_missing_segment),
        cmocka_unit_test(an_emptied_segment_in_the_middle),
        cmocka_unit_test(swapped_segments),
        cmocka_unit_test(a_segment_of_another_log),
        cmocka_unit_test(a_damaged_segment_header),
        cmocka_unit_test(a_header_that_vouches_for_too_much),
        cmocka_unit_test(a_format_of_another_version),
        cmocka_unit_test(an_empty_newest_segment),
        cmocka_unit_test(strangers_files_are_left_alone),
        cmocka_unit_test(segments_are_ordered_by_number),
        cmocka_unit_test(the_oldest_segment_is_missing),
        cmocka_unit_test(damage_to_what_is_done_does_not_matter),
        cmocka_unit_test(the_reader_refuses_rot_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

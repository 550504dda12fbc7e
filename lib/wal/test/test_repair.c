/*
 * Oracle: the test knows which records were durable, and what it destroyed. `verify` must name the
 * place and its kind, the repair must lose exactly what was destroyed, and the log that it leaves
 * must open, read, and never give a number twice; after a cut or a kill at any call it must be the
 * damaged log as it was, or the repaired one.
 */
#include "bench.h"
#include "one_test.h"

#include "wal/format.h"
#include "wal/tool/check.h"
#include "wal/tool/repair.h"

/* The first batch is at 4096; 100-byte records flushed one by one lie 512 apart, 56 a segment. */
#define AT(n)      (4096 + ((n)-1) * 512)
#define RANGES_MAX 8

struct scenario {
    const char *name;
    void (*damage)(struct bench *bench);
    const char *kind;
    uint64_t number;
    uint64_t offset;
    struct wal_done_range kept[RANGES_MAX]; /* ascending; ends with 0 */
    struct wal_done_range lost[RANGES_MAX];
    uint64_t first_unused_lsn; /* no record may ever have a lower number than this again */
    bool shared_only;          /* after a boot nobody can tell that there is damage */
};

static void fill(struct bench *bench, uint64_t count)
{
    bench_open(bench);
    bench_fill(bench, 1, count, 100);
    bench_power_cut(bench);
}

static void three(struct bench *bench)
{
    fill(bench, 150);
}

static void rot_in_the_middle(struct bench *bench)
{
    fill(bench, 100);
    sim_poke(bench->sim, bench_segment(bench, 1), AT(30) + 90, "xx", 2);
}

static void rot_of_a_header(struct bench *bench)
{
    fill(bench, 100);
    sim_poke(bench->sim, bench_segment(bench, 1), AT(30) + 9, "x", 1);
}

static void zeros_in_the_middle(struct bench *bench)
{
    unsigned char zeros[2048] = {0};
    fill(bench, 100);
    sim_poke(bench->sim, bench_segment(bench, 1), AT(10), zeros, sizeof zeros);
}

static void rot_in_many_places(struct bench *bench)
{
    fill(bench, 100);
    sim_poke(bench->sim, bench_segment(bench, 1), AT(1) + 90, "xx", 2);
    sim_poke(bench->sim, bench_segment(bench, 1), AT(7) + 90, "xx", 2);
    sim_poke(bench->sim, bench_segment(bench, 1), AT(8) + 90, "xx", 2);
    sim_poke(bench->sim, bench_segment(bench, 2), AT(14) + 90, "xx", 2);
}

static void rot_at_the_end_of_a_sealed_one(struct bench *bench)
{
    fill(bench, 100);
    sim_poke(bench->sim, bench_segment(bench, 1), AT(56), "xx", 2);
}

static void rot_in_the_last_batch(struct bench *bench)
{
    bench_open(bench);
    bench_fill(bench, 1, 3, 100);
    bench_kill(bench);
    sim_poke(bench->sim, bench_segment(bench, 1), AT(3) + 100, "xx", 2);
}

static void put_batch(struct bench *bench, const struct wal_batch_header *batch, size_t at)
{
    const char *name = bench_segment(bench, 1);
    struct wal_segment_header segment;
    struct wal_batch_header copy = *batch;
    unsigned char bytes[WAL_BATCH_HEADER_BYTES + WAL_RECORD_HEADER_BYTES + 100] = {0};
    assert_int_equal(wal_segment_header_decode(&segment, sim_find(bench->sim, name)->cache), 0);
    wal_record_header_encode(bytes + WAL_BATCH_HEADER_BYTES, 100);
    bench_payload(bytes + WAL_BATCH_HEADER_BYTES + WAL_RECORD_HEADER_BYTES, 100, batch->first_lsn);
    copy.body_checksum =
        wal_body_seal(bytes + WAL_BATCH_HEADER_BYTES, 1, batch->first_lsn, segment.salt);
    wal_batch_header_encode(&copy, segment.salt, at, bytes);
    sim_poke(bench->sim, name, at, bytes, sizeof bytes);
}

static void a_batch_too_far_on(struct bench *bench)
{
    const struct wal_batch_header batch = {
        .record_count = 1, .body_bytes = 116, .first_lsn = 4, .durable_lsn = 2};
    fill(bench, 2);
    put_batch(bench, &batch, AT(3));
}

static void a_batch_that_repeats(struct bench *bench)
{
    const struct wal_batch_header batch = {
        .record_count = 1, .body_bytes = 116, .first_lsn = 2, .durable_lsn = 1};
    fill(bench, 2);
    put_batch(bench, &batch, AT(3));
}

static void a_missing_segment(struct bench *bench)
{
    three(bench);
    sim_remove(bench->sim, bench_segment(bench, 2));
}

static void an_emptied_segment(struct bench *bench)
{
    three(bench);
    sim_cut(bench->sim, bench_segment(bench, 2), 0);
}

static void a_cut_segment(struct bench *bench)
{
    three(bench);
    sim_cut(bench->sim, bench_segment(bench, 2), AT(10) + 20);
}

static void swapped_segments(struct bench *bench)
{
    char two[40];
    three(bench);
    sim_copy_file(bench->sim, bench_segment(bench, 1), "x");
    snprintf(two, sizeof two, "%s", bench_segment(bench, 2));
    sim_copy_file(bench->sim, two, bench_segment(bench, 1));
    sim_copy_file(bench->sim, "x", two);
}

static void another_log(struct bench *bench, unsigned number)
{
    struct bench *other = bench_new(115);
    three(bench);
    three(other);
    struct sim_file *file = sim_find(other->sim, bench_segment(other, number));
    sim_poke(bench->sim, bench_segment(bench, number), 0, file->cache, file->size);
    bench_free(other);
}

static void the_second_of_another_log(struct bench *bench)
{
    another_log(bench, 2);
}

static void the_first_of_another_log(struct bench *bench)
{
    bench->options.first_lsn = 1;
    another_log(bench, 1);
}

static void a_damaged_salt(struct bench *bench)
{
    three(bench);
    sim_poke(bench->sim, bench_segment(bench, 2), 33, "x", 1);
}

static void a_damaged_header_with_its_salt(struct bench *bench)
{
    three(bench);
    sim_poke(bench->sim, bench_segment(bench, 2), 50, "x", 1);
}

static void the_oldest_is_missing(struct bench *bench)
{
    bench_open(bench);
    bench_fill(bench, 1, 150, 100);
    bench_open_reader(bench);
    bench_expect(bench, 1, 100);
    assert_int_equal(wal_reader_done(bench->reader, 1, 1), 0);
    bench_close_reader(bench);
    bench_open_reader(bench); /* both slots are written */
    bench_expect(bench, 2, 100);
    bench_expect(bench, 3, 100);
    bench_expect(bench, 4, 100);
    assert_int_equal(wal_reader_done(bench->reader, 4, 4), 0);
    bench_close_reader(bench);
    bench_power_cut(bench);
    sim_remove(bench->sim, bench_segment(bench, 1));
}

/* Done: 1 to 20, 25, 80. */
static void rot_around_what_is_done(struct bench *bench)
{
    bench_open(bench);
    bench_fill(bench, 1, 100, 100);
    bench_open_reader(bench);
    for (uint64_t n = 1; n <= 80; n++) {
        bench_expect(bench, n, 100);
    }
    assert_int_equal(wal_reader_done(bench->reader, 1, 20), 0);
    assert_int_equal(wal_reader_done(bench->reader, 25, 25), 0);
    assert_int_equal(wal_reader_done(bench->reader, 80, 80), 0);
    bench_close_reader(bench);
    bench_power_cut(bench);
    for (uint64_t n = 20; n <= 26; n++) {
        sim_poke(bench->sim, bench_segment(bench, 1), AT(n) + 90, "xx", 2);
    }
    sim_poke(bench->sim, bench_segment(bench, 2), AT(80 - 56) + 90, "xx", 2);
}

static void the_cursor_is_behind_all_that_is_left(struct bench *bench)
{
    bench_open(bench);
    bench_fill(bench, 1, 150, 100);
    bench_open_reader(bench);
    for (uint64_t n = 1; n <= 130; n++) {
        bench_expect(bench, n, 100);
        assert_int_equal(wal_reader_done(bench->reader, n, n), 0);
    }
    bench_close_reader(bench);
    bench_power_cut(bench);
    sim_remove(bench->sim, bench_segment(bench, 3)); /* the cursor's */
    sim_poke(bench->sim, bench_segment(bench, 2), AT(3) + 90, "xx", 2);
}

static void nothing_is_left(struct bench *bench)
{
    bench_open(bench);
    bench_fill(bench, 1, 3, 100);
    bench_open_reader(bench);
    bench_expect(bench, 1, 100);
    assert_int_equal(wal_reader_done(bench->reader, 1, 1), 0);
    bench_close_reader(bench);
    bench_power_cut(bench);
    sim_poke(bench->sim, bench_segment(bench, 1), 33, "x", 1);
}

static const struct scenario scenarios[] = {
    {"rot in the middle",
     rot_in_the_middle,
     "batch-body",
     1,
     AT(30),
     {{1, 29}, {31, 100}},
     {{30, 30}},
     101,
     false},
    {"rot of a batch header",
     rot_of_a_header,
     "batch-header",
     1,
     AT(30),
     {{1, 29}, {31, 100}},
     {{30, 30}},
     101,
     false},
    {"zeros in the middle",
     zeros_in_the_middle,
     "batch-zero",
     1,
     AT(10),
     {{1, 9}, {14, 100}},
     {{10, 13}},
     101,
     false},
    {"rot in many places",
     rot_in_many_places,
     "batch-body",
     1,
     AT(1),
     {{2, 6}, {9, 69}, {71, 100}},
     {{7, 8}, {70, 70}},
     101,
     false},
    {"rot at the end of a sealed segment",
     rot_at_the_end_of_a_sealed_one,
     "batch-header",
     1,
     AT(56),
     {{1, 55}, {57, 100}},
     {{56, 56}},
     101,
     false},
    {"rot in the last batch",
     rot_in_the_last_batch,
     "end-missing",
     1,
     AT(3),
     {{1, 2}},
     {{3, 3}},
     4,
     true},
    {"a batch too far on",
     a_batch_too_far_on,
     "batch-order",
     1,
     AT(3),
     {{1, 2}, {4, 4}},
     {{3, 3}},
     5,
     false},
    {"a batch that repeats",
     a_batch_that_repeats,
     "batch-order",
     1,
     AT(3),
     {{1, 2}},
     {{0, 0}},
     3,
     false},
    {"a missing segment",
     a_missing_segment,
     "records-missing",
     3,
     4096,
     {{1, 56}, {113, 150}},
     {{57, 112}},
     151,
     false},
    {"an emptied segment",
     an_emptied_segment,
     "records-missing",
     3,
     4096,
     {{1, 56}, {113, 150}},
     {{57, 112}},
     151,
     false},
    {"a segment cut short",
     a_cut_segment,
     "batch-header",
     2,
     AT(10),
     {{1, 65}, {113, 150}},
     {{66, 112}},
     151,
     false},
    {"swapped segments",
     swapped_segments,
     "segment-of-another-number",
     1,
     24,
     {{1, 150}},
     {{0, 0}},
     151,
     false},
    {"a segment of another log",
     the_second_of_another_log,
     "segment-of-another-log",
     2,
     16,
     {{1, 56}, {113, 150}},
     {{57, 112}},
     151,
     false},
    {"the first segment of another log",
     the_first_of_another_log,
     "segment-of-another-log",
     2,
     16,
     {{57, 150}},
     {{0, 0}},
     151,
     false},
    {"a damaged salt",
     a_damaged_salt,
     "segment-header",
     2,
     0,
     {{1, 56}, {113, 150}},
     {{57, 112}},
     151,
     false},
    {"a damaged header with its salt",
     a_damaged_header_with_its_salt,
     "segment-header",
     2,
     0,
     {{1, 150}},
     {{0, 0}},
     151,
     false},
    {"the oldest segment is missing",
     the_oldest_is_missing,
     "records-missing",
     2,
     4096,
     {{57, 150}},
     {{2, 3}, {5, 56}},
     151,
     false},
    {"rot around what is done",
     rot_around_what_is_done,
     "batch-body",
     1,
     AT(20),
     {{27, 79}, {81, 100}},
     {{21, 24}, {26, 26}},
     101,
     false},
    {"the cursor is behind all that is left",
     the_cursor_is_behind_all_that_is_left,
     "batch-body",
     2,
     AT(3),
     {{0, 0}},
     {{0, 0}},
     131,
     false},
    {"nothing is left", nothing_is_left, "segment-header", 1, 0, {{0, 0}}, {{0, 0}}, 2, false},
};

static const struct wal_vfs *vfs_of(struct bench *bench)
{
    return &bench->sim->vfs;
}

static struct bench *damaged(const struct scenario *scenario)
{
    struct bench *bench = bench_new(200);
    scenario->damage(bench);
    return bench;
}

static bool is_kept(const struct scenario *scenario, uint64_t lsn)
{
    for (int i = 0; i < RANGES_MAX; i++) {
        if (scenario->kept[i].first <= lsn && lsn <= scenario->kept[i].last) {
            return true;
        }
    }
    return false;
}

static void expect_kept(struct bench *bench, const struct scenario *scenario, uint64_t last)
{
    bench_open_reader(bench);
    for (uint64_t n = 1; n <= last; n++) {
        if (n > 0 && is_kept(scenario, n)) {
            bench_expect(bench, n, 100);
        }
    }
}

/* It opens, all that is left comes out, new records get new numbers, and it opens again. */
static void expect_repaired(struct bench *bench, const struct scenario *scenario, bool whole)
{
    struct wal_stats stats;
    bench_open(bench);
    wal_stats(bench->wal, &stats);
    if (whole) {
        assert_int_equal(stats.next_lsn, scenario->first_unused_lsn);
    }
    expect_kept(bench, scenario, 150);
    bench_expect_none(bench);
    bench_close_reader(bench);
    bench_fill(bench, stats.next_lsn, 3, 100);
    bench_kill(bench);
    for (int i = 0; i < 2; i++) {
        bench_open(bench);
        expect_kept(bench, scenario, 150);
        for (uint64_t n = stats.next_lsn; n < stats.next_lsn + 3; n++) {
            bench_expect(bench, n, 100);
        }
        bench_expect_none(bench);
        bench_power_cut(bench);
    }
}

static void expect_ranges(const struct wal_repair_ranges *ranges, const struct wal_done_range *list)
{
    size_t count = 0;
    while (count < RANGES_MAX && list[count].first > 0 && list[count].first <= list[count].last) {
        count++;
    }
    assert_int_equal(ranges->count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(ranges->list[i].first, list[i].first);
        assert_int_equal(ranges->list[i].last, list[i].last);
    }
}

static void each_damage_is_named_and_repaired(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        const struct scenario *scenario = &scenarios[i];
        struct bench *bench = damaged(scenario);
        struct wal_repair repair;
        print_message("%s\n", scenario->name);
        int result = wal_repair_plan(&repair, vfs_of(bench), DIR_NAME, &bench->err);
        assert_int_equal(result, 1);
        print_message("  %s\n", repair.check.text.text);
        assert_string_equal(wal_damage_word(&repair.check.damage), scenario->kind);
        assert_int_equal(repair.check.damage.number, scenario->number);
        assert_int_equal(repair.check.damage.offset, scenario->offset);
        assert_int_equal(bench_try_open(bench), -EBADMSG);
        assert_string_equal(bench->err.text, repair.check.text.text);
        expect_ranges(&repair.lost, scenario->lost);
        result = wal_repair_apply(&repair, &bench->err);
        if (result < 0) {
            fail_msg("wal_repair_apply: %d: %s", result, bench->err.text);
        }
        wal_repair_free(&repair);
        assert_int_equal(wal_repair_plan(&repair, vfs_of(bench), DIR_NAME, &bench->err), 0);
        wal_repair_free(&repair);
        expect_repaired(bench, scenario, true);
        bench_free(bench);
    }
}

/* The same damage as before, or none, and then all that could be kept is there. */
static void expect_old_or_repaired(struct bench *bench, const struct scenario *scenario, bool boot)
{
    struct wal_repair repair;
    int result = wal_repair_plan(&repair, vfs_of(bench), DIR_NAME, &bench->err);
    assert_true(result >= 0);
    bool again = result == 1;
    if (again) {
        bool same = strcmp(wal_damage_word(&repair.check.damage), scenario->kind) == 0 &&
                    repair.check.damage.number == scenario->number &&
                    repair.check.damage.offset == scenario->offset;
        /* Without the strangers, another place is the first; a process that dies before the shared
         * page goes leaves that one's claim. */
        bool without = strcmp(scenario->kind, "segment-of-another-log") == 0 &&
                       repair.check.damage.kind == WAL_DAMAGE_GAP;
        bool claim = !boot && repair.check.damage.kind == WAL_DAMAGE_SHORT;
        /* The cursor's write was torn: with half a cursor wal_open does not miss the oldest
         * segment, and stops at the new ones, which repeat the old. */
        bool half = repair.salvage.cursor_slots < 2 && repair.check.damage.number > 3 &&
                    repair.check.damage.kind == WAL_DAMAGE_BATCH;
        if (!same && !without && !claim && !half) {
            fail_msg("neither the old nor the repaired log: %s", repair.check.text.text);
        }
        result = wal_repair_apply(&repair, &bench->err);
        if (result < 0) {
            fail_msg("again: %d: %s", result, bench->err.text);
        }
    }
    wal_repair_free(&repair);
    if (result == 0 && again) {
        assert_int_equal(sim_count(bench->sim, ".tmp"), 0); /* nothing of the first try is left */
    }
    expect_repaired(bench, scenario, !scenario->shared_only);
}

static void a_cut_at_every_call(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        const struct scenario *scenario = &scenarios[i];
        unsigned cuts = 0;
        int result = -1;
        for (uint64_t cut = 1; result < 0; cut++) {
            for (int boot = 0; boot < 2; boot++) {
                struct bench *bench = damaged(scenario);
                struct wal_repair repair;
                assert_int_equal(wal_repair_plan(&repair, vfs_of(bench), DIR_NAME, &bench->err), 1);
                bench->sim->random += cut * 7919;
                bench->sim->cut_after = cut;
                result = wal_repair_apply(&repair, &bench->err);
                bench->sim->cut_after = 0;
                wal_repair_free(&repair);
                if (boot) {
                    sim_power_cut(bench->sim);
                } else {
                    sim_kill(bench->sim);
                }
                expect_old_or_repaired(bench, scenario, boot);
                bench_free(bench);
                cuts++;
            }
        }
        print_message("%s: %u cuts\n", scenario->name, cuts);
    }
}

/* A call that fails leaves what was there, and a second try succeeds. */
static void every_call_fails_once(void **state)
{
    (void)state;
    const struct scenario *scenario = &scenarios[0];
    bool failed = true;
    for (unsigned nth = 0; failed; nth++) {
        struct bench *bench = damaged(scenario);
        struct wal_repair repair;
        assert_int_equal(wal_repair_plan(&repair, vfs_of(bench), DIR_NAME, &bench->err), 1);
        bench->sim->fail_calls = SIM_ANY;
        bench->sim->fail_after = nth;
        bench->sim->fail_count = 1;
        bench->sim->fail_code = -ENOSPC;
        int result = wal_repair_apply(&repair, &bench->err);
        if (result < 0) {
            assert_true(strlen(bench->err.text) > 20);
        }
        failed = bench->sim->fail_count == 0; /* some failures do no harm */
        bench->sim->fail_calls = 0;
        bench->sim->fail_count = 0;
        wal_repair_free(&repair);
        assert_int_equal(sim_count(bench->sim, ".tmp"), 0); /* it cleans up after itself */
        expect_old_or_repaired(bench, scenario, false);
        bench_free(bench);
    }
}

/* More holes than the cursor has ranges: what is left is kept all the same, and no number comes
 * twice. */
static void more_holes_than_the_cursor_can_note(void **state)
{
    (void)state;
    struct bench *bench = bench_new(210);
    struct wal_repair repair;
    struct wal_stats stats;
    const uint64_t count = 56 * 12;
    fill(bench, count);
    for (uint64_t n = 2; n <= count; n += 2) {
        unsigned number = (unsigned)((n - 1) / 56 + 1);
        sim_poke(bench->sim, bench_segment(bench, number), AT((n - 1) % 56 + 1) + 90, "xx", 2);
    }
    assert_int_equal(wal_repair_plan(&repair, vfs_of(bench), DIR_NAME, &bench->err), 1);
    /* Each odd one needs a segment of its own: more files than the disk in memory has names for. */
    assert_int_equal(repair.kept_records, count / 2);
    assert_int_equal(repair.lost_records, count / 2 - 1);
    assert_int_equal(repair.cursor.done_count, 240);
    assert_int_equal(repair.cursor.done[239].last, count - 2);
    wal_repair_free(&repair);
    (void)stats;
    bench_free(bench);
}

static void what_is_no_log_is_not_touched(void **state)
{
    (void)state;
    struct bench *bench = bench_new(211);
    struct wal_repair repair;
    assert_int_equal(bench->sim->vfs.make_dir(&bench->sim->vfs, DIR_NAME), 0);
    assert_int_equal(wal_repair_plan(&repair, vfs_of(bench), DIR_NAME, &bench->err), -ENODATA);
    wal_repair_free(&repair);
    three(bench);
    sim_poke(bench->sim, bench_segment(bench, 3), 8, "\2", 1);
    assert_int_equal(wal_repair_plan(&repair, vfs_of(bench), DIR_NAME, &bench->err), -ENOTSUP);
    assert_non_null(strstr(bench->err.text, "00000000000000000003.seg"));
    wal_repair_free(&repair);
    for (unsigned i = 1; i <= 3; i++) {
        sim_poke(bench->sim, bench_segment(bench, i), 8, "\1", 1);
        sim_poke(bench->sim, bench_segment(bench, i), 0, "x", 1);
    }
    assert_int_equal(wal_repair_plan(&repair, vfs_of(bench), DIR_NAME, &bench->err), -ENOMSG);
    wal_repair_free(&repair);
    bench_free(bench);
}

int main(int count, char **arguments)
{
    one_test(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_damage_is_named_and_repaired),
        cmocka_unit_test(a_cut_at_every_call),
        cmocka_unit_test(every_call_fails_once),
        cmocka_unit_test(more_holes_than_the_cursor_can_note),
        cmocka_unit_test(what_is_no_log_is_not_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

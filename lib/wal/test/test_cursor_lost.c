/*
 * Oracle: a log whose cursor is lost is read again from the oldest record there is: what the reader
 * was done with may come again, what it was not done with must come, in order and with its bytes,
 * and neither side refuses. Every way to lose the cursor, with every state of the shared map, with
 * a log that the reader has done nothing, a part, or all of, and with the reader dead or alive.
 */
#include "bench.h"
#include "one_test.h"

#include "wal/probe.h"

enum loss {
    LOSS_REMOVED,
    LOSS_EMPTIED,
    LOSS_CUT,
    LOSS_ZEROED,
    LOSS_JUNK,
    LOSS_SLOT_0_JUNK,
    LOSS_SLOT_1_JUNK,
    LOSS_SLOT_0_ZEROED,
    LOSS_SLOT_1_ZEROED,
    LOSS_SLOT_0_TORN,
    LOSS_SLOT_1_TORN,
    LOSSES
};
enum map { MAP_CURRENT, MAP_STALE, MAP_ABSENT, MAPS };

/* The life that runs, for who looks into a failure. */
static char lived[120];

static void say_life(void)
{
    if (lived[0] != '\0') {
        fprintf(stderr, "failed in: %s\n", lived);
    }
}

struct life {
    enum loss loss;
    enum map map;
    uint64_t records;
    uint64_t done;
    bool reader_lives; /* over the loss and the writer's next start */
    bool housekeeping; /* what is done has been removed or recycled before the loss */
};

static void spoil(struct bench *bench, size_t from, size_t count, bool junk)
{
    for (size_t i = from; i < from + count; i++) {
        unsigned char value = junk ? (unsigned char)(i * 131 + 7) : 0;
        sim_poke(bench->sim, "cursor", i, &value, 1);
    }
}

static void lose_cursor(struct bench *bench, enum loss loss)
{
    if (sim_find(bench->sim, "cursor") == NULL) {
        return; /* the reader never asked for anything */
    }
    switch (loss) {
    case LOSS_REMOVED:
        sim_remove(bench->sim, "cursor");
        break;
    case LOSS_EMPTIED:
        sim_cut(bench->sim, "cursor", 0);
        break;
    case LOSS_CUT:
        sim_cut(bench->sim, "cursor", 30);
        break;
    case LOSS_ZEROED:
    case LOSS_JUNK:
        spoil(bench, 0, 8192, loss == LOSS_JUNK);
        break;
    case LOSS_SLOT_0_JUNK:
    case LOSS_SLOT_1_JUNK:
        spoil(bench, loss == LOSS_SLOT_1_JUNK ? 4096 : 0, 4096, true);
        break;
    case LOSS_SLOT_0_ZEROED:
    case LOSS_SLOT_1_ZEROED:
        spoil(bench, loss == LOSS_SLOT_1_ZEROED ? 4096 : 0, 4096, false);
        break;
    case LOSS_SLOT_0_TORN:
    case LOSS_SLOT_1_TORN:
        spoil(bench, loss == LOSS_SLOT_1_TORN ? 4096 + 20 : 20, 30, true);
        break;
    case LOSSES:
        break;
    }
}

static void read_some(struct bench *bench, uint64_t first, uint64_t last)
{
    for (uint64_t n = first; n <= last; n++) {
        bench_expect(bench, n, 600);
        assert_int_equal(wal_reader_done(bench->reader, n, n), 0);
    }
}

/* All that is there, from any number on that leaves out nothing but what was done. */
static void read_rest(struct bench *bench, const struct life *life, uint64_t last)
{
    struct wal_record record;
    unsigned char bytes[8192];
    uint64_t expected = 0;
    int result;
    while ((result = wal_reader_next(bench->reader, &record)) == 1) {
        assert_true(expected == 0 ? record.lsn <= life->done + 1 : record.lsn == expected);
        bench_payload(bytes, 600, record.lsn);
        assert_int_equal(record.count, 600);
        assert_memory_equal(record.bytes, bytes, 600);
        assert_int_equal(wal_reader_done(bench->reader, record.lsn, record.lsn), 0);
        expected = record.lsn + 1;
        bench_prepare(bench);
    }
    if (result < 0) {
        fail_msg("wal_reader_next says %d: %s", result, wal_reader_problem(bench->reader));
    }
    assert_true(expected == last + 1 || (expected == 0 && life->done >= last));
}

static void kill_writer(struct bench *bench)
{
    bench->sim->dead = true;
    wal_close(bench->wal);
    bench->wal = NULL;
    bench->sim->dead = false;
}

static void live(const struct life *life, uint64_t seed)
{
    struct bench *bench = bench_new(seed);
    struct wal_stats stats;
    snprintf(lived, sizeof lived, "seed %u loss %d map %d records %u done %u lives %d kept %d",
             (unsigned)seed, (int)life->loss, (int)life->map, (unsigned)life->records,
             (unsigned)life->done, life->reader_lives, life->housekeeping);
    bench->options.segment_bytes = 16384;
    bench_open(bench);
    bench_open_reader(bench);
    uint64_t read = 0;
    for (uint64_t n = 1; n <= life->records; n++) {
        bench_fill(bench, n, 1, 600);
        if (n <= life->done) {
            read_some(bench, n, n);
            read = n;
        }
        if (life->housekeeping) {
            bench_prepare(bench);
        }
    }
    assert_int_equal(read, life->done);
    if (life->reader_lives) {
        kill_writer(bench);
    } else {
        bench_kill(bench);
    }
    if (life->map == MAP_STALE) {
        bench->sim->boot_id[3] ^= 1u;
    } else if (life->map == MAP_ABSENT) {
        sim_remove(bench->sim, "shared");
    }
    lose_cursor(bench, life->loss);
    bench_open(bench);
    wal_stats(bench->wal, &stats);
    /* Without map and cursor nobody knows the numbers of records that are done and gone. */
    assert_true(stats.durable_lsn == life->records ||
                (life->map != MAP_CURRENT && life->done == life->records &&
                 stats.durable_lsn < life->records));
    uint64_t last = stats.durable_lsn;
    if (life->reader_lives) {
        /* What it says it is done with, while the writer is on its way, must not be missed. */
        read_some(bench, life->done + 1, last);
        bench_close_reader(bench);
        bench_prepare(bench);
        bench_fill(bench, last + 1, 1, 600);
        last++;
    }
    struct life rest = *life;
    rest.done = life->reader_lives ? last - 1 : life->done;
    if (!life->reader_lives) {
        bench_prepare(bench); /* before the reader has said where it starts */
    }
    bench_open_reader(bench);
    read_rest(bench, &rest, last);
    bench_fill(bench, last + 1, 40, 600);
    rest.done = last;
    read_rest(bench, &rest, last + 40);
    bench_kill(bench);
    bench_open(bench);
    bench_expect_all(bench, last + 41, last + 40, 600);
    bench_free(bench);
    lived[0] = '\0';
}

static void nothing_is_lost_nor_refused(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {3, 20, 50, 90};
    for (int loss = 0; loss < LOSSES; loss++) {
        for (int map = 0; map < MAPS; map++) {
            for (size_t size = 0; size < 4; size++) {
                for (int part = 0; part < 4; part++) {
                    for (int flags = 0; flags < 4; flags++) {
                        uint64_t records = sizes[size];
                        struct life life = {
                            .loss = (enum loss)loss,
                            .map = (enum map)map,
                            .records = records,
                            .done = part == 0   ? 0
                                    : part == 1 ? records / 2
                                    : part == 2 ? records - 1
                                                : records,
                            .reader_lives = (flags & 1) != 0,
                            .housekeeping = (flags & 2) != 0,
                        };
                        if (life.reader_lives && life.map != MAP_CURRENT) {
                            continue; /* no process outlives a boot, or sees another map */
                        }
                        live(&life, (uint64_t)(loss * 100 + map * 10) + size);
                    }
                }
            }
        }
    }
}

/* The writer removes leftovers after it has read the log and before it starts its segment: at that
 * moment the reader, which outlived the last writer, says that all is done. */
static struct bench *hasty;
static int (*hasty_unlink_inner)(const struct wal_vfs *, const char *);

static int hasty_unlink(const struct wal_vfs *vfs, const char *path)
{
    hasty->sim->vfs.unlink = hasty_unlink_inner;
    for (uint64_t n = 2; n <= 15; n++) {
        assert_int_equal(wal_reader_done(hasty->reader, n, n), 0);
    }
    return hasty_unlink_inner(vfs, path);
}

static void the_reader_is_done_while_the_writer_opens(void **state)
{
    (void)state;
    struct bench *bench = bench_new(2000);
    bench_open(bench);
    bench_fill(bench, 1, 15, 600);
    bench_open_reader(bench);
    for (uint64_t n = 1; n <= 15; n++) {
        bench_expect(bench, n, 600);
    }
    assert_int_equal(wal_reader_done(bench->reader, 1, 1), 0);
    kill_writer(bench);
    hasty = bench;
    hasty_unlink_inner = bench->sim->vfs.unlink;
    bench->sim->vfs.unlink = hasty_unlink;
    bench_open(bench);
    assert_ptr_equal(bench->sim->vfs.unlink, hasty_unlink_inner);
    bench_prepare(bench);
    bench_fill(bench, 16, 3, 600);
    bench_expect(bench, 16, 600);
    bench_free(bench);
}

/* The disk has lost the last batches, and the cursor knows one of them as done, out of order: the
 * numbers between are left out, and what is written then must be read after the next start. */
static void done_beyond_the_end_of_the_log(void **state)
{
    (void)state;
    unsigned char zeros[1024] = {0};
    struct bench *bench = bench_new(140);
    struct wal_stats stats;
    bench_open(bench);
    bench_fill(bench, 1, 10, 100);
    bench_open_reader(bench);
    for (uint64_t n = 1; n <= 10; n++) {
        bench_expect(bench, n, 100);
    }
    assert_int_equal(wal_reader_done(bench->reader, 1, 5), 0);
    assert_int_equal(wal_reader_done(bench->reader, 10, 10), 0);
    bench_close_reader(bench);
    bench_power_cut(bench);
    sim_poke(bench->sim, bench_segment(bench, 1), 4096 + 8 * 512, zeros, sizeof zeros);
    for (int life = 0; life < 3; life++) {
        bench_open(bench);
        wal_stats(bench->wal, &stats);
        assert_int_equal(stats.next_lsn, 11 + 2 * life);
        bench_fill(bench, stats.next_lsn, 2, 100);
        bench_power_cut(bench);
    }
    bench_open(bench);
    bench_open_reader(bench);
    for (uint64_t n = 6; n <= 16; n++) {
        if (n != 9 && n != 10) {
            bench_expect(bench, n, 100);
        }
    }
    bench_expect_none(bench);
    bench_free(bench);
}

/* The reader, its cursor lost, looks for the oldest record; the writer, which has been running
 * all the time, tidies up at that moment. */
static ssize_t (*tidy_inner)(const struct wal_vfs *, int, const struct iovec *, int, uint64_t);

static ssize_t tidy_first(const struct wal_vfs *vfs, int file, const struct iovec *parts, int count,
                          uint64_t offset)
{
    hasty->sim->vfs.pwritev = tidy_inner;
    bench_prepare(hasty);
    return tidy_inner(vfs, file, parts, count, offset);
}

static void the_writer_tidies_up_while_the_reader_looks(void **state)
{
    (void)state;
    struct bench *bench = bench_new(2100);
    bench->options.segment_bytes = 16384;
    bench_open(bench);
    bench_fill(bench, 1, 60, 600);
    bench_open_reader(bench);
    read_some(bench, 1, 50);
    bench_close_reader(bench);
    lose_cursor(bench, LOSS_ZEROED);
    hasty = bench;
    tidy_inner = bench->sim->vfs.pwritev;
    bench->sim->vfs.pwritev = tidy_first;
    bench_open_reader(bench);
    const struct life life = {.done = 50};
    read_rest(bench, &life, 60);
    assert_ptr_equal(bench->sim->vfs.pwritev, tidy_inner);
    bench_free(bench);
}

/* What will come again counts as waiting from the writer's next start on. */
static void the_lag_of_a_lost_cursor(void **state)
{
    (void)state;
    struct bench *bench = bench_new(2200);
    struct wal_probe *probe;
    struct wal_probe_stats stats;
    bench_open(bench);
    bench_fill(bench, 1, 20, 600);
    bench_open_reader(bench);
    read_some(bench, 1, 15);
    bench_kill(bench);
    lose_cursor(bench, LOSS_ZEROED);
    bench_open(bench);
    assert_int_equal(wal_probe_open(DIR_NAME, &bench->sim->vfs, &probe, &bench->err), 0);
    assert_int_equal(wal_probe_read(probe, &stats, &bench->err), 0);
    assert_int_equal(stats.lag_records, 20);
    wal_probe_close(probe);
    bench_open_reader(bench);
    const struct life life = {.done = 15};
    read_rest(bench, &life, 20);
    bench_free(bench);
}

/* Segments are removed, power is lost, and with it any of the removals, and the cursor: what is
 * back must not look as if something in its midst were missing. */
static void removed_segments_come_back_in_order(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct bench *bench = bench_new(3000 + seed);
        bench->options.segment_bytes = 16384;
        bench_open(bench);
        bench_fill(bench, 1, 60, 600);
        bench_close(bench);
        bench->options.segment_bytes = 32768; /* the old ones are not of a size to be recycled */
        bench_open(bench);
        bench_fill(bench, 61, 3, 600);
        bench_open_reader(bench);
        read_some(bench, 1, 60);
        for (uint64_t steps = 1 + seed % 6; steps > 0; steps--) {
            wal_prepare(bench->wal);
        }
        bench_power_cut(bench);
        sim_remove(bench->sim, "cursor");
        bench_open(bench);
        bench_open_reader(bench);
        const struct life life = {.done = 60};
        read_rest(bench, &life, 63);
        bench_free(bench);
    }
}

int main(int count, char **arguments)
{
    one_test(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_lost_nor_refused),
        cmocka_unit_test(the_reader_is_done_while_the_writer_opens),
        cmocka_unit_test(done_beyond_the_end_of_the_log),
        cmocka_unit_test(the_writer_tidies_up_while_the_reader_looks),
        cmocka_unit_test(the_lag_of_a_lost_cursor),
        cmocka_unit_test(removed_segments_come_back_in_order),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    say_life();
    return failed;
}

/*
 * Oracle: a model of the log in a few arrays. Whatever was reported durable must be read again,
 * with its bytes, in order, under its number; nothing else may be read but records whose flush
 * failed, and those only at once after the next open; the log opens whatever was cut, and with
 * whatever is left of the cursor; numbers never run back, but those of records that are done and
 * whose cursor is lost; the reader never passes what is durable.
 *
 * Each seed is a life of crashes. A failing seed is printed and runs alone: test_simulate SEED;
 * test_simulate FIRST LAST [PROCESSES] runs many.
 */
#include "sim.h"

#include "wal/probe.h"
#include "wal/reader.h"
#include "wal/wal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DIR_NAME   "log"
#define RECORDS    20000
#define RECORD_MAX 3000
#define PENDING    4096
#define FAILURES   5 /* so many, and it ends */

/* What was done, over all seeds of a process. */
struct tally {
    uint64_t seeds;
    uint64_t failures;
    uint64_t opens;
    uint64_t delivered;
    uint64_t power_cuts;
    uint64_t cuts_in_recovery; /* within wal_open */
    uint64_t cuts_in_attach;   /* within the reader's open or first look */
    uint64_t kills;
};

struct record {
    uint64_t serial; /* 0: none */
    bool delivered;
    bool done; /* asked for, at least */
};

struct world {
    uint64_t seed;
    struct sim *sim;
    struct wal_options options;
    struct wal_reader_options reader_options;
    struct wal *wal;
    struct wal_reader *reader;
    struct record records[RECORDS]; /* by number: durable */
    uint64_t acked;                 /* all up to it are durable */
    uint64_t pending[PENDING];      /* serials queued, of acked + 1 on */
    uint64_t pending_count;
    uint64_t maybe[PENDING]; /* serials whose flush failed, of acked + 1 on */
    uint64_t maybe_count;
    uint64_t serial;
    uint64_t expected; /* the reader's next new number; 0: whatever comes first */
    uint64_t out[PENDING];
    uint64_t out_count;
    uint64_t delivered;
    struct tally *tally;
    bool broken;
    bool cursor_lost; /* since the writer was opened last */
    bool failed;
};

#define CHECK(world, condition, ...)                                                               \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "seed %" PRIu64 ": %s:%d: %s: ", (world)->seed, __FILE__, __LINE__,    \
                    #condition);                                                                   \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fprintf(stderr, "\n");                                                                 \
            (world)->failed = true;                                                                \
            return;                                                                                \
        }                                                                                          \
    } while (0)

static uint64_t chance(struct world *world, uint64_t below)
{
    return sim_random(world->sim, below);
}

/* A payload is a function of its serial. */
static size_t payload(uint64_t serial, unsigned char *bytes)
{
    uint64_t z = serial * 0x9E3779B97F4A7C15u;
    z ^= z >> 29;
    size_t size;
    switch (z % 8) {
    case 0:
        size = 8;
        break;
    case 1:
        size = RECORD_MAX;
        break;
    case 2:
        size = 8 + (z >> 8) % (RECORD_MAX - 8);
        break;
    default:
        size = 8 + (z >> 8) % 400;
    }
    memcpy(bytes, &serial, 8);
    for (size_t i = 8; i < size; i++) {
        z = z * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (unsigned char)(z >> 56);
    }
    return size;
}

static void take_acked(struct world *world, const uint64_t *serials, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        world->records[world->acked + 1].serial = serials[i];
        world->acked++;
    }
}

static void step_append(struct world *world)
{
    unsigned char bytes[RECORD_MAX];
    if (world->pending_count == PENDING || world->acked + PENDING + 2 > RECORDS) {
        return;
    }
    uint64_t serial = ++world->serial;
    uint64_t lsn;
    size_t size = payload(serial, bytes);
    int result = wal_append(world->wal, bytes, size, &lsn);
    CHECK(world,
          result == 0 || result == -EAGAIN || result == -ENOSPC || result == -EDQUOT ||
              (result == -EIO && world->broken),
          "append says %d", result);
    if (result == 0) {
        CHECK(world, lsn == world->acked + world->pending_count + 1, "number %" PRIu64, lsn);
        world->pending[world->pending_count++] = serial;
    }
}

static void settle(struct world *world, int result, uint64_t durable)
{
    if (result >= 0 || durable > world->acked) {
        CHECK(world, durable >= world->acked && durable - world->acked <= world->pending_count,
              "durable %" PRIu64, durable);
        uint64_t count = durable - world->acked;
        take_acked(world, world->pending, count);
        world->pending_count -= count;
        memmove(world->pending, world->pending + count,
                world->pending_count * sizeof *world->pending);
    }
    if (result == -EIO) {
        if (!world->broken) {
            memcpy(world->maybe, world->pending, world->pending_count * sizeof *world->maybe);
            world->maybe_count = world->pending_count;
        }
        world->broken = true;
    }
    if (result < 0) {
        world->pending_count = 0;
    }
}

static void step_flush(struct world *world)
{
    uint64_t durable;
    bool was_broken = world->broken;
    int result = wal_flush(world->wal, &durable);
    CHECK(world, result >= 0 || result == -ENOSPC || result == -EDQUOT || result == -EIO,
          "flush says %d", result);
    CHECK(world, !was_broken || result == -EIO, "flush says %d after a failure", result);
    settle(world, result, durable);
}

static void close_writer(struct world *world, bool kill)
{
    if (world->wal == NULL) {
        return;
    }
    if (kill) {
        bool dead = world->sim->dead;
        world->sim->dead = true;
        wal_close(world->wal);
        world->sim->dead = dead;
        world->pending_count = 0; /* never written */
    } else {
        /* wal_close would do the same, but not tell how far it came. */
        uint64_t durable;
        int result;
        do {
            result = wal_flush(world->wal, &durable);
            settle(world, result, durable);
        } while (result > 0 && !world->failed);
        wal_close(world->wal);
    }
    world->wal = NULL;
}

static void close_reader(struct world *world, bool kill)
{
    if (world->reader == NULL) {
        return;
    }
    bool dead = world->sim->dead;
    world->sim->dead = dead || kill;
    wal_reader_close(world->reader);
    world->sim->dead = dead;
    world->reader = NULL;
    world->out_count = 0;
    world->expected = 0;
}

/* A cursor file that is gone, empty, or spoilt in one slot or both. */
static void lose_cursor(struct world *world)
{
    struct sim *sim = world->sim;
    struct sim_file *file = sim_find(sim, "cursor");
    if (file == NULL) {
        return;
    }
    world->cursor_lost = true;
    /* On a full disk there would be no room to make it again, and the reader says so. */
    switch (sim->room_bytes != 0 ? 3 : chance(world, 4)) {
    case 0:
        sim_remove(sim, "cursor");
        return;
    case 1:
        sim_cut(sim, "cursor", chance(world, file->size + 1));
        return;
    default:
        for (uint64_t slots = 1 + chance(world, 3); slots != 0; slots &= slots - 1) {
            size_t offset = (slots & 1) != 0 ? 0 : 4096;
            unsigned char junk[72];
            for (size_t i = 0; i < sizeof junk; i++) {
                junk[i] = (unsigned char)(chance(world, 2) * 255);
            }
            if (offset + sizeof junk <= file->size) {
                sim_poke(sim, "cursor", offset, junk, sizeof junk);
            }
        }
    }
}

/* Without cursor and map, the numbers of records that are done and gone may be given again. */
static void forget_done(struct world *world, uint64_t durable_lsn)
{
    while (world->cursor_lost && world->acked > durable_lsn && world->records[world->acked].done) {
        world->records[world->acked] = (struct record){0};
        world->acked--;
        world->maybe_count = 0;
    }
}

static void open_writer(struct world *world)
{
    struct wal_err err;
    int result = wal_open(DIR_NAME, &world->options, &world->wal, &err);
    if (result < 0) {
        world->wal = NULL;
        world->tally->cuts_in_recovery += world->sim->dead;
        bool excused = world->sim->dead || world->sim->fail_calls != 0;
        CHECK(world, excused, "open says %d: %s", result, err.text);
        return;
    }
    struct wal_stats stats;
    wal_stats(world->wal, &stats);
    world->tally->opens++;
    forget_done(world, stats.durable_lsn);
    world->cursor_lost = false;
    CHECK(world,
          stats.durable_lsn >= world->acked &&
              stats.durable_lsn <= world->acked + world->maybe_count,
          "durable %" PRIu64 " of %" PRIu64 " + %" PRIu64, stats.durable_lsn, world->acked,
          world->maybe_count);
    CHECK(world, !stats.cursor_was_ahead, "the cursor is ahead");
    CHECK(world, stats.next_lsn == stats.durable_lsn + 1, "next %" PRIu64, stats.next_lsn);
    take_acked(world, world->maybe, stats.durable_lsn - world->acked);
    world->maybe_count = 0;
    world->broken = false;
}

static void open_reader(struct world *world)
{
    struct wal_err err;
    int result = wal_reader_open(DIR_NAME, &world->reader_options, &world->reader, &err);
    if (result < 0) {
        world->reader = NULL;
        world->tally->cuts_in_attach += world->sim->dead;
        CHECK(world, world->sim->dead || world->sim->fail_calls != 0, "reader says %d: %s", result,
              err.text);
    }
}

static void step_read(struct world *world)
{
    struct wal_record record;
    unsigned char bytes[RECORD_MAX];
    if (world->out_count == PENDING) {
        return;
    }
    int result = wal_reader_next(world->reader, &record);
    if (result < 0) {
        world->tally->cuts_in_attach += world->sim->dead && world->expected == 0;
        CHECK(world, world->sim->dead || world->sim->fail_calls != 0, "next says %d: %s", result,
              wal_reader_problem(world->reader));
        close_reader(world, true);
        return;
    }
    if (result == 0) {
        return;
    }
    CHECK(world, record.lsn <= world->acked + world->pending_count, "read %" PRIu64, record.lsn);
    if (record.lsn > world->acked) {
        /* Only a writer that died between publishing and telling us could do this. */
        CHECK(world, false, "read %" PRIu64 " before it was reported durable", record.lsn);
    }
    size_t size = payload(world->records[record.lsn].serial, bytes);
    CHECK(world, record.count == size && memcmp(record.bytes, bytes, size) == 0,
          "record %" PRIu64 " has other bytes", record.lsn);
    if (!record.again) {
        CHECK(world, record.lsn >= world->expected, "read %" PRIu64 ", not %" PRIu64, record.lsn,
              world->expected);
        uint64_t from = world->expected == 0 ? 1 : world->expected;
        for (uint64_t lsn = from; lsn < record.lsn; lsn++) {
            CHECK(world, world->records[lsn].done, "went to %" PRIu64 ", %" PRIu64 " is not done",
                  record.lsn, lsn);
        }
        world->expected = record.lsn + 1;
    } else {
        CHECK(world, record.lsn < world->expected, "again %" PRIu64, record.lsn);
    }
    world->records[record.lsn].delivered = true;
    world->delivered++;
    world->out[world->out_count++] = record.lsn;
}

static void step_done(struct world *world)
{
    if (world->out_count == 0) {
        return;
    }
    uint64_t at = chance(world, 3) == 0 ? chance(world, world->out_count) : 0;
    uint64_t lsn = world->out[at];
    bool release = chance(world, 8) == 0;
    world->records[lsn].done = world->records[lsn].done || !release;
    int result = release ? wal_reader_release(world->reader, lsn, lsn)
                         : wal_reader_done(world->reader, lsn, lsn);
    world->out_count--;
    memmove(world->out + at, world->out + at + 1, (world->out_count - at) * sizeof *world->out);
    if (result < 0) {
        CHECK(world, world->sim->dead || world->sim->fail_calls != 0, "done says %d", result);
        close_reader(world, true);
        return;
    }
}

static void crash(struct world *world, bool power)
{
    struct sim *sim = world->sim;
    if (power) {
        sim->dead = true;
        close_writer(world, true);
        close_reader(world, true);
        sim_power_cut(sim);
        world->tally->power_cuts++;
        if (chance(world, 6) == 0) {
            lose_cursor(world);
        }
        if (chance(world, 4) == 0) {
            sim->cut_after = 1 + chance(world, 40); /* again, in recovery mostly */
        }
    } else {
        bool dead = sim->dead;
        world->tally->kills++;
        if (dead || chance(world, 2) == 0) {
            close_writer(world, true);
        }
        if (dead || chance(world, 2) == 0) {
            close_reader(world, true);
        }
        sim->dead = false;
        sim->cut_after = 0;
        if (world->wal == NULL && world->reader == NULL && chance(world, 3) == 0) {
            lose_cursor(world);
        }
    }
    sim->fail_calls = 0;
    sim->short_writes = chance(world, 3) == 0;
}

static void inject(struct world *world)
{
    struct sim *sim = world->sim;
    switch (chance(world, 6)) {
    case 0:
    case 1:
    case 2:
        sim->cut_after = 1 + chance(world, 60);
        break;
    case 3:
        sim->fail_calls = SIM_SYNC;
        sim->fail_after = (unsigned)chance(world, 10);
        sim->fail_count = 1;
        sim->fail_code = -EIO;
        break;
    case 4:
        sim->fail_calls = SIM_WRITE;
        sim->fail_after = (unsigned)chance(world, 10);
        sim->fail_count = 1;
        sim->fail_code = chance(world, 2) == 0 ? -ENOSPC : -EIO;
        break;
    default:
        sim->fail_calls = SIM_RENAME | SIM_SYNC_DIR | SIM_OPEN | SIM_UNLINK;
        sim->fail_after = (unsigned)chance(world, 5);
        sim->fail_count = 1;
        sim->fail_code = -EIO;
    }
}

static void step(struct world *world)
{
    world->sim->now_ns += (int64_t)chance(world, 50000000);
    world->sim->wall_step_us = ((int64_t)chance(world, 3) - 1) * 3600000000; /* an hour */
    if (world->wal == NULL && chance(world, 3) == 0) {
        open_writer(world);
    }
    if (world->reader == NULL && chance(world, 3) == 0) {
        open_reader(world);
    }
    uint64_t what = chance(world, 100);
    if (world->wal != NULL && what < 30) {
        step_append(world);
    } else if (world->wal != NULL && what < 50) {
        step_flush(world);
    } else if (world->wal != NULL && what < 60) {
        int result = wal_prepare(world->wal);
        CHECK(world,
              result >= 0 || world->sim->dead || world->sim->fail_calls != 0 || result == -ENOSPC ||
                  result == -EDQUOT || world->broken,
              "prepare says %d: %s", result, wal_problem(world->wal));
    } else if (world->reader != NULL && what < 80) {
        step_read(world);
    } else if (world->reader != NULL && what < 94) {
        step_done(world);
    } else if (what == 94) {
        close_writer(world, false);
    } else if (what == 95) {
        close_reader(world, false);
    } else if (what == 96 && world->sim->fail_calls == 0 && world->sim->cut_after == 0) {
        inject(world);
    } else if (what == 97 && chance(world, 2) == 0) {
        crash(world, true);
    } else if (what == 98 && chance(world, 2) == 0) {
        crash(world, false);
    } else if (what == 99 && world->wal != NULL) {
        wal_seal(world->wal);
    }
    if (!world->failed && (world->sim->dead || (world->broken && chance(world, 10) == 0))) {
        crash(world, world->sim->dead ? true : chance(world, 2) == 0);
    }
}

/* Nothing fails any more: all that was durable comes out. */
static void finish(struct world *world)
{
    struct sim *sim = world->sim;
    sim->fail_calls = 0;
    sim->cut_after = 0;
    sim->room_bytes = 0;
    close_writer(world, false);
    close_reader(world, false);
    open_writer(world);
    if (world->failed) {
        return;
    }
    open_reader(world);
    for (uint64_t i = 0; i < RECORDS * 2u && !world->failed; i++) {
        uint64_t before = world->delivered;
        step_read(world);
        while (!world->failed && world->out_count > 0) {
            step_done(world);
        }
        if (world->delivered == before) {
            break;
        }
    }
    if (world->failed) {
        return;
    }
    for (uint64_t lsn = 1; lsn <= world->acked; lsn++) {
        CHECK(world, world->records[lsn].delivered, "%" PRIu64 " was durable and never read", lsn);
    }
    struct wal_probe *probe;
    struct wal_probe_stats stats;
    struct wal_err err;
    wal_probe_open(DIR_NAME, &sim->vfs, &probe, &err);
    int result = wal_probe_read(probe, &stats, &err);
    wal_probe_close(probe);
    CHECK(world, result == 0 && stats.lag_records == 0 && stats.durable_lsn == world->acked,
          "probe says %d, lag %" PRIu64, result, stats.lag_records);
}

static void run_seed(uint64_t seed, struct tally *tally)
{
    struct world *world = calloc(1, sizeof *world);
    world->seed = seed;
    world->tally = tally;
    world->sim = sim_new(seed);
    wal_options_init(&world->options);
    world->options.vfs = &world->sim->vfs;
    world->options.segment_bytes = 8192u << chance(world, 3);
    world->options.record_max = RECORD_MAX;
    world->options.batch_max_bytes = (uint32_t)(100 + chance(world, 6000));
    world->options.block_bytes = 512u << chance(world, 2);
    world->options.segment_age_ns = chance(world, 2) == 0 ? 0 : 500000000;
    wal_reader_options_init(&world->reader_options);
    world->reader_options.vfs = &world->sim->vfs;
    world->reader_options.cursor_sync_ns = (int64_t)chance(world, 3) * 100000000;
    world->sim->no_allocate = chance(world, 4) == 0;
    world->sim->write_back = chance(world, 2) == 0;
    if (chance(world, 3) == 0) {
        world->options.quota_bytes = world->options.segment_bytes * (3 + chance(world, 5));
    }
    if (chance(world, 6) == 0) {
        world->sim->room_bytes = 16384 + world->options.segment_bytes * (3 + chance(world, 5));
    }
    uint64_t steps = 300 + chance(world, 1200);
    for (uint64_t i = 0; i < steps && !world->failed; i++) {
        step(world);
    }
    if (!world->failed) {
        finish(world);
    }
    tally->seeds++;
    tally->failures += world->failed;
    tally->delivered += world->delivered;
    world->sim->fail_calls = 0;
    close_writer(world, true);
    close_reader(world, true);
    sim_free(world->sim);
    free(world);
}

static void run_seeds(uint64_t first, uint64_t last, uint64_t step, struct tally *tally)
{
    for (uint64_t seed = first; seed <= last && tally->failures < FAILURES; seed += step) {
        run_seed(seed, tally);
    }
}

/* A process's tally, from the pipe it writes it to when it is through; false: it died. */
static bool add_tally(int pipe_end, struct tally *sum)
{
    struct tally tally;
    if (read(pipe_end, &tally, sizeof tally) != (ssize_t)sizeof tally) {
        return false;
    }
    sum->seeds += tally.seeds;
    sum->failures += tally.failures;
    sum->opens += tally.opens;
    sum->delivered += tally.delivered;
    sum->power_cuts += tally.power_cuts;
    sum->cuts_in_recovery += tally.cuts_in_recovery;
    sum->cuts_in_attach += tally.cuts_in_attach;
    sum->kills += tally.kills;
    return true;
}

/* Every process takes every so-manieth seed. */
static bool run_processes(uint64_t first, uint64_t last, uint64_t processes, struct tally *sum)
{
    int ends[2];
    bool whole = pipe(ends) == 0;
    for (uint64_t i = 0; whole && i < processes; i++) {
        pid_t child = fork();
        if (child == 0) {
            struct tally tally = {0};
            run_seeds(first + i, last, processes, &tally);
            _exit(write(ends[1], &tally, sizeof tally) == (ssize_t)sizeof tally ? 0 : 1);
        }
        whole = child > 0;
    }
    close(ends[1]);
    for (uint64_t i = 0; i < processes; i++) {
        whole = add_tally(ends[0], sum) && whole;
    }
    while (wait(NULL) > 0) {
    }
    return whole;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int count, char **arguments)
{
    uint64_t first = 1;
    uint64_t last = 400;
    uint64_t processes = 1;
    struct tally sum = {0};
    bool whole = true;
    if (count == 2) {
        first = last = strtoull(arguments[1], NULL, 10);
    } else if (count > 2) {
        first = strtoull(arguments[1], NULL, 10);
        last = strtoull(arguments[2], NULL, 10);
    }
    if (count > 3) {
        processes = strtoull(arguments[3], NULL, 10);
    }
    double start_s = now_s();
    if (processes > 1 && processes <= 256) {
        whole = run_processes(first, last, processes, &sum);
    } else {
        run_seeds(first, last, 1, &sum);
    }
    double seconds = now_s() - start_s;
    printf("seeds %" PRIu64 " to %" PRIu64 ": %" PRIu64 " failed; %.0f seeds/s; %" PRIu64
           " opens, %" PRIu64 " records read, %" PRIu64 " power cuts, %" PRIu64
           " of them in recovery and %" PRIu64 " where a reader starts, %" PRIu64 " kills\n",
           first, last, sum.failures, seconds > 0 ? (double)sum.seeds / seconds : 0.0, sum.opens,
           sum.delivered, sum.power_cuts, sum.cuts_in_recovery, sum.cuts_in_attach, sum.kills);
    if (!whole) {
        fprintf(stderr, "test_simulate: a process died: run its seeds by fewer processes\n");
    }
    return whole && sum.failures == 0 ? 0 : 1;
}

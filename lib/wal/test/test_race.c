/*
 * Oracle: a record is its own number; the reader must get each once, in order, with its bytes, and
 * none before it was reported durable, at whatever byte of a write it looks.
 *
 * First in one thread, where the reader looks after every single byte that is written; then with
 * threads on real files written a byte at a time, the map shared so that a race detector
 * (`make tsan`) sees both sides of it.
 */
#include "bench.h"
#include "folder.h"
#include "one_test.h"

#include "wal/probe.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define BATCHES 30u
#define SIZE    700u

static struct bench *raced;
static struct wal_vfs inner;
static uint64_t reported;  /* durable, as the writer was told */
static uint64_t delivered; /* to the reader */

static void expect_raced(uint64_t n)
{
    bench_expect(raced, n, SIZE);
}

/* Whatever is half written behind it: what is durable is found again, and nothing more. */
static void look(void)
{
    struct wal_record record;
    if (delivered > 0) {
        assert_int_equal(wal_reader_release(raced->reader, delivered, delivered), 0);
        expect_raced(delivered);
    }
    assert_int_equal(wal_reader_next(raced->reader, &record), 0);
}

static ssize_t byte_by_byte(const struct wal_vfs *vfs, int file, const struct iovec *parts,
                            int count, uint64_t offset)
{
    (void)vfs;
    size_t done = 0;
    static bool within; /* the reader writes its cursor by the same table */
    if (within || parts[0].iov_len > 1000) {
        return inner.pwritev(&inner, file, parts, count, offset); /* a fill, a segment's header */
    }
    within = true;
    for (int i = 0; i < count; i++) {
        for (size_t b = 0; b < parts[i].iov_len; b++) {
            struct iovec one = {(unsigned char *)parts[i].iov_base + b, 1};
            assert_int_equal(inner.pwritev(&inner, file, &one, 1, offset + done), 1);
            done++;
            look();
        }
    }
    within = false;
    return (ssize_t)done;
}

/* All is written and not flushed: nothing is durable yet. */
static int look_before_sync(const struct wal_vfs *vfs, int file)
{
    (void)vfs;
    look();
    return inner.sync(&inner, file);
}

static void the_reader_looks_after_every_byte(void **state)
{
    (void)state;
    raced = bench_new(1);
    raced->options.segment_bytes = 16384;
    raced->reader_options.cursor_sync_ns = INT64_MAX / 4;
    reported = delivered = 0;
    inner = raced->sim->vfs;
    bench_open(raced);
    bench_open_reader(raced);
    bench_expect_none(raced);
    raced->sim->vfs.pwritev = byte_by_byte;
    raced->sim->vfs.sync = look_before_sync;
    for (unsigned i = 0; i < BATCHES; i++) {
        for (uint64_t n = reported + 1; n <= reported + 1 + i % 3; n++) {
            assert_int_equal(bench_append(raced, n, SIZE), 0);
        }
        int result;
        do {
            result = wal_flush(raced->wal, &reported);
            while (delivered < reported) {
                expect_raced(++delivered);
            }
        } while (result > 0);
        assert_int_equal(result, 0);
        raced->sim->vfs.pwritev = inner.pwritev;
        bench_prepare(raced);
        raced->sim->vfs.pwritev = byte_by_byte;
    }
    raced->sim->vfs.pwritev = inner.pwritev;
    raced->sim->vfs.sync = inner.sync;
    bench_expect_none(raced);
    bench_free(raced);
}

/* ---- with threads ---- */

#define RECORDS 600u

struct race {
    const char *dir;
    _Atomic uint64_t told; /* lower than what is durable by one flush at most */
    _Atomic bool over;
    unsigned bad;
};

/* One mapping for all: a race detector knows memory by its address. */
static struct {
    pthread_mutex_t mutex;
    ino_t inode;
    void *memory;
} shared_map = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static int race_map(const struct wal_vfs *vfs, int file, size_t size, bool write, void **memory)
{
    struct stat status;
    int result = 0;
    (void)write;
    if (fstat(file, &status) < 0) {
        return -errno;
    }
    pthread_mutex_lock(&shared_map.mutex);
    if (shared_map.memory == NULL || shared_map.inode != status.st_ino) {
        result = wal_vfs_posix()->map(vfs, file, size, true, &shared_map.memory);
        shared_map.inode = status.st_ino;
    }
    *memory = shared_map.memory;
    pthread_mutex_unlock(&shared_map.mutex);
    return result;
}

static int race_unmap(const struct wal_vfs *vfs, void *memory, size_t size)
{
    (void)vfs;
    (void)memory;
    (void)size;
    return 0;
}

static int race_sync(const struct wal_vfs *vfs, int file)
{
    (void)vfs;
    (void)file;
    return 0; /* of no interest here, and slow */
}

static ssize_t race_pwritev(const struct wal_vfs *vfs, int file, const struct iovec *parts,
                            int count, uint64_t offset)
{
    struct iovec one = {parts[0].iov_base, parts[0].iov_len > 1000 ? parts[0].iov_len : 1};
    (void)count; /* a short write, every time */
    return wal_vfs_posix()->pwritev(vfs, file, &one, 1, offset);
}

static struct wal_vfs race_vfs(void)
{
    struct wal_vfs vfs = *wal_vfs_posix();
    vfs.map = race_map;
    vfs.unmap = race_unmap;
    vfs.sync = race_sync;
    vfs.pwritev = race_pwritev;
    return vfs;
}

static void *read_along(void *arg)
{
    struct race *race = arg;
    struct wal_vfs vfs = race_vfs();
    struct wal_reader_options options;
    struct wal_reader *reader;
    struct wal_record record;
    struct wal_err err;
    uint64_t next = 1;
    wal_reader_options_init(&options);
    options.vfs = &vfs;
    options.cursor_sync_ns = 1000000;
    if (wal_reader_open(race->dir, &options, &reader, &err) < 0) {
        race->bad++;
        return NULL;
    }
    while (next <= RECORDS && race->bad == 0) {
        int result = wal_reader_next(reader, &record);
        if (result == 0) {
            result = wal_reader_wait(reader, 1, 20) < 0 ? -1 : 0;
        } else if (result == 1) {
            unsigned char bytes[SIZE];
            bench_payload(bytes, SIZE, next);
            race->bad += record.lsn != next || record.count != SIZE ||
                         memcmp(record.bytes, bytes, SIZE) != 0;
            race->bad += next % 7 == 0 && wal_reader_release(reader, next, next) < 0;
            race->bad += next % 7 == 0 && (wal_reader_next(reader, &record) != 1 ||
                                           record.lsn != next || !record.again);
            race->bad += wal_reader_done(reader, next, next) < 0;
            next++;
        }
        race->bad += result < 0;
    }
    race->bad += next != RECORDS + 1;
    wal_reader_close(reader);
    return NULL;
}

static void *look_on(void *arg)
{
    struct race *race = arg;
    struct wal_vfs vfs = race_vfs();
    struct wal_probe *probe;
    struct wal_probe_stats stats;
    struct wal_err err;
    uint64_t before = 0;
    if (wal_probe_open(race->dir, &vfs, &probe, &err) < 0) {
        return NULL;
    }
    while (!atomic_load(&race->over)) {
        uint64_t told = atomic_load(&race->told);
        if (wal_probe_read(probe, &stats, &err) == 0 && !stats.scanned && told > 0) {
            /* Published before it is told, and never taken back. */
            if (stats.durable_lsn < told || stats.durable_lsn < before) {
                fprintf(stderr, "the probe says %llu after %llu\n",
                        (unsigned long long)stats.durable_lsn, (unsigned long long)told);
                abort();
            }
            before = stats.durable_lsn;
        }
    }
    wal_probe_close(probe);
    return NULL;
}

static void write_all(struct race *race)
{
    struct wal_vfs vfs = race_vfs();
    struct wal_options options;
    struct wal *wal;
    struct wal_err err;
    uint64_t durable = 0;
    wal_options_init(&options);
    options.vfs = &vfs;
    options.segment_bytes = 16384;
    options.record_max = 1000;
    for (uint64_t n = 1; n <= RECORDS;) {
        /* Several writers, one after the other, below one reader. */
        assert_int_equal(wal_open(race->dir, &options, &wal, &err), 0);
        for (uint64_t end = n + RECORDS / 4; n < end; n++) {
            unsigned char bytes[SIZE];
            bench_payload(bytes, SIZE, n);
            assert_int_equal(wal_append(wal, bytes, SIZE, NULL), 0);
            if (n % 3 == 0) {
                while (wal_flush(wal, &durable) > 0) {
                }
                atomic_store(&race->told, durable);
                wal_prepare(wal);
            }
        }
        assert_int_equal(wal_close(wal), 0);
    }
}

static void the_reader_races_the_writer(void **state)
{
    (void)state;
    struct race race = {.dir = folder_new()};
    pthread_t reader;
    pthread_t probe;
    assert_int_equal(pthread_create(&reader, NULL, read_along, &race), 0);
    assert_int_equal(pthread_create(&probe, NULL, look_on, &race), 0);
    write_all(&race);
    pthread_join(reader, NULL);
    atomic_store(&race.over, true);
    pthread_join(probe, NULL);
    assert_int_equal(race.bad, 0);
    folder_remove(race.dir);
}

int main(int count, char **arguments)
{
    one_test(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reader_looks_after_every_byte),
        cmocka_unit_test(the_reader_races_the_writer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

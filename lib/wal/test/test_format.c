/*
 * Oracle: a reader written from the first page of format.h alone. It shares no code with the
 * library, and must find the same records in what the library wrote.
 */
#include "bench.h"
#include "one_test.h"

#include <xxhash.h>

#define K1          0x9E3779B97F4A7C15u
#define K2          0xC2B2AE3D27D4EB4Fu
#define RECORDS_MAX 4096
#define GOLDEN      0x4b64ea7b90dd4f5cu

/* ---- the stranger's reader ---- */

struct stranger {
    uint64_t count;
    uint64_t lsns[RECORDS_MAX];
    uint64_t hashes[RECORDS_MAX];
    uint64_t last;
};

static uint64_t number_at(const unsigned char *bytes, int width)
{
    uint64_t value = 0;
    for (int i = width - 1; i >= 0; i--) {
        value = value << 8 | bytes[i];
    }
    return value;
}

static bool stranger_batch(const unsigned char *file, size_t size, size_t at, uint64_t salt,
                           uint64_t limit)
{
    if (at + 64 > size || number_at(file + at, 4) != 0x42575331 ||
        number_at(file + at + 56, 8) != XXH3_64bits_withSeed(file + at, 56, salt + at * K1)) {
        return false;
    }
    uint64_t count = number_at(file + at + 4, 4);
    uint64_t body = number_at(file + at + 32, 4);
    if (count == 0 || count * 16 > body || 64 + body > limit || at + 64 + body > size) {
        return false;
    }
    uint64_t chain = K2;
    uint64_t lsn = number_at(file + at + 8, 8);
    size_t p = at + 64;
    size_t end = p + body;
    for (uint64_t i = 0; i < count; i++, lsn++) {
        if (p + 16 > end) {
            return false;
        }
        uint64_t length = number_at(file + p, 4);
        if (length > end - p - 16 || number_at(file + p + 4, 4) != 0 ||
            number_at(file + p + 8, 8) !=
                XXH3_64bits_withSeed(file + p + 16, length, salt + lsn * K1 + length * K2)) {
            return false;
        }
        chain = XXH3_64bits_withSeed(file + p + 8, 8, chain);
        p += 16 + length;
    }
    return p == end && chain == number_at(file + at + 40, 8);
}

static void stranger_take(struct stranger *stranger, const unsigned char *file, size_t at)
{
    uint64_t lsn = number_at(file + at + 8, 8);
    size_t p = at + 64;
    for (uint64_t i = number_at(file + at + 4, 4); i > 0; i--, lsn++) {
        uint64_t length = number_at(file + p, 4);
        if (lsn > stranger->last) { /* else a copy of what has been read */
            stranger->lsns[stranger->count] = stranger->last = lsn;
            stranger->hashes[stranger->count++] = XXH3_64bits(file + p + 16, length);
        }
        p += 16 + length;
    }
}

static void stranger_segment(struct stranger *stranger, const unsigned char *file, size_t size,
                             uint64_t number)
{
    if (size < 4096 || memcmp(file, "SLUICWAL", 8) != 0 || number_at(file + 8, 4) != 1 ||
        number_at(file + 24, 8) != number ||
        number_at(file + 120, 8) != XXH3_64bits_withSeed(file, 120, K1)) {
        return;
    }
    uint64_t salt = number_at(file + 32, 8);
    uint64_t block = number_at(file + 56, 4);
    uint64_t limit = number_at(file + 60, 4);
    uint64_t before = 0;
    for (size_t at = 4096; stranger_batch(file, size, at, salt, limit);) {
        uint64_t first = number_at(file + at + 8, 8);
        if (at > 4096 && (number_at(file + at + 16, 8) != before || first != before + 1)) {
            return;
        }
        stranger_take(stranger, file, at);
        before = first + number_at(file + at + 4, 4) - 1;
        at = (at + 64 + number_at(file + at + 32, 4) + block - 1) / block * block;
    }
}

static void stranger_read(struct stranger *stranger, struct bench *bench)
{
    memset(stranger, 0, sizeof *stranger);
    for (unsigned number = 1; number < 100; number++) {
        struct sim_file *file = sim_find(bench->sim, bench_segment(bench, number));
        if (file != NULL) {
            stranger_segment(stranger, file->cache, file->size, number);
        }
    }
}

/* ---- the tests ---- */

static void a_stranger_reads_what_the_library_wrote(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct bench *bench = bench_new(seed);
        struct stranger *stranger = calloc(1, sizeof *stranger);
        uint64_t hashes[RECORDS_MAX];
        uint64_t last = 0;
        bench->options.block_bytes = 512u << seed % 4;
        for (int life = 0; life < 3; life++) {
            bench_open(bench);
            for (uint64_t i = 0; i < 60; i++) {
                unsigned char bytes[8192];
                size_t size = (size_t)sim_random(bench->sim, i % 20 == 0 ? 8000 : 700);
                bench_payload(bytes, size, i * seed);
                while (wal_append(bench->wal, bytes, size, NULL) == -EAGAIN) {
                    assert_true(wal_flush(bench->wal, NULL) >= 0);
                }
                hashes[last++] = XXH3_64bits(bytes, size);
                if (sim_random(bench->sim, 3) == 0 || i == 59) {
                    while (wal_flush(bench->wal, NULL) > 0) {
                    }
                }
            }
            bench_kill(bench);
        }
        stranger_read(stranger, bench);
        assert_int_equal(stranger->count, last);
        for (uint64_t i = 0; i < last; i++) {
            assert_int_equal(stranger->lsns[i], i + 1);
            assert_int_equal(stranger->hashes[i], hashes[i]);
        }
        free(stranger);
        bench_free(bench);
    }
}

static void a_stranger_reads_the_cursor(void **state)
{
    (void)state;
    struct bench *bench = bench_new(30);
    bench_open(bench);
    bench_fill(bench, 1, 20, 100);
    bench_open_reader(bench);
    for (uint64_t n = 1; n <= 20; n++) {
        bench_expect(bench, n, 100);
    }
    wal_reader_done(bench->reader, 1, 7);
    wal_reader_done(bench->reader, 10, 12);
    wal_reader_done(bench->reader, 20, 20);
    wal_reader_flush(bench->reader);
    const unsigned char *best = NULL;
    const unsigned char *file = sim_find(bench->sim, "cursor")->cache;
    for (int slot = 0; slot < 2; slot++) {
        const unsigned char *at = file + slot * 4096;
        uint64_t seed = XXH3_64bits_withSeed(at, 64, K2);
        uint64_t ranges = number_at(at + 12, 4);
        if (memcmp(at, "SLUICCUR", 8) == 0 && number_at(at + 8, 4) == 1 && ranges <= 240 &&
            number_at(at + 64, 8) == XXH3_64bits_withSeed(at + 72, ranges * 16, seed) &&
            (best == NULL || number_at(at + 24, 8) > number_at(best + 24, 8))) {
            best = at;
        }
    }
    assert_non_null(best);
    assert_int_equal(number_at(best + 32, 8), 7);
    assert_int_equal(number_at(best + 12, 4), 2);
    assert_int_equal(number_at(best + 72, 8), 10);
    assert_int_equal(number_at(best + 80, 8), 12);
    assert_int_equal(number_at(best + 88, 8), 20);
    assert_int_equal(number_at(best + 96, 8), 20);
    assert_int_equal(number_at(best + 40, 8), 1);
    /* A place, and its position, at or before record 8. */
    uint64_t batches = (number_at(best + 48, 8) - 4096) / 512;
    assert_int_equal(number_at(best + 48, 8), 4096 + batches * 512);
    assert_true(batches <= 7);
    assert_int_equal(number_at(best + 56, 8), batches * 116);
    bench_free(bench);
}

/* The bytes themselves, once: a change of the format must be a change of its version. */
static void the_bytes_are_these(void **state)
{
    (void)state;
    struct bench *bench = bench_new(31);
    bench_open(bench);
    bench_fill(bench, 1, 2, 10);
    bench_fill(bench, 3, 1, 700);
    struct sim_file *file = sim_find(bench->sim, bench_segment(bench, 1));
    assert_int_equal(XXH3_64bits(file->cache, 8192), GOLDEN);
    bench_free(bench);
}

int main(int count, char **arguments)
{
    one_test(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stranger_reads_what_the_library_wrote),
        cmocka_unit_test(a_stranger_reads_the_cursor),
        cmocka_unit_test(the_bytes_are_these),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

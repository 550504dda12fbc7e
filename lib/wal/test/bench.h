/* A log on a simulated disk, and short names for what nearly every test does with it. */
#ifndef WAL_TEST_BENCH_H
#define WAL_TEST_BENCH_H

#include "sim.h"

#include "wal/reader.h"
#include "wal/wal.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DIR_NAME "log"

struct bench {
    struct sim *sim;
    struct wal_options options;
    struct wal_reader_options reader_options;
    struct wal *wal;
    struct wal_reader *reader;
    struct wal_err err;
    char name[40];
};

static inline struct bench *bench_new(uint64_t seed)
{
    struct bench *bench = calloc(1, sizeof *bench);
    assert_non_null(bench);
    bench->sim = sim_new(seed);
    wal_options_init(&bench->options);
    bench->options.vfs = &bench->sim->vfs;
    bench->options.segment_bytes = 32768;
    bench->options.record_max = 8000;
    bench->options.batch_max_bytes = 8192;
    wal_reader_options_init(&bench->reader_options);
    bench->reader_options.vfs = &bench->sim->vfs;
    bench->reader_options.cursor_sync_ns = 0;
    return bench;
}

static inline void bench_open(struct bench *bench)
{
    int result = wal_open(DIR_NAME, &bench->options, &bench->wal, &bench->err);
    if (result < 0) {
        fail_msg("wal_open: %d: %s", result, bench->err.text);
    }
}

static inline int bench_try_open(struct bench *bench)
{
    bench->wal = NULL;
    bench->err.text[0] = '\0';
    int result = wal_open(DIR_NAME, &bench->options, &bench->wal, &bench->err);
    if (result < 0) {
        bench->wal = NULL;
    }
    return result;
}

static inline void bench_open_reader(struct bench *bench)
{
    int result = wal_reader_open(DIR_NAME, &bench->reader_options, &bench->reader, &bench->err);
    if (result < 0) {
        fail_msg("wal_reader_open: %d: %s", result, bench->err.text);
    }
}

static inline void bench_close(struct bench *bench)
{
    if (bench->wal != NULL) {
        wal_close(bench->wal);
    }
    bench->wal = NULL;
}

static inline void bench_close_reader(struct bench *bench)
{
    if (bench->reader != NULL) {
        wal_reader_close(bench->reader);
    }
    bench->reader = NULL;
}

/* The process dies: nothing is flushed, nothing lost but what it had queued. */
static inline void bench_kill(struct bench *bench)
{
    bench->sim->dead = true;
    bench_close(bench);
    bench_close_reader(bench);
    sim_kill(bench->sim);
}

static inline void bench_power_cut(struct bench *bench)
{
    bench->sim->dead = true;
    bench_close(bench);
    bench_close_reader(bench);
    sim_power_cut(bench->sim);
}

static inline void bench_free(struct bench *bench)
{
    bench_close_reader(bench);
    bench_close(bench);
    sim_free(bench->sim);
    free(bench);
}

/* Record n, `size` bytes (at least 8) that tell it from all others. */
static inline void bench_payload(unsigned char *bytes, size_t size, uint64_t n)
{
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)(n >> (8 * (i % 8)) ^ (i / 8 * 37));
    }
}

static inline int bench_append(struct bench *bench, uint64_t n, size_t size)
{
    unsigned char bytes[8192];
    bench_payload(bytes, size, n);
    return wal_append(bench->wal, bytes, size, NULL);
}

/* Appends `count` records numbered from *lsn on, each flushed by itself. */
static inline void bench_fill(struct bench *bench, uint64_t first, uint64_t count, size_t size)
{
    for (uint64_t n = first; n < first + count; n++) {
        uint64_t durable;
        assert_int_equal(bench_append(bench, n, size), 0);
        assert_int_equal(wal_flush(bench->wal, &durable), 0);
        assert_int_equal(durable, n);
    }
}

static inline void bench_prepare(struct bench *bench)
{
    for (int i = 0; i < 10000 && wal_prepare(bench->wal) > 0; i++) {
    }
}

/* The next record must be n, with its bytes. */
static inline void bench_expect(struct bench *bench, uint64_t n, size_t size)
{
    unsigned char bytes[8192];
    struct wal_record record;
    int result = wal_reader_next(bench->reader, &record);
    if (result != 1) {
        fail_msg("record %llu: wal_reader_next says %d: %s", (unsigned long long)n, result,
                 wal_reader_problem(bench->reader));
    }
    bench_payload(bytes, size, n);
    assert_int_equal(record.lsn, n);
    assert_int_equal(record.count, size);
    assert_memory_equal(record.bytes, bytes, size);
}

static inline void bench_expect_none(struct bench *bench)
{
    struct wal_record record;
    assert_int_equal(wal_reader_next(bench->reader, &record), 0);
}

/* A fresh reader sees exactly first..last, all of one size. */
static inline void bench_expect_all(struct bench *bench, uint64_t first, uint64_t last, size_t size)
{
    bench_open_reader(bench);
    for (uint64_t n = first; n <= last; n++) {
        bench_expect(bench, n, size);
    }
    bench_expect_none(bench);
    bench_close_reader(bench);
}

static inline const char *bench_segment(struct bench *bench, unsigned number)
{
    snprintf(bench->name, sizeof bench->name, "%020u.seg", number);
    return bench->name;
}

static inline void bench_refused(struct bench *bench, const char *part)
{
    int result = bench_try_open(bench);
    assert_int_equal(result, -EBADMSG);
    if (strstr(bench->err.text, part) == NULL) {
        fail_msg("the refusal lacks \"%s\": %s", part, bench->err.text);
    }
}

#endif

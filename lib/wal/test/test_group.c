/*
 * Oracle: every submit that was taken is answered once, in order; what was answered 0 is read again
 * after the log was closed. On a real disk, with threads.
 */
#include "folder.h"
#include "one_test.h"

#include "wal/reader.h"
#include "wal/wal_group.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 4
#define EACH    500

struct producer {
    struct wal_group *group;
    unsigned number;
    _Atomic unsigned answered;
    unsigned bad;
};

struct message {
    struct producer *producer;
    unsigned n;
};

static void answered(void *arg, int result, uint64_t lsn)
{
    struct message *message = arg;
    struct producer *producer = message->producer;
    if (result != 0 || lsn == 0 || message->n != atomic_load(&producer->answered)) {
        producer->bad++;
    }
    atomic_fetch_add(&producer->answered, 1);
    free(message);
}

static void *produce(void *arg)
{
    struct producer *producer = arg;
    for (unsigned n = 0; n < EACH; n++) {
        struct message *message = malloc(sizeof *message);
        uint32_t bytes[2] = {producer->number, n};
        *message = (struct message){producer, n};
        int result;
        while ((result = wal_group_submit(producer->group, bytes, sizeof bytes, answered,
                                          message)) == -EAGAIN) {
            sched_yield();
        }
        if (result != 0) {
            producer->bad++;
        }
    }
    return NULL;
}

static void many_threads_share_flushes(void **state)
{
    (void)state;
    const char *dir = folder_new();
    struct wal_options options;
    struct wal_group_options group_options;
    struct wal *wal;
    struct wal_group *group;
    struct wal_err err;
    struct producer producers[THREADS] = {0};
    pthread_t threads[THREADS];
    wal_options_init(&options);
    options.segment_bytes = 1 << 20;
    options.record_max = 1000;
    wal_group_options_init(&group_options);
    group_options.queue_max_bytes = 600; /* so that some are told to wait */
    assert_int_equal(wal_open(dir, &options, &wal, &err), 0);
    assert_int_equal(wal_group_start(wal, &group_options, &group), 0);
    char large[1001] = {0};
    assert_int_equal(wal_group_submit(group, large, sizeof large, answered, NULL), -EMSGSIZE);
    for (unsigned i = 0; i < THREADS; i++) {
        producers[i].group = group;
        producers[i].number = i;
        assert_int_equal(pthread_create(&threads[i], NULL, produce, &producers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    wal_group_stop(group);
    struct wal_stats stats;
    wal_stats(wal, &stats);
    assert_true(stats.flushes < THREADS * EACH);
    assert_int_equal(stats.durable_lsn, THREADS * EACH);
    assert_int_equal(wal_close(wal), 0);

    struct wal_reader *reader;
    struct wal_record record;
    unsigned next[THREADS] = {0};
    assert_int_equal(wal_reader_open(dir, NULL, &reader, &err), 0);
    for (unsigned i = 0; i < THREADS * EACH; i++) {
        uint32_t bytes[2];
        assert_int_equal(wal_reader_next(reader, &record), 1);
        assert_int_equal(record.count, sizeof bytes);
        memcpy(bytes, record.bytes, sizeof bytes);
        assert_true(bytes[0] < THREADS);
        assert_int_equal(bytes[1], next[bytes[0]]++);
    }
    assert_int_equal(wal_reader_next(reader, &record), 0);
    wal_reader_close(reader);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(producers[i].bad, 0);
        assert_int_equal(atomic_load(&producers[i].answered), EACH);
    }
    folder_remove(dir);
}

static _Atomic unsigned failures;
static _Atomic unsigned answers;

static int failing_sync(const struct wal_vfs *vfs, int file)
{
    return atomic_load((_Atomic int *)vfs->context) != 0 ? -EIO : wal_vfs_posix()->sync(vfs, file);
}

static void count_answers(void *arg, int result, uint64_t lsn)
{
    (void)arg;
    (void)lsn;
    atomic_fetch_add(&answers, 1);
    if (result == -EIO) {
        atomic_fetch_add(&failures, 1);
    }
}

static void a_failed_flush_answers_everybody(void **state)
{
    (void)state;
    const char *dir = folder_new();
    struct wal_options options;
    struct wal *wal;
    struct wal_group *group;
    struct wal_err err;
    _Atomic int broken = 0;
    struct wal_vfs vfs = *wal_vfs_posix();
    vfs.sync = failing_sync;
    vfs.context = &broken;
    wal_options_init(&options);
    options.vfs = &vfs;
    options.segment_bytes = 4 << 20;
    assert_int_equal(wal_open(dir, &options, &wal, &err), 0);
    assert_int_equal(wal_group_start(wal, NULL, &group), 0);
    atomic_store(&broken, 1);
    unsigned taken = 0;
    for (int i = 0; i < 100; i++) {
        int result = wal_group_submit(group, "x", 1, count_answers, NULL);
        taken += result == 0;
        assert_true(result == 0 || result == -EIO);
    }
    wal_group_stop(group);
    assert_int_equal(atomic_load(&answers), taken);
    assert_int_equal(atomic_load(&failures), taken);
    assert_int_equal(wal_close(wal), -EIO);
    folder_remove(dir);
}

int main(int count, char **arguments)
{
    one_test(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_threads_share_flushes),
        cmocka_unit_test(a_failed_flush_answers_everybody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Oracle: a pipe on which the writing process says what it was told is durable; the reader in
 * another process must find all of that, in order. Real files, real processes, SIGKILL. (SIGKILL
 * loses no page cache: what a power cut loses is test_simulate's matter.)
 */
#include "folder.h"

#include "wal/probe.h"
#include "wal/reader.h"
#include "wal/wal.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static void small(struct wal_options *options)
{
    wal_options_init(options);
    options->segment_bytes = 65536;
    options->record_max = 4096;
}

/* Writes records that are their own number, for ever, and says on the pipe what is durable. */
static void write_for_ever(const char *dir, int pipe_end)
{
    struct wal_options options;
    struct wal *wal;
    struct wal_err err;
    small(&options);
    if (wal_open(dir, &options, &wal, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        _exit(9);
    }
    for (unsigned n = 0;; n++) {
        uint64_t lsn = 0;
        char bytes[600];
        memset(bytes, (int)n, sizeof bytes);
        for (unsigned i = 0; i <= n % 3; i++) {
            struct wal_stats stats;
            wal_stats(wal, &stats);
            memcpy(bytes, &stats.next_lsn, sizeof stats.next_lsn);
            if (wal_append(wal, bytes, 8 + (n * 7 + i) % 590, NULL) < 0) {
                _exit(8);
            }
        }
        if (wal_flush(wal, &lsn) < 0 || write(pipe_end, &lsn, sizeof lsn) != sizeof lsn) {
            _exit(7);
        }
        wal_prepare(wal);
    }
}

static pid_t start_writer(const char *dir, int *read_end)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        write_for_ever(dir, ends[1]);
    }
    close(ends[1]);
    *read_end = ends[0];
    return child;
}

static void wait_for(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void a_writer_killed_at_any_time(void **state)
{
    (void)state;
    const char *dir = folder_new();
    struct wal_reader *reader;
    struct wal_record record;
    struct wal_err err;
    uint64_t expected = 1;
    uint64_t told = 0;
    assert_int_equal(wal_reader_open(dir, NULL, &reader, &err), 0);
    for (unsigned life = 0; life < 12; life++) {
        int read_end;
        pid_t child = start_writer(dir, &read_end);
        unsigned flushes = 20 + life * 17;
        while (flushes-- > 0) {
            assert_int_equal(read(read_end, &told, sizeof told), sizeof told);
            /* In step with it, in half of the lives. */
            while (life % 2 == 0 && (flushes % 4) != 0 && expected <= told) {
                int got = wal_reader_next(reader, &record);
                if (got < 0) {
                    fail_msg("%d: %s", got, wal_reader_problem(reader));
                }
                assert_int_equal(got, 1);
                assert_int_equal(record.lsn, expected++);
                assert_memory_equal(record.bytes, &record.lsn, 8);
                assert_int_equal(wal_reader_done(reader, record.lsn, record.lsn), 0);
            }
        }
        kill(child, SIGKILL);
        wait_for(child);
        while (read(read_end, &told, sizeof told) == sizeof told) {
        }
        close(read_end);
        /* All it was told is readable now, with the writer dead. */
        while (wal_reader_next(reader, &record) == 1) {
            assert_int_equal(record.lsn, expected++);
            assert_memory_equal(record.bytes, &record.lsn, 8);
            assert_int_equal(wal_reader_done(reader, record.lsn, record.lsn), 0);
        }
        assert_true(expected > told);
    }
    wal_reader_close(reader);
    folder_remove(dir);
}

/* A reader process that reads, is done with some, and is killed; over and over. */
static void read_for_ever(const char *dir, int pipe_end)
{
    struct wal_reader *reader;
    struct wal_record record;
    struct wal_err err;
    if (wal_reader_open(dir, NULL, &reader, &err) < 0) {
        _exit(9);
    }
    for (;;) {
        if (wal_reader_wait(reader, 1, 1000) < 0) {
            _exit(8);
        }
        while (wal_reader_next(reader, &record) == 1) {
            if (write(pipe_end, &record.lsn, 8) != 8 ||
                wal_reader_done(reader, record.lsn, record.lsn) < 0) {
                _exit(7);
            }
        }
    }
}

static void a_reader_killed_at_any_time(void **state)
{
    (void)state;
    const char *dir = folder_new();
    struct wal_options options;
    struct wal *wal;
    struct wal_err err;
    static bool seen[20000];
    uint64_t appended = 0;
    small(&options);
    assert_int_equal(wal_open(dir, &options, &wal, &err), 0);
    for (int life = 0; life < 12; life++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(ends[0]);
            read_for_ever(dir, ends[1]);
        }
        close(ends[1]);
        for (int i = 0; i < 200; i++) {
            assert_int_equal(wal_append(wal, "hello", 5, NULL), 0);
            appended++;
            assert_true(wal_flush(wal, NULL) >= 0);
            wal_prepare(wal);
        }
        uint64_t lsn;
        for (int i = 0; i < 150; i++) {
            assert_int_equal(read(ends[0], &lsn, 8), 8);
            seen[lsn] = true;
        }
        kill(child, SIGKILL);
        wait_for(child);
        while (read(ends[0], &lsn, 8) == 8) {
            seen[lsn] = true;
        }
        close(ends[0]);
    }
    struct wal_reader *reader;
    struct wal_record record;
    assert_int_equal(wal_reader_open(dir, NULL, &reader, &err), 0);
    while (wal_reader_next(reader, &record) == 1) {
        seen[record.lsn] = true;
    }
    for (uint64_t lsn = 1; lsn <= appended; lsn++) {
        assert_true(seen[lsn]);
    }
    wal_reader_close(reader);
    wal_close(wal);
    folder_remove(dir);
}

static void a_sleeping_reader_is_woken(void **state)
{
    (void)state;
    const char *dir = folder_new();
    struct wal_options options;
    struct wal *wal;
    struct wal_err err;
    int ends[2];
    small(&options);
    assert_int_equal(wal_open(dir, &options, &wal, &err), 0);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct wal_reader *reader;
        struct wal_record record;
        if (wal_reader_open(dir, NULL, &reader, &err) < 0 ||
            wal_reader_next(reader, &record) != 0 || write(ends[1], "r", 1) != 1) {
            _exit(9);
        }
        /* A minute: only a wake-up ends it before the test's own time-out. */
        int got = wal_reader_wait(reader, 3, 60000);
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        int code = got == 3 ? 0 : 1;
        for (uint64_t lsn = 1; lsn <= 3 && code == 0; lsn++) {
            code = wal_reader_next(reader, &record) == 1 && record.lsn == lsn ? 0 : 2;
        }
        _exit(code == 0 && usage.ru_nvcsw > 100 ? 3 : code); /* it slept, it did not poll */
    }
    char byte;
    assert_int_equal(read(ends[0], &byte, 1), 1);
    const struct timespec little = {.tv_nsec = 300000000};
    nanosleep(&little, NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(wal_append(wal, "x", 1, NULL), 0);
        assert_int_equal(wal_flush(wal, NULL), 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close(ends[0]);
    close(ends[1]);
    wal_close(wal);
    folder_remove(dir);
}

static void a_second_process_is_refused(void **state)
{
    (void)state;
    const char *dir = folder_new();
    struct wal_options options;
    struct wal *wal;
    struct wal_reader *reader;
    struct wal_err err;
    small(&options);
    assert_int_equal(wal_open(dir, &options, &wal, &err), 0);
    assert_int_equal(wal_reader_open(dir, NULL, &reader, &err), 0);
    pid_t child = fork();
    if (child == 0) {
        struct wal *second;
        struct wal_reader *third;
        _exit(wal_open(dir, &options, &second, &err) == -EBUSY &&
                      wal_reader_open(dir, NULL, &third, &err) == -EBUSY
                  ? 0
                  : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    wal_reader_close(reader);
    wal_close(wal);
    folder_remove(dir);
}

static void a_folder_that_may_not_be_written(void **state)
{
    (void)state;
    const char *dir = folder_new();
    struct wal_options options;
    struct wal *wal;
    struct wal_err err;
    small(&options);
    assert_int_equal(wal_open("/proc/no/such/place", &options, &wal, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/proc/no/such/place"));
    /* Not a folder. */
    int file = open(dir, O_CREAT | O_WRONLY, 0600);
    assert_true(file >= 0);
    close(file);
    assert_int_equal(wal_open(dir, &options, &wal, &err), -ENOTDIR);
    unlink(dir);
    if (geteuid() != 0) {
        assert_int_equal(mkdir(dir, 0500), 0);
        assert_int_equal(wal_open(dir, &options, &wal, &err), -EACCES);
        chmod(dir, 0700);
    }
    folder_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_writer_killed_at_any_time),
        cmocka_unit_test(a_reader_killed_at_any_time),
        cmocka_unit_test(a_sleeping_reader_is_woken),
        cmocka_unit_test(a_second_process_is_refused),
        cmocka_unit_test(a_folder_that_may_not_be_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

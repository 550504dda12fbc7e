/*
 * Oracle: a pipe on which the writing process says what it was told is durable; the reader in
 * another process must find all of that, in order. Real files, real processes, SIGKILL. (SIGKILL
 * loses no page cache: what a power cut loses is test_simulate's matter.)
 */
#include "folder.h"
#include "one_test.h"

#include "wal/probe.h"
#include "wal/reader.h"
#include "wal/wal.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
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

/* ---- SIGKILL between any two steps ---- */

/* What the process that is to die has said so far; seen by the one that looks after it. */
struct word {
    _Atomic uint64_t durable;
    _Atomic uint64_t done;
};

static unsigned steps_left; /* to the step before which this process dies */

static void step(void)
{
    if (--steps_left == 0) {
        raise(SIGKILL);
    }
}

static int stepping_open(const struct wal_vfs *vfs, const char *path, unsigned flags)
{
    if ((flags & (WAL_OPEN_CREATE | WAL_OPEN_TRUNCATE)) != 0) {
        step();
    }
    return wal_vfs_posix()->open(vfs, path, flags);
}

static ssize_t stepping_pwritev(const struct wal_vfs *vfs, int file, const struct iovec *parts,
                                int count, uint64_t offset)
{
    step();
    return wal_vfs_posix()->pwritev(vfs, file, parts, count, offset);
}

static int stepping_truncate(const struct wal_vfs *vfs, int file, uint64_t size)
{
    step();
    return wal_vfs_posix()->truncate(vfs, file, size);
}

static int stepping_allocate(const struct wal_vfs *vfs, int file, uint64_t size)
{
    step();
    return wal_vfs_posix()->allocate(vfs, file, size);
}

/* A killed process loses nothing of the cache, so nothing need be flushed here. */
static int stepping_sync(const struct wal_vfs *vfs, int file)
{
    (void)vfs;
    (void)file;
    step();
    return 0;
}

static int stepping_sync_dir(const struct wal_vfs *vfs, const char *path)
{
    (void)vfs;
    (void)path;
    step();
    return 0;
}

static int stepping_rename(const struct wal_vfs *vfs, const char *from, const char *to)
{
    step();
    return wal_vfs_posix()->rename(vfs, from, to);
}

static int stepping_unlink(const struct wal_vfs *vfs, const char *path)
{
    step();
    return wal_vfs_posix()->unlink(vfs, path);
}

/* Also between what is published and what is said of it. */
static int stepping_wake(const struct wal_vfs *vfs, uint32_t *word)
{
    step();
    return wal_vfs_posix()->wake(vfs, word);
}

static struct wal_vfs stepping_vfs(unsigned steps)
{
    struct wal_vfs vfs = *wal_vfs_posix();
    steps_left = steps;
    vfs.open = stepping_open;
    vfs.pwritev = stepping_pwritev;
    vfs.truncate = stepping_truncate;
    vfs.allocate = stepping_allocate;
    vfs.sync = stepping_sync;
    vfs.sync_dir = stepping_sync_dir;
    vfs.rename = stepping_rename;
    vfs.unlink = stepping_unlink;
    vfs.wake = stepping_wake;
    return vfs;
}

/* Writes, reads, is done, seals, recycles, removes; until it is killed. 0: it lived through. */
static int short_life(const char *dir, unsigned steps, struct word *word)
{
    struct wal_vfs vfs = stepping_vfs(steps);
    struct wal_options options;
    struct wal_reader_options reader_options;
    struct wal *wal;
    struct wal_reader *reader;
    struct wal_record record;
    struct wal_err err;
    wal_options_init(&options);
    options.vfs = &vfs;
    options.segment_bytes = 32768;
    options.record_max = 1000;
    wal_reader_options_init(&reader_options);
    reader_options.vfs = &vfs;
    reader_options.cursor_sync_ns = 0;
    if (wal_open(dir, &options, &wal, &err) < 0 ||
        wal_reader_open(dir, &reader_options, &reader, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 9;
    }
    bool held = false;
    for (int i = 0; i < 40; i++) {
        struct wal_stats stats;
        char bytes[900];
        uint64_t durable;
        wal_stats(wal, &stats);
        memset(bytes, 7, sizeof bytes);
        memcpy(bytes, &stats.next_lsn, sizeof stats.next_lsn);
        if (wal_append(wal, bytes, sizeof bytes, NULL) < 0 || wal_flush(wal, &durable) < 0) {
            return 8;
        }
        atomic_store(&word->durable, durable);
        while (wal_prepare(wal) > 0) {
        }
        if (i == 2 || i == 5) { /* early: the rest of the file is given back */
            while (wal_seal(wal) == -EAGAIN && wal_prepare(wal) > 0) {
            }
        }
        /* Two are left for the next life. */
        while ((held = held || wal_reader_next(reader, &record) == 1) &&
               record.lsn + 2 <= durable) {
            if (wal_reader_done(reader, record.lsn, record.lsn) < 0) {
                return 7;
            }
            atomic_store(&word->done, record.lsn);
            held = false;
        }
    }
    return wal_reader_close(reader) < 0 || wal_close(wal) < 0 ? 6 : 0;
}

/* All that the dead one said is so, and at most the record that it was about is there besides. */
static void look_after(const char *dir, struct word *word)
{
    struct wal_vfs vfs = stepping_vfs(UINT32_MAX);
    struct wal_options options;
    struct wal_reader_options reader_options;
    struct wal *wal;
    struct wal_reader *reader;
    struct wal_record record;
    struct wal_err err = {{0}};
    struct wal_stats stats;
    wal_options_init(&options);
    options.vfs = &vfs;
    options.segment_bytes = 32768;
    options.record_max = 1000;
    wal_reader_options_init(&reader_options);
    reader_options.vfs = &vfs;
    int result = wal_open(dir, &options, &wal, &err);
    if (result < 0) {
        fail_msg("%d: %s", result, err.text);
    }
    wal_stats(wal, &stats);
    uint64_t durable = atomic_load(&word->durable);
    assert_true(stats.durable_lsn == durable || stats.durable_lsn == durable + 1);
    assert_int_equal(wal_reader_open(dir, &reader_options, &reader, &err), 0);
    uint64_t expected = 0;
    while ((result = wal_reader_next(reader, &record)) == 1) {
        uint64_t done = atomic_load(&word->done);
        assert_true(expected == 0 ? record.lsn == done + 1 || record.lsn == done + 2
                                  : record.lsn == expected);
        assert_memory_equal(record.bytes, &record.lsn, 8);
        expected = record.lsn + 1;
    }
    assert_int_equal(result, 0);
    assert_int_equal(expected == 0 ? atomic_load(&word->done) : expected - 1, stats.durable_lsn);
    assert_int_equal(wal_reader_close(reader), 0);
    assert_int_equal(wal_close(wal), 0);
    atomic_store(&word->durable, stats.durable_lsn);
}

static void killed_between_any_two_steps(void **state)
{
    (void)state;
    const char *dir = folder_new();
    struct word *word =
        mmap(NULL, sizeof *word, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(word != MAP_FAILED);
    bool killed = true;
    unsigned steps = 0;
    while (killed) {
        pid_t child = fork();
        assert_true(child >= 0);
        steps++;
        if (child == 0) {
            _exit(short_life(dir, steps, word));
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        assert_true(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
        look_after(dir, word);
    }
    assert_true(steps > 100);
    munmap(word, sizeof *word);
    folder_remove(dir);
}

/* A sleep that ends by itself is not a wake-up. */
static int woken_or_else(const struct wal_vfs *vfs, uint32_t *word, uint32_t expected,
                         int64_t timeout_ns)
{
    int result = wal_vfs_posix()->wait(vfs, word, expected, timeout_ns);
    if (result == -ETIMEDOUT) {
        _exit(4);
    }
    return result;
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
        struct wal_vfs vfs = *wal_vfs_posix();
        struct wal_reader_options reader_options;
        struct wal_reader *reader;
        struct wal_record record;
        vfs.wait = woken_or_else;
        wal_reader_options_init(&reader_options);
        reader_options.vfs = &vfs;
        if (wal_reader_open(dir, &reader_options, &reader, &err) < 0 ||
            wal_reader_next(reader, &record) != 0 || write(ends[1], "r", 1) != 1) {
            _exit(9);
        }
        int got = wal_reader_wait(reader, 3, 10000);
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
    folder_remove(dir);
}

/* In a process of its own, which root turns into somebody who may not do everything. */
static void as_nobody(const char *dir, int (*test)(const char *))
{
    char parent[4096];
    snprintf(parent, sizeof parent, "%s", dir);
    *strrchr(parent, '/') = '\0';
    assert_int_equal(chmod(parent, 0755), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setgid(65534) < 0 || setuid(65534) < 0)) {
            _exit(99);
        }
        _exit(test(dir));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static bool says(const struct wal_err *err, const char *part)
{
    return strstr(err->text, part) != NULL;
}

/* Which line it was is the exit status. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, err.text); \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static int refused_without_permission(const char *dir)
{
    struct wal_options options;
    struct wal *wal;
    struct wal_reader *reader;
    struct wal_probe *probe;
    struct wal_probe_stats stats;
    struct wal_err err = {{0}};
    small(&options);
    EXPECT(wal_open(dir, &options, &wal, &err) == -EACCES && says(&err, dir));
    err.text[0] = '\0';
    EXPECT(wal_reader_open(dir, NULL, &reader, &err) == -EACCES && says(&err, dir));
    /* To look is allowed. */
    EXPECT(wal_probe_open(dir, NULL, &probe, &err) == 0);
    EXPECT(wal_probe_read(probe, &stats, &err) == 0);
    EXPECT(stats.durable_lsn == 3 && stats.lag_records == 3);
    wal_probe_close(probe);
    return 0;
}

static int refused_without_a_look(const char *dir)
{
    struct wal_options options;
    struct wal *wal;
    struct wal_probe *probe;
    struct wal_probe_stats stats;
    struct wal_err err = {{0}};
    small(&options);
    EXPECT(wal_open(dir, &options, &wal, &err) == -EACCES && says(&err, dir));
    EXPECT(wal_probe_open(dir, NULL, &probe, &err) == 0);
    err.text[0] = '\0';
    EXPECT(wal_probe_read(probe, &stats, &err) == -EACCES && says(&err, dir));
    wal_probe_close(probe);
    return 0;
}

static int count_files(const char *dir)
{
    int count = 0;
    DIR *entries = opendir(dir);
    assert_non_null(entries);
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    closedir(entries);
    return count;
}

static void no_permission(void **state)
{
    (void)state;
    const char *dir = folder_new();
    struct wal_options options;
    struct wal *wal;
    struct wal_err err;
    small(&options);
    assert_int_equal(wal_open(dir, &options, &wal, &err), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(wal_append(wal, "hello", 5, NULL), 0);
    }
    assert_int_equal(wal_flush(wal, NULL), 0);
    assert_int_equal(wal_close(wal), 0);
    int files = count_files(dir);
    char path[8192];
    static const char *const names[] = {"00000000000000000001.seg", "shared", "writer.lock"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        assert_int_equal(chmod(path, 0444), 0);
    }
    assert_int_equal(chmod(dir, 0555), 0);
    as_nobody(dir, refused_without_permission);
    assert_int_equal(chmod(dir, 0), 0);
    as_nobody(dir, refused_without_a_look);
    assert_int_equal(chmod(dir, 0755), 0);
    /* Nothing was changed; who may, goes on. */
    assert_int_equal(count_files(dir), files);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        assert_int_equal(chmod(path, 0644), 0);
    }
    assert_int_equal(wal_open(dir, &options, &wal, &err), 0);
    assert_int_equal(wal_append(wal, "hello", 5, NULL), 0);
    assert_int_equal(wal_close(wal), 0);
    folder_remove(dir);
}

static int read_only_open(const struct wal_vfs *vfs, const char *path, unsigned flags)
{
    return flags != WAL_OPEN_READ ? -EROFS : wal_vfs_posix()->open(vfs, path, flags);
}

static int read_only_make_dir(const struct wal_vfs *vfs, const char *path)
{
    (void)vfs;
    struct stat status;
    return stat(path, &status) == 0 ? -EEXIST : -EROFS;
}

/* As a file system answers that is mounted read-only. */
static void a_read_only_file_system(void **state)
{
    (void)state;
    const char *dir = folder_new();
    struct wal_vfs vfs = *wal_vfs_posix();
    struct wal_options options;
    struct wal_reader_options reader_options;
    struct wal *wal;
    struct wal_reader *reader;
    struct wal_probe *probe;
    struct wal_probe_stats stats;
    struct wal_err err = {{0}};
    vfs.open = read_only_open;
    vfs.make_dir = read_only_make_dir;
    small(&options);
    wal_reader_options_init(&reader_options);
    reader_options.vfs = &vfs;
    options.vfs = &vfs;
    assert_int_equal(wal_open(dir, &options, &wal, &err), -EROFS);
    assert_true(says(&err, dir));
    options.vfs = wal_vfs_posix();
    assert_int_equal(wal_open(dir, &options, &wal, &err), 0);
    assert_int_equal(wal_append(wal, "hello", 5, NULL), 0);
    assert_int_equal(wal_close(wal), 0);
    options.vfs = &vfs;
    err.text[0] = '\0';
    assert_int_equal(wal_open(dir, &options, &wal, &err), -EROFS);
    assert_true(says(&err, dir));
    err.text[0] = '\0';
    assert_int_equal(wal_reader_open(dir, &reader_options, &reader, &err), -EROFS);
    assert_true(says(&err, dir));
    assert_int_equal(wal_probe_open(dir, &vfs, &probe, &err), 0);
    assert_int_equal(wal_probe_read(probe, &stats, &err), 0);
    assert_int_equal(stats.durable_lsn, 1);
    wal_probe_close(probe);
    folder_remove(dir);
}

int main(int count, char **arguments)
{
    one_test(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_writer_killed_at_any_time),
        cmocka_unit_test(a_reader_killed_at_any_time),
        cmocka_unit_test(killed_between_any_two_steps),
        cmocka_unit_test(a_sleeping_reader_is_woken),
        cmocka_unit_test(a_second_process_is_refused),
        cmocka_unit_test(a_folder_that_may_not_be_written),
        cmocka_unit_test(no_permission),
        cmocka_unit_test(a_read_only_file_system),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

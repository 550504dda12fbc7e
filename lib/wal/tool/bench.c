/*
 * sluice-wal bench: the log beside the least that any log must do: a bare loop that writes the same
 * bytes into a file filled alike and flushes it. Both are run in turn, some rounds each, on the
 * same disk; only ratios of one run mean anything.
 */
#include "wal/reader.h"
#include "wal/tool/tool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RECORD      1024u
#define FILE_BYTES  (64u << 20)
#define SAMPLES_MAX 4000000u
#define SPACING_NS  500000
#define PREPARE_NS  5000000

struct measure {
    double *latency_us;
    size_t count;
    double seconds;
    double cpu_seconds;
    unsigned long long flushes;
    unsigned long long records;
};

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

/* A folder of its own, and nothing of it is left: neither after a failure nor after Ctrl-C. */
static char folder[WAL_PATH_BYTES];
static volatile sig_atomic_t interrupted;

static void on_signal(int signal_number)
{
    interrupted = signal_number;
}

static void remove_below(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        char name[WAL_PATH_BYTES];
        if (wal_path(name, path, entry->d_name) == 0) {
            unlink(name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    rmdir(path);
}

static void clean_up(void)
{
    char log[WAL_PATH_BYTES];
    if (folder[0] != '\0' && wal_path(log, folder, "log") == 0) {
        remove_below(log);
        remove_below(folder);
    }
}

static void die(const char *what, int code)
{
    fprintf(stderr, "sluice-wal bench: %s: %s\n", what, strerror(code < 0 ? -code : code));
    clean_up();
    exit(TOOL_CANNOT);
}

static void die_of(const struct wal_err *err)
{
    fprintf(stderr, "sluice-wal bench: %s\n", err->text);
    clean_up();
    exit(TOOL_CANNOT);
}

static void sample(struct measure *measure, int64_t from_ns, int64_t to_ns)
{
    if (measure->count < SAMPLES_MAX) {
        measure->latency_us[measure->count++] = (double)(to_ns - from_ns) / 1000;
    }
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

static double percentile(struct measure *measure, double share)
{
    if (measure->count == 0) {
        return 0;
    }
    qsort(measure->latency_us, measure->count, sizeof(double), ascending);
    size_t at = (size_t)(share * (double)measure->count);
    return measure->latency_us[at < measure->count ? at : measure->count - 1];
}

/* ---- what is measured: a sink of records ---- */

struct target {
    const char *name;
    struct wal *wal; /* NULL: bare */
    int file;
    uint64_t offset;
    unsigned char *bytes;
    size_t queued;
};

static void bare_open(struct target *target, const char *dir)
{
    char path[WAL_PATH_BYTES];
    wal_path(path, dir, "bare");
    *target = (struct target){.name = "bare"};
    target->file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    target->bytes = calloc(1, FILE_BYTES);
    if (target->file < 0 || target->bytes == NULL) {
        die(path, errno);
    }
    memset(target->bytes, 'x', FILE_BYTES); /* else it were one page of zeros, always in cache */
    for (size_t at = 0; at < FILE_BYTES; at += 1 << 20) {
        if (pwrite(target->file, target->bytes, 1 << 20, (off_t)at) != 1 << 20) {
            die(path, errno);
        }
    }
    fsync(target->file);
    unlink(path);
}

static void log_open(struct target *target, const char *dir)
{
    char path[WAL_PATH_BYTES];
    struct wal_options options;
    struct wal_err err;
    wal_path(path, dir, "log");
    wal_options_init(&options);
    options.segment_bytes = FILE_BYTES;
    options.batch_max_bytes = 4 << 20;
    *target = (struct target){.name = "wal", .bytes = calloc(1, RECORD)};
    if (target->bytes == NULL || wal_open(path, &options, &target->wal, &err) < 0) {
        die_of(&err);
    }
}

static void put(struct target *target)
{
    if (target->wal == NULL) {
        target->queued += RECORD;
        return;
    }
    int result = wal_append(target->wal, target->bytes, RECORD, NULL);
    if (result < 0) {
        die("append", result);
    }
}

static void flush(struct target *target)
{
    int result;
    if (target->wal != NULL) {
        do {
            result = wal_flush(target->wal, NULL);
        } while (result > 0);
        if (result < 0) {
            die("flush", result);
        }
        return;
    }
    if (target->offset + target->queued > FILE_BYTES) {
        target->offset = 0;
    }
    if (pwrite(target->file, target->bytes + target->offset, target->queued,
               (off_t)target->offset) != (ssize_t)target->queued ||
        fdatasync(target->file) < 0) {
        die("bare", errno);
    }
    target->offset += target->queued;
    target->queued = 0;
}

/* All segments are filled before anything is timed; what is written is read, so that they recycle.
 */
static void settle(struct target *target, struct wal_reader *reader)
{
    struct wal_record record;
    if (target->wal == NULL) {
        return;
    }
    while (wal_reader_next(reader, &record) == 1) {
        wal_reader_done(reader, record.lsn, record.lsn);
    }
    wal_reader_flush(reader);
    while (wal_prepare(target->wal) > 0) {
    }
}

/* Batches of `batch` records, one after the other. */
static void closed_loop(struct target *target, unsigned batch, double seconds,
                        struct measure *measure)
{
    int64_t start_ns = now_ns();
    int64_t cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    int64_t end_ns = start_ns + (int64_t)(seconds * 1e9);
    uint64_t bytes = 0;
    int64_t at_ns = start_ns;
    /* Within one file's size, so that no filling is timed on either side. */
    while (!interrupted && at_ns < end_ns && bytes + (uint64_t)batch * 2 * RECORD < FILE_BYTES) {
        for (unsigned i = 0; i < batch; i++) {
            put(target);
        }
        flush(target);
        int64_t done_ns = now_ns();
        sample(measure, at_ns, done_ns);
        measure->flushes++;
        measure->records += batch;
        bytes += (uint64_t)batch * RECORD;
        at_ns = done_ns;
    }
    measure->seconds += (double)(now_ns() - start_ns) / 1e9;
    measure->cpu_seconds += (double)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns) / 1e9;
}

/* An open loop: latency counts from when a record was due. Group commit with spacing. */
static void paced(struct target *target, double rate, double seconds, struct measure *measure)
{
    int64_t start_ns = now_ns();
    int64_t flushed_ns = 0;
    int64_t prepared_ns = 0;
    uint64_t total = (uint64_t)(rate * seconds);
    uint64_t done = 0;
    while (!interrupted && done < total) {
        int64_t due_ns = start_ns + (int64_t)((double)done * 1e9 / rate);
        int64_t at_ns = now_ns();
        if (at_ns < due_ns) {
            if (target->wal != NULL && at_ns - prepared_ns > PREPARE_NS) {
                wal_prepare(target->wal);
                prepared_ns = at_ns;
            }
            struct timespec until = {.tv_sec = due_ns / 1000000000, .tv_nsec = due_ns % 1000000000};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
            at_ns = now_ns();
        }
        uint64_t ready = (uint64_t)((double)(at_ns - start_ns) * rate / 1e9) + 1;
        ready = ready < total ? ready : total;
        if (ready - done > 1 && at_ns < flushed_ns + SPACING_NS) {
            int64_t until_ns = flushed_ns + SPACING_NS;
            struct timespec until = {.tv_sec = until_ns / 1000000000,
                                     .tv_nsec = until_ns % 1000000000};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
            continue;
        }
        flushed_ns = at_ns;
        for (uint64_t i = done; i < ready; i++) {
            put(target);
        }
        flush(target);
        measure->flushes++;
        measure->records += ready - done;
        int64_t end_ns = now_ns();
        for (; done < ready; done++) {
            sample(measure, start_ns + (int64_t)((double)done * 1e9 / rate), end_ns);
        }
    }
    measure->seconds += (double)(now_ns() - start_ns) / 1e9;
}

static void report(const char *what, struct measure measures[2])
{
    static const char *const names[2] = {"bare", "wal"};
    double value[2][3];
    for (int i = 0; i < 2; i++) {
        value[i][0] = percentile(&measures[i], 0.5);
        value[i][1] = percentile(&measures[i], 0.99);
        value[i][2] = (double)measures[i].records / measures[i].seconds;
        printf("%-22s %-5s p50 %8.0f us  p99 %8.0f us  %9.0f records/s  %llu flushes\n", what,
               names[i], value[i][0], value[i][1], value[i][2], measures[i].flushes);
    }
    printf("%-22s ratio p50 %8.2f     p99 %8.2f     %9.2f", what, value[1][0] / value[0][0],
           value[1][1] / value[0][1], value[1][2] / value[0][2]);
    if (measures[0].cpu_seconds > 0) {
        printf("  CPU %.2f", measures[1].cpu_seconds / (double)measures[1].flushes /
                                 (measures[0].cpu_seconds / (double)measures[0].flushes));
    }
    printf("\n");
}

static void compare(const char *what, struct target targets[2], struct wal_reader *reader,
                    unsigned batch, double rate, double seconds, int rounds)
{
    struct measure measures[2] = {0};
    for (int i = 0; i < 2; i++) {
        measures[i].latency_us = malloc(SAMPLES_MAX * sizeof(double));
        if (measures[i].latency_us == NULL) {
            die("samples", ENOMEM);
        }
    }
    for (int round = 0; round < rounds && !interrupted; round++) {
        for (int i = 0; i < 2; i++) {
            struct target *target = &targets[(round + i) % 2];
            settle(&targets[1], reader);
            if (rate > 0) {
                paced(target, rate, seconds, &measures[(round + i) % 2]);
            } else {
                closed_loop(target, batch, seconds, &measures[(round + i) % 2]);
            }
        }
    }
    if (!interrupted) {
        report(what, measures);
        fflush(stdout);
    }
    free(measures[0].latency_us);
    free(measures[1].latency_us);
}

static void bench_reader(struct target *target, struct wal_reader *reader)
{
    struct wal_record record;
    settle(target, reader);
    for (unsigned i = 0; i < FILE_BYTES / RECORD * 4; i++) {
        put(target);
        if (i % 4096 == 4095) {
            flush(target);
        }
    }
    flush(target);
    uint64_t count = 0;
    int64_t start_ns = now_ns();
    while (wal_reader_next(reader, &record) == 1) {
        count++;
    }
    double seconds = (double)(now_ns() - start_ns) / 1e9;
    printf("%-22s %.2f GB/s, %.0f records/s from the page cache\n", "reader",
           (double)count * RECORD / seconds / 1e9, (double)count / seconds);
}

static void bench_recovery(const char *path)
{
    struct wal_options options;
    struct wal *wal;
    struct wal_err err;
    int64_t start_ns = now_ns();
    wal_options_init(&options);
    if (wal_open(path, &options, &wal, &err) < 0) {
        die_of(&err);
    }
    printf("%-22s %.0f ms for %u MiB\n", "recovery", (double)(now_ns() - start_ns) / 1e6,
           FILE_BYTES * 4 >> 20);
    wal_close(wal);
}

static void bench_all(double seconds, int rounds)
{
    struct target targets[2];
    struct wal_reader *reader;
    struct wal_err err;
    char path[WAL_PATH_BYTES];
    bare_open(&targets[0], folder);
    log_open(&targets[1], folder);
    wal_path(path, folder, "log");
    if (wal_reader_open(path, NULL, &reader, &err) < 0) {
        die_of(&err);
    }
    compare("one record a flush", targets, reader, 1, 0, seconds, rounds);
    compare("2000 records a flush", targets, reader, 2000, 0, seconds, rounds);
    compare("paced at 500/s", targets, reader, 1, 500, seconds, rounds);
    compare("paced at 5000/s", targets, reader, 1, 5000, seconds, rounds);
    compare("paced at 20000/s", targets, reader, 1, 20000, seconds, rounds);
    if (!interrupted) {
        bench_reader(&targets[1], reader);
    }
    wal_reader_close(reader);
    wal_close(targets[1].wal);
    free(targets[1].bytes);
    close(targets[0].file);
    free(targets[0].bytes);
    if (!interrupted) {
        bench_recovery(path);
    }
}

static int run(const struct tool_command *command, int count, char **words)
{
    uint64_t seconds = 1;
    uint64_t rounds = 3;
    const char *dir;
    const struct tool_option options[] = {
        {"seconds", "N", TOOL_NUMBER, &seconds, 1, 60, "of each measurement [1]"},
        {"rounds", "N", TOOL_NUMBER, &rounds, 1, 100, "of each comparison [3]"},
        {0},
    };
    int status = tool_parse(command, options, count, words, &dir);
    if (status >= 0) {
        return status;
    }
    if (wal_path(folder, dir, "sluice-wal-bench-XXXXXX") < 0 || mkdtemp(folder) == NULL) {
        folder[0] = '\0';
        return tool_cannot(command, "Cannot make a folder in %s: %s", dir, strerror(errno));
    }
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    bench_all((double)seconds, (int)rounds);
    clean_up();
    return interrupted ? 128 + interrupted : TOOL_FINE;
}

const struct tool_command tool_bench = {
    .name = "bench",
    .summary = "the log beside a bare loop of write and fdatasync, on the disk of a folder",
    .text = "Measures in a folder of its own inside DIR, which it removes: records of 1 KiB, one a "
            "flush, 2000\n"
            "a flush, and paced at 500, 5000 and 20000 a second, each beside a bare loop that "
            "writes the same\n"
            "bytes to a file filled alike; then how fast the reader reads and a log is opened. "
            "Takes about\n"
            "10 x SECONDS x ROUNDS, 330 MiB, and can be cut short with Ctrl-C. Only the ratios of "
            "one run mean\n"
            "anything.\n\n"
            "Exit status: 0 done; 2 a mistake in the command; 3 could not be done; 130 or 143 cut "
            "short.\n",
    .run = run,
};

/*
 * What a writer and a reader cost while nothing happens: two processes, the one with a flusher
 * thread (wal_group), the other asleep in wal_reader_wait, a second at most each time, as a worker
 * would be.
 *
 *     wal_idle FOLDER SECONDS
 *
 * Prints lines of "name value": CPU in percent of one core, and how often a second each process
 * was put on a core. FOLDER is made and removed.
 */
#include "wal/reader.h"
#include "wal/wal_group.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct sample {
    double at_s;
    double cpu_s;
    unsigned long switches;
};

static void answered(void *arg, int result, uint64_t lsn)
{
    (void)lsn;
    *(int *)arg = result;
}

static void be_writer(const char *dir, int ready)
{
    struct wal *wal;
    struct wal_group *group;
    struct wal_options options;
    struct wal_err err;
    int answers[100];
    wal_options_init(&options);
    options.segment_bytes = 4u << 20;
    if (wal_open(dir, &options, &wal, &err) < 0) {
        fprintf(stderr, "wal_idle: %s\n", err.text);
        _exit(1);
    }
    if (wal_group_start(wal, NULL, &group) < 0) {
        _exit(1);
    }
    for (int i = 0; i < 100; i++) {
        if (wal_group_submit(group, "a record", 8, answered, &answers[i]) < 0) {
            _exit(1);
        }
    }
    if (write(ready, "w", 1) == 1) {
        for (;;) {
            pause();
        }
    }
    _exit(1);
}

static void be_reader(const char *dir, int ready)
{
    struct wal_reader *reader;
    struct wal_record record;
    struct wal_err err;
    if (wal_reader_open(dir, NULL, &reader, &err) < 0) {
        fprintf(stderr, "wal_idle: %s\n", err.text);
        _exit(1);
    }
    /* Half of the records are done, the others out: that must cost nothing either. */
    for (int taken = 0; taken < 100;) {
        wal_reader_wait(reader, 1, 1000);
        while (wal_reader_next(reader, &record) == 1) {
            if (taken++ % 2 == 0) {
                wal_reader_done(reader, record.lsn, record.lsn);
            }
        }
    }
    if (write(ready, "r", 1) != 1) {
        _exit(1);
    }
    while (wal_reader_wait(reader, 1, 1000) >= 0) {
        if (wal_reader_flush_due_ns(reader) == 0) {
            wal_reader_flush(reader);
        }
    }
    _exit(1);
}

static pid_t start(void (*be)(const char *, int), const char *dir, int ready)
{
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        be(dir, ready);
    }
    return child;
}

/* Over all threads of a process. */
static unsigned long switches_of(pid_t pid)
{
    char path[300];
    char line[200];
    unsigned long sum = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    for (struct dirent *task; tasks != NULL && (task = readdir(tasks)) != NULL;) {
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/status", (int)pid, task->d_name);
        FILE *status = fopen(path, "r");
        while (status != NULL && fgets(line, sizeof line, status) != NULL) {
            if (strncmp(line, "voluntary_ctxt_switches:", 24) == 0) {
                sum += strtoul(line + 24, NULL, 10);
            }
        }
        if (status != NULL) {
            fclose(status);
        }
    }
    if (tasks != NULL) {
        closedir(tasks);
    }
    return sum;
}

static double seconds_of(clockid_t clock)
{
    struct timespec time = {0};
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static struct sample take(pid_t pid)
{
    clockid_t clock = CLOCK_REALTIME;
    struct sample sample = {.at_s = seconds_of(CLOCK_MONOTONIC), .switches = switches_of(pid)};
    if (clock_getcpuclockid(pid, &clock) == 0) {
        sample.cpu_s = seconds_of(clock);
    }
    return sample;
}

static void print(const char *who, const struct sample *from, const struct sample *to)
{
    double seconds = to->at_s - from->at_s;
    printf("%s_cpu_percent %.3f\n", who, (to->cpu_s - from->cpu_s) / seconds * 100);
    printf("%s_wakeups_per_s %.1f\n", who, (double)(to->switches - from->switches) / seconds);
}

static void remove_log(const char *dir)
{
    char path[4400];
    DIR *entries = opendir(dir);
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        unlink(path);
    }
    if (entries != NULL) {
        closedir(entries);
    }
    rmdir(dir);
}

int main(int count, char **arguments)
{
    int ends[2];
    char byte;
    long seconds = count == 3 ? strtol(arguments[2], NULL, 10) : 0;
    if (seconds <= 0 || pipe(ends) < 0) {
        fprintf(stderr, "usage: wal_idle FOLDER SECONDS (FOLDER is made, and removed)\n");
        return 2;
    }
    const char *dir = arguments[1];
    if (access(dir, F_OK) == 0) {
        fprintf(stderr, "wal_idle: %s is there already: name a folder that is not\n", dir);
        return 2;
    }
    pid_t writer = start(be_writer, dir, ends[1]);
    pid_t reader = start(be_reader, dir, ends[1]);
    close(ends[1]);
    bool ready = read(ends[0], &byte, 1) == 1 && read(ends[0], &byte, 1) == 1;
    const struct timespec settle = {.tv_sec = 2};
    const struct timespec while_idle = {.tv_sec = seconds};
    if (ready) {
        nanosleep(&settle, NULL); /* segments are prepared, the cursor is flushed */
        struct sample writer_from = take(writer);
        struct sample reader_from = take(reader);
        nanosleep(&while_idle, NULL);
        struct sample writer_to = take(writer);
        struct sample reader_to = take(reader);
        print("writer", &writer_from, &writer_to);
        print("reader", &reader_from, &reader_to);
    }
    kill(writer, SIGKILL);
    kill(reader, SIGKILL);
    waitpid(writer, NULL, 0);
    waitpid(reader, NULL, 0);
    remove_log(dir);
    return ready ? 0 : 1;
}

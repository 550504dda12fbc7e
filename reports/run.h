/* run.h: everything one run folder says, in memory: about 130 bytes a task plus the samples. */
#ifndef SLUICE_REPORTS_RUN_H
#define SLUICE_REPORTS_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "manifest.h"
#include "tables.h"

/* How well one *.jsonl could be read. */
struct event_file {
    char *name;
    int64_t lines;
    bool half;             /* its last line was cut short: what a killed process leaves */
    int64_t damaged;       /* other lines that could not be used, and were skipped */
    int64_t first_damaged; /* number of the first such line */
    char *unreadable;      /* why the file could not be read (on), or NULL */
    size_t life;           /* index + 1 in lives of whose it is now; 0: of none of those */
};

struct batch { /* committed */
    int64_t ts_us, db_us;
    double rows, inserted, redelivered, dead;
};

struct backlog_sample {
    int64_t ts_us;
    double tasks, bytes; /* NAN: not read */
    bool exact;
};

struct os_sample { /* NAN: can't be told */
    int64_t ts_us;
    double cpu_pct, cpu_s, rss_bytes, cache_bytes, read_bytes, write_bytes, rx_bytes, tx_bytes;
};
struct part { /* one `who` */
    char *who;
    struct os_sample *samples;
    size_t count, capacity;
    bool rss_is_bound; /* some of its memory could only be bounded from above */
    bool from_pod;     /* watched from a container of its own: `host` does not know it as ours */
};

struct host_sample {
    int64_t ts_us;
    double busy_pct, steal_pct, iowait_pct, ours_pct;
};

/* A counter from the load's begin to the run's end: its rises; after a fall (it was started again)
 * the new value. */
struct rise {
    double total, last; /* NAN: no value yet */
};

struct stat_extremes { /* one field of sink_stats */
    char *name;
    double min, max, last;
    struct rise rise;
};

struct disk_use { /* of the whole machine on the disk of the state folder */
    char *name;   /* NULL: not told */
    struct rise read_bytes, write_bytes, flushes;
};

struct flush_times { /* the runner's probe of that disk; NAN: none */
    double n, p50_us, p99_us, max_us;
};

struct window {               /* fault until recovered */
    int64_t begin_us, end_us; /* end_us INT64_MAX: never recovered */
    char *what, *who;
    size_t file; /* who told of it; of several that tell of one fault, the first */
};

struct incarnation { /* of one process of the api or the worker, by its own events */
    bool is_api;
    int64_t begin_us, last_us; /* its start; its last event that reached the file */
};

struct work { /* in the background (background.h) */
    char *who, *what;
    bool forced;              /* by the runner; else seen to have happened between two samples */
    bool gave_up;             /* forced, but it did not come to pass */
    int64_t begin_us, end_us; /* end_us INT64_MAX: no end was told */
    int64_t seen_us; /* in the middle of the two samples; 0 when forced. It may go on, to end_us */
    double count;    /* how often between the two samples; 0 when forced */
};
enum { BACKGROUND_KINDS = 7 };
struct work_track { /* the last sample of a kind's counters */
    int64_t ts_us;
    double total;
    size_t samples;
    size_t last; /* index + 1 in works of what it made last; 0: none */
};

struct main_rows { /* the runner's look at the main DB; NAN: none */
    double row_sleeps, rows, refused;
    int64_t ts_us;                   /* 0: none */
    double checkpoints, autovacuums; /* NAN: not told */
};

struct lateness { /* the generator on itself, one phase */
    char *phase;
    double planned, on_time; /* requests it had to come to, and came to within the phase */
    double own_p99_ms;       /* due to when it came to it: its own fault */
    double sent_p99_ms;      /* due to sent: a wait for a connection included */
};

struct run {
    char *dir;  /* the folder */
    char *name; /* "wal/1": for a reader */
    struct manifest manifest;
    struct err manifest_err; /* code 0: fine */
    struct ledger ledger;
    struct err ledger_err;

    struct event_file *files;
    size_t file_count, file_capacity;
    struct batch *batches; /* in order of time */
    size_t batch_count, batch_capacity;
    struct backlog_sample *backlog; /* in order of time */
    size_t backlog_count, backlog_capacity;
    struct part *parts; /* by name */
    size_t part_count, part_capacity;
    struct host_sample *host;
    size_t host_count, host_capacity;
    struct stat_extremes *stats;
    size_t stat_count, stat_capacity;
    struct window *windows; /* in order of their begin */
    size_t window_count, window_capacity;
    struct incarnation *lives; /* by part, then in order of their begin */
    size_t life_count, life_capacity;
    struct lateness *lateness;
    size_t lateness_count, lateness_capacity;

    struct work *works;
    size_t work_count, work_capacity;
    struct work_track tracks[BACKGROUND_KINDS];
    int64_t *worker_starts_us; /* in order of time */
    size_t worker_start_count, worker_start_capacity;
    struct main_rows main_begin, main_end; /* before the load, after all */
    struct rise main_wal_bytes, main_wal_flushes;
    struct disk_use disk;
    struct flush_times flush_before, flush_after;
    double before_busy_pct;              /* before anything was started; NAN: not told */
    double clock_ahead_ms, clock_over_s; /* of the wall clock on the monotonic one; NAN: not told */

    bool load_began, load_ended; /* the generator's start and stop events */

    double redelivered;     /* sum over committed */
    int64_t latency_events; /* api_latency events that met a row of the ledger */
    int64_t disagreements;  /* of those, how many contradict it in code or outcome */
    int64_t clock_steps;    /* of those, latency and wall-clock times differ by over 100 ms */
    int64_t strangers;      /* durable or committed ids that no ledger knows */
    bool drained_seen;      /* the runner's drained event */
    double drained_backlog, drained_seconds;
    int64_t drained_us;
};

/* Reads manifest, ledgers and events. Never fails as a whole: what is wrong stands in the _err
 * fields and in files. Free in any case. only_audit: of the events only those that the audit needs.
 */
void run_load(struct run *run, const char *dir, bool only_audit);
void run_free(struct run *run);

bool run_times_ok(const struct run *run); /* start < end of load <= end: figures can be made */
bool run_in_fault(const struct run *run, int64_t ts_us);

/* What the sink still held when the run ended: the runner's word, else the last sample; NAN:
 * unknown. */
double run_backlog_end(const struct run *run);

int64_t run_half_lines(const struct run *run);
int64_t run_damaged_lines(const struct run *run);

/* Names of a folder's entries that `keep` takes, sorted; NULL-terminated; free with names_free.
 * NULL and err when the folder can't be read. */
char **names_list(const char *dir, bool (*keep)(const char *dir, const char *name),
                  struct err *err);
void names_free(char **names);
bool keep_events(const char *dir, const char *name);  /* *.jsonl */
bool keep_ledgers(const char *dir, const char *name); /* ledger*.tsv */

#endif

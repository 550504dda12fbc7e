/* sink_wal.c: the segment log of lib/wal, written by the API and read by the worker, in one folder.
 *
 * Ingest runs the log's single-threaded core inside the owner's loop: submit queues, process writes
 * and flushes. No thread, so no hand-off: from idle, that would cost more than the flush's own
 * overhead. The worker's side is sink_wal_drain.c.
 */
#include "sink/drivers.h"

#include <assert.h>
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "sink/sink_wal_drain.h"
#include "wal/probe.h"
#include "wal/wal.h"

/* While requests come in, a step of preparing the next segment must not be met by many of them. */
#define PREPARE_EVERY_NS (5 * NS_PER_MS)
/* A write found no room although the segment has some: only another write can tell that it ended.
 */
#define WRITE_AGAIN_NS (100 * NS_PER_MS)
/* How long a figure that had to be read from the files is good enough. */
#define SCAN_EVERY_NS (10 * NS_PER_S)

const struct option_spec sink_wal_options[] = {
    {.name = "wal-dir",
     .type = OPTION_STRING,
     .unit = "DIR",
     .required = true,
     .help = "folder of the log, on a real disk; API and worker name the same one"},
    {.name = "wal-segment-size",
     .type = OPTION_SIZE,
     .unit = "SIZE",
     .default_text = "32MiB",
     .min = 4 << 20,
     .max = 1LL << 40,
     .help = "size of a segment's file, a multiple of 4 KiB"},
    {.name = "wal-segment-age",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "0",
     .help = "end a segment this long after its first task; 0: only when it is full"},
    {.name = "wal-quota",
     .type = OPTION_SIZE,
     .unit = "SIZE",
     .default_text = "0",
     .help = "refuse tasks rather than let the segments take more than this; 0: no limit"},
    {.name = "wal-record-max",
     .type = OPTION_SIZE,
     .unit = "SIZE",
     .default_text = "2MiB",
     .min = 1024,
     .max = 1 << 30,
     .help = "longest task; a longer one is refused"},
    {.name = "wal-batch-size",
     .type = OPTION_SIZE,
     .unit = "SIZE",
     .default_text = "256KiB",
     .min = 512,
     .max = 1 << 30,
     .help = "most bytes that share a flush"},
    {.name = "wal-spacing",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "500us",
     .help = "least time between the starts of two flushes while several tasks wait; 0: none"},
    {.name = "wal-flush-timer",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "0",
     .help =
         "flush only this long after the first waiting task came, as a fixed timer does; 0: off"},
    {.name = "wal-sealed-only",
     .type = OPTION_BOOL,
     .default_text = "no",
     .help = "the worker reads a segment only when it has ended; needs wal-segment-age"},
    {.name = "wal-cursor-sync",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "250ms",
     .help = "how often at most the worker flushes what it is done with"},
    {.name = NULL},
};

struct waiter {
    sink_done_fn *done;
    void *arg;
    uint64_t lsn;
    size_t bytes;
    bool too_long;
};

struct wal_sink {
    struct sink base;
    enum sink_role role;

    /* All roles. */
    struct wal_probe *probe;
    struct wal_probe_stats scanned;
    int64_t scanned_ns;

    /* Ingest. A ring, because done may submit again. */
    struct wal *wal;
    struct waiter *waiters;
    size_t head;
    size_t count;
    size_t capacity;
    size_t too_long;
    uint64_t batch_bytes;
    int64_t spacing_ns;
    int64_t timer_ns;
    int64_t first_queued_ns;
    int64_t last_flush_ns;
    int64_t last_prepare_ns;
    bool failed;
    bool seal_wanted;

    /* Tasks are refused until one of so many bytes finds room, and not before then. */
    bool full;
    size_t full_bytes;
    int64_t full_until_ns;
    bool full_by_write; /* over only when a write has succeeded */
    bool full_said;
    char full_why[256];

    struct wal_drain drain;
};

static struct wal_sink *wal_of(struct sink *sink)
{
    return (struct wal_sink *)sink;
}

static int make_folder(const struct options *options, struct err *err)
{
    return file_mkdirs(options_string(options, "wal-dir"), 0750, err);
}

static int wal_setup(const struct options *options, struct err *err)
{
    return make_folder(options, err);
}

static int wal_sink_remove(const struct options *options, struct err *err)
{
    struct wal_err wal_err = {0};
    int rc = wal_remove(options_string(options, "wal-dir"), NULL, &wal_err);
    return rc < 0 ? err_set(err, rc, "%s", wal_err.text) : 0;
}

static int wal_preflight(const struct options *options, struct err *err)
{
    const char *dir = options_string(options, "wal-dir");
    struct statfs status;
    if (statfs(dir, &status) < 0) {
        return err_set(err, -ENODATA, "cannot tell what file system %s is on: %s", dir,
                       strerror(errno));
    }
    if (status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC) {
        return err_set(err, -EPERM,
                       "wal-dir %s is on a file system in memory (tmpfs), where a flush does "
                       "nothing; wanted: a folder on a disk",
                       dir);
    }
    if (status.f_type == OVERLAYFS_SUPER_MAGIC) {
        return err_set(err, -ENODATA,
                       "wal-dir %s is on overlayfs, which may be mounted so that a flush does "
                       "nothing (volatile); wanted: a folder or volume on a disk",
                       dir);
    }
    return 0;
}

/* ---- ingest ---- */

static int open_ingest(struct wal_sink *sink, const struct options *options, struct err *err)
{
    const char *dir = options_string(options, "wal-dir");
    struct wal_options settings;
    struct wal_err wal_err;
    wal_options_init(&settings);
    settings.segment_bytes = (uint64_t)options_size_bytes(options, "wal-segment-size");
    settings.segment_age_ns = options_duration_ns(options, "wal-segment-age");
    settings.quota_bytes = (uint64_t)options_size_bytes(options, "wal-quota");
    settings.record_max = (uint32_t)options_size_bytes(options, "wal-record-max");
    settings.batch_max_bytes = (uint32_t)options_size_bytes(options, "wal-batch-size");
    settings.batch_max_records = (uint32_t)options_int(options, "sink-batch-max");
    sink->batch_bytes = settings.batch_max_bytes;
    sink->spacing_ns = options_duration_ns(options, "wal-spacing");
    sink->timer_ns = options_duration_ns(options, "wal-flush-timer");
    int rc = wal_open(dir, &settings, &sink->wal, &wal_err);
    if (rc < 0) {
        return err_set(err, rc, "%s", wal_err.text);
    }
    struct wal_stats stats;
    wal_stats(sink->wal, &stats);
    if (stats.warning[0] != '\0') {
        log_warning("%s", stats.warning);
    }
    if (stats.cursor_was_ahead) {
        log_error("%s: the worker had been further than the log reaches; has the disk lost what "
                  "it had flushed?",
                  dir);
    }
    if (stats.torn_bytes > 0) {
        log_info("%s: dropped %llu bytes of a write that was never acknowledged", dir,
                 (unsigned long long)stats.torn_bytes);
    }
    return 0;
}

static void push_waiter(struct wal_sink *sink, const struct waiter *waiter)
{
    if (sink->count == sink->capacity) {
        size_t capacity = sink->capacity > 0 ? 2 * sink->capacity : 256;
        struct waiter *waiters = xcalloc(capacity, sizeof(*waiters));
        for (size_t i = 0; i < sink->count; i++) {
            waiters[i] = sink->waiters[(sink->head + i) % sink->capacity];
        }
        free(sink->waiters);
        sink->waiters = waiters;
        sink->capacity = capacity;
        sink->head = 0;
    }
    sink->waiters[(sink->head + sink->count) % sink->capacity] = *waiter;
    sink->count++;
}

/* The oldest `count` waiters have their outcome. */
static void settle(struct wal_sink *sink, size_t count, enum sink_outcome outcome, unsigned batch)
{
    for (size_t i = 0; i < count; i++) {
        struct waiter waiter = sink->waiters[sink->head];
        sink->head = (sink->head + 1) % sink->capacity;
        sink->count--;
        sink->too_long -= waiter.too_long;
        waiter.done(waiter.arg, waiter.too_long ? SINK_REFUSED : outcome, batch);
    }
}

/* How many of the oldest waiters a flush up to durable_lsn has decided. */
static size_t decided(const struct wal_sink *sink, uint64_t durable_lsn, unsigned *batch)
{
    size_t count = 0;
    *batch = 0;
    while (count < sink->count) {
        const struct waiter *waiter = &sink->waiters[(sink->head + count) % sink->capacity];
        if (!waiter->too_long && waiter->lsn > durable_lsn) {
            break;
        }
        *batch += !waiter->too_long;
        count++;
    }
    *batch = *batch > 0 ? *batch : 1;
    return count;
}

static bool is_no_room(int rc)
{
    return rc == -ENOSPC || rc == -EDQUOT;
}

/* Tasks of `bytes` are refused from now on. A smaller one might still find room; but then it would
 * depend on each client's size who is served, and nobody would be told that the log is full. */
static void set_full(struct wal_sink *sink, int rc, size_t bytes)
{
    const char *problem = wal_problem(sink->wal);
    const char *reason =
        strstr(problem, ": "); /* behind the folder, which is no client's business */
    sink->full = true;
    sink->full_bytes = bytes;
    snprintf(sink->full_why, sizeof(sink->full_why), "the log takes no task: %s",
             reason ? reason + 2 : strerror(-rc));
    if (!sink->full_said) {
        log_warning("tasks are refused: %s", problem[0] != '\0' ? problem : strerror(-rc));
        sink->full_said = true;
    }
}

static void say_room(struct wal_sink *sink)
{
    log_info("there is room again: tasks are taken");
    sink->full_said = sink->full_by_write = false;
}

/* Says once that tasks are refused, and once that they are taken again. */
static void watch_room(struct wal_sink *sink)
{
    if (sink->failed) {
        return;
    }
    int rc = wal_room(sink->wal, sink->full ? sink->full_bytes : TASK_HEADER_BYTES);
    if (!sink->full && is_no_room(rc)) {
        set_full(sink, rc, TASK_HEADER_BYTES);
    } else if (sink->full && !is_no_room(rc) && clock_mono_ns() >= sink->full_until_ns) {
        sink->full = false;
        if (!sink->full_by_write) {
            say_room(sink);
        }
    }
}

static int wal_submit(struct sink *base, const struct task *task, sink_done_fn *done, void *arg)
{
    struct wal_sink *sink = wal_of(base);
    struct waiter waiter = {.done = done, .arg = arg};
    uint8_t header[TASK_HEADER_BYTES];
    union {
        const void *in;
        void *out;
    } body = {.in = task->body}; /* only read from: iovec has no const */
    task_encode_header(task, header);
    const struct iovec parts[2] = {{header, sizeof(header)}, {body.out, task->body_bytes}};
    waiter.bytes = sizeof(header) + task->body_bytes;
    watch_room(sink);
    if (sink->full) {
        return -ENOSPC;
    }
    int rc = sink->failed ? -EIO : wal_appendv(sink->wal, parts, 2, &waiter.lsn);
    if (rc == -EIO) {
        return -EIO;
    }
    if (is_no_room(rc)) {
        set_full(sink, rc, waiter.bytes);
        return -ENOSPC;
    }
    if (rc == -EMSGSIZE) {
        waiter.too_long = true;
        sink->too_long++;
    } else if (rc < 0) {
        return -EAGAIN; /* too much is queued */
    }
    if (sink->count == 0) {
        sink->first_queued_ns = clock_mono_ns();
    }
    push_waiter(sink, &waiter);
    return 0;
}

/* Nanoseconds until what waits is to be flushed. */
static int64_t flush_due_ns(const struct wal_sink *sink, int64_t now_ns)
{
    struct wal_stats stats;
    wal_stats(sink->wal, &stats);
    if (stats.queued_records == 0 || stats.queued_bytes >= sink->batch_bytes ||
        sink->too_long > 0) {
        return 0;
    }
    int64_t due_ns = 0;
    if (sink->timer_ns > 0) {
        due_ns = sink->first_queued_ns + sink->timer_ns - now_ns;
    } else if (stats.queued_records > 1) {
        due_ns = sink->last_flush_ns + sink->spacing_ns - now_ns;
    }
    return due_ns > 0 ? due_ns : 0;
}

static int64_t prepare_due_ns(const struct wal_sink *sink, int64_t now_ns)
{
    int64_t due_ns = wal_prepare_due_ns(sink->wal);
    if (due_ns < 0) {
        return -1;
    }
    int64_t left_ns = sink->last_prepare_ns + PREPARE_EVERY_NS - now_ns;
    /* Refusing is worse than being slow. */
    return due_ns > left_ns || sink->full ? due_ns : left_ns;
}

static int64_t wal_due_ns(struct sink *base)
{
    struct wal_sink *sink = wal_of(base);
    if (sink->failed) {
        return -1;
    }
    int64_t now_ns = clock_mono_ns();
    return sink->count > 0 ? flush_due_ns(sink, now_ns) : prepare_due_ns(sink, now_ns);
}

/* A flush found no room: what waits is refused. */
static void flush_refused(struct wal_sink *sink, int rc, int64_t now_ns)
{
    size_t bytes = TASK_HEADER_BYTES;
    for (size_t i = 0; i < sink->count; i++) {
        const struct waiter *waiter = &sink->waiters[(sink->head + i) % sink->capacity];
        if (!waiter->too_long && waiter->bytes > bytes) {
            bytes = waiter->bytes;
        }
    }
    if (!is_no_room(wal_room(sink->wal, bytes))) {
        sink->full_until_ns = now_ns + WRITE_AGAIN_NS;
        sink->full_by_write = true;
    }
    set_full(sink, rc, bytes);
}

static int flush_once(struct wal_sink *sink, int64_t now_ns)
{
    uint64_t durable_lsn = 0;
    unsigned batch;
    sink->last_flush_ns = now_ns;
    int rc = wal_flush(sink->wal, &durable_lsn);
    if (rc == -EIO) {
        /* Before any done runs: it may submit. */
        sink->failed = true;
        log_error("%s", wal_problem(sink->wal));
    } else if (rc < 0) {
        flush_refused(sink, rc, now_ns);
    } else if (sink->full_by_write) {
        say_room(sink);
    }
    size_t left = sink->count;
    size_t count = decided(sink, durable_lsn, &batch);
    sink->first_queued_ns = now_ns;
    settle(sink, count, SINK_DURABLE, batch);
    if (rc < 0) {
        left -= count; /* not those submitted by a done meanwhile */
        settle(sink, left, rc == -EIO ? SINK_UNKNOWN : SINK_REFUSED, 1);
    }
    return rc == -EIO ? -EIO : rc > 0 ? 1 : 0;
}

static int wal_upkeep(struct sink *base)
{
    struct wal_sink *sink = wal_of(base);
    sink->seal_wanted = !sink->failed;
    return sink->failed ? -EIO : 0;
}

static void seal_if_wanted(struct wal_sink *sink)
{
    if (sink->seal_wanted && sink->count == 0) {
        /* Without a next segment it asks for one, which is made between requests, step by step. */
        sink->seal_wanted = wal_seal(sink->wal) == -EAGAIN;
    }
}

static int wal_process(struct sink *base)
{
    struct wal_sink *sink = wal_of(base);
    if (sink->failed) {
        return -EIO;
    }
    int64_t now_ns = clock_mono_ns();
    if (sink->count > 0) {
        if (flush_due_ns(sink, now_ns) > 0) {
            return 0;
        }
        int rc = flush_once(sink, now_ns);
        seal_if_wanted(sink);
        return rc < 0 ? rc : 0;
    }
    seal_if_wanted(sink);
    if (prepare_due_ns(sink, now_ns) == 0) {
        sink->last_prepare_ns = now_ns;
        wal_prepare(sink->wal); /* its failure shows as a lack of room */
        seal_if_wanted(sink);
        watch_room(sink);
    }
    return 0;
}

static int wal_fd(struct sink *base)
{
    (void)base;
    return -1;
}

static bool wal_ready(struct sink *base)
{
    struct wal_sink *sink = wal_of(base);
    watch_room(sink);
    return !sink->failed && !sink->full && wal_room(sink->wal, TASK_HEADER_BYTES) == 0;
}

static int wal_why(struct sink *base, const char **sentence)
{
    struct wal_sink *sink = wal_of(base);
    if (wal_ready(base)) {
        return 0;
    }
    *sentence = sink->failed ? "the log has failed"
                : sink->full ? sink->full_why
                             : "too many tasks wait for the log's next flush";
    return sink->failed ? -EIO : sink->full ? -ENOSPC : -EAGAIN;
}

static void close_ingest(struct wal_sink *sink, int64_t deadline_ns)
{
    int rc = sink->failed ? -EIO : 0;
    while (rc >= 0 && sink->count > 0 && clock_mono_ns() < deadline_ns) {
        rc = flush_once(sink, clock_mono_ns());
    }
    wal_discard(sink->wal);
    sink->failed = true; /* a done that submits now is told so */
    settle(sink, sink->count, SINK_REFUSED, 1);
    wal_close(sink->wal);
    free(sink->waiters);
}

/* ---- all roles ---- */

static int wal_lane_open(struct sink *base, unsigned lane, struct sink_lane **out, struct err *err)
{
    (void)lane; /* what a dead process held comes again to whoever fetches first */
    (void)err;
    *out = wal_drain_lane(&wal_of(base)->drain);
    return 0;
}

static int wal_sink_open(struct sink **out, enum sink_role role, const struct options *options,
                         struct err *err)
{
    const char *dir = options_string(options, "wal-dir");
    struct wal_err wal_err;
    struct wal_sink *sink = xcalloc(1, sizeof(*sink));
    sink->base.driver = &sink_wal;
    sink->role = role;
    *out = NULL;
    int rc = wal_probe_open(dir, NULL, &sink->probe, &wal_err);
    if (rc < 0) {
        rc = err_set(err, rc, "%s", wal_err.text);
    } else if (role != SINK_PROBE) {
        rc = make_folder(options, err); /* whoever comes first; lib/wal makes the last one only */
    }
    if (rc < 0) {
        /* said so above */
    } else if (role == SINK_INGEST) {
        rc = open_ingest(sink, options, err);
    } else if (role == SINK_DRAIN) {
        rc = wal_drain_open(&sink->drain, options, err);
    }
    if (rc < 0) {
        if (sink->probe) {
            wal_probe_close(sink->probe);
        }
        free(sink);
        return rc;
    }
    *out = &sink->base;
    return 0;
}

static void wal_sink_close(struct sink *base, int64_t deadline_ns)
{
    struct wal_sink *sink = wal_of(base);
    if (!sink) {
        return;
    }
    if (sink->role == SINK_INGEST) {
        close_ingest(sink, deadline_ns);
    } else if (sink->role == SINK_DRAIN) {
        wal_drain_close(&sink->drain);
    }
    wal_probe_close(sink->probe);
    free(sink);
}

/* *age_ns: how old the figures are. No log yet: an empty one. */
static int look(struct wal_sink *sink, struct wal_probe_stats *stats, int64_t *age_ns)
{
    struct wal_err wal_err;
    int64_t now_ns = clock_mono_ns();
    *age_ns = 0;
    if (sink->scanned_ns != 0 && now_ns - sink->scanned_ns < SCAN_EVERY_NS &&
        !wal_probe_cheap(sink->probe)) {
        *stats = sink->scanned;
        *age_ns = now_ns - sink->scanned_ns;
        return 0;
    }
    int rc = wal_probe_read(sink->probe, stats, &wal_err);
    if (rc == -ENOENT) {
        memset(stats, 0, sizeof(*stats));
        return 0;
    }
    sink->scanned_ns = 0;
    if (rc == 0 && stats->scanned) {
        sink->scanned = *stats;
        sink->scanned_ns = now_ns;
    }
    return rc;
}

static int wal_backlog(struct sink *base, struct sink_backlog *backlog)
{
    struct wal_probe_stats stats;
    int64_t age_ns;
    int rc = look(wal_of(base), &stats, &age_ns);
    if (rc < 0) {
        return rc;
    }
    *backlog = (struct sink_backlog){
        .tasks = (int64_t)stats.lag_records,
        .bytes = (int64_t)stats.lag_bytes,
        .exact = true,
        .age_ns = age_ns,
    };
    return 0;
}

static int wal_sink_stats(struct sink *base, struct sink_stats *out)
{
    struct wal_probe_stats stats;
    int64_t age_ns;
    int rc = look(wal_of(base), &stats, &age_ns);
    out->count = 0;
    if (rc < 0) {
        return rc;
    }
    const struct sink_stat items[] = {
        {"segments", (double)stats.segments},       {"live_bytes", (double)stats.allocated_bytes},
        {"durable_lsn", (double)stats.durable_lsn}, {"cursor_lsn", (double)stats.synced_lsn},
        {"lag_records", (double)stats.lag_records}, {"lag_bytes", (double)stats.lag_bytes},
        {"flushes", (double)stats.flushes},         {"failed", stats.failed != 0 ? 1 : 0},
        {"rotations", (double)stats.rotations},
    };
    out->count = sizeof(items) / sizeof(*items);
    memcpy(out->items, items, sizeof(items));
    return 0;
}

const struct sink_driver sink_wal = {
    .name = "wal",
    .promise =
        "written to the log's segment and flushed (fdatasync) on one disk: survives the end of "
        "any process, of the OS and of power, as far as the disk keeps what it has flushed; "
        "does not survive the loss of the disk or the host",
    .flags = SINK_DRAINS | SINK_BACKLOG_EXACT | SINK_DURABLE_KILL,
    .options = sink_wal_options,
    .setup = wal_setup,
    .preflight = wal_preflight,
    .remove = wal_sink_remove,
    .open = wal_sink_open,
    .close = wal_sink_close,
    .backlog = wal_backlog,
    .stats = wal_sink_stats,
    .submit = wal_submit,
    .fd = wal_fd,
    .due_ns = wal_due_ns,
    .process = wal_process,
    .ready = wal_ready,
    .upkeep = wal_upkeep,
    .upkeep_stat = "rotations",
    .why = wal_why,
    .lane_open = wal_lane_open,
    .fetch = wal_drain_fetch,
    .broken_by = wal_drain_broken_by,
    .keep = wal_drain_keep,
    .ack = wal_drain_ack,
    .release = wal_drain_release,
    .lane_close = wal_drain_lane_close,
};

/* sink_plain.c: see sink_plain.h.
 *
 * DIR/tasks: records of length (4 bytes), hash (8), task in its flat form. DIR/acked: the offsets
 * of the acknowledged ones, 8 bytes each. DIR/ingest and DIR/drain are locked by whoever has that
 * role.
 */
#include "sink_plain.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"

enum { RECORD_HEADER_BYTES = 12, RECORD_MAX_BYTES = 64 << 20, POLL_MS = 2 };

struct pending {
    sink_done_fn *done;
    void *arg;
};

struct entry {
    uint64_t offset;
    uint32_t bytes;
    enum { ENTRY_READY, ENTRY_OUT, ENTRY_ACKED } state;
    bool again;
};

struct plain {
    struct sink base;
    int lock_fd, tasks_fd, acked_fd;
    /* Ingest */
    struct buf unwritten;
    struct pending *pending;
    size_t pending_count, pending_room;
    bool broken;
    /* Drain and probe: what the files hold, as far as they were read */
    pthread_mutex_t lock;
    struct entry *entries; /* by offset */
    size_t entry_count, entry_room;
    uint64_t tasks_end, acked_end, entry_bytes;
    size_t acked_count;
};

struct plain_lane {
    struct sink_lane base;
    struct plain *plain;
    size_t *held; /* indices into entries */
    size_t held_count, held_room;
    struct task *tasks;
    struct buf bodies;
};

static const struct option_spec plain_options[] = {
    {.name = "plain-dir",
     .type = OPTION_STRING,
     .unit = "DIR",
     .required = true,
     .help = "folder of the files"},
    {.name = NULL},
};

static int open_file(const char *dir, const char *name, int flags, struct err *err)
{
    char *path = xasprintf("%s/%s", dir, name);
    int fd = open(path, flags | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        fd = err_set(err, -errno, "cannot open %s: %s", path, strerror(errno));
    }
    free(path);
    return fd;
}

static int plain_setup(const struct options *options, struct err *err)
{
    return file_mkdirs(options_string(options, "plain-dir"), 0700, err);
}

/* Bytes at offset are a whole record: its size without the header; 0: not (yet). */
static uint32_t record_at(struct plain *plain, uint64_t offset, struct buf *body)
{
    unsigned char header[RECORD_HEADER_BYTES];
    uint32_t bytes;
    uint64_t hash;
    if (pread(plain->tasks_fd, header, sizeof(header), (off_t)offset) != sizeof(header)) {
        return 0;
    }
    memcpy(&bytes, header, sizeof(bytes));
    memcpy(&hash, header + sizeof(bytes), sizeof(hash));
    if (bytes < TASK_HEADER_BYTES || bytes > RECORD_MAX_BYTES) {
        return 0;
    }
    size_t start = body->len;
    buf_reserve(body, bytes);
    ssize_t len =
        pread(plain->tasks_fd, body->data + start, bytes, (off_t)(offset + sizeof(header)));
    if (len != (ssize_t)bytes || task_body_hash(body->data + start, bytes) != hash) {
        return 0;
    }
    body->len += bytes;
    return bytes;
}

static void add_entry(struct plain *plain, uint32_t bytes)
{
    if (plain->entry_count == plain->entry_room) {
        plain->entry_room = plain->entry_room > 0 ? 2 * plain->entry_room : 1024;
        plain->entries = xrealloc(plain->entries, plain->entry_room * sizeof(*plain->entries));
    }
    plain->entries[plain->entry_count++] =
        (struct entry){.offset = plain->tasks_end, .bytes = bytes};
    plain->tasks_end += RECORD_HEADER_BYTES + bytes;
    plain->entry_bytes += bytes;
}

static int compare_offset(const void *key, const void *entry)
{
    uint64_t wanted = *(const uint64_t *)key;
    uint64_t found = ((const struct entry *)entry)->offset;
    return wanted < found ? -1 : wanted > found;
}

/* Reads on in both files. Acks first: what they name must be among the tasks read after. */
static void read_on(struct plain *plain)
{
    struct buf record = {0};
    struct stat acked = {0};
    fstat(plain->acked_fd, &acked);
    uint32_t bytes;
    while ((bytes = record_at(plain, plain->tasks_end, &record)) > 0) {
        add_entry(plain, bytes);
        buf_clear(&record);
    }
    buf_free(&record);
    uint64_t offset;
    while (plain->acked_end + sizeof(offset) <= (uint64_t)acked.st_size &&
           pread(plain->acked_fd, &offset, sizeof(offset), (off_t)plain->acked_end) ==
               sizeof(offset)) {
        plain->acked_end += sizeof(offset);
        struct entry *entry = bsearch(&offset, plain->entries, plain->entry_count,
                                      sizeof(*plain->entries), compare_offset);
        if (entry && entry->state != ENTRY_ACKED) {
            entry->state = ENTRY_ACKED;
            plain->acked_count++;
            plain->entry_bytes -= entry->bytes;
        }
    }
}

static void plain_free(struct plain *plain)
{
    const int fds[] = {plain->lock_fd, plain->tasks_fd, plain->acked_fd};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    pthread_mutex_destroy(&plain->lock);
    buf_free(&plain->unwritten);
    free(plain->pending);
    free(plain->entries);
    free(plain);
}

static int take_role(struct plain *plain, const char *dir, const char *role, struct err *err)
{
    plain->lock_fd = open_file(dir, role, O_RDWR, err);
    if (plain->lock_fd < 0) {
        return plain->lock_fd;
    }
    if (flock(plain->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        return err_set(err, -EBUSY, "%s is in use: another process has its %s side", dir, role);
    }
    return 0;
}

static int plain_open(struct sink **sink, enum sink_role role, const struct options *options,
                      struct err *err)
{
    const char *dir = options_string(options, "plain-dir");
    struct plain *plain = xcalloc(1, sizeof(*plain));
    plain->base.driver = &sink_plain;
    plain->lock_fd = plain->tasks_fd = plain->acked_fd = -1;
    pthread_mutex_init(&plain->lock, NULL);
    int rc = 0;
    if (role != SINK_PROBE) {
        rc = take_role(plain, dir, role == SINK_INGEST ? "ingest" : "drain", err);
    }
    if (rc == 0) {
        rc = plain->tasks_fd = open_file(dir, "tasks", O_RDWR | O_APPEND, err);
    }
    if (rc >= 0) {
        rc = plain->acked_fd = open_file(dir, "acked", O_RDWR | O_APPEND, err);
    }
    if (rc >= 0 && role == SINK_INGEST) {
        read_on(plain); /* a torn record at the end would hide all that come after it */
        if (ftruncate(plain->tasks_fd, (off_t)plain->tasks_end) < 0) {
            rc = err_set(err, -errno, "cannot cut %s/tasks: %s", dir, strerror(errno));
        }
    }
    if (rc < 0) {
        plain_free(plain);
        *sink = NULL;
        return rc;
    }
    *sink = &plain->base;
    return 0;
}

static int plain_submit(struct sink *sink, const struct task *task, sink_done_fn *done, void *arg)
{
    struct plain *plain = (struct plain *)sink;
    if (plain->broken) {
        return -EIO;
    }
    uint8_t header[TASK_HEADER_BYTES];
    uint32_t bytes = (uint32_t)(sizeof(header) + task->body_bytes);
    uint64_t hash = 0;
    buf_append(&plain->unwritten, &bytes, sizeof(bytes));
    size_t hash_at = plain->unwritten.len;
    buf_append(&plain->unwritten, &hash, sizeof(hash));
    task_encode_header(task, header);
    buf_append(&plain->unwritten, header, sizeof(header));
    buf_append(&plain->unwritten, task->body, task->body_bytes);
    hash = task_body_hash(plain->unwritten.data + hash_at + sizeof(hash), bytes);
    memcpy(plain->unwritten.data + hash_at, &hash, sizeof(hash));
    if (plain->pending_count == plain->pending_room) {
        plain->pending_room = plain->pending_room > 0 ? 2 * plain->pending_room : 256;
        plain->pending = xrealloc(plain->pending, plain->pending_room * sizeof(*plain->pending));
    }
    plain->pending[plain->pending_count++] = (struct pending){.done = done, .arg = arg};
    return 0;
}

static int plain_process(struct sink *sink)
{
    struct plain *plain = (struct plain *)sink;
    size_t count = plain->pending_count;
    if (count > 0 && !plain->broken) {
        int rc = file_write_all(plain->tasks_fd, plain->unwritten.data, plain->unwritten.len);
        plain->broken = rc < 0 || fdatasync(plain->tasks_fd) < 0;
        buf_clear(&plain->unwritten);
    }
    for (size_t i = 0; i < count; i++) {
        struct pending pending = plain->pending[i]; /* done may submit, which may move the array */
        pending.done(pending.arg, plain->broken ? SINK_UNKNOWN : SINK_DURABLE, (unsigned)count);
    }
    plain->pending_count -= count;
    for (size_t i = 0; i < plain->pending_count; i++) {
        plain->pending[i] = plain->pending[count + i];
    }
    return plain->broken ? -EIO : 0;
}

static void plain_close(struct sink *sink, int64_t deadline_ns)
{
    (void)deadline_ns;
    if (sink) {
        plain_process(sink);
        plain_free((struct plain *)sink);
    }
}

static int plain_fd(struct sink *sink)
{
    (void)sink;
    return -1;
}

static int64_t plain_due_ns(struct sink *sink)
{
    return ((struct plain *)sink)->pending_count > 0 ? 0 : -1;
}

static bool plain_ready(struct sink *sink)
{
    return !((struct plain *)sink)->broken;
}

static int plain_backlog(struct sink *sink, struct sink_backlog *backlog)
{
    struct plain *plain = (struct plain *)sink;
    pthread_mutex_lock(&plain->lock);
    read_on(plain);
    *backlog = (struct sink_backlog){.tasks = (int64_t)(plain->entry_count - plain->acked_count),
                                     .bytes = (int64_t)plain->entry_bytes,
                                     .exact = true};
    pthread_mutex_unlock(&plain->lock);
    return 0;
}

static int plain_stats(struct sink *sink, struct sink_stats *stats)
{
    (void)sink;
    stats->count = 0;
    return 0;
}

static int plain_lane_open(struct sink *sink, unsigned number, struct sink_lane **out,
                           struct err *err)
{
    (void)number;
    (void)err;
    struct plain_lane *lane = xcalloc(1, sizeof(*lane));
    lane->base.driver = &sink_plain;
    lane->plain = (struct plain *)sink;
    *out = &lane->base;
    return 0;
}

/* Takes what is ready, up to max in all. */
static void take_ready(struct plain_lane *lane, unsigned max)
{
    struct plain *plain = lane->plain;
    pthread_mutex_lock(&plain->lock);
    read_on(plain);
    for (size_t i = 0; i < plain->entry_count && lane->held_count < max; i++) {
        if (plain->entries[i].state == ENTRY_READY) {
            plain->entries[i].state = ENTRY_OUT;
            lane->held[lane->held_count++] = i;
        }
    }
    pthread_mutex_unlock(&plain->lock);
}

static int fill_batch(struct plain_lane *lane, struct sink_batch *batch)
{
    struct plain *plain = lane->plain;
    buf_clear(&lane->bodies);
    pthread_mutex_lock(&plain->lock);
    for (size_t i = 0; i < lane->held_count; i++) {
        struct entry *entry = &plain->entries[lane->held[i]];
        batch->redelivered += entry->again;
        entry->again = true;
        if (record_at(plain, entry->offset, &lane->bodies) != entry->bytes) {
            pthread_mutex_unlock(&plain->lock);
            return -ESHUTDOWN;
        }
    }
    const char *at = lane->bodies.data; /* only now: the buffer has stopped moving */
    for (size_t i = 0; i < lane->held_count; i++) {
        uint32_t bytes = plain->entries[lane->held[i]].bytes;
        int rc = task_decode(at, bytes, &lane->tasks[i]);
        assert(rc == 0);
        at += bytes;
    }
    pthread_mutex_unlock(&plain->lock);
    batch->tasks = lane->tasks;
    batch->count = lane->held_count;
    return (int)batch->count;
}

static int plain_fetch(struct sink_lane *base, unsigned max, int wait_ms, struct sink_batch *batch)
{
    struct plain_lane *lane = (struct plain_lane *)base;
    assert(lane->held_count == 0);
    *batch = (struct sink_batch){0};
    if (max > lane->held_room) {
        lane->held_room = max;
        lane->held = xrealloc(lane->held, max * sizeof(*lane->held));
        lane->tasks = xrealloc(lane->tasks, max * sizeof(*lane->tasks));
    }
    int64_t until_ns = clock_mono_ns() + wait_ms * NS_PER_MS;
    bool empty = true;
    for (;;) {
        take_ready(lane, max);
        int64_t now_ns = clock_mono_ns();
        if (empty && lane->held_count > 0) {
            empty = false;
            until_ns = now_ns + wait_ms * NS_PER_MS;
        }
        if (lane->held_count == max || now_ns >= until_ns) {
            break;
        }
        clock_sleep_ns(POLL_MS * NS_PER_MS);
    }
    return lane->held_count > 0 ? fill_batch(lane, batch) : 0;
}

static int plain_keep(struct sink_lane *lane)
{
    (void)lane;
    return 0;
}

static int end_batch(struct plain_lane *lane, bool acked)
{
    struct plain *plain = lane->plain;
    struct buf offsets = {0};
    int rc = 0;
    pthread_mutex_lock(&plain->lock);
    for (size_t i = 0; i < lane->held_count; i++) {
        struct entry *entry = &plain->entries[lane->held[i]];
        buf_append(&offsets, &entry->offset, sizeof(entry->offset));
        entry->state = ENTRY_READY; /* acked only once the file says so, see read_on */
    }
    if (acked && offsets.len > 0) {
        rc = file_write_all(plain->acked_fd, offsets.data, offsets.len);
        if (rc == 0 && fdatasync(plain->acked_fd) < 0) {
            rc = -errno;
        }
        read_on(plain);
    }
    pthread_mutex_unlock(&plain->lock);
    buf_free(&offsets);
    lane->held_count = 0;
    return rc;
}

static int plain_ack(struct sink_lane *lane, struct sink_batch *batch)
{
    *batch = (struct sink_batch){0};
    return end_batch((struct plain_lane *)lane, true);
}

static int plain_release(struct sink_lane *lane, struct sink_batch *batch)
{
    *batch = (struct sink_batch){0};
    return end_batch((struct plain_lane *)lane, false);
}

static void plain_lane_close(struct sink_lane *base)
{
    struct plain_lane *lane = (struct plain_lane *)base;
    end_batch(lane, false);
    free(lane->held);
    free(lane->tasks);
    buf_free(&lane->bodies);
    free(lane);
}

const struct sink_driver sink_plain = {
    .name = "plain",
    .promise = "written to a file and flushed: survives the process and the OS, not the disk",
    .flags = SINK_DRAINS | SINK_BACKLOG_EXACT | SINK_DURABLE_KILL,
    .options = plain_options,
    .setup = plain_setup,
    .preflight = sink_no_preflight,
    .open = plain_open,
    .close = plain_close,
    .backlog = plain_backlog,
    .stats = plain_stats,
    .submit = plain_submit,
    .fd = plain_fd,
    .due_ns = plain_due_ns,
    .process = plain_process,
    .ready = plain_ready,
    .upkeep = sink_no_upkeep,
    .lane_open = plain_lane_open,
    .fetch = plain_fetch,
    .keep = plain_keep,
    .ack = plain_ack,
    .release = plain_release,
    .lane_close = plain_lane_close,
};

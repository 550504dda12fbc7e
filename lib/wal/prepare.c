/*
 * The life of a segment's file before and after it takes records: made or recycled ahead of need,
 * in steps; removed when the reader is done with it.
 *
 *   NONE -> FILL -> HEADER -> NAME -> READY        a new file
 *   NONE -> MOVED -> HEADER -> NAME -> READY       an old one
 *
 * A file gets a segment's name only when its header is on disk, and loses it before its header is
 * changed: a name and a header that contradict each other are damage, never a crash.
 */
#include "wal/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A page at a time. The kernel makes the cache's folios as large as the write that fills them, and
 * then charges a process with a whole folio for every record that it changes in one: filled in
 * larger pieces, a log of 20 MiB was said to have written 4 GiB. */
#define FILL_BYTES 4096u
#define RETRY_NS   100000000 /* after "no room" */
#define STEP_BYTES (256u * 1024)

uint64_t wal_synced_lsn(const struct wal *wal)
{
    return atomic_load(&wal->shared->synced_lsn);
}

static void publish_sizes(struct wal *wal)
{
    uint64_t segments = wal->old_count + (wal->file >= 0) + (wal->spare.state == WAL_SPARE_READY);
    wal->stats.segments = segments;
    wal->stats.allocated_bytes = wal->allocated_bytes;
    atomic_store(&wal->shared->segments, segments);
    atomic_store(&wal->shared->allocated_bytes, wal->allocated_bytes);
}

static int spare_path(const struct wal *wal, char path[WAL_PATH_BYTES])
{
    return wal_path(path, wal->dir, WAL_SPARE_FILE_NAME);
}

/* Whatever failed may go on failing: rest a while, or until the reader has freed something. */
static int note_problem(struct wal *wal, int code, const char *what)
{
    wal->rest_until_ns = wal->vfs->now_ns(wal->vfs) + RETRY_NS;
    wal->rest_synced_lsn = wal_synced_lsn(wal);
    return wal_fail(&wal->problem, code, "%s: %s: %s", wal->dir, what, strerror(-code));
}

/* A spare that failed half-way is of no use: the next try starts anew. */
static int spare_drop(struct wal *wal, int code, const char *what)
{
    char path[WAL_PATH_BYTES];
    if (wal->spare.file >= 0) {
        wal->vfs->close(wal->vfs, wal->spare.file);
    }
    wal->spare.file = -1;
    if (spare_path(wal, path) == 0) {
        wal->vfs->unlink(wal->vfs, path);
    }
    wal->spare.state = WAL_SPARE_NONE;
    wal->allocated_bytes -= wal->options.segment_bytes;
    publish_sizes(wal);
    wal->no_room = code == -EDQUOT ? -EDQUOT : -ENOSPC;
    return note_problem(wal, code, what);
}

static int spare_header(struct wal *wal)
{
    struct wal_spare *spare = &wal->spare;
    spare->header = (struct wal_segment_header){
        .log_id = wal->log_id,
        .number = wal->last_number + 1,
        .epoch = wal->epoch,
        .segment_bytes = wal->options.segment_bytes,
        .block_bytes = wal->options.block_bytes,
        .batch_limit = wal->batch_limit,
        .base_lsn = wal->base_lsn,
        .created_us = (uint64_t)wal->vfs->wall_us(wal->vfs),
    };
    return wal->vfs->entropy(wal->vfs, &spare->header.salt, sizeof spare->header.salt);
}

static int spare_begin(struct wal *wal)
{
    char path[WAL_PATH_BYTES];
    const struct wal_vfs *vfs = wal->vfs;
    struct wal_spare *spare = &wal->spare;
    uint64_t bytes = wal->options.segment_bytes;
    if (wal->options.quota_bytes != 0 && wal->allocated_bytes + bytes > wal->options.quota_bytes) {
        wal->no_room = -EDQUOT;
        note_problem(wal, -EDQUOT, "");
        return wal_fail(&wal->problem, -EDQUOT,
                        "%s: the log has reached its quota of %llu bytes; the reader must catch up",
                        wal->dir, (unsigned long long)wal->options.quota_bytes);
    }
    wal->allocated_bytes += bytes;
    int result = spare_path(wal, path);
    spare->file = result < 0
                      ? result
                      : vfs->open(vfs, path, WAL_OPEN_WRITE | WAL_OPEN_CREATE | WAL_OPEN_TRUNCATE);
    if (spare->file < 0) {
        return spare_drop(wal, spare->file, "cannot make " WAL_SPARE_FILE_NAME);
    }
    result = vfs->allocate(vfs, spare->file, bytes);
    if (result < 0 && result != -EOPNOTSUPP) {
        return spare_drop(wal, result, "cannot allocate the next segment");
    }
    spare->allocated = result == 0;
    spare->filled = 0;
    spare->state = WAL_SPARE_FILL;
    wal->stats.segments_made++;
    publish_sizes(wal);
    return 1;
}

static int spare_fill(struct wal *wal)
{
    const struct wal_vfs *vfs = wal->vfs;
    struct wal_spare *spare = &wal->spare;
    uint64_t left = wal->options.segment_bytes - spare->filled;
    uint64_t step = left < STEP_BYTES ? left : STEP_BYTES;
    uint64_t done = 0;
    while (done < step) {
        uint64_t bytes = step - done < FILL_BYTES ? step - done : FILL_BYTES;
        struct iovec part = {wal->zeros, bytes};
        uint64_t written;
        int result = wal_write_full(vfs, spare->file, &part, 1, spare->filled + done, &written);
        if (result < 0) {
            return spare_drop(wal, result, "cannot fill the next segment");
        }
        done += bytes;
    }
    spare->filled += step;
    /* Each step is flushed, so that no flush of records ever has a whole segment before it. */
    int result = vfs->sync(vfs, spare->file);
    if (result < 0) {
        return spare_drop(wal, result, "cannot flush the next segment");
    }
    if (spare->filled == wal->options.segment_bytes) {
        spare->state = WAL_SPARE_HEADER;
    }
    return 1;
}

/* An old segment loses its name, for good, before anything in it is changed. */
static int spare_moved(struct wal *wal)
{
    int result = wal->vfs->sync_dir(wal->vfs, wal->dir);
    if (result < 0) {
        return spare_drop(wal, result, "cannot sync the folder");
    }
    wal->removals_pending = false;
    wal->spare.state = WAL_SPARE_HEADER;
    return 1;
}

/* Room in the list for the current segment, for when this one takes its place. */
static int old_reserve(struct wal *wal)
{
    if (wal->old_count + 2 <= wal->old_capacity) {
        return 0;
    }
    size_t capacity = wal->old_capacity * 2;
    struct wal_segment_info *old = realloc(wal->old, capacity * sizeof *old);
    if (old == NULL) {
        return -ENOMEM;
    }
    wal->old = old;
    wal->old_capacity = capacity;
    return 0;
}

static int spare_write_header(struct wal *wal)
{
    unsigned char bytes[WAL_HEADER_BYTES];
    struct iovec part = {bytes, sizeof bytes};
    uint64_t written;
    int result = old_reserve(wal);
    if (result == 0) {
        result = spare_header(wal);
    }
    if (result == 0) {
        wal_segment_header_encode(&wal->spare.header, bytes);
        result = wal_write_full(wal->vfs, wal->spare.file, &part, 1, 0, &written);
    }
    if (result == 0) {
        result = wal->vfs->sync(wal->vfs, wal->spare.file);
    }
    if (result < 0) {
        return spare_drop(wal, result, "cannot write the next segment's header");
    }
    wal->spare.state = WAL_SPARE_NAME;
    return 1;
}

static int spare_name(struct wal *wal)
{
    char from[WAL_PATH_BYTES];
    char to[WAL_PATH_BYTES];
    int result = spare_path(wal, from);
    if (result == 0) {
        result = wal_segment_path(to, wal->dir, wal->spare.header.number);
    }
    if (result == 0) {
        result = wal->vfs->rename(wal->vfs, from, to);
    }
    if (result < 0) {
        return spare_drop(wal, result, "cannot name the next segment");
    }
    wal->last_number = wal->spare.header.number;
    result = wal->vfs->sync_dir(wal->vfs, wal->dir);
    if (result < 0) {
        /* It may have its name or not; its number is never used again. */
        wal->vfs->unlink(wal->vfs, to);
        return spare_drop(wal, result, "cannot sync the folder");
    }
    wal->spare.state = WAL_SPARE_READY;
    wal->no_room = 0;
    wal->rest_until_ns = 0;
    wal->problem.text[0] = '\0';
    publish_sizes(wal);
    return 1;
}

static int spare_step(struct wal *wal)
{
    switch (wal->spare.state) {
    case WAL_SPARE_NONE:
        return spare_begin(wal);
    case WAL_SPARE_FILL:
        return spare_fill(wal);
    case WAL_SPARE_MOVED:
        return spare_moved(wal);
    case WAL_SPARE_HEADER:
        return spare_write_header(wal);
    case WAL_SPARE_NAME:
        return spare_name(wal);
    case WAL_SPARE_READY:
        break;
    }
    return 0;
}

static void old_remove(struct wal *wal)
{
    wal->to_trim -= wal->old[0].trim_to != 0;
    wal->old_count--;
    memmove(wal->old, wal->old + 1, wal->old_count * sizeof *wal->old);
}

/* May the oldest segment go? The reader may say so at any time, also while its last batch is still
 * to be copied: then not yet. */
static bool oldest_is_done(const struct wal *wal)
{
    return wal->old_count > 0 && wal->old[0].last_lsn <= wal_synced_lsn(wal) &&
           wal->old[0].number != wal->copied_number;
}

/* The oldest segment, all done: becomes the next one if one is wanted, or goes. */
static int retire(struct wal *wal)
{
    char path[WAL_PATH_BYTES];
    char spare[WAL_PATH_BYTES];
    const struct wal_vfs *vfs = wal->vfs;
    struct wal_segment_info info = wal->old[0];
    if (wal->removals_pending) {
        /* One at a time, in order: should an older one come back without its successor, and the
         * cursor be lost too, it would look as if durable records were missing. */
        int synced = vfs->sync_dir(vfs, wal->dir);
        if (synced < 0) {
            return note_problem(wal, synced, "cannot sync the folder");
        }
        wal->removals_pending = false;
    }
    int result = wal_segment_path(path, wal->dir, info.number);
    if (result == 0) {
        result = spare_path(wal, spare);
    }
    if (result < 0) {
        return result;
    }
    if (wal->spare.state == WAL_SPARE_NONE && info.size == wal->options.segment_bytes) {
        int file = vfs->open(vfs, path, WAL_OPEN_WRITE);
        result = file < 0 ? file : vfs->rename(vfs, path, spare);
        if (result == 0) {
            wal->removals_pending = true;
            wal->spare.file = file;
            wal->spare.state = WAL_SPARE_MOVED;
            wal->stats.segments_recycled++;
            old_remove(wal);
            publish_sizes(wal);
            return 1;
        }
        if (file >= 0) {
            vfs->close(vfs, file);
        }
    }
    result = vfs->unlink(vfs, path);
    if (result < 0 && result != -ENOENT) {
        return note_problem(wal, result, "cannot remove a segment that is done");
    }
    wal->removals_pending = true;
    wal->allocated_bytes -= info.size;
    wal->stats.segments_removed++;
    old_remove(wal);
    publish_sizes(wal);
    return 1;
}

static int trim(struct wal *wal, struct wal_segment_info *info)
{
    char path[WAL_PATH_BYTES];
    const struct wal_vfs *vfs = wal->vfs;
    uint64_t size = info->trim_to;
    info->trim_to = 0;
    wal->to_trim--;
    int result = wal_segment_path(path, wal->dir, info->number);
    int file = result < 0 ? result : vfs->open(vfs, path, WAL_OPEN_WRITE);
    if (file < 0) {
        return note_problem(wal, file, "cannot open a sealed segment");
    }
    result = vfs->truncate(vfs, file, size);
    vfs->close(vfs, file);
    if (result < 0) {
        return note_problem(wal, result, "cannot cut a sealed segment to size");
    }
    wal->allocated_bytes -= info->size - size;
    info->size = size;
    publish_sizes(wal);
    return 1;
}

static bool segment_has_records(const struct wal *wal)
{
    return wal->file >= 0 && wal->tail > WAL_HEADER_BYTES;
}

static int64_t age_left_ns(const struct wal *wal, int64_t age_ns)
{
    return wal->first_record_ns + age_ns - wal->vfs->now_ns(wal->vfs);
}

/* Not right after a rotation: by then an old segment may be free to be recycled instead. */
static bool wants_spare(const struct wal *wal)
{
    if (wal->file < 0 || wal->no_room != 0 || wal->tail >= wal->options.segment_bytes / 4 ||
        wal->plan_next || wal->seal_asked) {
        return true;
    }
    int64_t age_ns = wal->options.segment_age_ns;
    return age_ns > 0 && segment_has_records(wal) && age_left_ns(wal, age_ns / 2) <= 0;
}

static bool resting(const struct wal *wal)
{
    return wal->rest_until_ns != 0 && wal->rest_synced_lsn == wal_synced_lsn(wal) &&
           wal->vfs->now_ns(wal->vfs) < wal->rest_until_ns;
}

enum job { JOB_NONE, JOB_ADOPT, JOB_SEAL, JOB_RETIRE, JOB_SPARE, JOB_TRIM };

static enum job next_job(const struct wal *wal, struct wal_segment_info **trimmed)
{
    bool ready = wal->spare.state == WAL_SPARE_READY;
    if (resting(wal)) {
        return JOB_NONE;
    }
    if (wal->file < 0 && ready) {
        return JOB_ADOPT;
    }
    if (ready && wal->options.segment_age_ns > 0 && segment_has_records(wal) &&
        wal->queue_records == 0 && age_left_ns(wal, wal->options.segment_age_ns) <= 0) {
        return JOB_SEAL;
    }
    if (wal->spare.state != WAL_SPARE_NONE && !ready) {
        return JOB_SPARE;
    }
    if (oldest_is_done(wal)) {
        return JOB_RETIRE;
    }
    if (!ready && wants_spare(wal)) {
        return JOB_SPARE;
    }
    for (size_t i = wal->old_count; wal->to_trim > 0 && i > 0; i--) {
        if (wal->old[i - 1].trim_to != 0) {
            *trimmed = &wal->old[i - 1];
            return JOB_TRIM;
        }
    }
    return JOB_NONE;
}

int wal_prepare(struct wal *wal)
{
    struct wal_segment_info *trimmed = NULL;
    if (wal->failed != 0) {
        return -EIO;
    }
    switch (next_job(wal, &trimmed)) {
    case JOB_NONE:
        return 0;
    case JOB_ADOPT:
    case JOB_SEAL:
        wal_switch(wal);
        return 1;
    case JOB_RETIRE:
        return retire(wal);
    case JOB_SPARE:
        return spare_step(wal);
    case JOB_TRIM:
        return trim(wal, trimmed);
    }
    return 0;
}

int64_t wal_prepare_due_ns(const struct wal *wal)
{
    struct wal_segment_info *trimmed;
    if (wal->failed != 0) {
        return -1;
    }
    if (next_job(wal, &trimmed) != JOB_NONE) {
        return 0;
    }
    int64_t due_ns = -1;
    if (resting(wal)) {
        due_ns = wal->rest_until_ns - wal->vfs->now_ns(wal->vfs);
    } else if (wal->options.segment_age_ns > 0 && segment_has_records(wal)) {
        bool ready = wal->spare.state == WAL_SPARE_READY;
        int64_t age_ns = wal->options.segment_age_ns;
        due_ns = age_left_ns(wal, ready ? age_ns : age_ns / 2);
    }
    return due_ns < -1 ? 0 : due_ns;
}

int wal_prepare_hurry(struct wal *wal, bool fill)
{
    if (wal->failed != 0) {
        return -EIO;
    }
    if (wal->spare.state == WAL_SPARE_NONE) {
        if (wal->no_room != 0 && resting(wal)) {
            return wal->no_room;
        }
        while (wal->spare.state == WAL_SPARE_NONE && oldest_is_done(wal)) {
            int result = retire(wal);
            if (result < 0) {
                break;
            }
        }
    }
    while (wal->spare.state != WAL_SPARE_READY) {
        if (!fill && wal->spare.state == WAL_SPARE_FILL && wal->spare.allocated) {
            /* Room is reserved: the rest of the zeros would only have saved metadata. */
            wal->spare.state = WAL_SPARE_HEADER;
        }
        int result = spare_step(wal);
        if (result < 0) {
            return wal->no_room != 0 ? wal->no_room : result;
        }
    }
    return 0;
}

void wal_switch(struct wal *wal)
{
    assert(wal->spare.state == WAL_SPARE_READY);
    if (wal->file >= 0) {
        /* old_reserve saw to it before the spare got its header. */
        assert(wal->old_count < wal->old_capacity);
        struct wal_segment_info *info = &wal->old[wal->old_count++];
        *info = (struct wal_segment_info){
            .number = wal->header.number,
            .size = wal->file_size,
            .last_lsn = wal->durable_lsn,
        };
        /* Sealed early, by age: most of it may be unused, and the reader may be far behind. */
        if (wal->tail < wal->options.segment_bytes / 2) {
            info->trim_to = wal->tail;
            wal->to_trim++;
        }
        wal->vfs->close(wal->vfs, wal->file);
        atomic_store(&wal->shared->sealed_lsn, wal->durable_lsn);
        wal_shared_wake(wal->vfs, wal->shared, wal->durable_lsn);
    }
    atomic_fetch_add(&wal->shared->rotations, 1);
    wal->file = wal->spare.file;
    wal->header = wal->spare.header;
    wal->tail = WAL_HEADER_BYTES;
    wal->file_size = wal->options.segment_bytes;
    wal->spare.file = -1;
    wal->spare.state = WAL_SPARE_NONE;
    if (wal->queue_records == 0) {
        wal->plan_offset = wal->tail;
    }
    wal->plan_next = false;
    wal->seal_asked = false;
    publish_sizes(wal);
}

static int remove_file(struct wal *wal, const char *path)
{
    int result = wal->vfs->unlink(wal->vfs, path);
    return result == -ENOENT ? 0 : result;
}

int wal_adopt(struct wal *wal, const struct wal_found *found)
{
    char path[WAL_PATH_BYTES];
    int result = spare_path(wal, path);
    if (result == 0) {
        result = remove_file(wal, path);
    }
    wal->removals_pending = true; /* by a writer that has died */
    wal->last_number = found->has_cursor ? found->cursor.number : 0;
    wal->old_capacity = found->count + 64;
    wal->old = calloc(wal->old_capacity, sizeof *wal->old);
    if (wal->old == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; result == 0 && i < found->count; i++) {
        const struct wal_segment_info *info = &found->segments[i];
        if (info->number > wal->last_number) {
            wal->last_number = info->number;
        }
        if (info->empty) {
            result = wal_segment_path(path, wal->dir, info->number);
            if (result == 0) {
                result = remove_file(wal, path);
            }
            continue;
        }
        wal->old[wal->old_count++] = *info;
        wal->to_trim += info->trim_to != 0;
        wal->allocated_bytes += info->size;
    }
    return result;
}

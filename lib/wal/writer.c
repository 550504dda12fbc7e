#include "wal/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void wal_options_init(struct wal_options *options)
{
    *options = (struct wal_options){
        .vfs = wal_vfs_posix(),
        .segment_bytes = 32u * 1024 * 1024,
        .segment_age_ns = 0,
        .quota_bytes = 0,
        .queue_max_bytes = 64u * 1024 * 1024,
        .record_max = 1024 * 1024,
        .batch_max_bytes = 256 * 1024,
        .block_bytes = 512,
        .first_lsn = 1,
    };
}

int wal_check_options(const struct wal_options *options, struct wal_err *err)
{
    uint64_t largest = WAL_HEADER_BYTES + WAL_BATCH_HEADER_BYTES + WAL_RECORD_HEADER_BYTES +
                       (uint64_t)options->record_max;
    uint32_t block = options->block_bytes;
    if (options->vfs == NULL) {
        return wal_fail(err, -EINVAL, "wal_options.vfs is missing: use wal_options_init");
    }
    if (block < 512 || block > 4096 || (block & (block - 1)) != 0) {
        return wal_fail(err, -EINVAL, "block_bytes is %u: must be 512, 1024, 2048 or 4096", block);
    }
    if (options->record_max > WAL_RECORD_LIMIT - WAL_HEADER_BYTES) {
        return wal_fail(err, -EINVAL, "record_max is %u: must be less than 2 GiB",
                        options->record_max);
    }
    if (options->segment_bytes < largest || options->segment_bytes % 4096 != 0 ||
        options->segment_bytes > 1ull << 40) {
        return wal_fail(err, -EINVAL,
                        "segment_bytes is %llu: must be a multiple of 4096, at most 1 TiB, and at "
                        "least %llu to hold a record of record_max",
                        (unsigned long long)options->segment_bytes,
                        (unsigned long long)wal_align(largest, 4096));
    }
    if (options->batch_max_bytes == 0 || options->batch_max_bytes > 1u << 30) {
        return wal_fail(err, -EINVAL, "batch_max_bytes is %u: must be 1 to 1 GiB",
                        options->batch_max_bytes);
    }
    if (options->quota_bytes != 0 && options->quota_bytes / 3 < options->segment_bytes) {
        return wal_fail(
            err, -EINVAL, "quota_bytes is %llu: must be 0 (none) or at least 3 segments of %llu",
            (unsigned long long)options->quota_bytes, (unsigned long long)options->segment_bytes);
    }
    if (options->first_lsn == 0 || options->first_lsn > WAL_LSN_MAX ||
        options->segment_age_ns < 0) {
        return wal_fail(err, -EINVAL, "first_lsn or segment_age_ns is out of bounds");
    }
    return 0;
}

int wal_break(struct wal *wal, int code, const char *what, uint64_t number)
{
    wal->failed = -EIO;
    wal_fail(&wal->problem, code,
             "%s, segment %llu: %s: %s; the log takes no more until opened anew", wal->dir,
             (unsigned long long)number, what, strerror(-code));
    wal->queue_start = wal->queue_end = 0;
    wal->queue_records = 0;
    atomic_store(&wal->shared->failed, (uint64_t)-code);
    return -EIO;
}

static void publish(struct wal *wal)
{
    struct wal_shared *shared = wal->shared;
    atomic_store(&shared->position, wal->position);
    atomic_store(&shared->flushes, wal->stats.flushes);
    atomic_store(&shared->durable_lsn, wal->durable_lsn);
    wal_shared_wake(wal->vfs, shared, wal->durable_lsn);
}

int wal_write_batch(struct wal *wal, struct wal_batch_header *batch, unsigned char *body)
{
    unsigned char header[WAL_BATCH_HEADER_BYTES];
    uint64_t bytes = wal_batch_bytes(batch);
    uint64_t end = wal_align(wal->tail + bytes, wal->options.block_bytes);
    uint64_t written = 0;
    batch->body_checksum =
        wal_body_seal(body, batch->record_count, batch->first_lsn, wal->header.salt);
    wal_batch_header_encode(batch, wal->header.salt, wal->tail, header);
    struct iovec parts[3] = {
        {header, sizeof header},
        {body, batch->body_bytes},
        {wal->zeros, end - wal->tail - bytes},
    };
    int result = wal_write_full(wal->vfs, wal->file, parts, 3, wal->tail, &written);
    if (result == -ENOSPC || result == -EDQUOT) {
        /* A part of a batch is no batch, and the next one goes to the same place: surely not
         * stored. Unless only padding is missing; then nobody can say so. */
        if (written < bytes) {
            return result;
        }
    }
    if (result < 0) {
        return wal_break(wal, result, "cannot write", wal->header.number);
    }
    result = wal->vfs->sync(wal->vfs, wal->file);
    if (result < 0) {
        return wal_break(wal, result, "cannot flush", wal->header.number);
    }
    /* A removed file is written and flushed without complaint. */
    struct wal_file_status status;
    result = wal->vfs->status(wal->vfs, wal->file, &status);
    if (result < 0 || status.links == 0) {
        return wal_break(wal, result < 0 ? result : -ENOENT, "the file has been removed",
                         wal->header.number);
    }
    if (wal->tail == WAL_HEADER_BYTES) {
        wal->first_record_ns = wal->vfs->now_ns(wal->vfs);
    }
    if (status.size > wal->file_size) {
        wal->stats.size_changes++;
        wal->file_size = status.size;
    }
    wal->tail = end;
    wal->durable_lsn = wal_batch_last_lsn(batch);
    wal->position = batch->position + batch->body_bytes;
    wal->stats.flushes++;
    return 0;
}

/* How many of the queued records go into one batch of at most `room` bytes. */
static uint32_t gather(const struct wal *wal, uint64_t room, uint32_t *body_bytes)
{
    uint64_t limit = wal->options.batch_max_bytes;
    uint64_t sum = 0;
    uint32_t count = 0;
    uint64_t most = wal->options.batch_max_records;
    most = most == 0 || most > wal->queue_records ? wal->queue_records : most;
    while (count < most && count < UINT32_MAX) {
        uint64_t record = WAL_RECORD_HEADER_BYTES +
                          (uint64_t)wal_record_length(wal->queue + wal->queue_start + sum);
        uint64_t bytes = WAL_BATCH_HEADER_BYTES + sum + record;
        if (bytes > room || (count > 0 && bytes > limit)) {
            break;
        }
        sum += record;
        count++;
    }
    *body_bytes = (uint32_t)sum;
    return count;
}

static void queue_drop(struct wal *wal)
{
    wal->queue_start = wal->queue_end = 0;
    wal->queue_records = 0;
    wal->plan_next = false;
    wal->plan_offset = wal->tail;
}

void wal_discard(struct wal *wal)
{
    queue_drop(wal);
}

static uint64_t room_in_segment(const struct wal *wal)
{
    return wal->file < 0 ? 0 : wal->options.segment_bytes - wal->tail;
}

int wal_flush(struct wal *wal, uint64_t *durable_lsn)
{
    uint32_t body_bytes = 0;
    int result = 0;
    if (wal->failed != 0) {
        result = -EIO;
        goto out;
    }
    if (wal->queue_records == 0) {
        goto out;
    }
    uint32_t count = gather(wal, room_in_segment(wal), &body_bytes);
    if (count == 0) {
        result = wal_prepare_hurry(wal, false);
        if (result < 0) {
            queue_drop(wal);
            goto out;
        }
        wal_switch(wal);
        count = gather(wal, room_in_segment(wal), &body_bytes);
        assert(count > 0);
    }
    struct wal_batch_header batch = {
        .record_count = count,
        .body_bytes = body_bytes,
        .first_lsn = wal->next_first_lsn,
        .durable_lsn = wal->durable_before,
        .position = wal->position,
    };
    result = wal_write_batch(wal, &batch, wal->queue + wal->queue_start);
    if (result < 0) {
        if (wal->failed == 0) {
            wal_fail(&wal->problem, result, "%s: no room for records: %s", wal->dir,
                     strerror(-result));
            queue_drop(wal);
        }
        goto out;
    }
    wal->durable_before = wal->durable_lsn;
    wal->base_lsn = wal->durable_lsn;
    wal->next_first_lsn = wal->durable_lsn + 1;
    wal->queue_start += body_bytes;
    wal->queue_records -= count;
    if (wal->queue_records == 0) {
        queue_drop(wal);
    }
    publish(wal);
    result = wal->queue_records > 0 ? 1 : 0;

out:
    if (durable_lsn != NULL) {
        *durable_lsn = wal->durable_lsn;
    }
    return result;
}

/* The bytes a record takes if it has a batch to itself. */
static uint64_t alone_bytes(const struct wal *wal, size_t count)
{
    return wal_align(WAL_BATCH_HEADER_BYTES + WAL_RECORD_HEADER_BYTES + (uint64_t)count,
                     wal->options.block_bytes);
}

/* Will it find room, however the queue is cut into batches? 0: in the plan's segment; 1: in the
 * next one; negative: refused. */
static int plan(const struct wal *wal, size_t count)
{
    uint64_t bytes = alone_bytes(wal, count);
    if (wal->failed != 0) {
        return -EIO;
    }
    if (count > wal->options.record_max) {
        return -EMSGSIZE;
    }
    if (wal->queue_end - wal->queue_start + WAL_RECORD_HEADER_BYTES + count >
        wal->options.queue_max_bytes) {
        /* A record that is alone is always taken. */
        if (wal->queue_records > 0) {
            return -EAGAIN;
        }
    }
    if (wal->next_first_lsn + wal->queue_records > WAL_LSN_MAX) {
        return -EOVERFLOW;
    }
    if (bytes <= wal->options.segment_bytes - wal->plan_offset) {
        return 0;
    }
    if (wal->plan_next) {
        return -EAGAIN;
    }
    if (wal->spare.state != WAL_SPARE_READY && wal->no_room != 0) {
        return wal->no_room;
    }
    return 1;
}

int wal_room(const struct wal *wal, size_t count)
{
    int result = plan(wal, count);
    return result < 0 ? result : 0;
}

static int queue_reserve(struct wal *wal, size_t bytes)
{
    if (bytes <= wal->queue_capacity - wal->queue_end) {
        return 0;
    }
    size_t used = wal->queue_end - wal->queue_start;
    if (wal->queue_start > 0 && bytes <= wal->queue_capacity - used &&
        used <= wal->queue_capacity / 2) {
        memmove(wal->queue, wal->queue + wal->queue_start, used);
    } else {
        size_t capacity = wal->queue_capacity * 2;
        while (capacity - used < bytes) {
            capacity *= 2;
        }
        unsigned char *queue = malloc(capacity);
        if (queue == NULL) {
            return -ENOMEM;
        }
        memcpy(queue, wal->queue + wal->queue_start, used);
        free(wal->queue);
        wal->queue = queue;
        wal->queue_capacity = capacity;
    }
    wal->queue_start = 0;
    wal->queue_end = used;
    return 0;
}

int wal_appendv(struct wal *wal, const struct iovec *parts, int part_count, uint64_t *lsn)
{
    size_t count = 0;
    for (int i = 0; i < part_count; i++) {
        if (parts[i].iov_len > WAL_RECORD_LIMIT - count) {
            return -EMSGSIZE;
        }
        count += parts[i].iov_len;
    }
    int where = plan(wal, count);
    if (where < 0) {
        return where;
    }
    int result = queue_reserve(wal, WAL_RECORD_HEADER_BYTES + count);
    if (result < 0) {
        return result;
    }
    if (where == 1) {
        wal->plan_next = true;
        wal->plan_offset = WAL_HEADER_BYTES;
    }
    wal->plan_offset += alone_bytes(wal, count);
    wal_record_header_encode(wal->queue + wal->queue_end, (uint32_t)count);
    wal->queue_end += WAL_RECORD_HEADER_BYTES;
    for (int i = 0; i < part_count; i++) {
        if (parts[i].iov_len > 0) {
            memcpy(wal->queue + wal->queue_end, parts[i].iov_base, parts[i].iov_len);
            wal->queue_end += parts[i].iov_len;
        }
    }
    if (lsn != NULL) {
        *lsn = wal->next_first_lsn + wal->queue_records;
    }
    wal->queue_records++;
    return 0;
}

int wal_append(struct wal *wal, const void *bytes, size_t count, uint64_t *lsn)
{
    /* Only read from: iovec has no const. */
    union {
        const void *in;
        void *out;
    } cast = {.in = bytes};
    struct iovec part = {cast.out, count};
    return wal_appendv(wal, &part, 1, lsn);
}

int wal_seal(struct wal *wal)
{
    if (wal->failed != 0) {
        return -EIO;
    }
    if (wal->file < 0 || wal->tail == WAL_HEADER_BYTES || wal->queue_records > 0) {
        return 0;
    }
    if (wal->spare.state != WAL_SPARE_READY) {
        wal->seal_asked = true;
        return -EAGAIN;
    }
    wal_switch(wal);
    return 1;
}

void wal_stats(const struct wal *wal, struct wal_stats *stats)
{
    *stats = wal->stats;
    stats->durable_lsn = wal->durable_lsn;
    stats->next_lsn = wal->next_first_lsn + wal->queue_records;
    stats->queued_records = wal->queue_records;
    stats->queued_bytes = wal->queue_end - wal->queue_start;
    stats->epoch = wal->epoch;
}

const char *wal_problem(const struct wal *wal)
{
    return wal->problem.text;
}

/* Opening and closing a log: recovery's findings are made durable before anybody hears of them. */
#include "wal/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ZEROS_BYTES       (256u * 1024)
#define QUEUE_FIRST_BYTES (512u * 1024)

/* Without a cursor that is whole, nothing is known to be done: the reader starts anew, and says
 * itself what may be removed. */
static void forget_reader(struct wal_shared *shared, const struct wal_found *found)
{
    uint64_t done_lsn = found->has_cursor ? found->cursor.lsn : 0;
    uint64_t done_position = found->has_cursor ? found->cursor.position : 0;
    if (found->first_lsn == 0 && found->floor_lsn > done_lsn) {
        done_lsn = found->floor_lsn;
        done_position = found->position;
    } else if (found->first_lsn > done_lsn + 1) {
        done_lsn = found->first_lsn - 1;
        done_position = found->first_position;
    }
    atomic_store(&shared->synced_lsn, 0);
    atomic_store(&shared->done_ahead, 0);
    atomic_store(&shared->done_lsn, done_lsn);
    atomic_store(&shared->done_position, done_position);
}

/* From here on readers wait until publish_open. */
static int announce(struct wal *wal, const struct wal_found *found, struct wal_err *err)
{
    struct wal_shared *shared = wal->shared;
    unsigned char boot_id[16];
    int result = wal->vfs->boot_id(wal->vfs, boot_id);
    if (result < 0) {
        return wal_fail(err, result, "Cannot read the boot's id: %s", strerror(-result));
    }
    bool current =
        wal_shared_current(shared, boot_id) && atomic_load(&shared->log_id) == wal->log_id;
    atomic_store(&shared->ready, 0);
    if (!current) {
        atomic_store(&shared->durable_lsn, 0);
        atomic_store(&shared->sealed_lsn, 0);
    }
    if (!current || found->cursor_slots < 2) {
        /* What a reader of an earlier boot said is worth nothing either. */
        forget_reader(shared, found);
    }
    if (memcmp(shared->boot_id, boot_id, sizeof boot_id) != 0) {
        memcpy(shared->boot_id, boot_id, sizeof boot_id);
    }
    atomic_store(&shared->version, WAL_SHARED_VERSION);
    atomic_store(&shared->log_id, wal->log_id);
    atomic_store(&shared->epoch, wal->epoch);
    atomic_store(&shared->failed, 0);
    return 0;
}

static void publish_open(struct wal *wal)
{
    struct wal_shared *shared = wal->shared;
    atomic_store(&shared->position, wal->position);
    /* Everything before the fresh segment is sealed; a copied tail lies in the fresh one. */
    atomic_store(&shared->sealed_lsn, wal->sealed_lsn);
    atomic_store(&shared->opened_lsn, wal->durable_lsn);
    atomic_store(&shared->durable_lsn, wal->durable_lsn);
    atomic_store(&shared->ready, 1);
    atomic_fetch_add(&shared->wake, 1);
    wal->vfs->wake(wal->vfs, (uint32_t *)&shared->wake);
}

/* The last batch, read again: nobody but its flush, which may have failed, vouches for it. */
static int load_tail(struct wal *wal, const struct wal_found *found, struct wal_walk *walk,
                     struct wal_err *err)
{
    wal_walk_init(walk, wal->vfs, wal->dir);
    int result = wal_walk_open(walk, found->tail_number, err);
    if (result == 1) {
        wal_walk_to(walk, found->tail_offset);
        result = wal_walk_load(walk);
        if (result < 0) {
            return wal_fail(err, result, "Cannot read segment %llu in %s: %s",
                            (unsigned long long)found->tail_number, wal->dir, strerror(-result));
        }
    }
    if (result == 0) {
        return wal_fail(err, -EIO, "Segment %llu in %s changed while it was read",
                        (unsigned long long)found->tail_number, wal->dir);
    }
    return result < 0 ? result : 0;
}

/* Without room for a fresh segment: the same bytes again, to the same place. */
static int rewrite_tail(struct wal *wal, const struct wal_found *found, struct wal_err *err)
{
    char path[WAL_PATH_BYTES];
    unsigned char header[WAL_BATCH_HEADER_BYTES];
    struct wal_walk walk;
    uint64_t written;
    int file = -1;
    int result = load_tail(wal, found, &walk, err);
    if (result < 0) {
        goto out;
    }
    wal_batch_header_encode(&walk.batch, walk.header.salt, walk.offset, header);
    union {
        const unsigned char *in;
        void *out;
    } body = {.in = walk.body};
    struct iovec parts[2] = {{header, sizeof header}, {body.out, walk.batch.body_bytes}};
    wal_segment_path(path, wal->dir, found->tail_number);
    file = wal->vfs->open(wal->vfs, path, WAL_OPEN_WRITE);
    result = file < 0 ? file : wal_write_full(wal->vfs, file, parts, 2, walk.offset, &written);
    if (result == 0) {
        result = wal->vfs->sync(wal->vfs, file);
    }
    if (result < 0) {
        wal_fail(err, result, "Cannot write %s: %s", path, strerror(-result));
    }

out:
    if (file >= 0) {
        wal->vfs->close(wal->vfs, file);
    }
    wal_walk_free(&walk);
    return result;
}

/* As first batch of the fresh segment, under the same numbers. */
static int copy_tail(struct wal *wal, const struct wal_found *found, struct wal_err *err)
{
    struct wal_walk walk;
    unsigned char *body = NULL;
    int result = load_tail(wal, found, &walk, err);
    if (result < 0) {
        goto out;
    }
    body = malloc(walk.batch.body_bytes);
    if (body == NULL) {
        result = wal_fail(err, -ENOMEM, "Out of memory");
        goto out;
    }
    memcpy(body, walk.body, walk.batch.body_bytes);
    struct wal_batch_header batch = walk.batch;
    batch.flags = WAL_BATCH_COPY;
    result = wal_write_batch(wal, &batch, body);
    if (result < 0) {
        wal_fail(err, result, "%s: cannot make the last records durable: %s", wal->dir,
                 wal->failed != 0 ? wal->problem.text : strerror(-result));
    }

out:
    free(body);
    wal_walk_free(&walk);
    return result;
}

static bool tail_fits(const struct wal *wal, const struct wal_found *found)
{
    uint64_t bytes = wal_batch_bytes(&found->tail);
    return bytes <= wal->batch_limit && bytes <= wal->options.segment_bytes - WAL_HEADER_BYTES;
}

static int start_segment(struct wal *wal, const struct wal_found *found, struct wal_err *err)
{
    /* A tail that the reader is done with matters to nobody. */
    bool tail = found->has_tail && wal_batch_last_lsn(&found->tail) == found->last_lsn &&
                !(found->has_cursor && found->last_lsn <= found->cursor.lsn);
    /* Until the tail is copied, nobody may take it for durable. */
    wal->base_lsn = tail ? found->tail.first_lsn - 1 : found->last_lsn;
    if (found->base_lsn > wal->base_lsn) {
        wal->base_lsn = found->base_lsn;
    }
    wal->copied_number = tail ? found->tail_number : 0;
    int result = wal_prepare_hurry(wal, true);
    bool room = result == 0;
    if (!room && result != -ENOSPC && result != -EDQUOT) {
        return wal_fail(err, result, "%s", wal->problem.text);
    }
    if (room) {
        wal_switch(wal);
    }
    if (!tail) {
        return 0;
    }
    /* With numbers left out behind it, the next batch can't follow a copy: it needs a segment. */
    bool gap = wal->durable_lsn > found->last_lsn;
    if (room && !gap && tail_fits(wal, found)) {
        wal->sealed_lsn = found->tail.first_lsn - 1;
        return copy_tail(wal, found, err);
    }
    return rewrite_tail(wal, found, err);
}

static int recovered(struct wal *wal, const struct wal_found *found, struct wal_err *err)
{
    uint64_t last = found->last_lsn;
    wal->position = found->position;
    if (found->has_cursor && wal_cursor_reach(&found->cursor) > last) {
        wal->stats.cursor_was_ahead = found->first_lsn != 0;
        last = wal_cursor_reach(&found->cursor);
        if (found->cursor.position > wal->position) {
            wal->position = found->cursor.position;
        }
    }
    if (found->floor_lsn > last) {
        last = found->floor_lsn;
    }
    if (last == 0) {
        last = wal->options.first_lsn - 1;
    }
    wal->durable_lsn = last;
    wal->sealed_lsn = last;
    wal->stats.torn_bytes = found->torn_bytes;
    memcpy(wal->stats.warning, found->warning.text, sizeof wal->stats.warning);
    int result = start_segment(wal, found, err);
    wal->copied_number = 0;
    if (result < 0) {
        return result;
    }
    wal->durable_lsn = last;
    wal->base_lsn = found->last_lsn > found->base_lsn ? found->last_lsn : found->base_lsn;
    wal->durable_before = wal->base_lsn;
    wal->next_first_lsn = last + 1;
    wal->stats.flushes = 0;
    wal->plan_offset = wal->tail;
    return 0;
}

static int set_up(struct wal *wal, const char *dir, const struct wal_options *options,
                  struct wal_err *err)
{
    uint64_t batch =
        WAL_BATCH_HEADER_BYTES + WAL_RECORD_HEADER_BYTES + (uint64_t)options->record_max;
    uint64_t room = options->segment_bytes - WAL_HEADER_BYTES;
    wal->options = *options;
    wal->vfs = options->vfs;
    wal->lock = wal->shared_file = wal->file = wal->spare.file = -1;
    wal->tail = options->segment_bytes;
    if (options->batch_max_bytes > batch) {
        batch = options->batch_max_bytes;
    }
    wal->batch_limit = (uint32_t)(batch < room ? batch : room);
    wal->zeros_bytes = ZEROS_BYTES;
    wal->queue_capacity = QUEUE_FIRST_BYTES;
    wal->dir = strdup(dir);
    wal->zeros = calloc(1, wal->zeros_bytes);
    wal->queue = malloc(wal->queue_capacity);
    if (wal->dir == NULL || wal->zeros == NULL || wal->queue == NULL) {
        return wal_fail(err, -ENOMEM, "Out of memory");
    }
    int result = wal_make_dir(wal->vfs, dir, err);
    if (result < 0) {
        return result;
    }
    wal->lock = wal_lock_open(wal->vfs, dir, WAL_WRITER_LOCK_NAME, "writer", err);
    return wal->lock < 0 ? wal->lock : 0;
}

static void tear_down(struct wal *wal)
{
    const struct wal_vfs *vfs = wal->vfs;
    if (wal->file >= 0) {
        vfs->close(vfs, wal->file);
    }
    if (wal->spare.file >= 0) {
        vfs->close(vfs, wal->spare.file);
    }
    wal_shared_close(vfs, wal->shared, wal->shared_file);
    if (wal->lock >= 0) {
        vfs->close(vfs, wal->lock);
    }
    free(wal->old);
    free(wal->queue);
    free(wal->zeros);
    free(wal->dir);
    free(wal);
}

int wal_open(const char *dir, const struct wal_options *options, struct wal **opened,
             struct wal_err *err)
{
    struct wal_found found = {0};
    int result = wal_check_options(options, err);
    if (result < 0) {
        return result;
    }
    struct wal *wal = calloc(1, sizeof *wal);
    if (wal == NULL) {
        return wal_fail(err, -ENOMEM, "Out of memory");
    }
    result = set_up(wal, dir, options, err);
    if (result < 0) {
        goto out;
    }
    result = wal_shared_open(wal->vfs, dir, true, &wal->shared, &wal->shared_file, err);
    if (result < 0) {
        goto out;
    }
    result = wal_recover(wal->vfs, dir, wal->shared, &found, err);
    if (result < 0) {
        goto out;
    }
    wal->log_id = found.log_id;
    while (result == 0 && wal->log_id == 0) {
        result = wal->vfs->entropy(wal->vfs, &wal->log_id, sizeof wal->log_id);
    }
    wal->epoch = found.epoch + 1;
    if (result == 0) {
        result = announce(wal, &found, err);
    }
    if (result == 0) {
        result = wal_adopt(wal, &found);
        if (result < 0) {
            wal_fail(err, result, "Cannot remove leftovers in %s: %s", dir, strerror(-result));
        }
    }
    if (result == 0) {
        result = recovered(wal, &found, err);
    }
    if (result == 0) {
        publish_open(wal);
    }

out:
    wal_found_free(&found);
    if (result < 0) {
        tear_down(wal);
        return result;
    }
    *opened = wal;
    return 0;
}

int wal_close(struct wal *wal)
{
    int result;
    do {
        result = wal_flush(wal, NULL);
    } while (result > 0);
    tear_down(wal);
    return result;
}

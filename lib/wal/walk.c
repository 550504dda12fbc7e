/* Reading a segment batch by batch: shared by recovery, reader and probe. */
#include "wal/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_BYTES (256u * 1024)

void wal_walk_init(struct wal_walk *walk, const struct wal_vfs *vfs, const char *dir)
{
    memset(walk, 0, sizeof *walk);
    walk->vfs = vfs;
    walk->dir = dir;
    walk->file = -1;
    walk->read_bytes = WINDOW_BYTES;
}

void wal_walk_free(struct wal_walk *walk)
{
    if (walk->file >= 0) {
        walk->vfs->close(walk->vfs, walk->file);
    }
    free(walk->window);
    walk->window = NULL;
    walk->capacity = 0;
    walk->file = -1;
    walk->loaded = false;
}

/* Puts `count` bytes from the offset on into the window, and more where that is cheap. */
static int window_fill(struct wal_walk *walk, uint64_t offset, uint64_t count)
{
    uint64_t left = offset < walk->size ? walk->size - offset : 0;
    uint64_t want = walk->read_bytes < left ? walk->read_bytes : left;
    want = want > count ? want : count;
    if (want > walk->capacity) {
        unsigned char *window = realloc(walk->window, want);
        if (window == NULL) {
            return -ENOMEM;
        }
        walk->window = window;
        walk->capacity = want;
    }
    int result = wal_read_full(walk->vfs, walk->file, walk->window, want, offset);
    walk->window_offset = offset;
    walk->window_bytes = result < 0 ? 0 : want;
    return result;
}

static bool window_has(const struct wal_walk *walk, uint64_t offset, uint64_t count)
{
    return offset >= walk->window_offset && walk->window_bytes >= count &&
           offset - walk->window_offset <= walk->window_bytes - count;
}

static bool file_all_zero(struct wal_walk *walk, int *result)
{
    for (uint64_t offset = 0; offset < walk->size; offset += walk->read_bytes) {
        *result = window_fill(walk, offset, walk->read_bytes);
        if (*result < 0) {
            return false;
        }
        for (size_t i = 0; i < walk->window_bytes; i++) {
            if (walk->window[i] != 0) {
                return false;
            }
        }
    }
    return true;
}

static int check_header(struct wal_walk *walk, const char *path, uint64_t number,
                        struct wal_err *err)
{
    int result = window_fill(walk, 0, WAL_HEADER_BYTES);
    if (result < 0) {
        return wal_fail(err, result, "Cannot read %s: %s", path, strerror(-result));
    }
    result = wal_segment_header_decode(&walk->header, walk->window);
    if (result == -ENOTSUP) {
        return wal_fail(err, result, "%s is of another format version than %u", path,
                        WAL_FORMAT_VERSION);
    }
    if (result == -EBADMSG) {
        int read_result = 0;
        if (file_all_zero(walk, &read_result)) {
            return 0;
        }
        if (read_result < 0) {
            return wal_fail(err, read_result, "Cannot read %s: %s", path, strerror(-read_result));
        }
        walk->place = WAL_PLACE_HEADER;
        return wal_fail(err, -EBADMSG, "%s at 0: the segment's header is damaged", path);
    }
    if (walk->header.number != number) {
        walk->place = WAL_PLACE_ORDER;
        return wal_fail(err, -EBADMSG, "%s at 24: the header is that of segment %llu", path,
                        (unsigned long long)walk->header.number);
    }
    return 1;
}

int wal_walk_open(struct wal_walk *walk, uint64_t number, struct wal_err *err)
{
    char path[WAL_PATH_BYTES];
    struct wal_file_status status;
    int result = wal_segment_path(path, walk->dir, number);
    if (walk->file >= 0) {
        walk->vfs->close(walk->vfs, walk->file);
        walk->file = -1;
    }
    walk->loaded = false;
    walk->window_bytes = 0;
    if (result == 0) {
        result = walk->vfs->open(walk->vfs, path, WAL_OPEN_READ);
    }
    if (result < 0) {
        return wal_fail(err, result, "Cannot open %s: %s", path, strerror(-result));
    }
    walk->file = result;
    result = walk->vfs->status(walk->vfs, walk->file, &status);
    if (result < 0) {
        return wal_fail(err, result, "Cannot read %s: %s", path, strerror(-result));
    }
    walk->size = status.size;
    wal_walk_to(walk, WAL_HEADER_BYTES);
    return check_header(walk, path, number, err);
}

void wal_walk_to(struct wal_walk *walk, uint64_t offset)
{
    walk->offset = offset;
    walk->loaded = false;
}

/* One try, with what is in the window or can be read now. */
static int load_once(struct wal_walk *walk)
{
    uint64_t end = walk->header.segment_bytes;
    walk->place = WAL_PLACE_ZERO;
    if (walk->offset > end || end - walk->offset < WAL_BATCH_HEADER_BYTES) {
        return 0;
    }
    if (!window_has(walk, walk->offset, WAL_BATCH_HEADER_BYTES)) {
        int result = window_fill(walk, walk->offset, WAL_BATCH_HEADER_BYTES);
        if (result < 0) {
            return result;
        }
    }
    const unsigned char *bytes = walk->window + (walk->offset - walk->window_offset);
    walk->place = wal_batch_header_decode(&walk->batch, &walk->header, walk->offset, bytes);
    if (walk->place != WAL_PLACE_VALID) {
        return 0;
    }
    uint64_t count = wal_batch_bytes(&walk->batch);
    if (!window_has(walk, walk->offset, count)) {
        int result = window_fill(walk, walk->offset, count);
        if (result < 0) {
            return result;
        }
        bytes = walk->window;
    }
    if (!wal_body_valid(&walk->batch, bytes + WAL_BATCH_HEADER_BYTES, walk->header.salt)) {
        walk->place = WAL_PLACE_BODY;
        return 0;
    }
    walk->body = bytes + WAL_BATCH_HEADER_BYTES;
    walk->record_lsn = walk->batch.first_lsn;
    walk->record_offset = 0;
    walk->loaded = true;
    return 1;
}

int wal_walk_load(struct wal_walk *walk)
{
    if (walk->loaded) {
        return 1;
    }
    int result = load_once(walk);
    if (result == 0) {
        /* The window may be from before the batch was written. */
        walk->window_bytes = 0;
        result = load_once(walk);
    }
    return result;
}

void wal_walk_next(struct wal_walk *walk)
{
    assert(walk->loaded);
    wal_walk_to(walk,
                wal_align(walk->offset + wal_batch_bytes(&walk->batch), walk->header.block_bytes));
}

int64_t wal_walk_find_header(struct wal_walk *walk, uint64_t from)
{
    uint64_t end =
        walk->header.segment_bytes < walk->size ? walk->header.segment_bytes : walk->size;
    uint64_t offset = wal_align(from, walk->header.block_bytes);
    struct wal_batch_header batch;
    for (; offset < end; offset += walk->header.block_bytes) {
        if (!window_has(walk, offset, WAL_BATCH_HEADER_BYTES)) {
            int result = window_fill(walk, offset, WAL_BATCH_HEADER_BYTES);
            if (result < 0) {
                return result;
            }
        }
        if (wal_batch_header_decode(&batch, &walk->header, offset,
                                    walk->window + (offset - walk->window_offset)) ==
            WAL_PLACE_VALID) {
            return (int64_t)offset;
        }
    }
    return 0;
}

void wal_walk_record(struct wal_walk *walk, uint64_t lsn, const unsigned char **bytes,
                     uint32_t *length)
{
    assert(walk->loaded && lsn >= walk->batch.first_lsn && lsn <= wal_batch_last_lsn(&walk->batch));
    if (lsn < walk->record_lsn) {
        walk->record_lsn = walk->batch.first_lsn;
        walk->record_offset = 0;
    }
    while (walk->record_lsn < lsn) {
        walk->record_offset +=
            WAL_RECORD_HEADER_BYTES + (uint64_t)wal_record_length(walk->body + walk->record_offset);
        walk->record_lsn++;
    }
    *length = wal_record_length(walk->body + walk->record_offset);
    *bytes = walk->body + walk->record_offset + WAL_RECORD_HEADER_BYTES;
}

/* From one segment to the next, and to a record by its number: what the reader does with a walk. */
#include "wal/internal.h"

#include <errno.h>
#include <string.h>

int wal_seek_next_segment(struct wal_walk *walk, struct wal_err *err)
{
    struct wal_numbers numbers = {0};
    uint64_t current = walk->file >= 0 ? walk->header.number : 0;
    bool any = walk->file >= 0;
    int result = wal_list_segments(walk->vfs, walk->dir, &numbers);
    if (result < 0) {
        wal_fail(err, result, "Cannot list the folder %s: %s", walk->dir, strerror(-result));
        goto out;
    }
    for (size_t i = 0; i < numbers.count; i++) {
        if (any && numbers.list[i] <= current) {
            continue;
        }
        result = wal_walk_open(walk, numbers.list[i], err);
        if (result == 1) {
            result = wal_walk_load(walk);
        }
        if (result == -ENOENT) {
            result = 0; /* removed since it was listed */
        }
        if (result != 0) {
            goto out;
        }
    }

out:
    wal_numbers_free(&numbers);
    return result;
}

static int damaged(const struct wal_walk *walk, struct wal_err *err, uint64_t lsn, uint64_t number,
                   uint64_t offset, enum wal_place place)
{
    char path[WAL_PATH_BYTES];
    wal_segment_path(path, walk->dir, number);
    return wal_fail(err, -EBADMSG, "%s at %llu: %s, where the durable record %llu was", path,
                    (unsigned long long)offset, wal_place_text(place), (unsigned long long)lsn);
}

int wal_seek(struct wal_walk *walk, uint64_t *lsn, struct wal_err *err)
{
    uint64_t number = walk->file >= 0 ? walk->header.number : 0;
    uint64_t offset = walk->offset;
    enum wal_place place = WAL_PLACE_ZERO;
    for (;;) {
        int result = walk->file >= 0 ? wal_walk_load(walk) : 0;
        if (result == 0) {
            number = walk->file >= 0 ? walk->header.number : 0;
            offset = walk->offset;
            place = walk->place;
            result = wal_seek_next_segment(walk, err);
            if (result == 0) {
                return damaged(walk, err, *lsn, number, offset, place);
            }
        }
        if (result < 0) {
            return result;
        }
        if (walk->batch.first_lsn > *lsn) {
            if (walk->batch.durable_lsn >= *lsn) {
                return damaged(walk, err, *lsn, number, offset, place);
            }
            *lsn = walk->batch.first_lsn;
        }
        if (*lsn <= wal_batch_last_lsn(&walk->batch)) {
            return 1;
        }
        wal_walk_next(walk);
    }
}

void wal_seek_oldest(struct wal_walk *walk)
{
    uint64_t read_bytes = walk->read_bytes;
    const struct wal_vfs *vfs = walk->vfs;
    const char *dir = walk->dir;
    wal_walk_free(walk);
    wal_walk_init(walk, vfs, dir);
    walk->read_bytes = read_bytes;
}

#include "wal/cursor.h"

#include <errno.h>
#include <string.h>

int wal_cursor_open(struct wal_cursor *cursor, const struct wal_vfs *vfs, const char *dir,
                    uint64_t generation)
{
    char path[WAL_PATH_BYTES];
    struct wal_file_status status;
    *cursor = (struct wal_cursor){.vfs = vfs, .file = -1, .synced_generation = generation};
    int result = wal_path(path, dir, WAL_CURSOR_NAME);
    if (result < 0) {
        return result;
    }
    cursor->file = vfs->open(vfs, path, WAL_OPEN_WRITE | WAL_OPEN_CREATE);
    if (cursor->file < 0) {
        return cursor->file;
    }
    result = vfs->status(vfs, cursor->file, &status);
    if (result == 0 && status.size < WAL_CURSOR_BYTES) {
        /* So that no write to it can ever want for room. */
        unsigned char zeros[WAL_CURSOR_BYTES] = {0};
        struct iovec part = {zeros, (size_t)(WAL_CURSOR_BYTES - status.size)};
        uint64_t written;
        result = wal_write_full(vfs, cursor->file, &part, 1, status.size, &written);
    }
    if (result == 0) {
        /* The valid slot may be in the cache only; the other one is about to be overwritten. */
        result = vfs->sync(vfs, cursor->file);
    }
    if (result == 0) {
        result = vfs->sync_dir(vfs, dir);
    }
    if (result < 0) {
        wal_cursor_close(cursor);
    }
    return result;
}

int wal_cursor_write(struct wal_cursor *cursor, struct wal_cursor_slot *slot)
{
    unsigned char bytes[WAL_CURSOR_SLOT_BYTES];
    struct iovec part = {bytes, 0};
    uint64_t written;
    slot->generation = cursor->synced_generation + 1;
    part.iov_len = wal_cursor_encode(slot, bytes);
    int result = wal_write_full(cursor->vfs, cursor->file, &part, 1,
                                (slot->generation % 2) * WAL_CURSOR_SLOT_BYTES, &written);
    if (result == 0) {
        cursor->dirty = true;
    }
    return result;
}

int wal_cursor_sync(struct wal_cursor *cursor)
{
    if (!cursor->dirty) {
        return 0;
    }
    int result = cursor->vfs->sync(cursor->vfs, cursor->file);
    if (result == 0) {
        cursor->dirty = false;
        cursor->synced_generation++;
    }
    return result;
}

void wal_cursor_close(struct wal_cursor *cursor)
{
    if (cursor->file >= 0) {
        cursor->vfs->close(cursor->vfs, cursor->file);
    }
    cursor->file = -1;
}

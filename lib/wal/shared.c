#include "wal/internal.h"

#include <errno.h>
#include <string.h>

_Static_assert(sizeof(struct wal_shared) <= WAL_SHARED_BYTES, "the map is one page");

int wal_shared_open(const struct wal_vfs *vfs, const char *dir, bool write,
                    struct wal_shared **shared, int *file, struct wal_err *err)
{
    char path[WAL_PATH_BYTES];
    struct wal_file_status status;
    void *memory = NULL;
    int opened = -1;
    int result = wal_path(path, dir, WAL_SHARED_NAME);
    if (result < 0) {
        return wal_fail(err, result, "The path of the log is too long: %.100s", dir);
    }
    /* Never replaced, only grown: a process that has it mapped must go on seeing the same one. */
    opened = vfs->open(vfs, path, write ? WAL_OPEN_WRITE | WAL_OPEN_CREATE : WAL_OPEN_READ);
    if (opened < 0) {
        return wal_fail(err, opened, "Cannot open %s: %s", path, strerror(-opened));
    }
    result = vfs->status(vfs, opened, &status);
    if (result == 0 && status.size < WAL_SHARED_BYTES) {
        /* A store to a page that the disk has no room for would be a SIGBUS: reserve it. */
        result = write ? vfs->allocate(vfs, opened, WAL_SHARED_BYTES) : -ENODATA;
        if (result == -EOPNOTSUPP) {
            result = vfs->truncate(vfs, opened, WAL_SHARED_BYTES);
        }
        /* Its content is worth nothing after a crash, but its room must still be there then. */
        if (result == 0) {
            result = vfs->sync(vfs, opened);
        }
        if (result == 0) {
            result = vfs->sync_dir(vfs, dir);
        }
    }
    if (result == 0) {
        result = vfs->map(vfs, opened, WAL_SHARED_BYTES, write, &memory);
    }
    if (result < 0) {
        vfs->close(vfs, opened);
        return wal_fail(err, result, "Cannot map %s: %s", path, strerror(-result));
    }
    *shared = memory;
    *file = opened;
    return 0;
}

void wal_shared_close(const struct wal_vfs *vfs, struct wal_shared *shared, int file)
{
    if (shared != NULL) {
        vfs->unmap(vfs, shared, WAL_SHARED_BYTES);
    }
    if (file >= 0) {
        vfs->close(vfs, file);
    }
}

bool wal_shared_current(const struct wal_shared *shared, const unsigned char boot_id[16])
{
    return atomic_load(&shared->ready) == 1 &&
           atomic_load(&shared->version) == WAL_SHARED_VERSION &&
           memcmp(shared->boot_id, boot_id, 16) == 0;
}

void wal_shared_wake(const struct wal_vfs *vfs, struct wal_shared *shared, uint64_t lsn)
{
    uint64_t wanted = atomic_load(&shared->wanted_lsn);
    if (wanted != 0 && wanted <= lsn) {
        atomic_fetch_add(&shared->wake, 1);
        vfs->wake(vfs, (uint32_t *)&shared->wake);
    }
}

/* Throwing a log away: only what is a log's, and only when nobody has it open. */
#include "wal/internal.h"

#include <errno.h>
#include <string.h>

struct remove_work {
    const struct wal_vfs *vfs;
    const char *dir;
    struct wal_err *err;
    bool unlinks; /* else only looks */
    bool found;   /* something to remove */
};

static bool is_lock(const char *name)
{
    return strcmp(name, WAL_WRITER_LOCK_NAME) == 0 || strcmp(name, WAL_READER_LOCK_NAME) == 0;
}

static bool is_content(const char *name)
{
    uint64_t number;
    return wal_segment_number(name, &number) || strcmp(name, WAL_SPARE_FILE_NAME) == 0 ||
           strcmp(name, WAL_CURSOR_NAME) == 0 || strcmp(name, WAL_SHARED_NAME) == 0;
}

static int remove_one(void *arg, const char *name)
{
    struct remove_work *work = arg;
    char path[WAL_PATH_BYTES];
    if (!is_content(name)) {
        if (is_lock(name) || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
            strcmp(name, "lost+found") == 0) {
            return 0;
        }
        return wal_fail(
            work->err, -EEXIST,
            "The folder %.100s holds %.80s, which is no part of a log: nothing was removed",
            work->dir, name);
    }
    work->found = true;
    int result = work->unlinks ? wal_path(path, work->dir, name) : 0;
    if (result == 0 && work->unlinks) {
        result = work->vfs->unlink(work->vfs, path);
    }
    return result < 0 ? wal_fail(work->err, result, "Cannot remove %.100s/%.80s: %s", work->dir,
                                 name, strerror(-result))
                      : 0;
}

int wal_remove(const char *dir, const struct wal_vfs *vfs, struct wal_err *err)
{
    if (vfs == NULL) {
        vfs = wal_vfs_posix();
    }
    struct remove_work work = {.vfs = vfs, .dir = dir, .err = err};
    int writer = -1, reader = -1;
    int result = vfs->list(vfs, dir, remove_one, &work);
    if (result == -ENOENT) {
        return 0;
    }
    if (result < 0 && result != -EEXIST) {
        return wal_fail(err, result, "Cannot read the folder %.100s: %s", dir, strerror(-result));
    }
    if (result >= 0) {
        result = writer = wal_lock_open(vfs, dir, WAL_WRITER_LOCK_NAME, "writer", err);
    }
    if (result >= 0) {
        result = reader = wal_lock_open(vfs, dir, WAL_READER_LOCK_NAME, "reader", err);
    }
    work.unlinks = true;
    /* Again, since a list that shrinks while it is read may leave something out. */
    while (result >= 0 && work.found) {
        work.found = false;
        result = vfs->list(vfs, dir, remove_one, &work);
    }
    if (result >= 0) {
        result = vfs->sync_dir(vfs, dir);
    }
    /* The lock files stay: who waits for one must not get another. */
    if (reader >= 0) {
        vfs->close(vfs, reader);
    }
    if (writer >= 0) {
        vfs->close(vfs, writer);
    }
    return result < 0 ? result : 0;
}

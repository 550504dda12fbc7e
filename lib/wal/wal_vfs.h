/*
 * Everything the log asks of the operating system goes through this table, so that a test can lose
 * power, tear sectors, forget directory entries, fill the disk or fail the nth call.
 *
 * Every call returns 0 or positive, or a negative errno, which reaches the caller of the library as
 * it is unless the header of that call says otherwise. The library acts on these: -EINTR of pread
 * and pwritev (again; of sync it is a failure like any), -ENOENT of open and unlink, -EEXIST of
 * make_dir, -EOPNOTSUPP of allocate, -ENOSPC and -EDQUOT of pwritev and allocate (no room, not
 * final), -EAGAIN of lock, -ETIMEDOUT, -EAGAIN and -EINTR of wait. Any other of pwritev and sync on
 * a segment is final.
 *
 * No call may be NULL. None keeps a pointer that it was given after it returns, `context` excepted,
 * which is the caller's and must live as long as everything opened with the table. Paths are what
 * the caller of the library gave as the log's folder, with "/name" behind it. A file is a number of
 * the table's own choosing (a descriptor, in the POSIX one), 0 or above.
 *
 * A wrapper holds its own state behind `context` and calls the table it wraps. wal_vfs_posix() is
 * stateless and may be used by any number of threads; the library calls a table only from the
 * threads that call the library.
 */
#ifndef WAL_VFS_H
#define WAL_VFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum wal_open_flags {
    WAL_OPEN_READ = 0,
    WAL_OPEN_WRITE = 1,    /* and read */
    WAL_OPEN_CREATE = 2,   /* if it is not there */
    WAL_OPEN_TRUNCATE = 4, /* to 0 bytes */
};

struct wal_file_status {
    uint64_t size;
    uint64_t links; /* 0: the file has been removed while open */
};

typedef int wal_list_fn(void *arg, const char *name);

struct wal_vfs {
    void *context;
    int (*open)(const struct wal_vfs *, const char *path, unsigned flags);
    int (*close)(const struct wal_vfs *, int file);
    int (*status)(const struct wal_vfs *, int file, struct wal_file_status *);
    /* May give less than asked; 0 at the end of the file. */
    ssize_t (*pread)(const struct wal_vfs *, int file, void *, size_t, uint64_t offset);
    /* May write less than asked, never 0 without an error. */
    ssize_t (*pwritev)(const struct wal_vfs *, int file, const struct iovec *, int count,
                       uint64_t offset);
    int (*truncate)(const struct wal_vfs *, int file, uint64_t size);
    /* Reserves room and sets the size. -EOPNOTSUPP: the file system cannot. */
    int (*allocate)(const struct wal_vfs *, int file, uint64_t size);
    /* Data, and what of the metadata is needed to read it back. */
    int (*sync)(const struct wal_vfs *, int file);
    int (*sync_dir)(const struct wal_vfs *, const char *path);
    int (*make_dir)(const struct wal_vfs *, const char *path); /* -EEXIST if it is there */
    int (*rename)(const struct wal_vfs *, const char *from, const char *to);
    int (*unlink)(const struct wal_vfs *, const char *path);
    int (*list)(const struct wal_vfs *, const char *path, wal_list_fn *, void *arg);
    /* Exclusive, for the whole file, until close or the process's end. -EAGAIN: held by another. */
    int (*lock)(const struct wal_vfs *, int file);
    /* Shared between all that map the file. */
    int (*map)(const struct wal_vfs *, int file, size_t, bool write, void **);
    int (*unmap)(const struct wal_vfs *, void *, size_t);
    /* Waits in a mapping while *word == expected. -ETIMEDOUT; -EAGAIN: it was not; -EINTR. */
    int (*wait)(const struct wal_vfs *, uint32_t *word, uint32_t expected, int64_t timeout_ns);
    int (*wake)(const struct wal_vfs *, uint32_t *word);
    int64_t (*now_ns)(const struct wal_vfs *);  /* monotonic */
    int64_t (*wall_us)(const struct wal_vfs *); /* since 1970, for people only */
    int (*entropy)(const struct wal_vfs *, void *, size_t);
    int (*boot_id)(const struct wal_vfs *, unsigned char id[16]); /* other after each boot */
};

/* The real one. Static: nothing to free. Never fails. */
const struct wal_vfs *wal_vfs_posix(void);

#endif

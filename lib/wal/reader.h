/*
 * The reader of a log, in the writer's process or another one. One reader at a time.
 *
 *     wal_reader_open(dir, NULL, &reader, &err);
 *     while (wal_reader_wait(reader, 200, 10) >= 0) {
 *         while (wal_reader_next(reader, &record) == 1) {
 *             use(record.bytes, record.count);
 *             wal_reader_done(reader, record.lsn, record.lsn);
 *         }
 *     }
 *     wal_reader_close(reader);
 *
 * A record is delivered when it is durable, in the order of its number, and again: after
 * wal_reader_release; after a crash, those that were not done, and those done within the last
 * cursor_sync_ns before it.
 *
 * Threads: wal_reader_next, _done, _release, _flush, _flush_due_ns, _stats and _problem need the
 * caller's lock if several threads use them. wal_reader_wait and wal_reader_wake may be called
 * beside them, without it; at most one thread may be in wal_reader_wait. wal_reader_close needs all
 * others to be out. No thread is started.
 *
 * Ownership: as in wal.h. What wal_reader_next points at is the reader's, until the next call of
 * it.
 *
 * Errors: negative errno; each call lists all that it can return; wal_reader_problem has a
 * sentence. Three are final, and every later call says the same: -EBADMSG  durable records are
 * damaged or missing; the reader stops before them -EIO      the cursor can't be written; what is
 * done is not remembered -ESTALE   another log has taken the place of this one -EIO for a record
 * that can't be read is not final, nor are -ENOMEM and what the file system says: the same call may
 * be tried again.
 */
#ifndef WAL_READER_H
#define WAL_READER_H

#include "wal/wal.h"

struct wal_reader;

struct wal_reader_options {
    const struct wal_vfs *vfs; /* wal_vfs_posix() */
    bool sealed_only;          /* deliver only from segments that the writer has ended; false */
    int64_t cursor_sync_ns;    /* flush the cursor at most this often; 250 ms */
};

/* Fills in all defaults. Never fails. Call it first: fields may be added. */
void wal_reader_options_init(struct wal_reader_options *options);

struct wal_record {
    uint64_t lsn;
    const void *bytes; /* valid until the next wal_reader_next */
    size_t count;
    bool again; /* delivered before, by this reader */
};

/*
 * options may be NULL: the defaults. The folder is made if it is not there; its parent must be.
 * Does not wait for a writer, and reads no record yet. *reader is set only when 0 is returned; err
 * may be NULL. Errors: -EBUSY   another reader has it, in this process or another -EINVAL  a name
 * in the folder is no regular file -ENOMEM, -ENAMETOOLONG, -ENOSPC -ENOENT, -ENOTDIR, -EACCES,
 * -EROFS, -EIO, ...  what the file system said
 */
int wal_reader_open(const char *dir, const struct wal_reader_options *options,
                    struct wal_reader **reader, struct wal_err *err);

/*
 * The next record, without waiting: one that was handed back, else a new one. May read from the
 * disk, and flushes the cursor when that is due. 1  *record is set    0  none now, or no writer has
 * opened the log since the boot -EBADMSG, -EIO, -ESTALE   as above    -ENOTSUP  a segment of
 * another version -ENOMEM, -EACCES, ...     could not read; try again
 */
int wal_reader_next(struct wal_reader *reader, struct wal_record *record);

/*
 * Sleeps until `count` records (at least 1) can be had, or for wait_ms, or until wal_reader_wake.
 * Returns how many can be had, count at most, 0 if none, or
 *   -EBADMSG, -EIO, -ESTALE   the reader has failed, as above
 *   -ENOENT   the folder has been removed; noticed when wait_ms are over
 *   other     what wal_vfs.wait or wal_vfs.status said; of the POSIX ones nothing is known to come
 * Before the first wal_reader_next, 1 may be said where that one then says 0.
 */
int wal_reader_wait(struct wal_reader *reader, unsigned count, int wait_ms);
/* Ends a wal_reader_wait of another thread, or the next one if there is none now. Never fails. */
void wal_reader_wake(struct wal_reader *reader);

/*
 * Records first to last, delivered before, in any order, are done. Flushes the cursor when due.
 * Parts of the range that are not out are left alone.
 *   0
 *   -EINVAL  first > last, or nothing has been delivered yet
 *   -ENOMEM  nothing has changed: try again
 *   -EBADMSG, -EIO, -ESTALE   the reader has failed, as above, before this call or in it
 */
int wal_reader_done(struct wal_reader *reader, uint64_t first, uint64_t last);
/* Hands records back: they are delivered again, before new ones. Parts of the range that are not
 * out are left alone. 0; -EINVAL: first > last; -ENOMEM: nothing has changed. */
int wal_reader_release(struct wal_reader *reader, uint64_t first, uint64_t last);

/* Makes what is done durable now, and tells the writer. 0, also when there is nothing to flush;
 * -EBADMSG, -EIO, -ESTALE: the reader has failed, as above. */
int wal_reader_flush(struct wal_reader *reader);
/* In how many nanoseconds wal_reader_flush is due, if nothing else is called; -1: no need. */
int64_t wal_reader_flush_due_ns(const struct wal_reader *reader);

struct wal_reader_stats {
    uint64_t done_lsn; /* all up to it are done */
    uint64_t next_lsn; /* the next new one */
    uint64_t out;      /* delivered or handed back, not done */
    uint64_t synced_lsn;
    uint64_t cursor_syncs;
    char warning[256]; /* about the cursor; "" if there was none */
};
/* Never fails. */
void wal_reader_stats(const struct wal_reader *reader, struct wal_reader_stats *stats);
/* Why the last call failed, one sentence; "" if none did. The reader's, valid until the next call.
 */
const char *wal_reader_problem(const struct wal_reader *reader);

/* Flushes the cursor; frees everything, whatever it returns, and lets go of the lock. What is out
 * and not done is delivered to the next reader. 0, or as wal_reader_flush. */
int wal_reader_close(struct wal_reader *reader);

#endif

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
 * Threads: wal_reader_next, _done, _release, _flush and _stats need the caller's lock if several
 * threads use them. wal_reader_wait and wal_reader_wake may be called beside them, without it; at
 * most one thread may be in wal_reader_wait.
 *
 * Errors: negative errno; wal_reader_problem gives a sentence.
 *   -EBADMSG  durable records are damaged or missing; the reader stops there for good
 *   -EIO      the cursor can't be written; what is done is not remembered
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

void wal_reader_options_init(struct wal_reader_options *options);

struct wal_record {
    uint64_t lsn;
    const void *bytes; /* valid until the next wal_reader_next */
    size_t count;
    bool again; /* delivered before, by this reader */
};

/*
 * options may be NULL. The folder is made if it is not there. Does not wait for a writer.
 *   -EBUSY another reader has it; -ENOMEM; what the file system said
 */
int wal_reader_open(const char *dir, const struct wal_reader_options *options,
                    struct wal_reader **reader, struct wal_err *err);

/* The next record, without waiting. 1: there is one; 0: none now; negative errno. */
int wal_reader_next(struct wal_reader *reader, struct wal_record *record);

/*
 * Sleeps until `count` records (at least 1) can be had, or for wait_ms, or until wal_reader_wake.
 * Returns how many can be had, count at most, 0 if none, or a negative errno.
 */
int wal_reader_wait(struct wal_reader *reader, unsigned count, int wait_ms);
void wal_reader_wake(struct wal_reader *reader);

/* Records first to last, delivered before, in any order, are done. Flushes the cursor when due.
 * Parts of the range that are not out are left alone. */
int wal_reader_done(struct wal_reader *reader, uint64_t first, uint64_t last);
/* Hands records back: they are delivered again, before new ones. */
int wal_reader_release(struct wal_reader *reader, uint64_t first, uint64_t last);

/* Makes what is done durable now, and tells the writer. */
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
void wal_reader_stats(const struct wal_reader *reader, struct wal_reader_stats *stats);
const char *wal_reader_problem(const struct wal_reader *reader);

/* Flushes the cursor; frees everything, whatever it returns. */
int wal_reader_close(struct wal_reader *reader);

#endif

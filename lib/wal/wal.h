/*
 * A segment write-ahead log with group commit: the writer.
 *
 *     struct wal_options options;
 *     wal_options_init(&options);
 *     wal_open("/var/lib/thing/log", &options, &wal, &err);
 *     wal_append(wal, bytes, count, &lsn);      queues, copies
 *     wal_flush(wal, &durable_lsn);             writes and flushes: lsn <= durable_lsn is on disk
 *     wal_prepare(wal);                         when idle
 *     wal_close(wal);
 *
 * One process writes a log, one (the same or another) reads it: reader.h. Anyone may look: probe.h.
 * format.h specifies the bytes.
 *
 * Threads: a struct wal belongs to one thread at a time; nothing in here starts a thread or takes a
 * lock that another thread could hold. For callers with threads of their own there is wal_group.h.
 *
 * Ownership: the caller owns what it passes in, and may free it when the call returns: bytes and
 * paths are copied. Only the table `vfs` must live as long as what was opened with it. A struct wal
 * is freed by wal_close and by nothing else, also after errors.
 *
 * Errors: calls return 0 or positive, or a negative errno. Each call lists all that it can return;
 * no other can come. A call that takes a struct wal_err fills it, when it fails, with one sentence
 * that names the file; err may be NULL. For the others wal_problem has the sentence. -EIO      a
 * write or a flush failed. Final: after such a failure nobody knows what the disk holds, so every
 * later call says -EIO until the log is closed and opened anew. -ENOSPC   no room on the disk,  }
 * what was queued is surely not stored; resumes by itself, -EDQUOT   or within the quota   } when
 * wal_prepare or wal_flush find room
 *
 * Arguments that no caller can mean (a NULL log, a NULL pointer to bytes with a count) are not
 * checked. fork: the child must not use the parent's struct wal, nor close it.
 */
#ifndef WAL_H
#define WAL_H

#include "wal/wal_vfs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wal;

struct wal_err {
    char text[256]; /* one sentence, no newline; cut off if a path is very long */
};

struct wal_options {
    const struct wal_vfs *vfs;  /* wal_vfs_posix() */
    uint64_t segment_bytes;     /* size of a segment's file; 32 MiB */
    int64_t segment_age_ns;     /* seal a segment this long after its first record; 0: never (0) */
    uint64_t quota_bytes;       /* of all segments, at least 3 of them; 0: none (0) */
    uint64_t queue_max_bytes;   /* queued and not flushed; 64 MiB */
    uint32_t record_max;        /* longest payload; 1 MiB */
    uint32_t batch_max_bytes;   /* a flush writes no more, unless one record is longer; 256 KiB */
    uint32_t batch_max_records; /* nor more than so many; 0: any number (0) */
    uint32_t block_bytes;       /* batches start on multiples of it: 512, 1024, 2048 or 4096; 512 */
    uint64_t first_lsn;         /* of a new log; 1 */
};

/* Fills in all defaults. Never fails. Call it first: fields may be added. */
void wal_options_init(struct wal_options *options);

/*
 * Opens or creates the log in the folder `dir` (its parent must exist), and recovers it: verifies
 * every record that the reader is not done with, drops a torn tail, makes the rest durable, starts
 * a fresh segment and publishes the durable LSN to the reader.
 * With no room for a fresh segment the log opens nevertheless, and refuses records until there is.
 *
 * *wal is set only when 0 is returned. Takes as long as reading those records takes, and a few
 * flushes. err may be NULL. Errors:
 *   -EINVAL    options out of bounds; a name in the folder is no regular file
 *   -EBUSY     another writer has it open, in this process or another
 *   -EBADMSG   durable records are damaged or missing; err names file, offset and kind. No segment
 *              and no cursor was changed; sluice-wal tells what can be done
 *   -ENOTSUP   a segment of another format version
 *   -EIO       a read, write or flush failed; a file changed while it was read
 *   -ENOSPC, -EDQUOT  not even room for the small files, or to write the last batch anew
 *   -ENOMEM, -ENAMETOOLONG
 *   -ENOENT, -ENOTDIR, -EACCES, -EPERM, -EROFS, -ELOOP, -EMFILE, -ENFILE, ...  what the file system
 *              said of the folder or a file in it; a symbolic link in place of a file is refused
 */
int wal_open(const char *dir, const struct wal_options *options, struct wal **wal,
             struct wal_err *err);

/*
 * Queues one record; the bytes are copied. No system call, no waiting. *lsn (may be NULL) is set
 * when 0 is returned: the number it will have if it becomes durable; the number of a record that
 * was dropped is given to another. 0 bytes are a record, too; `bytes` may then be NULL. After an
 * error the record is not queued, and nothing else has changed. -EMSGSIZE  longer than record_max
 *   -EAGAIN    queue_max_bytes are waiting, or as much as two segments take: flush first
 *   -ENOSPC, -EDQUOT  no room is prepared for it
 *   -EOVERFLOW the last number, 2^63 - 1, has been given
 *   -EIO       the log has failed    -ENOMEM
 */
int wal_append(struct wal *wal, const void *bytes, size_t count, uint64_t *lsn);
/* The same, from part_count pieces, which become one record. */
int wal_appendv(struct wal *wal, const struct iovec *parts, int part_count, uint64_t *lsn);

/*
 * Writes and flushes the oldest queued records, up to batch_max_bytes, in this thread: one write,
 * one flush of the disk, and when a segment is full also what it takes to begin the next.
 * *durable_lsn (may be NULL) is set, whatever is returned: all records up to it survive a power
 * cut. 1  done, and more is queued    0  done, the queue is empty -ENOSPC, -EDQUOT  everything
 * queued was dropped and is surely not stored. -ENOSPC also if the next segment can't be made for
 * another reason; wal_problem says which -EIO  everything queued above *durable_lsn was dropped and
 * may be stored or not. Also if the segment's file has been removed
 */
int wal_flush(struct wal *wal, uint64_t *durable_lsn);

/* Drops what is queued: surely not stored. Its numbers are given to others. Never fails. */
void wal_discard(struct wal *wal);

/*
 * One small step of housekeeping: makes the next segment, removes or recycles what the reader is
 * done with, seals by age. A step is at most one small flush of the disk long. A log works without
 * it; the flush that needs a new segment then takes longer.
 *   1  call again soon, when idle   0  nothing to do before wal_prepare_due_ns
 *   -EIO      the log has failed (then wal_room says so too), or the step has
 *   -EDQUOT   the quota is reached: the reader must catch up
 *   -ENOSPC, -ENOMEM, -EACCES, -EROFS, ...  the step failed with this; wal_problem says which
 * When but a step has failed, the log goes on while the current segment has room; that step is
 * tried again after 100 ms, or when the reader has gone on.
 */
int wal_prepare(struct wal *wal);
/* In how many nanoseconds should wal_prepare be called? 0: now; -1: no need until the next flush,
 * or the log has failed. */
int64_t wal_prepare_due_ns(const struct wal *wal);

/*
 * Ends the current segment after its last durable record, if it has any: those are then sealed.
 *   1  sealed    0  nothing to seal, or something is queued
 *   -EAGAIN  no next segment is prepared yet: wal_prepare makes one now, however empty the current
 *            one is; call again after that
 *   -EIO     the log has failed
 */
int wal_seal(struct wal *wal);

/* Would a record of `count` bytes be taken now? 0, or what wal_append would say, -ENOMEM excepted.
 * Changes nothing. */
int wal_room(const struct wal *wal, size_t count);

struct wal_stats {
    uint64_t durable_lsn;
    uint64_t next_lsn;
    uint64_t queued_records;
    uint64_t queued_bytes;
    uint64_t epoch;
    uint64_t segments;        /* files that hold, held or will hold records */
    uint64_t allocated_bytes; /* their sizes */
    uint64_t flushes;
    uint64_t segments_made;
    uint64_t segments_recycled;
    uint64_t segments_removed;
    uint64_t size_changes; /* flushes that had to grow the file */
    uint64_t torn_bytes;   /* found behind the last record on open */
    bool cursor_was_ahead; /* on open: the reader had been further than the log */
    char warning[256];     /* of the last open; "" if there was none */
};
/* Never fails. */
void wal_stats(const struct wal *wal, struct wal_stats *stats);

/* Why the log failed or refuses, one sentence; "" if it does not. The log's, valid until the next
 * call; after an error that is the caller's (-EMSGSIZE, -EAGAIN, -EOVERFLOW) it says nothing of it.
 */
const char *wal_problem(const struct wal *wal);

/* Flushes what is queued, unless the log has failed; frees everything, whatever it returns, and
 * lets go of the lock. 0: all was flushed; -EIO, -ENOSPC, -EDQUOT as wal_flush says. */
int wal_close(struct wal *wal);

/* Removes the log in `dir`, with all that is in it; the folder and its lock files stay. vfs NULL:
 * wal_vfs_posix(). 0 also when there is none.
 *   -EBUSY   a writer or a reader has it open
 *   -EEXIST  the folder holds something that is no log's; nothing was removed */
int wal_remove(const char *dir, const struct wal_vfs *vfs, struct wal_err *err);

#endif

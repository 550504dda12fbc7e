/*
 * Group commit for callers with threads of their own: a flusher thread around a struct wal.
 *
 * wal_group_submit may be called by any thread. The flusher takes whatever has been submitted,
 * flushes it together and runs the callbacks, in the order of submission, in its own thread. It
 * starts at once when idle; while more than one record waits, it leaves spacing_ns between the
 * starts of two flushes.
 */
#ifndef WAL_GROUP_H
#define WAL_GROUP_H

#include "wal/wal.h"

struct wal_group;

/*
 * Runs once for each submitted record, in the flusher's thread; it holds no lock, and may submit
 * more, but what it does holds up every flush. `lsn` counts only with result 0. 0         the
 * record `lsn` is durable -EIO      it may be stored or not; the log has failed, and all that
 * follow get the same -ENOSPC, -EDQUOT, -EOVERFLOW, -ENOMEM   surely not stored, as wal_append and
 * wal_flush say
 */
typedef void wal_group_done_fn(void *arg, int result, uint64_t lsn);

struct wal_group_options {
    int64_t spacing_ns;       /* 500 us; 0: none */
    uint64_t queue_max_bytes; /* submitted and not flushed; 64 MiB */
};
/* Fills in all defaults. Never fails. */
void wal_group_options_init(struct wal_group_options *options);

/*
 * Takes over `wal`: nobody else may use it until wal_group_stop. options may be NULL: the defaults.
 * *group is set only when 0 is returned; else the log is still the caller's.
 *   -ENOMEM   -EAGAIN, -EPERM  no thread can be had
 */
int wal_group_start(struct wal *wal, const struct wal_group_options *options,
                    struct wal_group **group);

/*
 * Queues a copy; any thread. Waits for a lock that is never held over a system call on the disk.
 *   0          `done` will run once, with arg
 *   After an error it never runs:
 *   -EMSGSIZE  longer than the log's record_max
 *   -EAGAIN    queue_max_bytes are submitted and not flushed
 *   -EIO       the log has failed    -ESHUTDOWN  wal_group_stop has been called    -ENOMEM
 */
int wal_group_submit(struct wal_group *group, const void *bytes, size_t count,
                     wal_group_done_fn *done, void *arg);

/* Takes no more, flushes what is queued, runs every callback, ends the thread, frees the group. The
 * log is the caller's again, to be closed. Never fails. Not to be called from a callback, nor
 * twice; no thread may be in wal_group_submit by the time it returns. */
void wal_group_stop(struct wal_group *group);

#endif

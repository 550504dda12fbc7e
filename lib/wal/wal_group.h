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

/* result 0: the record `lsn` is durable. -EIO: it may be stored or not. Any other: surely not. */
typedef void wal_group_done_fn(void *arg, int result, uint64_t lsn);

struct wal_group_options {
    int64_t spacing_ns;       /* 500 us; 0: none */
    uint64_t queue_max_bytes; /* submitted and not flushed; 64 MiB */
};
void wal_group_options_init(struct wal_group_options *options);

/* Takes over `wal`: nobody else may use it until wal_group_stop. options may be NULL. -ENOMEM,
 * -EAGAIN (no thread). */
int wal_group_start(struct wal *wal, const struct wal_group_options *options,
                    struct wal_group **group);
/* Queues a copy. 0: done will run once. -EAGAIN: too much is queued; -EMSGSIZE; -EIO: the log has
 * failed; -ESHUTDOWN: stopping; -ENOMEM: done never runs. */
int wal_group_submit(struct wal_group *group, const void *bytes, size_t count,
                     wal_group_done_fn *done, void *arg);
/* Takes no more, flushes what is queued, runs every callback, ends the thread, frees the group. The
 * log is the caller's again, to be closed. Not to be called from a callback. */
void wal_group_stop(struct wal_group *group);

#endif

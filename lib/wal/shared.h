/*
 * The map that writer, reader and probes share: a small file in the log's folder, mapped by all.
 * It is volatile. It counts only while `ready` is 1 and `boot_id` is this boot's: then the writer
 * of `epoch` has scanned the log, synced it, and published what follows. After a crash of a
 * process it still counts, because what it says was durable before it was said.
 *
 * Each field has one writer. All are atomics; `durable_lsn` is published last.
 */
#ifndef WAL_SHARED_H
#define WAL_SHARED_H

#include "wal/wal.h"

#include <stdalign.h>
#include <stdatomic.h>

#define WAL_SHARED_VERSION 1u
#define WAL_SHARED_BYTES   4096u

struct wal_shared {
    /* Written by the writer of the log. */
    _Atomic uint32_t version;
    _Atomic uint32_t ready;
    unsigned char boot_id[16]; /* changed only while ready is 0 */
    _Atomic uint64_t log_id;
    _Atomic uint64_t epoch;
    _Atomic uint64_t opened_lsn; /* durable_lsn when the log was opened */
    _Atomic uint64_t sealed_lsn;
    _Atomic uint64_t position; /* body bytes up to durable_lsn */
    _Atomic uint64_t segments;
    _Atomic uint64_t allocated_bytes;
    _Atomic uint64_t flushes;
    _Atomic uint64_t failed;    /* a positive errno: the log takes no more */
    _Atomic uint64_t rotations; /* segments begun, by this writer and those before it */
    alignas(64) _Atomic uint64_t durable_lsn;
    /* Bumped by both sides: the word a reader sleeps on. */
    alignas(64) _Atomic uint32_t wake;
    /* Written by the reader. */
    alignas(64) _Atomic uint64_t wanted_lsn; /* asleep until this is durable; 0: awake */
    _Atomic uint64_t synced_lsn;             /* the cursor on disk: what may be removed */
    _Atomic uint64_t done_lsn;               /* the low-water mark in memory */
    _Atomic uint64_t done_ahead;             /* records done above it */
    _Atomic uint64_t done_position;
};

/* Maps DIR/shared, made if `write` and it is not there. */
int wal_shared_open(const struct wal_vfs *vfs, const char *dir, bool write,
                    struct wal_shared **shared, int *file, struct wal_err *err);
void wal_shared_close(const struct wal_vfs *vfs, struct wal_shared *shared, int file);
/* Does it speak of this boot, from a writer that was ready? */
bool wal_shared_current(const struct wal_shared *shared, const unsigned char boot_id[16]);
/* Ends a reader's sleep if it waits for anything up to lsn. */
void wal_shared_wake(const struct wal_vfs *vfs, struct wal_shared *shared, uint64_t lsn);

#endif

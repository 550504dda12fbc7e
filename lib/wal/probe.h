/*
 * Looking at a log from outside: no locks, nothing written, any number of processes.
 *
 * Threads: a struct wal_probe belongs to one at a time.
 */
#ifndef WAL_PROBE_H
#define WAL_PROBE_H

#include "wal/wal.h"

struct wal_probe;

struct wal_probe_stats {
    bool scanned;         /* no writer has published since the boot: read from the files */
    uint64_t durable_lsn; /* the newest durable record */
    uint64_t done_lsn;    /* the reader is done with all up to it */
    uint64_t synced_lsn;  /* and has this on disk; 0: no reader has published since the boot */
    uint64_t lag_records; /* durable and not done; exact */
    uint64_t lag_bytes;   /* from done_lsn to the end, record headers included; done ones between
                             count, and up to 256 records before it may */
    uint64_t segments;
    uint64_t allocated_bytes; /* the segments' files */
    uint64_t flushes;         /* since the log was opened; 0 if scanned */
    uint64_t rotations;       /* segments begun, that of each opening included; 0 if scanned */
    int failed;               /* errno with which the writer stopped; 0: it did not */
};

/* vfs may be NULL: wal_vfs_posix(). The log need not be there yet. -ENOMEM. */
int wal_probe_open(const char *dir, const struct wal_vfs *vfs, struct wal_probe **probe,
                   struct wal_err *err);
/* Cheap while a writer has published since the boot; else it reads all that the reader is not done
 * with. -ENOENT: there is no log yet; -EBADMSG as wal_open says; what the file system said. */
int wal_probe_read(struct wal_probe *probe, struct wal_probe_stats *stats, struct wal_err *err);

/* Would wal_probe_read answer without reading the log? True when the shared figures are current,
 * and when it would fail; false when it would have to scan the segments. */
bool wal_probe_cheap(struct wal_probe *probe);
void wal_probe_close(struct wal_probe *probe);

#endif

/*
 * Looking at a log from outside: no locks, nothing written, any number of processes.
 *
 * Threads: a struct wal_probe belongs to one at a time; each may have its own. Ownership: as in
 * wal.h. Errors: negative errno, and a sentence in err, which may be NULL.
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

/* vfs may be NULL: wal_vfs_posix(). The log need not be there yet: nothing is opened. *probe is set
 * only when 0 is returned; -ENOMEM. */
int wal_probe_open(const char *dir, const struct wal_vfs *vfs, struct wal_probe **probe,
                   struct wal_err *err);

/*
 * Cheap while a writer has published since the boot; else it reads all that the reader is not done
 * with. May be called again and again; a log that is replaced by another is noticed. *stats is all
 * 0 after an error. -ENOENT   there is no log yet, or no folder -EBADMSG  it had to be read, and is
 * damaged; or a writer was just opening it -ENOTSUP  a segment of another format version -EINVAL a
 * name in the folder is no regular file -ENOMEM, -ENAMETOOLONG, -ENOTDIR, -EACCES, -EIO, ...  could
 * not read; what the file system said
 */
int wal_probe_read(struct wal_probe *probe, struct wal_probe_stats *stats, struct wal_err *err);

/* Would wal_probe_read answer without reading the log? True when the shared figures are current,
 * and when it would fail; false when it would have to scan the segments. */
bool wal_probe_cheap(struct wal_probe *probe);

/* Frees it. Never fails. */
void wal_probe_close(struct wal_probe *probe);

#endif

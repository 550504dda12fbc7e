/* Would wal_open accept this log? Nothing is written, no lock is taken. */
#ifndef WAL_TOOL_CHECK_H
#define WAL_TOOL_CHECK_H

#include "wal/internal.h"

struct wal_check {
    struct wal_damage damage; /* kind NONE: the log is fine */
    struct wal_err text;      /* the sentence that wal_open would say */
    struct wal_err warning;   /* of the cursor; "" if there is none */
    uint64_t segments;
    uint64_t first_lsn; /* of what was read: all that the reader is not done with; 0: no record */
    uint64_t last_lsn;
    uint64_t torn_bytes; /* behind the last record; never acknowledged */
};

/* The word for it, as in sluice-wal's JSON. */
const char *wal_damage_word(const struct wal_damage *damage);

/*
 * 0: fine; 1: damaged, see `damage` and `text`; or
 *   -ENOENT   the folder isn't there    -ENODATA  it holds no log
 *   -ENOTSUP  a format of another version
 *   -EAGAIN   `live`, and the log changed under every look at it
 *   -ENOMEM, or what the file system said; err has a sentence.
 * `live`: a writer or reader may have the log open: what can come of that is not taken for damage.
 */
int wal_check_log(struct wal_check *check, const struct wal_vfs *vfs, const char *dir, bool live,
                  struct wal_err *err);

/* Maps DIR/shared for reading. *shared is NULL if there is none, or it is not of this boot; close
 * with wal_shared_close. 0, or a negative errno with a sentence in err. */
int wal_check_shared(const struct wal_vfs *vfs, const char *dir, struct wal_shared **shared,
                     int *file, struct wal_err *err);

#endif

/* The reader's file: how far it is done. Two slots; the one that is on disk is never written. */
#ifndef WAL_CURSOR_H
#define WAL_CURSOR_H

#include "wal/internal.h"

struct wal_cursor {
    const struct wal_vfs *vfs;
    int file;
    uint64_t synced_generation;
    bool dirty; /* the other slot has been written since */
};

/* Opens DIR/cursor, made if needed, and makes what is in it, and its name, durable. */
int wal_cursor_open(struct wal_cursor *cursor, const struct wal_vfs *vfs, const char *dir,
                    uint64_t generation);
/* Writes the slot that is not on disk; sets its generation. */
int wal_cursor_write(struct wal_cursor *cursor, struct wal_cursor_slot *slot);
int wal_cursor_sync(struct wal_cursor *cursor);
void wal_cursor_close(struct wal_cursor *cursor);

#endif

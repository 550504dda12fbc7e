/*
 * Every record that can still be read from a damaged log, in order: what `dump` shows and `repair`
 * keeps. Nothing is written. All whole batches of the log's own segments count, also those behind a
 * bad place; one that repeats numbers seen before does not.
 *
 * Threads: a struct wal_salvage belongs to one at a time.
 */
#ifndef WAL_TOOL_SALVAGE_H
#define WAL_TOOL_SALVAGE_H

#include "wal/internal.h"

enum wal_source_state {
    WAL_SOURCE_WHOLE,    /* its header is */
    WAL_SOURCE_RENAMED,  /* has the name of another segment; read as what its header says */
    WAL_SOURCE_GUESSED,  /* its header fails its checksum, but the salt in it still fits */
    WAL_SOURCE_LOST,     /* its header is damaged: nothing in it can be checked */
    WAL_SOURCE_STRANGER, /* of another log */
    WAL_SOURCE_EMPTY,    /* 0 bytes, or all zero */
};
const char *wal_source_text(enum wal_source_state state);

struct wal_source {
    enum wal_source_state state;
    uint64_t file_number;             /* as in its name */
    struct wal_segment_header header; /* a guess, if GUESSED; else meaningless if not WHOLE */
    uint64_t size;
};

struct wal_salvage {
    const struct wal_vfs *vfs;
    const char *dir;            /* borrowed */
    struct wal_source *sources; /* in the order in which they were written, as far as known */
    size_t count;
    uint64_t log_id; /* of most segments, else of the cursor; 0: nobody knows */
    uint64_t epoch;
    uint64_t last_file_number;
    unsigned cursor_slots;
    bool cursor_exists;
    struct wal_cursor_slot cursor; /* if cursor_slots > 0; of this log */
    /* Grows while the log is read: numbers up to it were durable, as far as can be told. */
    uint64_t known_lsn;
};

/* A whole batch, of which records first_lsn to the last were not seen before. */
struct wal_salvaged {
    const struct wal_source *source;
    uint64_t offset; /* of the batch in its file */
    const struct wal_batch_header *batch;
    const unsigned char *body; /* records from first_lsn on, valid during the call */
    uint32_t body_bytes;
    uint64_t first_lsn;
    uint32_t record_count;
    uint64_t position; /* body bytes before first_lsn in the life of the log */
};
typedef int wal_salvage_fn(void *arg, const struct wal_salvaged *salvaged);

/*
 * Looks at every segment's header. 0, or
 *   -ENOENT   the folder isn't there    -ENODATA  it holds no log
 *   -ENOTSUP  a format of another version
 *   -ENOMEM, or what the file system said; err has a sentence
 */
int wal_salvage_open(struct wal_salvage *salvage, const struct wal_vfs *vfs, const char *dir,
                     struct wal_err *err);
/* Calls `each` for each batch, ascending; stops when it returns less than 0, and returns that. */
int wal_salvage_each(struct wal_salvage *salvage, wal_salvage_fn *each, void *arg,
                     struct wal_err *err);
void wal_salvage_close(struct wal_salvage *salvage);

#endif

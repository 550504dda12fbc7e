/* What the parts of the library share and nobody else needs. */
#ifndef WAL_INTERNAL_H
#define WAL_INTERNAL_H

#include "wal/format.h"
#include "wal/shared.h"
#include "wal/wal.h"

#define WAL_PATH_BYTES 4096

/* Puts the sentence together and returns `code`. err may be NULL. */
int wal_fail(struct wal_err *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Joins a folder and a name. -ENAMETOOLONG. */
int wal_path(char path[WAL_PATH_BYTES], const char *dir, const char *name);
int wal_segment_path(char path[WAL_PATH_BYTES], const char *dir, uint64_t number);
/* Is `name` that of a segment? */
bool wal_segment_number(const char *name, uint64_t *number);

struct wal_numbers {
    uint64_t *list; /* ascending */
    size_t count;
    size_t capacity;
};
int wal_list_segments(const struct wal_vfs *vfs, const char *dir, struct wal_numbers *numbers);
void wal_numbers_free(struct wal_numbers *numbers);

/* All or nothing, over short reads and EINTR; what lies behind the file's end reads as 0. */
int wal_read_full(const struct wal_vfs *vfs, int file, void *bytes, size_t count, uint64_t offset);
/* Over short writes and EINTR. *written tells how far it came. The parts are used up. */
int wal_write_full(const struct wal_vfs *vfs, int file, struct iovec *parts, int count,
                   uint64_t offset, uint64_t *written);

/* Opens DIR/name, made if needed, and locks it. -EBUSY: `who` has it already. */
int wal_lock_open(const struct wal_vfs *vfs, const char *dir, const char *name, const char *who,
                  struct wal_err *err);
/* Makes the folder if it is not there, and its name durable. */
int wal_make_dir(const struct wal_vfs *vfs, const char *dir, struct wal_err *err);

/* A walk over the batches of one segment. Zero-initialise, then wal_walk_init. */
struct wal_walk {
    const struct wal_vfs *vfs;
    const char *dir; /* borrowed */
    int file;        /* -1: none */
    struct wal_segment_header header;
    uint64_t size;
    uint64_t offset;     /* where the batch in question starts */
    uint64_t read_bytes; /* how much to read ahead */
    bool loaded;         /* `batch` and `body` are a valid batch at offset */
    enum wal_place place;
    struct wal_batch_header batch;
    const unsigned char *body; /* in `window` */
    /* Where in the body wal_walk_record stands. */
    uint64_t record_lsn;
    uint64_t record_offset;
    unsigned char *window;
    size_t capacity;
    uint64_t window_offset;
    size_t window_bytes;
};

void wal_walk_init(struct wal_walk *walk, const struct wal_vfs *vfs, const char *dir);
void wal_walk_free(struct wal_walk *walk);
/* Opens a segment at its first batch. 1: it has a header; 0: it is empty (0 bytes or all zero);
 * -EBADMSG: the header is damaged (`place` is HEADER) or another's (ORDER); -ENOENT and others from
 * the file system. */
int wal_walk_open(struct wal_walk *walk, uint64_t number, struct wal_err *err);
void wal_walk_to(struct wal_walk *walk, uint64_t offset);
/* Reads and verifies the batch at offset. 1: valid; 0: not, see `place`; negative errno. */
int wal_walk_load(struct wal_walk *walk);
/* To the batch behind the loaded one. */
void wal_walk_next(struct wal_walk *walk);
/* The offset of the first valid batch header at or behind `from`; 0: none; negative errno. */
int64_t wal_walk_find_header(struct wal_walk *walk, uint64_t from);
/* A record of the loaded batch. */
void wal_walk_record(struct wal_walk *walk, uint64_t lsn, const unsigned char **bytes,
                     uint32_t *length);

/* seek.c. Opens the next segment that holds a valid batch: 1: it is at that batch; 0: none does. */
int wal_seek_next_segment(struct wal_walk *walk, struct wal_err *err);
/* Brings the walk, which is at or before it, to the batch that holds *lsn; that record must be
 * durable. 1: it is there. *lsn may become a higher one: the numbers between were never used.
 * -EBADMSG: it isn't where it must be; others: could not read. */
int wal_seek(struct wal_walk *walk, uint64_t *lsn, struct wal_err *err);
/* Before the oldest segment there is. */
void wal_seek_oldest(struct wal_walk *walk);

/* The cursor file. How many of its two slots are valid: *slot is the newest of them. With less than
 * two, a newer one may have been lost, and records above *slot may be done and gone. *exists tells
 * if there is a file. */
int wal_cursor_read(const struct wal_vfs *vfs, const char *dir, struct wal_cursor_slot *slot,
                    bool *exists);

struct wal_segment_info {
    uint64_t number;
    uint64_t size;
    uint64_t last_lsn; /* no record in it has a higher one */
    uint64_t trim_to;  /* the file may be cut to this; 0: leave it */
    bool empty;        /* not a byte of content behind the header */
};

enum wal_damage_kind {
    WAL_DAMAGE_NONE,
    WAL_DAMAGE_BATCH,    /* no batch that counts where one was: `place` */
    WAL_DAMAGE_GAP,      /* records first_lsn to last_lsn are in no segment */
    WAL_DAMAGE_HEADER,   /* of a segment */
    WAL_DAMAGE_NUMBER,   /* the header is that of a segment of another number */
    WAL_DAMAGE_STRANGER, /* a segment of another log */
    WAL_DAMAGE_SHORT,    /* the log ends before what was durable since the boot */
};

/* The first bad place, for programs; wal_err has the sentence. */
struct wal_damage {
    enum wal_damage_kind kind;
    enum wal_place place;
    bool in_segment; /* `number` and `offset` tell where; else the folder as a whole */
    uint64_t number;
    uint64_t offset;
    uint64_t first_lsn; /* the records concerned, as far as that is known; 0: not */
    uint64_t last_lsn;
};

/* What recovery found. */
struct wal_found {
    struct wal_damage damage;          /* set with -EBADMSG, all else is then gone */
    struct wal_segment_info *segments; /* ascending by number */
    size_t count;
    uint64_t log_id; /* 0: a new log */
    uint64_t epoch;
    uint64_t first_lsn; /* of the first record that was read; 0: none */
    uint64_t first_position;
    uint64_t last_lsn;  /* of the last valid record; 0: none */
    uint64_t position;  /* body bytes up to it */
    uint64_t base_lsn;  /* the highest one that a segment's header vouches for */
    uint64_t floor_lsn; /* numbers up to this have been used, even if no record is left */
    bool has_cursor;
    unsigned cursor_slots; /* how many are valid; less than 2: a newer one may be lost */
    struct wal_cursor_slot cursor;
    bool has_tail; /* the last valid batch, which may be in the cache only */
    uint64_t tail_number;
    uint64_t tail_offset;
    struct wal_batch_header tail;
    uint64_t torn_bytes;
    struct wal_err warning;
};

/* Reads the whole log, changes nothing. `shared` may be NULL: then nothing is known of this boot.
 */
int wal_recover(const struct wal_vfs *vfs, const char *dir, const struct wal_shared *shared,
                struct wal_found *found, struct wal_err *err);
void wal_found_free(struct wal_found *found);

/* The writer. */

enum wal_spare_state {
    WAL_SPARE_NONE,
    WAL_SPARE_FILL,   /* spare.tmp is open, zero up to `filled` */
    WAL_SPARE_MOVED,  /* spare.tmp was an old segment; the rename is not durable yet */
    WAL_SPARE_HEADER, /* sized; needs its header */
    WAL_SPARE_NAME,   /* header synced; needs its name */
    WAL_SPARE_READY,  /* durable under its number: the next segment */
};

struct wal_spare {
    enum wal_spare_state state;
    int file;
    uint64_t filled;
    bool allocated;
    struct wal_segment_header header;
};

struct wal {
    struct wal_options options;
    const struct wal_vfs *vfs;
    char *dir;
    int lock;
    struct wal_shared *shared;
    int shared_file;
    uint64_t log_id;
    uint64_t epoch;
    uint32_t batch_limit;

    /* Older segments, ascending; neither the current nor the next one. */
    struct wal_segment_info *old;
    size_t old_count;
    size_t to_trim; /* how many of them have a trim_to */
    size_t old_capacity;

    int file; /* of the current segment; -1: there is none, for want of room */
    struct wal_segment_header header;
    uint64_t tail;      /* offset of the next batch */
    uint64_t file_size; /* as far as it is allocated */
    int64_t first_record_ns;
    struct wal_spare spare;
    uint64_t last_number;
    bool removals_pending;  /* a removed segment's name may come back after a power cut */
    uint64_t copied_number; /* while opening: its last batch is being copied; 0: none */

    /* Framed records, queue_start .. queue_end of `queue`. */
    unsigned char *queue;
    size_t queue_capacity;
    size_t queue_start;
    size_t queue_end;
    uint64_t queue_records;
    uint64_t durable_lsn;
    uint64_t durable_before; /* what the next batch says was durable before it */
    uint64_t next_first_lsn; /* of the next batch */
    uint64_t sealed_lsn;     /* at open only; then in the map */
    uint64_t base_lsn;       /* surely on disk: what a segment's header may vouch for */
    uint64_t position;
    /* Where the queue would end if every record were a batch: never too optimistic. */
    bool plan_next;
    uint64_t plan_offset;
    bool seal_asked; /* wal_seal waits for the next segment */

    uint64_t allocated_bytes;
    int failed;            /* negative errno, final */
    int no_room;           /* -ENOSPC or -EDQUOT: no next segment can be had now */
    int64_t rest_until_ns; /* housekeeping failed: not before then; 0: it did not */
    uint64_t rest_synced_lsn;
    struct wal_stats stats;
    struct wal_err problem;
    unsigned char *zeros; /* zeros_bytes of them */
    size_t zeros_bytes;
};

/* writer.c */
int wal_check_options(const struct wal_options *options, struct wal_err *err);
/* One batch at the tail of the current segment, on disk when this returns 0. */
int wal_write_batch(struct wal *wal, struct wal_batch_header *batch, unsigned char *body);
/* Remembers a final failure; returns -EIO. */
int wal_break(struct wal *wal, int code, const char *what, uint64_t number);

/* prepare.c */
/* Finishes the next segment now; all zero, or only with its room reserved where that is enough.
 * 0, -ENOSPC, -EDQUOT, others: could not, but the log goes on. */
int wal_prepare_hurry(struct wal *wal, bool fill);
/* Makes the prepared segment the current one. The old one is sealed. */
void wal_switch(struct wal *wal);
/* Adopts what recovery found as old segments, removes leftovers. */
int wal_adopt(struct wal *wal, const struct wal_found *found);
uint64_t wal_synced_lsn(const struct wal *wal);

#endif

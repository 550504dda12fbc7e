/*
 * The bytes of the log, version 1. This page is enough to write a reader.
 *
 * All numbers are little-endian and unsigned. H(bytes, seed) is XXH3_64bits_withSeed. Sums and
 * products are modulo 2^64. K1 = 0x9E3779B97F4A7C15, K2 = 0xC2B2AE3D27D4EB4F.
 *
 * A log is a folder. Files that are not named here are left alone.
 *
 *   NNNNNNNNNNNNNNNNNNNN.seg  a segment; N is its number, 20 decimal digits
 *   spare.tmp                 a segment being prepared; never holds records that count
 *   cursor                    how far the reader is done (below)
 *   shared                    volatile state of writer and reader; worthless after a boot
 *   writer.lock, reader.lock  locked while a writer or a reader is open
 *   repair-*.tmp              of a repair that was cut off; never holds records that count
 *
 * LSN: the sequence number of a record. The first record of a log is 1; no two records that were
 * durable share one. The LSN is not stored with the record: a batch holds consecutive ones.
 *
 * Segment header, at byte 0 (4096 bytes, all others 0):
 *     0  8  magic "SLUICWAL"
 *     8  4  version, 1
 *    12  4  header_bytes, 4096: where the first batch starts
 *    16  8  log_id, random, the same in every segment of a log
 *    24  8  number, as in the file's name
 *    32  8  salt, random, new each time a file becomes a segment
 *    40  8  epoch of the writer that prepared it; grows with every open
 *    48  8  segment_bytes, the file's size when it was prepared
 *    56  4  block_bytes, a power of two, 512 to 4096
 *    60  4  batch_limit, no batch is longer (batch header included)
 *    64  8  created_us, wall clock, for people only
 *    72  8  base_lsn: everything up to it was durable before this header was written
 *   120  8  H(bytes 0 to 119, K1)
 *
 * Batches follow, each on the next multiple of block_bytes after the one before it, so that a
 * block that holds durable bytes is never written again. What lies between is padding and has no
 * meaning; bytes past the end of the file read as 0.
 *
 * Batch header, 64 bytes, at offset O of the file:
 *     0  4  magic 0x42575331 ("1SWB")
 *     4  4  record_count, at least 1
 *     8  8  first_lsn, of its first record
 *    16  8  durable_lsn: everything up to it was durable before this batch was written
 *    24  8  position: body bytes of all batches before it in the life of the log
 *    32  4  body_bytes, following this header
 *    36  4  flags; bit 0: COPY, see below
 *    40  8  body_checksum: c = K2; for each record in turn c = H(its 8 checksum bytes, c)
 *    48  8  0
 *    56  8  H(bytes 0 to 55, salt + O * K1)
 *
 * Record, record_count of them, end to end, filling body_bytes exactly:
 *     0  4  length of the payload, 0 to 2^31 - 1
 *     4  4  0
 *     8  8  H(payload, salt + lsn * K1 + length * K2)
 *    16     payload
 *
 * A batch is valid when its header's checksum fits, record_count * 16 <= body_bytes, it fits into
 * the segment and batch_limit, its records fill body_bytes exactly, and every checksum fits. A
 * batch counts as a whole or not at all.
 *
 * In a segment, a batch after the first counts only if durable_lsn is the last LSN of the batch
 * before it and first_lsn the one after. The first batch of a segment may
 *   - continue the segment before it (durable_lsn is its last LSN, first_lsn the next), or
 *   - have flag COPY: it repeats the last batch of the log as an opening writer found it, record
 *     by record, because that batch's flush may have failed; the older copy has no meaning, or
 *   - have first_lsn > durable_lsn + 1: the cursor was ahead of the log when it was opened, and
 *     the numbers between were never used.
 * Its first_lsn is above the base_lsn of its segment and of those before it; with COPY, its last
 * LSN is not below them. A segment ends at the first offset without a batch that counts. This is
 * the end of the log if no valid batch header lies behind it, neither in this segment (at multiples
 * of block_bytes) nor as first batch of a later one with a durable_lsn beyond, nor a later segment
 * with a base_lsn beyond: a batch is written only after the one before it is durable, so a valid
 * header behind a bad place proves that durable records were destroyed there. Then the log is not
 * opened. Bad bytes without such a proof are a write that was never acknowledged: a torn tail. A
 * segment without any valid batch header, or of 0 bytes, or all zero, is empty.
 *
 * Cursor file, 8192 bytes, a slot at 0 and one at 4096; the valid one with the higher generation
 * counts; none: the reader starts at the oldest record there is.
 *     0  8  magic "SLUICCUR"
 *     8  4  version, 1
 *    12  4  done_count, 0 to 240
 *    16  8  log_id
 *    24  8  generation
 *    32  8  lsn: this record and all before it are done
 *    40  8  number of a segment, } where a batch starts from which on the record lsn + 1 will be
 *    48  8  offset in it,        } found; a hint: older segments hold only records that are done
 *    56  8  position of that record, body bytes; may be that of a record a little before it
 *    64  8  H(bytes from 72 to the end of the ranges, H(bytes 0 to 63, K2))
 *    72     done_count ranges, 16 bytes each: first and last LSN of records beyond lsn + 1 that are
 *           done as well; ascending, apart from each other
 */
/* Calls: pure functions of their arguments, for any number of threads; nothing is allocated. */
#ifndef WAL_FORMAT_H
#define WAL_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WAL_FORMAT_VERSION      1u
#define WAL_HEADER_BYTES        4096u
#define WAL_BATCH_HEADER_BYTES  64u
#define WAL_RECORD_HEADER_BYTES 16u
#define WAL_RECORD_LIMIT        0x7fffffffu /* no length field is larger */
#define WAL_CURSOR_BYTES        8192u
#define WAL_CURSOR_SLOT_BYTES   4096u
#define WAL_CURSOR_HEADER_BYTES 72u
#define WAL_CURSOR_DONE_MAX     240u
#define WAL_LSN_MAX             INT64_MAX
#define WAL_BATCH_COPY          1u
#define WAL_SEGMENT_SUFFIX      ".seg"
#define WAL_SPARE_FILE_NAME     "spare.tmp"
#define WAL_CURSOR_NAME         "cursor"
#define WAL_SHARED_NAME         "shared"
#define WAL_WRITER_LOCK_NAME    "writer.lock"
#define WAL_READER_LOCK_NAME    "reader.lock"

struct wal_segment_header {
    uint64_t log_id;
    uint64_t number;
    uint64_t salt;
    uint64_t epoch;
    uint64_t segment_bytes;
    uint32_t block_bytes;
    uint32_t batch_limit;
    uint64_t created_us;
    uint64_t base_lsn;
};

struct wal_batch_header {
    uint32_t record_count;
    uint32_t body_bytes;
    uint32_t flags;
    uint64_t first_lsn;
    uint64_t durable_lsn;
    uint64_t position;
    uint64_t body_checksum;
};

struct wal_done_range {
    uint64_t first;
    uint64_t last;
};

struct wal_cursor_slot {
    uint64_t log_id;
    uint64_t generation;
    uint64_t lsn;
    uint64_t number;
    uint64_t offset;
    uint64_t position;
    uint32_t done_count;
    struct wal_done_range done[WAL_CURSOR_DONE_MAX];
};

/* What was found where a header was expected. */
enum wal_place {
    WAL_PLACE_VALID,
    WAL_PLACE_ZERO,   /* nothing but zero bytes */
    WAL_PLACE_HEADER, /* a header that is none: checksum, bounds */
    WAL_PLACE_BODY,   /* a valid header, but not the records it promises */
    WAL_PLACE_ORDER,  /* a valid batch with numbers that do not belong here */
};
const char *wal_place_text(enum wal_place place);

/* Fills WAL_HEADER_BYTES at bytes. */
void wal_segment_header_encode(const struct wal_segment_header *header, unsigned char *bytes);
/* Reads WAL_HEADER_BYTES. -EBADMSG: not a segment's header; -ENOTSUP: one of another version. */
int wal_segment_header_decode(struct wal_segment_header *header, const unsigned char *bytes);

void wal_batch_header_encode(const struct wal_batch_header *batch, uint64_t salt, uint64_t offset,
                             unsigned char *bytes);
/* Reads WAL_BATCH_HEADER_BYTES; checks everything that can be told without the body. */
enum wal_place wal_batch_header_decode(struct wal_batch_header *batch,
                                       const struct wal_segment_header *segment, uint64_t offset,
                                       const unsigned char *bytes);

/* Writes the WAL_RECORD_HEADER_BYTES before a payload; the checksum is left 0. */
void wal_record_header_encode(unsigned char *bytes, uint32_t length);
uint32_t wal_record_length(const unsigned char *bytes);

/* Puts in the checksums of record_count records from first_lsn on; returns the body's checksum. */
uint64_t wal_body_seal(unsigned char *body, uint32_t record_count, uint64_t first_lsn,
                       uint64_t salt);
/* Are the records that batch promises there, every one? */
bool wal_body_valid(const struct wal_batch_header *batch, const unsigned char *body, uint64_t salt);

/* Returns how many of the WAL_CURSOR_SLOT_BYTES it filled. */
size_t wal_cursor_encode(const struct wal_cursor_slot *slot, unsigned char *bytes);
/* Reads WAL_CURSOR_SLOT_BYTES. */
bool wal_cursor_decode(struct wal_cursor_slot *slot, const unsigned char *bytes);

/* The highest record that it says is done. */
static inline uint64_t wal_cursor_reach(const struct wal_cursor_slot *slot)
{
    return slot->done_count > 0 ? slot->done[slot->done_count - 1].last : slot->lsn;
}

static inline uint64_t wal_align(uint64_t value, uint32_t block_bytes)
{
    return (value + block_bytes - 1) & ~((uint64_t)block_bytes - 1);
}

static inline uint64_t wal_batch_last_lsn(const struct wal_batch_header *batch)
{
    return batch->first_lsn + batch->record_count - 1;
}

static inline uint64_t wal_batch_bytes(const struct wal_batch_header *batch)
{
    return WAL_BATCH_HEADER_BYTES + (uint64_t)batch->body_bytes;
}

#endif

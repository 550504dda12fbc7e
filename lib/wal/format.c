#include "wal/format.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <xxhash.h>

#define K1 0x9E3779B97F4A7C15u
#define K2 0xC2B2AE3D27D4EB4Fu

static const char segment_magic[8] = {'S', 'L', 'U', 'I', 'C', 'W', 'A', 'L'};
static const char cursor_magic[8] = {'S', 'L', 'U', 'I', 'C', 'C', 'U', 'R'};
#define BATCH_MAGIC 0x42575331u

static void put32(unsigned char *bytes, uint32_t value)
{
    uint32_t little = htole32(value);
    memcpy(bytes, &little, sizeof little);
}

static void put64(unsigned char *bytes, uint64_t value)
{
    uint64_t little = htole64(value);
    memcpy(bytes, &little, sizeof little);
}

static uint32_t get32(const unsigned char *bytes)
{
    uint32_t little;
    memcpy(&little, bytes, sizeof little);
    return le32toh(little);
}

static uint64_t get64(const unsigned char *bytes)
{
    uint64_t little;
    memcpy(&little, bytes, sizeof little);
    return le64toh(little);
}

const char *wal_place_text(enum wal_place place)
{
    switch (place) {
    case WAL_PLACE_VALID:
        return "a valid batch";
    case WAL_PLACE_ZERO:
        return "zero bytes instead of a batch";
    case WAL_PLACE_HEADER:
        return "a batch header that fails its checksum";
    case WAL_PLACE_BODY:
        return "a batch with records that fail their checksums";
    case WAL_PLACE_ORDER:
        return "a batch that belongs elsewhere";
    }
    return "unknown";
}

void wal_segment_header_encode(const struct wal_segment_header *header, unsigned char *bytes)
{
    memset(bytes, 0, WAL_HEADER_BYTES);
    memcpy(bytes, segment_magic, sizeof segment_magic);
    put32(bytes + 8, WAL_FORMAT_VERSION);
    put32(bytes + 12, WAL_HEADER_BYTES);
    put64(bytes + 16, header->log_id);
    put64(bytes + 24, header->number);
    put64(bytes + 32, header->salt);
    put64(bytes + 40, header->epoch);
    put64(bytes + 48, header->segment_bytes);
    put32(bytes + 56, header->block_bytes);
    put32(bytes + 60, header->batch_limit);
    put64(bytes + 64, header->created_us);
    put64(bytes + 72, header->base_lsn);
    put64(bytes + 120, XXH3_64bits_withSeed(bytes, 120, K1));
}

int wal_segment_header_decode(struct wal_segment_header *header, const unsigned char *bytes)
{
    if (memcmp(bytes, segment_magic, sizeof segment_magic) != 0) {
        return -EBADMSG;
    }
    if (get32(bytes + 8) != WAL_FORMAT_VERSION) {
        return -ENOTSUP;
    }
    if (get64(bytes + 120) != XXH3_64bits_withSeed(bytes, 120, K1) ||
        get32(bytes + 12) != WAL_HEADER_BYTES) {
        return -EBADMSG;
    }
    header->log_id = get64(bytes + 16);
    header->number = get64(bytes + 24);
    header->salt = get64(bytes + 32);
    header->epoch = get64(bytes + 40);
    header->segment_bytes = get64(bytes + 48);
    header->block_bytes = get32(bytes + 56);
    header->batch_limit = get32(bytes + 60);
    header->created_us = get64(bytes + 64);
    header->base_lsn = get64(bytes + 72);
    /* A hostile or foreign header with a right checksum must not make the arithmetic go wrong. */
    bool power = header->block_bytes >= 512 && header->block_bytes <= WAL_HEADER_BYTES &&
                 (header->block_bytes & (header->block_bytes - 1)) == 0;
    if (!power || header->segment_bytes > INT64_MAX / 2 ||
        header->segment_bytes < WAL_HEADER_BYTES + WAL_BATCH_HEADER_BYTES ||
        header->base_lsn > WAL_LSN_MAX ||
        header->batch_limit > header->segment_bytes - WAL_HEADER_BYTES) {
        return -EBADMSG;
    }
    return 0;
}

static uint64_t batch_seed(uint64_t salt, uint64_t offset)
{
    return salt + offset * K1;
}

void wal_batch_header_encode(const struct wal_batch_header *batch, uint64_t salt, uint64_t offset,
                             unsigned char *bytes)
{
    put32(bytes, BATCH_MAGIC);
    put32(bytes + 4, batch->record_count);
    put64(bytes + 8, batch->first_lsn);
    put64(bytes + 16, batch->durable_lsn);
    put64(bytes + 24, batch->position);
    put32(bytes + 32, batch->body_bytes);
    put32(bytes + 36, batch->flags);
    put64(bytes + 40, batch->body_checksum);
    put64(bytes + 48, 0);
    put64(bytes + 56, XXH3_64bits_withSeed(bytes, 56, batch_seed(salt, offset)));
}

static bool all_zero(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

enum wal_place wal_batch_header_decode(struct wal_batch_header *batch,
                                       const struct wal_segment_header *segment, uint64_t offset,
                                       const unsigned char *bytes)
{
    if (get32(bytes) != BATCH_MAGIC) {
        return all_zero(bytes, WAL_BATCH_HEADER_BYTES) ? WAL_PLACE_ZERO : WAL_PLACE_HEADER;
    }
    if (get64(bytes + 56) != XXH3_64bits_withSeed(bytes, 56, batch_seed(segment->salt, offset))) {
        return WAL_PLACE_HEADER;
    }
    batch->record_count = get32(bytes + 4);
    batch->first_lsn = get64(bytes + 8);
    batch->durable_lsn = get64(bytes + 16);
    batch->position = get64(bytes + 24);
    batch->body_bytes = get32(bytes + 32);
    batch->flags = get32(bytes + 36);
    batch->body_checksum = get64(bytes + 40);
    bool numbers = batch->record_count > 0 && batch->first_lsn > batch->durable_lsn &&
                   batch->first_lsn <= WAL_LSN_MAX &&
                   batch->record_count - 1 <= WAL_LSN_MAX - batch->first_lsn;
    bool lengths = (uint64_t)batch->record_count * WAL_RECORD_HEADER_BYTES <= batch->body_bytes &&
                   wal_batch_bytes(batch) <= segment->batch_limit &&
                   offset <= segment->segment_bytes &&
                   wal_batch_bytes(batch) <= segment->segment_bytes - offset;
    return numbers && lengths ? WAL_PLACE_VALID : WAL_PLACE_HEADER;
}

void wal_record_header_encode(unsigned char *bytes, uint32_t length)
{
    put32(bytes, length);
    put32(bytes + 4, 0);
    put64(bytes + 8, 0);
}

uint32_t wal_record_length(const unsigned char *bytes)
{
    return get32(bytes);
}

static uint64_t record_checksum(const unsigned char *payload, uint32_t length, uint64_t lsn,
                                uint64_t salt)
{
    return XXH3_64bits_withSeed(payload, length, salt + lsn * K1 + length * K2);
}

uint64_t wal_body_seal(unsigned char *body, uint32_t record_count, uint64_t first_lsn,
                       uint64_t salt)
{
    uint64_t chain = K2;
    for (uint32_t i = 0; i < record_count; i++) {
        uint32_t length = get32(body);
        put64(body + 8,
              record_checksum(body + WAL_RECORD_HEADER_BYTES, length, first_lsn + i, salt));
        chain = XXH3_64bits_withSeed(body + 8, 8, chain);
        body += WAL_RECORD_HEADER_BYTES + length;
    }
    return chain;
}

bool wal_body_valid(const struct wal_batch_header *batch, const unsigned char *body, uint64_t salt)
{
    uint64_t chain = K2;
    uint64_t left = batch->body_bytes;
    for (uint32_t i = 0; i < batch->record_count; i++) {
        if (left < WAL_RECORD_HEADER_BYTES) {
            return false;
        }
        uint32_t length = get32(body);
        left -= WAL_RECORD_HEADER_BYTES;
        if (length > left || get32(body + 4) != 0 ||
            get64(body + 8) != record_checksum(body + WAL_RECORD_HEADER_BYTES, length,
                                               batch->first_lsn + i, salt)) {
            return false;
        }
        chain = XXH3_64bits_withSeed(body + 8, 8, chain);
        left -= length;
        body += WAL_RECORD_HEADER_BYTES + length;
    }
    return left == 0 && chain == batch->body_checksum;
}

static uint64_t cursor_checksum(const unsigned char *bytes, uint32_t done_count)
{
    uint64_t seed = XXH3_64bits_withSeed(bytes, 64, K2);
    return XXH3_64bits_withSeed(bytes + WAL_CURSOR_HEADER_BYTES, (size_t)done_count * 16, seed);
}

size_t wal_cursor_encode(const struct wal_cursor_slot *slot, unsigned char *bytes)
{
    memcpy(bytes, cursor_magic, sizeof cursor_magic);
    put32(bytes + 8, WAL_FORMAT_VERSION);
    put32(bytes + 12, slot->done_count);
    put64(bytes + 16, slot->log_id);
    put64(bytes + 24, slot->generation);
    put64(bytes + 32, slot->lsn);
    put64(bytes + 40, slot->number);
    put64(bytes + 48, slot->offset);
    put64(bytes + 56, slot->position);
    unsigned char *at = bytes + WAL_CURSOR_HEADER_BYTES;
    for (uint32_t i = 0; i < slot->done_count; i++) {
        put64(at, slot->done[i].first);
        put64(at + 8, slot->done[i].last);
        at += 16;
    }
    put64(bytes + 64, cursor_checksum(bytes, slot->done_count));
    return (size_t)(at - bytes);
}

bool wal_cursor_decode(struct wal_cursor_slot *slot, const unsigned char *bytes)
{
    uint32_t done_count = get32(bytes + 12);
    if (memcmp(bytes, cursor_magic, sizeof cursor_magic) != 0 ||
        get32(bytes + 8) != WAL_FORMAT_VERSION || done_count > WAL_CURSOR_DONE_MAX ||
        get64(bytes + 64) != cursor_checksum(bytes, done_count)) {
        return false;
    }
    slot->log_id = get64(bytes + 16);
    slot->generation = get64(bytes + 24);
    slot->lsn = get64(bytes + 32);
    slot->number = get64(bytes + 40);
    slot->offset = get64(bytes + 48);
    slot->position = get64(bytes + 56);
    slot->done_count = done_count;
    uint64_t above = slot->lsn;
    for (uint32_t i = 0; i < done_count; i++) {
        const unsigned char *at = bytes + WAL_CURSOR_HEADER_BYTES + (size_t)i * 16;
        struct wal_done_range *range = &slot->done[i];
        range->first = get64(at);
        range->last = get64(at + 8);
        if (range->first <= above || range->first > range->last || range->last > WAL_LSN_MAX) {
            return false;
        }
        above = range->last;
    }
    return slot->lsn <= WAL_LSN_MAX;
}

#include "wal/tool/salvage.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *wal_source_text(enum wal_source_state state)
{
    switch (state) {
    case WAL_SOURCE_WHOLE:
        return "whole";
    case WAL_SOURCE_RENAMED:
        return "under the name of another segment";
    case WAL_SOURCE_GUESSED:
        return "header damaged, records readable";
    case WAL_SOURCE_LOST:
        return "header damaged, nothing readable";
    case WAL_SOURCE_STRANGER:
        return "of another log";
    case WAL_SOURCE_EMPTY:
        return "empty";
    }
    return "unknown";
}

static uint64_t get64(const unsigned char *bytes)
{
    uint64_t little;
    memcpy(&little, bytes, sizeof little);
    return le64toh(little);
}

static bool readable(const struct wal_source *source)
{
    return source->state == WAL_SOURCE_WHOLE || source->state == WAL_SOURCE_RENAMED ||
           source->state == WAL_SOURCE_GUESSED;
}

/* The header's checksum fails. If its salt is right all the same, batches tell: their checksums
 * depend on it, and no other salt makes them fit. */
static int guess(struct wal_walk *walk, struct wal_source *source)
{
    unsigned char bytes[WAL_HEADER_BYTES];
    int result = wal_read_full(walk->vfs, walk->file, bytes, sizeof bytes, 0);
    source->state = WAL_SOURCE_LOST;
    if (result < 0 || walk->size <= WAL_HEADER_BYTES) {
        return result;
    }
    uint64_t room = walk->size - WAL_HEADER_BYTES;
    source->header = (struct wal_segment_header){
        .log_id = get64(bytes + 16),
        .number = source->file_number,
        .salt = get64(bytes + 32),
        .segment_bytes = walk->size,
        .block_bytes = 512,
        .batch_limit = room < UINT32_MAX ? (uint32_t)room : UINT32_MAX,
    };
    walk->header = source->header;
    int64_t found = wal_walk_find_header(walk, WAL_HEADER_BYTES);
    if (found > 0) {
        source->state = WAL_SOURCE_GUESSED;
    }
    return found < 0 ? (int)found : 0;
}

static int look(struct wal_walk *walk, struct wal_source *source, struct wal_err *err)
{
    int result = wal_walk_open(walk, source->file_number, err);
    source->size = walk->size;
    source->header = walk->header;
    if (result >= 0) {
        source->state = result == 1 ? WAL_SOURCE_WHOLE : WAL_SOURCE_EMPTY;
        return 0;
    }
    if (result != -EBADMSG) {
        return result;
    }
    if (walk->place == WAL_PLACE_ORDER) {
        source->state = WAL_SOURCE_RENAMED;
        return 0;
    }
    result = guess(walk, source);
    return result < 0
               ? wal_fail(err, result, "Cannot read segment %llu in %s: %s",
                          (unsigned long long)source->file_number, walk->dir, strerror(-result))
               : 0;
}

/* Which of the logs that have segments here is the one meant? */
static uint64_t pick_log(const struct wal_salvage *salvage)
{
    uint64_t best = salvage->cursor_slots > 0 ? salvage->cursor.log_id : 0;
    size_t most = 0;
    for (size_t i = 0; i < salvage->count; i++) {
        size_t same = 0;
        uint64_t log_id = salvage->sources[i].header.log_id;
        for (size_t k = 0; k < salvage->count; k++) {
            const struct wal_source *other = &salvage->sources[k];
            same += (other->state == WAL_SOURCE_WHOLE || other->state == WAL_SOURCE_RENAMED) &&
                    other->header.log_id == log_id;
        }
        if (same > most || (same == most && same > 0 && salvage->cursor_slots > 0 &&
                            log_id == salvage->cursor.log_id)) {
            most = same;
            best = log_id;
        }
    }
    return best;
}

static int by_number(const void *left, const void *right)
{
    const struct wal_source *a = left;
    const struct wal_source *b = right;
    uint64_t x = readable(a) ? a->header.number : a->file_number;
    uint64_t y = readable(b) ? b->header.number : b->file_number;
    if (x == y) {
        x = a->file_number;
        y = b->file_number;
    }
    return (x > y) - (x < y);
}

static int load_sources(struct wal_salvage *salvage, const struct wal_numbers *numbers,
                        struct wal_err *err)
{
    struct wal_walk walk;
    int result = 0;
    salvage->sources = calloc(numbers->count + 1, sizeof *salvage->sources);
    if (salvage->sources == NULL) {
        return wal_fail(err, -ENOMEM, "Out of memory");
    }
    wal_walk_init(&walk, salvage->vfs, salvage->dir);
    for (size_t i = 0; i < numbers->count && result == 0; i++) {
        struct wal_source *source = &salvage->sources[salvage->count];
        *source = (struct wal_source){.file_number = numbers->list[i]};
        result = look(&walk, source, err);
        salvage->last_file_number = numbers->list[i];
        if (result == -ENOENT) {
            result = 0; /* the writer has removed it since it was listed */
            continue;
        }
        salvage->count++;
    }
    wal_walk_free(&walk);
    return result;
}

static void settle_log(struct wal_salvage *salvage)
{
    salvage->log_id = pick_log(salvage);
    if (salvage->cursor_slots > 0 && salvage->cursor.log_id != salvage->log_id) {
        salvage->cursor_slots = 0;
    }
    if (salvage->cursor_slots > 0) {
        salvage->known_lsn = wal_cursor_reach(&salvage->cursor);
    }
    for (size_t i = 0; i < salvage->count; i++) {
        struct wal_source *source = &salvage->sources[i];
        const struct wal_segment_header *header = &source->header;
        if (!readable(source)) {
            continue;
        }
        if (header->log_id != salvage->log_id) {
            source->state = WAL_SOURCE_STRANGER;
        } else if (source->state != WAL_SOURCE_GUESSED) {
            salvage->epoch = header->epoch > salvage->epoch ? header->epoch : salvage->epoch;
            if (header->base_lsn > salvage->known_lsn) {
                salvage->known_lsn = header->base_lsn;
            }
        }
    }
    if (salvage->count > 0) {
        qsort(salvage->sources, salvage->count, sizeof *salvage->sources, by_number);
    }
}

int wal_salvage_open(struct wal_salvage *salvage, const struct wal_vfs *vfs, const char *dir,
                     struct wal_err *err)
{
    struct wal_numbers numbers = {0};
    *salvage = (struct wal_salvage){.vfs = vfs, .dir = dir};
    int result = wal_list_segments(vfs, dir, &numbers);
    if (result < 0) {
        wal_fail(err, result, "Cannot list the folder %s: %s", dir, strerror(-result));
        goto out;
    }
    result = wal_cursor_read(vfs, dir, &salvage->cursor, &salvage->cursor_exists);
    if (result < 0) {
        wal_fail(err, result, "Cannot read %s/" WAL_CURSOR_NAME ": %s", dir, strerror(-result));
        goto out;
    }
    salvage->cursor_slots = (unsigned)result;
    if (numbers.count == 0 && result == 0) {
        result = wal_fail(err, -ENODATA,
                          "%s holds no log: there is no segment in it, and no cursor", dir);
        goto out;
    }
    result = load_sources(salvage, &numbers, err);
    if (result == 0) {
        settle_log(salvage);
    }

out:
    wal_numbers_free(&numbers);
    if (result < 0) {
        wal_salvage_close(salvage);
    }
    return result;
}

void wal_salvage_close(struct wal_salvage *salvage)
{
    free(salvage->sources);
    salvage->sources = NULL;
    salvage->count = 0;
}

struct pass {
    struct wal_salvage *salvage;
    struct wal_walk walk;
    uint64_t last_lsn; /* of the last batch handed out */
    wal_salvage_fn *each;
    void *arg;
};

static int hand_out(struct pass *pass, const struct wal_source *source)
{
    const struct wal_walk *walk = &pass->walk;
    struct wal_salvaged salvaged = {
        .source = source,
        .offset = walk->offset,
        .batch = &walk->batch,
        .body = walk->body,
        .body_bytes = walk->batch.body_bytes,
        .first_lsn = walk->batch.first_lsn,
        .record_count = walk->batch.record_count,
        .position = walk->batch.position,
    };
    while (salvaged.record_count > 0 && salvaged.first_lsn <= pass->last_lsn) {
        uint32_t bytes = WAL_RECORD_HEADER_BYTES + wal_record_length(salvaged.body);
        salvaged.body += bytes;
        salvaged.body_bytes -= bytes;
        salvaged.position += bytes;
        salvaged.first_lsn++;
        salvaged.record_count--;
    }
    if (salvaged.record_count == 0) {
        return 0;
    }
    pass->last_lsn = wal_batch_last_lsn(&walk->batch);
    return pass->each(pass->arg, &salvaged);
}

static void learn(struct wal_salvage *salvage, uint64_t lsn)
{
    salvage->known_lsn = lsn > salvage->known_lsn ? lsn : salvage->known_lsn;
}

static int read_source(struct pass *pass, const struct wal_source *source, struct wal_err *err)
{
    struct wal_walk *walk = &pass->walk;
    uint64_t from = WAL_HEADER_BYTES;
    int result = wal_walk_open(walk, source->file_number, err);
    if (result < 0 && result != -EBADMSG) {
        return result == -ENOENT ? 0 : result;
    }
    walk->header = source->header;
    for (;;) {
        int64_t found = wal_walk_find_header(walk, from);
        if (found <= 0) {
            result = (int)found;
            break;
        }
        wal_walk_to(walk, (uint64_t)found);
        result = wal_walk_load(walk);
        if (result < 0) {
            break;
        }
        if (result == 0 && walk->place != WAL_PLACE_BODY) {
            from = (uint64_t)found + walk->header.block_bytes; /* changed while it was read */
            continue;
        }
        learn(pass->salvage, walk->batch.durable_lsn);
        if (result == 0) {
            from = (uint64_t)found + walk->header.block_bytes;
            continue;
        }
        learn(pass->salvage, wal_batch_last_lsn(&walk->batch));
        result = hand_out(pass, source);
        if (result < 0) {
            return result;
        }
        from = walk->offset + wal_batch_bytes(&walk->batch);
    }
    return result < 0
               ? wal_fail(err, result, "Cannot read segment %llu in %s: %s",
                          (unsigned long long)source->file_number, walk->dir, strerror(-result))
               : 0;
}

int wal_salvage_each(struct wal_salvage *salvage, wal_salvage_fn *each, void *arg,
                     struct wal_err *err)
{
    struct pass pass = {.salvage = salvage, .each = each, .arg = arg};
    int result = 0;
    wal_walk_init(&pass.walk, salvage->vfs, salvage->dir);
    pass.walk.read_bytes = 1024 * 1024;
    for (size_t i = 0; i < salvage->count && result >= 0; i++) {
        if (readable(&salvage->sources[i])) {
            result = read_source(&pass, &salvage->sources[i], err);
        }
    }
    wal_walk_free(&pass.walk);
    return result;
}

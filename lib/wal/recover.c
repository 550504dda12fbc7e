/*
 * Reading the whole log before anything is changed: what is valid, where it ends, and whether its
 * end is a torn tail (dropped) or damage to durable records (refused).
 */
#include "wal/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct recovery {
    const struct wal_vfs *vfs;
    const char *dir;
    struct wal_found *found;
    struct wal_err *err;
    struct wal_walk walk;
    bool any_batch;
    bool cursor_exists;
    /* The last place where a batch was expected and none counted, with content. */
    bool has_bad;
    uint64_t bad_number;
    uint64_t bad_offset;
    enum wal_place bad_place;
};

static int cursor_pick(const struct wal_vfs *vfs, int file, struct wal_cursor_slot *slot)
{
    int found = 0;
    for (uint64_t i = 0; i < 2; i++) {
        unsigned char bytes[WAL_CURSOR_SLOT_BYTES];
        struct wal_cursor_slot candidate;
        int result = wal_read_full(vfs, file, bytes, sizeof bytes, i * WAL_CURSOR_SLOT_BYTES);
        if (result < 0) {
            return result;
        }
        bool valid = wal_cursor_decode(&candidate, bytes);
        if (valid && (found == 0 || candidate.generation > slot->generation)) {
            *slot = candidate;
        }
        found += valid;
    }
    return found;
}

int wal_cursor_read(const struct wal_vfs *vfs, const char *dir, struct wal_cursor_slot *slot,
                    bool *exists)
{
    char path[WAL_PATH_BYTES];
    int result = wal_path(path, dir, WAL_CURSOR_NAME);
    *exists = false;
    if (result < 0) {
        return result;
    }
    int file = vfs->open(vfs, path, WAL_OPEN_READ);
    if (file == -ENOENT) {
        return 0;
    }
    if (file < 0) {
        return file;
    }
    *exists = true;
    result = cursor_pick(vfs, file, slot);
    vfs->close(vfs, file);
    return result;
}

static void remember_bad(struct recovery *recovery)
{
    recovery->has_bad = true;
    recovery->bad_number = recovery->walk.header.number;
    recovery->bad_offset = recovery->walk.offset;
    recovery->bad_place = recovery->walk.place;
}

static struct wal_damage *note_damage(struct recovery *recovery, enum wal_damage_kind kind,
                                      uint64_t number, uint64_t offset)
{
    recovery->found->damage =
        (struct wal_damage){.kind = kind, .in_segment = true, .number = number, .offset = offset};
    return &recovery->found->damage;
}

static int refuse_rot(struct recovery *recovery, uint64_t proof_number, uint64_t proof_offset)
{
    char path[WAL_PATH_BYTES];
    note_damage(recovery, WAL_DAMAGE_BATCH, recovery->bad_number, recovery->bad_offset)->place =
        recovery->bad_place;
    wal_segment_path(path, recovery->dir, recovery->bad_number);
    return wal_fail(recovery->err, -EBADMSG,
                    "%s at %llu: %s, where durable records were (segment %llu at %llu, written "
                    "after them, is there); restore the file, or move the log away",
                    path, (unsigned long long)recovery->bad_offset,
                    wal_place_text(recovery->bad_place), (unsigned long long)proof_number,
                    (unsigned long long)proof_offset);
}

static int refuse_gap(struct recovery *recovery, uint64_t reach, uint64_t durable_lsn)
{
    uint64_t offset = recovery->walk.offset;
    /* Without a hole in the numbers no file is missing: then it is rot at the last one's end. */
    if (recovery->has_bad && recovery->bad_number + 1 == recovery->walk.header.number) {
        return refuse_rot(recovery, recovery->walk.header.number, offset);
    }
    char path[WAL_PATH_BYTES];
    struct wal_damage *damage =
        note_damage(recovery, WAL_DAMAGE_GAP, recovery->walk.header.number, offset);
    damage->first_lsn = reach + 1;
    damage->last_lsn = durable_lsn;
    wal_segment_path(path, recovery->dir, recovery->walk.header.number);
    return wal_fail(recovery->err, -EBADMSG,
                    "%s at %llu: records %llu to %llu, durable before it, are in no segment; "
                    "a segment before it is missing",
                    path, (unsigned long long)offset, (unsigned long long)reach + 1,
                    (unsigned long long)durable_lsn);
}

/* What the records up to here, and those that are done and may be gone, reach to. */
static uint64_t reach_of(const struct wal_found *found)
{
    return found->has_cursor && found->cursor.lsn > found->last_lsn ? found->cursor.lsn
                                                                    : found->last_lsn;
}

/* A copied batch may be the only one left that holds its records. */
static uint64_t reach_of_copy(struct recovery *recovery, uint64_t reach)
{
    const struct wal_batch_header *batch = &recovery->walk.batch;
    bool continues = wal_walk_load(&recovery->walk) == 1 && (batch->flags & WAL_BATCH_COPY) != 0 &&
                     batch->first_lsn <= reach + 1 && wal_batch_last_lsn(batch) > reach;
    return continues ? wal_batch_last_lsn(batch) : reach;
}

/* The next segment vouches that everything up to `durable_lsn` was on disk. Is it? */
static int check_reach(struct recovery *recovery, uint64_t durable_lsn, bool at_header)
{
    struct wal_found *found = recovery->found;
    uint64_t reach = reach_of(found);
    if (at_header && durable_lsn > reach) {
        reach = reach_of_copy(recovery, reach);
    }
    if (!recovery->any_batch && found->cursor_slots < 2) {
        return 0; /* the cursor, or its newer slot, is lost: nobody knows what came before */
    }
    return durable_lsn > reach ? refuse_gap(recovery, reach, durable_lsn) : 0;
}

/* Does the loaded batch continue the log? 1: yes; 0: it is out of place; negative: refused. */
static int check_order(struct recovery *recovery, bool first_in_segment)
{
    struct wal_found *found = recovery->found;
    const struct wal_batch_header *batch = &recovery->walk.batch;
    if (!first_in_segment) {
        return batch->durable_lsn == found->last_lsn && batch->first_lsn == found->last_lsn + 1 &&
               batch->flags == 0;
    }
    int result = check_reach(recovery, batch->durable_lsn, false);
    if (result < 0) {
        return result;
    }
    /* A copy may be of records that a header vouches for; all others were written after it. */
    bool copy = (batch->flags & WAL_BATCH_COPY) != 0;
    return copy ? wal_batch_last_lsn(batch) >= found->base_lsn
                : batch->first_lsn > found->last_lsn && batch->first_lsn > found->base_lsn;
}

static void take_batch(struct recovery *recovery, struct wal_segment_info *info)
{
    struct wal_found *found = recovery->found;
    const struct wal_walk *walk = &recovery->walk;
    if (!recovery->any_batch) {
        found->first_lsn = walk->batch.first_lsn;
        found->first_position = walk->batch.position;
    }
    recovery->any_batch = true;
    if (wal_batch_last_lsn(&walk->batch) > found->last_lsn) {
        found->last_lsn = wal_batch_last_lsn(&walk->batch);
    }
    found->position = walk->batch.position + walk->batch.body_bytes;
    found->has_tail = true;
    found->tail_number = info->number;
    found->tail_offset = walk->offset;
    found->tail = walk->batch;
}

static int scan_batches(struct recovery *recovery, struct wal_segment_info *info)
{
    struct wal_walk *walk = &recovery->walk;
    bool first = true;
    int result;
    while ((result = wal_walk_load(walk)) > 0) {
        int order = check_order(recovery, first);
        if (order < 0) {
            return order;
        }
        if (order == 0) {
            walk->place = WAL_PLACE_ORDER;
            remember_bad(recovery);
            return refuse_rot(recovery, info->number, walk->offset);
        }
        take_batch(recovery, info);
        first = false;
        wal_walk_next(walk);
    }
    if (result < 0) {
        return wal_fail(recovery->err, result, "Cannot read segment %llu in %s: %s",
                        (unsigned long long)info->number, recovery->dir, strerror(-result));
    }
    uint64_t bad_offset = walk->offset;
    if (walk->place == WAL_PLACE_BODY) {
        /* Its header says what was durable before it, even if its records did not make it. */
        int order = check_order(recovery, first);
        if (order < 0) {
            return order;
        }
    }
    remember_bad(recovery);
    int64_t proof = wal_walk_find_header(walk, bad_offset + walk->header.block_bytes);
    if (proof < 0) {
        return wal_fail(recovery->err, (int)proof, "Cannot read segment %llu in %s: %s",
                        (unsigned long long)info->number, recovery->dir, strerror(-(int)proof));
    }
    if (proof > 0) {
        return refuse_rot(recovery, info->number, (uint64_t)proof);
    }
    if (walk->place == WAL_PLACE_BODY) {
        recovery->found->torn_bytes += wal_batch_bytes(&walk->batch);
    }
    info->empty = first && walk->place == WAL_PLACE_ZERO;
    info->last_lsn = recovery->found->last_lsn;
    /* What was torn is kept: should it have been rot, it is all the evidence there is. */
    uint64_t keep = bad_offset + walk->header.batch_limit;
    info->trim_to = keep < info->size ? keep : 0;
    return 0;
}

static int scan_segment(struct recovery *recovery, struct wal_segment_info *info)
{
    struct wal_found *found = recovery->found;
    info->empty = true;
    int result = wal_walk_open(&recovery->walk, info->number, recovery->err);
    info->size = recovery->walk.size;
    if (result == -EBADMSG) {
        bool header = recovery->walk.place == WAL_PLACE_HEADER;
        note_damage(recovery, header ? WAL_DAMAGE_HEADER : WAL_DAMAGE_NUMBER, info->number,
                    header ? 0 : 24);
    }
    if (result <= 0) {
        return result;
    }
    const struct wal_segment_header *header = &recovery->walk.header;
    if (found->log_id == 0) {
        found->log_id = header->log_id;
    }
    if (header->log_id != found->log_id) {
        char path[WAL_PATH_BYTES];
        note_damage(recovery, WAL_DAMAGE_STRANGER, info->number, 16);
        wal_segment_path(path, recovery->dir, info->number);
        return wal_fail(recovery->err, -EBADMSG, "%s at 16: the segment belongs to another log",
                        path);
    }
    if (header->epoch > found->epoch) {
        found->epoch = header->epoch;
    }
    result = check_reach(recovery, header->base_lsn, true);
    if (result < 0) {
        return result;
    }
    if (header->base_lsn > found->base_lsn) {
        found->base_lsn = header->base_lsn;
    }
    return scan_batches(recovery, info);
}

/* What this boot's writer had published was durable: a log that ends before it has lost records. */
static int check_floor(struct recovery *recovery, const struct wal_shared *shared)
{
    struct wal_found *found = recovery->found;
    unsigned char boot_id[16];
    int result = recovery->vfs->boot_id(recovery->vfs, boot_id);
    if (result < 0) {
        return wal_fail(recovery->err, result, "Cannot read the boot's id: %s", strerror(-result));
    }
    if (!wal_shared_current(shared, boot_id) ||
        (found->log_id != 0 && atomic_load(&shared->log_id) != found->log_id)) {
        return 0;
    }
    uint64_t epoch = atomic_load(&shared->epoch);
    found->epoch = epoch > found->epoch ? epoch : found->epoch;
    found->log_id = atomic_load(&shared->log_id);
    uint64_t durable = atomic_load(&shared->durable_lsn);
    uint64_t reach = reach_of(found);
    uint64_t synced = atomic_load(&shared->synced_lsn);
    if (found->cursor_slots < 2 && synced > reach) {
        reach =
            synced; /* the cursor is lost, but not what it said: those are done and may be gone */
    }
    if (durable > found->floor_lsn) {
        found->floor_lsn = durable;
    }
    if (!recovery->cursor_exists && synced > 0) {
        wal_fail(&found->warning, 0,
                 "%s/" WAL_CURSOR_NAME " is missing: the reader starts at the oldest record",
                 recovery->dir);
    }
    /* The second: nothing was written since it was opened, and what was before is done and gone. */
    if (durable <= reach || (!recovery->any_batch && !found->has_cursor &&
                             durable == atomic_load(&shared->opened_lsn))) {
        return 0;
    }
    struct wal_damage *damage =
        note_damage(recovery, WAL_DAMAGE_SHORT, recovery->bad_number, recovery->bad_offset);
    damage->place = recovery->bad_place;
    damage->in_segment = recovery->has_bad;
    damage->first_lsn = reach + 1;
    damage->last_lsn = durable;
    if (recovery->has_bad) {
        char path[WAL_PATH_BYTES];
        wal_segment_path(path, recovery->dir, recovery->bad_number);
        return wal_fail(recovery->err, -EBADMSG,
                        "%s at %llu: %s, but since this boot records up to %llu were durable "
                        "(%s/" WAL_SHARED_NAME " says so); the log ends at %llu",
                        path, (unsigned long long)recovery->bad_offset,
                        wal_place_text(recovery->bad_place), (unsigned long long)durable,
                        recovery->dir, (unsigned long long)reach);
    }
    return wal_fail(recovery->err, -EBADMSG,
                    "%s: the log ends at record %llu, but since this boot records up to %llu were "
                    "durable (the file " WAL_SHARED_NAME " in it says so)",
                    recovery->dir, (unsigned long long)reach, (unsigned long long)durable);
}

static int read_cursor(struct recovery *recovery)
{
    struct wal_found *found = recovery->found;
    int result =
        wal_cursor_read(recovery->vfs, recovery->dir, &found->cursor, &recovery->cursor_exists);
    if (result < 0) {
        return wal_fail(recovery->err, result, "Cannot read %s/" WAL_CURSOR_NAME ": %s",
                        recovery->dir, strerror(-result));
    }
    found->has_cursor = result > 0;
    found->cursor_slots = (unsigned)result;
    if (!found->has_cursor && recovery->cursor_exists) {
        wal_fail(&found->warning, 0,
                 "%s/" WAL_CURSOR_NAME " is damaged: the reader starts at the oldest record",
                 recovery->dir);
    }
    return 0;
}

/* A cursor of another log would pass for progress here. */
static void check_cursor_owner(struct wal_found *found, const struct wal_numbers *numbers,
                               struct recovery *recovery)
{
    for (size_t i = 0; found->has_cursor && i < numbers->count; i++) {
        if (wal_walk_open(&recovery->walk, numbers->list[i], NULL) == 1) {
            if (recovery->walk.header.log_id != found->cursor.log_id) {
                found->has_cursor = false;
                found->cursor_slots = 0;
                wal_fail(&found->warning, 0,
                         "%s/" WAL_CURSOR_NAME " is of another log: the reader starts at the "
                         "oldest record",
                         recovery->dir);
            }
            return;
        }
    }
}

static uint64_t segment_size(struct recovery *recovery, uint64_t number)
{
    char path[WAL_PATH_BYTES];
    struct wal_file_status status = {0};
    const struct wal_vfs *vfs = recovery->vfs;
    int file = wal_segment_path(path, recovery->dir, number);
    file = file < 0 ? file : vfs->open(vfs, path, WAL_OPEN_READ);
    if (file >= 0) {
        vfs->status(vfs, file, &status);
        vfs->close(vfs, file);
    }
    return status.size;
}

int wal_recover(const struct wal_vfs *vfs, const char *dir, const struct wal_shared *shared,
                struct wal_found *found, struct wal_err *err)
{
    struct recovery recovery = {.vfs = vfs, .dir = dir, .found = found, .err = err};
    struct wal_numbers numbers = {0};
    memset(found, 0, sizeof *found);
    wal_walk_init(&recovery.walk, vfs, dir);
    recovery.walk.read_bytes = 1024 * 1024;

    int result = wal_list_segments(vfs, dir, &numbers);
    if (result < 0) {
        wal_fail(err, result, "Cannot list the folder %s: %s", dir, strerror(-result));
        goto out;
    }
    result = read_cursor(&recovery);
    if (result < 0) {
        goto out;
    }
    check_cursor_owner(found, &numbers, &recovery);
    if (found->has_cursor) {
        found->log_id = found->cursor.log_id;
    }
    found->segments = calloc(numbers.count + 1, sizeof *found->segments);
    if (found->segments == NULL) {
        result = wal_fail(err, -ENOMEM, "Out of memory");
        goto out;
    }
    for (size_t i = 0; i < numbers.count; i++) {
        struct wal_segment_info *info = &found->segments[found->count++];
        info->number = numbers.list[i];
        if (found->has_cursor && info->number < found->cursor.number &&
            found->cursor.number <= numbers.list[numbers.count - 1]) {
            /* All done: neither worth reading nor, if it is damaged, worth refusing. */
            info->last_lsn = found->cursor.lsn;
            info->size = segment_size(&recovery, info->number);
            continue;
        }
        result = scan_segment(&recovery, info);
        if (result < 0) {
            goto out;
        }
    }
    found->floor_lsn = found->base_lsn > found->last_lsn ? found->base_lsn : found->last_lsn;
    if (shared != NULL) {
        result = check_floor(&recovery, shared);
    }

out:
    wal_walk_free(&recovery.walk);
    wal_numbers_free(&numbers);
    if (result < 0) {
        wal_found_free(found);
    }
    return result;
}

void wal_found_free(struct wal_found *found)
{
    free(found->segments);
    found->segments = NULL;
    found->count = 0;
}

#include "wal/tool/repair.h"

#include "wal/cursor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEMPORARY_PREFIX "repair-"
#define BLOCK_BYTES      512u

/* ---- the plan ---- */

static int ranges_add(struct wal_repair_ranges *ranges, uint64_t first, uint64_t last)
{
    if (first > last) {
        return 0;
    }
    if (ranges->count > 0 && ranges->list[ranges->count - 1].last + 1 >= first) {
        if (last > ranges->list[ranges->count - 1].last) {
            ranges->list[ranges->count - 1].last = last;
        }
        return 0;
    }
    if (ranges->count == ranges->capacity) {
        size_t capacity = ranges->capacity == 0 ? 64 : ranges->capacity * 2;
        struct wal_done_range *list = realloc(ranges->list, capacity * sizeof *list);
        if (list == NULL) {
            return -ENOMEM;
        }
        ranges->list = list;
        ranges->capacity = capacity;
    }
    ranges->list[ranges->count++] = (struct wal_done_range){first, last};
    return 0;
}

static int ranges_records(const struct wal_repair_ranges *ranges, uint64_t *records)
{
    *records = 0;
    for (size_t i = 0; i < ranges->count; i++) {
        *records += ranges->list[i].last - ranges->list[i].first + 1;
    }
    return 0;
}

static uint64_t cursor_lsn(const struct wal_salvage *salvage)
{
    return salvage->cursor_slots > 0 ? salvage->cursor.lsn : 0;
}

static int plan_batch(void *arg, const struct wal_salvaged *salvaged)
{
    struct wal_repair *repair = arg;
    uint64_t done = cursor_lsn(&repair->salvage);
    uint64_t last = salvaged->first_lsn + salvaged->record_count - 1;
    uint64_t bytes = WAL_BATCH_HEADER_BYTES + (uint64_t)salvaged->body_bytes;
    if (last <= done) {
        return 0;
    }
    repair->kept_bytes += wal_align(bytes, BLOCK_BYTES);
    repair->batch_bytes = bytes > repair->batch_bytes ? bytes : repair->batch_bytes;
    return ranges_add(&repair->kept, salvaged->first_lsn > done ? salvaged->first_lsn : done + 1,
                      last);
}

/* first to last, less what the cursor says is done. */
static int add_lost(struct wal_repair *repair, uint64_t first, uint64_t last)
{
    const struct wal_salvage *salvage = &repair->salvage;
    int result = 0;
    for (uint32_t i = 0; salvage->cursor_slots > 0 && i < salvage->cursor.done_count; i++) {
        const struct wal_done_range *done = &salvage->cursor.done[i];
        if (done->last < first || done->first > last) {
            continue;
        }
        if (done->first > first) {
            result = ranges_add(&repair->lost, first, done->first - 1);
        }
        if (result < 0 || done->last >= last) {
            return result;
        }
        first = done->last + 1;
    }
    return ranges_add(&repair->lost, first, last);
}

static int find_lost(struct wal_repair *repair)
{
    const struct wal_repair_ranges *kept = &repair->kept;
    uint64_t from = cursor_lsn(&repair->salvage) + 1;
    int result = 0;
    uint64_t next = kept->count > 0 ? kept->list[0].first : repair->salvage.known_lsn + 1;
    if (next > from && repair->salvage.cursor_slots < 2) {
        repair->unsure = (struct wal_done_range){from, next - 1};
        from = next;
    }
    for (size_t i = 0; i < kept->count && result == 0; i++) {
        result = add_lost(repair, from, kept->list[i].first - 1);
        from = kept->list[i].last + 1;
    }
    if (result == 0 && from <= repair->salvage.known_lsn) {
        result = add_lost(repair, from, repair->salvage.known_lsn);
    }
    ranges_records(&repair->kept, &repair->kept_records);
    ranges_records(&repair->lost, &repair->lost_records);
    return result;
}

/* Two ascending lists into one. */
static int merge(struct wal_repair_ranges *merged, const struct wal_done_range *left,
                 size_t left_count, const struct wal_done_range *right, size_t right_count)
{
    int result = 0;
    while ((left_count > 0 || right_count > 0) && result == 0) {
        bool take = right_count == 0 || (left_count > 0 && left->first < right->first);
        const struct wal_done_range *next = take ? left++ : right++;
        left_count -= take;
        right_count -= !take;
        result = ranges_add(merged, next->first, next->last);
    }
    return result;
}

/* Where the reader goes on: at the oldest record that is left; lost numbers count as done. */
static int plan_cursor(struct wal_repair *repair)
{
    const struct wal_salvage *salvage = &repair->salvage;
    struct wal_cursor_slot *slot = &repair->cursor;
    bool any = salvage->cursor_slots > 0;
    struct wal_repair_ranges done = {0};
    struct wal_done_range last = {0};
    int result = merge(&done, repair->lost.list, repair->lost.count, salvage->cursor.done,
                       any ? salvage->cursor.done_count : 0);
    if (result == 0 && done.count > WAL_CURSOR_DONE_MAX && any) {
        /* Only that of the last one matters: no number may be given twice. */
        last = done.list[done.count - 1];
        done.count = 0;
        result = merge(&done, salvage->cursor.done, salvage->cursor.done_count, &last, 1);
    }
    if (result < 0) {
        free(done.list);
        return result;
    }
    *slot = (struct wal_cursor_slot){.log_id = salvage->log_id};
    if (any) {
        *slot = salvage->cursor;
    }
    slot->done_count = 0;
    if (repair->unsure.last > 0) {
        slot->lsn = repair->unsure.last;
    }
    size_t i = 0;
    for (; i < done.count && done.list[i].first <= slot->lsn + 1; i++) {
        slot->lsn = done.list[i].last;
    }
    for (; i < done.count; i++) {
        if (slot->done_count == WAL_CURSOR_DONE_MAX) {
            slot->done[WAL_CURSOR_DONE_MAX - 1] = done.list[done.count - 1];
            break;
        }
        slot->done[slot->done_count++] = done.list[i];
    }
    free(done.list);
    return 0;
}

static int learn_from_shared(struct wal_salvage *salvage, struct wal_err *err)
{
    struct wal_shared *shared;
    int file;
    int result = wal_check_shared(salvage->vfs, salvage->dir, &shared, &file, err);
    if (result == 0 && shared != NULL && atomic_load(&shared->log_id) == salvage->log_id) {
        uint64_t durable = atomic_load(&shared->durable_lsn);
        salvage->known_lsn = durable > salvage->known_lsn ? durable : salvage->known_lsn;
    }
    wal_shared_close(salvage->vfs, shared, file);
    return result;
}

static void plan_sizes(struct wal_repair *repair)
{
    uint64_t bytes = WAL_HEADER_BYTES + wal_align(repair->batch_bytes + 1, 4096);
    for (size_t i = 0; i < repair->salvage.count; i++) {
        const struct wal_source *source = &repair->salvage.sources[i];
        bool whole = source->state == WAL_SOURCE_WHOLE || source->state == WAL_SOURCE_RENAMED;
        if (whole && source->header.segment_bytes > bytes) {
            bytes = source->header.segment_bytes;
        }
    }
    repair->segment_bytes = bytes;
    repair->kept_bytes += (repair->kept.count + 1 + repair->kept_bytes / bytes) * WAL_HEADER_BYTES;
}

int wal_repair_plan(struct wal_repair *repair, const struct wal_vfs *vfs, const char *dir,
                    struct wal_err *err)
{
    memset(repair, 0, sizeof *repair);
    int result = wal_check_log(&repair->check, vfs, dir, false, err);
    if (result <= 0) {
        return result;
    }
    result = wal_salvage_open(&repair->salvage, vfs, dir, err);
    if (result < 0) {
        return result;
    }
    if (repair->salvage.log_id == 0) {
        return wal_fail(err, -ENOMSG,
                        "%s: no segment has a header that tells which log this is, and there is no "
                        "cursor; nothing can be kept: restore the folder from a copy",
                        dir);
    }
    result = learn_from_shared(&repair->salvage, err);
    if (result == 0) {
        result = wal_salvage_each(&repair->salvage, plan_batch, repair, err);
    }
    if (result == 0) {
        result = find_lost(repair);
    }
    if (result == 0) {
        result = plan_cursor(repair);
    }
    if (result == -ENOMEM) {
        wal_fail(err, result, "Out of memory");
    }
    plan_sizes(repair);
    return result < 0 ? result : 1;
}

void wal_repair_free(struct wal_repair *repair)
{
    wal_salvage_close(&repair->salvage);
    free(repair->kept.list);
    free(repair->lost.list);
    memset(repair, 0, sizeof *repair);
}

/* ---- the new segments ---- */

struct rewrite {
    struct wal_repair *repair;
    const struct wal_vfs *vfs;
    uint64_t first_number;
    uint64_t count; /* segments begun */
    int file;       /* of the last of them; -1: none */
    struct wal_segment_header header;
    uint64_t tail;
    uint64_t last_lsn;
    uint64_t position; /* of the first record */
    unsigned char *body;
    size_t body_capacity;
};

static int temporary_path(char path[WAL_PATH_BYTES], const char *dir, uint64_t number)
{
    char name[48];
    snprintf(name, sizeof name, TEMPORARY_PREFIX "%020llu.tmp", (unsigned long long)number);
    return wal_path(path, dir, name);
}

static int end_segment(struct rewrite *rewrite)
{
    if (rewrite->file < 0) {
        return 0;
    }
    int result = rewrite->vfs->sync(rewrite->vfs, rewrite->file);
    int closed = rewrite->vfs->close(rewrite->vfs, rewrite->file);
    rewrite->file = -1;
    return result < 0 ? result : closed;
}

static int begin_segment(struct rewrite *rewrite, uint64_t base_lsn)
{
    char path[WAL_PATH_BYTES];
    unsigned char bytes[WAL_HEADER_BYTES];
    struct iovec part = {bytes, sizeof bytes};
    uint64_t written;
    const struct wal_vfs *vfs = rewrite->vfs;
    const struct wal_repair *repair = rewrite->repair;
    uint64_t room = repair->segment_bytes - WAL_HEADER_BYTES;
    int result = end_segment(rewrite);
    rewrite->header = (struct wal_segment_header){
        .log_id = repair->salvage.log_id,
        .number = rewrite->first_number + rewrite->count,
        .epoch = repair->salvage.epoch + 1,
        .segment_bytes = repair->segment_bytes,
        .block_bytes = BLOCK_BYTES,
        .batch_limit = room < UINT32_MAX ? (uint32_t)room : UINT32_MAX,
        .created_us = (uint64_t)vfs->wall_us(vfs),
        .base_lsn = base_lsn,
    };
    if (result == 0) {
        result = vfs->entropy(vfs, &rewrite->header.salt, sizeof rewrite->header.salt);
    }
    if (result == 0) {
        result = temporary_path(path, repair->salvage.dir, rewrite->header.number);
    }
    if (result < 0) {
        return result;
    }
    rewrite->file = vfs->open(vfs, path, WAL_OPEN_WRITE | WAL_OPEN_CREATE | WAL_OPEN_TRUNCATE);
    if (rewrite->file < 0) {
        return rewrite->file;
    }
    rewrite->count++;
    rewrite->tail = WAL_HEADER_BYTES;
    wal_segment_header_encode(&rewrite->header, bytes);
    return wal_write_full(vfs, rewrite->file, &part, 1, 0, &written);
}

static int body_copy(struct rewrite *rewrite, const struct wal_salvaged *salvaged)
{
    if (salvaged->body_bytes > rewrite->body_capacity) {
        unsigned char *body = realloc(rewrite->body, salvaged->body_bytes);
        if (body == NULL) {
            return -ENOMEM;
        }
        rewrite->body = body;
        rewrite->body_capacity = salvaged->body_bytes;
    }
    memcpy(rewrite->body, salvaged->body, salvaged->body_bytes);
    return 0;
}

static int rewrite_batch(void *arg, const struct wal_salvaged *salvaged)
{
    struct rewrite *rewrite = arg;
    unsigned char header[WAL_BATCH_HEADER_BYTES];
    struct wal_batch_header batch = {
        .record_count = salvaged->record_count,
        .body_bytes = salvaged->body_bytes,
        .first_lsn = salvaged->first_lsn,
        .position = salvaged->position,
    };
    uint64_t done = rewrite->repair->cursor.lsn;
    uint64_t written;
    if (wal_batch_last_lsn(&batch) <= done) {
        return 0;
    }
    bool first = rewrite->count == 0;
    uint64_t before = first ? done : rewrite->last_lsn;
    before = before < batch.first_lsn ? before : batch.first_lsn - 1;
    int result = 0;
    /* Only a segment's first batch may leave numbers out. */
    if (first || batch.first_lsn != rewrite->last_lsn + 1 ||
        wal_batch_bytes(&batch) > rewrite->header.segment_bytes - rewrite->tail) {
        result = begin_segment(rewrite, before);
    }
    if (first) {
        rewrite->position = batch.position;
    }
    if (result == 0) {
        result = body_copy(rewrite, salvaged);
    }
    if (result < 0) {
        return result;
    }
    batch.durable_lsn = before;
    batch.body_checksum =
        wal_body_seal(rewrite->body, batch.record_count, batch.first_lsn, rewrite->header.salt);
    wal_batch_header_encode(&batch, rewrite->header.salt, rewrite->tail, header);
    struct iovec parts[2] = {{header, sizeof header}, {rewrite->body, batch.body_bytes}};
    result = wal_write_full(rewrite->vfs, rewrite->file, parts, 2, rewrite->tail, &written);
    rewrite->tail = wal_align(rewrite->tail + wal_batch_bytes(&batch), BLOCK_BYTES);
    rewrite->last_lsn = wal_batch_last_lsn(&batch);
    return result;
}

static int write_segments(struct rewrite *rewrite, struct wal_err *err)
{
    int result = wal_salvage_each(&rewrite->repair->salvage, rewrite_batch, rewrite, err);
    if (result == 0 && rewrite->count == 0) {
        /* Nothing is left; but the cursor must have a segment to point at. */
        result = begin_segment(rewrite, 0);
    }
    int ended = end_segment(rewrite);
    return result < 0 ? result : ended;
}

static int name_segments(struct rewrite *rewrite)
{
    char from[WAL_PATH_BYTES];
    char to[WAL_PATH_BYTES];
    const char *dir = rewrite->repair->salvage.dir;
    const struct wal_vfs *vfs = rewrite->vfs;
    int result = vfs->sync_dir(vfs, dir);
    for (uint64_t i = 0; i < rewrite->count && result == 0; i++) {
        uint64_t number = rewrite->first_number + i;
        result = temporary_path(from, dir, number);
        if (result == 0) {
            result = wal_segment_path(to, dir, number);
        }
        if (result == 0) {
            result = vfs->rename(vfs, from, to);
        }
    }
    return result < 0 ? result : vfs->sync_dir(vfs, dir);
}

/* After a failure before the step that counts: as if nothing had been. */
static void take_back(struct rewrite *rewrite)
{
    char path[WAL_PATH_BYTES];
    const char *dir = rewrite->repair->salvage.dir;
    const struct wal_vfs *vfs = rewrite->vfs;
    for (uint64_t i = 0; i < rewrite->count; i++) {
        if (wal_segment_path(path, dir, rewrite->first_number + i) == 0) {
            vfs->unlink(vfs, path);
        }
        if (temporary_path(path, dir, rewrite->first_number + i) == 0) {
            vfs->unlink(vfs, path);
        }
    }
    vfs->sync_dir(vfs, dir);
}

/* ---- the steps ---- */

static int unlink_if_there(const struct wal_vfs *vfs, const char *dir, const char *name)
{
    char path[WAL_PATH_BYTES];
    int result = wal_path(path, dir, name);
    if (result == 0) {
        result = vfs->unlink(vfs, path);
    }
    return result == -ENOENT ? 0 : result;
}

/* What a repair that was cut off has left. */
struct leftovers {
    const struct wal_vfs *vfs;
    const char *dir;
    char names[64][64];
    size_t count;
};

static int note_leftover(void *arg, const char *name)
{
    struct leftovers *leftovers = arg;
    size_t prefix = strlen(TEMPORARY_PREFIX);
    if (strncmp(name, TEMPORARY_PREFIX, prefix) == 0 && strlen(name) == prefix + 24 &&
        strcmp(name + prefix + 20, ".tmp") == 0 && leftovers->count < 64) {
        snprintf(leftovers->names[leftovers->count++], sizeof leftovers->names[0], "%s", name);
    }
    return 0;
}

static int remove_leftovers(const struct wal_vfs *vfs, const char *dir)
{
    struct leftovers leftovers;
    int result;
    do {
        leftovers.count = 0;
        result = vfs->list(vfs, dir, note_leftover, &leftovers);
        for (size_t i = 0; i < leftovers.count && result >= 0; i++) {
            result = unlink_if_there(vfs, dir, leftovers.names[i]);
        }
    } while (result >= 0 && leftovers.count == 64);
    return result < 0 ? result : 0;
}

static int remove_segment(const struct wal_salvage *salvage, uint64_t number)
{
    char path[WAL_PATH_BYTES];
    int result = wal_segment_path(path, salvage->dir, number);
    if (result == 0) {
        result = salvage->vfs->unlink(salvage->vfs, path);
    }
    return result == -ENOENT ? 0 : result;
}

/* Whose log it is is read from the first segment: another log's may not come first. */
static int remove_strangers(const struct wal_salvage *salvage)
{
    int result = 0;
    bool any = false;
    for (size_t i = 0; i < salvage->count && result == 0; i++) {
        if (salvage->sources[i].state == WAL_SOURCE_STRANGER) {
            result = remove_segment(salvage, salvage->sources[i].file_number);
            any = true;
        }
    }
    return any && result == 0 ? salvage->vfs->sync_dir(salvage->vfs, salvage->dir) : result;
}

/* The older slot, or both, one after the other: at no time is there none. */
static int write_cursor(const struct wal_salvage *salvage, const struct wal_cursor_slot *wanted,
                        int slots)
{
    struct wal_cursor cursor;
    struct wal_cursor_slot slot = *wanted;
    uint64_t generation = salvage->cursor_slots > 0 ? salvage->cursor.generation : 0;
    bool exists;
    struct wal_cursor_slot found;
    int result = wal_cursor_read(salvage->vfs, salvage->dir, &found, &exists);
    if (result > 0 && found.generation > generation) {
        generation = found.generation;
    }
    if (result >= 0) {
        result = wal_cursor_open(&cursor, salvage->vfs, salvage->dir, generation);
    }
    if (result < 0) {
        return result;
    }
    for (int i = 0; i < slots && result == 0; i++) {
        result = wal_cursor_write(&cursor, &slot);
        if (result == 0) {
            result = wal_cursor_sync(&cursor);
        }
    }
    wal_cursor_close(&cursor);
    return result;
}

/*
 * Before the new segments are there, the cursor must be one with which the step that counts is a
 * single write: with both slots whole, since by half a cursor neither writer nor reader goes for
 * sure; and not pointing behind the last segment, or wal_open would skip the damage as soon as the
 * first of the new ones has its name. What it says is done stays as it was; its place is but a
 * hint.
 */
static int make_cursor_whole(const struct wal_repair *repair)
{
    const struct wal_salvage *salvage = &repair->salvage;
    struct wal_cursor_slot slot = {.log_id = salvage->log_id};
    if (salvage->cursor_slots == 2 && salvage->cursor.number <= salvage->last_file_number) {
        return 0;
    }
    if (salvage->cursor_slots > 0) {
        slot = salvage->cursor;
    }
    if (repair->unsure.last > slot.lsn) {
        slot.lsn = repair->unsure.last;
        uint32_t kept = 0;
        for (uint32_t i = 0; i < slot.done_count; i++) {
            if (slot.done[i].last > slot.lsn) {
                slot.done[kept++] = slot.done[i];
            }
        }
        slot.done_count = kept;
    }
    slot.number = 0;
    slot.offset = 0;
    return write_cursor(salvage, &slot, 2);
}

static bool opens(const struct wal_salvage *salvage)
{
    struct wal_found found;
    int result = wal_recover(salvage->vfs, salvage->dir, NULL, &found, NULL);
    if (result == 0) {
        wal_found_free(&found);
    }
    return result == 0;
}

static int clean_up(const struct wal_salvage *salvage, bool segments)
{
    int result = unlink_if_there(salvage->vfs, salvage->dir, WAL_SHARED_NAME);
    for (size_t i = 0; segments && i < salvage->count && result == 0; i++) {
        result = remove_segment(salvage, salvage->sources[i].file_number);
    }
    return result < 0 ? result : salvage->vfs->sync_dir(salvage->vfs, salvage->dir);
}

static int rewrite_all(struct wal_repair *repair, struct wal_err *err)
{
    struct wal_salvage *salvage = &repair->salvage;
    struct rewrite rewrite = {.repair = repair, .vfs = salvage->vfs, .file = -1};
    uint64_t last = salvage->last_file_number;
    if (salvage->cursor_slots > 0 && salvage->cursor.number > last) {
        last = salvage->cursor.number;
    }
    rewrite.first_number = last + 1;
    int result = write_segments(&rewrite, err);
    if (result == 0) {
        result = make_cursor_whole(repair);
    }
    if (result == 0) {
        result = name_segments(&rewrite);
    }
    if (result < 0) {
        take_back(&rewrite);
    } else {
        repair->cursor.number = rewrite.first_number;
        repair->cursor.offset = WAL_HEADER_BYTES;
        repair->cursor.position = rewrite.position;
        result = write_cursor(salvage, &repair->cursor, 1);
    }
    if (result == 0) {
        result = clean_up(salvage, true);
    }
    if (result == 0) {
        /* Not before: with half a cursor the reader would start at the oldest segment there is. */
        result = write_cursor(salvage, &repair->cursor, 1);
    }
    free(rewrite.body);
    return result;
}

int wal_repair_apply(struct wal_repair *repair, struct wal_err *err)
{
    struct wal_salvage *salvage = &repair->salvage;
    wal_fail(err, 0, "%s", "");
    int result = remove_leftovers(salvage->vfs, salvage->dir);
    if (result == 0) {
        result = remove_strangers(salvage);
    }
    if (result == 0 && opens(salvage)) {
        /* The segments are well: only the end is missing, or there were some too many. */
        if (repair->lost.count > 0) {
            result = write_cursor(salvage, &repair->cursor, 2);
        }
        if (result == 0) {
            result = clean_up(salvage, false);
        }
    } else if (result == 0) {
        result = rewrite_all(repair, err);
    }
    if (result < 0) {
        return err->text[0] != '\0'
                   ? result
                   : wal_fail(err, result, "Cannot write the repaired log in %s: %s", salvage->dir,
                              strerror(-result));
    }
    struct wal_check check;
    result = wal_check_log(&check, salvage->vfs, salvage->dir, false, err);
    return result <= 0 ? result
                       : wal_fail(err, -EBADMSG, "The repaired log is damaged too: %.200s",
                                  check.text.text);
}

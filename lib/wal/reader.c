#include "wal/reader.h"

#include "wal/cursor.h"
#include "wal/internal.h"
#include "wal/ranges.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define READ_AHEAD_BYTES  (256u * 1024)
#define READ_LITTLE_BYTES (16u * 1024)

struct wal_reader {
    struct wal_reader_options options;
    const struct wal_vfs *vfs;
    char *dir;
    int lock;
    struct wal_shared *shared;
    int shared_file;
    unsigned char boot_id[16];
    bool attached;
    uint64_t log_id;
    uint64_t epoch;
    struct wal_cursor cursor;
    struct wal_cursor_slot slot; /* as written last */
    uint64_t synced_lsn;
    uint64_t cursor_syncs;
    int64_t last_sync_ns;
    struct wal_ranges ranges;
    struct wal_walk new;   /* towards records not delivered yet */
    struct wal_walk again; /* towards those handed back */
    /* Done before this reader was opened, and not reached yet: a part of slot.done. */
    struct wal_done_range *skip;
    uint32_t skip_count;
    uint64_t skip_records;
    bool hint_proven; /* the cursor's place led to a record */
    uint64_t next_position;
    int failed;
    struct wal_err problem;
    struct wal_err warning;
    /* Read by wal_reader_wait without the caller's lock. */
    _Atomic bool is_attached;
    _Atomic uint64_t next_lsn;
    _Atomic uint64_t returned;
    _Atomic bool woken;
    _Atomic int broken;
};

void wal_reader_options_init(struct wal_reader_options *options)
{
    *options = (struct wal_reader_options){
        .vfs = wal_vfs_posix(),
        .sealed_only = false,
        .cursor_sync_ns = 250000000,
    };
}

static int reader_break(struct wal_reader *reader, int code)
{
    reader->failed = code;
    atomic_store(&reader->broken, code);
    return code;
}

static uint64_t limit_lsn(const struct wal_reader *reader)
{
    return reader->options.sealed_only ? atomic_load(&reader->shared->sealed_lsn)
                                       : atomic_load(&reader->shared->durable_lsn);
}

static uint64_t low_water(const struct wal_reader *reader)
{
    return reader->ranges.count > 0 ? reader->ranges.list[0].first - 1
                                    : atomic_load(&reader->next_lsn) - 1;
}

/* What others may see of the reader's progress, in memory. */
static void publish_done(struct wal_reader *reader)
{
    struct wal_shared *shared = reader->shared;
    uint64_t low = low_water(reader);
    uint64_t ahead =
        atomic_load(&reader->next_lsn) - 1 - low - reader->ranges.records + reader->skip_records;
    atomic_store(&shared->done_ahead, ahead);
    atomic_store(&shared->done_lsn, low);
    atomic_store(&shared->done_position, reader->ranges.count > 0 ? reader->ranges.list[0].position
                                                                  : reader->next_position);
    atomic_store(&reader->returned, reader->ranges.returned);
}

static int cursor_failed(struct wal_reader *reader, int code)
{
    wal_fail(&reader->problem, code, "%s/" WAL_CURSOR_NAME ": %s; what is done is not remembered",
             reader->dir, strerror(-code));
    return reader_break(reader, -EIO);
}

static void add_done(struct wal_cursor_slot *slot, uint64_t first, uint64_t last)
{
    struct wal_done_range *before = slot->done_count > 0 ? &slot->done[slot->done_count - 1] : NULL;
    if (first > last) {
        return;
    }
    if (before != NULL && before->last + 1 == first) {
        before->last = last;
    } else if (slot->done_count < WAL_CURSOR_DONE_MAX) {
        /* More than fit will come again, no worse. */
        slot->done[slot->done_count++] = (struct wal_done_range){first, last};
    }
}

/* What is done beyond the low-water mark: the gaps between what is out, and what was so before. */
static void note_done(const struct wal_reader *reader, struct wal_cursor_slot *slot)
{
    const struct wal_ranges *ranges = &reader->ranges;
    slot->done_count = 0;
    for (size_t i = 0; i < ranges->count; i++) {
        uint64_t end =
            i + 1 < ranges->count ? ranges->list[i + 1].first : atomic_load(&reader->next_lsn);
        add_done(slot, ranges->list[i].last + 1, end - 1);
    }
    for (uint32_t i = 0; i < reader->skip_count; i++) {
        add_done(slot, reader->skip[i].first, reader->skip[i].last);
    }
}

static int cursor_note(struct wal_reader *reader)
{
    struct wal_cursor_slot *slot = &reader->slot;
    slot->log_id = reader->log_id;
    slot->lsn = low_water(reader);
    note_done(reader, slot);
    if (reader->ranges.count > 0) {
        slot->number = reader->ranges.list[0].number;
        slot->offset = reader->ranges.list[0].offset;
        slot->position = reader->ranges.list[0].position;
    } else if (reader->new.file >= 0) {
        slot->number = reader->new.header.number;
        slot->offset = reader->new.offset;
        slot->position = reader->next_position;
    }
    int result = wal_cursor_write(&reader->cursor, slot);
    return result < 0 ? cursor_failed(reader, result) : 0;
}

static int cursor_sync(struct wal_reader *reader)
{
    int result = wal_cursor_sync(&reader->cursor);
    if (result < 0) {
        return cursor_failed(reader, result);
    }
    reader->last_sync_ns = reader->vfs->now_ns(reader->vfs);
    reader->cursor_syncs++;
    reader->synced_lsn = reader->slot.lsn;
    /* Only now may the writer remove what it passed. */
    atomic_store(&reader->shared->synced_lsn, reader->synced_lsn);
    return 0;
}

/* The cursor's place is a hint; only the numbers count. */
static int find_new(struct wal_reader *reader, uint64_t *lsn)
{
    int result = wal_seek(&reader->new, lsn, &reader->problem);
    if (result == -EBADMSG && !reader->hint_proven) {
        reader->hint_proven = true;
        wal_seek_oldest(&reader->new);
        result = wal_seek(&reader->new, lsn, &reader->problem);
    }
    if (result == 1) {
        reader->hint_proven = true;
    }
    if (result == -EBADMSG) {
        return reader_break(reader, result);
    }
    return result;
}

/* Where a reader without a cursor starts. */
static int start_at_oldest(struct wal_reader *reader)
{
    uint64_t next = atomic_load(&reader->shared->durable_lsn) + 1;
    wal_seek_oldest(&reader->new);
    reader->hint_proven = true;
    int result = wal_seek_next_segment(&reader->new, &reader->problem);
    if (result < 0) {
        return result == -EBADMSG ? reader_break(reader, result) : result;
    }
    reader->next_position = atomic_load(&reader->shared->position);
    if (result == 1 && reader->new.batch.first_lsn < next) {
        next = reader->new.batch.first_lsn;
        reader->next_position = reader->new.batch.position;
    } else {
        wal_seek_oldest(&reader->new); /* it may be past where the first record will be */
    }
    atomic_store(&reader->next_lsn, next);
    return 0;
}

static int start_at_cursor(struct wal_reader *reader)
{
    const struct wal_cursor_slot *slot = &reader->slot;
    for (uint32_t i = 0; i < slot->done_count; i++) {
        reader->skip[i] = slot->done[i];
        reader->skip_records += slot->done[i].last - slot->done[i].first + 1;
    }
    reader->skip_count = slot->done_count;
    atomic_store(&reader->next_lsn, slot->lsn + 1);
    reader->next_position = slot->position;
    reader->hint_proven = false;
    int result = wal_walk_open(&reader->new, slot->number, NULL);
    if (result == 1 && slot->offset >= WAL_HEADER_BYTES &&
        slot->offset % reader->new.header.block_bytes == 0) {
        wal_walk_to(&reader->new, slot->offset);
        return 0;
    }
    wal_seek_oldest(&reader->new);
    return 0;
}

/* Does the log begin behind the record that comes after the cursor? 1, 0, negative errno. */
static int begins_later(struct wal_reader *reader, uint64_t lsn)
{
    wal_seek_oldest(&reader->new);
    int result = wal_seek_next_segment(&reader->new, &reader->problem);
    bool later = result == 1
                     ? reader->new.batch.first_lsn > lsn + 1 && reader->new.batch.durable_lsn > lsn
                     : atomic_load(&reader->shared->durable_lsn) > lsn;
    wal_seek_oldest(&reader->new);
    if (result < 0) {
        return result == -EBADMSG ? reader_break(reader, result) : result;
    }
    return later;
}

static int first_attach(struct wal_reader *reader)
{
    bool exists = false;
    struct wal_cursor_slot slot = {0};
    int result = wal_cursor_read(reader->vfs, reader->dir, &slot, &exists);
    if (result < 0) {
        return cursor_failed(reader, result);
    }
    bool valid = result > 0;
    bool whole = result == 2;
    uint64_t generation = valid ? slot.generation : 0;
    if (!whole) {
        /* The writer must not go by what a lost slot said, while this one looks for the oldest. */
        atomic_store(&reader->shared->synced_lsn, 0);
    }
    const char *why = !valid && exists ? "is damaged" : NULL;
    if (valid && slot.log_id != reader->log_id) {
        why = "is of another log";
    } else if (valid && wal_cursor_reach(&slot) > atomic_load(&reader->shared->durable_lsn)) {
        why = "is ahead of the log";
    } else if (valid && !whole) {
        result = begins_later(reader, slot.lsn);
        if (result < 0) {
            return result;
        }
        why = result == 1 ? "has lost its newer half" : NULL;
    }
    if (why != NULL) {
        wal_fail(&reader->warning, 0,
                 "%s/" WAL_CURSOR_NAME " %s: starting at the oldest record there is", reader->dir,
                 why);
    }
    result = wal_cursor_open(&reader->cursor, reader->vfs, reader->dir, generation);
    if (result < 0) {
        return cursor_failed(reader, result);
    }
    if (valid && why == NULL) {
        reader->slot = slot;
    }
    result = valid && why == NULL ? start_at_cursor(reader) : start_at_oldest(reader);
    if (result == 0) {
        result = cursor_note(reader);
    }
    if (result == 0) {
        result = cursor_sync(reader);
    }
    if (result < 0) {
        wal_cursor_close(&reader->cursor);
        return result;
    }
    reader->attached = true;
    atomic_store(&reader->is_attached, true);
    return 0;
}

/* 1: the writer has published, and this reader with it; 0: not yet. */
static int attach(struct wal_reader *reader)
{
    struct wal_shared *shared = reader->shared;
    uint64_t epoch = atomic_load(&shared->epoch);
    if (!wal_shared_current(shared, reader->boot_id)) {
        return 0;
    }
    if (reader->attached && epoch == reader->epoch) {
        return 1;
    }
    uint64_t log_id = atomic_load(&shared->log_id);
    if (!reader->attached) {
        reader->log_id = log_id;
        int result = first_attach(reader);
        if (result < 0) {
            return result;
        }
    } else if (log_id != reader->log_id) {
        wal_fail(&reader->problem, -ESTALE, "%s: another log has taken the place of this one",
                 reader->dir);
        return reader_break(reader, -ESTALE);
    }
    reader->epoch = epoch;
    atomic_store(&shared->synced_lsn, reader->synced_lsn);
    publish_done(reader);
    return 1;
}

static void set_up_record(struct wal_walk *walk, uint64_t lsn, struct wal_record *record)
{
    const unsigned char *bytes;
    uint32_t length;
    wal_walk_record(walk, lsn, &bytes, &length);
    record->lsn = lsn;
    record->bytes = bytes;
    record->count = length;
}

static int deliver_again(struct wal_reader *reader, struct wal_range *range,
                         struct wal_record *record)
{
    struct wal_walk *walk = &reader->again;
    uint64_t lsn = range->first;
    bool near = walk->file >= 0 && walk->loaded && walk->batch.first_lsn <= lsn &&
                walk->header.number >= range->number;
    if (!near) {
        int result = wal_walk_open(walk, range->number, &reader->problem);
        if (result == 1) {
            wal_walk_to(walk, range->offset);
        } else if (result == 0 || result == -ENOENT) {
            wal_seek_oldest(walk); /* the record itself is in a later one */
        } else {
            return result == -EBADMSG ? reader_break(reader, result) : result;
        }
    }
    int result = wal_seek(walk, &lsn, &reader->problem);
    if (result == -EBADMSG) {
        return reader_break(reader, result);
    }
    if (result < 0) {
        return result;
    }
    result = wal_ranges_take(&reader->ranges, range);
    if (result < 0) {
        return result;
    }
    set_up_record(walk, lsn, record);
    record->again = true;
    atomic_store(&reader->returned, reader->ranges.returned);
    return 1;
}

/* The first number from lsn on that is not known to be done. */
static uint64_t skip_done(struct wal_reader *reader, uint64_t lsn)
{
    while (reader->skip_count > 0 && reader->skip[0].first <= lsn) {
        struct wal_done_range range = reader->skip[0];
        if (range.last >= lsn) {
            lsn = range.last + 1;
        }
        reader->skip_records -= range.last - range.first + 1;
        reader->skip_count--;
        memmove(reader->skip, reader->skip + 1, reader->skip_count * sizeof *reader->skip);
    }
    return lsn;
}

static int deliver_new(struct wal_reader *reader, uint64_t limit, struct wal_record *record)
{
    struct wal_walk *walk = &reader->new;
    uint64_t lsn = skip_done(reader, atomic_load(&reader->next_lsn));
    atomic_store(&reader->next_lsn, lsn);
    if (lsn > limit) {
        return 0;
    }
    walk->read_bytes = limit - lsn > 16 ? READ_AHEAD_BYTES : READ_LITTLE_BYTES;
    int result = find_new(reader, &lsn);
    if (result < 0) {
        return result;
    }
    if (lsn > limit) {
        atomic_store(&reader->next_lsn, lsn);
        return 0;
    }
    set_up_record(walk, lsn, record);
    record->again = false;
    struct wal_range range = {
        .first = lsn,
        .last = lsn,
        .number = walk->header.number,
        .offset = walk->offset,
        .position = walk->batch.position + walk->record_offset,
    };
    result = wal_ranges_push(&reader->ranges, &range);
    if (result < 0) {
        return result;
    }
    reader->next_position = range.position + WAL_RECORD_HEADER_BYTES + record->count;
    atomic_store(&reader->next_lsn, lsn + 1);
    return 1;
}

int64_t wal_reader_flush_due_ns(const struct wal_reader *reader)
{
    if (!reader->attached || reader->failed != 0 || !reader->cursor.dirty) {
        return -1;
    }
    int64_t left_ns =
        reader->last_sync_ns + reader->options.cursor_sync_ns - reader->vfs->now_ns(reader->vfs);
    return left_ns < 0 ? 0 : left_ns;
}

int wal_reader_next(struct wal_reader *reader, struct wal_record *record)
{
    if (reader->failed != 0) {
        return reader->failed;
    }
    int result = attach(reader);
    if (result <= 0) {
        return result;
    }
    struct wal_range *range = wal_ranges_returned(&reader->ranges);
    if (range != NULL) {
        return deliver_again(reader, range, record);
    }
    uint64_t limit = limit_lsn(reader);
    if (atomic_load(&reader->next_lsn) <= limit) {
        result = deliver_new(reader, limit, record);
        if (result != 0) {
            return result;
        }
    }
    if (wal_reader_flush_due_ns(reader) == 0) {
        result = cursor_sync(reader);
    }
    return result < 0 ? result : 0;
}

static uint64_t available(const struct wal_reader *reader)
{
    if (!wal_shared_current(reader->shared, reader->boot_id)) {
        return 0;
    }
    if (!atomic_load(&reader->is_attached)) {
        return 1; /* wal_reader_next will tell */
    }
    uint64_t limit = limit_lsn(reader);
    uint64_t next = atomic_load(&reader->next_lsn);
    return (limit >= next ? limit - next + 1 : 0) + atomic_load(&reader->returned);
}

static int removed(struct wal_reader *reader)
{
    struct wal_file_status status;
    int result = reader->vfs->status(reader->vfs, reader->shared_file, &status);
    if (result == 0 && status.links == 0) {
        return -ENOENT;
    }
    return result;
}

int wal_reader_wait(struct wal_reader *reader, unsigned count, int wait_ms)
{
    struct wal_shared *shared = reader->shared;
    int64_t end_ns = reader->vfs->now_ns(reader->vfs) + (int64_t)wait_ms * 1000000;
    count = count == 0 ? 1 : count;
    for (;;) {
        uint32_t wake = atomic_load(&shared->wake);
        uint64_t next = atomic_load(&reader->next_lsn);
        bool attached = atomic_load(&reader->is_attached);
        atomic_store(&shared->wanted_lsn, attached ? next + count - 1 : 1);
        uint64_t had = available(reader);
        int64_t left_ns = end_ns - reader->vfs->now_ns(reader->vfs);
        int broken = atomic_load(&reader->broken);
        if (broken != 0 || had >= count || left_ns <= 0 || (had > 0 && !attached) ||
            atomic_exchange(&reader->woken, false)) {
            atomic_store(&shared->wanted_lsn, 0);
            if (broken != 0) {
                return broken;
            }
            return (int)(had < count ? had : count);
        }
        int result = reader->vfs->wait(reader->vfs, (uint32_t *)&shared->wake, wake, left_ns);
        atomic_store(&shared->wanted_lsn, 0);
        if (result == -ETIMEDOUT) {
            result = removed(reader);
            if (result < 0) {
                return result;
            }
        } else if (result < 0 && result != -EAGAIN && result != -EINTR) {
            return result;
        }
    }
}

void wal_reader_wake(struct wal_reader *reader)
{
    atomic_store(&reader->woken, true);
    atomic_fetch_add(&reader->shared->wake, 1);
    reader->vfs->wake(reader->vfs, (uint32_t *)&reader->shared->wake);
}

int wal_reader_done(struct wal_reader *reader, uint64_t first, uint64_t last)
{
    if (reader->failed != 0) {
        return reader->failed;
    }
    if (first > last || !reader->attached) {
        return -EINVAL;
    }
    int result = wal_ranges_change(&reader->ranges, first, last, WAL_RANGE_DONE);
    if (result == 0) {
        result = cursor_note(reader);
    }
    if (result < 0) {
        return result;
    }
    publish_done(reader);
    return wal_reader_flush_due_ns(reader) == 0 ? cursor_sync(reader) : 0;
}

int wal_reader_release(struct wal_reader *reader, uint64_t first, uint64_t last)
{
    if (first > last) {
        return -EINVAL;
    }
    int result = wal_ranges_change(&reader->ranges, first, last, WAL_RANGE_RETURNED);
    if (result < 0) {
        return result;
    }
    atomic_store(&reader->returned, reader->ranges.returned);
    wal_reader_wake(reader);
    return 0;
}

int wal_reader_flush(struct wal_reader *reader)
{
    if (reader->failed != 0) {
        return reader->failed;
    }
    return reader->attached && reader->cursor.dirty ? cursor_sync(reader) : 0;
}

void wal_reader_stats(const struct wal_reader *reader, struct wal_reader_stats *stats)
{
    memset(stats, 0, sizeof *stats);
    stats->next_lsn = atomic_load(&reader->next_lsn);
    stats->done_lsn = reader->attached ? low_water(reader) : 0;
    stats->out = reader->ranges.records;
    stats->synced_lsn = reader->synced_lsn;
    stats->cursor_syncs = reader->cursor_syncs;
    memcpy(stats->warning, reader->warning.text, sizeof stats->warning);
}

const char *wal_reader_problem(const struct wal_reader *reader)
{
    return reader->problem.text;
}

static void reader_free(struct wal_reader *reader)
{
    wal_walk_free(&reader->new);
    wal_walk_free(&reader->again);
    wal_ranges_free(&reader->ranges);
    wal_cursor_close(&reader->cursor);
    wal_shared_close(reader->vfs, reader->shared, reader->shared_file);
    if (reader->lock >= 0) {
        reader->vfs->close(reader->vfs, reader->lock);
    }
    free(reader->skip);
    free(reader->dir);
    free(reader);
}

int wal_reader_open(const char *dir, const struct wal_reader_options *options,
                    struct wal_reader **opened, struct wal_err *err)
{
    struct wal_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) {
        return wal_fail(err, -ENOMEM, "Out of memory");
    }
    if (options != NULL) {
        reader->options = *options;
    } else {
        wal_reader_options_init(&reader->options);
    }
    reader->vfs = reader->options.vfs;
    reader->lock = reader->shared_file = -1;
    reader->cursor = (struct wal_cursor){.vfs = reader->vfs, .file = -1};
    reader->dir = strdup(dir);
    reader->skip = calloc(WAL_CURSOR_DONE_MAX, sizeof *reader->skip);
    wal_walk_init(&reader->new, reader->vfs, reader->dir);
    wal_walk_init(&reader->again, reader->vfs, reader->dir);
    reader->again.read_bytes = READ_LITTLE_BYTES;
    int result =
        reader->dir == NULL || reader->skip == NULL ? wal_fail(err, -ENOMEM, "Out of memory") : 0;
    if (result == 0) {
        result = reader->vfs->boot_id(reader->vfs, reader->boot_id);
        if (result < 0) {
            wal_fail(err, result, "Cannot read the boot's id: %s", strerror(-result));
        }
    }
    if (result == 0) {
        result = wal_make_dir(reader->vfs, dir, err);
    }
    if (result == 0) {
        reader->lock = wal_lock_open(reader->vfs, dir, WAL_READER_LOCK_NAME, "reader", err);
        result = reader->lock < 0 ? reader->lock : 0;
    }
    if (result == 0) {
        result =
            wal_shared_open(reader->vfs, dir, true, &reader->shared, &reader->shared_file, err);
    }
    if (result < 0) {
        reader_free(reader);
        return result;
    }
    atomic_store(&reader->shared->wanted_lsn, 0); /* the last one may have died asleep */
    *opened = reader;
    return 0;
}

int wal_reader_close(struct wal_reader *reader)
{
    int result = wal_reader_flush(reader);
    atomic_store(&reader->shared->wanted_lsn, 0);
    reader_free(reader);
    return result;
}

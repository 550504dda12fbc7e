/*
 * Making a damaged log one that wal_open accepts: of what could still be read nothing is dropped,
 * and what is lost is named.
 *
 * How, so that a power cut at any time leaves the damaged log as it was or the repaired one:
 *   1. The records that are left are written anew, under their own numbers, to segments behind all
 *      others, under names that mean nothing; then these are renamed. As long as the damage is
 *      before them, wal_open still stops there.
 *   2. The cursor is pointed at the first of them. It is one slot of the two, whole or not there:
 *      this is the step that counts. Segments before the cursor's are neither read nor missed.
 *   3. The old segments are removed, and the shared page, which remembers more than is left.
 * Lost numbers are noted in the cursor as done: they are never given to another record.
 *
 * Threads: a struct wal_repair belongs to one at a time. The caller holds writer.lock and
 * reader.lock during wal_repair_apply, and has made a copy of the folder.
 */
#ifndef WAL_TOOL_REPAIR_H
#define WAL_TOOL_REPAIR_H

#include "wal/tool/check.h"
#include "wal/tool/salvage.h"

struct wal_repair_ranges {
    struct wal_done_range *list; /* ascending, apart from each other */
    size_t count;
    size_t capacity;
};

struct wal_repair {
    struct wal_check check; /* what is wrong */
    struct wal_salvage salvage;
    struct wal_repair_ranges kept; /* records that stay, by number, and are not done */
    struct wal_repair_ranges lost; /* were durable, are not done, are nowhere */
    uint64_t kept_records;
    uint64_t lost_records;
    uint64_t kept_bytes; /* what the new segments take */
    /* Before the oldest record, with a cursor that is damaged or missing: lost, or done and removed
     * long ago; nobody can tell. 0: none. */
    struct wal_done_range unsure;
    struct wal_cursor_slot cursor; /* as it will be */
    uint64_t segment_bytes;
    uint64_t batch_bytes; /* of the longest batch */
};

/*
 * Reads the log, writes nothing. 1: damaged, the plan is made; 0: there is nothing to repair;
 * negative as wal_check_log and wal_salvage_open say, and
 *   -ENOMSG  not one segment has a header that tells which log this is
 * Call wal_repair_free whatever it returns.
 */
int wal_repair_plan(struct wal_repair *repair, const struct wal_vfs *vfs, const char *dir,
                    struct wal_err *err);

/* Does it. 0: wal_open accepts the log now; negative: what the file system said. err has a
 * sentence. After a failure it may be tried again, from wal_repair_plan on. */
int wal_repair_apply(struct wal_repair *repair, struct wal_err *err);

void wal_repair_free(struct wal_repair *repair);

#endif

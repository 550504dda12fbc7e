#include "wal/tool/check.h"

#include <errno.h>
#include <string.h>

#define LOOKS_MAX 8

const char *wal_damage_word(const struct wal_damage *damage)
{
    switch (damage->kind) {
    case WAL_DAMAGE_NONE:
        return "none";
    case WAL_DAMAGE_GAP:
        return "records-missing";
    case WAL_DAMAGE_HEADER:
        return "segment-header";
    case WAL_DAMAGE_NUMBER:
        return "segment-of-another-number";
    case WAL_DAMAGE_STRANGER:
        return "segment-of-another-log";
    case WAL_DAMAGE_SHORT:
        return "end-missing";
    case WAL_DAMAGE_BATCH:
        break;
    }
    switch (damage->place) {
    case WAL_PLACE_ZERO:
        return "batch-zero";
    case WAL_PLACE_HEADER:
        return "batch-header";
    case WAL_PLACE_BODY:
        return "batch-body";
    case WAL_PLACE_ORDER:
        return "batch-order";
    case WAL_PLACE_VALID:
        break;
    }
    return "unknown";
}

int wal_check_shared(const struct wal_vfs *vfs, const char *dir, struct wal_shared **shared,
                     int *file, struct wal_err *err)
{
    unsigned char boot_id[16];
    *shared = NULL;
    *file = -1;
    int result = wal_shared_open(vfs, dir, false, shared, file, err);
    if (result == -ENOENT || result == -ENODATA) {
        return 0;
    }
    if (result < 0) {
        return result;
    }
    result = vfs->boot_id(vfs, boot_id);
    if (result < 0 || !wal_shared_current(*shared, boot_id)) {
        wal_shared_close(vfs, *shared, *file);
        *shared = NULL;
        *file = -1;
    }
    return result < 0 ? wal_fail(err, result, "Cannot read the boot's id: %s", strerror(-result))
                      : 0;
}

static int is_a_log(const struct wal_vfs *vfs, const char *dir, struct wal_err *err)
{
    struct wal_numbers numbers = {0};
    struct wal_cursor_slot slot;
    bool exists;
    int result = wal_list_segments(vfs, dir, &numbers);
    size_t count = numbers.count;
    wal_numbers_free(&numbers);
    if (result < 0) {
        return wal_fail(err, result, "Cannot list the folder %s: %s", dir, strerror(-result));
    }
    if (count == 0 && wal_cursor_read(vfs, dir, &slot, &exists) == 0) {
        return wal_fail(err, -ENODATA, "%s holds no log: there is no segment in it, and no cursor",
                        dir);
    }
    return 0;
}

static int look(struct wal_check *check, const struct wal_vfs *vfs, const char *dir,
                const struct wal_shared *shared, struct wal_err *err)
{
    struct wal_found found;
    memset(check, 0, sizeof *check);
    int result = wal_recover(vfs, dir, shared, &found, &check->text);
    if (result == -EBADMSG) {
        check->damage = found.damage;
        return 1;
    }
    if (result < 0) {
        *err = check->text;
        return result;
    }
    check->text.text[0] = '\0';
    check->warning = found.warning;
    check->segments = found.count;
    check->first_lsn = found.first_lsn;
    check->last_lsn = found.last_lsn;
    check->torn_bytes = found.torn_bytes;
    wal_found_free(&found);
    return 0;
}

/* While the log is written, a place can look bad: a batch half written, a segment recycled between
 * two reads. None of that looks the same twice; damage does. */
static int look_again(struct wal_check *check, const struct wal_vfs *vfs, const char *dir,
                      struct wal_err *err)
{
    struct wal_damage before = {.kind = WAL_DAMAGE_NONE};
    for (int i = 0; i < LOOKS_MAX; i++) {
        int result = look(check, vfs, dir, NULL, err);
        if (result == 0 || (result < 0 && result != -ENOENT)) {
            return result;
        }
        if (result == 1 && before.kind == check->damage.kind &&
            before.number == check->damage.number && before.offset == check->damage.offset) {
            return 1;
        }
        before = result == 1 ? check->damage : before;
    }
    return wal_fail(err, -EAGAIN,
                    "%s changes faster than it can be read; stop the writer, or try "
                    "again",
                    dir);
}

int wal_check_log(struct wal_check *check, const struct wal_vfs *vfs, const char *dir, bool live,
                  struct wal_err *err)
{
    struct wal_shared *shared = NULL;
    int file = -1;
    int result = is_a_log(vfs, dir, err);
    if (result == 0) {
        result = wal_check_shared(vfs, dir, &shared, &file, err);
    }
    if (result < 0) {
        return result;
    }
    if (!live) {
        result = look(check, vfs, dir, shared, err);
    } else {
        uint64_t durable = shared != NULL ? atomic_load(&shared->durable_lsn) : 0;
        result = look_again(check, vfs, dir, err);
        if (result == 0 && check->last_lsn != 0 && shared != NULL && check->last_lsn < durable &&
            atomic_load(&shared->opened_lsn) < durable) {
            check->damage = (struct wal_damage){
                .kind = WAL_DAMAGE_SHORT, .first_lsn = check->last_lsn + 1, .last_lsn = durable};
            wal_fail(&check->text, 0,
                     "%s: the log ends at record %llu, but records up to %llu were durable (the "
                     "file " WAL_SHARED_NAME " in it says so)",
                     dir, (unsigned long long)check->last_lsn, (unsigned long long)durable);
            result = 1;
        }
    }
    wal_shared_close(vfs, shared, file);
    return result;
}

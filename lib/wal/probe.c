#include "wal/probe.h"

#include "wal/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct wal_probe {
    const struct wal_vfs *vfs;
    char *dir;
    struct wal_shared *shared;
    int shared_file;
};

int wal_probe_open(const char *dir, const struct wal_vfs *vfs, struct wal_probe **opened,
                   struct wal_err *err)
{
    struct wal_probe *probe = calloc(1, sizeof *probe);
    char *copy = strdup(dir);
    if (probe == NULL || copy == NULL) {
        free(probe);
        free(copy);
        return wal_fail(err, -ENOMEM, "Out of memory");
    }
    probe->vfs = vfs != NULL ? vfs : wal_vfs_posix();
    probe->dir = copy;
    probe->shared_file = -1;
    *opened = probe;
    return 0;
}

static void unmap(struct wal_probe *probe)
{
    wal_shared_close(probe->vfs, probe->shared, probe->shared_file);
    probe->shared = NULL;
    probe->shared_file = -1;
}

static int scan(struct wal_probe *probe, struct wal_probe_stats *stats, struct wal_err *err)
{
    struct wal_found found;
    int result = wal_recover(probe->vfs, probe->dir, NULL, &found, err);
    if (result < 0) {
        return result;
    }
    stats->scanned = true;
    stats->durable_lsn = found.floor_lsn;
    stats->done_lsn = found.has_cursor      ? found.cursor.lsn
                      : found.first_lsn > 0 ? found.first_lsn - 1
                                            : found.floor_lsn;
    if (stats->done_lsn > stats->durable_lsn) {
        stats->durable_lsn = stats->done_lsn;
    }
    if (found.has_cursor && wal_cursor_reach(&found.cursor) > stats->durable_lsn) {
        stats->durable_lsn = wal_cursor_reach(&found.cursor); /* as wal_open does */
    }
    stats->lag_records = stats->durable_lsn - stats->done_lsn;
    for (uint32_t i = 0; found.has_cursor && i < found.cursor.done_count; i++) {
        stats->lag_records -= found.cursor.done[i].last - found.cursor.done[i].first + 1;
    }
    uint64_t position = found.has_cursor ? found.cursor.position : found.first_position;
    stats->lag_bytes =
        stats->lag_records == 0 || found.position < position ? 0 : found.position - position;
    for (size_t i = 0; i < found.count; i++) {
        stats->segments++;
        stats->allocated_bytes += found.segments[i].size;
    }
    wal_found_free(&found);
    return 0;
}

static void look(const struct wal_shared *shared, struct wal_probe_stats *stats)
{
    /* In this order: what is done was durable before, so the difference is never negative. */
    uint64_t ahead = atomic_load(&shared->done_ahead);
    uint64_t done_position = atomic_load(&shared->done_position);
    stats->done_lsn = atomic_load(&shared->done_lsn);
    stats->synced_lsn = atomic_load(&shared->synced_lsn);
    stats->durable_lsn = atomic_load(&shared->durable_lsn);
    uint64_t position = atomic_load(&shared->position);
    stats->lag_records =
        stats->durable_lsn > stats->done_lsn ? stats->durable_lsn - stats->done_lsn : 0;
    stats->lag_records = stats->lag_records > ahead ? stats->lag_records - ahead : 0;
    stats->lag_bytes =
        stats->lag_records > 0 && position > done_position ? position - done_position : 0;
    stats->segments = atomic_load(&shared->segments);
    stats->allocated_bytes = atomic_load(&shared->allocated_bytes);
    stats->flushes = atomic_load(&shared->flushes);
    stats->rotations = atomic_load(&shared->rotations);
    stats->failed = (int)atomic_load(&shared->failed);
}

/* A log that was copied or repaired has no shared file until it is opened. */
static bool has_segments(const struct wal_probe *probe)
{
    struct wal_numbers numbers = {0};
    bool any = wal_list_segments(probe->vfs, probe->dir, &numbers) == 0 && numbers.count > 0;
    wal_numbers_free(&numbers);
    return any;
}

/* Maps the shared file if there is one; *current: a writer keeps it up to date (this boot's). */
static int attach(struct wal_probe *probe, bool *current, struct wal_err *err)
{
    struct wal_file_status status;
    unsigned char boot_id[16];
    *current = false;
    if (probe->shared != NULL &&
        (probe->vfs->status(probe->vfs, probe->shared_file, &status) < 0 || status.links == 0)) {
        unmap(probe); /* the folder has been replaced */
    }
    if (probe->shared == NULL) {
        int result = wal_shared_open(probe->vfs, probe->dir, false, &probe->shared,
                                     &probe->shared_file, err);
        if (result < 0 && result != -ENODATA && !(result == -ENOENT && has_segments(probe))) {
            return result;
        }
    }
    int result = probe->vfs->boot_id(probe->vfs, boot_id);
    if (result < 0) {
        return wal_fail(err, result, "Cannot read the boot's id: %s", strerror(-result));
    }
    *current = probe->shared != NULL && wal_shared_current(probe->shared, boot_id);
    return 0;
}

bool wal_probe_cheap(struct wal_probe *probe)
{
    bool current;
    return attach(probe, &current, NULL) < 0 || current;
}

int wal_probe_read(struct wal_probe *probe, struct wal_probe_stats *stats, struct wal_err *err)
{
    bool current;
    memset(stats, 0, sizeof *stats);
    int result = attach(probe, &current, err);
    if (result < 0) {
        return result;
    }
    if (!current) {
        return scan(probe, stats, err);
    }
    look(probe->shared, stats);
    return 0;
}

void wal_probe_close(struct wal_probe *probe)
{
    unmap(probe);
    free(probe->dir);
    free(probe);
}

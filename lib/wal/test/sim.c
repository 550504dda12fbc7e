#include "sim.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t sim_random(struct sim *sim, uint64_t below)
{
    sim->random += 0x9E3779B97F4A7C15u;
    uint64_t z = sim->random;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return below == 0 ? z : z % below;
}

static struct sim *of(const struct wal_vfs *vfs)
{
    return vfs->context;
}

/* Every call passes here. 0: go on; negative: fail like this. */
static int enter(struct sim *sim, unsigned call)
{
    sim->calls++;
    if (sim->dead) {
        return -EIO;
    }
    if (sim->cut_after > 0 && --sim->cut_after == 0) {
        sim->dead = true;
        return -EIO;
    }
    if ((sim->fail_calls & call) != 0) {
        if (sim->fail_after > 0) {
            sim->fail_after--;
        } else if (sim->fail_count > 0) {
            sim->fail_count--;
            return sim->fail_code;
        }
    }
    return 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

int sim_name_get(const struct sim_name *names, const char *name)
{
    for (int i = 0; i < SIM_NAMES; i++) {
        if (names[i].file >= 0 && strcmp(names[i].name, name) == 0) {
            return names[i].file;
        }
    }
    return -1;
}

void sim_name_set(struct sim_name *names, const char *name, int file)
{
    for (int i = 0; i < SIM_NAMES; i++) {
        if (names[i].file >= 0 && strcmp(names[i].name, name) == 0) {
            names[i].file = file;
            return;
        }
    }
    for (int i = 0; i < SIM_NAMES && file >= 0; i++) {
        if (names[i].file < 0) {
            snprintf(names[i].name, sizeof names[i].name, "%s", name);
            names[i].file = file;
            return;
        }
    }
    assert(file < 0);
}

static void apply(struct sim_name *names, const struct sim_change *change)
{
    if (change->from[0] != '\0') {
        sim_name_set(names, change->from, -1);
    }
    if (change->to[0] != '\0') {
        sim_name_set(names, change->to, change->file);
    }
}

static void change_add(struct sim *sim, const char *from, const char *to, int file)
{
    assert(sim->change_count < SIM_CHANGES);
    struct sim_change *change = &sim->changes[sim->change_count++];
    snprintf(change->from, sizeof change->from, "%s", from);
    snprintf(change->to, sizeof change->to, "%s", to);
    change->file = file;
    apply(sim->names, change);
}

static void reserve(struct sim_file *file, size_t size)
{
    if (size <= file->capacity) {
        return;
    }
    size_t capacity = (size + 65535) / 65536 * 65536;
    file->cache = realloc(file->cache, capacity);
    file->disk = realloc(file->disk, capacity);
    file->dirty = realloc(file->dirty, capacity / SIM_SECTOR * sizeof *file->dirty);
    assert(file->cache != NULL && file->disk != NULL && file->dirty != NULL);
    memset(file->cache + file->capacity, 0, capacity - file->capacity);
    memset(file->disk + file->capacity, 0, capacity - file->capacity);
    for (size_t i = file->capacity / SIM_SECTOR; i < capacity / SIM_SECTOR; i++) {
        file->dirty[i] = false;
    }
    file->capacity = capacity;
}

static uint64_t used_bytes(const struct sim *sim)
{
    uint64_t sum = 0;
    for (int i = 0; i < SIM_FILES; i++) {
        sum += sim->files[i].used ? sim->files[i].size : 0;
    }
    return sum;
}

static bool has_room(const struct sim *sim, uint64_t more)
{
    return sim->room_bytes == 0 || used_bytes(sim) + more <= sim->room_bytes;
}

static void file_drop(struct sim_file *file)
{
    free(file->cache);
    free(file->disk);
    free(file->dirty);
    free(file->memory);
    memset(file, 0, sizeof *file);
}

/* Files without a name (in the cache or on the disk) and without a handle are gone. */
void sim_collect(struct sim *sim)
{
    for (int i = 0; i < SIM_FILES; i++) {
        struct sim_file *file = &sim->files[i];
        bool alive = false;
        if (!file->used) {
            continue;
        }
        file->links = 0;
        for (int n = 0; n < SIM_NAMES; n++) {
            file->links += sim->names[n].file == i;
            alive = alive || sim->names[n].file == i || sim->disk_names[n].file == i;
        }
        for (unsigned n = 0; n < sim->change_count; n++) {
            alive = alive || sim->changes[n].file == i;
        }
        for (int n = 0; n < SIM_HANDLES; n++) {
            alive = alive || sim->handles[n].file == i;
        }
        if (file->used && !alive) {
            file_drop(file);
        }
    }
}

void sim_set_size(struct sim_file *file, size_t size)
{
    reserve(file, size);
    if (size < file->size) {
        memset(file->cache + size, 0, file->size - size);
        for (size_t s = size / SIM_SECTOR; s * SIM_SECTOR < file->size; s++) {
            file->dirty[s] = true;
        }
    }
    file->size = size;
}

static int sim_open(const struct wal_vfs *vfs, const char *path, unsigned flags)
{
    struct sim *sim = of(vfs);
    const char *name = base_name(path);
    int result = enter(sim, SIM_OPEN);
    if (result < 0) {
        return result;
    }
    int file = sim_name_get(sim->names, name);
    if (file < 0) {
        if ((flags & WAL_OPEN_CREATE) == 0) {
            return -ENOENT;
        }
        for (file = 0; file < SIM_FILES && sim->files[file].used; file++) {
        }
        assert(file < SIM_FILES);
        sim->files[file].used = true;
        change_add(sim, "", name, file);
    }
    if (flags & WAL_OPEN_TRUNCATE) {
        sim_set_size(&sim->files[file], 0);
    }
    for (int handle = 0; handle < SIM_HANDLES; handle++) {
        if (sim->handles[handle].file < 0) {
            sim->handles[handle].file = file;
            sim->handles[handle].write = (flags & WAL_OPEN_WRITE) != 0;
            sim->handles[handle].lock = false;
            sim_collect(sim);
            return handle;
        }
    }
    return -EMFILE;
}

static int sim_close(const struct wal_vfs *vfs, int handle)
{
    struct sim *sim = of(vfs);
    if (sim->handles[handle].lock) {
        sim->files[sim->handles[handle].file].locked = false;
    }
    sim->handles[handle].file = -1;
    sim_collect(sim);
    return 0;
}

static struct sim_file *file_of(struct sim *sim, int handle)
{
    assert(handle >= 0 && handle < SIM_HANDLES && sim->handles[handle].file >= 0);
    return &sim->files[sim->handles[handle].file];
}

static int sim_status(const struct wal_vfs *vfs, int handle, struct wal_file_status *status)
{
    struct sim *sim = of(vfs);
    int result = enter(sim, 0);
    struct sim_file *file = file_of(sim, handle);
    status->size = file->size;
    status->links = file->links;
    return result;
}

static ssize_t sim_pread(const struct wal_vfs *vfs, int handle, void *bytes, size_t count,
                         uint64_t offset)
{
    struct sim *sim = of(vfs);
    int result = enter(sim, SIM_READ);
    struct sim_file *file = file_of(sim, handle);
    if (result < 0) {
        return result;
    }
    if (offset >= file->size) {
        return 0;
    }
    size_t left = file->size - (size_t)offset;
    count = count < left ? count : left;
    if (sim->short_writes && sim_random(sim, 8) == 0) {
        return -EINTR;
    }
    if (sim->short_writes && count > 1 && sim_random(sim, 4) == 0) {
        count = 1 + (size_t)sim_random(sim, count);
    }
    memcpy(bytes, file->cache + offset, count);
    return (ssize_t)count;
}

static void persist(struct sim_file *file, size_t sector, size_t from, size_t to)
{
    size_t at = sector * SIM_SECTOR;
    memcpy(file->disk + at + from, file->cache + at + from, to - from);
}

/* The kernel's own flusher: some of what is dirty, before anybody asks for it. */
static void write_back(struct sim *sim, struct sim_file *file)
{
    for (size_t s = 0; s * SIM_SECTOR < file->capacity; s++) {
        if (file->dirty[s] && sim_random(sim, 2) == 0) {
            persist(file, s, 0, SIM_SECTOR);
        }
    }
}

static void cache_write(struct sim_file *file, const void *bytes, size_t count, size_t offset)
{
    reserve(file, offset + count);
    memcpy(file->cache + offset, bytes, count);
    for (size_t s = offset / SIM_SECTOR; count > 0 && s * SIM_SECTOR < offset + count; s++) {
        file->dirty[s] = true;
    }
    if (offset + count > file->size) {
        file->size = offset + count;
    }
}

static ssize_t sim_pwritev(const struct wal_vfs *vfs, int handle, const struct iovec *parts,
                           int count, uint64_t offset)
{
    struct sim *sim = of(vfs);
    bool alive = !sim->dead;
    int result = enter(sim, SIM_WRITE);
    struct sim_file *file = file_of(sim, handle);
    size_t total = 0;
    for (int i = 0; i < count; i++) {
        total += parts[i].iov_len;
    }
    size_t limit = total;
    if (result < 0) {
        if (!alive || !sim->dead) {
            return result;
        }
        limit = (size_t)sim_random(sim, total + 1); /* the power goes while it is being written */
    } else if (sim->short_writes) {
        if (sim_random(sim, 8) == 0) {
            return -EINTR;
        }
        if (total > 1 && sim_random(sim, 3) == 0) {
            limit = 1 + (size_t)sim_random(sim, total);
        }
    }
    assert(sim->handles[handle].write);
    if (sim->write_back && sim_random(sim, 8) == 0) {
        write_back(sim, file);
    }
    size_t end = (size_t)offset + limit;
    if (result == 0 && end > file->size) {
        sim->size_changes++;
        while (limit > 0 && end > file->size && !has_room(sim, end - file->size)) {
            limit--;
            end--;
        }
        if (limit == 0) {
            return -ENOSPC;
        }
    }
    size_t done = 0;
    for (int i = 0; i < count && done < limit; i++) {
        size_t step = parts[i].iov_len < limit - done ? parts[i].iov_len : limit - done;
        cache_write(file, parts[i].iov_base, step, (size_t)offset + done);
        done += step;
    }
    return result < 0 ? result : (ssize_t)done;
}

static int sim_truncate(const struct wal_vfs *vfs, int handle, uint64_t size)
{
    struct sim *sim = of(vfs);
    int result = enter(sim, SIM_TRUNCATE);
    if (result == 0) {
        sim_set_size(file_of(sim, handle), (size_t)size);
    }
    return result;
}

static int sim_allocate(const struct wal_vfs *vfs, int handle, uint64_t size)
{
    struct sim *sim = of(vfs);
    int result = enter(sim, SIM_ALLOCATE);
    struct sim_file *file = file_of(sim, handle);
    if (result < 0) {
        return result;
    }
    if (sim->no_allocate) {
        return -EOPNOTSUPP;
    }
    if (size > file->size) {
        if (!has_room(sim, size - file->size)) {
            return -ENOSPC;
        }
        sim_set_size(file, (size_t)size);
    }
    return 0;
}

static int sim_sync(const struct wal_vfs *vfs, int handle)
{
    struct sim *sim = of(vfs);
    bool alive = !sim->dead;
    int result = enter(sim, SIM_SYNC);
    struct sim_file *file = file_of(sim, handle);
    if (sim->ignore_sync && result == 0) {
        return 0;
    }
    if (!alive || sim->dead) {
        return -EIO;
    }
    for (size_t s = 0; s * SIM_SECTOR < file->capacity; s++) {
        if (file->dirty[s] && (result == 0 || sim_random(sim, 2) == 0)) {
            persist(file, s, 0, SIM_SECTOR);
        }
        file->dirty[s] = false;
    }
    file->disk_size = file->size;
    sim->syncs++;
    return result;
}

static int sim_sync_dir(const struct wal_vfs *vfs, const char *path)
{
    struct sim *sim = of(vfs);
    int result = enter(sim, SIM_SYNC_DIR);
    if (result < 0 || sim->ignore_sync_dir) {
        return result;
    }
    if (strcmp(path, ".") == 0) {
        sim->dir_durable = sim->dir_exists;
        return 0;
    }
    for (unsigned i = 0; i < sim->change_count; i++) {
        apply(sim->disk_names, &sim->changes[i]);
    }
    sim->change_count = 0;
    sim_collect(sim);
    return 0;
}

static int sim_make_dir(const struct wal_vfs *vfs, const char *path)
{
    struct sim *sim = of(vfs);
    (void)path;
    int result = enter(sim, 0);
    if (result < 0) {
        return result;
    }
    if (sim->dir_exists) {
        return -EEXIST;
    }
    sim->dir_exists = true;
    return 0;
}

static int sim_rename(const struct wal_vfs *vfs, const char *from, const char *to)
{
    struct sim *sim = of(vfs);
    int result = enter(sim, SIM_RENAME);
    int file = sim_name_get(sim->names, base_name(from));
    if (result < 0) {
        return result;
    }
    if (file < 0) {
        return -ENOENT;
    }
    change_add(sim, base_name(from), base_name(to), file);
    sim_collect(sim);
    return 0;
}

static int sim_unlink(const struct wal_vfs *vfs, const char *path)
{
    struct sim *sim = of(vfs);
    int result = enter(sim, SIM_UNLINK);
    if (result < 0) {
        return result;
    }
    if (sim_name_get(sim->names, base_name(path)) < 0) {
        return -ENOENT;
    }
    change_add(sim, base_name(path), "", -1);
    sim_collect(sim);
    return 0;
}

static int sim_list(const struct wal_vfs *vfs, const char *path, wal_list_fn *each, void *arg)
{
    struct sim *sim = of(vfs);
    int result = enter(sim, SIM_LIST);
    (void)path;
    for (int i = 0; result >= 0 && i < SIM_NAMES; i++) {
        if (sim->names[i].file >= 0) {
            result = each(arg, sim->names[i].name);
        }
    }
    return result;
}

static int sim_lock(const struct wal_vfs *vfs, int handle)
{
    struct sim *sim = of(vfs);
    struct sim_file *file = file_of(sim, handle);
    int result = enter(sim, 0);
    if (result < 0) {
        return result;
    }
    if (file->locked) {
        return -EAGAIN;
    }
    file->locked = true;
    sim->handles[handle].lock = true;
    return 0;
}

static int sim_map(const struct wal_vfs *vfs, int handle, size_t size, bool write, void **memory)
{
    struct sim *sim = of(vfs);
    struct sim_file *file = file_of(sim, handle);
    int result = enter(sim, 0);
    (void)write;
    if (result < 0) {
        return result;
    }
    if (file->memory == NULL) {
        file->memory = aligned_alloc(4096, size);
        assert(file->memory != NULL);
        memset(file->memory, 0, size);
        file->memory_size = size;
    }
    assert(file->memory_size == size);
    *memory = file->memory;
    return 0;
}

static int sim_unmap(const struct wal_vfs *vfs, void *memory, size_t size)
{
    (void)vfs;
    (void)memory;
    (void)size;
    return 0;
}

static int sim_wait(const struct wal_vfs *vfs, uint32_t *word, uint32_t expected,
                    int64_t timeout_ns)
{
    struct sim *sim = of(vfs);
    if (*word != expected) {
        return -EAGAIN;
    }
    sim->now_ns += timeout_ns;
    return -ETIMEDOUT;
}

static int sim_wake(const struct wal_vfs *vfs, uint32_t *word)
{
    (void)vfs;
    (void)word;
    return 0;
}

static int64_t sim_now_ns(const struct wal_vfs *vfs)
{
    return of(vfs)->now_ns;
}

static int64_t sim_wall_us(const struct wal_vfs *vfs)
{
    return of(vfs)->now_ns / 1000 + of(vfs)->wall_step_us;
}

static int sim_entropy(const struct wal_vfs *vfs, void *bytes, size_t count)
{
    unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++) {
        at[i] = (unsigned char)sim_random(of(vfs), 256);
    }
    return 0;
}

static int sim_boot_id(const struct wal_vfs *vfs, unsigned char id[16])
{
    memcpy(id, of(vfs)->boot_id, 16);
    return 0;
}

struct sim *sim_new(uint64_t seed)
{
    struct sim *sim = calloc(1, sizeof *sim);
    assert(sim != NULL);
    sim->random = seed;
    sim->now_ns = 1000000000;
    for (int i = 0; i < SIM_HANDLES; i++) {
        sim->handles[i].file = -1;
    }
    for (int i = 0; i < SIM_NAMES; i++) {
        sim->names[i].file = sim->disk_names[i].file = -1;
    }
    sim->vfs = (struct wal_vfs){
        .context = sim,
        .open = sim_open,
        .close = sim_close,
        .status = sim_status,
        .pread = sim_pread,
        .pwritev = sim_pwritev,
        .truncate = sim_truncate,
        .allocate = sim_allocate,
        .sync = sim_sync,
        .sync_dir = sim_sync_dir,
        .make_dir = sim_make_dir,
        .rename = sim_rename,
        .unlink = sim_unlink,
        .list = sim_list,
        .lock = sim_lock,
        .map = sim_map,
        .unmap = sim_unmap,
        .wait = sim_wait,
        .wake = sim_wake,
        .now_ns = sim_now_ns,
        .wall_us = sim_wall_us,
        .entropy = sim_entropy,
        .boot_id = sim_boot_id,
    };
    sim_entropy(&sim->vfs, sim->boot_id, sizeof sim->boot_id);
    return sim;
}

void sim_free(struct sim *sim)
{
    for (int i = 0; i < SIM_FILES; i++) {
        file_drop(&sim->files[i]);
    }
    free(sim);
}

void sim_kill(struct sim *sim)
{
    for (int i = 0; i < SIM_HANDLES; i++) {
        sim->handles[i].file = -1;
    }
    for (int i = 0; i < SIM_FILES; i++) {
        sim->files[i].locked = false;
    }
    sim->dead = false;
    sim->cut_after = 0;
    sim_collect(sim);
}

/* What was in mapped memory may have been written back, in whole, in part, or not at all; or worse.
 */
static void scramble(struct sim *sim, struct sim_file *file)
{
    uint64_t mood = sim_random(sim, 4);
    for (size_t i = 0; i < file->memory_size; i++) {
        if (mood == 0 || (mood == 1 && sim_random(sim, 2) == 0)) {
            file->memory[i] = (unsigned char)sim_random(sim, 256);
        } else if (mood == 2) {
            file->memory[i] = 0;
        }
    }
}

static void cut_file(struct sim *sim, struct sim_file *file)
{
    /* Mostly all alike, as one write-back or none; sometimes every sector by itself. */
    uint64_t mood = sim_random(sim, 4);
    for (size_t s = 0; s * SIM_SECTOR < file->capacity; s++) {
        if (file->dirty[s]) {
            uint64_t fate = mood < 2 ? mood : sim_random(sim, 3);
            if (fate == 1) {
                persist(file, s, 0, SIM_SECTOR);
            } else if (fate == 2) {
                size_t middle = (size_t)sim_random(sim, SIM_SECTOR);
                bool front = sim_random(sim, 2) == 0;
                persist(file, s, front ? 0 : middle, front ? middle : SIM_SECTOR);
            }
        }
        file->dirty[s] = false;
    }
    if (file->size != file->disk_size && sim_random(sim, 2) == 0) {
        file->disk_size = file->size;
    }
    file->size = file->disk_size;
    if (file->size < file->capacity) {
        memset(file->disk + file->size, 0, file->capacity - file->size);
    }
    if (file->capacity > 0) {
        memcpy(file->cache, file->disk, file->capacity);
    }
    scramble(sim, file);
}

void sim_power_cut(struct sim *sim)
{
    sim_kill(sim);
    uint64_t mood = sim_random(sim, 4);
    for (unsigned i = 0; i < sim->change_count; i++) {
        if (mood == 1 || (mood >= 2 && sim_random(sim, 2) == 0)) {
            apply(sim->disk_names, &sim->changes[i]);
        }
    }
    sim->change_count = 0;
    if (sim->dir_exists && !sim->dir_durable && sim_random(sim, 2) == 0) {
        sim->dir_exists = false; /* and all that was in it */
        for (int i = 0; i < SIM_NAMES; i++) {
            sim->disk_names[i].file = -1;
        }
    }
    memcpy(sim->names, sim->disk_names, sizeof sim->names);
    for (int i = 0; i < SIM_FILES; i++) {
        if (sim->files[i].used) {
            cut_file(sim, &sim->files[i]);
        }
    }
    sim_entropy(&sim->vfs, sim->boot_id, sizeof sim->boot_id);
    /* A mapping that happens to say "ready" must still be told by the boot's id. */
    struct sim_file *shared = sim_find(sim, "shared");
    if (shared != NULL && shared->memory != NULL && sim_random(sim, 2) == 0) {
        uint32_t one[2] = {1, 1};
        memcpy(shared->memory, one, sizeof one);
    }
    sim_collect(sim);
}

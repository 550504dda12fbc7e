/* Damage done by hand, to cache and disk alike. */
#include "sim.h"

#include <assert.h>
#include <string.h>

struct sim_file *sim_find(struct sim *sim, const char *name)
{
    int file = sim_name_get(sim->names, name);
    return file < 0 ? NULL : &sim->files[file];
}

void sim_poke(struct sim *sim, const char *name, size_t offset, const void *bytes, size_t count)
{
    struct sim_file *file = sim_find(sim, name);
    assert(file != NULL && offset + count <= file->size);
    memcpy(file->cache + offset, bytes, count);
    memcpy(file->disk + offset, bytes, count);
}

void sim_cut(struct sim *sim, const char *name, size_t size)
{
    struct sim_file *file = sim_find(sim, name);
    assert(file != NULL);
    sim_set_size(file, size);
    if (file->capacity > 0) {
        memcpy(file->disk, file->cache, file->capacity);
    }
    file->disk_size = size;
}

void sim_remove(struct sim *sim, const char *name)
{
    sim_name_set(sim->names, name, -1);
    sim_name_set(sim->disk_names, name, -1);
    sim_collect(sim);
}

void sim_put(struct sim *sim, const char *name, const void *bytes, size_t size)
{
    int file;
    for (file = 0; sim->files[file].used; file++) {
        assert(file < SIM_FILES - 1);
    }
    struct sim_file *target = &sim->files[file];
    target->used = true;
    sim_set_size(target, size);
    if (size > 0) {
        memcpy(target->cache, bytes, size);
        memcpy(target->disk, bytes, size);
    }
    target->disk_size = size;
    sim_name_set(sim->names, name, file);
    sim_name_set(sim->disk_names, name, file);
    sim_collect(sim);
}

void sim_copy_file(struct sim *sim, const char *from, const char *to)
{
    struct sim_file *source = sim_find(sim, from);
    assert(source != NULL);
    sim_put(sim, to, source->cache, source->size);
}

unsigned sim_count(struct sim *sim, const char *suffix)
{
    unsigned count = 0;
    for (int i = 0; i < SIM_NAMES; i++) {
        size_t length = strlen(sim->names[i].name);
        if (sim->names[i].file >= 0 && length >= strlen(suffix) &&
            strcmp(sim->names[i].name + length - strlen(suffix), suffix) == 0) {
            count++;
        }
    }
    return count;
}

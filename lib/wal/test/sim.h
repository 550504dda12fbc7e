/*
 * A disk in memory behind struct wal_vfs, which can lose power, fail calls and run full. All it
 * decides by chance comes from one seed.
 *
 * The model. A file has a cache (what reads see) and a disk image. Writes go to the cache, sector
 * by sector (512 bytes); sync copies the dirty sectors to the disk. Names change in the cache;
 * sync_dir makes them durable. At a power cut every dirty sector is kept, dropped or torn in the
 * middle, every name change since the last sync_dir kept or dropped, sizes are the old or the new
 * one, and mapped memory is scrambled. A process's death loses nothing. With write_back, dirty
 * sectors also go to the disk by themselves at any time, so that it may hold any earlier state of a
 * sector. The folder's own name is durable after a sync_dir of the folder above it.
 * A sync that fails persists some of the dirty sectors and marks all of them clean: the next sync
 * succeeds, and the cache shows what the disk lacks.
 */
#ifndef WAL_TEST_SIM_H
#define WAL_TEST_SIM_H

#include "wal/wal_vfs.h"

#define SIM_FILES   256
#define SIM_HANDLES 128
#define SIM_NAMES   160
#define SIM_CHANGES 512
#define SIM_SECTOR  512u

enum sim_call {
    SIM_OPEN = 1 << 0,
    SIM_READ = 1 << 1,
    SIM_WRITE = 1 << 2,
    SIM_ALLOCATE = 1 << 3,
    SIM_SYNC = 1 << 4,
    SIM_SYNC_DIR = 1 << 5,
    SIM_RENAME = 1 << 6,
    SIM_UNLINK = 1 << 7,
    SIM_TRUNCATE = 1 << 8,
    SIM_LIST = 1 << 9,
    SIM_ANY = 0xffff,
};

struct sim_file {
    bool used;
    unsigned char *cache;
    unsigned char *disk;
    bool *dirty; /* by sector */
    size_t capacity;
    size_t size;
    size_t disk_size;
    unsigned char *memory; /* mapped */
    size_t memory_size;
    bool locked;
    unsigned links;
};

struct sim_name {
    char name[64];
    int file; /* -1: none */
};

struct sim_change {
    char from[64]; /* "": a new file */
    char to[64];   /* "": an unlink of from */
    int file;
};

struct sim {
    struct wal_vfs vfs;
    uint64_t random;
    struct sim_file files[SIM_FILES];
    struct {
        int file; /* -1: free */
        bool write;
        bool lock;
    } handles[SIM_HANDLES];
    struct sim_name names[SIM_NAMES];
    struct sim_name disk_names[SIM_NAMES];
    struct sim_change changes[SIM_CHANGES];
    unsigned change_count;
    bool dir_exists;
    bool dir_durable;
    int64_t now_ns;
    unsigned char boot_id[16];

    /* Settings. */
    uint64_t room_bytes;  /* of all files; 0: endless */
    bool no_allocate;     /* -EOPNOTSUPP */
    bool short_writes;    /* and reads: some do little, some are interrupted */
    bool write_back;      /* dirty sectors go to the disk when they like */
    int64_t wall_step_us; /* by how much the wall clock is off */
    bool ignore_sync_dir; /* a lie, to see the tests find out */
    bool ignore_sync;     /* another */
    unsigned fail_calls;  /* enum sim_call, or-ed */
    unsigned fail_after;  /* so many of them succeed */
    unsigned fail_count;  /* then so many fail */
    int fail_code;        /* with this, negative */
    uint64_t cut_after;   /* power is lost at this many calls from now; 0: not */

    /* Observed. */
    bool dead; /* power is lost or the process died: every call fails until sim_power_on */
    uint64_t calls;
    uint64_t syncs;
    uint64_t size_changes; /* writes that grew a file */
};

struct sim *sim_new(uint64_t seed);
void sim_free(struct sim *sim);
uint64_t sim_random(struct sim *sim, uint64_t below);

/* Everything volatile is lost as told above; handles are closed, locks released. */
void sim_power_cut(struct sim *sim);
/* The process ends: handles closed, locks released; caches and mapped memory stay. */
void sim_kill(struct sim *sim);

/* For damage by hand. NULL: no such file. Both cache and disk are to be changed. */
struct sim_file *sim_find(struct sim *sim, const char *name);
void sim_poke(struct sim *sim, const char *name, size_t offset, const void *bytes, size_t count);
void sim_cut(struct sim *sim, const char *name, size_t size);
void sim_remove(struct sim *sim, const char *name);
/* A file with this content, durable, in place of any of that name. */
void sim_put(struct sim *sim, const char *name, const void *bytes, size_t size);
void sim_copy_file(struct sim *sim, const char *from, const char *to);
unsigned sim_count(struct sim *sim, const char *suffix);

/* Within the simulator. */
int sim_name_get(const struct sim_name *names, const char *name); /* -1: none */
void sim_name_set(struct sim_name *names, const char *name, int file);
void sim_set_size(struct sim_file *file, size_t size);
void sim_collect(struct sim *sim);

#endif

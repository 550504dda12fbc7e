/* cgroup.h: what a container used, from its control group (cgroup v2).
 *
 * Groups are named by their path from `root`, a view of the whole hierarchy: "/sys/fs/cgroup" in a
 * container that shares the host's cgroup namespace. No state, thread-safe.
 */
#ifndef SLUICE_SAMPLER_CGROUP_H
#define SLUICE_SAMPLER_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cgroup_figures {
    uint64_t identity;     /* differs between two groups of one name that followed each other */
    uint64_t cpu_us;       /* since the group was made; the others as well but memory */
    uint64_t memory_bytes; /* anonymous and shared; page cache and the kernel's own left out */
    uint64_t cache_bytes;  /* page cache of files: the kernel takes it back when others need it */
    bool io_known;         /* false: the io controller is not on */
    uint64_t read_bytes;   /* of block devices; one that lies on others is counted once */
    uint64_t write_bytes;
};

/* The cgroup v2 path in the text of a /proc/PID/cgroup. -ENOENT: there is none, or it is the root,
 * which is no container's; -ENAMETOOLONG. */
int cgroup_path(const char *text, char *path, size_t path_bytes);

/* 0; -ENOENT: there is no such group (any more), or its cpu.stat or memory.stat is missing;
 * -EBADMSG. */
int cgroup_read(const char *root, const char *path, struct cgroup_figures *figures);

/* Is a process with that /proc/PID/cgroup frozen by its group? 1, 0; -ENOENT: cannot be told.
 * Knows cgroup v1's freezer, too. */
int cgroup_frozen(const char *root, const char *text);

/* io.stat summed up. skip: is that device ("8:0") to be left out? */
int cgroup_parse_io(const char *text, size_t len, bool (*skip)(const char *device),
                    struct cgroup_figures *figures);

#endif

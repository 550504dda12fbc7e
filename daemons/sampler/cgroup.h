/* cgroup.h: what a container used, from its control group (cgroup v2, else v1).
 *
 * `text` is a /proc/PID/cgroup, which names the group, and `root` a view of all hierarchies:
 * "/sys/fs/cgroup" in a container that shares the host's cgroup namespace. The root of a hierarchy
 * is no container's group. No state, thread-safe.
 */
#ifndef SLUICE_SAMPLER_CGROUP_H
#define SLUICE_SAMPLER_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cgroup_version { CGROUP_V2, CGROUP_V1 };

struct cgroup_figures {
    enum cgroup_version version;
    uint64_t identity;     /* differs between two groups of one name that followed each other */
    uint64_t cpu_us;       /* since the group was made; the others as well but memory */
    uint64_t memory_bytes; /* anonymous and shared; page cache and the kernel's own left out */
    uint64_t cache_bytes;  /* page cache of files: the kernel takes it back when others need it */
    bool io_known;         /* false: the controller is not on; v1: or lists no device (yet) */
    uint64_t read_bytes;   /* of block devices; one that lies on others is counted once */
    uint64_t write_bytes;  /* v1: without what the kernel writes back later, for nobody */
};

/* Does the text tell a container from what runs in none? */
bool cgroup_is_container(const char *text);

/* 0; -ENOENT: there is no such group (any more), or its CPU or memory figures are missing;
 * -ENAMETOOLONG; -EBADMSG. */
int cgroup_read(const char *root, const char *text, struct cgroup_figures *figures);

/* Is a process with that /proc/PID/cgroup frozen by its group, or about to be? 1, 0; -ENOENT:
 * cannot be told. */
int cgroup_frozen(const char *root, const char *text);

/* io.stat, or v1's io_service_bytes, summed up. skip: is that device ("8:0") to be left out? */
int cgroup_parse_io(enum cgroup_version version, const char *text, size_t len,
                    bool (*skip)(const char *device), struct cgroup_figures *figures);

#endif

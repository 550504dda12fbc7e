#include "cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "procfs.h"

enum { TEXT_BYTES = 16384, PATH_BYTES = 1024 };

/* Where the figures of a group lie, and by what names: the same figures in both versions. Version 2
 * has one hierarchy without a controller in its name, version 1 one for each. */
struct place {
    const char *controller, *file;
};

static const struct layout {
    struct place cpu, memory, io, freezer;
    const char *usage; /* what stands before the CPU time, */
    uint64_t usage_per_us;
    const char *anon, *cache, *shared; /* cache includes shared */
    const char *read, *write;
    bool io_by_device; /* a device that is not listed may be one that is not counted */
    const char *frozen, *thawed;
} layouts[] = {
    [CGROUP_V2] = {.cpu = {"", "cpu.stat"},
                   .usage = "usage_usec ",
                   .usage_per_us = 1,
                   .memory = {"", "memory.stat"},
                   .anon = "anon ",
                   .cache = "file ",
                   .shared = "shmem ",
                   .io = {"", "io.stat"},
                   .read = " rbytes=",
                   .write = " wbytes=",
                   .freezer = {"", "cgroup.events"},
                   .frozen = "frozen 1",
                   .thawed = "frozen 0"},
    [CGROUP_V1] = {.cpu = {"cpuacct", "cpuacct.usage"},
                   .usage = "",
                   .usage_per_us = 1000,
                   .memory = {"memory", "memory.stat"},
                   .anon = "total_rss ", /* for all its name without what is shared */
                   .cache = "total_cache ",
                   .shared = "total_shmem ",
                   .io = {"blkio", "blkio.throttle.io_service_bytes"},
                   .read = " Read ",
                   .write = " Write ",
                   .io_by_device = true,
                   .freezer = {"freezer", "freezer.state"},
                   .frozen = "FR", /* FREEZING, FROZEN */
                   .thawed = "THAWED"},
};

struct slice {
    const char *at;
    int bytes;
};

/* Is it in "cpu,cpuacct"? Of no controller: is that empty? */
static bool names_controller(struct slice names, const char *controller)
{
    int wanted = (int)strlen(controller);
    for (const char *at = names.at, *end = at + names.bytes; at <= end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma ? comma : end;
        if (stop - at == wanted && memcmp(at, controller, (size_t)wanted) == 0)
            return true;
        at = stop + 1;
    }
    return false;
}

/* The line of /proc/PID/cgroup for `controller`: NUMBER:NAMES:PATH. */
static bool find_line(const char *text, const char *controller, struct slice *names,
                      struct slice *path)
{
    for (const char *line = text; *line;) {
        size_t line_bytes = strcspn(line, "\n");
        const char *end = line + line_bytes;
        const char *first = memchr(line, ':', line_bytes);
        const char *second = first ? memchr(first + 1, ':', (size_t)(end - first - 1)) : NULL;
        line = *end ? end + 1 : end;
        if (!second)
            continue;
        *names = (struct slice){first + 1, (int)(second - first - 1)};
        *path = (struct slice){second + 1, (int)(end - second - 1)};
        if (names_controller(*names, controller))
            return true;
    }
    return false;
}

/* Neither the root nor "/..", which leads out of a cgroup namespace: not in this view. */
static bool is_usable(struct slice path)
{
    return path.bytes > 1 && path.at[0] == '/' &&
           !(path.bytes >= 3 && memcmp(path.at, "/..", 3) == 0);
}

bool cgroup_is_container(const char *text)
{
    struct slice names, path;
    return (find_line(text, "", &names, &path) && is_usable(path)) ||
           (find_line(text, "pids", &names, &path) && is_usable(path));
}

/* The group's folder, which is there: its identity, also if that does not matter. 0; -ENOENT,
 * -ENAMETOOLONG. */
static int find_folder(const char *root, const char *text, const char *controller,
                       char folder[PATH_BYTES], uint64_t *identity)
{
    struct slice names, path;
    struct stat status;
    if (!find_line(text, controller, &names, &path) || !is_usable(path))
        return -ENOENT;
    /* "cpu,cpuacct" is mounted by that name, or as "cpuacct", or has a link of that name. */
    const struct slice mounts[] = {names, {controller, (int)strlen(controller)}};
    for (size_t i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++) {
        int len = snprintf(folder, PATH_BYTES, "%s/%.*s%.*s", root, mounts[i].bytes, mounts[i].at,
                           path.bytes, path.at);
        if (len < 0 || len >= PATH_BYTES)
            return -ENAMETOOLONG;
        if (stat(folder, &status) == 0) {
            *identity = (uint64_t)status.st_ino;
            return 0;
        }
    }
    return -ENOENT;
}

/* Length of the text, which is NUL-terminated; negative errno. */
static ssize_t read_place(const char *root, const char *text, const struct place *place,
                          char content[TEXT_BYTES], uint64_t *identity)
{
    char folder[PATH_BYTES], full[PATH_BYTES + 64];
    int rc = find_folder(root, text, place->controller, folder, identity);
    if (rc < 0)
        return rc;
    snprintf(full, sizeof(full), "%s/%s", folder, place->file);
    ssize_t got = proc_read_text(full, content, TEXT_BYTES - 1);
    if (got == -ENODEV) /* removed between open and read */
        return -ENOENT;
    if (got >= 0)
        content[got] = '\0';
    return got;
}

/* A device mapper or RAID volume passes its requests on to devices that count them again. */
static bool lies_on_others(const char *device)
{
    char path[96];
    snprintf(path, sizeof(path), "/sys/dev/block/%s/slaves", device);
    DIR *folder = opendir(path);
    if (!folder)
        return false;
    bool found = false;
    for (const struct dirent *entry; !found && (entry = readdir(folder));)
        found = entry->d_name[0] != '.';
    closedir(folder);
    return found;
}

static bool io_field(const char *line, const char *name, uint64_t *value)
{
    const char *at = strstr(line, name);
    if (!at)
        return false;
    char *end;
    errno = 0;
    *value = strtoull(at + strlen(name), &end, 10);
    return errno == 0 && end > at + strlen(name);
}

int cgroup_parse_io(enum cgroup_version version, const char *text, size_t len,
                    bool (*skip)(const char *device), struct cgroup_figures *figures)
{
    const struct layout *layout = &layouts[version];
    figures->read_bytes = figures->write_bytes = 0;
    figures->io_known = !layout->io_by_device;
    for (const char *at = text, *end = text + len; at < end;) {
        char line[512], device[32];
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t line_bytes = (size_t)((stop ? stop : end) - at);
        if (line_bytes >= sizeof(line))
            return -EBADMSG;
        memcpy(line, at, line_bytes);
        line[line_bytes] = '\0';
        at += line_bytes + 1;
        uint64_t read_bytes = 0, write_bytes = 0;
        /* "8:0 rbytes=1 wbytes=2 rios=3 ..."; a device without traffic may have its name only.
         * Version 1: "8:0 Read 1", "8:0 Write 2", others, and a total of them. */
        bool reads = io_field(line, layout->read, &read_bytes);
        bool writes = io_field(line, layout->write, &write_bytes);
        if (sscanf(line, "%31s", device) != 1 || (!reads && !writes) || (skip && skip(device)))
            continue;
        figures->read_bytes += read_bytes;
        figures->write_bytes += write_bytes;
        figures->io_known = true;
    }
    return 0;
}

static int read_version(enum cgroup_version version, const char *root, const char *group,
                        struct cgroup_figures *figures)
{
    const struct layout *layout = &layouts[version];
    char text[TEXT_BYTES];
    uint64_t usage, anon, cache, shared, ignored;
    *figures = (struct cgroup_figures){.version = version};
    ssize_t len = read_place(root, group, &layout->cpu, text, &figures->identity);
    if (len < 0)
        return (int)len;
    if (!proc_find_number(text, (size_t)len, layout->usage, &usage))
        return -EBADMSG;
    figures->cpu_us = usage / layout->usage_per_us;
    len = read_place(root, group, &layout->memory, text, &ignored);
    if (len < 0)
        return (int)len;
    if (!proc_find_number(text, (size_t)len, layout->anon, &anon) ||
        !proc_find_number(text, (size_t)len, layout->cache, &cache) ||
        !proc_find_number(text, (size_t)len, layout->shared, &shared))
        return -EBADMSG;
    /* Cache includes what is shared; that is memory in use, such as a database's buffers. */
    figures->memory_bytes = anon + shared;
    figures->cache_bytes = cache > shared ? cache - shared : 0;
    len = read_place(root, group, &layout->io, text, &ignored);
    return len < 0 ? 0 : cgroup_parse_io(version, text, (size_t)len, lies_on_others, figures);
}

int cgroup_read(const char *root, const char *text, struct cgroup_figures *figures)
{
    int rc = read_version(CGROUP_V2, root, text, figures);
    return rc == -ENOENT ? read_version(CGROUP_V1, root, text, figures) : rc;
}

int cgroup_frozen(const char *root, const char *text)
{
    char content[TEXT_BYTES];
    uint64_t ignored;
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        if (read_place(root, text, &layouts[i].freezer, content, &ignored) < 0)
            continue;
        if (strstr(content, layouts[i].frozen))
            return 1;
        if (strstr(content, layouts[i].thawed))
            return 0;
    }
    return -ENOENT;
}

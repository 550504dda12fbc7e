#include "cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "procfs.h"

enum { TEXT_BYTES = 16384, PATH_BYTES = 1024 };

/* The path of the line whose text between the first two colons is or holds `controller`. */
static int find_line(const char *text, const char *controller, char *path, size_t path_bytes)
{
    for (const char *line = text; *line;) {
        size_t line_bytes = strcspn(line, "\n");
        const char *end = line + line_bytes;
        const char *first = memchr(line, ':', line_bytes);
        const char *second = first ? memchr(first + 1, ':', (size_t)(end - first - 1)) : NULL;
        line = *end ? end + 1 : end;
        if (!second)
            continue;
        size_t names_bytes = (size_t)(second - first - 1), wanted = strlen(controller);
        if (names_bytes != wanted || memcmp(first + 1, controller, wanted) != 0)
            continue;
        size_t found = (size_t)(end - second - 1);
        if (found >= path_bytes)
            return -ENAMETOOLONG;
        memcpy(path, second + 1, found);
        path[found] = '\0';
        return 0;
    }
    return -ENOENT;
}

int cgroup_path(const char *text, char *path, size_t path_bytes)
{
    int rc = find_line(text, "", path, path_bytes);
    if (rc < 0)
        return rc;
    /* "/.." leads out of a cgroup namespace: the group is not in this view. */
    bool usable = path[0] == '/' && path[1] != '\0' && strncmp(path, "/..", 3) != 0;
    return usable ? 0 : -ENOENT;
}

/* Length of the text, which is NUL-terminated; negative errno. */
static ssize_t read_file(const char *root, const char *path, const char *name, char *text)
{
    char full[PATH_BYTES + 512];
    int len = snprintf(full, sizeof(full), "%s%s/%s", root, path, name);
    if (len < 0 || (size_t)len >= sizeof(full))
        return -ENAMETOOLONG;
    ssize_t got = proc_read_text(full, text, TEXT_BYTES - 1);
    if (got == -ENODEV) /* removed between open and read */
        return -ENOENT;
    if (got >= 0)
        text[got] = '\0';
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

int cgroup_parse_io(const char *text, size_t len, bool (*skip)(const char *device),
                    struct cgroup_figures *figures)
{
    figures->read_bytes = figures->write_bytes = 0;
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
        /* "8:0 rbytes=1 wbytes=2 rios=3 ..."; a device without traffic may have its name only. */
        if (sscanf(line, "%31s", device) != 1 || !io_field(line, " rbytes=", &read_bytes) ||
            !io_field(line, " wbytes=", &write_bytes))
            continue;
        if (skip && skip(device))
            continue;
        figures->read_bytes += read_bytes;
        figures->write_bytes += write_bytes;
    }
    return 0;
}

static int read_memory(const char *root, const char *path, struct cgroup_figures *figures)
{
    char text[TEXT_BYTES];
    uint64_t anon, file, shmem;
    ssize_t len = read_file(root, path, "memory.stat", text);
    if (len < 0)
        return (int)len;
    if (!proc_find_number(text, (size_t)len, "anon ", &anon) ||
        !proc_find_number(text, (size_t)len, "file ", &file) ||
        !proc_find_number(text, (size_t)len, "shmem ", &shmem))
        return -EBADMSG;
    /* "file" includes what is shared; that is memory in use, such as a database's buffers. */
    figures->memory_bytes = anon + shmem;
    figures->cache_bytes = file > shmem ? file - shmem : 0;
    return 0;
}

int cgroup_read(const char *root, const char *path, struct cgroup_figures *figures)
{
    char text[TEXT_BYTES], full[PATH_BYTES + 512];
    struct stat status;
    *figures = (struct cgroup_figures){0};
    int path_bytes = snprintf(full, sizeof(full), "%s%s", root, path);
    if (path_bytes < 0 || (size_t)path_bytes >= sizeof(full))
        return -ENAMETOOLONG;
    if (stat(full, &status) < 0)
        return -errno;
    figures->identity = (uint64_t)status.st_ino;
    ssize_t len = read_file(root, path, "cpu.stat", text);
    if (len < 0)
        return (int)len;
    if (!proc_find_number(text, (size_t)len, "usage_usec ", &figures->cpu_us))
        return -EBADMSG;
    int rc = read_memory(root, path, figures);
    if (rc < 0)
        return rc;
    len = read_file(root, path, "io.stat", text);
    figures->io_known = len >= 0;
    return len > 0 ? cgroup_parse_io(text, (size_t)len, lies_on_others, figures) : 0;
}

int cgroup_frozen(const char *root, const char *text)
{
    char path[PATH_BYTES], in_v1[PATH_BYTES + 16], content[TEXT_BYTES];
    uint64_t frozen;
    if (cgroup_path(text, path, sizeof(path)) == 0) {
        ssize_t len = read_file(root, path, "cgroup.events", content);
        if (len > 0 && proc_find_number(content, (size_t)len, "frozen ", &frozen))
            return frozen != 0;
    }
    if (find_line(text, "freezer", path, sizeof(path)) == 0) {
        snprintf(in_v1, sizeof(in_v1), "/freezer%s", path);
        if (read_file(root, in_v1, "freezer.state", content) > 0)
            return strncmp(content, "FROZEN", 6) == 0;
    }
    return -ENOENT;
}

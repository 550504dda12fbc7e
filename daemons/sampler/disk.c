#include "disk.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/buf.h"
#include "procfs.h"

enum { SECTOR_BYTES = 512, DISKSTATS_BYTES = 64 * 1024, STACKED_MAX = 8 };

/* ---- which disk ---- */

/* How many entries a folder has, and the last one's name. */
static unsigned entries(const char *dir, char name[DISK_NAME_BYTES])
{
    DIR *folder = opendir(dir);
    unsigned count = 0;
    const struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        if (entry->d_name[0] == '.')
            continue;
        count++;
        snprintf(name, DISK_NAME_BYTES, "%.*s", DISK_NAME_BYTES - 1, entry->d_name);
    }
    if (folder)
        closedir(folder);
    return count;
}

/* The real folder of a device in /sys; free it. NULL: there is none. */
static char *device_folder(const char *sys_root, const char *kind, const char *name)
{
    char *link = xasprintf("%s/%s/%s", sys_root, kind, name);
    char *folder = realpath(link, NULL);
    free(link);
    return folder;
}

/* One step from a volume or a partition to what it lies on: a folder to free, NULL when folder is a
 * disk's already. *several: it lies on more than one. */
static char *step_down(const char *sys_root, const char *folder, bool *several)
{
    char name[DISK_NAME_BYTES] = "";
    char *partition = xasprintf("%s/partition", folder), *slaves = xasprintf("%s/slaves", folder);
    char *below = NULL;
    unsigned count = entries(slaves, name);
    *several = count > 1;
    if (access(partition, F_OK) == 0) {
        below = xstrdup(folder);
        *strrchr(below, '/') = '\0';
    } else if (count == 1) {
        below = device_folder(sys_root, "class/block", name);
    }
    free(partition);
    free(slaves);
    return below;
}

int disk_find_number(const char *sys_root, unsigned major_number, unsigned minor_number,
                     char name[DISK_NAME_BYTES], struct err *err)
{
    char number[32];
    snprintf(number, sizeof(number), "%u:%u", major_number, minor_number);
    char *folder = device_folder(sys_root, "dev/block", number);
    bool several = false;
    for (int i = 0; folder && i < STACKED_MAX; i++) {
        char *below = step_down(sys_root, folder, &several);
        if (!below)
            break;
        free(folder);
        folder = below;
    }
    int rc = 0;
    if (!folder)
        rc = err_set(err, -ENODEV, "device %s is no disk", number);
    else if (several)
        rc = err_set(err, -ENODEV, "device %s lies on several disks", number);
    else
        snprintf(name, DISK_NAME_BYTES, "%s", strrchr(folder, '/') + 1);
    free(folder);
    return rc;
}

int disk_find(const char *sys_root, const char *dir, char name[DISK_NAME_BYTES], struct err *err)
{
    struct stat facts;
    if (stat(dir, &facts) < 0)
        return err_set(err, -errno, "%s: %s", dir, strerror(errno));
    return disk_find_number(sys_root, major(facts.st_dev), minor(facts.st_dev), name, err);
}

/* ---- what it did ---- */

/* Documentation/admin-guide/iostats.rst of the kernel: behind the name, 3 is sectors read, 7
 * sectors written, 16 flush requests; a sector is 512 bytes whatever the disk's own are. */
int disk_parse(const char *text, size_t len, const char *name, struct disk_totals *totals)
{
    enum { SECTORS_READ = 3, SECTORS_WRITTEN = 7, FLUSHES = 16 };
    const char *end = text + len;
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop)
            return -ENOENT; /* the rest of a text that was cut short is not believed */
        char copy[512], *rest, *word;
        snprintf(copy, sizeof(copy), "%.*s", (int)(stop - line), line);
        line = stop + 1;
        strtok_r(copy, " ", &rest);
        strtok_r(NULL, " ", &rest);
        word = strtok_r(NULL, " ", &rest);
        if (!word || strcmp(word, name) != 0)
            continue;
        uint64_t fields[FLUSHES + 1] = {0};
        unsigned count = 0;
        while (count < FLUSHES && (word = strtok_r(NULL, " ", &rest))) {
            char *after;
            fields[++count] = strtoull(word, &after, 10);
            if (*after != '\0' || *word == '-')
                return -EBADMSG;
        }
        if (count < SECTORS_WRITTEN)
            return -EBADMSG;
        *totals = (struct disk_totals){.read_bytes = fields[SECTORS_READ] * SECTOR_BYTES,
                                       .write_bytes = fields[SECTORS_WRITTEN] * SECTOR_BYTES,
                                       .flushes = fields[FLUSHES],
                                       .flushes_known = count == FLUSHES};
        return 0;
    }
    return -ENOENT;
}

int disk_read(const char *proc_root, const char *name, struct disk_totals *totals)
{
    char *path = xasprintf("%s/diskstats", proc_root), *text = xmalloc(DISKSTATS_BYTES);
    ssize_t len = proc_read_text(path, text, DISKSTATS_BYTES);
    int rc = len < 0 ? (int)len : disk_parse(text, (size_t)len, name, totals);
    free(path);
    free(text);
    return rc;
}

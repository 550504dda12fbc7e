/* A copy of the whole folder, made durable before anything in the folder is changed. */
#include "wal/tool/tool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define COPY_BYTES (1024u * 1024)

struct names {
    char (*list)[NAME_MAX + 1];
    size_t count;
    size_t capacity;
    uint64_t bytes; /* of all of them */
};

static int names_add(struct names *names, const char *name)
{
    if (names->count == names->capacity) {
        size_t capacity = names->capacity == 0 ? 64 : names->capacity * 2;
        char(*list)[NAME_MAX + 1] = realloc(names->list, capacity * sizeof *list);
        if (list == NULL) {
            return -ENOMEM;
        }
        names->list = list;
        names->capacity = capacity;
    }
    snprintf(names->list[names->count++], NAME_MAX + 1, "%s", name);
    return 0;
}

/* The regular files in it: there is nothing else that would be the log's. */
static int list_files(const char *dir, struct names *names, struct wal_err *err)
{
    int result = 0;
    DIR *folder = opendir(dir);
    if (folder == NULL) {
        return wal_fail(err, -errno, "Cannot list the folder %s: %s", dir, strerror(errno));
    }
    while (result == 0) {
        struct stat st;
        errno = 0;
        struct dirent *entry = readdir(folder);
        if (entry == NULL) {
            result = -errno;
            break;
        }
        if (fstatat(dirfd(folder), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            result = -errno;
        } else if (S_ISREG(st.st_mode)) {
            names->bytes += (uint64_t)st.st_size + 4096;
            result = names_add(names, entry->d_name);
        }
    }
    closedir(folder);
    return result < 0
               ? wal_fail(err, result, "Cannot list the folder %s: %s", dir, strerror(-result))
               : 0;
}

static int write_all(int file, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t put = write(file, bytes, count);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            return -errno;
        }
        bytes += put;
        count -= (size_t)put;
    }
    return 0;
}

static int copy_bytes(int from, int to, char *buffer)
{
    for (;;) {
        ssize_t got = read(from, buffer, COPY_BYTES);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got < 0 ? -errno : 0;
        }
        int result = write_all(to, buffer, (size_t)got);
        if (result < 0) {
            return result;
        }
    }
}

static int copy_file(int from_dir, int to_dir, const char *name, char *buffer)
{
    struct stat st;
    int to = -1;
    int result = 0;
    int from = openat(from_dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (from < 0 || fstat(from, &st) < 0) {
        result = -errno;
        goto out;
    }
    to = openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, st.st_mode & 0777);
    if (to < 0) {
        result = -errno;
        goto out;
    }
    if (fchown(to, st.st_uid, st.st_gid) < 0 && errno != EPERM) {
        result = -errno;
        goto out;
    }
    result = copy_bytes(from, to, buffer);
    if (result == 0 && fsync(to) < 0) {
        result = -errno;
    }

out:
    if (from >= 0) {
        close(from);
    }
    if (to >= 0 && close(to) < 0 && result == 0) {
        result = -errno;
    }
    return result;
}

static uint64_t room_in(const char *path, dev_t *device)
{
    struct statvfs fs;
    struct stat st;
    if (statvfs(path, &fs) < 0 || stat(path, &st) < 0) {
        *device = 0;
        return UINT64_MAX; /* then the copy itself will tell */
    }
    *device = st.st_dev;
    return (uint64_t)fs.f_bavail * fs.f_frsize;
}

static int check_room(const char *dir, const char *parent, uint64_t bytes, uint64_t more,
                      struct wal_err *err)
{
    dev_t here;
    dev_t there;
    uint64_t room = room_in(dir, &here);
    uint64_t parent_room = room_in(parent, &there);
    if (here == there) {
        bytes += more;
    } else if (room < more) {
        return wal_fail(
            err, -ENOSPC,
            "%s: the repaired log needs %llu bytes, and there is room for %llu; nothing "
            "was changed",
            dir, (unsigned long long)more, (unsigned long long)room);
    }
    if (parent_room < bytes) {
        return wal_fail(
            err, -ENOSPC,
            "%s: a copy of the folder and the repaired log need %llu bytes, and there is "
            "room for %llu; free some, or give --backup=FOLDER on another disk; nothing "
            "was changed",
            parent, (unsigned long long)bytes, (unsigned long long)parent_room);
    }
    return 0;
}

static void forget(int to_dir, const char *made, const struct names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        unlinkat(to_dir, names->list[i], 0);
    }
    rmdir(made);
}

static int copy_files(const char *dir, const char *made, const struct names *names,
                      struct wal_err *err)
{
    char *buffer = malloc(COPY_BYTES);
    int from = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int to = open(made, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int result = buffer == NULL ? -ENOMEM : from < 0 || to < 0 ? -errno : 0;
    if (result < 0) {
        wal_fail(err, result, "Cannot copy %s to %s: %s", dir, made, strerror(-result));
    }
    for (size_t i = 0; i < names->count && result == 0; i++) {
        result = copy_file(from, to, names->list[i], buffer);
        if (result < 0) {
            wal_fail(err, result, "Cannot copy %.100s/%.60s to %.100s: %s; nothing was changed",
                     dir, names->list[i], made, strerror(-result));
        }
    }
    if (result == 0 && fsync(to) < 0) {
        result = wal_fail(err, -errno, "Cannot flush %s: %s", made, strerror(errno));
    }
    if (result < 0 && to >= 0) {
        forget(to, made, names);
    }
    if (from >= 0) {
        close(from);
    }
    if (to >= 0) {
        close(to);
    }
    free(buffer);
    return result;
}

static int parent_of(const char *path, char parent[WAL_PATH_BYTES])
{
    size_t count = strlen(path);
    if (count >= WAL_PATH_BYTES) {
        return -ENAMETOOLONG;
    }
    memcpy(parent, path, count + 1);
    while (count > 1 && parent[count - 1] == '/') {
        parent[--count] = '\0';
    }
    char *slash = strrchr(parent, '/');
    if (slash == NULL) {
        memcpy(parent, ".", 2);
    } else {
        slash[slash == parent] = '\0';
    }
    return 0;
}

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 || errno != ENOENT;
}

/* Where it goes: what was asked for, or the first number that is free. */
static int pick_name(const char *dir, const char *wanted, char name[WAL_PATH_BYTES],
                     struct wal_err *err)
{
    if (wanted != NULL) {
        if (snprintf(name, WAL_PATH_BYTES, "%s", wanted) >= WAL_PATH_BYTES - 16) {
            return wal_fail(err, -ENAMETOOLONG, "The name of the copy is too long");
        }
        return exists(name) ? wal_fail(err, -EEXIST,
                                       "%s is there already; --backup must name a new folder", name)
                            : 0;
    }
    char *real = realpath(dir, NULL);
    if (real == NULL) {
        return wal_fail(err, -errno, "Cannot find %s: %s", dir, strerror(errno));
    }
    int result = 0;
    for (unsigned i = 1;; i++) {
        char partial[WAL_PATH_BYTES + 16];
        if (snprintf(name, WAL_PATH_BYTES, "%s.backup-%u", real, i) >= WAL_PATH_BYTES - 16) {
            result = wal_fail(err, -ENAMETOOLONG, "The name of the copy is too long");
            break;
        }
        snprintf(partial, sizeof partial, "%s.partial", name);
        if (!exists(name) && !exists(partial)) {
            break;
        }
    }
    free(real);
    return result;
}

static int sync_folder(const char *path)
{
    int file = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int result = file < 0 || fsync(file) < 0 ? -errno : 0;
    if (file >= 0) {
        close(file);
    }
    return result;
}

int tool_backup(const char *dir, const char *wanted, uint64_t more, char made[WAL_PATH_BYTES],
                struct wal_err *err)
{
    char partial[WAL_PATH_BYTES + 16];
    char parent[WAL_PATH_BYTES];
    struct names names = {0};
    struct stat st;
    int result = pick_name(dir, wanted, made, err);
    if (result == 0) {
        result = parent_of(made, parent);
    }
    if (result == 0) {
        result = list_files(dir, &names, err);
    }
    if (result == 0) {
        result = check_room(dir, parent, names.bytes, more, err);
    }
    if (result < 0) {
        goto out;
    }
    snprintf(partial, sizeof partial, "%s.partial", made);
    if (stat(dir, &st) < 0 || mkdir(partial, st.st_mode & 0777) < 0) {
        result = wal_fail(err, -errno,
                          "Cannot make the folder %s for a copy: %s; --backup=FOLDER puts it "
                          "elsewhere; nothing was changed",
                          partial, strerror(errno));
        goto out;
    }
    if (chown(partial, st.st_uid, st.st_gid) < 0 && errno != EPERM) {
        result = wal_fail(err, -errno, "Cannot give %s its owner: %s", partial, strerror(errno));
        rmdir(partial);
        goto out;
    }
    result = copy_files(dir, partial, &names, err);
    if (result < 0) {
        goto out;
    }
    if (rename(partial, made) < 0) {
        result = wal_fail(err, -errno, "Cannot name the copy %s: %s", made, strerror(errno));
        goto out;
    }
    result = sync_folder(parent);
    if (result < 0) {
        wal_fail(err, result, "Cannot flush the folder %s: %s", parent, strerror(-result));
    }

out:
    free(names.list);
    return result;
}

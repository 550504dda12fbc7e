#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(struct err *err, const char *what, const char *path)
{
    int code = -errno;
    return err_set(err, code, "%s %s: %s", what, path, strerror(-code));
}

int file_read(const char *path, size_t max_bytes, struct buf *out, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fail(err, "cannot open", path);
    int result = 0;
    for (;;) {
        buf_reserve(out, 64 * 1024);
        ssize_t got = read(fd, out->data + out->len, 64 * 1024);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            result = fail(err, "cannot read", path);
        if (got <= 0)
            break;
        out->len += (size_t)got;
        if (out->len > max_bytes) {
            result = err_set(err, -EFBIG, "%s is larger than %zu bytes", path, max_bytes);
            break;
        }
    }
    if (out->data)
        out->data[out->len] = '\0';
    close(fd);
    return result;
}

int file_write_all(int fd, const void *bytes, size_t len)
{
    const char *at = bytes;
    while (len > 0) {
        ssize_t done = write(fd, at, len);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -errno;
        at += done;
        len -= (size_t)done;
    }
    return 0;
}

int file_write(const char *path, const void *bytes, size_t len, struct err *err)
{
    char *temporary = xasprintf("%s.tmp-%d", path, (int)getpid());
    int result = 0;
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) {
        result = fail(err, "cannot create", temporary);
        goto out;
    }
    result = file_write_all(fd, bytes, len);
    if (result < 0)
        err_set(err, result, "cannot write %s: %s", temporary, strerror(-result));
    if (close(fd) < 0 && result == 0)
        result = fail(err, "cannot write", temporary);
    if (result == 0 && rename(temporary, path) < 0)
        result = fail(err, "cannot rename to", path);
    if (result < 0)
        unlink(temporary);
out:
    free(temporary);
    return result;
}

int file_mkdirs(const char *path, mode_t mode, struct err *err)
{
    char *copy = xstrdup(path);
    int result = 0;
    for (char *slash = copy + 1;; slash++) {
        if (*slash != '/' && *slash != '\0')
            continue;
        char end = *slash;
        *slash = '\0';
        if (mkdir(copy, mode) < 0 && errno != EEXIST) {
            result = fail(err, "cannot make folder", copy);
            break;
        }
        *slash = end;
        if (end == '\0')
            break;
    }
    free(copy);
    struct stat status;
    if (result == 0 && stat(path, &status) < 0)
        return fail(err, "cannot make folder", path);
    if (result == 0 && !S_ISDIR(status.st_mode))
        return err_set(err, -ENOTDIR, "%s is in the way: it is not a folder", path);
    return result;
}

static int remove_at(int parent, const char *name)
{
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -errno;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    DIR *folder = fdopendir(fd);
    if (!folder) {
        int code = -errno;
        close(fd);
        return code;
    }
    int result = 0;
    struct dirent *entry;
    while ((entry = readdir(folder))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        int one = remove_at(fd, entry->d_name);
        if (result == 0)
            result = one;
    }
    closedir(folder);
    if (unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT && result == 0)
        result = -errno;
    return result;
}

int file_remove_tree(const char *path, struct err *err)
{
    int result = remove_at(AT_FDCWD, path);
    if (result < 0)
        return err_set(err, result, "cannot remove %s: %s", path, strerror(-result));
    return 0;
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

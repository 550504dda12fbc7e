/* Names, whole reads and writes, locks: what the other parts need of files. */
#include "wal/internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int wal_fail(struct wal_err *err, int code, const char *format, ...)
{
    if (err != NULL) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(err->text, sizeof err->text, format, arguments);
        va_end(arguments);
    }
    return code;
}

int wal_path(char path[WAL_PATH_BYTES], const char *dir, const char *name)
{
    int count = snprintf(path, WAL_PATH_BYTES, "%s/%s", dir, name);
    return count < 0 || count >= WAL_PATH_BYTES ? -ENAMETOOLONG : 0;
}

int wal_segment_path(char path[WAL_PATH_BYTES], const char *dir, uint64_t number)
{
    char name[32];
    snprintf(name, sizeof name, "%020llu" WAL_SEGMENT_SUFFIX, (unsigned long long)number);
    return wal_path(path, dir, name);
}

bool wal_segment_number(const char *name, uint64_t *number)
{
    uint64_t value = 0;
    for (int i = 0; i < 20; i++) {
        if (name[i] < '0' || name[i] > '9') {
            return false;
        }
        unsigned digit = (unsigned)(name[i] - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    *number = value;
    return strcmp(name + 20, WAL_SEGMENT_SUFFIX) == 0;
}

static int numbers_add(void *arg, const char *name)
{
    struct wal_numbers *numbers = arg;
    uint64_t number;
    if (!wal_segment_number(name, &number)) {
        return 0;
    }
    if (numbers->count == numbers->capacity) {
        size_t capacity = numbers->capacity == 0 ? 64 : numbers->capacity * 2;
        uint64_t *list = realloc(numbers->list, capacity * sizeof *list);
        if (list == NULL) {
            return -ENOMEM;
        }
        numbers->list = list;
        numbers->capacity = capacity;
    }
    numbers->list[numbers->count++] = number;
    return 0;
}

static int numbers_compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

int wal_list_segments(const struct wal_vfs *vfs, const char *dir, struct wal_numbers *numbers)
{
    numbers->count = 0;
    int result = vfs->list(vfs, dir, numbers_add, numbers);
    if (result >= 0 && numbers->count > 0) {
        qsort(numbers->list, numbers->count, sizeof *numbers->list, numbers_compare);
    }
    return result < 0 ? result : 0;
}

void wal_numbers_free(struct wal_numbers *numbers)
{
    free(numbers->list);
    memset(numbers, 0, sizeof *numbers);
}

int wal_read_full(const struct wal_vfs *vfs, int file, void *bytes, size_t count, uint64_t offset)
{
    unsigned char *at = bytes;
    while (count > 0) {
        ssize_t got = vfs->pread(vfs, file, at, count, offset);
        if (got == -EINTR) {
            continue;
        }
        if (got < 0) {
            return (int)got;
        }
        if (got == 0) {
            memset(at, 0, count);
            return 0;
        }
        at += got;
        count -= (size_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}

int wal_write_full(const struct wal_vfs *vfs, int file, struct iovec *parts, int count,
                   uint64_t offset, uint64_t *written)
{
    uint64_t sum = 0;
    while (count > 0) {
        if (parts->iov_len == 0) {
            parts++;
            count--;
            continue;
        }
        ssize_t put = vfs->pwritev(vfs, file, parts, count, offset + sum);
        if (put == -EINTR) {
            continue;
        }
        if (put <= 0) {
            *written = sum;
            return put == 0 ? -EIO : (int)put;
        }
        sum += (uint64_t)put;
        size_t left = (size_t)put;
        while (left > 0) {
            size_t step = left < parts->iov_len ? left : parts->iov_len;
            parts->iov_base = (unsigned char *)parts->iov_base + step;
            parts->iov_len -= step;
            left -= step;
            if (parts->iov_len == 0) {
                parts++;
                count--;
            }
        }
    }
    *written = sum;
    return 0;
}

int wal_lock_open(const struct wal_vfs *vfs, const char *dir, const char *name, const char *who,
                  struct wal_err *err)
{
    char path[WAL_PATH_BYTES];
    int result = wal_path(path, dir, name);
    if (result < 0) {
        return wal_fail(err, result, "The path of the log is too long: %.100s", dir);
    }
    int file = vfs->open(vfs, path, WAL_OPEN_WRITE | WAL_OPEN_CREATE);
    if (file < 0) {
        return wal_fail(err, file, "Cannot open %s: %s", path, strerror(-file));
    }
    result = vfs->lock(vfs, file);
    if (result < 0) {
        vfs->close(vfs, file);
        if (result == -EAGAIN) {
            return wal_fail(err, -EBUSY, "The log %s already has a %s: %s is locked", dir, who,
                            name);
        }
        return wal_fail(err, result, "Cannot lock %s: %s", path, strerror(-result));
    }
    return file;
}

static int parent_of(char parent[WAL_PATH_BYTES], const char *dir)
{
    size_t count = strlen(dir);
    if (count >= WAL_PATH_BYTES) {
        return -ENAMETOOLONG;
    }
    memcpy(parent, dir, count + 1);
    while (count > 1 && parent[count - 1] == '/') {
        count--;
    }
    while (count > 0 && parent[count - 1] != '/') {
        count--;
    }
    while (count > 1 && parent[count - 1] == '/') {
        count--;
    }
    if (count == 0) {
        parent[count++] = '.';
    }
    parent[count] = '\0';
    return 0;
}

int wal_make_dir(const struct wal_vfs *vfs, const char *dir, struct wal_err *err)
{
    int result = vfs->make_dir(vfs, dir);
    if (result < 0 && result != -EEXIST) {
        return wal_fail(err, result, "Cannot make the folder %s: %s", dir, strerror(-result));
    }
    /* Even if it is there already: who made it may have died before this. */
    char parent[WAL_PATH_BYTES];
    result = parent_of(parent, dir);
    if (result == 0) {
        result = vfs->sync_dir(vfs, parent);
    }
    if (result < 0) {
        return wal_fail(err, result, "Cannot sync the folder above %s: %s", dir, strerror(-result));
    }
    return 0;
}

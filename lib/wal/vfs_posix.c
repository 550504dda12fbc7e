#include "wal/wal_vfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int posix_open(const struct wal_vfs *vfs, const char *path, unsigned flags)
{
    (void)vfs;
    int mode = flags & WAL_OPEN_WRITE ? O_RDWR : O_RDONLY;
    if (flags & WAL_OPEN_CREATE) {
        mode |= O_CREAT;
    }
    if (flags & WAL_OPEN_TRUNCATE) {
        mode |= O_TRUNC;
    }
    int file;
    do {
        file = open(path, mode | O_CLOEXEC | O_NOFOLLOW, 0640);
    } while (file < 0 && errno == EINTR);
    return file < 0 ? -errno : file;
}

static int posix_close(const struct wal_vfs *vfs, int file)
{
    (void)vfs;
    return close(file) < 0 ? -errno : 0;
}

static int posix_status(const struct wal_vfs *vfs, int file, struct wal_file_status *status)
{
    (void)vfs;
    struct stat st;
    if (fstat(file, &st) < 0) {
        return -errno;
    }
    if (!S_ISREG(st.st_mode)) {
        return -EINVAL;
    }
    status->size = (uint64_t)st.st_size;
    status->links = st.st_nlink;
    return 0;
}

static ssize_t posix_pread(const struct wal_vfs *vfs, int file, void *bytes, size_t count,
                           uint64_t offset)
{
    (void)vfs;
    ssize_t got = pread(file, bytes, count, (off_t)offset);
    return got < 0 ? -errno : got;
}

static ssize_t posix_pwritev(const struct wal_vfs *vfs, int file, const struct iovec *parts,
                             int count, uint64_t offset)
{
    (void)vfs;
    ssize_t put = pwritev(file, parts, count, (off_t)offset);
    return put < 0 ? -errno : put;
}

static int posix_truncate(const struct wal_vfs *vfs, int file, uint64_t size)
{
    (void)vfs;
    return ftruncate(file, (off_t)size) < 0 ? -errno : 0;
}

static int posix_allocate(const struct wal_vfs *vfs, int file, uint64_t size)
{
    (void)vfs;
    int result;
    /* Not posix_fallocate: where the file system can't, glibc would write every block, for long. */
    do {
        result = fallocate(file, 0, 0, (off_t)size);
    } while (result < 0 && errno == EINTR);
    if (result < 0) {
        return errno == ENOSYS ? -EOPNOTSUPP : -errno;
    }
    return 0;
}

static int posix_sync(const struct wal_vfs *vfs, int file)
{
    (void)vfs;
    /* EINTR is passed on: whether a second call would tell the truth is not known. */
    return fdatasync(file) < 0 ? -errno : 0;
}

static int posix_sync_dir(const struct wal_vfs *vfs, const char *path)
{
    (void)vfs;
    int result = 0;
    int file = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0) {
        return -errno;
    }
    if (fsync(file) < 0) {
        result = -errno;
    }
    close(file);
    return result;
}

static int posix_make_dir(const struct wal_vfs *vfs, const char *path)
{
    (void)vfs;
    return mkdir(path, 0750) < 0 ? -errno : 0;
}

static int posix_rename(const struct wal_vfs *vfs, const char *from, const char *to)
{
    (void)vfs;
    return rename(from, to) < 0 ? -errno : 0;
}

static int posix_unlink(const struct wal_vfs *vfs, const char *path)
{
    (void)vfs;
    return unlink(path) < 0 ? -errno : 0;
}

static int posix_list(const struct wal_vfs *vfs, const char *path, wal_list_fn *each, void *arg)
{
    (void)vfs;
    int result = 0;
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return -errno;
    }
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(dir);
        if (entry == NULL) {
            result = -errno;
            break;
        }
        result = each(arg, entry->d_name);
        if (result < 0) {
            break;
        }
    }
    closedir(dir);
    return result;
}

static int posix_lock(const struct wal_vfs *vfs, int file)
{
    (void)vfs;
    /* An open file description's lock: a second open in this same process is refused too. */
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(file, F_OFD_SETLK, &lock) < 0) {
        return errno == EACCES ? -EAGAIN : -errno;
    }
    return 0;
}

static int posix_map(const struct wal_vfs *vfs, int file, size_t size, bool write, void **memory)
{
    (void)vfs;
    int protection = write ? PROT_READ | PROT_WRITE : PROT_READ;
    void *mapped = mmap(NULL, size, protection, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) {
        return -errno;
    }
    *memory = mapped;
    return 0;
}

static int posix_unmap(const struct wal_vfs *vfs, void *memory, size_t size)
{
    (void)vfs;
    return munmap(memory, size) < 0 ? -errno : 0;
}

static int posix_wait(const struct wal_vfs *vfs, uint32_t *word, uint32_t expected,
                      int64_t timeout_ns)
{
    (void)vfs;
    struct timespec timeout = {.tv_sec = timeout_ns / 1000000000,
                               .tv_nsec = timeout_ns % 1000000000};
    long result = syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, NULL, 0);
    return result < 0 ? -errno : 0;
}

static int posix_wake(const struct wal_vfs *vfs, uint32_t *word)
{
    (void)vfs;
    long result = syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return result < 0 ? -errno : 0;
}

static int64_t posix_now_ns(const struct wal_vfs *vfs)
{
    (void)vfs;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t posix_wall_us(const struct wal_vfs *vfs)
{
    (void)vfs;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int posix_entropy(const struct wal_vfs *vfs, void *bytes, size_t count)
{
    (void)vfs;
    ssize_t got;
    do {
        got = getrandom(bytes, count, 0);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        return -errno;
    }
    return (size_t)got == count ? 0 : -EIO;
}

static int posix_boot_id(const struct wal_vfs *vfs, unsigned char id[16])
{
    (void)vfs;
    char text[64] = {0};
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return -errno;
    }
    ssize_t got = read(file, text, sizeof text - 1);
    int result = got < 0 ? -errno : 0;
    close(file);
    unsigned digits = 0;
    memset(id, 0, 16);
    for (const char *at = text; result == 0 && *at != '\0' && digits < 32; at++) {
        static const char hex[] = "0123456789abcdef";
        const char *digit = strchr(hex, *at);
        if (digit != NULL) {
            unsigned value = (unsigned)(digit - hex);
            id[digits / 2] = (unsigned char)((unsigned)id[digits / 2] << 4 | value);
            digits++;
        }
    }
    return result < 0 ? result : digits == 32 ? 0 : -EIO;
}

static const struct wal_vfs posix_vfs = {
    .open = posix_open,
    .close = posix_close,
    .status = posix_status,
    .pread = posix_pread,
    .pwritev = posix_pwritev,
    .truncate = posix_truncate,
    .allocate = posix_allocate,
    .sync = posix_sync,
    .sync_dir = posix_sync_dir,
    .make_dir = posix_make_dir,
    .rename = posix_rename,
    .unlink = posix_unlink,
    .list = posix_list,
    .lock = posix_lock,
    .map = posix_map,
    .unmap = posix_unmap,
    .wait = posix_wait,
    .wake = posix_wake,
    .now_ns = posix_now_ns,
    .wall_us = posix_wall_us,
    .entropy = posix_entropy,
    .boot_id = posix_boot_id,
};

const struct wal_vfs *wal_vfs_posix(void)
{
    return &posix_vfs;
}

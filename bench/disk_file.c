#include "disk_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"

#define SPIN_NS (50 * NS_PER_US)

static void fail(const char *what, int error)
{
    fprintf(stderr, "bench: %s: %s\n", what, strerror(error));
    exit(3);
}

/* All blocks allocated and written, so that no flush has to change the file's size or its map. */
static void fill(int fd, const char *path)
{
    enum { STEP = 1024 * 1024 };
    char *zeros = xcalloc(1, STEP);

    if (ftruncate(fd, 0) < 0)
        fail(path, errno);
    for (size_t done = 0; done < DISK_FILE_BYTES; done += STEP) {
        int rc = file_write_all(fd, zeros, STEP);

        if (rc < 0)
            fail(path, -rc);
    }
    free(zeros);
}

void disk_file_open(struct disk_file *file, const char *path, size_t record_max)
{
    struct stat status;

    memset(file, 0, sizeof(*file));
    file->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file->fd < 0 || fstat(file->fd, &status) < 0)
        fail(path, errno);
    if (status.st_size != DISK_FILE_BYTES)
        fill(file->fd, path);
    if (fsync(file->fd) < 0)
        fail(path, errno);
    file->record = xmalloc(record_max);
    file->record_max = record_max;
    memset(file->record, 'x', record_max);
}

void disk_file_append(struct disk_file *file, size_t bytes)
{
    if (bytes > file->record_max)
        bytes = file->record_max;
    if (file->at + bytes > DISK_FILE_BYTES)
        file->at = 0;
    if (pwrite(file->fd, file->record, bytes, (off_t)file->at) != (ssize_t)bytes)
        fail("write", errno);
    if (fdatasync(file->fd) < 0)
        fail("fdatasync", errno);
    file->at += bytes;
}

void disk_file_close(struct disk_file *file)
{
    close(file->fd);
    free(file->record);
}

void wait_until(int64_t mono_ns)
{
    int64_t wake_ns = mono_ns - SPIN_NS;
    struct timespec wake = {.tv_sec = wake_ns / NS_PER_S, .tv_nsec = wake_ns % NS_PER_S};

    if (wake_ns > clock_mono_ns())
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL) == EINTR)
            ;
    while (clock_mono_ns() < mono_ns)
        ;
}

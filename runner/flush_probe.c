#include "flush_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"

enum { FILE_WRITES = 64 }; /* the file holds that many writes, and is gone round */

static int write_at(int fd, const char *data, off_t at)
{
    ssize_t wrote = pwrite(fd, data, FLUSH_PROBE_WRITE_BYTES, at);
    if (wrote == FLUSH_PROBE_WRITE_BYTES)
        return 0;
    return wrote < 0 ? -errno : -ENOSPC;
}

/* Every block is there before the first flush that counts: none of those allocates anything. */
static int fill(int fd, const char *data)
{
    int rc = 0;
    for (off_t i = 0; rc == 0 && i < FILE_WRITES; i++)
        rc = write_at(fd, data, i * FLUSH_PROBE_WRITE_BYTES);
    return rc == 0 && fsync(fd) < 0 ? -errno : rc;
}

static int compare_durations(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static double rank_us(const int64_t *sorted, size_t count, size_t percent)
{
    size_t rank = (count * percent + 99) / 100; /* rounded up */
    return (double)sorted[rank - 1] / 1e3;
}

void flush_probe_rank(int64_t *durations_ns, size_t count, struct flush_probe *probe)
{
    qsort(durations_ns, count, sizeof(*durations_ns), compare_durations);
    *probe = (struct flush_probe){.n = count,
                                  .p50_us = rank_us(durations_ns, count, 50),
                                  .p99_us = rank_us(durations_ns, count, 99),
                                  .max_us = rank_us(durations_ns, count, 100)};
}

int flush_probe(const char *dir, int64_t limit_ns, struct flush_probe *probe, struct err *err)
{
    static int64_t durations_ns[FLUSH_PROBE_MAX];
    static char data[FLUSH_PROBE_WRITE_BYTES];
    char *path = xasprintf("%s/flush-probe", dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int rc = fd < 0 ? -errno : fill(fd, data);
    int64_t until_ns = clock_mono_ns() + limit_ns;
    size_t count = 0;
    while (rc == 0 && count < FLUSH_PROBE_MAX && (count == 0 || clock_mono_ns() < until_ns)) {
        data[0]++;
        int64_t began_ns = clock_mono_ns();
        rc = write_at(fd, data, (off_t)(count % FILE_WRITES) * FLUSH_PROBE_WRITE_BYTES);
        if (rc == 0 && fdatasync(fd) < 0)
            rc = -errno;
        durations_ns[count++] = clock_mono_ns() - began_ns;
    }
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
    if (rc < 0)
        err_set(err, rc, "flushes of %s cannot be timed: %s", path, strerror(-rc));
    else
        flush_probe_rank(durations_ns, count, probe);
    free(path);
    return rc;
}

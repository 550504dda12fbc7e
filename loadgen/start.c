#include "start.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"

/* The file comes through a shared folder, where inotify does not reach every file system. */
enum { LOOK_MS = 20, FILE_MAX_BYTES = 64 };

static int parse(const char *path, const char *text, int64_t *start_us, struct err *err)
{
    char *end;
    errno = 0;
    *start_us = strtoll(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || errno != 0 || (strcmp(end, "\n") != 0 && *end != '\0'))
        return err_set(err, -EINVAL,
                       "%s is no start file: its only line must be a unix time in microseconds",
                       path);
    return 0;
}

int start_file_wait(const char *path, int64_t wait_ns, int stop_fd, int64_t *start_us,
                    struct err *err)
{
    int64_t deadline_ns = clock_mono_ns() + wait_ns;
    struct buf text = {0};
    int rc;
    while ((rc = file_read(path, FILE_MAX_BYTES, &text, err)) == -ENOENT) {
        struct pollfd stop = {.fd = stop_fd, .events = POLLIN};
        if (poll(&stop, 1, LOOK_MS) > 0) {
            buf_free(&text);
            return 1;
        }
        if (clock_mono_ns() >= deadline_ns)
            return err_set(err, -ETIMEDOUT,
                           "nobody wrote %s within %lld s: see why whoever starts the load did "
                           "not, or raise --start-wait",
                           path, (long long)(wait_ns / NS_PER_S));
    }
    if (rc == 0)
        rc = parse(path, text.data ? text.data : "", start_us, err);
    buf_free(&text);
    return rc;
}

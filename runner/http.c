#include "http.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

enum { ANSWER_MAX = 1024 * 1024, HOST_BYTES = 256 };

/* 0 when fd is ready for events before the deadline. */
static int wait_for(int fd, short events, int64_t deadline_ns)
{
    for (;;) {
        int64_t left_ms = (deadline_ns - clock_mono_ns()) / NS_PER_MS;
        if (left_ms <= 0) {
            return -ETIMEDOUT;
        }
        struct pollfd item = {.fd = fd, .events = events};
        int rc = poll(&item, 1, (int)left_ms);
        if (rc > 0) {
            return 0;
        }
        if (rc < 0 && errno != EINTR) {
            return -errno;
        }
    }
}

/* Where the port begins, behind the last colon; NULL: `address` is no HOST:PORT. */
static const char *port_of(const char *address)
{
    const char *colon = strrchr(address, ':');
    if (!colon || colon == address || colon - address >= HOST_BYTES || colon[1] < '1' ||
        colon[1] > '9') {
        return NULL;
    }
    char *end;
    long port = strtol(colon + 1, &end, 10);
    return *end == '\0' && port <= 65535 ? colon + 1 : NULL;
}

int http_address_check(const char *address, struct err *err)
{
    if (!port_of(address)) {
        return err_set(err, -EINVAL, "\"%s\" is no HOST:PORT, such as api:9101", address);
    }
    return 0;
}

static int look_up(const char *address, struct addrinfo **found)
{
    const char *port = port_of(address);
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    char host[HOST_BYTES];
    if (!port) {
        return -EINVAL;
    }
    const char *begin = address, *end = port - 1;
    if (*begin == '[' && end[-1] == ']') {
        begin++;
        end--;
    }
    snprintf(host, sizeof(host), "%.*s", (int)(end - begin), begin);
    return getaddrinfo(host, port, &hints, found) == 0 ? 0 : -EHOSTUNREACH;
}

static int dial_one(const struct addrinfo *at, int64_t deadline_ns)
{
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -errno;
    }
    int rc = 0, failure = 0;
    socklen_t len = sizeof(failure);
    if (connect(fd, at->ai_addr, at->ai_addrlen) < 0) {
        rc = errno == EINPROGRESS ? wait_for(fd, POLLOUT, deadline_ns) : -errno;
    }
    if (rc == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &len) == 0) {
        rc = -failure;
    }
    if (rc < 0) {
        close(fd);
        return rc;
    }
    return fd;
}

static int dial(const char *address, int64_t deadline_ns)
{
    struct addrinfo *found = NULL;
    int fd = look_up(address, &found);
    if (fd < 0) {
        return fd;
    }
    fd = -EHOSTUNREACH;
    for (const struct addrinfo *at = found; at && fd < 0; at = at->ai_next) {
        fd = dial_one(at, deadline_ns);
    }
    freeaddrinfo(found);
    return fd;
}

static int send_all(int fd, const struct buf *request, int64_t deadline_ns)
{
    for (size_t sent = 0; sent < request->len;) {
        ssize_t now = send(fd, request->data + sent, request->len - sent, MSG_NOSIGNAL);
        if (now >= 0) {
            sent += (size_t)now;
        } else if (errno == EAGAIN) {
            int rc = wait_for(fd, POLLOUT, deadline_ns);
            if (rc < 0) {
                return rc;
            }
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

/* Up to the end of the connection: the request said Connection: close. */
static int read_all(int fd, struct buf *answer, int64_t deadline_ns)
{
    for (;;) {
        char chunk[4096];
        ssize_t got = recv(fd, chunk, sizeof(chunk), 0);
        if (got == 0) {
            return 0;
        }
        if (got > 0) {
            buf_append(answer, chunk, (size_t)got);
            if (answer->len > ANSWER_MAX) {
                return -EPROTO;
            }
        } else if (errno == EAGAIN) {
            int rc = wait_for(fd, POLLIN, deadline_ns);
            if (rc < 0) {
                return rc;
            }
        } else if (errno != EINTR) {
            return -errno;
        }
    }
}

static int exchange(const char *address, const struct buf *request, int timeout_ms,
                    struct buf *body)
{
    int64_t deadline_ns = clock_mono_ns() + timeout_ms * NS_PER_MS;
    int fd = dial(address, deadline_ns);
    if (fd < 0) {
        return fd;
    }
    struct buf answer = {0};
    int status = 0;
    int rc = send_all(fd, request, deadline_ns);
    if (rc == 0) {
        rc = read_all(fd, &answer, deadline_ns);
    }
    close(fd);
    if (rc == 0 && (!answer.data || sscanf(answer.data, "HTTP/1.%*1[01] %3d ", &status) != 1)) {
        rc = -EPROTO;
    }
    const char *end = rc == 0 ? strstr(answer.data, "\r\n\r\n") : NULL;
    if (rc == 0 && !end) {
        rc = -EPROTO;
    }
    if (rc == 0 && body) {
        buf_puts(body, end + 4);
    }
    buf_free(&answer);
    return rc < 0 ? rc : status;
}

int http_get(const char *address, const char *path, int timeout_ms, struct buf *answer)
{
    struct buf request = {0};
    buf_printf(&request, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, address);
    int rc = exchange(address, &request, timeout_ms, answer);
    buf_free(&request);
    return rc;
}

int http_post(const char *address, const char *path, const void *body, size_t len, int timeout_ms,
              struct buf *answer)
{
    struct buf request = {0};
    buf_printf(&request,
               "POST %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n"
               "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
               path, address, len);
    buf_append(&request, body, len);
    int rc = exchange(address, &request, timeout_ms, answer);
    buf_free(&request);
    return rc;
}

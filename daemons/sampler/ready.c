#include "ready.h"

#include <errno.h>
#include <libpq-fe.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ANSWER_TIMEOUT_US = 500000 };

static const struct {
    const char *name;
    enum ready_kind kind;
} kinds[] = {
    {"tcp:", READY_TCP},
    {"http:", READY_HTTP},
    {"postgres:", READY_POSTGRES},
    {"valkey:", READY_VALKEY},
};

int ready_parse(const char *text, struct ready *ready, struct err *err)
{
    *ready = (struct ready){.path = "/readyz"};
    const char *address = NULL;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strncmp(text, kinds[i].name, strlen(kinds[i].name)) != 0)
            continue;
        ready->kind = kinds[i].kind;
        address = text + strlen(kinds[i].name);
    }
    size_t len = address ? strcspn(address, "/") : 0;
    const char *colon = address ? memrchr(address, ':', len) : NULL;
    size_t host_bytes = colon ? (size_t)(colon - address) : 0;
    size_t port_bytes = colon ? len - host_bytes - 1 : 0;
    bool path_fits =
        address && (address[len] == '\0' ||
                    (ready->kind == READY_HTTP && strlen(address + len) < sizeof(ready->path)));
    if (host_bytes == 0 || host_bytes >= sizeof(ready->host) || port_bytes == 0 ||
        port_bytes >= sizeof(ready->port) || strspn(colon + 1, "0123456789") != port_bytes ||
        atoi(colon + 1) > 65535 || !path_fits)
        return err_set(err, -EINVAL,
                       "--ready=%s: it takes tcp:HOST:PORT, http:HOST:PORT/PATH, "
                       "postgres:HOST:PORT or valkey:HOST:PORT",
                       text);
    memcpy(ready->host, address, host_bytes);
    memcpy(ready->port, colon + 1, port_bytes);
    if (address[len] != '\0')
        memcpy(ready->path, address + len, strlen(address + len) + 1);
    return 0;
}

/* A connected socket whose calls end in time; -1: there is nobody. */
static int dial(const struct ready *ready)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    struct timeval limit = {.tv_usec = ANSWER_TIMEOUT_US};
    int fd = -1;
    if (getaddrinfo(ready->host, ready->port, &hints, &found) != 0)
        return -1;
    for (const struct addrinfo *at = found; at && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)); /* for connect, too */
        if (connect(fd, at->ai_addr, at->ai_addrlen) < 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    return fd;
}

/* The beginning of the answer, NUL-terminated. */
static bool ask(int fd, const char *question, char *answer, size_t answer_bytes)
{
    size_t len = strlen(question), got = 0;
    if (send(fd, question, len, MSG_NOSIGNAL) != (ssize_t)len)
        return false;
    while (got + 1 < answer_bytes) {
        ssize_t more = recv(fd, answer + got, answer_bytes - 1 - got, 0);
        if (more <= 0)
            break;
        got += (size_t)more;
        answer[got] = '\0';
        if (strchr(answer, '\n'))
            break;
    }
    answer[got] = '\0';
    return got > 0;
}

static bool postgres_ready(const struct ready *ready)
{
    const char *const keys[] = {"host", "port", "connect_timeout", "dbname", "user", NULL};
    /* Nobody logs in; but libpq asks the system for a user when none is named. */
    const char *const values[] = {ready->host, ready->port, "2", "postgres", "postgres", NULL};
    return PQpingParams(keys, values, 0) == PQPING_OK;
}

bool ready_now(const struct ready *ready)
{
    char question[256], answer[256];
    if (ready->kind == READY_POSTGRES)
        return postgres_ready(ready);
    int fd = dial(ready);
    bool good = fd >= 0;
    if (good && ready->kind == READY_HTTP) {
        snprintf(question, sizeof(question),
                 "GET %s HTTP/1.1\r\nHost: sampler\r\nConnection: close\r\n\r\n", ready->path);
        good = ask(fd, question, answer, sizeof(answer)) && strncmp(answer, "HTTP/1.", 7) == 0 &&
               strncmp(answer + 8, " 200 ", 5) == 0;
    }
    /* One that wants a password is ready for those who have it. */
    if (good && ready->kind == READY_VALKEY)
        good = ask(fd, "PING\r\n", answer, sizeof(answer)) &&
               (strncmp(answer, "+PONG", 5) == 0 || strncmp(answer, "-NOAUTH", 7) == 0);
    if (fd >= 0)
        close(fd);
    return good;
}

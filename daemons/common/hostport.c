#include "common/hostport.h"

#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void name_of(struct hostport *hostport)
{
    char host[64] = "?";
    char port[8] = "?";
    getnameinfo((const struct sockaddr *)&hostport->address, hostport->address_bytes, host,
                sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
    bool brackets = hostport->address.ss_family == AF_INET6;
    snprintf(hostport->text, sizeof(hostport->text), "%s%s%s:%s", brackets ? "[" : "", host,
             brackets ? "]" : "", port);
}

/* A decimal number of 0..65535 and nothing else: getaddrinfo would take service names and signs. */
static bool port_is_good(const char *text)
{
    unsigned long port = 0;
    size_t digits = 0;
    for (; text[digits] >= '0' && text[digits] <= '9' && digits < 6; digits++) {
        port = 10 * port + (unsigned long)(text[digits] - '0');
    }
    return digits > 0 && text[digits] == '\0' && port <= 65535;
}

int hostport_parse(const char *text, struct hostport *hostport, struct err *err)
{
    memset(hostport, 0, sizeof(*hostport));
    const char *colon = strrchr(text, ':');
    char host[256];
    size_t host_bytes = colon ? (size_t)(colon - text) : 0;
    const char *start = text;
    if (host_bytes >= 2 && text[0] == '[' && text[host_bytes - 1] == ']') {
        start++;
        host_bytes -= 2;
    } else if (colon && memchr(text, ':', host_bytes)) {
        host_bytes = 0; /* an IPv6 address without brackets is ambiguous */
    }
    if (host_bytes == 0 || host_bytes >= sizeof(host) || !port_is_good(colon + 1)) {
        return err_set(err, -EINVAL, "\"%s\" is no address: write HOST:PORT, like 127.0.0.1:8080",
                       text);
    }
    memcpy(host, start, host_bytes);
    host[host_bytes] = '\0';
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(host, colon + 1, &hints, &found);
    if (rc != 0) {
        return err_set(err, -EINVAL, "\"%s\": the host can't be resolved (%s)", text,
                       gai_strerror(rc));
    }
    memcpy(&hostport->address, found->ai_addr, found->ai_addrlen);
    hostport->address_bytes = found->ai_addrlen;
    freeaddrinfo(found);
    name_of(hostport);
    return 0;
}

int hostport_listen(struct hostport *hostport, const char *flag, struct err *err)
{
    int fd = socket(hostport->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(fd, (const struct sockaddr *)&hostport->address, hostport->address_bytes) < 0 ||
        listen(fd, SOMAXCONN) < 0) {
        int rc = -errno;
        if (fd >= 0) {
            close(fd);
        }
        return err_set(err, rc, "cannot listen on %s: %s; choose another address with --%s",
                       hostport->text, strerror(-rc), flag);
    }
    hostport->address_bytes = sizeof(hostport->address);
    getsockname(fd, (struct sockaddr *)&hostport->address, &hostport->address_bytes);
    name_of(hostport);
    return fd;
}

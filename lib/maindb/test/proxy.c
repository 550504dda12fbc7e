/* proxy.c: see proxy.h. The server must be on 127.0.0.1. */
#include "proxy.h"

#include <arpa/inet.h>
#include <assert.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"

enum { LIMIT_MS = 20000 };

/* to < 0: keeps it. */
static ssize_t pass_on(int from, int to, char *bytes, size_t size)
{
    ssize_t len = recv(from, bytes, size, 0);
    return len > 0 && to >= 0 ? send(to, bytes, (size_t)len, MSG_NOSIGNAL) : len;
}

static void serve(struct proxy *proxy, int client, int server)
{
    char bytes[65536];
    bool asked = false;
    struct pollfd polled[] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
    while (poll(polled, 2, LIMIT_MS) > 0) {
        if (polled[0].revents) {
            ssize_t len = pass_on(client, server, bytes, sizeof(bytes));
            if (len <= 0) {
                return;
            }
            asked = asked || memmem(bytes, (size_t)len, proxy->pattern, proxy->pattern_bytes);
        }
        if (polled[1].revents) {
            if (pass_on(server, asked ? -1 : client, bytes, sizeof(bytes)) <= 0) {
                return;
            }
            if (asked) {
                proxy->lost++;
                return;
            }
        }
    }
}

static void *proxy_thread(void *arg)
{
    struct proxy *proxy = arg;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)proxy->server_port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int client = accept(proxy->listener, NULL, NULL);
    int server = socket(AF_INET, SOCK_STREAM, 0);
    if (client >= 0 && connect(server, (struct sockaddr *)&address, sizeof(address)) == 0) {
        serve(proxy, client, server);
    }
    close(client);
    close(server);
    return NULL;
}

void proxy_start(struct proxy *proxy, const struct testdb *db, const char *pattern,
                 size_t pattern_bytes)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t address_bytes = sizeof(address);
    *proxy = (struct proxy){.pattern = pattern,
                            .pattern_bytes = pattern_bytes,
                            .server_port = atoi(PQport(db->conn)),
                            .listener = socket(AF_INET, SOCK_STREAM, 0)};
    int rc = bind(proxy->listener, (struct sockaddr *)&address, address_bytes);
    assert(rc == 0);
    rc = listen(proxy->listener, 1);
    assert(rc == 0);
    getsockname(proxy->listener, (struct sockaddr *)&address, &address_bytes);
    proxy->url = xasprintf("%s host='127.0.0.1' port='%d' sslmode=disable gssencmode=disable",
                           db->url, ntohs(address.sin_port));
    rc = pthread_create(&proxy->thread, NULL, proxy_thread, proxy);
    assert(rc == 0);
}

int proxy_end(struct proxy *proxy)
{
    pthread_join(proxy->thread, NULL);
    close(proxy->listener);
    free(proxy->url);
    return proxy->lost;
}

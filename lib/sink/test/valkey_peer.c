#include "valkey_peer.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINKS = 64, CHUNK = 4096 };

struct link {
    int client, server; /* server -1: fake */
    unsigned number;
    redisReader *reader;
    long up_left, down_left; /* -1: no limit */
};

struct peer {
    int listener, port, server_port;
    peer_answer_fn *answer;
    void *arg;
    pthread_t thread;
    atomic_bool ending, stalled, by_bytes;
    atomic_long up_bytes, down_bytes;
    atomic_uint accepted;
    struct link links[LINKS];
};

static int loopback(int port, bool listening)
{
    const int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = listening ? bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 16)
                       : connect(fd, (struct sockaddr *)&address, sizeof(address));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (rc != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void end_link(struct link *link)
{
    close(link->client);
    if (link->server >= 0) {
        close(link->server);
    }
    if (link->reader) {
        redisReaderFree(link->reader);
    }
    link->client = -1;
}

/* false: it could not be written, or the limit is reached. */
static bool pass(int to, const char *bytes, size_t len, long *left)
{
    size_t allowed = *left >= 0 && (size_t)*left < len ? (size_t)*left : len;
    *left -= *left >= 0 ? (long)allowed : 0;
    for (size_t done = 0; done < allowed;) {
        ssize_t wrote = send(to, bytes + done, allowed - done, MSG_NOSIGNAL);
        if (wrote <= 0) {
            return false;
        }
        done += (size_t)wrote;
    }
    return *left != 0;
}

static bool answer_all(struct peer *peer, struct link *link, const char *bytes, size_t len)
{
    bool end = false;
    if (redisReaderFeed(link->reader, bytes, len) != REDIS_OK) {
        return false;
    }
    for (;;) {
        void *command = NULL;
        struct buf out = {0};
        if (redisReaderGetReply(link->reader, &command) != REDIS_OK) {
            return false;
        }
        if (!command) {
            return true;
        }
        peer->answer(peer->arg, link->number, command, &out, &end);
        freeReplyObject(command);
        bool going = true;
        for (size_t at = 0; going && at < out.len;) {
            size_t some = peer->by_bytes ? 1 : out.len - at;
            going = pass(link->client, out.data + at, some, &link->down_left);
            at += some;
            if (peer->by_bytes) {
                usleep(200);
            }
        }
        buf_free(&out);
        if (end || !going) {
            return false;
        }
    }
}

static void serve(struct peer *peer, struct link *link, bool from_client)
{
    char bytes[CHUNK];
    ssize_t got = recv(from_client ? link->client : link->server, bytes, sizeof(bytes), 0);
    bool going = got > 0;
    if (going && !from_client) {
        going = pass(link->client, bytes, (size_t)got, &link->down_left);
    } else if (going && link->server >= 0) {
        going = pass(link->server, bytes, (size_t)got, &link->up_left);
    } else if (going) {
        going = answer_all(peer, link, bytes, (size_t)got);
    }
    if (!going) {
        end_link(link);
    }
}

static void accept_one(struct peer *peer)
{
    const int on = 1;
    int fd = accept4(peer->listener, NULL, NULL, SOCK_CLOEXEC);
    for (int i = 0; fd >= 0 && i < LINKS; i++) {
        struct link *link = &peer->links[i];
        if (link->client >= 0) {
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        *link = (struct link){.client = fd,
                              .server = -1,
                              .number = peer->accepted++,
                              .up_left = peer->up_bytes,
                              .down_left = peer->down_bytes};
        if (peer->answer) {
            link->reader = redisReaderCreate();
        } else {
            link->server = loopback(peer->server_port, false);
            if (link->server < 0) {
                end_link(link);
            }
        }
        return;
    }
    if (fd >= 0) {
        close(fd);
    }
}

static void *run(void *arg)
{
    struct peer *peer = arg;
    while (!peer->ending) {
        struct pollfd polled[1 + 2 * LINKS];
        polled[0] = (struct pollfd){.fd = peer->listener, .events = POLLIN};
        for (int i = 0; i < LINKS; i++) {
            bool there = peer->links[i].client >= 0 && !peer->stalled;
            polled[1 + 2 * i] =
                (struct pollfd){.fd = there ? peer->links[i].client : -1, .events = POLLIN};
            polled[2 + 2 * i] =
                (struct pollfd){.fd = there ? peer->links[i].server : -1, .events = POLLIN};
        }
        if (poll(polled, 1 + 2 * LINKS, 5) <= 0) {
            continue;
        }
        for (int i = 0; i < LINKS; i++) {
            if (polled[1 + 2 * i].revents) {
                serve(peer, &peer->links[i], true);
            }
            if (polled[2 + 2 * i].revents && peer->links[i].client >= 0) {
                serve(peer, &peer->links[i], false);
            }
        }
        if (polled[0].revents) {
            accept_one(peer);
        }
    }
    return NULL;
}

static struct peer *peer_new(void)
{
    struct peer *peer = xcalloc(1, sizeof(*peer));
    struct sockaddr_in address = {0};
    socklen_t len = sizeof(address);
    peer->listener = loopback(0, true);
    assert(peer->listener >= 0);
    getsockname(peer->listener, (struct sockaddr *)&address, &len);
    peer->port = ntohs(address.sin_port);
    peer->up_bytes = peer->down_bytes = -1;
    for (int i = 0; i < LINKS; i++) {
        peer->links[i].client = -1;
    }
    return peer;
}

static struct peer *peer_begin(struct peer *peer)
{
    int rc = pthread_create(&peer->thread, NULL, run, peer);
    assert(rc == 0);
    return peer;
}

struct peer *peer_fake(peer_answer_fn *answer, void *arg)
{
    struct peer *peer = peer_new();
    peer->answer = answer;
    peer->arg = arg;
    return peer_begin(peer);
}

struct peer *peer_proxy(int server_port)
{
    struct peer *peer = peer_new();
    peer->server_port = server_port;
    return peer_begin(peer);
}

int peer_port(const struct peer *peer)
{
    return peer->port;
}

unsigned peer_accepted(struct peer *peer)
{
    return peer->accepted;
}

void peer_cut_after(struct peer *peer, long up_bytes, long down_bytes)
{
    peer->up_bytes = up_bytes;
    peer->down_bytes = down_bytes;
}

void peer_stall(struct peer *peer, bool stalled)
{
    peer->stalled = stalled;
}

void peer_by_bytes(struct peer *peer)
{
    peer->by_bytes = true;
}

void peer_end(struct peer *peer)
{
    peer->ending = true;
    pthread_join(peer->thread, NULL);
    for (int i = 0; i < LINKS; i++) {
        if (peer->links[i].client >= 0) {
            end_link(&peer->links[i]);
        }
    }
    close(peer->listener);
    free(peer);
}

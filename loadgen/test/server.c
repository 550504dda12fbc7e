#include "server.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"

enum { CONNECTIONS_MAX = 512 };

struct connection {
    struct server *server;
    pthread_t thread;
    unsigned number;
    int fd; /* -1 once closed */
};

struct server {
    server_script *script;
    void *arg;
    pthread_mutex_t listening; /* for the accepter's start and end, which any thread may ask for */
    pthread_t accepter;
    bool accepting;
    int listen_fd;
    int port;
    pthread_mutex_t lock; /* for all below */
    pthread_cond_t changed;
    struct connection connections[CONNECTIONS_MAX];
    unsigned accepted, open, open_max, requests;
    bool stopping;
};

static int listen_on(int port, int *bound_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 256) < 0) {
        perror("test server: listen");
        abort();
    }
    getsockname(fd, (struct sockaddr *)&address, &len);
    *bound_port = ntohs(address.sin_port);
    return fd;
}

/* One request into in; leaves what follows it. false at the connection's end. */
static bool read_request(int fd, struct buf *in, struct buf *request)
{
    for (;;) {
        char bytes[64 * 1024];
        const char *head_end = in->len ? memmem(in->data, in->len, "\r\n\r\n", 4) : NULL;
        ssize_t n;

        if (head_end) {
            const char *length = memmem(in->data, in->len, "Content-Length: ", 16);
            size_t total =
                (size_t)(head_end - in->data) + 4 + (length ? strtoul(length + 16, NULL, 10) : 0);

            if (in->len >= total) {
                buf_clear(request);
                buf_append(request, in->data, total);
                memmove(in->data, in->data + total, in->len - total);
                in->len -= total;
                return true;
            }
        }
        n = recv(fd, bytes, sizeof(bytes), 0);
        if (n <= 0)
            return false;
        buf_append(in, bytes, (size_t)n);
    }
}

static void *connection_main(void *arg)
{
    struct connection *c = arg;
    struct server *server = c->server;
    struct buf in = {0}, bytes = {0};
    bool goes_on = true;

    while (goes_on && read_request(c->fd, &in, &bytes)) {
        struct server_request request = {
            .server = server, .fd = c->fd, .connection = c->number, .arg = server->arg};
        const char *id = memmem(bytes.data, bytes.len, "{\"id\":\"", 7);

        if (id)
            memcpy(request.id, id + 7, 36);
        pthread_mutex_lock(&server->lock);
        request.number = ++server->requests;
        pthread_cond_broadcast(&server->changed);
        pthread_mutex_unlock(&server->lock);
        goes_on = server->script(&request);
    }
    pthread_mutex_lock(&server->lock);
    close(c->fd);
    c->fd = -1;
    server->open--;
    pthread_mutex_unlock(&server->lock);
    buf_free(&in);
    buf_free(&bytes);
    return NULL;
}

static void *accept_main(void *arg)
{
    struct server *server = arg;
    int fd;

    while ((fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        struct connection *c;

        pthread_mutex_lock(&server->lock);
        assert(server->accepted < CONNECTIONS_MAX);
        c = &server->connections[server->accepted++];
        c->server = server;
        c->number = server->accepted;
        c->fd = fd;
        if (++server->open > server->open_max)
            server->open_max = server->open;
        pthread_mutex_unlock(&server->lock);
        if (pthread_create(&c->thread, NULL, connection_main, c) != 0)
            abort();
    }
    return NULL;
}

static void accept_start(struct server *server)
{
    server->accepting = true;
    if (pthread_create(&server->accepter, NULL, accept_main, server) != 0)
        abort();
}

static void accept_stop(struct server *server)
{
    if (!server->accepting)
        return;
    shutdown(server->listen_fd, SHUT_RDWR); // wakes accept()
    pthread_join(server->accepter, NULL);
    close(server->listen_fd);
    server->accepting = false;
}

struct server *server_start(server_script *script, void *arg)
{
    struct server *server = xcalloc(1, sizeof(*server));

    server->script = script;
    server->arg = arg;
    pthread_mutex_init(&server->listening, NULL);
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->changed, NULL);
    server->listen_fd = listen_on(0, &server->port);
    accept_start(server);
    return server;
}

void server_close_others(struct server *server, int but)
{
    pthread_mutex_lock(&server->lock);
    for (unsigned i = 0; i < server->accepted; i++)
        if (server->connections[i].fd >= 0 && server->connections[i].fd != but)
            shutdown(server->connections[i].fd, SHUT_RDWR);
    pthread_mutex_unlock(&server->lock);
}

void server_vanish(struct server *server, int but)
{
    pthread_mutex_lock(&server->listening);
    accept_stop(server);
    pthread_mutex_unlock(&server->listening);
    server_close_others(server, but);
}

void server_return(struct server *server)
{
    int port;

    pthread_mutex_lock(&server->listening);
    server->listen_fd = listen_on(server->port, &port);
    accept_start(server);
    pthread_mutex_unlock(&server->listening);
}

void server_stop(struct server *server)
{
    pthread_mutex_lock(&server->lock);
    server->stopping = true;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
    server_vanish(server, -1);
    for (unsigned i = 0; i < server->accepted; i++)
        pthread_join(server->connections[i].thread, NULL);
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->lock);
    pthread_mutex_destroy(&server->listening);
    free(server);
}

int server_port(const struct server *server)
{
    return server->port;
}

static unsigned locked(struct server *server, const unsigned *value)
{
    unsigned copy;

    pthread_mutex_lock(&server->lock);
    copy = *value;
    pthread_mutex_unlock(&server->lock);
    return copy;
}

unsigned server_requests(struct server *server)
{
    return locked(server, &server->requests);
}

unsigned server_connections(struct server *server)
{
    return locked(server, &server->accepted);
}

unsigned server_connections_max(struct server *server)
{
    return locked(server, &server->open_max);
}

bool server_await(struct server *server, unsigned requests)
{
    struct timespec until;
    bool reached;
    int rc = 0;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    pthread_mutex_lock(&server->lock);
    while (server->requests < requests && !server->stopping && rc == 0)
        rc = pthread_cond_timedwait(&server->changed, &server->lock, &until);
    reached = server->requests >= requests;
    pthread_mutex_unlock(&server->lock);
    return reached;
}

void answer_bytes(struct server_request *request, const char *text)
{
    if (send(request->fd, text, strlen(text), MSG_NOSIGNAL) < 0)
        return; // the client has gone: its test decides whether it should have
}

void answer_id(struct server_request *request, int code, const char *id)
{
    char text[256];

    snprintf(text, sizeof(text),
             "HTTP/1.1 %d Whatever\r\nContent-Type: application/json\r\nContent-Length: 45\r\n\r\n"
             "{\"id\":\"%s\"}",
             code, id);
    answer_bytes(request, text);
}

bool script_durable(struct server_request *request)
{
    answer_id(request, 202, request->id);
    return true;
}

bool script_hang(struct server_request *request)
{
    pthread_mutex_lock(&request->server->lock);
    while (!request->server->stopping)
        pthread_cond_wait(&request->server->changed, &request->server->lock);
    pthread_mutex_unlock(&request->server->lock);
    return false;
}

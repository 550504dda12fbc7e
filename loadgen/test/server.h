/* server.h: a scripted HTTP server inside a test, one thread for each connection, on 127.0.0.1. */
#ifndef SLUICE_LOADGEN_TEST_SERVER_H
#define SLUICE_LOADGEN_TEST_SERVER_H

#include <stdbool.h>

struct server;

/* One request, in the connection's thread. number: 1 for the first the server got, on any
 * connection. */
struct server_request {
    struct server *server;
    int fd;
    unsigned number;
    unsigned connection; /* 1 for the first accepted */
    char id[37];         /* the task's, from the body */
    void *arg;
};

/* Writes whatever it likes to request->fd. false: close the connection. */
typedef bool server_script(struct server_request *request);

struct server *server_start(server_script *script, void *arg);
void server_stop(struct server *server); /* closes everything, joins all threads */

int server_port(const struct server *server);
unsigned server_requests(struct server *server);        /* complete ones so far */
unsigned server_connections(struct server *server);     /* accepted so far */
unsigned server_connections_max(struct server *server); /* open at once, at most */

/* Stops listening and cuts every connection but `but` (a descriptor, -1: none); dials are refused.
 */
void server_vanish(struct server *server, int but);
void server_return(struct server *server); /* listens again, same port */

void server_close_others(struct server *server, int but);
/* Waits until that many requests were received, at most 20 s; false: they were not. */
bool server_await(struct server *server, unsigned requests);

/* Answers. */
void answer_id(struct server_request *request, int code, const char *id);
void answer_bytes(struct server_request *request, const char *text);
bool script_durable(struct server_request *request); /* 202 with the right id */
bool script_hang(struct server_request *request);    /* no answer until the server stops */

#endif

/* client.h: starts the real server and speaks to it in raw bytes. For tests: asserts on failure. */
#ifndef SLUICE_API_TEST_CLIENT_H
#define SLUICE_API_TEST_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"

enum { PATIENCE_MS = 10000 }; /* waiting for longer is a failure; nothing is measured against it */

struct server {
    pid_t pid;
    char address[64]; /* "127.0.0.1:34567" */
    char admin[64];
    struct buf log; /* its standard error so far */
    int log_fd;
};

/* arguments: NULL-terminated, without --listen and --admin. Waits until it serves. */
void server_start(struct server *server, const char *binary, const char *const arguments[]);
/* SIGTERM; it must exit 0. */
void server_stop(struct server *server);
int server_wait(struct server *server); /* its exit code; reads the log to its end */

/* Runs a program that must end by itself: its exit code, and its standard error. */
int run_to_end(const char *binary, const char *const arguments[], struct buf *errors);

extern unsigned long
    spawn_files_max; /* hard limit of open files for what is started; 0: as it is */

struct response {
    int code; /* 0: the connection ended without one */
    struct buf head;
    struct buf body;
};
void response_free(struct response *response);

int client_connect(const char *address);
void client_send(int fd, const void *bytes, size_t len); /* a lost connection is no failure here */
/* Reads one response; head_only for HEAD and 100. */
void client_receive(int fd, struct response *response, bool head_only);
bool client_is_closed(int fd); /* waits until the server ends the connection */

/* One whole exchange on a connection of its own. */
void client_ask(const char *address, const char *request, struct response *response);

/* "POST /task" with {"payload":"TEXT"}; belongs to the caller. */
char *post_payload(const char *text);

/* A figure of /metrics, by its name with labels. */
double metric(const struct server *server, const char *name);
void wait_for_metric(const struct server *server, const char *name, double value);

#endif

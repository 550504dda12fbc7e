/* control.h: a socket on which a command below `sluice with` kills, pauses and restarts a server.
 *
 * A client connects, writes one line (kill, start, pause, resume or stop) and reads one line, once
 * it is done: "ok", or "error: " and a sentence. What is so already is ok. start waits until the
 * server takes requests. Only processes of our own user can connect.
 *
 * Not thread-safe: one thread opens, serves and closes.
 */
#ifndef SLUICE_RUNNER_CONTROL_H
#define SLUICE_RUNNER_CONTROL_H

#include <stddef.h>

#include "base/err.h"
#include "server.h"

struct control {
    struct server *server; /* borrowed */
    char *path;            /* of the socket */
    int fd;
};

/* Makes DIR/NAME.control for the server. -ENAMETOOLONG: the path does not fit in a socket address
 * (107 bytes). */
int control_open(struct control *control, struct server *server, const char *dir, const char *name,
                 struct err *err);
/* Waits up to wait_ms for a line on any of them, and does what it says. */
void control_serve(const struct control *const *controls, size_t count, int wait_ms);
void control_close(struct control *control); /* also one that is all zero */

#endif

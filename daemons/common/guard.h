/* guard.h: absolute deadlines for the connections of one libmicrohttpd daemon.
 *
 * MHD_OPTION_CONNECTION_TIMEOUT only ends connections that are idle: one byte now and then keeps a
 * request open for ever. A guard keeps a list of all connections and shuts the socket of each whose
 * request is not complete in time; MHD then sees the end and cleans up. Idle connections are left
 * to MHD's own timeout.
 *
 * Embed struct guarded as the first member of a struct for each connection, hand it to guard_add
 * when MHD reports a connection started and to guard_remove when it is closed. One thread: MHD's.
 */
#ifndef SLUICE_COMMON_GUARD_H
#define SLUICE_COMMON_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum guarded_state {
    GUARDED_BETWEEN, /* no request, or its header still coming */
    GUARDED_BODY,    /* header read, body coming */
    GUARDED_WAITING, /* request complete: the server's turn, no deadline here */
};

struct guarded {
    struct guarded *previous, *next;
    int fd;
    enum guarded_state state;
    bool fresh;          /* nothing was looked at since the last change of state */
    bool shut;           /* the guard has ended it */
    bool half_closed;    /* the peer had sent its last byte when it was last looked at */
    uint64_t bytes_seen; /* received from the peer when it was last looked at between requests */
    int64_t since_ns; /* BODY: since when; BETWEEN: when bytes of a header were first seen, or 0 */
};

struct guard {
    struct guarded *first;
    size_t count;
    int64_t request_ns; /* for the header, and again for the body */
};

void guard_init(struct guard *guard, int64_t request_ns);
void guard_add(struct guard *guard, struct guarded *connection, int fd);
void guard_remove(struct guard *guard, struct guarded *connection);
void guard_between(struct guarded *connection); /* a request was answered in full */
void guard_body(struct guarded *connection, int64_t now_ns);
void guard_waiting(struct guarded *connection);

/* Shuts down what is late; call it a few times within request_ns. Returns how many were
 * shut for being late. */
size_t guard_sweep(struct guard *guard, int64_t now_ns);

#endif

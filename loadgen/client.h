/* client.h: many keep-alive HTTP/1.1 connections to one address, driven by one epoll loop.
 *
 * Nothing here blocks, retries or decides: a connection is dialled when asked, carries one request
 * at a time, and what becomes of that is told by a callback. Idle connections are used in turn, so
 * all of them stay in use. A connection that closes while idle goes without a word.
 *
 * Callbacks run inside client_wait, client_dial and client_send and may call client_send, but no
 * other function here. One thread.
 */
#ifndef SLUICE_LOADGEN_CLIENT_H
#define SLUICE_LOADGEN_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"
#include "response.h"

struct client;

struct client_handler {
    /* A complete answer to what `connection` carried. response is valid during the call only. */
    void (*answer)(void *arg, uint64_t tag, int connection, const struct response *response,
                   int64_t now_ns);
    /* The connection went, or spoke garbage, after at least one byte of the request was sent. why:
     * a static text. */
    void (*lost)(void *arg, uint64_t tag, const char *why, int64_t now_ns);
    /* A dial ended badly. error > 0: errno as the peer or the network gave it; local: the fault is
     * this machine's (no descriptors, no ports), so it says nothing about the peer. */
    void (*dial_failed)(void *arg, int error, bool local, int64_t now_ns);
    /* There may be an idle connection again. */
    void (*idle)(void *arg);
};

struct client_config {
    struct sockaddr_storage address;
    socklen_t address_len;
    unsigned connections_max;
    int64_t spin_ns; /* client_wait stays awake this long before its deadline */
    int wake_fd;     /* client_wait tells when this is readable; -1: none */
    const struct client_handler *handler;
    void *arg;
};

struct client_counts {
    unsigned idle, busy, dialing; /* now */
    uint64_t dials;               /* tried so far */
    uint64_t idle_closes;         /* closed by the peer between requests */
};

int client_open(struct client **client, const struct client_config *config, struct err *err);
void client_close(
    struct client *client); /* closes all connections without callbacks; NULL: nothing */

/* Starts up to `count` connections, as connections_max allows. Returns how many it tried. */
unsigned client_dial(struct client *client, unsigned count);

/* Gives up dials older than age_ns, without a callback. Returns how many. */
unsigned client_drop_dials(struct client *client, int64_t age_ns);

/* Closes up to `count` idle connections. */
void client_trim(struct client *client, unsigned count);

/* Sends a request on the connection that has been idle for longest. Returns its number and sets
 * *sent_ns (just before its first byte went); -EAGAIN when no connection is idle; then nothing was
 * sent, also where connections turned out to be closed. */
int client_send(struct client *client, uint64_t tag, const void *bytes, size_t len,
                int64_t *sent_ns);

/* Closes a busy connection; its request gets no callback. Not inside a callback. */
void client_cancel(struct client *client, int connection);

/* Waits until deadline_ns (clock_mono_ns; 0 or past: only looks), or until something came, handles
 * at most events_max of what came. Returns true when wake_fd became readable. */
bool client_wait(struct client *client, int64_t deadline_ns, int events_max);

const struct client_counts *client_counts(const struct client *client);

#endif

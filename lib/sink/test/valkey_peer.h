/* valkey_peer.h: what stands between the driver and a server, or in a server's place, so that a
 * test decides what is answered and when a connection ends. A thread of its own, on a free loopback
 * port.
 */
#ifndef SLUICE_SINK_TEST_VALKEY_PEER_H
#define SLUICE_SINK_TEST_VALKEY_PEER_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

#include "base/buf.h"

struct peer;

/* Called for each command that came whole, in the peer's thread: appends to out what is answered;
 * *end: close the connection after that. connection: 0 for the first one accepted. */
typedef void peer_answer_fn(void *arg, unsigned connection, const redisReply *command,
                            struct buf *out, bool *end);

struct peer *peer_fake(peer_answer_fn *answer, void *arg);
struct peer *peer_proxy(int server_port);
int peer_port(const struct peer *peer);
unsigned peer_accepted(struct peer *peer); /* connections so far */

/* Of each connection from now on: it ends once so many bytes went from client to server, or back.
 * -1: no limit. */
void peer_cut_after(struct peer *peer, long up_bytes, long down_bytes);
void peer_stall(struct peer *peer, bool stalled); /* reads and forwards nothing meanwhile */
void peer_by_bytes(struct peer *peer);            /* answers go out one byte at a time */
void peer_end(struct peer *peer);                 /* joins the thread */

#endif

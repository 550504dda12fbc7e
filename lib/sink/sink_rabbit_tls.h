/* sink_rabbit_tls.h: TLS on a non-blocking socket, for sink_rabbit_link.c alone. OpenSSL does it; a
 * build without OpenSSL refuses amqps:// with a sentence. Not thread-safe for one session. */
#ifndef SLUICE_SINK_SINK_RABBIT_TLS_H
#define SLUICE_SINK_SINK_RABBIT_TLS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "sink/sink_rabbit_target.h"

struct rabbit_tls;

/* On a connected socket, which stays the caller's. -ENOTSUP, -EINVAL: the CA file cannot be used.
 */
int rabbit_tls_start(struct rabbit_tls **tls, const struct rabbit_target *target, int fd,
                     struct err *err);
/* 0: done, the peer is who the URL names (if it is to be verified); -EAGAIN: poll and call again;
 * -EPROTO, -EACCES: it never will be. */
int rabbit_tls_handshake(struct rabbit_tls *tls, struct err *err);
/* Like recv and send: bytes, 0 (end of stream), -EAGAIN, or another negative errno. A send that
 * said -EAGAIN must be repeated with at least the same bytes. */
ssize_t rabbit_tls_recv(struct rabbit_tls *tls, void *bytes, size_t len);
ssize_t rabbit_tls_send(struct rabbit_tls *tls, const void *bytes, size_t len);
bool rabbit_tls_wants_out(const struct rabbit_tls *tls); /* the last call waits for POLLOUT */
void rabbit_tls_end(struct rabbit_tls *tls);             /* NULL: nothing */

#endif

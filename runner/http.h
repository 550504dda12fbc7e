/* http.h: the two requests a runner makes: is a part ready, and the probe task. HTTP/1.1, one
 * request a connection, bounded in time and size. Blocks for at most timeout_ms, and for as long as
 * a name takes to be looked up. `address` is HOST:PORT, [IPv6]:PORT; -EHOSTUNREACH: no such host.
 */
#ifndef SLUICE_RUNNER_HTTP_H
#define SLUICE_RUNNER_HTTP_H

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/* 0 when it is HOST:PORT; else -EINVAL and a sentence that says what was expected. Looks up
 * nothing.
 */
int http_address_check(const char *address, struct err *err);

/* The status code, or negative errno (-ECONNREFUSED, -ETIMEDOUT, -EPROTO). answer (the body) may be
 * NULL. */
int http_get(const char *address, const char *path, int timeout_ms, struct buf *answer);
int http_post(const char *address, const char *path, const void *body, size_t len, int timeout_ms,
              struct buf *answer);

#endif

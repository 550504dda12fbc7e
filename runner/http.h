/* http.h: the two requests a runner makes: is a part ready, and the probe task. Loopback, HTTP/1.1,
 * one request a connection, bounded in time and size. Blocks for at most timeout_ms. */
#ifndef SLUICE_RUNNER_HTTP_H
#define SLUICE_RUNNER_HTTP_H

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/* The status code, or negative errno (-ECONNREFUSED, -ETIMEDOUT, -EPROTO). answer (the body) may be
 * NULL. */
int http_get(int port, const char *path, int timeout_ms, struct buf *answer);
int http_post(int port, const char *path, const void *body, size_t len, int timeout_ms,
              struct buf *answer);

#endif

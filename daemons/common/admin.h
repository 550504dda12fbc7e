/* admin.h: a daemon's admin port: GET /healthz, /readyz, /metrics, served by a thread of its own,
 * so that it answers while the daemon's main loop is stuck in a flush.
 *
 * Bounded: a few connections, a deadline for each request and for idling, no request bodies.
 *
 * Threads: admin_start and admin_stop belong to one thread. The callbacks run in the admin thread,
 * one at a time, never after admin_stop has returned; they read what other threads write, so they
 * use atomics or a mutex that is never held for long.
 */
#ifndef SLUICE_COMMON_ADMIN_H
#define SLUICE_COMMON_ADMIN_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

struct admin;

struct admin_source {
    /* Is the process fit to go on? false: 503, and `why` (one sentence, no newline) is the answer.
     */
    bool (*healthy)(void *arg, struct buf *why);
    /* Would it take work now? The same way. */
    bool (*ready)(void *arg, struct buf *why);
    /* Appends Prometheus text exposition format 0.0.4. No text of users in names or labels. */
    void (*metrics)(void *arg, struct buf *out);
    void *arg;
};

/* Listens on "127.0.0.1:8081" and starts the thread. source is copied. -EINVAL for a bad address,
 * other negative errno when it can't listen; the sentence says what to do. Logs the address when it
 * is up. */
int admin_start(struct admin **admin, const char *listen, const struct admin_source *source,
                struct err *err);
void admin_stop(struct admin *admin); /* joins the thread; NULL is allowed */

/* "127.0.0.1:8081" with the port really taken; belongs to admin. */
const char *admin_address(const struct admin *admin);

/* For metrics callbacks: "# HELP", "# TYPE" and one sample. kind: "counter" or "gauge". */
void admin_metric(struct buf *out, const char *name, const char *kind, const char *help,
                  double value);

#endif

/* server_control.h: a test's hold of the private servers that `sluice with` started beside it.
 *
 * NAME is as `sluice with` takes it ("main-db", "ingest"). The server's socket is the one that
 * SLUICE_TEST_NAME_CONTROL names (SLUICE_TEST_MAIN_CONTROL for main-db). Blocks until the server
 * has done it. Any thread.
 */
#ifndef SLUICE_SINK_SERVER_CONTROL_H
#define SLUICE_SINK_SERVER_CONTROL_H

#include <stdbool.h>

#include "base/err.h"

/* The value of SLUICE_TEST_NAME_URL, NULL when there is no such server. */
const char *server_url(const char *name);

bool server_can_be_controlled(const char *name);

/* command: kill, start (and wait until it is ready), pause, resume, stop. 0; -ENOENT: no such
 * server, or one that is not ours to control; -EIO: it could not be done, err says why. */
int server_control(const char *name, const char *command, struct err *err);

#endif

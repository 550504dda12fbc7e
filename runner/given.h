/* given.h: servers that exist already and are not ours: --sink-url, --main-url. Nothing of them is
 * started, ended, paused or reconfigured.
 *
 * In a main DB that is given, everything lies in a schema of our own, "sluice", marked as ours by
 * its comment; there it may be emptied before a run and dropped by `sluice clean`. In a sink's
 * server there is what the driver's setup() made, which its remove() takes away.
 *
 * All block, for a connect timeout and a few seconds at most. URLs are libpq's; texts of errors
 * never hold their password. Not thread-safe.
 */
#ifndef SLUICE_RUNNER_GIVEN_H
#define SLUICE_RUNNER_GIVEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "sink/sink.h"

struct given_main; /* holds the schema against a second run */

/* Makes the schema, or empties its tables, and keeps others out. given_main_url: the same database
 * with that schema in front, for maindb and the daemons; lives as long as *main. -EINVAL: no
 * Postgres URL; -EBUSY: another sluice is at work there; -EEXIST: the schema is somebody else's. */
int given_main_open(struct given_main **main, const char *url, struct err *err);
const char *given_main_url(const struct given_main *main);
void given_main_close(struct given_main *main); /* NULL is allowed */

/* 0 when given_main_open would not fail; changes nothing. Errors as above, and -EPERM: a setting of
 * the server makes a run void. */
int given_main_try(const char *url, struct err *err);

/* Drops the schema, when it is ours. 1: dropped; 0: there is none. Errors as above. */
int given_main_remove(const char *url, struct err *err);

/* Do two Postgres URLs lead to the same server? 1, 0; negative: at least one could not be asked. */
int given_same_server(const char *url, const char *other_url, struct err *err);

/* How many tasks a sink holds, asked for up to ten seconds. -ENOMSG: it does not tell; or why it
 * can't be opened. */
int given_count_tasks(const struct sink_driver *driver, const struct options *options,
                      int64_t *tasks, struct err *err);

#endif

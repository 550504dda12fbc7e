/* prefix.h: where the servers' programs are.
 *
 * Those installed come first; else those that scripts/deps unpacked into the private prefix,
 * $SLUICE_PREFIX or /var/tmp/sluice-prefix-<uid>: NAME/bin there holds wrappers that know where the
 * unpacked libraries are.
 */
#ifndef SLUICE_RUNNER_PREFIX_H
#define SLUICE_RUNNER_PREFIX_H

#include "base/err.h"

char *prefix_path(void); /* free it */

/* The folder that holds both initdb and postgres: $SLUICE_POSTGRES_BIN, else the newest below
 * /usr/lib/postgresql, else that of `postgres` in PATH, else the prefix's. Free *bin. -ENOENT: a
 * sentence that says how to get them. */
int prefix_find_postgres(char **bin, struct err *err);

/* The program valkey-server: in $SLUICE_VALKEY_BIN, else /usr/bin, else PATH, else the prefix;
 * where there is none, redis-server from the same places (that it is one, the running server
 * tells). Free *program. -ENOENT: a sentence that says how to get it. */
int prefix_find_valkey(char **program, struct err *err);

#endif

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

#endif

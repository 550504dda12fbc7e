/* settings.h: the tables of what api and worker can be told, apart from their sinks. In a library
 * of their own, so that `sluice prepare` can check them before a container ends over them. */
#ifndef SLUICE_SETTINGS_SETTINGS_H
#define SLUICE_SETTINGS_SETTINGS_H

#include "base/err.h"
#include "base/options.h"

extern const struct option_spec api_options[];   /* where it serves, what it records */
extern const struct option_spec limit_options[]; /* what it takes at most */
extern const struct option_spec worker_options[];

/* Whether api and worker would take what this process's environment holds for them. -EINVAL: a
 * sentence that names the variable and what it takes. */
int settings_check_environment(struct err *err);

#endif

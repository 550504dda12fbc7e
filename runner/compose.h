/* compose.h: one run in containers: `docker compose` brings them up and down and makes the
 * scenario's faults; `sluice attend` inside gives the verdict.
 *
 * What docker prints goes to the run's logs/compose.log. Whatever happens short of a SIGKILL, the
 * project is taken down again, with its volumes. One thread.
 */
#ifndef SLUICE_RUNNER_COMPOSE_H
#define SLUICE_RUNNER_COMPOSE_H

#include <stdbool.h>

#include "base/err.h"
#include "run.h"

/* What all runs of a comparison share; borrowed. */
struct compose {
    char *dir;        /* of the files SINK.yaml */
    char *comparison; /* folder of the comparison, absolute */
    char *sets;       /* overrides of the scenario, ; between them */
    bool build;       /* the image anew, if anything of it has changed */
};

/* The folder with the files: the one that is named, else ./compose, else the source tree's. NULL,
 * with -ENOENT and a sentence. Free it. */
char *compose_find(const char *named, struct err *err);
bool compose_has(const struct compose *compose, const char *sink);

/* Is there a docker with compose 2 or later, and an engine that answers? A sentence, when not. */
int compose_check(struct err *err);

/* Makes the comparison's folder fit for the containers, and puts the scenario there. */
int compose_enter(const struct compose *compose, const struct scenario *scenario, struct err *err);

/* request->dir must not be there yet: the containers make it. */
enum run_outcome compose_run(const struct compose *compose, const struct run_request *request,
                             struct err *err);

#endif

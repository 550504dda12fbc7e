/* attended.h: what `sluice prepare` and `sluice attend` are told alike, by flags or, in containers,
 * by environment alone. */
#ifndef SLUICE_RUNNER_ATTENDED_H
#define SLUICE_RUNNER_ATTENDED_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/options.h"
#include "run.h"
#include "scenario.h"

struct attended {
    struct scenario scenario;
    char *now; /* the link to the run's folder */
    bool main_given, sink_given;
    struct run_request request; /* scenario, driver, which faults and background; the rest is the
                                   caller's */
};

void attended_add_options(struct options *options); /* the sinks' as well */

/* Checks all that can be checked before anything is touched. -EINVAL: a mistake; the sentence names
 * the flag or variable. options must live as long. Free it in any case. */
int attended_read(struct attended *attended, struct options *options, struct err *err);
void attended_free(struct attended *attended);

/* LINK.why: what went wrong in sluice prepare, for sluice attend, which others may start all the
 * same. attended_why_read: the exit code and its sentence; 0: nothing went wrong. */
void attended_why_write(const struct attended *attended, int exit_code, const char *text);
int attended_why_read(const struct attended *attended, struct buf *text);

#endif

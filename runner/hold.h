/* hold.h: a sink that is given, held against a second run for as long as this one lasts (sink.h
 * says how each driver does it). A thread of its own keeps it, whatever the runner waits for
 * meanwhile. The functions are for one thread.
 */
#ifndef SLUICE_RUNNER_HOLD_H
#define SLUICE_RUNNER_HOLD_H

#include <stdbool.h>

#include "sink/sink.h"

struct hold;

/* *hold is NULL when the driver has nothing to hold. options must outlive it and not change.
 * -EBUSY: another sluice has it; and what connecting may give. */
int hold_take(struct hold **hold, const struct sink_driver *driver, const struct options *options,
              struct err *err);
/* -EBUSY and a sentence once somebody else has it (it had been lost, with the server); else 0. */
int hold_check(struct hold *hold, struct err *err);
void hold_release(struct hold *hold); /* NULL is allowed; waits for some seconds at most */

#endif

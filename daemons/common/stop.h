/* stop.h: how a daemon is told to stop: SIGTERM and SIGINT become a readable descriptor.
 *
 * Call stop_open and stop_open_other before any thread is started, so that all of them inherit the
 * blocked signals. */
#ifndef SLUICE_COMMON_STOP_H
#define SLUICE_COMMON_STOP_H

#include "base/err.h"

/* Blocks SIGTERM and SIGINT, ignores SIGPIPE. Returns a non-blocking descriptor, readable from the
 * moment one of the two has come; close it when done. Negative errno and a sentence otherwise. */
int stop_open(struct err *err);

/* The same for one other signal, of another meaning. */
int stop_open_other(int number, struct err *err);

/* Takes one signal from a descriptor of these: its number, or 0 when none has come. Never blocks.
 */
int stop_signal(int stop_fd);

/* "SIGTERM", "SIGINT"; for the `why` of a stop event. */
const char *stop_signal_name(int signal);

#endif

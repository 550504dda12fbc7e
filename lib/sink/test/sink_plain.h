/* sink_plain.h: the plainest sink that keeps its promise: one file, written and flushed in each
 * pass of the loop. For tests of whatever sits on sink.h without a server or the WAL, and as the
 * shape of a driver to start from. Not a contender: its file only grows. */
#ifndef SLUICE_SINK_PLAIN_H
#define SLUICE_SINK_PLAIN_H

#include "sink/sink.h"

extern const struct sink_driver sink_plain; /* --sink=plain --plain-dir=DIR */

#endif

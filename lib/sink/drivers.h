/* drivers.h: the drivers there are, for whoever puts a registry together (registry.c, tests, builds
 * that are broken on purpose). Each is defined in sink_NAME.c. */
#ifndef SLUICE_SINK_DRIVERS_H
#define SLUICE_SINK_DRIVERS_H

#include "sink/sink.h"

extern const struct sink_driver sink_memory;
extern const struct sink_driver sink_direct;
extern const struct sink_driver sink_wal;
extern const struct sink_driver sink_ingest;
extern const struct sink_driver sink_valkey;
extern const struct sink_driver sink_rabbit;

/* For decorators, whose own tables must be constant. */
extern const struct option_spec sink_wal_options[];
extern const struct option_spec sink_ingest_options[];
extern const struct option_spec sink_valkey_options[];
extern const struct option_spec sink_rabbit_options[];

#endif

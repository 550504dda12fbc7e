/* registry.c: the one list of drivers, contenders first. Alone in its file, so that a program can
 * link another. */
#include "sink/drivers.h"

const struct sink_driver *const sink_drivers[] = {
    &sink_wal, &sink_ingest, &sink_valkey, &sink_rabbit, &sink_direct, &sink_memory, NULL,
};

/* registry.c: the one list of drivers. Alone in its file, so that a program can link another. */
#include "sink/drivers.h"

const struct sink_driver *const sink_drivers[] = {
#ifdef SLUICE_HAVE_WAL
    &sink_wal,
#endif
#ifdef SLUICE_HAVE_INGEST
    &sink_ingest,
#ifdef SLUICE_HAVE_VALKEY
    &sink_valkey,
#ifdef SLUICE_HAVE_RABBIT
    &sink_rabbit,
#endif
#ifdef SLUICE_HAVE_DIRECT
    &sink_direct,
#endif
#ifdef SLUICE_HAVE_MEMORY
    &sink_memory,
#endif
    NULL,
};

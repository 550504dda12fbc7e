/* flush_probe.h: how long one small flush takes on a disk: what every durable answer waits for. */
#ifndef SLUICE_RUNNER_FLUSH_PROBE_H
#define SLUICE_RUNNER_FLUSH_PROBE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    FLUSH_PROBE_MAX = 400, /* flushes at most */
    FLUSH_PROBE_WRITE_BYTES = 4096,
    /* A median below that is implausible for a disk: with a volatile cache it has to move data to
     * the medium, and without one a write still crosses the bus and back. Memory answers in a few.
     */
    FLUSH_PROBE_IMPLAUSIBLE_US = 20
};

struct flush_probe {
    size_t n;
    double p50_us, p99_us, max_us; /* nearest rank */
};

/* Writes 4 KiB into a file of dir that is written out and flushed already, and fdatasyncs, again
 * and again: FLUSH_PROBE_MAX times, or until limit_ns is over (at least once). Removes the file. 0,
 * or a negative errno and a sentence. */
int flush_probe(const char *dir, int64_t limit_ns, struct flush_probe *probe, struct err *err);

/* Sorts durations_ns (count of them, at least 1) and fills probe from them. */
void flush_probe_rank(int64_t *durations_ns, size_t count, struct flush_probe *probe);

#endif

/* recorder.h: a thread that writes down what the attack settles: ledger rows, api_latency, phase
 * and lateness events (docs/metrics.md), a line for each phase, and on a terminal a live line.
 *
 * It is a thread of its own because the disk it writes to may be the one under test: a write that
 * waits for that disk must not make the next request late.
 */
#ifndef SLUICE_LOADGEN_RECORDER_H
#define SLUICE_LOADGEN_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "attack.h"
#include "ledger.h"
#include "metrics/metrics.h"
#include "pace.h"

struct recorder;

struct recorder_config {
    const struct pace *pace;
    struct ledger
        *ledger; /* NULL: none. Used by the recorder's thread alone until it is stopped. */
    struct metrics *metrics; /* never NULL */
    int64_t start_ns;        /* the load's begin by clock_mono_ns ... */
    int64_t start_wall_us;   /* ... and by the wall clock */
    bool live;               /* a live line on standard error */
    /* Read for the live line; stop is set when the ledger can't be written. */
    struct attack_progress *progress;
};

struct recorder *recorder_start(const struct recorder_config *config);

/* From the attack's thread. Copies and returns; waits only when 4 million records are unwritten. */
void recorder_add(struct recorder *recorder, const struct settled *settled);

/* Writes what is left, the phases' last events included, flushes, ends the thread and frees.
 * Returns the ledger's first write error, or the metrics'. */
int recorder_stop(struct recorder *recorder);

#endif

/* ingest_lane.h: the drain side of the sink ingest.
 *
 * A batch is a transaction that stays open while the main DB works: it has locked its rows (FOR
 * UPDATE SKIP LOCKED), and that lock is the lease. ack deletes and commits, release rolls back, and
 * when the process dies, its server sessions end and all it held is free at once, whoever comes
 * next. A process that lives and does not call keep() for --ingest-lease loses what it holds: the
 * server ends its session. docs/adr/0008-ingest-leases.md says why, with figures.
 *
 * Threads: as sink.h says. Functions are those of sink.h, with the same contract.
 */
#ifndef SLUICE_SINK_INGEST_LANE_H
#define SLUICE_SINK_INGEST_LANE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/options.h"
#include "sink/sink.h"

/* What the lanes of a process share. */
struct ingest_drain {
    const char *url, *table;
    int64_t lease_ns;
    pthread_mutex_t mutex; /* of what follows */
    /* Where taking begins, so that what is deleted and not yet vacuumed away need not be stepped
     * over again and again. Not a cursor: see take_from() */
    int64_t highest_seq; /* taken so far */
    int64_t full_due_ns; /* when to begin from the start again */
};

int ingest_drain_open(struct ingest_drain *drain, const struct options *options, struct err *err);
void ingest_drain_close(struct ingest_drain *drain);

int ingest_lane_open(struct ingest_drain *drain, unsigned number, struct sink_lane **out,
                     struct err *err);
int ingest_lane_fetch(struct sink_lane *lane, unsigned max, int wait_ms, struct sink_batch *batch);
int ingest_lane_keep(struct sink_lane *lane);
int ingest_lane_ack(struct sink_lane *lane, struct sink_batch *batch);
int ingest_lane_release(struct sink_lane *lane, struct sink_batch *batch);
void ingest_lane_close(struct sink_lane *lane);

#endif

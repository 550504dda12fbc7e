/* sink_wal_drain.h: the worker's side of the sink wal; sink_wal.c alone includes it. */
#ifndef SLUICE_SINK_SINK_WAL_DRAIN_H
#define SLUICE_SINK_SINK_WAL_DRAIN_H

#include <pthread.h>
#include <stdbool.h>

#include "sink/sink.h"
#include "wal/reader.h"

/* One reader, shared by the lanes. */
struct wal_drain {
    struct wal_reader *reader;
    pthread_mutex_t mutex; /* the reader's, but for wal_reader_wait */
    pthread_cond_t turn;
    bool fetching; /* a lane has its turn in fetch; under the mutex */
    bool complained;
    char broken_by[256]; /* the first error that is final */
};

int wal_drain_open(struct wal_drain *drain, const struct options *options, struct err *err);
void wal_drain_close(struct wal_drain *drain);
struct sink_lane *wal_drain_lane(struct wal_drain *drain);

/* As sink.h says. */
int wal_drain_fetch(struct sink_lane *lane, unsigned max, int wait_ms, struct sink_batch *batch);
const char *wal_drain_broken_by(struct sink_lane *lane);
int wal_drain_keep(struct sink_lane *lane);
int wal_drain_ack(struct sink_lane *lane, struct sink_batch *batch);
int wal_drain_release(struct sink_lane *lane, struct sink_batch *batch);
void wal_drain_lane_close(struct sink_lane *lane);

#endif

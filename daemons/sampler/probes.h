/* probes.h: what is asked of servers and files: `backlog` and `sink_stats` of the sink, `db_count`
 * of the main DB. Each is a periodic_work_fn with a struct of its own, used by one thread. */
#ifndef SLUICE_SAMPLER_PROBES_H
#define SLUICE_SAMPLER_PROBES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/options.h"
#include "maindb/maindb.h"
#include "metrics/metrics.h"
#include "sink/sink.h"

/* The sink, through a probe handle that is opened when it can be and again after an error. */
struct sink_probe {
    const struct sink_driver *driver;
    const struct options *options;
    struct metrics *metrics;
    int64_t interval_ns;
    struct sink *sink;
    bool none; /* this sink has no backlog, and that has been said */
    struct metrics_event event;
};
int64_t sink_probe_turn(void *sink_probe);
void sink_probe_close(struct sink_probe *probe);

/* The main DB's rows, counted exactly. Counting costs the server more with every row, so it takes
 * at most 1 % of the time: the next count waits 99 times as long as this one took, at least
 * interval_ns.
 */
struct db_probe {
    struct maindb *db;
    struct metrics *metrics;
    int64_t interval_ns;
    bool failing; /* and that has been logged */
    struct metrics_event event;
};
int64_t db_probe_turn(void *db_probe);
void db_probe_close(struct db_probe *probe);

#endif

/* ingest_watch.h: how many tasks the table holds, counted exactly, at a bounded cost.
 *
 * A count visits every row, so its price grows with the backlog; it is asked for again only when
 * 99 times as long as the last one took has passed (between a shortest and a longest period), so
 * that it takes about 1 % of the time. Rows that a lane holds or has deleted without a commit
 * count: they are not acknowledged yet.
 *
 * A connection of its own, driven without blocking, by one thread: whoever has a loop polls
 * ingest_watch_fd and calls ingest_watch_step; whoever may wait calls ingest_watch_ask.
 */
#ifndef SLUICE_SINK_INGEST_WATCH_H
#define SLUICE_SINK_INGEST_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "maindb/pg.h"
#include "sink/sink.h"

struct ingest_watch {
    const struct pg_target *target; /* borrowed */
    const char *table;
    struct pg_link link;
    PGresult *answer;              /* the last of its results so far */
    bool asking;                   /* a count is under way */
    bool failing;                  /* the last attempt failed */
    int64_t shortest_ns;           /* between two counts */
    int64_t due_ns;                /* when to count next (clock_mono_ns) */
    int64_t asked_ns, answered_ns; /* of the count that is known; 0: none yet */
    int64_t began_ns;              /* of the count under way */
    int64_t tasks, bytes;
    unsigned seed;
};

void ingest_watch_start(struct ingest_watch *watch, const struct pg_target *target,
                        const char *table, int64_t shortest_ns);
void ingest_watch_stop(struct ingest_watch *watch);

/* Does what can be done now: connects, asks when it is time, reads what came. true: a new count. */
bool ingest_watch_step(struct ingest_watch *watch);
/* -1 while there is none; events is what to poll it for. May change with each step. */
int ingest_watch_fd(const struct ingest_watch *watch, short *events);
int64_t ingest_watch_due_ns(const struct ingest_watch *watch); /* of the next step, at the latest */
/* There are at least so many now: the next count will take longer than the last one did. */
void ingest_watch_expect(struct ingest_watch *watch, int64_t tasks);

/* Steps, and waits up to wait_ns when a count is due. 0: a count is known; -EAGAIN: none, or the
 * server has not been heard of for long. */
int ingest_watch_ask(struct ingest_watch *watch, int64_t wait_ns);

/* What the server says about the table and itself. Waits up to wait_ns. 0; -EAGAIN. */
int ingest_watch_stats(struct ingest_watch *watch, struct sink_stats *stats, int64_t wait_ns);

#endif

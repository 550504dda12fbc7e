/* ingest_batch.h: tasks on their way to the ingest server: the parameters of one INSERT, as they go
 * on the wire, and who waits for what becomes of each. Used by ingest_send.c alone; one thread.
 */
#ifndef SLUICE_SINK_INGEST_BATCH_H
#define SLUICE_SINK_INGEST_BATCH_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "sink/sink.h"

struct ingest_waiter {
    sink_done_fn *done;
    void *arg;
    int64_t deadline_ns; /* of its outcome (clock_mono_ns) */
    size_t body_bytes;
};

struct ingest_batch {
    struct ingest_batch *next;
    struct buf ids, accepted, bodies; /* binary arrays; the headers are filled in for sending */
    struct ingest_waiter *waiters;    /* in the order in which they came, so by deadline */
    size_t count, room;
    size_t settled; /* the first so many have their outcome */
};

struct ingest_batch *ingest_batch_new(void);
void ingest_batch_free(struct ingest_batch *batch);
/* Empty again; keeps its memory, unless it is unusually much. */
void ingest_batch_clear(struct ingest_batch *batch);

/* Copies the task. */
void ingest_batch_add(struct ingest_batch *batch, const struct task *task,
                      const struct ingest_waiter *waiter);
size_t ingest_batch_bytes(const struct ingest_batch *batch); /* of the arrays */

/* Takes the settled ones out, so that they are not sent. */
void ingest_batch_forget_settled(struct ingest_batch *batch);

/* Begins the prepared statement with uuid[], bigint[], bytea[]. Not for an empty batch. 1 or 0, as
 * PQsendQueryPrepared. */
int ingest_batch_send(struct ingest_batch *batch, PGconn *conn, const char *statement);

/* Settles those that are not yet and whose deadline has passed. */
void ingest_batch_expire(struct ingest_batch *batch, int64_t now_ns, enum sink_outcome outcome);
/* Settles all that are not yet; together: how many were decided at once. */
void ingest_batch_settle(struct ingest_batch *batch, enum sink_outcome outcome, unsigned together);
/* When the next one expires; INT64_MAX when all are settled. */
int64_t ingest_batch_deadline_ns(const struct ingest_batch *batch);

#endif

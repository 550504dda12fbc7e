/* ingest_send.h: the ingest side of the sink ingest: a queue, and connections that take from it.
 *
 * One statement in flight on each connection; what comes meanwhile goes together in the next, up to
 * a number of tasks and bytes. Functions are those of sink.h for SINK_INGEST, with the same
 * contract: one thread, the owner's loop; nothing blocks (but a host name is looked up by libpq).
 */
#ifndef SLUICE_SINK_INGEST_SEND_H
#define SLUICE_SINK_INGEST_SEND_H

#include "base/err.h"
#include "base/options.h"
#include "sink/sink.h"

struct ingest_send;

int ingest_send_open(struct ingest_send **send, const struct options *options, struct err *err);
void ingest_send_close(struct ingest_send *send, int64_t deadline_ns);
int ingest_send_submit(struct ingest_send *send, const struct task *task, sink_done_fn *done,
                       void *arg);
int ingest_send_fd(const struct ingest_send *send);
int64_t ingest_send_due_ns(const struct ingest_send *send);
void ingest_send_process(struct ingest_send *send);
bool ingest_send_ready(const struct ingest_send *send);

/* The newest count of the table, and what became durable since: never too few. */
int ingest_send_backlog(const struct ingest_send *send, struct sink_backlog *backlog);
void ingest_send_stats(const struct ingest_send *send, struct sink_stats *stats);

#endif

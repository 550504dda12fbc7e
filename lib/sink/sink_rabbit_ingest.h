/* sink_rabbit_ingest.h: the publishing side of the sink `rabbit`, driven by the owner's loop; as
 * sink.h says of submit, fd, due_ns, process and ready. One thread. */
#ifndef SLUICE_SINK_SINK_RABBIT_INGEST_H
#define SLUICE_SINK_SINK_RABBIT_INGEST_H

#include "sink/sink.h"
#include "sink/sink_rabbit_target.h"

struct rabbit_ingest;

int rabbit_ingest_open(struct rabbit_ingest **ingest, const struct rabbit_target *target,
                       struct err *err);
void rabbit_ingest_close(struct rabbit_ingest *ingest, int64_t deadline_ns);
int rabbit_ingest_submit(struct rabbit_ingest *ingest, const struct task *task, sink_done_fn *done,
                         void *arg);
int rabbit_ingest_fd(struct rabbit_ingest *ingest);
int64_t rabbit_ingest_due_ns(struct rabbit_ingest *ingest);
int rabbit_ingest_process(struct rabbit_ingest *ingest);
bool rabbit_ingest_ready(struct rabbit_ingest *ingest);
int rabbit_ingest_why(struct rabbit_ingest *ingest, const char **sentence);
int rabbit_ingest_backlog(struct rabbit_ingest *ingest, struct sink_backlog *backlog);
void rabbit_ingest_stats(struct rabbit_ingest *ingest, struct sink_stats *stats);

#endif

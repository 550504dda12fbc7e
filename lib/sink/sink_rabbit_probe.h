/* sink_rabbit_probe.h: looks at the queue and at the server's alarms from outside; one thread. */
#ifndef SLUICE_SINK_SINK_RABBIT_PROBE_H
#define SLUICE_SINK_SINK_RABBIT_PROBE_H

#include "sink/sink.h"
#include "sink/sink_rabbit_target.h"

struct rabbit_probe;

struct rabbit_probe *rabbit_probe_open(const struct rabbit_target *target);
void rabbit_probe_close(struct rabbit_probe *probe);
int rabbit_probe_backlog(struct rabbit_probe *probe, struct sink_backlog *backlog);
int rabbit_probe_stats(struct rabbit_probe *probe, struct sink_stats *stats);

#endif

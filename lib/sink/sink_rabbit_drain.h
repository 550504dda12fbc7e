/* sink_rabbit_drain.h: the consuming side of the sink `rabbit`; as sink.h says of lanes. Each lane
 * has a connection of its own, which its thread alone drives. */
#ifndef SLUICE_SINK_SINK_RABBIT_DRAIN_H
#define SLUICE_SINK_SINK_RABBIT_DRAIN_H

#include "sink/sink.h"
#include "sink/sink_rabbit_target.h"

int rabbit_drain_lane_open(const struct rabbit_target *target, unsigned lane,
                           struct sink_lane **out, struct err *err);
int rabbit_drain_fetch(struct sink_lane *lane, unsigned max, int wait_ms, struct sink_batch *batch);
int rabbit_drain_keep(struct sink_lane *lane);
int rabbit_drain_ack(struct sink_lane *lane, struct sink_batch *batch);
int rabbit_drain_release(struct sink_lane *lane, struct sink_batch *batch);
void rabbit_drain_lane_close(struct sink_lane *lane);

#endif

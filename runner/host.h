/* host.h: what a run ran on, for its manifest. */
#ifndef SLUICE_RUNNER_HOST_H
#define SLUICE_RUNNER_HOST_H

#include "base/buf.h"

/* Appends {"kernel", "cpu", "cores", "memory_bytes", "filesystem", "device", "os"}; the file system
 * and the device are those of state_dir. What can't be told is "unknown" or 0. */
void host_json(const char *state_dir, struct buf *out);

#endif

/* sampler.h: one tick: `os` for every part and `host` (docs/metrics.md). One thread. */
#ifndef SLUICE_SAMPLER_SAMPLER_H
#define SLUICE_SAMPLER_SAMPLER_H

#include <stddef.h>

#include "base/err.h"
#include "metrics/metrics.h"
#include "part.h"

struct sampler;

/* Keeps parts, disk and metrics, which must outlive it. proc_root: "/proc". disk: name of the one
 * whose totals go with `host` (disk.h), or NULL. */
struct sampler *sampler_new(const char *proc_root, struct part *parts, size_t count,
                            const char *disk, struct metrics *metrics);
/* Writes one event a part and one of the host. Negative errno and a sentence when /proc cannot be
 * read at all; then nothing was written. */
int sampler_tick(struct sampler *sampler, struct err *err);
void sampler_free(struct sampler *sampler);

#endif

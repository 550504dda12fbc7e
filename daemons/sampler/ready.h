/* ready.h: would a part do its work now? One short question over TCP. Blocks for at most half a
 * second (postgres: two seconds). Threads: no state beyond struct ready. */
#ifndef SLUICE_SAMPLER_READY_H
#define SLUICE_SAMPLER_READY_H

#include <stdbool.h>

#include "base/err.h"

enum ready_kind {
    READY_TCP,      /* somebody takes connections */
    READY_HTTP,     /* GET answers 200 */
    READY_POSTGRES, /* sessions are taken: recovery is over */
    READY_VALKEY,   /* PING is answered: the data set is loaded */
};

struct ready {
    enum ready_kind kind;
    char host[128], port[8], path[128];
};

/* "tcp:HOST:PORT", "http:HOST:PORT[/PATH]" (/readyz without), "postgres:HOST:PORT",
 * "valkey:HOST:PORT". -EINVAL and a sentence. */
int ready_parse(const char *text, struct ready *ready, struct err *err);
bool ready_now(const struct ready *ready);

#endif

/* flat.h: the closed loop, for measuring a server's or this client's greatest rate. Every
 * connection carries one request after the other, as fast as answers come; nothing is due, nothing
 * is recorded. */
#ifndef SLUICE_LOADGEN_FLAT_H
#define SLUICE_LOADGEN_FLAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "exchange.h"

struct flat_config {
    const struct target *target;
    const char *path;
    unsigned connections;
    size_t payload_bytes;
    uint64_t seed;
    int64_t duration_ns;
    int wake_fd; /* readable: stop; -1: none */
};

struct flat_result {
    bool interrupted;
    double seconds;
    uint64_t answers; /* complete ones, by class below */
    uint64_t durable, refused, unknown;
    uint64_t wrong_ids; /* 202 without the id that was sent; among the unknown */
    uint64_t lost;      /* connections that went, or spoke no HTTP, instead of an answer */
    uint64_t refused_dials, local_failures;
    unsigned connections_used; /* that carried at least one answer */
    double cpu_us_per_answer;  /* of this process, user and system */
    int64_t p50_ns, p99_ns, max_ns;
};

/* 0, or a negative errno when no connection could be opened. */
int flat_run(const struct flat_config *config, struct flat_result *result, struct err *err);

#endif

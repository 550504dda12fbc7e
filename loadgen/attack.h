/* attack.h: the open loop. A request is due by the schedule, whatever became of those before it.
 *
 * A due request goes out at once on an idle connection. Without one, further connections are
 * opened, up to connections_max; past that it waits in line, and its latency still counts from when
 * it was due. Two delays are told apart: handled - due is this program's own lateness; sent -
 * handled is the wait for a connection, which the system under test caused. Requests due at the
 * same time (a burst) go out one after the other, which is what a burst is: up to 250 us for each
 * one before it (a send that wakes a sleeping processor takes that long on a virtual machine), 20
 * ms for all of them, do not count as own lateness. Whatever takes longer counts, and for all that
 * follow in that burst.
 *
 * A dial that the peer refuses settles the oldest waiting request as unsent: an outage shows in the
 * figures as it happens and nothing is sent late in secret. A connection that closes between
 * requests is replaced silently. A request is never sent twice.
 */
#ifndef SLUICE_LOADGEN_ATTACK_H
#define SLUICE_LOADGEN_ATTACK_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/err.h"
#include "exchange.h"
#include "pace.h"

enum { ATTACK_NEVER = -1 };

/* A request whose outcome is settled. Times are nanoseconds since the load's begin. */
struct settled {
    uint8_t id[UUID_BYTES];
    int64_t due_ns;
    int64_t handled_ns; /* the loop came to it */
    int64_t own_ns;     /* how late this program was by its own fault: see the top of this file */
    int64_t sent_ns;    /* its first byte went to the kernel; ATTACK_NEVER: none did */
    int64_t done_ns;    /* answer complete, or given up */
    int code;           /* HTTP status, 0 without an answer */
    enum outcome outcome;
    unsigned phase;
};

/* Published by the loop, for whoever shows it; any thread may read. stop may be set by any thread:
 * the loop ends within 100 ms, as after wake_fd. */
struct attack_progress {
    atomic_uint_least64_t handled; /* requests the loop came to */
    atomic_uint in_flight;         /* sent, not settled */
    atomic_uint waiting;           /* for a connection */
    atomic_uint connections;
    atomic_bool stop;
};

struct attack_config {
    const struct pace *pace;
    const struct target *target;
    const char *path;
    unsigned connections;     /* kept open */
    unsigned connections_max; /* opened when more requests are due at once */
    size_t payload_bytes;
    uint64_t seed;
    int64_t start_ns;   /* clock_mono_ns of the load's begin */
    int64_t timeout_ns; /* from due */
    int64_t spin_ns;
    int wake_fd; /* readable: stop sending, give what is out grace_ns, settle the rest; -1: none */
    int64_t grace_ns;
    /* Called for each request exactly once, from the loop; must not block. */
    void (*settle)(void *arg, const struct settled *settled);
    void *arg;
    struct attack_progress *progress;
};

struct attack_result {
    bool interrupted;
    uint64_t due; /* requests that came due and were settled: the first `due` of the schedule */
    uint64_t wrong_ids;      /* 202 without the id that was sent */
    uint64_t garbage;        /* answers that were no HTTP, or cut short */
    uint64_t refused_dials;  /* by the peer or the network */
    uint64_t local_failures; /* connections this machine could not open: its limits are too low */
    uint64_t dials, idle_closes;
};

/* Opens the connections and waits for them until start_ns at most (at least one must come within 5
 * s: -ECONNREFUSED and the like), then runs the load to its end. 0, or a negative errno before
 * anything was sent. */
int attack_run(const struct attack_config *config, struct attack_result *result, struct err *err);

/* The lateness rule above, for one request after the other in the order of the schedule. Start with
 * {.due_ns = -1}. */
struct own_lateness {
    int64_t due_ns, handled_ns; /* of the request before */
    int64_t allowed_ns;         /* what those due at the same time may have taken */
};
int64_t own_lateness(struct own_lateness *own, int64_t due_ns, int64_t handled_ns);

#endif

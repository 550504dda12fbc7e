/* pace.h: when the nth request of a load is due, as a pure function.
 *
 * A load is phases, one after the other; a phase has a duration and a rate factor, its rate is
 * rps * factor, kept in millionths of a request a second. In a phase of rate r the kth request
 * (k from 0) is due at the phase's begin + floor(k / r), as long as that lies before its end; so a
 * phase holds ceil(duration * r) requests, its first at its very begin, and nothing carries over
 * from one phase to the next. A factor of 0 is a pause.
 *
 * PACING_BURST moves each due time down to a whole second since its phase's begin: a second's quota
 * is due at once, and each second holds as many as it would if paced.
 *
 * Integers only: no rounding adds up, however long the load. All times are nanoseconds since the
 * load's begin. A struct pace is read-only once it is set up; then any thread may read.
 */
#ifndef SLUICE_LOADGEN_PACE_H
#define SLUICE_LOADGEN_PACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum pacing { PACING_PACED, PACING_BURST };

enum { PACE_NAME_BYTES = 65, PACE_PHASES_MAX = 64 };

/* Bounds that keep every product far inside 128 bits, and every sum inside 64. */
#define PACE_RATE_MAX        10000000.0                 /* requests a second */
#define PACE_DURATION_MAX_NS (366LL * 86400000000000LL) /* a year, for each phase */

struct pace_phase {
    char name[PACE_NAME_BYTES];
    int64_t begin_ns;
    int64_t end_ns;
    int64_t rate_micro; /* millionths of a request a second */
    uint64_t first;     /* number of its first request in the whole load */
    uint64_t count;     /* requests due in it */
};

struct pace {
    enum pacing pacing;
    double rps;
    size_t phase_count;
    struct pace_phase phases[PACE_PHASES_MAX];
};

/* An empty schedule. -EINVAL: rps is negative, not a number, or beyond PACE_RATE_MAX. */
int pace_init(struct pace *pace, double rps, enum pacing pacing, struct err *err);

/* Appends a phase. -EINVAL with a sentence: bad or repeated name ([A-Za-z0-9_.-], 1 to 64 of them),
 * duration not above 0 or too long, factor out of range, too many phases. */
int pace_add(struct pace *pace, const char *name, int64_t duration_ns, double factor,
             struct err *err);

/* The same from "name:duration:factor", as --phase takes it ("steady:300s:1"). */
int pace_add_text(struct pace *pace, const char *text, struct err *err);

uint64_t pace_count(const struct pace *pace); /* requests in the whole load */
int64_t pace_end_ns(const struct pace *pace); /* the last phase's end */

/* When request n is due; n < pace_count. *phase, if wanted, becomes the index of its phase. */
int64_t pace_due_ns(const struct pace *pace, uint64_t n, size_t *phase);

#endif

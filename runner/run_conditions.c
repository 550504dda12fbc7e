/* Under which conditions a run was made: how busy the host was before anything was started, how
 * fast its disk flushes before and after, whether the clock was set meanwhile. The report judges.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/host_cpu.h"
#include "flush_probe.h"
#include "keeper.h"
#include "run.h"

enum {
    LOOK_MS = 500,
    LOOKS_MAX = 4, /* what the run before left to do (writing back, exiting) may take so long */
    BUSY_PCT = 15, /* the report's limit for other work */
    PROBE_NS = 500000000
};

/* Nothing of the run is there yet: all work is others'. Waits a little for quiet, tells the last
 * look. */
void conditions_before(struct one_run *run)
{
    struct host_cpu_shares shares = {NAN, NAN, NAN, NAN};
    for (int i = 0; i < LOOKS_MAX && !(shares.busy_pct <= BUSY_PCT) && !keeper_interrupted(); i++) {
        struct host_cpu from, to;
        if (host_cpu_read("/proc", &from) < 0)
            return;
        keeper_nap(LOOK_MS);
        if (host_cpu_read("/proc", &to) < 0 || host_cpu_between(&from, &to, &shares) < 0)
            return;
    }
    if (shares.busy_pct > BUSY_PCT)
        run_say(run,
                "the host is busy with other work (%.0f %% of its cores): this run will not count",
                shares.busy_pct);
    metrics_begin(&run->event, "host_before");
    metrics_double(&run->event, "busy_pct", shares.busy_pct);
    metrics_double(&run->event, "steal_pct", shares.steal_pct);
    metrics_write(run->metrics, &run->event);
}

void conditions_flush(struct one_run *run, const char *state)
{
    struct flush_probe probe;
    struct err err = {0};
    if (!run->state_dir)
        return;
    if (flush_probe(run->state_dir, PROBE_NS, &probe, &err) < 0) {
        run_say(run, "%s", err.text);
        return;
    }
    if (probe.p50_us < FLUSH_PROBE_IMPLAUSIBLE_US && strcmp(state, "begin") == 0)
        run_say(run,
                "WARNING: a flush takes %.0f us here, less than a disk can do it in: what is "
                "called durable may not survive power loss",
                probe.p50_us);
    metrics_begin(&run->event, "flush_probe");
    metrics_string(&run->event, "state", state);
    metrics_int(&run->event, "n", (int64_t)probe.n);
    metrics_int(&run->event, "write_bytes", FLUSH_PROBE_WRITE_BYTES);
    metrics_double(&run->event, "p50_us", probe.p50_us);
    metrics_double(&run->event, "p99_us", probe.p99_us);
    metrics_double(&run->event, "max_us", probe.max_us);
    metrics_write(run->metrics, &run->event);
    metrics_flush(run->metrics);
}

/* How far the wall clock went from the monotonic one since the load's begin: two clocks that keep
 * time alike, unless one is set. */
void conditions_clock(struct one_run *run)
{
    int64_t wall_us = clock_wall_us() - run->start_us;
    int64_t mono_us = (clock_mono_ns() - run->load_start_ns) / 1000;
    if (run->start_us == 0)
        return;
    metrics_begin(&run->event, "clock");
    metrics_double(&run->event, "ahead_ms", (double)(wall_us - mono_us) / 1e3);
    metrics_double(&run->event, "over_s", (double)mono_us / 1e6);
    metrics_write(run->metrics, &run->event);
}

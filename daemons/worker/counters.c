/* counters.c: what the admin port says. */
#include "common/admin.h"
#include "worker/drain.h"

bool drain_healthy(void *arg, struct buf *why)
{
    struct drain_counters *counters = arg;
    if (atomic_load(&counters->failed)) {
        buf_puts(why, "the lanes have stopped, and a person must act: see the log");
        return false;
    }
    return true;
}

bool drain_ready(void *arg, struct buf *why)
{
    struct drain_counters *counters = arg;
    if (!drain_healthy(arg, why)) {
        return false;
    }
    if (!atomic_load(&counters->main_checked)) {
        buf_puts(why, "the sink is not open or the main DB not checked yet");
        return false;
    }
    int open = atomic_load(&counters->lanes_open);
    if (open < counters->lanes || counters->lanes == 0) {
        buf_printf(why, "%d of %d lanes are open", open, counters->lanes);
        return false;
    }
    if (atomic_load(&counters->lanes_failing) == counters->lanes) {
        buf_puts(why, "the main DB takes nothing in any lane");
        return false;
    }
    return true;
}

void drain_metrics(void *arg, struct buf *out)
{
    struct drain_counters *counters = arg;
    const struct {
        const char *name;
        const char *kind;
        const char *help;
        long long value;
    } samples[] = {
        {"sluice_worker_batches_total", "counter", "Batches committed to the main DB",
         atomic_load(&counters->batches)},
        {"sluice_worker_inserted_total", "counter", "Rows new in the main DB",
         atomic_load(&counters->inserted)},
        {"sluice_worker_redelivered_total", "counter", "Tasks that were there already",
         atomic_load(&counters->redelivered)},
        {"sluice_worker_dead_total", "counter", "Tasks written to the dead letters",
         atomic_load(&counters->dead)},
        {"sluice_worker_conflicts_total", "counter",
         "Dead letters whose id is in the main DB with another body",
         atomic_load(&counters->conflicts)},
        {"sluice_worker_commit_failures_total", "counter", "Attempts that the main DB did not take",
         atomic_load(&counters->commit_failures)},
        {"sluice_worker_fetch_failures_total", "counter", "Fetches that the sink did not answer",
         atomic_load(&counters->fetch_failures)},
        {"sluice_worker_ack_failures_total", "counter",
         "Acks or returns that the sink did not take", atomic_load(&counters->ack_failures)},
        {"sluice_worker_open_tasks", "gauge", "Tasks fetched and not yet acknowledged",
         atomic_load(&counters->open_tasks)},
        {"sluice_worker_lanes_open", "gauge", "Lanes at work", atomic_load(&counters->lanes_open)},
        {"sluice_worker_lanes_failing", "gauge", "Lanes whose last attempt at the main DB failed",
         atomic_load(&counters->lanes_failing)},
    };
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        admin_metric(out, samples[i].name, samples[i].kind, samples[i].help,
                     (double)samples[i].value);
    }
}

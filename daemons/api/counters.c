#include "api/counters.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "common/admin.h"

/* A flush that takes this long is a disk that hangs. */
#define STUCK_NS (2 * NS_PER_S)

static const int64_t bucket_us[DURABLE_BUCKETS] = {250,    500,     1000,    2500,   5000,
                                                   10000,  25000,   50000,   100000, 250000,
                                                   500000, 1000000, 2500000, 5000000};

void counters_init(struct counters *counters)
{
    memset(counters, 0, sizeof(*counters));
    pthread_mutex_init(&counters->why_mutex, NULL);
}

void counters_free(struct counters *counters)
{
    pthread_mutex_destroy(&counters->why_mutex);
}

void counters_why(struct counters *counters, const char *sentence)
{
    if (strcmp(counters->why, sentence) != 0) { /* seldom: the loop asks in every pass */
        pthread_mutex_lock(&counters->why_mutex);
        snprintf(counters->why, sizeof(counters->why), "%s", sentence);
        pthread_mutex_unlock(&counters->why_mutex);
    }
}

void counters_outcome(struct counters *counters, enum sink_outcome outcome, int64_t waited_ns,
                      unsigned batch)
{
    counter_add(&counters->outcomes[outcome], 1);
    if (outcome != SINK_DURABLE) {
        return;
    }
    int64_t waited_us = waited_ns / NS_PER_US;
    unsigned bucket = 0;
    while (bucket < DURABLE_BUCKETS && waited_us > bucket_us[bucket]) {
        bucket++;
    }
    counter_add(&counters->durable_bucket[bucket], 1);
    counter_add(&counters->durable_sum_us, waited_us);
    counter_add(&counters->batches_millionths, 1000000 / (batch > 0 ? batch : 1));
}

static bool is_stuck(struct counters *counters, struct buf *why)
{
    long long since_ns = counter_get(&counters->busy_since_ns);
    int64_t busy_ns = since_ns > 0 ? clock_mono_ns() - since_ns : 0;
    if (busy_ns < STUCK_NS) {
        return false;
    }
    buf_printf(why, "the loop has been stuck for %.1f s, most likely in a write to the sink",
               (double)busy_ns / (double)NS_PER_S);
    return true;
}

bool counters_healthy(void *arg, struct buf *why)
{
    struct counters *counters = arg;
    if (atomic_load(&counters->condition) == API_BROKEN) {
        buf_puts(why, "the sink has failed for good; see the log and restart the server");
        return false;
    }
    return !is_stuck(counters, why);
}

bool counters_ready(void *arg, struct buf *why)
{
    struct counters *counters = arg;
    switch ((enum api_condition)atomic_load(&counters->condition)) {
    case API_OK:
        return !is_stuck(counters, why);
    case API_STARTING:
        buf_puts(why, "starting");
        return false;
    case API_NOT_READY:
        pthread_mutex_lock(&counters->why_mutex);
        buf_puts(why, counters->why[0] != '\0' ? counters->why : "the sink takes no task now");
        pthread_mutex_unlock(&counters->why_mutex);
        return false;
    case API_FULL:
        buf_puts(why, "the backlog has reached its bound; the worker must catch up");
        return false;
    case API_STOPPING:
        buf_puts(why, "shutting down");
        return false;
    case API_BROKEN:
        buf_puts(why, "the sink has failed for good; see the log and restart the server");
        return false;
    }
    return false;
}

static void replies(struct counters *counters, struct buf *out)
{
    buf_puts(out,
             "# HELP sluice_api_replies_total Answers by status and reason; malformed requests "
             "that the HTTP library answers by itself are not among them.\n"
             "# TYPE sluice_api_replies_total counter\n");
    for (enum reply reply = REPLY_ACCEPTED; reply < REPLY_COUNT; reply++) {
        buf_printf(out, "sluice_api_replies_total{code=\"%u\",reason=\"%s\"} %lld\n",
                   reply_code(reply), reply_reason(reply), counter_get(&counters->replies[reply]));
    }
    buf_puts(out, "# HELP sluice_api_outcomes_total What the sink has said of tasks.\n"
                  "# TYPE sluice_api_outcomes_total counter\n");
    for (enum sink_outcome outcome = SINK_DURABLE; outcome <= SINK_UNKNOWN; outcome++) {
        buf_printf(out, "sluice_api_outcomes_total{outcome=\"%s\"} %lld\n",
                   sink_outcome_name(outcome), counter_get(&counters->outcomes[outcome]));
    }
}

static void durable_histogram(struct counters *counters, struct buf *out)
{
    const char *name = "sluice_api_durable_seconds";
    buf_printf(out,
               "# HELP %s From the complete request to the task being durable.\n"
               "# TYPE %s histogram\n",
               name, name);
    long long total = 0;
    for (unsigned i = 0; i < DURABLE_BUCKETS; i++) {
        total += counter_get(&counters->durable_bucket[i]);
        buf_printf(out, "%s_bucket{le=\"%g\"} %lld\n", name, (double)bucket_us[i] / 1e6, total);
    }
    total += counter_get(&counters->durable_bucket[DURABLE_BUCKETS]);
    buf_printf(out, "%s_bucket{le=\"+Inf\"} %lld\n%s_sum %.6f\n%s_count %lld\n", name, total, name,
               (double)counter_get(&counters->durable_sum_us) / 1e6, name, total);
}

void counters_metrics(void *arg, struct buf *out)
{
    struct counters *counters = arg;
    struct buf unused = {0};
    replies(counters, out);
    durable_histogram(counters, out);
    admin_metric(out, "sluice_api_batches_total", "counter",
                 "Flushes, statements or round trips that made tasks durable.",
                 (double)counter_get(&counters->batches_millionths) / 1e6);
    admin_metric(out, "sluice_api_late_outcomes_total", "counter",
                 "Tasks decided by the sink after their client was answered or gone.",
                 (double)counter_get(&counters->late_outcomes));
    admin_metric(out, "sluice_api_slow_requests_total", "counter",
                 "Connections ended because a request did not arrive in time.",
                 (double)counter_get(&counters->slow_requests));
    admin_metric(out, "sluice_api_loop_passes_total", "counter", "Passes of the event loop.",
                 (double)counter_get(&counters->passes));
    admin_metric(out, "sluice_api_connections", "gauge", "Open client connections.",
                 (double)counter_get(&counters->connections));
    admin_metric(out, "sluice_api_in_flight_tasks", "gauge",
                 "Tasks taken in and not yet decided by the sink.",
                 (double)counter_get(&counters->in_flight_tasks));
    admin_metric(out, "sluice_api_in_flight_bytes", "gauge", "The bytes of their bodies.",
                 (double)counter_get(&counters->in_flight_bytes));
    admin_metric(out, "sluice_api_backlog_tasks", "gauge",
                 "Durable and not yet acknowledged by the worker; -1 when unknown.",
                 (double)counter_get(&counters->backlog_tasks));
    admin_metric(out, "sluice_api_backlog_bytes", "gauge", "The same in bytes.",
                 (double)counter_get(&counters->backlog_bytes));
    admin_metric(out, "sluice_api_healthy", "gauge", "1 when /healthz says ok.",
                 counters_healthy(counters, &unused) ? 1 : 0);
    admin_metric(out, "sluice_api_ready", "gauge", "1 when /readyz says ok.",
                 counters_ready(counters, &unused) ? 1 : 0);
    buf_free(&unused);
}

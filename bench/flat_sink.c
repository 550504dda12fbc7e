/* flat_sink: how many tasks a second a sink's driver takes, through sink.h alone: one loop that
 * keeps IN-FLIGHT tasks between submit and outcome for so many SECONDS. Beside a plain client of
 * the same server (ref_NAME) it shows what the driver itself costs.
 *
 *   flat_sink --sink=NAME [--seconds=3] [--in-flight=200] [--body-bytes=512] [--drain] [sink
 * settings]
 *
 * Prints rate, the time from submit to outcome, how many tasks were decided together, and outcomes
 * that were not DURABLE. With --drain it then takes everything out again, one lane in batches of
 * 1000. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/options.h"
#include "hist.h"
#include "sink/sink.h"
#include "task/task.h"

static const struct option_spec flat_options[] = {
    {.name = "seconds",
     .type = OPTION_DECIMAL,
     .unit = "N",
     .default_text = "3",
     .min = 0,
     .max = 60,
     .help = "how long to submit"},
    {.name = "in-flight",
     .type = OPTION_INT,
     .unit = "N",
     .default_text = "200",
     .min = 1,
     .max = 100000,
     .help = "tasks between submit and outcome"},
    {.name = "body-bytes",
     .type = OPTION_SIZE,
     .unit = "SIZE",
     .default_text = "512",
     .min = 1,
     .max = 16 << 20,
     .help = "size of each body"},
    {.name = "drain", .type = OPTION_BOOL, .help = "take everything out again"},
    {.name = NULL},
};

struct flat {
    const struct sink_driver *driver;
    struct options *options;
    struct hist *latency;
    char *body;
    size_t body_bytes;
    int64_t taken, settled, batches_sum;
    int64_t outcomes[3];
    int64_t *began_ns; /* a slot for each task in flight */
    int64_t **free_slots;
    size_t free_count;
};

static struct flat flat;

static void on_done(void *arg, enum sink_outcome outcome, unsigned batch)
{
    int64_t *began_ns = arg;
    hist_add(flat.latency, clock_mono_ns() - *began_ns);
    flat.free_slots[flat.free_count++] = began_ns;
    flat.outcomes[outcome]++;
    flat.batches_sum += batch;
    flat.settled++;
}

static void step(struct sink *sink, int64_t longest_ns)
{
    const struct sink_driver *driver = flat.driver;
    int64_t due_ns = driver->due_ns(sink);
    int64_t wait_ns = due_ns < 0 || due_ns > longest_ns ? longest_ns : due_ns;
    struct timespec timeout = {.tv_sec = wait_ns / NS_PER_S, .tv_nsec = wait_ns % NS_PER_S};
    struct pollfd polled = {.fd = driver->fd(sink), .events = POLLIN};
    ppoll(&polled, 1, &timeout, NULL);
    if (driver->process(sink) < 0) {
        fprintf(stderr, "flat_sink: the sink is broken for good\n");
        exit(3);
    }
}

static void top_up(struct sink *sink, int64_t now_ns)
{
    struct task task = {.body = flat.body, .body_bytes = flat.body_bytes};
    while (flat.free_count > 0) {
        int64_t *slot = flat.free_slots[flat.free_count - 1];
        task_synth_id(1, (uint64_t)flat.taken, task.id);
        task.accepted_us = flat.taken;
        if (flat.driver->submit(sink, &task, on_done, slot) != 0) {
            break;
        }
        *slot = now_ns;
        flat.free_count--;
        flat.taken++;
    }
}

static void await_ready(struct sink *sink)
{
    int64_t until_ns = clock_mono_ns() + 10 * NS_PER_S;
    while (!flat.driver->ready(sink)) {
        if (clock_mono_ns() > until_ns) {
            fprintf(stderr, "flat_sink: the sink is not ready after 10 s\n");
            exit(3);
        }
        step(sink, 10 * NS_PER_MS);
    }
}

static void submit_for(struct sink *sink, double seconds)
{
    await_ready(sink);
    int64_t start_ns = clock_mono_ns();
    int64_t end_ns = start_ns + (int64_t)(seconds * 1e9);
    int64_t now_ns;
    while ((now_ns = clock_mono_ns()) < end_ns) {
        top_up(sink, now_ns);
        step(sink, end_ns - now_ns);
    }
    int64_t settled = flat.settled;
    double took_s = (double)(now_ns - start_ns) / 1e9;
    flat.driver->close(sink, clock_mono_ns() + 10 * NS_PER_S);
    printf("rate %.0f\n", (double)settled / took_s);
    printf("p50_ms %.3f\np99_ms %.3f\n", (double)hist_percentile_ns(flat.latency, 0.5) / 1e6,
           (double)hist_percentile_ns(flat.latency, 0.99) / 1e6);
    printf("together %.1f\n",
           flat.settled > 0 ? (double)flat.batches_sum / (double)flat.settled : 0);
    printf("refused %" PRId64 "\nunknown %" PRId64 "\n", flat.outcomes[SINK_REFUSED],
           flat.outcomes[SINK_UNKNOWN]);
}

static int drain_all(struct err *err)
{
    const struct sink_driver *driver = flat.driver;
    struct sink *sink = NULL;
    struct sink_lane *lane = NULL;
    int rc = driver->open(&sink, SINK_DRAIN, flat.options, err);
    if (rc == 0) {
        rc = driver->lane_open(sink, 0, &lane, err);
    }
    int64_t drained = 0;
    int64_t start_ns = clock_mono_ns();
    int64_t last_ns = start_ns;
    while (rc == 0) {
        struct sink_batch batch = {0};
        int count = driver->fetch(lane, 1000, 100, &batch);
        if (count < 0) {
            rc = err_set(err, count, "fetch: %s", strerror(-count));
        } else if (count == 0) {
            break;
        } else {
            driver->ack(lane, &batch);
            drained += count;
            last_ns = clock_mono_ns();
        }
    }
    if (lane) {
        driver->lane_close(lane);
    }
    driver->close(sink, clock_mono_ns() + NS_PER_S);
    printf("drained %" PRId64 "\ndrain_rate %.0f\n", drained,
           last_ns > start_ns ? (double)drained / ((double)(last_ns - start_ns) / 1e9) : 0);
    return rc;
}

static int run(void)
{
    struct err err = {0};
    struct sink *sink = NULL;
    int rc = sink_select(flat.options, &flat.driver, &err);
    if (rc == 0) {
        rc = flat.driver->setup(flat.options, &err);
    }
    if (rc == 0) {
        rc = flat.driver->open(&sink, SINK_INGEST, flat.options, &err);
    }
    if (rc == 0) {
        submit_for(sink, options_decimal(flat.options, "seconds"));
    }
    if (rc == 0 && options_bool(flat.options, "drain")) {
        rc = drain_all(&err);
    }
    if (rc < 0) {
        fprintf(stderr, "flat_sink: %s\n", err.text);
        return rc == -EINVAL ? 2 : 3;
    }
    return 0;
}

int main(int argc, char *argv[])
{
    int exit_code = 0;
    log_init("flat_sink");
    signal(SIGPIPE, SIG_IGN);
    flat.options = options_new("flat_sink", "How many tasks a second a sink's driver takes.");
    options_add(flat.options, "Flat out", flat_options);
    sink_add_options(flat.options);
    if (options_start(flat.options, argc, argv, &exit_code)) {
        size_t in_flight = (size_t)options_int(flat.options, "in-flight");
        flat.latency = hist_new();
        flat.body_bytes = (size_t)options_size_bytes(flat.options, "body-bytes");
        flat.body = xmalloc(flat.body_bytes);
        memset(flat.body, 'x', flat.body_bytes);
        flat.began_ns = xcalloc(in_flight, sizeof(*flat.began_ns));
        flat.free_slots = xcalloc(in_flight, sizeof(*flat.free_slots));
        for (size_t i = 0; i < in_flight; i++) {
            flat.free_slots[flat.free_count++] = &flat.began_ns[i];
        }
        exit_code = run();
        free(flat.free_slots);
        free(flat.began_ns);
        free(flat.body);
        hist_free(flat.latency);
    }
    options_free(flat.options);
    return exit_code;
}

#include "flat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "client.h"
#include "hist.h"
#include "task/task.h"

enum { EVENTS_PER_TURN = 64 };
#define REDIAL_NS     (10 * NS_PER_MS)
#define FIRST_DIAL_NS (5 * NS_PER_S)

struct flat {
    const struct flat_config *config;
    struct flat_result *result;
    struct client *client;
    struct request_form form;
    struct hist *latency;
    int64_t *sent_ns; /* of each connection's latest request */
    bool *answered;   /* has this connection carried an answer? */
    bool running;     /* false while the connections are being opened */
    uint64_t next;
    int last_dial_error;
};

static void send_all(struct flat *f)
{
    while (f->running && client_counts(f->client)->idle > 0) {
        uint8_t id[UUID_BYTES];
        int64_t sent_ns;
        int connection;

        task_synth_id(f->config->seed, f->next, id);
        request_form_fill(&f->form, id);
        connection =
            client_send(f->client, f->next, f->form.bytes.data, f->form.bytes.len, &sent_ns);
        if (connection < 0)
            break;
        f->sent_ns[connection] = sent_ns;
        f->next++;
    }
}

static void on_answer(void *arg, uint64_t n, int connection, const struct response *response,
                      int64_t now_ns)
{
    struct flat *f = arg;
    struct flat_result *result = f->result;
    uint8_t id[UUID_BYTES];
    bool wrong_id;

    task_synth_id(f->config->seed, n, id);
    switch (exchange_outcome(response, id, &wrong_id)) {
    case OUTCOME_DURABLE:
        result->durable++;
        break;
    case OUTCOME_REFUSED:
        result->refused++;
        break;
    default:
        result->unknown++;
        break;
    }
    result->wrong_ids += wrong_id ? 1 : 0;
    result->answers++;
    if (!f->answered[connection]) {
        f->answered[connection] = true;
        result->connections_used++;
    }
    hist_add(f->latency, now_ns - f->sent_ns[connection]);
}

static void on_lost(void *arg, uint64_t n, const char *why, int64_t now_ns)
{
    struct flat *f = arg;

    (void)n;
    (void)why;
    (void)now_ns;
    f->result->lost++;
}

static void on_dial_failed(void *arg, int error, bool local, int64_t now_ns)
{
    struct flat *f = arg;

    (void)now_ns;
    f->last_dial_error = error;
    if (local)
        f->result->local_failures++;
    else
        f->result->refused_dials++;
}

static void on_idle(void *arg)
{
    send_all(arg);
}

static const struct client_handler handler = {
    .answer = on_answer,
    .lost = on_lost,
    .dial_failed = on_dial_failed,
    .idle = on_idle,
};

static double cpu_us(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static int connect_all(struct flat *f, struct err *err)
{
    const struct client_counts *counts = client_counts(f->client);
    int64_t end_ns = clock_mono_ns() + FIRST_DIAL_NS;

    client_dial(f->client, f->config->connections);
    while (counts->dialing > 0 && clock_mono_ns() < end_ns && !f->result->interrupted)
        f->result->interrupted = client_wait(f->client, end_ns, EVENTS_PER_TURN);
    if (counts->idle > 0 || f->result->interrupted)
        return 0;
    if (f->last_dial_error == 0)
        f->last_dial_error = ETIMEDOUT;
    return err_set(err, -f->last_dial_error, "cannot connect to %s: %s", f->config->target->host,
                   strerror(f->last_dial_error));
}

static void run(struct flat *f)
{
    const struct client_counts *counts = client_counts(f->client);
    int64_t start_ns = clock_mono_ns(), now_ns = start_ns, redial_ns = start_ns;
    int64_t end_ns = start_ns + f->config->duration_ns;
    double cpu_start_us = cpu_us();

    f->running = true;
    send_all(f);
    while (now_ns < end_ns && !f->result->interrupted) {
        unsigned open = counts->idle + counts->busy + counts->dialing;
        int64_t deadline_ns = end_ns;

        if (open < f->config->connections) {
            if (now_ns >= redial_ns) {
                client_dial(f->client, f->config->connections - open);
                redial_ns = now_ns + REDIAL_NS;
            }
            if (redial_ns < deadline_ns)
                deadline_ns = redial_ns;
        }
        f->result->interrupted = client_wait(f->client, deadline_ns, EVENTS_PER_TURN);
        now_ns = clock_mono_ns();
    }
    f->running = false;
    f->result->seconds = (double)(now_ns - start_ns) / (double)NS_PER_S;
    if (f->result->answers > 0)
        f->result->cpu_us_per_answer = (cpu_us() - cpu_start_us) / (double)f->result->answers;
}

int flat_run(const struct flat_config *config, struct flat_result *result, struct err *err)
{
    struct flat f = {.config = config, .result = result};
    const struct client_config client_config = {
        .address = config->target->address,
        .address_len = config->target->address_len,
        .connections_max = config->connections,
        .wake_fd = config->wake_fd,
        .handler = &handler,
        .arg = &f,
    };
    int rc;

    memset(result, 0, sizeof(*result));
    request_form_init(&f.form, config->target, config->path, config->payload_bytes);
    f.latency = hist_new();
    f.sent_ns = xcalloc(config->connections, sizeof(*f.sent_ns));
    f.answered = xcalloc(config->connections, sizeof(*f.answered));
    rc = client_open(&f.client, &client_config, err);
    if (rc == 0)
        rc = connect_all(&f, err);
    if (rc == 0) {
        run(&f);
        result->p50_ns = hist_percentile_ns(f.latency, 0.5);
        result->p99_ns = hist_percentile_ns(f.latency, 0.99);
        result->max_ns = hist_max_ns(f.latency);
    }
    client_close(f.client);
    free(f.answered);
    free(f.sent_ns);
    hist_free(f.latency);
    request_form_free(&f.form);
    return rc;
}

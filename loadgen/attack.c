#include "attack.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "client.h"
#include "task/task.h"

enum {
    EVENTS_PER_TURN = 16, /* answers handled before the schedule is looked at again: ~100 us */
    DIALS_PER_TURN = 32,
    DUES_PER_TURN = 256,
};
#define TICK_NS         (100 * NS_PER_MS) /* upkeep of the pool */
#define DIAL_TIMEOUT_NS (3 * NS_PER_S)    /* a lost SYN must not hold a place for minutes */
#define SURPLUS_KEEP_NS (10 * NS_PER_S)   /* how long connections past `connections` stay */
#define FIRST_DIAL_NS   (5 * NS_PER_S)
#define BURST_EACH_NS   (250 * NS_PER_US)
#define BURST_ALL_NS    (20 * NS_PER_MS)

struct request {
    int64_t due_ns; /* like all times here since the load's begin */
    int64_t handled_ns;
    int64_t own_ns;
    int64_t sent_ns;
    unsigned phase;
    int connection; /* that carries it; -1: settled */
};

struct attack {
    const struct attack_config *config;
    struct attack_result *result;
    struct client *client;
    struct request_form form;
    /* Requests base..next-1 are due and not all settled; of these, those from `unsent` on wait for
     * a connection: requests come due and are sent in one order, so the line needs no list. */
    struct request *ring;
    size_t ring_mask;
    uint64_t base, unsent, next, total;
    struct own_lateness own;
    int64_t tick_ns, surplus_until_ns; /* clock_mono_ns */
    int64_t stop_ns;                   /* everything is settled by then; INT64_MAX while sending */
    int last_dial_error;
};

static int64_t lesser(int64_t a_ns, int64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

static struct request *request_at(struct attack *a, uint64_t n)
{
    return &a->ring[n & a->ring_mask];
}

static int64_t since_start(const struct attack *a, int64_t mono_ns)
{
    return mono_ns - a->config->start_ns;
}

static void settle(struct attack *a, uint64_t n, enum outcome outcome, int code, int64_t now_ns)
{
    struct request *request = request_at(a, n);
    struct settled settled = {
        .due_ns = request->due_ns,
        .handled_ns = request->handled_ns,
        .own_ns = request->own_ns,
        .sent_ns = request->sent_ns,
        .done_ns = since_start(a, now_ns),
        .code = code,
        .outcome = outcome,
        .phase = request->phase,
    };

    task_synth_id(a->config->seed, n, settled.id);
    request->connection = -1;
    while (a->base < a->unsent && request_at(a, a->base)->connection < 0)
        a->base++;
    a->config->settle(a->config->arg, &settled);
}

/* The oldest waiting request will not be sent any more. */
static void settle_unsent(struct attack *a, int64_t now_ns)
{
    uint64_t n = a->unsent++;

    settle(a, n, OUTCOME_UNSENT, 0, now_ns);
}

/* Sends what waits, while there are idle connections. */
static void dispatch(struct attack *a)
{
    while (a->unsent < a->next && client_counts(a->client)->idle > 0) {
        struct request *request = request_at(a, a->unsent);
        uint8_t id[UUID_BYTES];
        int64_t sent_ns;
        int connection;

        task_synth_id(a->config->seed, a->unsent, id);
        request_form_fill(&a->form, id);
        connection =
            client_send(a->client, a->unsent, a->form.bytes.data, a->form.bytes.len, &sent_ns);
        if (connection < 0)
            break;
        request->connection = connection;
        request->sent_ns = since_start(a, sent_ns);
        a->unsent++;
    }
}

static void on_answer(void *arg, uint64_t n, int connection, const struct response *response,
                      int64_t now_ns)
{
    struct attack *a = arg;
    uint8_t id[UUID_BYTES];
    enum outcome outcome;
    bool wrong_id;

    (void)connection;
    task_synth_id(a->config->seed, n, id);
    outcome = exchange_outcome(response, id, &wrong_id);
    if (wrong_id && a->result->wrong_ids++ == 0)
        log_error("a 202 came back without the id that was sent; it counts as unknown");
    settle(a, n, outcome, response->status, now_ns);
}

static void on_lost(void *arg, uint64_t n, const char *why, int64_t now_ns)
{
    struct attack *a = arg;

    if (strncmp(why, "connection", 10) != 0 && a->result->garbage++ == 0)
        log_error("the target's answer is not valid HTTP: %s; it counts as unknown", why);
    settle(a, n, OUTCOME_UNKNOWN, 0, now_ns);
}

static void on_dial_failed(void *arg, int error, bool local, int64_t now_ns)
{
    struct attack *a = arg;

    a->last_dial_error = error;
    if (local) {
        if (a->result->local_failures++ == 0)
            log_warning("cannot open a connection, and the fault is on this side: %s",
                        strerror(error));
        return;
    }
    a->result->refused_dials++;
    if (a->unsent < a->next)
        settle_unsent(a, now_ns);
}

static void on_idle(void *arg)
{
    struct attack *a = arg;

    a->last_dial_error = 0;
    dispatch(a);
}

static const struct client_handler handler = {
    .answer = on_answer,
    .lost = on_lost,
    .dial_failed = on_dial_failed,
    .idle = on_idle,
};

static void ring_grow(struct attack *a)
{
    size_t old_size = a->ring_mask + 1, size = old_size * 2;
    struct request *ring = xmalloc(size * sizeof(*ring));

    for (uint64_t n = a->base; n < a->next; n++)
        ring[n & (size - 1)] = a->ring[n & a->ring_mask];
    free(a->ring);
    a->ring = ring;
    a->ring_mask = size - 1;
}

int64_t own_lateness(struct own_lateness *own, int64_t due_ns, int64_t handled_ns)
{
    if (due_ns != own->due_ns) {
        own->due_ns = due_ns;
        own->allowed_ns = 0;
    } else {
        int64_t took_ns = handled_ns - own->handled_ns;

        own->allowed_ns += lesser(took_ns, BURST_EACH_NS);
        own->allowed_ns = lesser(own->allowed_ns, BURST_ALL_NS);
    }
    own->handled_ns = handled_ns;
    return handled_ns - due_ns - own->allowed_ns;
}

/* Takes from the schedule what is due by now. Returns when the next one will be (clock_mono_ns),
 * INT64_MAX when there is none. */
static int64_t take_due(struct attack *a)
{
    for (int taken = 0; a->next < a->total; taken++) {
        size_t phase;
        int64_t due_ns = pace_due_ns(a->config->pace, a->next, &phase);
        int64_t now_ns = since_start(a, clock_mono_ns());

        if (due_ns > now_ns || taken == DUES_PER_TURN)
            return a->config->start_ns + due_ns;
        if (a->next - a->base > a->ring_mask)
            ring_grow(a);
        *request_at(a, a->next) = (struct request){
            .due_ns = due_ns,
            .handled_ns = now_ns,
            .own_ns = own_lateness(&a->own, due_ns, now_ns),
            .sent_ns = ATTACK_NEVER,
            .phase = (unsigned)phase,
            .connection = -1,
        };
        a->next++;
        dispatch(a);
    }
    return INT64_MAX;
}

/* One connection for each request in line, as far as they go. */
static void dial_for_line(struct attack *a)
{
    uint64_t waiting = a->next - a->unsent;
    unsigned dialing = client_counts(a->client)->dialing;

    if (waiting <= dialing)
        return;
    waiting -= dialing;
    a->surplus_until_ns = clock_mono_ns() + SURPLUS_KEEP_NS;
    client_dial(a->client, waiting < DIALS_PER_TURN ? (unsigned)waiting : DIALS_PER_TURN);
}

/* Gives up what is too old. Returns when the next one will be. */
static int64_t take_timeouts(struct attack *a, int64_t now_ns)
{
    while (a->base < a->next) {
        struct request *request = request_at(a, a->base);
        int64_t end_ns = a->config->start_ns + request->due_ns + a->config->timeout_ns;

        if (end_ns > a->stop_ns)
            end_ns = a->stop_ns;
        if (end_ns > now_ns)
            return end_ns;
        if (a->base == a->unsent) {
            settle_unsent(a, now_ns);
        } else {
            client_cancel(a->client, request->connection);
            settle(a, a->base, OUTCOME_UNKNOWN, 0, now_ns);
        }
    }
    return INT64_MAX;
}

/* Keeps `connections` open, tries gently while the peer is away, lets a surplus go. */
static void tend_pool(struct attack *a, int64_t now_ns)
{
    const struct client_counts *counts = client_counts(a->client);
    unsigned open;

    client_drop_dials(a->client, DIAL_TIMEOUT_NS);
    open = counts->idle + counts->busy + counts->dialing;
    if (open < a->config->connections) {
        unsigned wanted = a->config->connections - open;

        client_dial(a->client, a->last_dial_error ? 1 : wanted);
    } else if (open > a->config->connections && now_ns > a->surplus_until_ns) {
        client_trim(a->client, open - a->config->connections);
    }
    a->tick_ns = now_ns + TICK_NS;
}

static void publish(struct attack *a)
{
    struct attack_progress *progress = a->config->progress;
    const struct client_counts *counts = client_counts(a->client);

    if (!progress)
        return;
    atomic_store_explicit(&progress->handled, a->next, memory_order_relaxed);
    atomic_store_explicit(&progress->in_flight, counts->busy, memory_order_relaxed);
    atomic_store_explicit(&progress->waiting, (unsigned)(a->next - a->unsent),
                          memory_order_relaxed);
    atomic_store_explicit(&progress->connections, counts->busy + counts->idle,
                          memory_order_relaxed);
}

/* The first time: no more is sent, what is out gets its grace. The second time: now. */
static void interrupt(struct attack *a)
{
    int64_t now_ns = clock_mono_ns();

    a->stop_ns = a->result->interrupted ? now_ns : now_ns + a->config->grace_ns;
    a->result->interrupted = true;
    a->total = a->next;
    while (a->unsent < a->next)
        settle_unsent(a, now_ns);
}

static bool stop_wanted(const struct attack *a)
{
    return a->config->progress &&
           atomic_load_explicit(&a->config->progress->stop, memory_order_relaxed);
}

/* Opens the connections before the load begins, so that its first requests do not pay for it. */
static int warm_up(struct attack *a, struct err *err)
{
    const struct client_counts *counts = client_counts(a->client);
    int64_t end_ns = clock_mono_ns() + FIRST_DIAL_NS;
    unsigned wanted = a->config->connections;

    client_dial(a->client, wanted);
    while (counts->idle < wanted && counts->dialing > 0) {
        int64_t until_ns =
            counts->idle > 0 && a->config->start_ns < end_ns ? a->config->start_ns : end_ns;

        if (clock_mono_ns() >= until_ns)
            break;
        if (client_wait(a->client, until_ns, EVENTS_PER_TURN) || stop_wanted(a)) {
            interrupt(a);
            return 0;
        }
    }
    if (counts->idle > 0)
        return 0;
    if (a->last_dial_error == 0)
        a->last_dial_error = ETIMEDOUT;
    return err_set(err, -a->last_dial_error, "cannot connect to %s: %s; is the API running there?",
                   a->config->target->host, strerror(a->last_dial_error));
}

/* The load lasts to its last phase's end, also when nothing is due or out any more. */
static void run(struct attack *a)
{
    int64_t end_ns = a->config->start_ns + pace_end_ns(a->config->pace);
    int64_t now_ns = clock_mono_ns();
    bool woken = false;

    while (a->next < a->total || a->base < a->next ||
           (now_ns < end_ns && !a->result->interrupted)) {
        int64_t deadline_ns, timeout_ns;

        if (woken || (!a->result->interrupted && stop_wanted(a)))
            interrupt(a);
        deadline_ns = take_due(a);
        dial_for_line(a);
        now_ns = clock_mono_ns();
        timeout_ns = take_timeouts(a, now_ns);
        if (now_ns >= a->tick_ns)
            tend_pool(a, now_ns);
        deadline_ns = lesser(lesser(deadline_ns, timeout_ns), a->tick_ns);
        if (now_ns < end_ns)
            deadline_ns = lesser(deadline_ns, end_ns);
        publish(a);
        woken = client_wait(a->client, deadline_ns, EVENTS_PER_TURN);
        now_ns = clock_mono_ns();
    }
    publish(a);
}

int attack_run(const struct attack_config *config, struct attack_result *result, struct err *err)
{
    struct attack a = {
        .config = config,
        .result = result,
        .total = pace_count(config->pace),
        .ring_mask = 1023,
        .own = {.due_ns = -1},
        .stop_ns = INT64_MAX,
        .tick_ns = clock_mono_ns() + TICK_NS,
    };
    const struct client_config client_config = {
        .address = config->target->address,
        .address_len = config->target->address_len,
        .connections_max = config->connections_max,
        .spin_ns = config->spin_ns,
        .wake_fd = config->wake_fd,
        .handler = &handler,
        .arg = &a,
    };
    int rc;

    assert(config->connections >= 1 && config->connections <= config->connections_max);
    memset(result, 0, sizeof(*result));
    request_form_init(&a.form, config->target, config->path, config->payload_bytes);
    a.ring = xmalloc((a.ring_mask + 1) * sizeof(*a.ring));
    rc = client_open(&a.client, &client_config, err);
    if (rc < 0)
        goto out;
    rc = warm_up(&a, err);
    if (rc < 0)
        goto out;
    run(&a);
    result->due = a.next;
    result->dials = client_counts(a.client)->dials;
    result->idle_closes = client_counts(a.client)->idle_closes;
out:
    client_close(a.client);
    free(a.ring);
    request_form_free(&a.form);
    return rc;
}

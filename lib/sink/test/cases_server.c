/* cases_server.c: servers that hang, go and come back, and connections that break at any point of a
 * batch: nothing DURABLE is lost, nothing REFUSED is stored, and it heals by itself. */
#include "contract.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

static void wait_ready(struct sender *sender, bool ready)
{
    struct contract *contract = sender->contract;
    int64_t until_ns = clock_mono_ns() + contract->patience_ns;
    while (contract->driver->ready(sender->sink) != ready) {
        expect(clock_mono_ns() < until_ns,
               ready ? "it does not become ready again" : "ready, and its server hangs");
        sender_step(sender, 10 * NS_PER_MS);
    }
}

static void send_while_taken(struct sender *sender, unsigned first, unsigned count)
{
    struct buf body = {0};
    struct task task;
    for (unsigned i = first; i < first + count; i++) {
        make_task(sender->contract, i, &body, &task);
        if (sender_submit(sender, &task) != 0) {
            break;
        }
    }
    buf_free(&body);
}

static void expect_durable_from(const struct sender *sender, size_t first)
{
    for (size_t i = first; i < sender->count; i++) {
        expect(sender->sent[i]->outcome == SINK_DURABLE, "undisturbed again, and a task is %s",
               sink_outcome_name(sender->sent[i]->outcome));
    }
}

/* A server that answers nothing: each waiter has its outcome in the end, and none is a lie. */
static void server_paused(struct contract *contract)
{
    struct sender sender;
    struct store store = {0};
    sender_open(&sender, contract);
    sender_send_numbers(&sender, 0, 100);
    sender_step(&sender, 0); /* some of it is on the wire */
    contract->world->server_pause(contract);
    send_while_taken(&sender, 100, 50);
    sender_step(&sender, 0);
    send_while_taken(&sender, 200, 50);
    sender_finish(&sender);
    wait_ready(&sender, false);
    contract->world->server_resume(contract);
    wait_ready(&sender, true);
    size_t before = sender.count;
    sender_send_numbers(&sender, 1000, 50);
    sender_finish(&sender);
    expect_durable_from(&sender, before);
    sender_close(&sender, contract->patience_ns);
    clock_sleep_ns(300 * NS_PER_MS); /* it may still work on what was given up */
    collect(contract, &store);
    check_stored(&sender, &store, false);
    store_free(&store);
    sender_free(&sender);
}

/* A server that is killed again and again while tasks pour in. */
static void server_killed_repeatedly(struct contract *contract)
{
    struct sender sender;
    struct store store = {0};
    sender_open(&sender, contract);
    for (unsigned round = 0; round < 3; round++) {
        sender_send_numbers(&sender, round * 1000, 150);
        for (unsigned i = 0; i < round; i++) {
            sender_step(&sender, 2 * NS_PER_MS);
        }
        contract->world->server_stop(contract);
        send_while_taken(&sender, round * 1000 + 500, 20); /* it may not have noticed yet */
        sender_step(&sender, 0);
        contract->world->server_start(contract);
        wait_ready(&sender, true);
    }
    sender_finish(&sender);
    size_t before = sender.count;
    sender_send_numbers(&sender, 9000, 50);
    sender_finish(&sender);
    expect_durable_from(&sender, before);
    sender_close(&sender, contract->patience_ns);
    collect(contract, &store);
    check_stored(&sender, &store, false);
    store_free(&store);
    sender_free(&sender);
}

/* ---- the drain side ---- */

/* An API that has put tasks 0..count-1 into the sink and stays up. */
static void api_with_tasks(struct sender *api, struct contract *contract, unsigned count)
{
    sender_open(api, contract);
    sender_send_numbers(api, 0, count);
    sender_finish(api);
    expect_durable_from(api, 0);
}

static void api_end(struct sender *api)
{
    sender_close(api, api->contract->patience_ns);
    sender_free(api);
}

/* The rest of it, acknowledged. What was acknowledged in vain before may come again. */
static void drain_rest(struct consumer *consumer, struct sender *api, struct store *store)
{
    struct contract *contract = consumer->contract;
    int64_t until_ns = clock_mono_ns() + contract->patience_ns;
    unsigned empty = 0;
    for (;;) {
        size_t missing = 0;
        for (size_t i = 0; i < api->count; i++) {
            missing += store_count(store, &api->sent[i]->task) == 0;
        }
        if (missing == 0 && empty >= 2) {
            return;
        }
        expect(clock_mono_ns() < until_ns, "%zu of %zu tasks do not come (again)", missing,
               api->count);
        if (consumer_try(consumer, 25, 50, store) > 0) {
            contract->driver->ack(consumer->lane, &consumer->batch);
            until_ns = clock_mono_ns() + contract->patience_ns;
            empty = 0;
        } else {
            empty++;
            sender_step(api, 0);
        }
    }
}

/* Adds what the open batch holds, as the main DB would have it, and acknowledges it: the ack may
 * fail, and then it comes again. */
static void ack_if_possible(struct consumer *consumer, struct store *store)
{
    for (size_t i = 0; i < consumer->batch.count; i++) {
        store_add(store, &consumer->batch.tasks[i]);
    }
    consumer->contract->driver->ack(consumer->lane, &consumer->batch);
}

static void server_stopped_with_a_batch_open(struct contract *contract)
{
    struct sender api;
    struct consumer consumer;
    struct store store = {0};
    api_with_tasks(&api, contract, 90);
    consumer_open(&consumer, contract, 0);
    consumer_fetch(&consumer, 30, NULL);
    contract->world->server_stop(contract);
    contract->driver->keep(consumer.lane); /* may fail, must return */
    contract->world->server_start(contract);
    contract->driver->keep(consumer.lane);
    ack_if_possible(&consumer, &store);
    consumer_fetch(&consumer, 30, NULL);
    contract->world->server_stop(contract);
    ack_if_possible(&consumer, &store); /* while it is away */
    contract->world->server_start(contract);
    drain_rest(&consumer, &api, &store);
    consumer_close(&consumer);
    check_stored(&api, &store, false);
    api_end(&api);
    store_free(&store);
}

/* A cut at each point of a batch's life. */
static void cut_at_every_phase(struct contract *contract)
{
    enum { BEFORE_FETCH, OPEN, KEPT, RELEASE, ACKED, PHASES };
    const struct sink_driver *driver = contract->driver;
    struct sender api;
    struct consumer consumer;
    struct store store = {0};
    api_with_tasks(&api, contract, 200);
    consumer_open(&consumer, contract, 0);
    for (int phase = BEFORE_FETCH; phase < PHASES; phase++) {
        if (phase == BEFORE_FETCH) {
            contract->world->cut(contract);
        }
        consumer_fetch(&consumer, 20, NULL);
        if (phase == KEPT) {
            driver->keep(consumer.lane);
        }
        if (phase == OPEN || phase == KEPT || phase == RELEASE) {
            contract->world->cut(contract);
        }
        if (phase == RELEASE) {
            driver->release(consumer.lane, &consumer.batch);
            continue;
        }
        driver->keep(consumer.lane);
        ack_if_possible(&consumer, &store);
        if (phase == ACKED) {
            contract->world->cut(contract);
        }
    }
    drain_rest(&consumer, &api, &store);
    consumer_close(&consumer);
    check_stored(&api, &store, false);
    api_end(&api);
    store_free(&store);
}

/* Calls keep() of an idle lane as a worker does, until it says whether it is connected. */
static void keep_until(struct consumer *consumer, bool connected)
{
    struct contract *contract = consumer->contract;
    int64_t until_ns = clock_mono_ns() + contract->patience_ns;
    for (;;) {
        int rc = contract->driver->keep(consumer->lane);
        if (connected ? rc == 0 : rc < 0) {
            return;
        }
        expect(rc <= 1000, "keep wants to be called again in %d ms", rc);
        expect(clock_mono_ns() < until_ns,
               connected ? "an idle lane does not come back by keep()"
                         : "keep() of an idle lane does not notice that its server is gone");
        clock_sleep_ns(rc > 0 ? rc * NS_PER_MS : 20 * NS_PER_MS);
    }
}

/* A lane without a batch: keep() alone notices that its server went and brings it back, so that the
 * next fetch, which is the only one at that time, finds its connection. */
static void idle_lanes_come_back_by_keep(struct contract *contract)
{
    struct sender api;
    struct consumer consumer;
    struct store store = {0};
    api_with_tasks(&api, contract, 30);
    consumer_open(&consumer, contract, 0);
    keep_until(&consumer, true);
    contract->world->server_stop(contract);
    keep_until(&consumer, false);
    contract->world->server_start(contract);
    keep_until(&consumer, true);
    drain_rest(&consumer, &api, &store);
    consumer_close(&consumer);
    check_stored(&api, &store, false);
    api_end(&api);
    store_free(&store);
}

/* A server that is silent: keep() of an idle lane returns all the same (else the case's limit ends
 * this), connected or not, and the lane is of use when the server is back. */
static void idle_lanes_bear_a_silent_server(struct contract *contract)
{
    struct sender api;
    struct consumer consumer;
    struct store store = {0};
    api_with_tasks(&api, contract, 30);
    consumer_open(&consumer, contract, 0);
    for (int lost = 0; lost < 2; lost++) {
        if (lost && contract->world->cut) {
            contract->world->cut(contract); /* then it comes back to a server that is silent */
        }
        contract->world->server_pause(contract);
        for (int i = 0; i < 20; i++) {
            contract->driver->keep(consumer.lane);
            clock_sleep_ns(10 * NS_PER_MS);
        }
        contract->world->server_resume(contract);
    }
    keep_until(&consumer, true);
    drain_rest(&consumer, &api, &store);
    consumer_close(&consumer);
    check_stored(&api, &store, false);
    api_end(&api);
    store_free(&store);
}

static void hold_until_killed(struct contract *contract, int to_fd)
{
    struct consumer consumer;
    consumer_open(&consumer, contract, 3);
    unsigned count = (unsigned)consumer_fetch(&consumer, 25, NULL);
    expect(write(to_fd, &count, sizeof(count)) == sizeof(count), "nobody listens");
    for (;;) {
        contract->driver->keep(consumer.lane);
        clock_sleep_ns(20 * NS_PER_MS);
    }
}

/* Two workers; one dies. What it held stays its own until then, and then lane 3 of the other gets
 * it at once. Where there is room for one only, the other comes after. */
static void one_of_two_consumers_dies(struct contract *contract)
{
    struct helper helper;
    struct sender api;
    struct consumer consumer = {.contract = contract};
    struct sink_lane *lane = NULL;
    struct store store = {0};
    struct err err = {0};
    unsigned held = 0;
    helper_start(&helper, contract, hold_until_killed);
    api_with_tasks(&api, contract, 100);
    helper_go(&helper);
    expect(helper_read(&helper, contract, &held, sizeof(held)), "the first worker ended by itself");
    int rc = contract->driver->open(&consumer.sink, SINK_DRAIN, contract->options, &err);
    expect(rc == 0 || rc == -EBUSY, "a second worker: %d: %s", rc, err.text);
    if (rc == 0) {
        rc = contract->driver->lane_open(consumer.sink, 0, &consumer.lane, &err);
        expect(rc == 0, "lane_open: %d: %s", rc, err.text);
        while (store.count < 100 - held) {
            consumer_fetch(&consumer, 25, &store);
            consumer_ack(&consumer);
        }
        expect(consumer_try(&consumer, 25, 300, NULL) == 0,
               "what one worker holds was given to another");
        helper_kill(&helper);
        rc = contract->driver->lane_open(consumer.sink, 3, &lane, &err);
        expect(rc == 0, "lane_open: %d: %s", rc, err.text);
        contract->driver->lane_close(consumer.lane);
        consumer.lane = lane;
    } else {
        helper_kill(&helper);
        consumer_open(&consumer, contract, 3);
    }
    while (store.count < 100) {
        consumer_fetch(&consumer, 25, &store);
        consumer_ack(&consumer);
    }
    consumer_close(&consumer);
    check_stored(&api, &store, true);
    api_end(&api);
    store_free(&store);
}

const struct contract_case server_cases[] = {
    {"server-paused", NEED_STORE | NEED_PAUSE, server_paused},
    {"server-killed-repeatedly", NEED_STORE | NEED_SERVER, server_killed_repeatedly},
    {"server-stopped-with-a-batch-open", NEED_DRAIN | NEED_SERVER,
     server_stopped_with_a_batch_open},
    {"cut-at-every-phase", NEED_DRAIN | NEED_CUT, cut_at_every_phase},
    {"idle-lanes-come-back-by-keep", NEED_DRAIN | NEED_SERVER, idle_lanes_come_back_by_keep},
    {"idle-lanes-bear-a-silent-server", NEED_DRAIN | NEED_PAUSE, idle_lanes_bear_a_silent_server},
    {"one-of-two-consumers-dies", NEED_DRAIN, one_of_two_consumers_dies},
    {NULL, 0, NULL},
};

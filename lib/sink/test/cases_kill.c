/* cases_kill.c: processes that die without a word, connections that break, servers that stop. */
#include "contract.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/* The producer that will be killed: a window of tasks in flight, each number reported once DURABLE.
 */
enum { WINDOW = 64 };

static unsigned first_number; /* set before the helper is made */

static void report_durable(struct sent *sent, void *arg)
{
    unsigned number = (unsigned)(sent->task.accepted_us - 1767182400000000);
    expect(sent->outcome == SINK_DURABLE, "undisturbed, and a task is %s",
           sink_outcome_name(sent->outcome));
    expect(write(*(int *)arg, &number, sizeof(number)) == sizeof(number), "nobody listens");
}

static void produce_until_killed(struct contract *contract, int to_fd)
{
    struct sender sender;
    struct buf body = {0};
    struct task task;
    sender_open(&sender, contract);
    sender.settled_hook = report_durable;
    sender.hook_arg = &to_fd;
    for (unsigned number = first_number;;) {
        while (sender.count - sender.settled < WINDOW) {
            make_task(contract, number++, &body, &task);
            sender_send(&sender, &task);
        }
        sender_step(&sender, NS_PER_S);
    }
}

/* Which numbers were reported before the helper died. */
struct numbers {
    unsigned *values;
    size_t count, room;
};

static void numbers_add(struct numbers *numbers, unsigned value)
{
    if (numbers->count == numbers->room) {
        numbers->room = numbers->room > 0 ? 2 * numbers->room : 1024;
        numbers->values = xrealloc(numbers->values, numbers->room * sizeof(*numbers->values));
    }
    numbers->values[numbers->count++] = value;
}

/* Lets the helper report `enough`, kills it, and takes what it had reported by then as well. */
static void kill_after(struct helper *helper, struct contract *contract, size_t enough,
                       struct numbers *numbers)
{
    unsigned value;
    size_t goal = numbers->count + enough;
    while (numbers->count < goal) {
        expect(helper_read(helper, contract, &value, sizeof(value)), "the helper ended by itself");
        numbers_add(numbers, value);
    }
    helper_kill(helper);
    while (helper_read(helper, contract, &value, sizeof(value))) {
        numbers_add(numbers, value);
    }
    close(helper->go_fd);
    close(helper->from_fd);
}

static void expect_all(struct contract *contract, struct store *store,
                       const struct numbers *numbers)
{
    struct buf body = {0};
    for (size_t i = 0; i < numbers->count; i++) {
        struct task task;
        make_task(contract, numbers->values[i], &body, &task);
        expect(store_count(store, &task) >= 1,
               "task %u was DURABLE before the kill and is lost (%zu of %zu reported)",
               numbers->values[i], i, numbers->count);
    }
    buf_free(&body);
}

static void producer_killed(struct contract *contract)
{
    struct numbers durable = {0};
    struct store store = {0};
    for (unsigned round = 0; round < 4; round++) {
        struct helper helper;
        first_number = round * 100000;
        helper_start(&helper, contract, produce_until_killed);
        helper_go(&helper);
        kill_after(&helper, contract, 30 + 111 * round, &durable);
    }
    collect(contract, &store);
    expect_all(contract, &store, &durable);
    store_free(&store);
    free(durable.values);
}

static void fetch_and_hold(struct contract *contract, int to_fd)
{
    struct consumer consumer;
    consumer_open(&consumer, contract, 3);
    unsigned count = (unsigned)consumer_fetch(&consumer, 25, NULL);
    expect(write(to_fd, &count, sizeof(count)) == sizeof(count), "nobody listens");
    for (;;) {
        contract->driver->keep(consumer.lane); /* alive, and busy with its main DB */
        clock_sleep_ns(20 * NS_PER_MS);
    }
}

/* What a dead worker held comes to the next one at once: no lease has to run out first. */
static void consumer_killed(struct contract *contract)
{
    struct helper helper;
    struct sender api;
    struct store store = {0};
    helper_start(&helper, contract, fetch_and_hold);
    sender_open(&api, contract);
    sender_send_numbers(&api, 0, 60);
    sender_finish(&api);
    helper_go(&helper);
    unsigned held = 0;
    expect(helper_read(&helper, contract, &held, sizeof(held)), "the worker ended by itself");
    expect(held > 0, "the worker fetched nothing");
    helper_kill(&helper);

    struct consumer consumer;
    consumer_open(&consumer, contract, 3);
    while (store.count < 60) {
        consumer_fetch(&consumer, 100, &store);
        consumer_ack(&consumer);
    }
    expect(consumer_try(&consumer, 100, 300, &store) == 0, "acknowledged tasks came again");
    consumer_close(&consumer);
    check_stored(&api, &store, true);
    sender_close(&api, contract->patience_ns);
    sender_free(&api);
    store_free(&store);
}

/* A worker that acknowledges what it has told its maker about, until it is killed. */
static void consume_until_killed(struct contract *contract, int to_fd)
{
    struct consumer consumer;
    consumer_open(&consumer, contract, 0);
    for (;;) {
        struct store store = {0};
        size_t count = consumer_try(&consumer, 30, 20, &store);
        for (size_t i = 0; i < count; i++) {
            unsigned number = (unsigned)(consumer.batch.tasks[i].accepted_us - 1767182400000000);
            struct buf body = {0};
            struct task task;
            make_task(contract, number, &body, &task);
            expect(store_count(&store, &task) >= 1, "a task came out with other bytes");
            expect(write(to_fd, &number, sizeof(number)) == sizeof(number), "nobody listens");
            buf_free(&body);
        }
        if (count > 0) {
            consumer_ack(&consumer);
        }
        store_free(&store);
    }
}

static void add_numbers(struct contract *contract, const struct numbers *numbers,
                        struct store *store)
{
    struct buf body = {0};
    for (size_t i = 0; i < numbers->count; i++) {
        struct task task;
        make_task(contract, numbers->values[i], &body, &task);
        store_add(store, &task);
    }
    buf_free(&body);
}

/* Both sides die again and again, at different moments, and are started again. */
static void both_killed_repeatedly(struct contract *contract)
{
    struct numbers durable = {0};
    struct numbers drained = {0};
    struct store store = {0};
    for (unsigned round = 0; round < 6; round++) {
        struct helper producer;
        struct helper worker;
        first_number = round * 100000;
        helper_start(&producer, contract, produce_until_killed);
        helper_start(&worker, contract, consume_until_killed);
        helper_go(&producer);
        helper_go(&worker);
        if (round % 2 == 0) {
            kill_after(&worker, contract, 50 + 70 * round, &drained);
            kill_after(&producer, contract, 200, &durable);
        } else {
            kill_after(&producer, contract, 100 + 90 * round, &durable);
            kill_after(&worker, contract, 1, &drained);
        }
    }
    collect(contract, &store);
    add_numbers(contract, &drained, &store);
    expect_all(contract, &store, &durable);
    store_free(&store);
    free(durable.values);
    free(drained.values);
}

/* Connections break while tasks are in flight: outcomes stay true, and it comes back by itself. */
static void connections_cut(struct contract *contract)
{
    struct sender sender;
    struct store store = {0};
    struct buf body = {0};
    struct task task;
    sender_open(&sender, contract);
    for (unsigned i = 0; i < 1200; i++) {
        make_task(contract, i, &body, &task);
        sender_send(&sender, &task);
        if (i % 200 == 150) {
            sender_step(&sender, 0);
            contract->world->cut(contract);
        }
        if (i % 7 == 0) {
            sender_step(&sender, 0);
        }
    }
    sender_finish(&sender);
    unsigned before = (unsigned)sender.count;
    sender_send_numbers(&sender, 2000, 50);
    sender_finish(&sender);
    for (size_t i = before; i < sender.count; i++) {
        expect(sender.sent[i]->outcome == SINK_DURABLE, "connected again, and a task is %s",
               sink_outcome_name(sender.sent[i]->outcome));
    }
    sender_close(&sender, contract->patience_ns);
    collect(contract, &store);
    check_stored(&sender, &store, false);
    buf_free(&body);
    store_free(&store);
    sender_free(&sender);
}

/* The server goes away with tasks in flight, and comes back. */
static void server_stopped(struct contract *contract)
{
    struct sender sender;
    struct store store = {0};
    struct buf body = {0};
    struct task task;
    sender_open(&sender, contract);
    sender_send_numbers(&sender, 0, 200);
    sender_step(&sender, 0);
    contract->world->server_stop(contract);
    int64_t until_ns = clock_mono_ns() + contract->patience_ns;
    while (contract->driver->ready(sender.sink)) {
        expect(clock_mono_ns() < until_ns, "ready, and its server is stopped");
        sender_step(&sender, 10 * NS_PER_MS);
    }
    make_task(contract, 300, &body, &task);
    expect(sender_submit(&sender, &task) == -EAGAIN, "a task was taken while the server is down");
    contract->world->server_start(contract);
    sender_send_numbers(&sender, 400, 100);
    sender_finish(&sender);
    sender_close(&sender, contract->patience_ns);
    collect(contract, &store);
    check_stored(&sender, &store, false);
    buf_free(&body);
    store_free(&store);
    sender_free(&sender);
}

const struct contract_case kill_cases[] = {
    {"producer-killed", NEED_STORE | NEED_KILL, producer_killed},
    {"consumer-killed", NEED_DRAIN, consumer_killed},
    {"both-killed-repeatedly", NEED_DRAIN | NEED_KILL, both_killed_repeatedly},
    {"connections-cut", NEED_STORE | NEED_CUT, connections_cut},
    {"server-stopped", NEED_STORE | NEED_SERVER, server_stopped},
    {NULL, 0, NULL},
};

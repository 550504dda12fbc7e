/* cases_drain.c: what sink.h says of lanes, batches, acks and the backlog. */
#include "contract.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/* An API that has put tasks 0..count-1 into the sink and stays up. */
static void api_with_tasks(struct sender *api, struct contract *contract, unsigned count)
{
    sender_open(api, contract);
    sender_send_numbers(api, 0, count);
    sender_finish(api);
    expect(sender_outcomes(api, SINK_DURABLE) == count, "undisturbed, and not all are DURABLE");
}

static void api_end(struct sender *api)
{
    sender_close(api, api->contract->patience_ns);
    sender_free(api);
}

static void fetch_all(struct consumer *consumer, unsigned total, unsigned max, struct store *store)
{
    while (store->count < total) {
        consumer_fetch(consumer, max, store);
        consumer_ack(consumer);
    }
}

static void expect_empty(struct consumer *consumer)
{
    expect(consumer_try(consumer, 10, 300, NULL) == 0, "something came out of an empty sink");
}

static void ack_removes(struct contract *contract)
{
    struct sender api;
    struct consumer consumer;
    struct store store = {0};
    api_with_tasks(&api, contract, 90);
    consumer_open(&consumer, contract, 0);
    expect(consumer.batch.count == 0, "a batch before any fetch");
    fetch_all(&consumer, 90, 40, &store);
    expect_empty(&consumer);
    consumer_close(&consumer);
    consumer_open(&consumer, contract, 0);
    expect_empty(&consumer);
    consumer_close(&consumer);
    check_stored(&api, &store, true);
    api_end(&api);
    store_free(&store);
}

static void release_redelivers(struct contract *contract)
{
    struct sender api;
    struct consumer consumer;
    struct store first = {0};
    struct store second = {0};
    api_with_tasks(&api, contract, 30);
    consumer_open(&consumer, contract, 0);
    consumer_fetch(&consumer, 30, &first);
    expect(contract->driver->keep(consumer.lane) == 0, "keep failed with an open batch");
    consumer_release(&consumer);
    fetch_all(&consumer, 30, 30, &second);
    check_stored(&api, &second, true);
    expect_empty(&consumer);
    consumer_close(&consumer);
    api_end(&api);
    store_free(&first);
    store_free(&second);
}

static void lane_close_releases(struct contract *contract)
{
    struct sender api;
    struct consumer consumer;
    struct store store = {0};
    api_with_tasks(&api, contract, 30);
    consumer_open(&consumer, contract, 0);
    consumer_fetch(&consumer, 20, NULL);
    contract->driver->lane_close(consumer.lane); /* the sink stays open: another lane gets them */
    struct err err = {0};
    int rc = contract->driver->lane_open(consumer.sink, 1, &consumer.lane, &err);
    expect(rc == 0, "lane_open: %d: %s", rc, err.text);
    fetch_all(&consumer, 30, 30, &store);
    consumer_close(&consumer);
    check_stored(&api, &store, true);
    api_end(&api);
    store_free(&store);
}

/* Two lanes hold a batch each; the later one is acknowledged, the earlier one never. */
static void acks_out_of_order(struct contract *contract)
{
    struct sender api;
    struct consumer early;
    struct store held = {0};
    struct store acked = {0};
    struct store again = {0};
    api_with_tasks(&api, contract, 60);
    consumer_open(&early, contract, 0);
    struct consumer late = early;
    struct err err = {0};
    int rc = contract->driver->lane_open(early.sink, 1, &late.lane, &err);
    expect(rc == 0, "lane_open: %d: %s", rc, err.text);
    size_t held_count = consumer_fetch(&early, 20, &held);
    while (acked.count + held_count < 60) {
        consumer_fetch(&late, 20, &acked);
        consumer_ack(&late);
    }
    contract->driver->lane_close(late.lane);
    consumer_close(&early);

    consumer_open(&early, contract, 0);
    fetch_all(&early, (unsigned)held_count, 20, &again);
    expect_empty(&early);
    consumer_close(&early);
    for (size_t i = 0; i < held.count; i++) {
        expect(store_count(&again, &held.tasks[i]) == 1,
               "a task that was never acknowledged did not come again");
    }
    api_end(&api);
    store_free(&held);
    store_free(&acked);
    store_free(&again);
}

enum { LANES = 6, LANE_TASKS = 900 };

struct lane_thread {
    struct consumer consumer;
    struct store store;
    pthread_t thread;
    _Atomic size_t *total;
};

static void *drain_lane(void *arg)
{
    struct lane_thread *lane = arg;
    int64_t until_ns = clock_mono_ns() + lane->consumer.contract->patience_ns;
    while (*lane->total < LANE_TASKS) {
        size_t count = consumer_try(&lane->consumer, 17, 20, &lane->store);
        if (count > 0) {
            consumer_ack(&lane->consumer);
            *lane->total += count;
            until_ns = clock_mono_ns() + lane->consumer.contract->patience_ns;
        }
        expect(clock_mono_ns() < until_ns, "lanes get nothing, and %zu of %d tasks are out",
               (size_t)*lane->total, LANE_TASKS);
    }
    return NULL;
}

static void lanes_at_the_same_time(struct contract *contract)
{
    struct sender api;
    struct lane_thread lanes[LANES] = {0};
    struct store all = {0};
    _Atomic size_t total = 0;
    api_with_tasks(&api, contract, LANE_TASKS);
    consumer_open(&lanes[0].consumer, contract, 0);
    for (unsigned i = 0; i < LANES; i++) {
        struct err err = {0};
        lanes[i].total = &total;
        if (i > 0) {
            lanes[i].consumer = lanes[0].consumer;
            int rc = contract->driver->lane_open(lanes[0].consumer.sink, i, &lanes[i].consumer.lane,
                                                 &err);
            expect(rc == 0, "lane_open %u: %d: %s", i, rc, err.text);
        }
    }
    for (unsigned i = 0; i < LANES; i++) {
        expect(pthread_create(&lanes[i].thread, NULL, drain_lane, &lanes[i]) == 0, "no thread");
    }
    for (unsigned i = 0; i < LANES; i++) {
        pthread_join(lanes[i].thread, NULL);
        for (size_t j = 0; j < lanes[i].store.count; j++) {
            store_add(&all, &lanes[i].store.tasks[j]);
        }
        store_free(&lanes[i].store);
        if (i > 0) {
            contract->driver->lane_close(lanes[i].consumer.lane);
        }
    }
    consumer_close(&lanes[0].consumer);
    check_stored(&api, &all, true);
    api_end(&api);
    store_free(&all);
}

/* Full at once, or what came within the wait. A hang here is caught by the case's time limit. */
static void batches_fill_by_one_rule(struct contract *contract)
{
    const int longer_than_the_case_ms = 1000 * 1000;
    struct sender api;
    struct consumer consumer;
    api_with_tasks(&api, contract, 100);
    consumer_open(&consumer, contract, 0);
    size_t count = consumer_try(&consumer, 64, longer_than_the_case_ms, NULL);
    expect(count == 64, "asked for 64 of 100, with time: got %zu", count);
    consumer_ack(&consumer);
    count = consumer_try(&consumer, 1, longer_than_the_case_ms, NULL);
    expect(count == 1, "asked for 1 of 36, with time: got %zu", count);
    consumer_ack(&consumer);
    struct store rest = {0};
    fetch_all(&consumer, 35, 1000, &rest); /* more than there are: returns nevertheless */
    expect(rest.count == 35, "of the last 35 tasks %zu came", rest.count);
    expect_empty(&consumer);
    consumer_close(&consumer);
    api_end(&api);
    store_free(&rest);
}

/* A lane that does not fetch takes nothing, neither by what its last fetch left behind nor by
 * keep(): the one that does has them all. */
static void idle_lanes_take_nothing(struct contract *contract)
{
    const struct sink_driver *driver = contract->driver;
    struct sender api;
    struct consumer consumer;
    struct sink_lane *idle = NULL;
    struct sink_batch batch;
    struct err err = {0};
    sender_open(&api, contract);
    consumer_open(&consumer, contract, 0);
    int rc = driver->lane_open(consumer.sink, 1, &idle, &err);
    expect(rc == 0, "lane_open: %d: %s", rc, err.text);
    for (unsigned round = 0; round < 3; round++) {
        rc = driver->fetch(idle, 40, 20, &batch);
        expect(rc == 0, "a fetch from an empty sink: %d", rc);
        rc = driver->keep(idle);
        expect(rc == 0, "keep of an idle lane: %d", rc);
        sender_send_numbers(&api, round * 40, 40);
        sender_finish(&api);
        for (int i = 0; i < 5; i++) {
            rc = driver->keep(idle);
            expect(rc == 0, "keep of an idle lane: %d", rc);
            clock_sleep_ns(10 * NS_PER_MS); /* what was under way to it would be there */
        }
        size_t count = consumer_fetch(&consumer, 40, NULL);
        expect(count == 40, "of 40 tasks the one lane that fetches got %zu", count);
        consumer_ack(&consumer);
    }
    driver->lane_close(idle);
    consumer_close(&consumer);
    api_end(&api);
}

/* Cached figures may lag: they must arrive at the truth, and then not leave it. */
static void expect_backlog(struct sink *probe, struct contract *contract, int64_t tasks,
                           const char *when)
{
    struct sink_backlog backlog = {0};
    int64_t until_ns = clock_mono_ns() + contract->patience_ns;
    for (int right = 0; right < 3;) {
        int rc = contract->driver->backlog(probe, &backlog);
        expect(rc == 0 && backlog.exact, "backlog %s: %d, exact %d", when, rc, backlog.exact);
        right = backlog.tasks == tasks ? right + 1 : 0;
        expect(clock_mono_ns() < until_ns, "%s the backlog is %lld tasks, and the sink says %lld",
               when, (long long)tasks, (long long)backlog.tasks);
        expect(backlog.age_ns >= 0, "a backlog from the future");
        clock_sleep_ns(right < 3 ? 10 * NS_PER_MS : 0);
    }
    expect(tasks > 0 || backlog.bytes <= 0, "%s there are 0 tasks of %lld bytes", when,
           (long long)backlog.bytes);
}

static void backlog_is_exact(struct contract *contract)
{
    struct sender api;
    struct consumer consumer;
    struct sink *probe = NULL;
    struct err err = {0};
    struct sink_stats stats = {0};
    int rc = contract->driver->open(&probe, SINK_PROBE, contract->options, &err);
    expect(rc == 0, "open for looking: %d: %s", rc, err.text);
    api_with_tasks(&api, contract, 100);
    expect_backlog(probe, contract, 100, "before any fetch");
    consumer_open(&consumer, contract, 0);
    size_t out = consumer_fetch(&consumer, 40, NULL);
    expect_backlog(probe, contract, 100, "with a batch in flight");
    consumer_ack(&consumer);
    expect_backlog(probe, contract, 100 - (int64_t)out, "after an ack");
    consumer_fetch(&consumer, 40, NULL);
    consumer_release(&consumer);
    expect_backlog(probe, contract, 100 - (int64_t)out, "after a release");
    struct store rest = {0};
    fetch_all(&consumer, 100 - (unsigned)out, 40, &rest);
    expect_backlog(probe, contract, 0, "at the end");
    rc = contract->driver->stats(probe, &stats);
    expect(rc == 0 && stats.count <= SINK_STATS_MAX, "stats: %d, %zu of them", rc, stats.count);
    contract->driver->close(probe, clock_mono_ns());
    consumer_close(&consumer);
    api_end(&api);
    store_free(&rest);
}

static void produce_and_end(struct contract *contract, int to_fd)
{
    struct sender api;
    api_with_tasks(&api, contract, 1500);
    expect(write(to_fd, "!", 1) == 1, "nobody listens");
    /* Up until it is ended: a worker is not left without its API. */
    for (;;) {
        sender_step(&api, NS_PER_S);
    }
}

/* Producer and consumer are two processes, at work at the same time. */
static void drains_beside_a_producer(struct contract *contract)
{
    struct helper helper;
    struct consumer consumer;
    struct store store = {0};
    char told;
    helper_start(&helper, contract, produce_and_end);
    helper_go(&helper);
    consumer_open(&consumer, contract, 0);
    fetch_all(&consumer, 1500, 50, &store);
    expect(helper_read(&helper, contract, &told, 1), "the producer ended early");
    expect_empty(&consumer);
    consumer_close(&consumer);
    helper_kill(&helper);
    struct buf body = {0};
    for (unsigned i = 0; i < 1500; i++) {
        struct task task;
        make_task(contract, i, &body, &task);
        expect(store_count(&store, &task) == 1, "task %u came out %zu times", i,
               store_count(&store, &task));
    }
    buf_free(&body);
    store_free(&store);
}

static void consume_too(struct contract *contract, int to_fd)
{
    struct err err = {0};
    struct sink *sink = NULL;
    int rc = contract->driver->open(&sink, SINK_DRAIN, contract->options, &err);
    expect(rc == 0 || (rc == -EBUSY && err.text[0]), "a second worker: %d: %s", rc, err.text);
    unsigned drained = 0;
    if (rc == 0) {
        struct consumer consumer;
        contract->driver->close(sink, clock_mono_ns());
        consumer_open(&consumer, contract, 7);
        size_t count;
        while ((count = consumer_try(&consumer, 20, 300, NULL)) > 0) {
            consumer_ack(&consumer);
            drained += (unsigned)count;
        }
        consumer_close(&consumer);
    }
    expect(write(to_fd, &drained, sizeof(drained)) == sizeof(drained), "nobody listens");
}

/* Kept out, or sharing: between them they drain everything once. */
static void second_worker(struct contract *contract)
{
    struct helper helper;
    struct sender api;
    struct consumer consumer;
    struct store store = {0};
    unsigned theirs = 0;
    helper_start(&helper, contract, consume_too);
    api_with_tasks(&api, contract, 200);
    consumer_open(&consumer, contract, 0);
    size_t held = consumer_fetch(&consumer, 30, &store);
    helper_go(&helper);
    expect(helper_read(&helper, contract, &theirs, sizeof(theirs)), "the second worker failed");
    expect(helper_wait(&helper) == 0, "the second worker failed");
    expect(theirs + held <= 200, "a batch in flight was given to a second worker");
    consumer_ack(&consumer);
    fetch_all(&consumer, 200 - theirs, 50, &store);
    expect_empty(&consumer);
    consumer_close(&consumer);
    api_end(&api);
    store_free(&store);
}

const struct contract_case drain_cases[] = {
    {"ack-removes", NEED_DRAIN, ack_removes},
    {"release-redelivers", NEED_DRAIN, release_redelivers},
    {"lane-close-releases", NEED_DRAIN, lane_close_releases},
    {"acks-out-of-order", NEED_DRAIN, acks_out_of_order},
    {"lanes-at-the-same-time", NEED_DRAIN, lanes_at_the_same_time},
    {"batches-fill-by-one-rule", NEED_DRAIN, batches_fill_by_one_rule},
    {"idle-lanes-take-nothing", NEED_DRAIN, idle_lanes_take_nothing},
    {"backlog-is-exact", NEED_DRAIN | NEED_BACKLOG, backlog_is_exact},
    {"drains-beside-a-producer", NEED_DRAIN, drains_beside_a_producer},
    {"second-worker", NEED_DRAIN, second_worker},
    {NULL, 0, NULL},
};

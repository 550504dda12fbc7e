/* cases_ingest.c: what sink.h says of submit, done, process, ready and close. */
#include "contract.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

static void finish_and_close(struct sender *sender)
{
    sender_finish(sender);
    sender_close(sender, sender->contract->patience_ns);
}

/* Everything sent must be DURABLE in an undisturbed case. */
static void expect_durable(const struct sender *sender)
{
    expect(sender_outcomes(sender, SINK_DURABLE) == sender->count,
           "undisturbed, and of %zu tasks %zu are REFUSED and %zu UNKNOWN", sender->count,
           sender_outcomes(sender, SINK_REFUSED), sender_outcomes(sender, SINK_UNKNOWN));
}

static void one_outcome_each(struct contract *contract)
{
    struct sender sender;
    sender_open(&sender, contract);
    sender_send_numbers(&sender, 0, 300); /* at once */
    sender_finish(&sender);
    for (unsigned i = 300; i < 360; i++) { /* one by one */
        sender_send_numbers(&sender, i, 1);
        sender_finish(&sender);
    }
    for (int i = 0; i < 20; i++) { /* a second outcome might come late */
        sender_step(&sender, 5 * NS_PER_MS);
    }
    finish_and_close(&sender);
    expect_durable(&sender);
    sender_free(&sender);
}

static void stored_and_identical(struct contract *contract)
{
    struct sender sender;
    struct store store = {0};
    sender_open(&sender, contract);
    sender_send_numbers(&sender, 0, 400);
    finish_and_close(&sender);
    expect_durable(&sender);
    collect(contract, &store);
    check_stored(&sender, &store, true);
    store_free(&store);
    sender_free(&sender);
}

static void bodies_of_every_size(struct contract *contract)
{
    struct sender sender;
    struct store store = {0};
    const size_t sizes[] = {
        1, 2, 255, 256, 511, 512, 513, 4095, 4096, 65535, 65536, 131072, contract->largest_bytes};
    size_t count = sizeof(sizes) / sizeof(sizes[0]);
    char *bytes = xmalloc(contract->largest_bytes);
    for (size_t i = 0; i < contract->largest_bytes; i++) {
        bytes[i] = (char)(i + i / 256); /* every value, and no period of 256 */
    }
    sender_open(&sender, contract);
    for (size_t i = 0; i < count; i++) {
        struct task task = {.accepted_us = INT64_MAX - (int64_t)i,
                            .body = bytes + (i == 0 ? 10 : 0), /* a newline */
                            .body_bytes = sizes[i]};
        task_synth_id(contract->seed, 5000 + i, task.id);
        sender_send(&sender, &task);
    }
    for (int i = 0; i < 256; i++) {
        char byte = (char)i;
        struct task task = {.accepted_us = i, .body = &byte, .body_bytes = 1};
        task_synth_id(contract->seed, 6000 + (uint64_t)i, task.id);
        sender_send(&sender, &task);
    }
    finish_and_close(&sender);
    expect_durable(&sender);
    collect(contract, &store);
    check_stored(&sender, &store, true);
    store_free(&store);
    sender_free(&sender);
    free(bytes);
}

static void repeated_ids(struct contract *contract)
{
    struct sender sender;
    struct store store = {0};
    struct buf body = {0};
    sender_open(&sender, contract);
    for (unsigned i = 0; i < 60; i++) {
        struct task task;
        make_task(contract, i / 3, &body, &task);
        if (i % 3 == 2) {
            body.data[0] ^= 1; /* the same id with another body: settled in the main DB, not here */
        }
        sender_send(&sender, &task);
    }
    finish_and_close(&sender);
    expect_durable(&sender);
    collect(contract, &store);
    check_stored(&sender, &store, false);
    buf_free(&body);
    store_free(&store);
    sender_free(&sender);
}

static void ready_tells_the_truth(struct contract *contract)
{
    struct sender sender;
    struct buf body = {0};
    struct task task;
    sender_open_only(&sender, contract);
    for (unsigned i = 0; i < 200; i++) {
        make_task(contract, i, &body, &task);
        bool ready = contract->driver->ready(sender.sink);
        int rc = sender_submit(&sender, &task);
        expect(!ready || rc == 0, "ready, and submit said %s", strerror(-rc));
        expect(ready || rc != 0, "not ready, and submit took a task");
        const char *sentence = NULL;
        ready = contract->driver->ready(sender.sink);
        rc = sink_why(contract->driver, sender.sink, &sentence);
        expect(ready == (rc == 0), "ready is %d, and why says %s", ready, strerror(-rc));
        expect(ready || (sentence && sentence[0] != '\0'), "not ready, and no sentence says why");
        sender_step(&sender, i % 4 == 0 ? 5 * NS_PER_MS : 0);
    }
    finish_and_close(&sender);
    expect(sender.count > 0, "never ready in 200 turns of the loop");
    buf_free(&body);
    sender_free(&sender);
}

static double upkeep_figure(struct contract *contract, struct sink *probe)
{
    struct sink_stats stats = {0};
    expect(contract->driver->stats(probe, &stats) == 0, "stats failed");
    for (size_t i = 0; i < stats.count; i++) {
        if (strcmp(stats.items[i].name, contract->driver->upkeep_stat) == 0) {
            return stats.items[i].value;
        }
    }
    contract_fail("stats has no \"%s\"", contract->driver->upkeep_stat);
}

/* Asked for at any time, it harms no task; and its end shows from outside. */
static void upkeep_in_the_middle(struct contract *contract)
{
    struct sender sender;
    struct sink *probe = NULL;
    struct err err = {0};
    bool has = contract->driver->upkeep_stat != NULL;
    sender_open(&sender, contract);
    expect(contract->driver->open(&probe, SINK_PROBE, contract->options, &err) == 0, "%s",
           err.text);
    double before = has ? upkeep_figure(contract, probe) : 0;
    for (unsigned i = 0; i < 5; i++) {
        sender_send_numbers(&sender, 40 * i, 40);
        int rc = contract->driver->upkeep(sender.sink);
        expect(rc == (has ? 0 : -ENOTSUP), "upkeep said %s", strerror(-rc));
    }
    sender_finish(&sender);
    int64_t deadline_ns = clock_mono_ns() + contract->patience_ns;
    while (has && upkeep_figure(contract, probe) <= before) {
        expect(clock_mono_ns() < deadline_ns, "%s did not grow", contract->driver->upkeep_stat);
        sender_step(&sender, 5 * NS_PER_MS);
    }
    contract->driver->close(probe, 0);
    finish_and_close(&sender);
    expect_durable(&sender);
    sender_free(&sender);
}

static void empty_close(struct contract *contract)
{
    struct sender sender;
    sender_open_only(&sender, contract); /* before anything is connected */
    sender_close(&sender, contract->patience_ns);
    sender_free(&sender);
    sender_open(&sender, contract); /* after it is */
    sender_close(&sender, 0);
    sender_free(&sender);
    contract->driver->close(NULL, 0);
}

/* Closing with work in flight, with time to wait for it and without. */
static void close_with_work(struct contract *contract)
{
    static const int64_t graces_ns[] = {-1, 0, 3 * NS_PER_MS};
    struct sender all = {0};
    struct store store = {0};
    unsigned number = 0;
    for (int round = 0; round < 9; round++) {
        struct sender sender;
        int64_t grace_ns = graces_ns[round % 3];
        sender_open(&sender, contract);
        sender_send_numbers(&sender, number, 120);
        number += 120;
        for (int i = 0; i < round / 3; i++) { /* some of it on the wire, some not */
            sender_step(&sender, 0);
        }
        sender_close(&sender, grace_ns < 0 ? contract->patience_ns : grace_ns);
        expect(grace_ns >= 0 || sender_outcomes(&sender, SINK_DURABLE) == sender.count,
               "close had time and did not wait for the outcomes");
        sender_take(&all, &sender);
    }
    if (contract->driver->flags & SINK_DRAINS || contract->world->look) {
        /* A sink's server may still work on what was given up: wait until it says the same twice.
         */
        clock_sleep_ns(300 * NS_PER_MS);
        collect(contract, &store);
        check_stored(&all, &store, false);
    }
    store_free(&store);
    sender_free(&all);
}

static void reopen(struct contract *contract)
{
    struct sender all = {0};
    struct store store = {0};
    for (unsigned round = 0; round < 5; round++) {
        struct sender sender;
        sender_open(&sender, contract);
        sender_send_numbers(&sender, round * 50, 50);
        finish_and_close(&sender);
        expect_durable(&sender);
        sender_take(&all, &sender);
    }
    collect(contract, &store);
    check_stored(&all, &store, true);
    store_free(&store);
    sender_free(&all);
}

static void setup_again(struct contract *contract)
{
    struct err err = {0};
    struct sender sender;
    sender_open(&sender, contract);
    sender_send_numbers(&sender, 0, 20);
    finish_and_close(&sender);
    int rc = contract->driver->setup(contract->options, &err);
    expect(rc == 0, "setup on what is there already: %d: %s", rc, err.text);
    rc = contract->driver->preflight(contract->options, &err);
    expect(rc == 0 || (rc == -ENODATA && err.text[0]), "preflight: %d: %s", rc, err.text);
    if (contract->driver->flags & SINK_DRAINS || contract->world->look) {
        struct store store = {0};
        collect(contract, &store);
        check_stored(&sender, &store, true);
        store_free(&store);
    }
    sender_free(&sender);
}

enum { OPENED = 10, BUSY = 11 };

/* Opens the same side a second time, and uses it if it may. */
static void open_ingest_too(struct contract *contract, int to_fd)
{
    struct err err = {0};
    struct sink *sink = NULL;
    int64_t began_ns = clock_mono_ns();
    int rc = contract->driver->open(&sink, SINK_INGEST, contract->options, &err);
    expect(clock_mono_ns() - began_ns < contract->patience_ns, "a second opener hangs");
    expect(rc == 0 || (rc == -EBUSY && err.text[0]), "a second opener: %d: %s", rc, err.text);
    if (rc == 0) {
        struct sender sender;
        contract->driver->close(sink, clock_mono_ns());
        sender_open(&sender, contract);
        sender_send_numbers(&sender, 1000, 50);
        finish_and_close(&sender);
        expect_durable(&sender);
    }
    (void)to_fd;
    _exit(rc == 0 ? OPENED : BUSY);
}

/* Exclusive, or really shared: never two that spoil each other's work. */
static void second_opener(struct contract *contract)
{
    struct helper helper;
    struct sender sender;
    struct store store = {0};
    helper_start(&helper, contract, open_ingest_too);
    sender_open(&sender, contract);
    sender_send_numbers(&sender, 0, 50);
    helper_go(&helper);
    sender_send_numbers(&sender, 50, 50);
    sender_finish(&sender);
    int status = helper_wait(&helper);
    expect(status == OPENED || status == BUSY, "the second opener ended with %d", status);
    sender_send_numbers(&sender, 100, 50);
    finish_and_close(&sender);
    expect_durable(&sender);
    collect(contract, &store);
    struct buf body = {0};
    for (unsigned i = 1000; status == OPENED && i < 1050; i++) {
        struct task task;
        make_task(contract, i, &body, &task);
        expect(store_count(&store, &task) == 1, "a task of the second opener is lost");
        store_remove(&store, &task); /* so that it is no stranger to check_stored */
    }
    buf_free(&body);
    check_stored(&sender, &store, true);
    store_free(&store);
    sender_free(&sender);
}

const struct contract_case ingest_cases[] = {
    {"one-outcome-each", 0, one_outcome_each},
    {"ready-tells-the-truth", 0, ready_tells_the_truth},
    {"upkeep-in-the-middle", 0, upkeep_in_the_middle},
    {"empty-close", 0, empty_close},
    {"close-with-work", 0, close_with_work},
    {"setup-again", 0, setup_again},
    {"stored-and-identical", NEED_STORE, stored_and_identical},
    {"bodies-of-every-size", NEED_STORE, bodies_of_every_size},
    {"repeated-ids", NEED_STORE, repeated_ids},
    {"reopen", NEED_STORE, reopen},
    {"second-opener", NEED_STORE, second_opener},
    {NULL, 0, NULL},
};

/* parts.c: what cases are made of: tasks, a store, a sender, a consumer, helper processes. */
#include "contract.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

static uint64_t mix(uint64_t value)
{
    value += 0x9e3779b97f4a7c15u; /* splitmix64 */
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

void make_task(const struct contract *contract, unsigned number, struct buf *body,
               struct task *task)
{
    uint64_t random = mix(contract->seed ^ mix(number));
    size_t body_bytes = 1 + random % 1500;
    buf_clear(body);
    buf_reserve(body, body_bytes);
    for (size_t i = 0; i < body_bytes; i++) {
        body->data[i] = (char)(mix(random + i / 8) >> (i % 8 * 8)); /* every byte value */
    }
    body->len = body_bytes;
    task_synth_id(contract->seed, number, task->id);
    task->accepted_us = 1767182400000000 + (int64_t)number;
    task->body = body->data;
    task->body_bytes = body_bytes;
}

static bool same_task(const struct task *a, const struct task *b)
{
    return memcmp(a->id, b->id, UUID_BYTES) == 0 && a->accepted_us == b->accepted_us &&
           a->body_bytes == b->body_bytes && memcmp(a->body, b->body, a->body_bytes) == 0;
}

static struct task copy_task(const struct task *task)
{
    struct task copy = *task;
    char *body = xmalloc(task->body_bytes + 1);
    memcpy(body, task->body, task->body_bytes);
    copy.body = body;
    return copy;
}

void store_add(struct store *store, const struct task *task)
{
    if (store->count == store->room) {
        store->room = store->room > 0 ? 2 * store->room : 256;
        store->tasks = xrealloc(store->tasks, store->room * sizeof(*store->tasks));
    }
    store->tasks[store->count++] = copy_task(task);
    store->sorted = false;
}

static int compare_ids(const void *left, const void *right)
{
    return memcmp(((const struct task *)left)->id, ((const struct task *)right)->id, UUID_BYTES);
}

/* The first of that id, or where it would be. */
static size_t store_find(struct store *store, const uint8_t id[UUID_BYTES])
{
    if (!store->sorted && store->count > 0) {
        qsort(store->tasks, store->count, sizeof(*store->tasks), compare_ids);
    }
    store->sorted = true;
    size_t low = 0;
    size_t high = store->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (memcmp(store->tasks[middle].id, id, UUID_BYTES) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

size_t store_count(struct store *store, const struct task *task)
{
    size_t count = 0;
    for (size_t i = store_find(store, task->id);
         i < store->count && memcmp(store->tasks[i].id, task->id, UUID_BYTES) == 0; i++) {
        count += same_task(&store->tasks[i], task);
    }
    return count;
}

void store_remove(struct store *store, const struct task *task)
{
    for (size_t i = 0; i < store->count; i++) {
        if (same_task(&store->tasks[i], task)) {
            free((void *)store->tasks[i].body);
            store->tasks[i] = store->tasks[--store->count];
            store->sorted = false;
            return;
        }
    }
}

void store_free(struct store *store)
{
    for (size_t i = 0; i < store->count; i++) {
        free((void *)store->tasks[i].body);
    }
    free(store->tasks);
    *store = (struct store){0};
}

static void on_done(void *arg, enum sink_outcome outcome, unsigned batch)
{
    struct sent *sent = arg;
    struct sender *sender = sent->sender;
    expect(!sender->in_submit, "done ran inside submit");
    expect(batch >= 1, "done ran with batch 0");
    sent->outcomes++;
    expect(sent->outcomes == 1, "done ran %u times for one task", sent->outcomes);
    sent->outcome = outcome;
    sender->settled++;
    if (sender->settled_hook) {
        sender->settled_hook(sent, sender->hook_arg);
    }
}

void sender_open_only(struct sender *sender, struct contract *contract)
{
    struct err err = {0};
    *sender = (struct sender){.contract = contract};
    int rc = contract->driver->open(&sender->sink, SINK_INGEST, contract->options, &err);
    expect(rc == 0, "open for ingest: %d: %s", rc, err.text);
    expect(sender->sink->driver == contract->driver, "the handle names another driver");
}

void sender_open(struct sender *sender, struct contract *contract)
{
    sender_open_only(sender, contract);
    int64_t until_ns = clock_mono_ns() + contract->patience_ns;
    while (!contract->driver->ready(sender->sink)) {
        expect(clock_mono_ns() < until_ns, "never ready after open");
        sender_step(sender, until_ns - clock_mono_ns());
    }
}

void sender_step(struct sender *sender, int64_t longest_ns)
{
    const struct sink_driver *driver = sender->contract->driver;
    int64_t due_ns = driver->due_ns(sender->sink);
    size_t settled = sender->settled;
    int64_t wait_ns = due_ns < 0 || due_ns > longest_ns ? longest_ns : due_ns;
    wait_ns = wait_ns > 0 ? wait_ns : 0;
    struct timespec timeout = {.tv_sec = wait_ns / NS_PER_S, .tv_nsec = wait_ns % NS_PER_S};
    struct pollfd polled = {.fd = driver->fd(sender->sink), .events = POLLIN};
    int ready = ppoll(&polled, 1, &timeout, NULL);
    int rc = driver->process(sender->sink);
    expect(rc == 0, "process: %s", strerror(-rc));
    bool slept = ready == 0 && wait_ns == longest_ns && 2 * wait_ns > sender->contract->patience_ns;
    expect(!slept || sender->settled == settled,
           "outcomes were there, and neither fd nor due_ns said so");
}

static void add_sent(struct sender *sender, struct sent *sent)
{
    if (sender->count == sender->room) {
        sender->room = sender->room > 0 ? 2 * sender->room : 256;
        sender->sent = xrealloc(sender->sent, sender->room * sizeof(struct sent *));
    }
    sender->sent[sender->count++] = sent;
}

void sender_take(struct sender *all, struct sender *closed)
{
    for (size_t i = 0; i < closed->count; i++) {
        add_sent(all, closed->sent[i]);
    }
    free(closed->sent);
    *closed = (struct sender){0};
}

int sender_submit(struct sender *sender, const struct task *task)
{
    struct sent *sent = xcalloc(1, sizeof(*sent));
    sent->sender = sender;
    sent->task = copy_task(task);
    /* The driver gets a body of its own, gone right after: it is lent for the call only. */
    struct task lent = copy_task(task);
    sender->in_submit = true;
    int rc = sender->contract->driver->submit(sender->sink, &lent, on_done, sent);
    sender->in_submit = false;
    memset((void *)lent.body, 0xee, lent.body_bytes);
    free((void *)lent.body);
    if (rc == 0) {
        add_sent(sender, sent);
    } else {
        expect(rc == -EAGAIN || rc == -ENOSPC || rc == -EIO, "submit said %s", strerror(-rc));
        free((void *)sent->task.body);
        free(sent); /* a done for it would be seen by the sanitizer, or crash */
    }
    return rc;
}

void sender_send(struct sender *sender, const struct task *task)
{
    int64_t until_ns = clock_mono_ns() + sender->contract->patience_ns;
    int rc;
    while ((rc = sender_submit(sender, task)) == -EAGAIN || rc == -ENOSPC) {
        expect(clock_mono_ns() < until_ns, "submit says full and goes on saying so");
        sender_step(sender, 10 * NS_PER_MS);
    }
    expect(rc == 0, "submit: %s", strerror(-rc));
}

void sender_send_numbers(struct sender *sender, unsigned first, unsigned count)
{
    struct buf body = {0};
    for (unsigned i = first; i < first + count; i++) {
        struct task task;
        make_task(sender->contract, i, &body, &task);
        sender_send(sender, &task);
    }
    buf_free(&body);
}

void sender_finish(struct sender *sender)
{
    int64_t until_ns = clock_mono_ns() + sender->contract->patience_ns;
    size_t settled = sender->settled;
    while (sender->settled < sender->count) {
        int64_t now_ns = clock_mono_ns();
        if (sender->settled > settled) {
            settled = sender->settled;
            until_ns = now_ns + sender->contract->patience_ns;
        }
        expect(now_ns < until_ns, "%zu of %zu tasks have no outcome and nothing happens",
               sender->count - sender->settled, sender->count);
        sender_step(sender, until_ns - now_ns);
    }
}

void sender_close(struct sender *sender, int64_t grace_ns)
{
    const struct sink_driver *driver = sender->contract->driver;
    driver->close(sender->sink, clock_mono_ns() + grace_ns);
    sender->sink = NULL;
    for (size_t i = 0; i < sender->count; i++) {
        expect(sender->sent[i]->outcomes == 1, "after close a task has %u outcomes",
               sender->sent[i]->outcomes);
    }
}

void sender_free(struct sender *sender)
{
    for (size_t i = 0; i < sender->count; i++) {
        free((void *)sender->sent[i]->task.body);
        free(sender->sent[i]);
    }
    free(sender->sent);
    *sender = (struct sender){0};
}

size_t sender_outcomes(const struct sender *sender, enum sink_outcome outcome)
{
    size_t count = 0;
    for (size_t i = 0; i < sender->count; i++) {
        count += sender->sent[i]->outcomes > 0 && sender->sent[i]->outcome == outcome;
    }
    return count;
}

/* What may be tried again: a driver that connects by itself may not be there at once. */
static bool passes(int code)
{
    return code == -EAGAIN || code == -EIO || code == -ENOTCONN || code == -ECONNREFUSED ||
           code == -ENOENT || code == -ETIMEDOUT;
}

void consumer_open(struct consumer *consumer, struct contract *contract, unsigned lane)
{
    struct err err = {0};
    *consumer = (struct consumer){.contract = contract};
    int rc = contract->driver->open(&consumer->sink, SINK_DRAIN, contract->options, &err);
    expect(rc == 0, "open for drain: %d: %s", rc, err.text);
    int64_t until_ns = clock_mono_ns() + contract->patience_ns;
    while ((rc = contract->driver->lane_open(consumer->sink, lane, &consumer->lane, &err)) != 0) {
        expect(passes(rc) && clock_mono_ns() < until_ns, "lane_open: %d: %s", rc, err.text);
        clock_sleep_ns(10 * NS_PER_MS);
    }
}

size_t consumer_try(struct consumer *consumer, unsigned max, int wait_ms, struct store *store)
{
    int count = consumer->contract->driver->fetch(consumer->lane, max, wait_ms, &consumer->batch);
    if (count < 0) {
        expect(passes(count), "fetch: %s", strerror(-count));
        return 0;
    }
    expect(count <= (int)max, "fetch gave %d tasks, asked for %u", count, max);
    expect(count == 0 || (size_t)count == consumer->batch.count, "fetch says %d, its batch %zu",
           count, consumer->batch.count);
    expect(consumer->batch.redelivered <= consumer->batch.count, "%u of %zu were redelivered",
           consumer->batch.redelivered, consumer->batch.count);
    for (int i = 0; store && i < count; i++) {
        store_add(store, &consumer->batch.tasks[i]);
    }
    return (size_t)count;
}

size_t consumer_fetch(struct consumer *consumer, unsigned max, struct store *store)
{
    int64_t until_ns = clock_mono_ns() + consumer->contract->patience_ns;
    size_t count;
    while ((count = consumer_try(consumer, max, 100, store)) == 0) {
        expect(clock_mono_ns() < until_ns, "nothing comes out of the sink");
    }
    return count;
}

void consumer_ack(struct consumer *consumer)
{
    int rc = consumer->contract->driver->ack(consumer->lane, &consumer->batch);
    expect(rc == 0, "ack: %s", strerror(-rc));
}

void consumer_release(struct consumer *consumer)
{
    int rc = consumer->contract->driver->release(consumer->lane, &consumer->batch);
    expect(rc == 0, "release: %s", strerror(-rc));
}

void consumer_close(struct consumer *consumer)
{
    consumer->contract->driver->lane_close(consumer->lane);
    consumer->contract->driver->close(consumer->sink,
                                      clock_mono_ns() + consumer->contract->patience_ns);
    *consumer = (struct consumer){0};
}

void collect(struct contract *contract, struct store *store)
{
    if (!(contract->driver->flags & SINK_DRAINS)) {
        contract->world->look(contract, store);
        return;
    }
    /* An API is up while a worker drains: some sinks only then know how far they may read. */
    struct sender api;
    struct consumer consumer;
    sender_open(&api, contract);
    consumer_open(&consumer, contract, 0);
    unsigned empty = 0;
    while (empty < 3) {
        if (consumer_try(&consumer, 100, 50, store) > 0) {
            consumer_ack(&consumer);
            empty = 0;
        } else {
            empty++;
        }
        sender_step(&api, 0);
    }
    consumer_close(&consumer);
    sender_close(&api, contract->patience_ns);
    sender_free(&api);
}

void check_stored(const struct sender *sender, struct store *store, bool exactly)
{
    for (size_t i = 0; i < sender->count; i++) {
        const struct sent *sent = sender->sent[i];
        size_t found = store_count(store, &sent->task);
        if (sent->outcome == SINK_DURABLE) {
            expect(found >= 1, "task %zu of %zu (%zu bytes) was DURABLE and is lost", i,
                   sender->count, sent->task.body_bytes);
            expect(found == 1 || !exactly, "task %zu came out %zu times, undisturbed", i, found);
        } else if (sent->outcome == SINK_REFUSED) {
            expect(found == 0, "task %zu of %zu was REFUSED and is stored", i, sender->count);
        }
    }
    struct store sent = {0};
    for (size_t i = 0; i < sender->count; i++) {
        store_add(&sent, &sender->sent[i]->task);
    }
    for (size_t i = 0; i < store->count; i++) {
        expect(store_count(&sent, &store->tasks[i]) > 0,
               "a task came out that was never sent (or whose bytes have changed)");
    }
    store_free(&sent);
}

void helper_start(struct helper *helper, struct contract *contract,
                  void (*run)(struct contract *contract, int to_fd))
{
    int go[2] = {-1, -1};
    int from[2] = {-1, -1};
    expect(pipe(go) == 0 && pipe(from) == 0, "no pipes: %s", strerror(errno));
    fcntl(from[1], F_SETPIPE_SZ, 4096); /* a helper does not run far ahead of its maker */
    helper->pid = fork();
    expect(helper->pid >= 0, "no process: %s", strerror(errno));
    if (helper->pid == 0) {
        char told;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(go[1]);
        close(from[0]);
        if (read(go[0], &told, 1) == 1) {
            run(contract, from[1]);
        }
        _exit(0);
    }
    close(go[0]);
    close(from[1]);
    helper->go_fd = go[1];
    helper->from_fd = from[0];
}

void helper_go(struct helper *helper)
{
    expect(write(helper->go_fd, "!", 1) == 1, "a helper process is gone");
}

bool helper_read(struct helper *helper, const struct contract *contract, void *bytes, size_t len)
{
    char *at = bytes;
    while (len > 0) {
        struct pollfd polled = {.fd = helper->from_fd, .events = POLLIN};
        int ready = poll(&polled, 1, (int)(contract->patience_ns / NS_PER_MS));
        expect(ready > 0, "a helper process has nothing to report");
        ssize_t got = read(helper->from_fd, at, len);
        if (got <= 0) {
            return false;
        }
        at += got;
        len -= (size_t)got;
    }
    return true;
}

int helper_wait(struct helper *helper)
{
    int status = 0;
    while (waitpid(helper->pid, &status, 0) < 0 && errno == EINTR) {
    }
    close(helper->go_fd);
    close(helper->from_fd);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void helper_kill(struct helper *helper)
{
    kill(helper->pid, SIGKILL);
    /* What it had reported before is still in the pipe: the caller reads that first, or afterwards
     * through from_fd, so only the process is waited for here. */
    int status;
    while (waitpid(helper->pid, &status, 0) < 0 && errno == EINTR) {
    }
}

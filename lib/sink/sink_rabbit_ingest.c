/* sink_rabbit_ingest.c: publishes with confirms, from the owner's loop. No thread and no blocking
 * call: what that saves is in docs/adr.
 *
 * Each connection has channel 1 for publishing and channel 2 for questions about the queue, since a
 * question that fails closes its channel, and confirms must not go with it.
 */
#include "sink/sink_rabbit_ingest.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "sink/sink_rabbit_link.h"
#include "sink/sink_rabbit_queue.h"
#include "sink/sink_rabbit_retry.h"
#include "sink/sink_rabbit_window.h"

enum { PUBLISH = 1, ASK = 2 }; /* channels */

/* The servers' own limit from 4.0 on; a longer one would end the channel, and with it the others.
 */
#define BODY_MAX_BYTES ((size_t)16 << 20)
#define WINDOW_BYTES   ((size_t)8 << 20) /* most unconfirmed bytes on a connection */
#define PROOF_NS       NS_PER_S          /* no first confirm for so long: not ready */
#define ASK_EVERY_NS   (250 * NS_PER_MS)
#define GOODBYE_NS     (200 * NS_PER_MS)

struct publisher {
    struct rabbit_ingest *ingest;
    struct rabbit_link link;
    struct rabbit_window window;
    struct rabbit_retry retry;
    bool begun;         /* channels were asked for on this connection */
    bool confirms;      /* confirm.select-ok came */
    bool has_queue;     /* the queue is there */
    bool proved;        /* a confirm came: before that, one task at a time */
    bool asking;        /* a declare has no answer yet */
    bool ask_soon;      /* without waiting for the next time */
    bool making;        /* what is asked would make the queue */
    int64_t settles_ns; /* the queue that was made is to be trusted from then on */
    int64_t asked_ns;
    int64_t first_ns; /* when the first message of this connection was sent; 0: none yet */
    int64_t unblocked_ns;
    bool returning;        /* a return's content is coming */
    uint64_t return_bytes; /* of its body, still to come */
    bool watched;          /* in the epoll set as what follows */
    unsigned watched_generation;
    short watched_events;
    bool was_blocked;
    char name[40];
};

struct rabbit_ingest {
    const struct rabbit_target *target;
    struct publisher *publishers;
    unsigned count;
    int epoll_fd;
    bool closing;
    struct rabbit_waiters queue;
    struct rabbit_verdicts verdicts;

    bool wants_backlog; /* somebody asks for it: keep asking the server */
    int64_t backlog_ns; /* when the answer came; 0: never */
    int64_t ready_tasks, consumers;
    bool doubted; /* a sudden 0/0: believed the second time */
    double body_mean_bytes;
    uint64_t published, nacked, returned, reconnects;
};

/* ---- connection ---- */

static void ask(struct publisher *publisher, bool passive)
{
    rabbit_queue_declare(&publisher->link, ASK, passive);
    publisher->asking = true;
    publisher->making = !passive;
    publisher->ask_soon = false;
    publisher->asked_ns = clock_mono_ns();
}

static void begin_channels(struct publisher *publisher)
{
    struct rabbit_link *link = &publisher->link;
    amqp_confirm_select_t select = {0};
    rabbit_channel_open(link, PUBLISH);
    rabbit_link_method(link, PUBLISH, AMQP_CONFIRM_SELECT_METHOD, &select);
    rabbit_channel_open(link, ASK);
    ask(publisher, true);
    publisher->begun = true;
}

static bool can_publish(const struct publisher *publisher)
{
    return publisher->link.state == RABBIT_OPEN && publisher->confirms && publisher->has_queue &&
           !publisher->link.blocked && clock_mono_ns() >= publisher->settles_ns;
}

/* A queue may be there and have no leader yet, as after a restart: it takes messages and confirms
 * none. Whoever comes then is better refused than kept waiting. */
static bool takes(const struct publisher *publisher)
{
    return can_publish(publisher) && (publisher->proved || publisher->first_ns == 0 ||
                                      clock_mono_ns() - publisher->first_ns < PROOF_NS);
}

static void lost(struct publisher *publisher)
{
    struct rabbit_ingest *ingest = publisher->ingest;
    struct rabbit_waiters unsent = {0};
    rabbit_window_fail(&publisher->window, publisher->link.given, &ingest->verdicts, &unsent);
    rabbit_waiters_prepend(&ingest->queue, &unsent);
    publisher->begun = publisher->confirms = publisher->has_queue = false;
    publisher->proved = publisher->asking = publisher->ask_soon = false;
    publisher->returning = publisher->was_blocked = false;
    publisher->first_ns = 0;
    rabbit_retry_lost(&publisher->retry, &publisher->link);
}

static void drop(struct publisher *publisher)
{
    rabbit_link_drop(&publisher->link);
    lost(publisher);
}

/* ---- frames ---- */

static void on_queue_counts(struct rabbit_ingest *ingest, const amqp_queue_declare_ok_t *counts)
{
    /* A queue whose leader does not answer is reported as 0/0 by some versions. */
    bool sudden = counts->message_count == 0 && counts->consumer_count == 0 &&
                  ingest->ready_tasks + ingest->consumers > 0;
    if (sudden && !ingest->doubted) {
        ingest->doubted = true;
        return;
    }
    ingest->doubted = false;
    ingest->ready_tasks = counts->message_count;
    ingest->consumers = counts->consumer_count;
    ingest->backlog_ns = clock_mono_ns();
}

static int on_ask_frame(struct publisher *publisher, const amqp_frame_t *frame)
{
    struct rabbit_link *link = &publisher->link;
    switch (frame->payload.method.id) {
    case AMQP_CHANNEL_OPEN_OK_METHOD:
        return 0;
    case AMQP_QUEUE_DECLARE_OK_METHOD:
        publisher->asking = false;
        publisher->has_queue = true;
        if (publisher->making) {
            publisher->settles_ns = clock_mono_ns() + RABBIT_QUEUE_SETTLES_NS;
        }
        on_queue_counts(publisher->ingest, frame->payload.method.decoded);
        return 0;
    case AMQP_CHANNEL_CLOSE_METHOD: {
        int rc = rabbit_link_channel_closed(link, frame);
        if (rc != -ENOENT) {
            return rc;
        }
        log_error("%s: the queue %s is gone, with whatever was in it; making it again",
                  publisher->name, link->target->queue);
        publisher->has_queue = false;
        rabbit_channel_open(link, ASK);
        ask(publisher, false);
        return 0;
    }
    default:
        return rabbit_link_problem(link, -EPROTO, "unexpected %s",
                                   rabbit_method_name(frame->payload.method.id));
    }
}

static int confirm(struct publisher *publisher, uint64_t tag, bool multiple,
                   enum sink_outcome outcome)
{
    int rc = rabbit_window_confirm(&publisher->window, tag, multiple, outcome,
                                   &publisher->ingest->verdicts);
    publisher->proved = true;
    return rc < 0 ? rabbit_link_problem(&publisher->link, rc,
                                        "it confirms what was never sent (tag %llu)",
                                        (unsigned long long)tag)
                  : 0;
}

static int on_publish_method(struct publisher *publisher, const amqp_frame_t *frame)
{
    struct rabbit_link *link = &publisher->link;
    const void *decoded = frame->payload.method.decoded;
    switch (frame->payload.method.id) {
    case AMQP_CHANNEL_OPEN_OK_METHOD:
        return 0;
    case AMQP_CONFIRM_SELECT_OK_METHOD:
        publisher->confirms = true;
        return 0;
    case AMQP_BASIC_ACK_METHOD: {
        const amqp_basic_ack_t *ack = decoded;
        return confirm(publisher, ack->delivery_tag, ack->multiple, SINK_DURABLE);
    }
    case AMQP_BASIC_NACK_METHOD: {
        const amqp_basic_nack_t *nack = decoded;
        publisher->ingest->nacked++;
        return confirm(publisher, nack->delivery_tag, nack->multiple, SINK_UNKNOWN);
    }
    case AMQP_BASIC_RETURN_METHOD:
        publisher->returning = true;
        publisher->return_bytes = 0;
        return 0;
    case AMQP_CHANNEL_CLOSE_METHOD:
        return rabbit_link_channel_closed(link, frame);
    case AMQP_CHANNEL_FLOW_METHOD:
        return 0; /* no server sends it; TCP holds us back all the same */
    default:
        return rabbit_link_problem(link, -EPROTO, "unexpected %s",
                                   rabbit_method_name(frame->payload.method.id));
    }
}

/* The message of a return says itself which one it was. */
static void on_returned(struct publisher *publisher, const amqp_frame_t *frame)
{
    uint8_t id[UUID_BYTES];
    int64_t accepted_us;
    publisher->ingest->returned++;
    publisher->return_bytes = frame->payload.properties.body_size;
    publisher->returning = publisher->return_bytes > 0;
    if (rabbit_properties_read(frame->payload.properties.decoded, id, &accepted_us) == 0) {
        rabbit_window_return(&publisher->window, id, accepted_us,
                             (size_t)frame->payload.properties.body_size);
    }
    /* Unroutable: there is no such queue. The question finds out, and makes it again. */
    publisher->ask_soon = true;
}

static int on_frame(void *arg, const amqp_frame_t *frame)
{
    struct publisher *publisher = arg;
    if (frame->channel == ASK && frame->frame_type == AMQP_FRAME_METHOD) {
        return on_ask_frame(publisher, frame);
    }
    if (frame->channel == PUBLISH && frame->frame_type == AMQP_FRAME_METHOD) {
        return on_publish_method(publisher, frame);
    }
    if (frame->channel == PUBLISH && publisher->returning) {
        if (frame->frame_type == AMQP_FRAME_HEADER &&
            frame->payload.properties.class_id == AMQP_BASIC_CLASS) {
            on_returned(publisher, frame);
            return 0;
        }
        size_t len = frame->payload.body_fragment.len;
        if (frame->frame_type == AMQP_FRAME_BODY && len <= publisher->return_bytes) {
            publisher->return_bytes -= len;
            publisher->returning = publisher->return_bytes > 0;
            return 0;
        }
    }
    return rabbit_link_problem(&publisher->link, -EPROTO,
                               "unexpected frame of type %d on channel %d", frame->frame_type,
                               frame->channel);
}

/* ---- sending ---- */

static void publish(struct publisher *publisher, struct rabbit_waiter *waiter)
{
    struct rabbit_ingest *ingest = publisher->ingest;
    struct rabbit_link *link = &publisher->link;
    struct rabbit_properties properties;
    amqp_basic_publish_t method = {
        .exchange = amqp_empty_bytes, /* the default one: straight to the queue of that name */
        .routing_key = amqp_cstring_bytes(link->target->queue),
        .mandatory = 1,
    };
    rabbit_window_push(&publisher->window, waiter, link->queued);
    publisher->first_ns = publisher->first_ns != 0 ? publisher->first_ns : clock_mono_ns();
    rabbit_properties_set(&properties, waiter->id, waiter->accepted_us);
    rabbit_link_method(link, PUBLISH, AMQP_BASIC_PUBLISH_METHOD, &method);
    rabbit_link_content(link, PUBLISH, &properties.basic, waiter->body, waiter->body_bytes);
    ingest->published++;
    ingest->body_mean_bytes += ((double)waiter->body_bytes - ingest->body_mean_bytes) /
                               (double)(ingest->published < 1000 ? ingest->published : 1000);
}

static bool has_room(const struct publisher *publisher, size_t body_bytes)
{
    const struct rabbit_window *window = &publisher->window;
    /* A server under an alarm says so only after the first message: that shall be one, not all. */
    size_t most = publisher->proved ? publisher->link.target->window : 1;
    return can_publish(publisher) &&
           (window->undecided == 0 ||
            (window->undecided < most && window->undecided_bytes + body_bytes <= WINDOW_BYTES));
}

/* The connection with the fewest on the wire among those with room; NULL: none. */
static struct publisher *pick(const struct rabbit_ingest *ingest, size_t body_bytes)
{
    struct publisher *best = NULL;
    for (unsigned i = 0; i < ingest->count; i++) {
        struct publisher *publisher = &ingest->publishers[i];
        if (has_room(publisher, body_bytes) &&
            (!best || publisher->window.undecided < best->window.undecided)) {
            best = publisher;
        }
    }
    return best;
}

static void send_queued(struct rabbit_ingest *ingest)
{
    while (ingest->queue.first) {
        struct publisher *publisher = pick(ingest, ingest->queue.first->body_bytes);
        if (!publisher) {
            return;
        }
        publish(publisher, rabbit_waiters_pop(&ingest->queue));
    }
}

static bool should_ask(const struct publisher *publisher, int64_t now_ns)
{
    const struct rabbit_ingest *ingest = publisher->ingest;
    bool first = publisher == ingest->publishers; /* one of them asks for all */
    return publisher->link.state == RABBIT_OPEN && publisher->has_queue && !publisher->asking &&
           !publisher->link.blocked &&
           (publisher->ask_soon ||
            (first && ingest->wants_backlog && now_ns - publisher->asked_ns >= ASK_EVERY_NS));
}

/* ---- the loop ---- */

static void watch(struct publisher *publisher)
{
    struct rabbit_link *link = &publisher->link;
    if (link->fd < 0) {
        publisher->watched = false; /* a closed descriptor leaves the set by itself */
        return;
    }
    bool same = publisher->watched && publisher->watched_generation == link->generation;
    short events = rabbit_link_events(link);
    if (same && events == publisher->watched_events) {
        return;
    }
    struct epoll_event event = {
        .events = (uint32_t)((events & POLLIN ? EPOLLIN : 0) | (events & POLLOUT ? EPOLLOUT : 0)),
        .data = {.ptr = publisher}};
    int rc = epoll_ctl(publisher->ingest->epoll_fd, same ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, link->fd,
                       &event);
    assert(rc == 0);
    publisher->watched = true;
    publisher->watched_generation = link->generation;
    publisher->watched_events = events;
}

static void say_blocked(struct publisher *publisher)
{
    if (publisher->link.blocked && !publisher->was_blocked) {
        log_warning("%s: the server takes nothing now (%s): tasks are refused", publisher->name,
                    publisher->link.blocked_why);
    } else if (!publisher->link.blocked && publisher->was_blocked) {
        log_info("%s: the server takes tasks again", publisher->name);
        publisher->unblocked_ns = clock_mono_ns();
    }
    publisher->was_blocked = publisher->link.blocked;
}

/* Reads before anything is sent: a confirm, a close or a block may be there already. */
static void service(struct publisher *publisher, int64_t now_ns)
{
    struct rabbit_link *link = &publisher->link;
    if (link->state == RABBIT_DOWN) {
        if (publisher->ingest->closing || now_ns < publisher->retry.at_ns) {
            return;
        }
        publisher->ingest->reconnects++;
        if (rabbit_link_start(link) < 0) {
            lost(publisher);
            return;
        }
    }
    bool was_ready = can_publish(publisher);
    if (rabbit_link_step(link) < 0) {
        lost(publisher);
        return;
    }
    if (link->state == RABBIT_OPEN && !publisher->begun) {
        begin_channels(publisher);
    }
    if (!was_ready && can_publish(publisher)) {
        rabbit_retry_works(&publisher->retry, link);
    }
    say_blocked(publisher);
}

/* Gives up what has waited too long. A server that owes an answer and is not blocked will not give
 * one: the connection goes, and a new one begins. */
static void expire(struct rabbit_ingest *ingest, int64_t now_ns)
{
    for (unsigned i = 0; i < ingest->count; i++) {
        struct publisher *publisher = &ingest->publishers[i];
        struct rabbit_link *link = &publisher->link;
        bool silent = rabbit_window_expire(&publisher->window, now_ns, &ingest->verdicts) > 0;
        silent = silent || (publisher->asking && link->state == RABBIT_OPEN &&
                            now_ns - publisher->asked_ns >= link->target->confirm_ns);
        bool excused = link->blocked || now_ns - publisher->unblocked_ns < link->target->confirm_ns;
        if (silent && !excused) {
            rabbit_link_problem(link, -ETIMEDOUT, "no answer within %.3g s",
                                (double)link->target->confirm_ns / (double)NS_PER_S);
            drop(publisher);
        }
    }
    while (ingest->queue.first && ingest->queue.first->by_ns <= now_ns) {
        rabbit_verdicts_add(&ingest->verdicts, rabbit_waiters_pop(&ingest->queue), SINK_REFUSED);
    }
}

int rabbit_ingest_process(struct rabbit_ingest *ingest)
{
    int64_t now_ns = clock_mono_ns();
    for (unsigned i = 0; i < ingest->count; i++) {
        service(&ingest->publishers[i], now_ns);
    }
    expire(ingest, now_ns);
    send_queued(ingest);
    for (unsigned i = 0; i < ingest->count; i++) {
        struct publisher *publisher = &ingest->publishers[i];
        if (should_ask(publisher, now_ns)) {
            ask(publisher, true);
        }
        if (publisher->link.state != RABBIT_DOWN && rabbit_link_flush(&publisher->link) < 0) {
            lost(publisher);
        }
        watch(publisher);
    }
    /* Last, with everything in order: a done may submit. */
    rabbit_verdicts_run(&ingest->verdicts);
    return 0;
}

static int64_t earlier(int64_t a_ns, int64_t b_ns)
{
    return a_ns < 0 || (b_ns >= 0 && b_ns < a_ns) ? b_ns : a_ns;
}

static int64_t until(int64_t at_ns, int64_t now_ns)
{
    return at_ns > now_ns ? at_ns - now_ns : 0;
}

static int64_t publisher_due_ns(const struct publisher *publisher, int64_t now_ns)
{
    const struct rabbit_ingest *ingest = publisher->ingest;
    const struct rabbit_link *link = &publisher->link;
    if (link->state == RABBIT_DOWN) {
        return ingest->closing ? -1 : until(publisher->retry.at_ns, now_ns);
    }
    int64_t due_ns = rabbit_link_due_ns(link, now_ns);
    int64_t give_up_ns = rabbit_window_due_ns(&publisher->window);
    if (give_up_ns >= 0) {
        due_ns = earlier(due_ns, until(give_up_ns, now_ns));
    }
    if (link->state != RABBIT_OPEN || link->blocked) {
        return due_ns;
    }
    if (publisher->asking) {
        int64_t from_ns = publisher->asked_ns > publisher->unblocked_ns ? publisher->asked_ns
                                                                        : publisher->unblocked_ns;
        return earlier(due_ns, until(from_ns + link->target->confirm_ns, now_ns));
    }
    if (publisher->has_queue && publisher->ask_soon) {
        return 0;
    }
    if (publisher->settles_ns > now_ns) {
        due_ns = earlier(due_ns, until(publisher->settles_ns, now_ns));
    }
    bool first = publisher == ingest->publishers;
    return first && ingest->wants_backlog && publisher->has_queue
               ? earlier(due_ns, until(publisher->asked_ns + ASK_EVERY_NS, now_ns))
               : due_ns;
}

int64_t rabbit_ingest_due_ns(struct rabbit_ingest *ingest)
{
    int64_t now_ns = clock_mono_ns();
    int64_t due_ns = -1;
    if (ingest->verdicts.count > 0) {
        return 0;
    }
    if (ingest->queue.first) {
        if (pick(ingest, ingest->queue.first->body_bytes)) {
            return 0;
        }
        due_ns = until(ingest->queue.first->by_ns, now_ns);
    }
    for (unsigned i = 0; i < ingest->count; i++) {
        due_ns = earlier(due_ns, publisher_due_ns(&ingest->publishers[i], now_ns));
    }
    return due_ns;
}

int rabbit_ingest_fd(struct rabbit_ingest *ingest)
{
    return ingest->epoll_fd;
}

bool rabbit_ingest_ready(struct rabbit_ingest *ingest)
{
    for (unsigned i = 0; i < ingest->count && !ingest->closing; i++) {
        if (takes(&ingest->publishers[i])) {
            return true;
        }
    }
    return false;
}

int rabbit_ingest_submit(struct rabbit_ingest *ingest, const struct task *task, sink_done_fn *done,
                         void *arg)
{
    if (!rabbit_ingest_ready(ingest)) {
        return -EAGAIN;
    }
    int64_t by_ns = clock_mono_ns() + ingest->target->confirm_ns;
    struct rabbit_waiter *waiter = rabbit_waiter_new(task, done, arg, by_ns);
    if (task->body_bytes > BODY_MAX_BYTES) {
        /* No server takes it; said in the next process, as every outcome. */
        rabbit_verdicts_add(&ingest->verdicts, waiter, SINK_REFUSED);
        return 0;
    }
    rabbit_waiters_push(&ingest->queue, waiter);
    return 0;
}

/* ---- begin and end ---- */

int rabbit_ingest_open(struct rabbit_ingest **out, const struct rabbit_target *target,
                       struct err *err)
{
    struct rabbit_ingest *ingest = xcalloc(1, sizeof(*ingest));
    *out = NULL;
    ingest->target = target;
    ingest->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (ingest->epoll_fd < 0) {
        int rc = err_set(err, -errno, "no epoll descriptor: %s", strerror(errno));
        free(ingest);
        return rc;
    }
    ingest->count = target->connections;
    ingest->publishers = xcalloc(ingest->count, sizeof(*ingest->publishers));
    for (unsigned i = 0; i < ingest->count; i++) {
        struct publisher *publisher = &ingest->publishers[i];
        publisher->ingest = ingest;
        snprintf(publisher->name, sizeof(publisher->name), "sluice ingest %u", i);
        rabbit_link_init(&publisher->link, target, publisher->name, on_frame, publisher);
        rabbit_window_reset(&publisher->window);
    }
    *out = ingest;
    return 0;
}

static size_t unsettled(const struct rabbit_ingest *ingest)
{
    size_t count = ingest->queue.count;
    for (unsigned i = 0; i < ingest->count; i++) {
        count += ingest->publishers[i].window.undecided;
    }
    return count;
}

static bool all_down(const struct rabbit_ingest *ingest)
{
    for (unsigned i = 0; i < ingest->count; i++) {
        if (ingest->publishers[i].link.state != RABBIT_DOWN) {
            return false;
        }
    }
    return true;
}

void rabbit_ingest_close(struct rabbit_ingest *ingest, int64_t deadline_ns)
{
    /* No new connection is begun any more: what is not sent by those there are is REFUSED. */
    ingest->closing = true;
    int64_t now_ns;
    rabbit_ingest_process(ingest);
    while (unsettled(ingest) > 0 && !all_down(ingest) && (now_ns = clock_mono_ns()) < deadline_ns) {
        int64_t due_ns = rabbit_ingest_due_ns(ingest);
        int64_t wait_ns = earlier(due_ns, deadline_ns - now_ns);
        struct timespec timeout = {.tv_sec = wait_ns / NS_PER_S, .tv_nsec = wait_ns % NS_PER_S};
        struct pollfd polled = {.fd = ingest->epoll_fd, .events = POLLIN};
        ppoll(&polled, 1, &timeout, NULL);
        rabbit_ingest_process(ingest);
    }
    now_ns = clock_mono_ns();
    int64_t goodbye_ns = deadline_ns < now_ns + GOODBYE_NS ? deadline_ns : now_ns + GOODBYE_NS;
    for (unsigned i = 0; i < ingest->count; i++) {
        struct publisher *publisher = &ingest->publishers[i];
        struct rabbit_waiters unsent = {0};
        uint64_t given = publisher->link.given;
        bool idle = publisher->window.undecided == 0;
        rabbit_window_fail(&publisher->window, given, &ingest->verdicts, &unsent);
        rabbit_waiters_prepend(&ingest->queue, &unsent);
        if (idle) {
            rabbit_link_end(&publisher->link, goodbye_ns);
        }
        rabbit_link_free(&publisher->link); /* what is not written yet never will be */
        rabbit_window_free(&publisher->window);
    }
    struct rabbit_waiter *waiter;
    while ((waiter = rabbit_waiters_pop(&ingest->queue))) {
        rabbit_verdicts_add(&ingest->verdicts, waiter, SINK_REFUSED);
    }
    rabbit_verdicts_run(&ingest->verdicts);
    rabbit_verdicts_free(&ingest->verdicts);
    close(ingest->epoll_fd);
    free(ingest->publishers);
    free(ingest);
}

int rabbit_ingest_backlog(struct rabbit_ingest *ingest, struct sink_backlog *backlog)
{
    ingest->wants_backlog = true;
    *backlog = (struct sink_backlog){.tasks = -1, .bytes = -1};
    if (ingest->backlog_ns == 0) {
        return -ENOTCONN;
    }
    backlog->tasks = ingest->ready_tasks;
    backlog->bytes = (int64_t)((double)ingest->ready_tasks * ingest->body_mean_bytes);
    backlog->age_ns = clock_mono_ns() - ingest->backlog_ns;
    return 0;
}

void rabbit_ingest_stats(struct rabbit_ingest *ingest, struct sink_stats *stats)
{
    size_t unconfirmed = 0;
    bool blocked = false;
    for (unsigned i = 0; i < ingest->count; i++) {
        unconfirmed += ingest->publishers[i].window.undecided;
        blocked = blocked || ingest->publishers[i].link.blocked;
    }
    const struct sink_stat items[] = {
        {"ready_tasks", ingest->backlog_ns == 0 ? -1 : (double)ingest->ready_tasks},
        {"consumers", ingest->backlog_ns == 0 ? -1 : (double)ingest->consumers},
        {"blocked", blocked ? 1 : 0},
        {"unconfirmed_tasks", (double)unconfirmed},
        {"queued_tasks", (double)ingest->queue.count},
        {"published_tasks", (double)ingest->published},
        {"nacks", (double)ingest->nacked},
        {"returns", (double)ingest->returned},
        {"connects", (double)ingest->reconnects},
    };
    stats->count = sizeof(items) / sizeof(items[0]);
    memcpy(stats->items, items, sizeof(items));
}

int rabbit_ingest_why(struct rabbit_ingest *ingest, const char **sentence)
{
    if (rabbit_ingest_ready(ingest)) {
        return 0;
    }
    for (unsigned i = 0; i < ingest->count && !ingest->closing; i++) {
        if (ingest->publishers[i].link.blocked) {
            *sentence = "the sink's server has blocked its publishers, as when its memory or disk "
                        "is used up";
            return -ENOSPC;
        }
    }
    *sentence = "the sink is not connected";
    return -ENOTCONN;
}

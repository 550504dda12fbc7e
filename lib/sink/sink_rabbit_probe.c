/* sink_rabbit_probe.c: two connections. One asks for the queue's counts. The other watches for
 * alarms: a server tells of them only those who publish, so it publishes an empty message that is
 * routed to no queue; and once blocked it reads nothing more, hence not from the connection that
 * asks. */
#include "sink/sink_rabbit_probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "sink/sink_rabbit_link.h"
#include "sink/sink_rabbit_queue.h"
#include "sink/sink_rabbit_retry.h"
#include "sink/sink_rabbit_tally.h"

enum { CHANNEL = 1 };

#define ASK_EVERY_NS   (200 * NS_PER_MS)
#define ANSWER_NS      (100 * NS_PER_MS) /* waited for at most in a call */
#define BELIEVED_NS    (5 * NS_PER_S)    /* older figures are none */
#define WATCH_EVERY_NS NS_PER_S

struct eye {
    struct rabbit_link link;
    struct rabbit_retry retry;
    bool has_channel;
};

struct rabbit_probe {
    struct eye asks, watches;
    unsigned wanted; /* answers to come; 0: not asking */
    int64_t asked_ns, answered_ns, watched_ns;
    int64_t ready_tasks, held_tasks, consumers;
    int64_t new_ready, new_held, new_consumers; /* of an answer that is not complete */
    bool doubted;
};

/* A queue whose leader does not answer is reported as 0/0 by some versions: that is believed only
 * the second time, since the end of a drain may hang on it. */
static void believe(struct rabbit_probe *probe)
{
    bool sudden = probe->new_ready == 0 && probe->new_consumers == 0 &&
                  probe->ready_tasks + probe->consumers > 0;
    if (sudden && !probe->doubted) {
        probe->doubted = true;
        return;
    }
    probe->doubted = false;
    probe->ready_tasks = probe->new_ready;
    probe->held_tasks = probe->new_held;
    probe->consumers = probe->new_consumers;
    probe->answered_ns = clock_mono_ns();
}

static int on_answer(void *arg, const amqp_frame_t *frame)
{
    struct rabbit_probe *probe = arg;
    if (frame->frame_type != AMQP_FRAME_METHOD) {
        return 0;
    }
    if (frame->payload.method.id == AMQP_CHANNEL_CLOSE_METHOD) {
        return rabbit_link_channel_closed(&probe->asks.link, frame);
    }
    if (frame->payload.method.id == AMQP_QUEUE_DECLARE_OK_METHOD && probe->wanted > 0) {
        const amqp_queue_declare_ok_t *counts = frame->payload.method.decoded;
        if (probe->wanted > RABBIT_TALLY_DIGITS) {
            probe->new_ready = counts->message_count;
            probe->new_consumers = counts->consumer_count;
            probe->new_held = 0;
        } else {
            unsigned digit = RABBIT_TALLY_DIGITS - probe->wanted;
            probe->new_held += rabbit_tally_held(digit, counts->consumer_count);
        }
        probe->wanted--;
        if (probe->wanted == 0) {
            believe(probe);
        }
    }
    return 0;
}

static int on_watched(void *arg, const amqp_frame_t *frame)
{
    struct rabbit_probe *probe = arg;
    if (frame->frame_type == AMQP_FRAME_METHOD &&
        frame->payload.method.id == AMQP_CHANNEL_CLOSE_METHOD) {
        return rabbit_link_channel_closed(&probe->watches.link, frame);
    }
    return 0;
}

/* Connects when it is time to, and steps. True: its channel may be used. */
static bool look(struct eye *eye)
{
    struct rabbit_link *link = &eye->link;
    int rc = 0;
    if (link->state == RABBIT_DOWN) {
        eye->has_channel = false;
        if (clock_mono_ns() < eye->retry.at_ns) {
            return false;
        }
        rc = rabbit_link_start(link);
    }
    rc = rc == 0 ? rabbit_link_step(link) : rc;
    if (rc < 0) {
        rabbit_retry_lost(&eye->retry, link);
        return false;
    }
    if (link->state == RABBIT_OPEN && !eye->has_channel) {
        rabbit_retry_works(&eye->retry, link);
        rabbit_channel_open(link, CHANNEL);
        eye->has_channel = true;
    }
    return link->state == RABBIT_OPEN;
}

static void ask(struct rabbit_probe *probe)
{
    int64_t now_ns = clock_mono_ns();
    if (!look(&probe->asks)) {
        probe->wanted = 0;
        return;
    }
    if (probe->wanted == 0 && now_ns - probe->asked_ns >= ASK_EVERY_NS) {
        rabbit_queue_declare(&probe->asks.link, CHANNEL, true);
        rabbit_tally_declare(&probe->asks.link, CHANNEL, true);
        probe->wanted = 1 + RABBIT_TALLY_DIGITS;
        probe->asked_ns = now_ns;
        if (rabbit_link_flush(&probe->asks.link) < 0) {
            probe->wanted = 0;
        }
    }
}

static void ask_and_wait(struct rabbit_probe *probe)
{
    int64_t until_ns = clock_mono_ns() + ANSWER_NS;
    ask(probe);
    while (clock_mono_ns() < until_ns && probe->asks.link.state != RABBIT_DOWN &&
           (probe->wanted > 0 || probe->asks.link.state != RABBIT_OPEN)) {
        if (rabbit_link_wait(&probe->asks.link, until_ns) < 0) {
            rabbit_retry_lost(&probe->asks.retry, &probe->asks.link);
            probe->wanted = 0;
            return;
        }
        ask(probe);
    }
}

static void watch(struct rabbit_probe *probe)
{
    struct rabbit_link *link = &probe->watches.link;
    int64_t now_ns = clock_mono_ns();
    if (!look(&probe->watches) || link->blocked || rabbit_link_unsent(link) > 0 ||
        now_ns - probe->watched_ns < WATCH_EVERY_NS) {
        return;
    }
    amqp_basic_publish_t publish = {.exchange = amqp_empty_bytes,
                                    .routing_key = amqp_cstring_bytes("sluice.alarm-watch")};
    amqp_basic_properties_t properties = {0};
    rabbit_link_method(link, CHANNEL, AMQP_BASIC_PUBLISH_METHOD, &publish);
    rabbit_link_content(link, CHANNEL, &properties, NULL, 0);
    probe->watched_ns = now_ns;
    if (rabbit_link_flush(link) < 0) {
        rabbit_retry_lost(&probe->watches.retry, link);
    }
}

struct rabbit_probe *rabbit_probe_open(const struct rabbit_target *target)
{
    struct rabbit_probe *probe = xcalloc(1, sizeof(*probe));
    rabbit_link_init(&probe->asks.link, target, "sluice probe", on_answer, probe);
    rabbit_link_init(&probe->watches.link, target, "sluice alarm watch", on_watched, probe);
    return probe;
}

void rabbit_probe_close(struct rabbit_probe *probe)
{
    int64_t until_ns = clock_mono_ns() + 100 * NS_PER_MS;
    rabbit_link_end(&probe->asks.link, until_ns);
    rabbit_link_free(&probe->asks.link);
    rabbit_link_end(&probe->watches.link, until_ns);
    rabbit_link_free(&probe->watches.link);
    free(probe);
}

int rabbit_probe_backlog(struct rabbit_probe *probe, struct sink_backlog *backlog)
{
    *backlog = (struct sink_backlog){.tasks = -1, .bytes = -1};
    ask_and_wait(probe);
    int64_t age_ns = clock_mono_ns() - probe->answered_ns;
    if (probe->answered_ns == 0 || age_ns > BELIEVED_NS) {
        return -ENOTCONN;
    }
    backlog->tasks = probe->ready_tasks + probe->held_tasks;
    backlog->exact = true;
    backlog->age_ns = age_ns;
    return 0;
}

int rabbit_probe_stats(struct rabbit_probe *probe, struct sink_stats *stats)
{
    stats->count = 0;
    ask_and_wait(probe);
    watch(probe);
    if (probe->answered_ns == 0 || clock_mono_ns() - probe->answered_ns > BELIEVED_NS) {
        return -ENOTCONN;
    }
    const struct sink_stat items[] = {
        {"ready_tasks", (double)probe->ready_tasks},
        {"held_tasks", (double)probe->held_tasks},
        {"consumers", (double)probe->consumers},
        {"blocked",
         probe->watches.link.state == RABBIT_OPEN ? (probe->watches.link.blocked ? 1 : 0) : -1},
    };
    stats->count = sizeof(items) / sizeof(items[0]);
    memcpy(stats->items, items, sizeof(items));
    return 0;
}

/* sink_valkey_drain.c: the worker's side of the sink valkey: one blocking connection a lane, each a
 * consumer with a stable name in the group "sluice".
 *
 * What a lane holds is in the server's list of pending entries under its name. So a lane that
 * starts, lost its connection or handed its batch back reads that list first: what it held before
 * comes at once, whatever ended it. Bodies stay where hiredis put them, until the batch is over. */
#include "sink/sink_valkey.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "sink/drivers.h"

#define ANSWER_NS    (5 * NS_PER_S)    /* beyond the time that a command may block */
#define KEEP_NS      NS_PER_S          /* a lane's main DB must not wait for long */
#define IDLE_NS      (250 * NS_PER_MS) /* so long may keep() without a batch connect */
#define BLOCK_MAX_MS 1000
#define LOG_EVERY_NS (2 * NS_PER_S)
/* How often to look for what dead consumers hold: soon, but 20 lanes do so. */
#define CLAIM_EVERY_NS (4 * NS_PER_S)
/* The longest rest between two looks while a batch fills. */
#define FILL_STEP_NS (10 * NS_PER_MS)
/* An entry given up is as if untouched for so long: above any claim-after, so it is claimed at
 * once. */
#define GIVEN_UP_MS "172800000"
#define GIVE_UP_MAX 1000

struct valkey_lane {
    struct sink_lane base;
    struct valkey_sink *sink;
    unsigned number;
    char *name; /* of the consumer */
    redisContext *context;
    struct valkey_peer peer; /* of the last connection */
    int64_t retry_ns;
    struct valkey_command command; /* scratch */

    bool own_first;      /* the pending list is to be read before anything new */
    char own_after[48];  /* from behind this id */
    int64_t claim_ns;    /* when to claim again */
    char claim_from[48]; /* where the last one stopped */
    unsigned released_seen;
    unsigned seed;

    /* The open batch: replies own ids and bodies. */
    redisReply **replies;
    size_t reply_count, reply_room;
    struct task *tasks;
    const redisReply **ids;
    size_t count, room;
    unsigned redelivered;
};

static struct valkey_lane *lane_of(struct sink_lane *lane)
{
    return (struct valkey_lane *)lane;
}

static int complain(struct valkey_lane *lane, const struct err *err)
{
    int64_t now_ns = clock_mono_ns();
    long long last_ns = atomic_load(&lane->sink->complained_ns);
    if ((last_ns == 0 || now_ns - last_ns >= LOG_EVERY_NS) &&
        atomic_compare_exchange_strong(&lane->sink->complained_ns, &last_ns, now_ns)) {
        log_warning("sink valkey: %s: %s", lane->name, err->text);
    }
    return err->code;
}

/* ---- the connection ---- */

static void read_own_first(struct valkey_lane *lane)
{
    lane->own_first = true;
    snprintf(lane->own_after, sizeof(lane->own_after), "0");
}

/* What this lane was being given on it is pending under its name. */
static void lane_drop(struct valkey_lane *lane)
{
    redisFree(lane->context);
    lane->context = NULL;
    read_own_first(lane);
}

/* again: to where the last one went, without asking anybody for its address. */
static int lane_dial(struct valkey_lane *lane, int64_t patience_ns, bool again, struct err *err)
{
    int64_t now_ns = clock_mono_ns();
    if (lane->context) {
        return 0;
    }
    if (now_ns < lane->retry_ns) {
        return err_set(err, -ENOTCONN, "%s: no connection", lane->sink->target.shown);
    }
    char name[80];
    snprintf(name, sizeof(name), "sluice-%s", lane->name);
    int rc =
        again ? valkey_dial_again(&lane->sink->target, &lane->peer, name, now_ns + patience_ns,
                                  &lane->context, err)
              : valkey_dial(&lane->sink->target, name, now_ns + patience_ns, &lane->context, err);
    lane->retry_ns = rc < 0 ? clock_mono_ns() + 100 * NS_PER_MS : 0;
    lane->claim_ns = 0;
    if (rc == 0) {
        valkey_peer_of(lane->context, &lane->peer);
    }
    return rc;
}

static int lane_connect(struct valkey_lane *lane, int64_t patience_ns, struct err *err)
{
    return lane_dial(lane, patience_ns, false, err);
}

/* Sends lane->command; NULL: the connection is gone. */
static redisReply *lane_ask(struct valkey_lane *lane, int64_t patience_ns, struct err *err)
{
    redisReply *reply = valkey_ask(&lane->sink->target, lane->context,
                                   clock_mono_ns() + patience_ns, &lane->command, err);
    if (!reply) {
        lane_drop(lane);
    }
    return reply;
}

static void begin(struct valkey_lane *lane, const char *word, const char *second)
{
    valkey_begin(&lane->command, word);
    if (second) {
        valkey_word(&lane->command, second);
    }
}

static void key_and_group(struct valkey_lane *lane)
{
    valkey_word(&lane->command, lane->sink->target.stream);
    valkey_word(&lane->command, VALKEY_GROUP);
}

static void all_ids(struct valkey_lane *lane)
{
    for (size_t i = 0; i < lane->count; i++) {
        valkey_bytes(&lane->command, lane->ids[i]->str, lane->ids[i]->len);
    }
}

/* ---- the batch ---- */

static void batch_clear(struct valkey_lane *lane)
{
    for (size_t i = 0; i < lane->reply_count; i++) {
        freeReplyObject(lane->replies[i]);
    }
    lane->reply_count = 0;
    lane->count = 0;
    lane->redelivered = 0;
}

static void batch_keep_reply(struct valkey_lane *lane, redisReply *reply)
{
    if (lane->reply_count == lane->reply_room) {
        lane->reply_room = lane->reply_room > 0 ? 2 * lane->reply_room : 8;
        lane->replies = xrealloc(lane->replies, lane->reply_room * sizeof(redisReply *));
    }
    lane->replies[lane->reply_count++] = reply;
}

/* One entry's fields as a task. false: it is none of ours. */
static bool read_task(const redisReply *fields, struct task *task)
{
    unsigned found = 0;
    *task = (struct task){0};
    if (fields->type != REDIS_REPLY_ARRAY) {
        return false;
    }
    for (size_t i = 0; i + 1 < fields->elements; i += 2) {
        const redisReply *name = fields->element[i];
        const redisReply *value = fields->element[i + 1];
        if (name->len == 2 && memcmp(name->str, "id", 2) == 0 && value->len == UUID_BYTES) {
            memcpy(task->id, value->str, UUID_BYTES);
            found |= 1;
        } else if (name->len == 1 && name->str[0] == 't' && value->len > 0) {
            char *end;
            task->accepted_us = strtoll(value->str, &end, 10);
            found |= *end == '\0' ? 2 : 0;
        } else if (name->len == 1 && name->str[0] == 'b') {
            task->body = value->str;
            task->body_bytes = value->len;
            found |= 4;
        }
    }
    return found == 7;
}

/* Takes one entry out of the way: it is deleted already, or no task. */
static void discard(struct valkey_lane *lane, const redisReply *id, bool deleted)
{
    struct err err = {0};
    if (!deleted) {
        /* No task can have been acknowledged for it; kept, it would stop all the others. */
        log_error("sink valkey: the entry %s of %s is no task; it is removed", id->str,
                  lane->sink->target.stream);
    }
    begin(lane, "XACK", NULL);
    key_and_group(lane);
    valkey_bytes(&lane->command, id->str, id->len);
    redisReply *reply = lane_ask(lane, ANSWER_NS, &err);
    freeReplyObject(reply);
    if (reply && !deleted) {
        begin(lane, "XDEL", lane->sink->target.stream);
        valkey_bytes(&lane->command, id->str, id->len);
        freeReplyObject(lane_ask(lane, ANSWER_NS, &err));
    }
}

/* Adds the entries ([[id, [field, value, ...]], ...]) to the batch; what is no task is discarded
 * once all are read. Returns how many entries there were. */
static size_t batch_add(struct valkey_lane *lane, const redisReply *entries, bool again)
{
    size_t bad[16];
    size_t bad_count = 0;
    for (size_t i = 0; i < entries->elements; i++) {
        const redisReply *entry = entries->element[i];
        if (entry->type != REDIS_REPLY_ARRAY || entry->elements != 2) {
            continue;
        }
        if (read_task(entry->element[1], &lane->tasks[lane->count])) {
            lane->ids[lane->count++] = entry->element[0];
            lane->redelivered += again;
        } else if (bad_count < sizeof(bad) / sizeof(bad[0])) {
            bad[bad_count++] = i; /* more of them come again */
        }
        if (again) {
            snprintf(lane->own_after, sizeof(lane->own_after), "%s", entry->element[0]->str);
        }
    }
    for (size_t i = 0; i < bad_count && lane->context; i++) {
        const redisReply *entry = entries->element[bad[i]];
        discard(lane, entry->element[0], entry->element[1]->type == REDIS_REPLY_NIL);
    }
    return entries->elements;
}

static void batch_reserve(struct valkey_lane *lane, size_t room)
{
    if (room > lane->room) {
        lane->tasks = xrealloc(lane->tasks, room * sizeof(*lane->tasks));
        lane->ids = xrealloc(lane->ids, room * sizeof(const redisReply *));
        lane->room = room;
    }
}

/* ---- fetch ---- */

/* XREADGROUP: what is pending under our own name (again), or what is new, for which it may wait.
 * Returns how many entries came, or negative errno. */
static int read_group(struct valkey_lane *lane, size_t most, int block_ms, bool again,
                      struct err *err)
{
    char count[24];
    char block[24];
    snprintf(count, sizeof(count), "%zu", most);
    snprintf(block, sizeof(block), "%d", block_ms);
    begin(lane, "XREADGROUP", "GROUP");
    valkey_word(&lane->command, VALKEY_GROUP);
    valkey_word(&lane->command, lane->name);
    valkey_word(&lane->command, "COUNT");
    valkey_word(&lane->command, count);
    if (block_ms > 0) {
        valkey_word(&lane->command, "BLOCK");
        valkey_word(&lane->command, block);
    }
    valkey_word(&lane->command, "STREAMS");
    valkey_word(&lane->command, lane->sink->target.stream);
    valkey_word(&lane->command, again ? lane->own_after : ">");
    redisReply *reply = lane_ask(lane, ANSWER_NS + block_ms * NS_PER_MS, err);
    if (!reply) {
        return err->code;
    }
    int rc = 0;
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 1 &&
        reply->element[0]->type == REDIS_REPLY_ARRAY && reply->element[0]->elements == 2 &&
        reply->element[0]->element[1]->type == REDIS_REPLY_ARRAY) {
        batch_keep_reply(lane, reply);
        return (int)batch_add(lane, reply->element[0]->element[1], again);
    }
    if (reply->type != REDIS_REPLY_NIL) {
        rc = valkey_judge(&lane->sink->target, "XREADGROUP", reply, err);
    }
    freeReplyObject(reply);
    return rc;
}

/* The group is gone, with the key or alone: from the beginning again. Twice is better than never.
 */
static int make_group(struct valkey_lane *lane, struct err *err)
{
    log_warning("sink valkey: the group %s of %s was gone; it is made again", VALKEY_GROUP,
                lane->sink->target.stream);
    int rc =
        valkey_make_group(&lane->sink->target, lane->context, clock_mono_ns() + ANSWER_NS, err);
    if (lane->context->err) {
        lane_drop(lane);
    }
    return rc;
}

/* Takes over what others hold without a sign of life. What is won is pending under our own name,
 * and read from there. */
static int claim(struct valkey_lane *lane, unsigned max, struct err *err)
{
    char idle[24];
    char count[24];
    snprintf(idle, sizeof(idle), "%lld", (long long)(lane->sink->claim_after_ns / NS_PER_MS));
    snprintf(count, sizeof(count), "%u", max);
    begin(lane, "XAUTOCLAIM", NULL);
    key_and_group(lane);
    valkey_word(&lane->command, lane->name);
    valkey_word(&lane->command, idle);
    valkey_word(&lane->command, lane->claim_from);
    valkey_word(&lane->command, "COUNT");
    valkey_word(&lane->command, count);
    valkey_word(&lane->command, "JUSTID");
    redisReply *reply = lane_ask(lane, ANSWER_NS, err);
    if (!reply) {
        return err->code;
    }
    int rc = 0;
    int64_t pause_ns = CLAIM_EVERY_NS / 2 + rand_r(&lane->seed) % CLAIM_EVERY_NS;
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2 &&
        reply->element[0]->type == REDIS_REPLY_STRING &&
        reply->element[1]->type == REDIS_REPLY_ARRAY) {
        bool more = strcmp(reply->element[0]->str, "0-0") != 0;
        snprintf(lane->claim_from, sizeof(lane->claim_from), "%s", reply->element[0]->str);
        if (reply->element[1]->elements > 0) {
            read_own_first(lane);
        }
        pause_ns = more ? 0 : pause_ns; /* after this batch */
    } else {
        rc = valkey_judge(&lane->sink->target, "XAUTOCLAIM", reply, err);
    }
    lane->claim_ns = clock_mono_ns() + pause_ns;
    freeReplyObject(reply);
    return rc;
}

static int claim_if_due(struct valkey_lane *lane, unsigned max, struct err *err)
{
    unsigned released = atomic_load(&lane->sink->released);
    if (released == lane->released_seen && clock_mono_ns() < lane->claim_ns) {
        return 0;
    }
    lane->released_seen = released;
    return claim(lane, max, err);
}

/* Own entries that an earlier read has left; says that they are in use again, or they would be
 * claimed by others. */
static int read_own(struct valkey_lane *lane, unsigned max, struct err *err)
{
    int rc = 0;
    while (lane->own_first && lane->count < max) {
        size_t most = max - lane->count;
        rc = read_group(lane, most, 0, true, err);
        if (rc < 0) {
            return rc;
        }
        if (lane->context && (size_t)rc < most) {
            lane->own_first = false;
        }
    }
    return rc;
}

static int fill(struct valkey_lane *lane, unsigned max, int wait_ms, struct err *err)
{
    int64_t end_ns = clock_mono_ns() + wait_ms * NS_PER_MS;
    size_t before = lane->count;
    int rc = read_own(lane, max, err);
    bool waited = false;
    if (rc >= 0 && lane->count > 0 && valkey_keep(&lane->base) < 0) {
        return err_set(err, -ENOTCONN, "%s: lost while reading", lane->sink->target.shown);
    }
    while (rc >= 0 && lane->context && lane->count < max) {
        if (before == 0 && lane->count > 0) {
            before = lane->count; /* the first ones: now the batch has wait_ms to fill */
            end_ns = clock_mono_ns() + wait_ms * NS_PER_MS;
        }
        int64_t left_ns = end_ns - clock_mono_ns();
        if (left_ns <= 0 && waited) {
            break;
        }
        int block_ms = left_ns > 0 ? (int)(left_ns / NS_PER_MS) : 0;
        block_ms = block_ms < BLOCK_MAX_MS ? block_ms : BLOCK_MAX_MS;
        if (lane->count > 0) {
            /* Woken for each single one, 20 lanes would be a load of their own. */
            clock_sleep_ns(left_ns < FILL_STEP_NS ? left_ns : FILL_STEP_NS);
            block_ms = 0;
        }
        rc = read_group(lane, max - lane->count, block_ms, false, err);
        waited = true;
        if (rc == -ENOENT && lane->context) {
            rc = make_group(lane, err);
        }
    }
    return rc;
}

int valkey_fetch(struct sink_lane *base, unsigned max, int wait_ms, struct sink_batch *batch)
{
    struct valkey_lane *lane = lane_of(base);
    struct err err = {0};
    assert(lane->count == 0 && max > 0);
    *batch = (struct sink_batch){0};
    batch_reserve(lane, max);
    int rc = lane_connect(lane, VALKEY_CONNECT_NS, &err);
    if (rc == 0) {
        rc = claim_if_due(lane, max, &err);
        if (rc == -ENOENT && lane->context) {
            rc = make_group(lane, &err);
        }
    }
    if (rc >= 0) {
        rc = fill(lane, max, wait_ms, &err);
    }
    /* What has come is delivered; an error comes again. */
    if (lane->count == 0) {
        batch_clear(lane);
        return rc < 0 ? complain(lane, &err) : 0;
    }
    *batch = (struct sink_batch){
        .count = lane->count, .tasks = lane->tasks, .redelivered = lane->redelivered};
    return (int)lane->count;
}

/* ---- keep, ack, release ---- */

/* A connection that has ended is noticed, and comes back before the lane's next fetch. */
static int keep_idle(struct valkey_lane *lane)
{
    struct err err = {0};
    if (lane->context && valkey_ended(lane->context)) {
        lane_drop(lane);
    }
    if (lane->context || lane->peer.bytes == 0) {
        return 0;
    }
    /* Why it does not, the next fetch says. */
    return lane_dial(lane, IDLE_NS, true, &err) < 0 ? -ENOTCONN : 0;
}

/* Claims its own entries, which makes them look fresh to the others. */
int valkey_keep(struct sink_lane *base)
{
    struct valkey_lane *lane = lane_of(base);
    struct err err = {0};
    if (lane->count == 0) {
        return keep_idle(lane);
    }
    bool connected = lane->context != NULL;
    int rc = lane_connect(lane, KEEP_NS, &err);
    if (rc < 0) {
        return complain(lane, &err);
    }
    begin(lane, "XCLAIM", NULL);
    key_and_group(lane);
    valkey_word(&lane->command, lane->name);
    valkey_word(&lane->command, "0");
    all_ids(lane);
    valkey_word(&lane->command, "JUSTID");
    redisReply *reply = lane_ask(lane, connected ? ANSWER_NS : KEEP_NS, &err);
    rc = !reply                         ? err.code
         : valkey_is_error(reply, NULL) ? valkey_judge(&lane->sink->target, "XCLAIM", reply, &err)
                                        : 0;
    freeReplyObject(reply);
    return rc < 0 ? complain(lane, &err) : 0;
}

/* MULTI, XACK, XDEL, EXEC go in one write. Apart, a crash in between would leave an entry that
 * nobody is given any more, or one that is given and empty. */
static int acknowledge(struct valkey_lane *lane, struct err *err)
{
    const struct valkey_target *target = &lane->sink->target;
    int64_t deadline_ns = clock_mono_ns() + ANSWER_NS;
    int rc = 0;
    begin(lane, "MULTI", NULL);
    valkey_append(lane->context, &lane->command);
    begin(lane, "XACK", NULL);
    key_and_group(lane);
    all_ids(lane);
    valkey_append(lane->context, &lane->command);
    begin(lane, "XDEL", target->stream);
    all_ids(lane);
    valkey_append(lane->context, &lane->command);
    begin(lane, "EXEC", NULL);
    valkey_append(lane->context, &lane->command);
    for (int i = 0; i < 4; i++) {
        redisReply *reply = valkey_reply(target, lane->context, deadline_ns, err);
        if (!reply) {
            lane_drop(lane);
            return err->code;
        }
        bool wrong = i < 3 ? valkey_is_error(reply, NULL)
                           : reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
                                 valkey_is_error(reply->element[0], NULL) ||
                                 valkey_is_error(reply->element[1], NULL);
        if (wrong && rc == 0) { /* the first one says why */
            rc = valkey_judge(target, "XACK and XDEL", reply, err);
        }
        freeReplyObject(reply);
    }
    return rc;
}

int valkey_ack(struct sink_lane *base, struct sink_batch *batch)
{
    struct valkey_lane *lane = lane_of(base);
    struct err err = {0};
    int rc = 0;
    if (lane->count > 0) {
        rc = lane_connect(lane, VALKEY_CONNECT_NS, &err);
        if (rc == 0) {
            rc = acknowledge(lane, &err);
        }
        if (rc < 0) {
            read_own_first(lane);
            complain(lane, &err);
        }
    }
    batch_clear(lane);
    batch->count = 0;
    return rc;
}

int valkey_release(struct sink_lane *base, struct sink_batch *batch)
{
    struct valkey_lane *lane = lane_of(base);
    /* They stay pending under this name, and are read again by the next fetch. */
    read_own_first(lane);
    batch_clear(lane);
    batch->count = 0;
    return 0;
}

/* ---- open and close ---- */

int valkey_lane_open(struct sink *base, unsigned number, struct sink_lane **out, struct err *err)
{
    struct valkey_sink *sink = valkey_of(base);
    struct valkey_lane *lane = xcalloc(1, sizeof(*lane));
    lane->base.driver = &sink_valkey;
    lane->sink = sink;
    lane->number = number;
    lane->name = xasprintf("%s-%u", sink->consumer, number);
    lane->seed = (unsigned)clock_mono_ns() + number;
    lane->released_seen = atomic_load(&sink->released);
    snprintf(lane->claim_from, sizeof(lane->claim_from), "0-0");
    read_own_first(lane);
    struct err local = {0};
    int rc = lane_connect(lane, VALKEY_CONNECT_NS, &local);
    if (rc < 0) {
        valkey_lane_close(&lane->base);
        return err_set(err, rc, "%s", local.text);
    }
    *out = &lane->base;
    return 0;
}

/* Up to GIVE_UP_MAX ids of what is pending under this name; false: none, or no answer. */
static bool give_up_some(struct valkey_lane *lane)
{
    char most[16];
    struct err err = {0};
    snprintf(most, sizeof(most), "%d", GIVE_UP_MAX);
    begin(lane, "XPENDING", NULL);
    key_and_group(lane);
    valkey_word(&lane->command, lane->own_after[0] == '(' ? lane->own_after : "-");
    valkey_word(&lane->command, "+");
    valkey_word(&lane->command, most);
    valkey_word(&lane->command, lane->name);
    redisReply *reply = lane_ask(lane, KEEP_NS, &err);
    if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements == 0) {
        freeReplyObject(reply);
        return false;
    }
    begin(lane, "XCLAIM", NULL);
    key_and_group(lane);
    valkey_word(&lane->command, lane->name);
    valkey_word(&lane->command, "0");
    for (size_t i = 0; i < reply->elements; i++) {
        const redisReply *entry = reply->element[i];
        if (entry->type == REDIS_REPLY_ARRAY && entry->elements > 0) {
            valkey_bytes(&lane->command, entry->element[0]->str, entry->element[0]->len);
            snprintf(lane->own_after, sizeof(lane->own_after), "(%s", entry->element[0]->str);
        }
    }
    valkey_word(&lane->command, "IDLE");
    valkey_word(&lane->command, GIVEN_UP_MS);
    valkey_word(&lane->command, "JUSTID");
    bool more = reply->elements == GIVE_UP_MAX;
    redisReply *claimed = lane_ask(lane, KEEP_NS, &err);
    more = more && claimed && !valkey_is_error(claimed, NULL);
    freeReplyObject(claimed);
    freeReplyObject(reply);
    return more;
}

void valkey_lane_close(struct sink_lane *base)
{
    struct valkey_lane *lane = lane_of(base);
    bool holds = lane->count > 0 || lane->own_first;
    if (holds && lane->context) {
        lane->own_after[0] = '\0';
        while (give_up_some(lane)) {
        }
        atomic_fetch_add(&lane->sink->released, 1); /* the other lanes look at once */
    }
    batch_clear(lane);
    redisFree(lane->context);
    valkey_command_free(&lane->command);
    free(lane->replies);
    free(lane->tasks);
    free(lane->ids);
    free(lane->name);
    free(lane);
}

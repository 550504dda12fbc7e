/* sink_valkey_hold.c: the stream is one run's: a key STREAM:lock with a token of that run, which
 * the server forgets soon after nobody renews it.
 *
 * A key, since SET NX is one step that only one of two can win, since a user who may use keys that
 * begin with sluice may set it, and since it goes by itself when its holder's host is gone without
 * a word. What belongs to a connection (its name, a channel it listens to) can only be looked at
 * and then taken, and stays as long as the server believes in a dead peer. */
#include "sink/sink_valkey.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/uuid.h"
#include "sink/drivers.h"

/* It lasts so long; renewed seldom, since each time the server flushes its file. */
#define LASTS_MS    15000
#define RENEW_NS    (5 * NS_PER_S)
#define QUESTION_NS (3 * NS_PER_S)

struct valkey_lock {
    struct sink_hold base;
    struct valkey_target target;
    redisContext *context; /* NULL: to be made */
    char *key;
    char token[UUID_TEXT_BYTES];
    int64_t renewed_ns;
};

/* WORD KEY [MORE...], NULL-ended. NULL: the connection is gone. Free the reply. */
static redisReply *ask(struct valkey_lock *lock, const char *const words[], struct err *err)
{
    struct valkey_command command = {0};
    valkey_begin(&command, words[0]);
    for (size_t i = 1; words[i]; i++) {
        valkey_word(&command, words[i]);
    }
    redisReply *reply =
        valkey_ask(&lock->target, lock->context, clock_mono_ns() + QUESTION_NS, &command, err);
    valkey_command_free(&command);
    if (!reply) {
        redisFree(lock->context);
        lock->context = NULL;
    }
    return reply;
}

/* 1: it has our token; 0: it is not there; -EBUSY: it has another. */
static int look(struct valkey_lock *lock, struct err *err)
{
    struct err local = {0};
    redisReply *reply = ask(lock, (const char *const[]){"GET", lock->key, NULL}, &local);
    int rc = !reply ? local.code : 0;
    if (reply && reply->type == REDIS_REPLY_STRING) {
        rc = strcmp(reply->str, lock->token) == 0 ? 1 : -EBUSY;
    } else if (reply && reply->type != REDIS_REPLY_NIL) {
        rc = valkey_judge(&lock->target, "GET", reply, &local);
    }
    freeReplyObject(reply);
    if (rc == -EBUSY) {
        err_set(&local, rc,
                "%s: another sluice is at work with the stream %s: wait for its end (one that was "
                "killed is forgotten within %d s), or name another with --valkey-stream",
                lock->target.shown, lock->target.stream, LASTS_MS / 1000);
    }
    return rc < 0 ? err_set(err, rc, "%s", local.text) : rc;
}

/* 0: taken; -EBUSY: somebody has it. */
static int take(struct valkey_lock *lock, struct err *err)
{
    struct err local = {0};
    char lasts[16];
    snprintf(lasts, sizeof(lasts), "%d", LASTS_MS);
    int64_t asked_ns = clock_mono_ns();
    redisReply *reply =
        ask(lock, (const char *const[]){"SET", lock->key, lock->token, "NX", "PX", lasts, NULL},
            &local);
    int rc = !reply ? local.code : 0;
    bool taken = reply && reply->type == REDIS_REPLY_STATUS;
    if (reply && valkey_is_error(reply, NULL)) {
        rc = valkey_judge(&lock->target, "SET", reply, &local);
    }
    freeReplyObject(reply);
    if (rc < 0) {
        return err_set(err, rc, "%s", local.text);
    }
    lock->renewed_ns = asked_ns;
    if (!taken) { /* ours, when an answer was lost; gone again: the next one asks anew */
        rc = look(lock, err);
        rc = rc == 0 ? err_set(err, -EBUSY, "%s: another sluice was at work with the stream %s",
                               lock->target.shown, lock->target.stream)
                     : rc;
    }
    return rc < 0 ? rc : 0;
}

static int renew(struct valkey_lock *lock, struct err *err)
{
    char lasts[16];
    snprintf(lasts, sizeof(lasts), "%d", LASTS_MS);
    int64_t asked_ns = clock_mono_ns();
    /* Had it just run out and become another's, that one has it for longer: no harm. */
    redisReply *reply = ask(lock, (const char *const[]){"PEXPIRE", lock->key, lasts, NULL}, err);
    int rc = !reply ? -EAGAIN : 0;
    if (reply && valkey_is_error(reply, NULL)) {
        rc = valkey_judge(&lock->target, "PEXPIRE", reply, err);
    } else if (reply) {
        lock->renewed_ns = asked_ns;
    }
    freeReplyObject(reply);
    return rc;
}

static int dial(struct valkey_lock *lock, struct err *err)
{
    return lock->context ? 0
                         : valkey_dial(&lock->target, "sluice-hold",
                                       clock_mono_ns() + VALKEY_CONNECT_NS, &lock->context, err);
}

static void give_back(struct valkey_lock *lock)
{
    redisFree(lock->context);
    valkey_target_free(&lock->target);
    free(lock->key);
    free(lock);
}

int valkey_hold(struct sink_hold **out, const struct options *options, struct err *err)
{
    struct valkey_lock *lock = xcalloc(1, sizeof(*lock));
    uint8_t id[UUID_BYTES];
    *out = NULL;
    int rc = valkey_target_new(&lock->target, options, err);
    if (rc < 0) {
        free(lock);
        return rc;
    }
    lock->base.driver = &sink_valkey;
    lock->key = xasprintf("%s:lock", lock->target.stream);
    uuid_v7(id);
    uuid_format(id, lock->token);
    rc = dial(lock, err);
    if (rc == 0) {
        rc = take(lock, err);
    }
    if (rc < 0) {
        give_back(lock);
        return rc;
    }
    *out = &lock->base;
    return 0;
}

int valkey_hold_keep(struct sink_hold *base, struct err *err)
{
    struct valkey_lock *lock = (struct valkey_lock *)base;
    int rc = dial(lock, err);
    if (rc == 0) {
        rc = look(lock, err);
    }
    if (rc == 0) {
        return take(lock, err);
    }
    return rc == 1 && clock_mono_ns() - lock->renewed_ns >= RENEW_NS ? renew(lock, err)
           : rc == 1                                                 ? 0
                                                                     : rc;
}

/* WATCH: should it run out and become another's meanwhile, that one keeps it. */
void valkey_hold_end(struct sink_hold *base)
{
    struct valkey_lock *lock = (struct valkey_lock *)base;
    const char *const steps[][3] = {{"WATCH", lock->key}, {"MULTI"}, {"DEL", lock->key}, {"EXEC"}};
    for (size_t i = 0; lock->context && i < sizeof(steps) / sizeof(steps[0]); i++) {
        freeReplyObject(ask(lock, steps[i], NULL));
        if (i == 0 && lock->context && look(lock, NULL) != 1) {
            break;
        }
    }
    give_back(lock);
}

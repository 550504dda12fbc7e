/* sink_valkey.c: a stream of Valkey (or Redis): settings, setup, preflight, and looking at it from
 * outside. The API's side is sink_valkey_ingest.c, the worker's sink_valkey_drain.c.
 *
 * One entry is one task: fields id (16 bytes), t (accepted_us, decimal), b (the body). The stream
 * is never trimmed; an acknowledged entry is deleted in the same transaction, so that its length is
 * the backlog. */
#include "sink/sink_valkey.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "sink/drivers.h"

/* How long a look from outside may take, and how soon a failed one is tried again. */
#define LOOK_NS  NS_PER_S
#define AGAIN_NS NS_PER_S
/* A figure is good enough for so long. */
#define FRESH_NS (50 * NS_PER_MS)

const struct option_spec sink_valkey_options[] = {
    {.name = "sink-url",
     .type = OPTION_URL,
     .unit = "URL",
     .required = true,
     .help = "the sink's server; with a password only by environment or @file"},
    {.name = "valkey-stream",
     .type = OPTION_STRING,
     .unit = "KEY",
     .default_text = "sluice:tasks",
     .help = "key of the stream; it begins with \"sluice\""},
    {.name = "valkey-deadline",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "4s",
     .min = 10 * NS_PER_MS,
     .max = 600 * NS_PER_S,
     .help = "a task that has no outcome so long after it was taken gets one: refused if it was "
             "not sent, unknown if it was, and then the connection is given up"},
    {.name = "valkey-consumer",
     .type = OPTION_STRING,
     .unit = "NAME",
     .default_text = "lane",
     .help = "lane 7 is the consumer NAME-7; two workers at the same time need two names"},
    {.name = "valkey-claim-after",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "30s",
     .min = 2 * NS_PER_S,
     .max = 24 * 3600 * NS_PER_S,
     .help = "what another consumer holds without a sign of life for so long is taken from it"},
    {.name = "valkey-ca-file",
     .type = OPTION_STRING,
     .unit = "FILE",
     .help = "certificates to trust for rediss:// instead of the system's"},
    {.name = NULL},
};

/* ---- setup ---- */

/* Is there something else under the stream's name? */
static int check_key(const struct valkey_target *target, redisContext *context, int64_t deadline_ns,
                     struct err *err)
{
    struct valkey_command command = {0};
    valkey_begin(&command, "TYPE");
    valkey_word(&command, target->stream);
    redisReply *reply = valkey_ask(target, context, deadline_ns, &command, err);
    valkey_command_free(&command);
    if (!reply) {
        return err ? err->code : -EIO;
    }
    int rc = 0;
    if (reply->type != REDIS_REPLY_STATUS) {
        rc = valkey_judge(target, "TYPE", reply, err);
    } else if (strcmp(reply->str, "none") != 0 && strcmp(reply->str, "stream") != 0) {
        rc = err_set(err, -EEXIST,
                     "%s: the key %s is there already and is a %s, not a stream: remove it, or "
                     "name another with --valkey-stream",
                     target->shown, target->stream, reply->str);
    }
    freeReplyObject(reply);
    return rc;
}

/* One INFO section; NULL and a sentence when it can't be had. */
static redisReply *ask_info(const struct valkey_target *target, redisContext *context,
                            const char *section, int64_t deadline_ns, struct err *err)
{
    struct valkey_command command = {0};
    valkey_begin(&command, "INFO");
    valkey_word(&command, section);
    redisReply *reply = valkey_ask(target, context, deadline_ns, &command, err);
    valkey_command_free(&command);
    if (reply && reply->type != REDIS_REPLY_STRING) {
        valkey_judge(target, "INFO", reply, err);
        freeReplyObject(reply);
        return NULL;
    }
    return reply;
}

/* "Valkey 8.0.1", "Redis 7.0.15". */
static int read_version(const struct valkey_target *target, redisContext *context,
                        int64_t deadline_ns, char out[64], struct err *err)
{
    char number[40];
    redisReply *reply = ask_info(target, context, "server", deadline_ns, err);
    int rc = reply ? 0 : -ENODATA;
    if (reply && valkey_info(reply->str, "valkey_version", number, sizeof(number))) {
        snprintf(out, 64, "Valkey %s", number);
    } else if (reply && valkey_info(reply->str, "redis_version", number, sizeof(number))) {
        snprintf(out, 64, "Redis %s", number);
    } else if (reply) {
        rc = err_set(err, -ENODATA, "%s: the server does not tell its version", target->shown);
    }
    freeReplyObject(reply);
    return rc;
}

/* XAUTOCLAIM came with 6.2; all of Valkey has it, and calls itself 7.2.4 there. */
static int check_age(const struct valkey_target *target, redisContext *context, int64_t deadline_ns,
                     struct err *err)
{
    char number[40];
    unsigned major = 0;
    unsigned minor = 0;
    redisReply *reply = ask_info(target, context, "server", deadline_ns, NULL);
    int rc = 0;
    if (reply && valkey_info(reply->str, "redis_version", number, sizeof(number)) &&
        sscanf(number, "%u.%u", &major, &minor) == 2 && (major < 6 || (major == 6 && minor < 2))) {
        rc = err_set(err, -EINVAL, "%s is Redis %s; needed: Valkey, or Redis from 6.2 on",
                     target->shown, number);
    }
    freeReplyObject(reply);
    return rc;
}

static int valkey_setup(const struct options *options, struct err *err)
{
    struct valkey_target target;
    struct err local = {0};
    redisContext *context = NULL;
    int64_t deadline_ns = clock_mono_ns() + VALKEY_CONNECT_NS;
    int rc = valkey_target_new(&target, options, &local);
    if (rc < 0) {
        return err_set(err, rc, "%s", local.text);
    }
    rc = valkey_dial(&target, "sluice-setup", deadline_ns, &context, &local);
    if (rc == 0) {
        rc = check_age(&target, context, deadline_ns, &local);
    }
    if (rc == 0) {
        rc = check_key(&target, context, deadline_ns, &local);
    }
    if (rc == 0) {
        rc = valkey_make_group(&target, context, deadline_ns, &local);
    }
    redisFree(context);
    valkey_target_free(&target);
    return rc < 0 ? err_set(err, rc, "%s", local.text) : 0;
}

static int valkey_remove(const struct options *options, struct err *err)
{
    struct valkey_target target;
    struct err local = {0};
    redisContext *context = NULL;
    int64_t deadline_ns = clock_mono_ns() + VALKEY_CONNECT_NS;
    int rc = valkey_target_new(&target, options, &local);
    if (rc < 0) {
        return err_set(err, rc, "%s", local.text);
    }
    rc = valkey_dial(&target, "sluice-remove", deadline_ns, &context, &local);
    if (rc == 0) {
        rc = check_key(&target, context, deadline_ns, &local); /* another kind of key is not ours */
    }
    if (rc == 0) {
        struct valkey_command command = {0};
        valkey_begin(&command, "DEL"); /* group and consumers go with it */
        valkey_word(&command, target.stream);
        redisReply *reply = valkey_ask(&target, context, deadline_ns, &command, &local);
        rc = !reply                               ? local.code
             : reply->type != REDIS_REPLY_INTEGER ? valkey_judge(&target, "DEL", reply, &local)
                                                  : 0;
        freeReplyObject(reply);
        valkey_command_free(&command);
    }
    redisFree(context);
    valkey_target_free(&target);
    return rc < 0 ? err_set(err, rc, "%s", local.text) : 0;
}

/* ---- preflight ---- */

/* Each of these makes an answer mean less than "flushed and kept". */
static const struct {
    const char *name, *wanted;
} wanted_settings[] = {
    {"appendonly", "yes"},
    {"appendfsync", "always"},
    {"no-appendfsync-on-rewrite", "no"},
    {"maxmemory-policy", "noeviction"},
};

/* What CONFIG GET says; a copy to free. -ENODATA and a sentence when it says nothing. */
static int read_setting(const struct valkey_target *target, redisContext *context,
                        int64_t deadline_ns, const char *name, char **value, struct err *err)
{
    struct err local = {0};
    struct valkey_command command = {0};
    *value = NULL;
    valkey_begin(&command, "CONFIG");
    valkey_word(&command, "GET");
    valkey_word(&command, name);
    redisReply *reply = valkey_ask(target, context, deadline_ns, &command, &local);
    valkey_command_free(&command);
    int rc = 0;
    if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2) {
        *value = xstrdup(reply->element[1]->str);
    } else {
        rc = err_set(err, -ENODATA, "%s: %s could not be read back (CONFIG GET): %s", target->shown,
                     name,
                     !reply                         ? local.text
                     : valkey_is_error(reply, NULL) ? reply->str
                                                    : "there is no such setting");
    }
    freeReplyObject(reply);
    return rc;
}

/* The first setting that is wrong decides; a server that does not tell is not called wrong. */
static int check_settings(const struct valkey_target *target, redisContext *context,
                          int64_t deadline_ns, const char *version, struct err *err)
{
    int rc = 0;
    char *value = NULL;
    for (size_t i = 0; i < sizeof(wanted_settings) / sizeof(wanted_settings[0]); i++) {
        const char *name = wanted_settings[i].name;
        int result = read_setting(target, context, deadline_ns, name, &value, rc ? NULL : err);
        if (result < 0 || !value) {
            rc = result;
            continue;
        }
        bool right = strcmp(value, wanted_settings[i].wanted) == 0;
        if (!right) {
            rc = err_set(err, -EPERM, "%s (%s): %s is \"%s\"; wanted: \"%s\"", target->shown,
                         version, name, value, wanted_settings[i].wanted);
        }
        free(value);
        if (!right) {
            return rc;
        }
    }
    /* Snapshots void no promise; they cost forks and disk writes that others do not pay for. */
    if (read_setting(target, context, deadline_ns, "save", &value, NULL) == 0 && value) {
        if (value[0] != '\0') {
            log_warning("%s takes snapshots beside its append-only file (save \"%s\"): they add "
                        "nothing to what is safe, and cost time",
                        target->shown, value);
        }
        free(value);
    }
    return rc;
}

static int valkey_preflight(const struct options *options, struct err *err)
{
    struct valkey_target target;
    struct err local = {0};
    redisContext *context = NULL;
    char version[64] = "of an unknown version";
    int64_t deadline_ns = clock_mono_ns() + VALKEY_CONNECT_NS;
    int rc = valkey_target_new(&target, options, &local);
    if (rc < 0) {
        return err_set(err, rc, "%s", local.text);
    }
    rc = valkey_dial(&target, "sluice-preflight", deadline_ns, &context, &local);
    if (rc == 0) {
        struct err no_version = {0};
        read_version(&target, context, deadline_ns, version, &no_version);
        rc = check_settings(&target, context, deadline_ns, version, &local);
        if (rc != -EPERM) { /* which is one sentence */
            log_info("%s is %s%s", target.shown, version,
                     strncmp(version, "Redis", 5) == 0 ? ", in place of Valkey" : "");
        }
        if (rc == 0 && no_version.code) {
            rc = err_set(&local, -ENODATA, "%s", no_version.text);
        }
    }
    redisFree(context);
    valkey_target_free(&target);
    return rc < 0 ? err_set(err, rc, "%s", local.text) : 0;
}

static int valkey_server_version(const struct options *options, char *out, size_t out_bytes,
                                 struct err *err)
{
    struct valkey_target target;
    struct err local = {0};
    redisContext *context = NULL;
    char version[64];
    int64_t deadline_ns = clock_mono_ns() + VALKEY_CONNECT_NS;
    int rc = valkey_target_new(&target, options, &local);
    if (rc < 0) {
        return err_set(err, rc, "%s", local.text);
    }
    rc = valkey_dial(&target, "sluice-version", deadline_ns, &context, &local);
    if (rc == 0) {
        rc = read_version(&target, context, deadline_ns, version, &local);
    }
    if (rc == 0) {
        snprintf(out, out_bytes, "%s", version);
    }
    redisFree(context);
    valkey_target_free(&target);
    return rc < 0 ? err_set(err, rc, "%s", local.text) : 0;
}

/* ---- looking ---- */

static int probe_connect(struct valkey_sink *sink, struct err *err)
{
    struct valkey_probe *probe = &sink->probe;
    int64_t now_ns = clock_mono_ns();
    if (probe->context) {
        return 0;
    }
    if (now_ns < probe->retry_ns) {
        return err_set(err, -ENOTCONN, "%s: no connection", sink->target.shown);
    }
    int rc = valkey_dial(&sink->target, "sluice-probe", now_ns + LOOK_NS, &probe->context, err);
    probe->retry_ns = rc < 0 ? clock_mono_ns() + AGAIN_NS : 0;
    return rc;
}

static void probe_drop(struct valkey_probe *probe)
{
    redisFree(probe->context);
    probe->context = NULL;
}

static redisReply *probe_ask(struct valkey_sink *sink, const struct valkey_command *command,
                             struct err *err)
{
    redisReply *reply =
        valkey_ask(&sink->target, sink->probe.context, clock_mono_ns() + LOOK_NS, command, err);
    if (!reply) {
        probe_drop(&sink->probe);
    }
    return reply;
}

/* An integer reply to WORD KEY; -1 when there is none (then, if the connection broke, it is gone).
 */
static int64_t probe_integer(struct valkey_sink *sink, const char *word, const char *second,
                             struct err *err)
{
    struct valkey_command command = {0};
    valkey_begin(&command, word);
    if (second) {
        valkey_word(&command, second);
    }
    valkey_word(&command, sink->target.stream);
    redisReply *reply = probe_ask(sink, &command, err);
    int64_t value = -1;
    if (reply && reply->type == REDIS_REPLY_INTEGER) {
        value = reply->integer;
    } else if (reply && reply->type == REDIS_REPLY_NIL) {
        value = 0; /* no such key */
    } else if (reply) {
        valkey_judge(&sink->target, word, reply, err);
    }
    freeReplyObject(reply);
    valkey_command_free(&command);
    return value;
}

static int probe_backlog(struct valkey_sink *sink, struct sink_backlog *backlog)
{
    struct valkey_probe *probe = &sink->probe;
    struct err err = {0};
    int64_t now_ns = clock_mono_ns();
    if (probe->last_ns == 0 || now_ns - probe->last_ns > FRESH_NS) {
        int rc = probe_connect(sink, &err);
        int64_t tasks = rc == 0 ? probe_integer(sink, "XLEN", NULL, &err) : -1;
        if (tasks < 0) {
            return err.code ? err.code : -EIO;
        }
        /* An estimate of the server's; whoever may not ask for it still gets the count. */
        int64_t bytes = probe->context ? probe_integer(sink, "MEMORY", "USAGE", NULL) : -1;
        probe->last =
            (struct sink_backlog){.tasks = tasks, .bytes = tasks > 0 ? bytes : 0, .exact = true};
        probe->last_ns = clock_mono_ns();
    }
    *backlog = probe->last;
    backlog->age_ns = clock_mono_ns() - probe->last_ns;
    return 0;
}

static int valkey_backlog(struct sink *base, struct sink_backlog *backlog)
{
    struct valkey_sink *sink = valkey_of(base);
    return sink->ingest ? valkey_ingest_backlog(sink->ingest, backlog)
                        : probe_backlog(sink, backlog);
}

/* How many entries are delivered and not acknowledged. */
static int64_t probe_pending(struct valkey_sink *sink, struct err *err)
{
    struct valkey_command command = {0};
    valkey_begin(&command, "XPENDING");
    valkey_word(&command, sink->target.stream);
    valkey_word(&command, VALKEY_GROUP);
    redisReply *reply = probe_ask(sink, &command, err);
    int64_t value = -1;
    if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 &&
        reply->element[0]->type == REDIS_REPLY_INTEGER) {
        value = reply->element[0]->integer;
    }
    freeReplyObject(reply);
    valkey_command_free(&command);
    return value;
}

static const struct {
    const char *stat, *field;
} info_stats[] = {
    {"used_memory_bytes", "used_memory"},
    {"used_memory_rss_bytes", "used_memory_rss"},
    {"maxmemory_bytes", "maxmemory"},
    {"aof_current_bytes", "aof_current_size"},
    {"aof_rewrite_in_progress", "aof_rewrite_in_progress"},
    {"aof_rewrites", "aof_rewrites"},
    {"latest_fork_us", "latest_fork_usec"},
    {"aof_delayed_fsync", "aof_delayed_fsync"},
    {"evicted_keys", "evicted_keys"},
    {"rejected_connections", "rejected_connections"},
    {"blocked_clients", "blocked_clients"},
    {"instantaneous_ops_per_s", "instantaneous_ops_per_sec"},
};

static void add_stat(struct sink_stats *stats, const char *name, double value)
{
    stats->items[stats->count++] = (struct sink_stat){name, value};
}

static int valkey_stats(struct sink *base, struct sink_stats *stats)
{
    struct valkey_sink *sink = valkey_of(base);
    struct err err = {0};
    stats->count = 0;
    if (sink->ingest) {
        return -ENOTSUP; /* would wait for the server, and an API's loop may not */
    }
    int rc = probe_connect(sink, &err);
    if (rc < 0) {
        return rc;
    }
    int64_t length = probe_integer(sink, "XLEN", NULL, &err);
    int64_t pending = sink->probe.context ? probe_pending(sink, &err) : -1;
    if (!sink->probe.context) {
        return err.code ? err.code : -EIO;
    }
    add_stat(stats, "length", (double)length);
    add_stat(stats, "pending", (double)pending);
    redisReply *reply =
        ask_info(&sink->target, sink->probe.context, "all", clock_mono_ns() + LOOK_NS, &err);
    if (!reply) {
        if (sink->probe.context->err) {
            probe_drop(&sink->probe);
        }
        return 0;
    }
    for (size_t i = 0; i < sizeof(info_stats) / sizeof(info_stats[0]); i++) {
        char text[64];
        if (valkey_info(reply->str, info_stats[i].field, text, sizeof(text))) {
            add_stat(stats, info_stats[i].stat, strtod(text, NULL));
        }
    }
    freeReplyObject(reply);
    return 0;
}

/* ---- open and close ---- */

static int valkey_open(struct sink **out, enum sink_role role, const struct options *options,
                       struct err *err)
{
    struct valkey_sink *sink = xcalloc(1, sizeof(*sink));
    *out = NULL;
    sink->base.driver = &sink_valkey;
    sink->role = role;
    int rc = valkey_target_new(&sink->target, options, err);
    if (rc < 0) {
        free(sink);
        return rc;
    }
    sink->consumer = xstrdup(options_string(options, "valkey-consumer"));
    sink->claim_after_ns = options_duration_ns(options, "valkey-claim-after");
    if (role == SINK_INGEST) {
        sink->ingest = valkey_ingest_new(sink, options, err);
        if (!sink->ingest) {
            free(sink->consumer);
            valkey_target_free(&sink->target);
            free(sink);
            return err ? err->code : -EMFILE;
        }
    }
    *out = &sink->base;
    return 0;
}

static void valkey_close(struct sink *base, int64_t deadline_ns)
{
    struct valkey_sink *sink = valkey_of(base);
    if (!sink) {
        return;
    }
    if (sink->ingest) {
        valkey_ingest_close(sink->ingest, deadline_ns);
    }
    redisFree(sink->probe.context);
    free(sink->consumer);
    valkey_target_free(&sink->target);
    free(sink);
}

const struct sink_driver sink_valkey = {
    .name = "valkey",
    .promise =
        "added to a stream whose server has written and flushed (fdatasync) its append-only file "
        "before it answered (appendfsync always, as preflight reads back): survives the end of any "
        "process, of the OS and of power, as far as the disk keeps what it has flushed; one server "
        "without replicas does not survive the loss of its disk or host",
    .flags = SINK_DRAINS | SINK_BACKLOG_EXACT | SINK_DURABLE_KILL,
    .options = sink_valkey_options,
    .setup = valkey_setup,
    .preflight = valkey_preflight,
    .remove = valkey_remove,
    .hold = valkey_hold,
    .hold_keep = valkey_hold_keep,
    .hold_end = valkey_hold_end,
    .server_version = valkey_server_version,
    .open = valkey_open,
    .close = valkey_close,
    .backlog = valkey_backlog,
    .stats = valkey_stats,
    .submit = valkey_submit,
    .fd = valkey_fd,
    .due_ns = valkey_due_ns,
    .process = valkey_process,
    .ready = valkey_ready,
    .upkeep = sink_no_upkeep,
    .why = valkey_why,
    .lane_open = valkey_lane_open,
    .fetch = valkey_fetch,
    .keep = valkey_keep,
    .ack = valkey_ack,
    .release = valkey_release,
    .lane_close = valkey_lane_close,
};

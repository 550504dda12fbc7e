/* sink_valkey_reply.c: commands to a Valkey, and what its replies and errors mean. */
#include "sink/sink_valkey.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- commands ---- */

void valkey_bytes(struct valkey_command *command, const void *bytes, size_t len)
{
    if (command->count == command->room) {
        command->room = command->room > 0 ? 2 * command->room : 16;
        size_t room = (size_t)command->room;
        command->words = xrealloc(command->words, room * sizeof(*command->words));
        command->lengths = xrealloc(command->lengths, room * sizeof(*command->lengths));
    }
    command->words[command->count] = bytes;
    command->lengths[command->count++] = len;
}

void valkey_word(struct valkey_command *command, const char *word)
{
    valkey_bytes(command, word, strlen(word));
}

void valkey_begin(struct valkey_command *command, const char *word)
{
    command->count = 0;
    valkey_word(command, word);
}

void valkey_command_free(struct valkey_command *command)
{
    free(command->words);
    free(command->lengths);
    *command = (struct valkey_command){0};
}

void valkey_append(redisContext *context, const struct valkey_command *command)
{
    /* Its failure (no memory) stays in the context, and shows with the reply. */
    redisAppendCommandArgv(context, command->count, command->words, command->lengths);
}

redisReply *valkey_reply(const struct valkey_target *target, redisContext *context,
                         int64_t deadline_ns, struct err *err)
{
    int64_t left_ns = deadline_ns - clock_mono_ns();
    left_ns = left_ns > NS_PER_MS ? left_ns : NS_PER_MS;
    const struct timeval limit = {.tv_sec = left_ns / NS_PER_S,
                                  .tv_usec = left_ns % NS_PER_S / NS_PER_US};
    void *reply = NULL;
    redisSetTimeout(context, limit);
    errno = 0;
    if (redisGetReply(context, &reply) != REDIS_OK || !reply) {
        if (valkey_broken(target, context, err) == -ETIMEDOUT) {
            err_set(err, -ETIMEDOUT, "%s: no answer in time (%.2g s)", target->shown,
                    (double)left_ns / (double)NS_PER_S);
        }
        return NULL;
    }
    return reply;
}

redisReply *valkey_ask(const struct valkey_target *target, redisContext *context,
                       int64_t deadline_ns, const struct valkey_command *command, struct err *err)
{
    valkey_append(context, command);
    return valkey_reply(target, context, deadline_ns, err);
}

/* ---- replies ---- */

bool valkey_is_error(const redisReply *reply, const char *code)
{
    if (reply->type != REDIS_REPLY_ERROR) {
        return false;
    }
    size_t len = code ? strlen(code) : 0;
    return !code || (strncmp(reply->str, code, len) == 0 &&
                     (reply->str[len] == ' ' || reply->str[len] == '\0'));
}

int valkey_judge(const struct valkey_target *target, const char *what, const redisReply *reply,
                 struct err *err)
{
    static const struct {
        const char *code;
        int rc;
    } codes[] = {
        {"LOADING", -EAGAIN},     {"BUSY", -EAGAIN},      {"TRYAGAIN", -EAGAIN},
        {"CLUSTERDOWN", -EAGAIN}, {"NOAUTH", -EACCES},    {"NOPERM", -EACCES},
        {"WRONGPASS", -EACCES},   {"DENIED", -EACCES},    {"OOM", -ENOSPC},
        {"READONLY", -EROFS},     {"MISCONF", -EIO},      {"WRONGTYPE", -EEXIST},
        {"NOGROUP", -ENOENT},     {"UNBLOCKED", -ENOENT},
    };
    char text[160];
    snprintf(text, sizeof(text), "%s",
             reply->type == REDIS_REPLY_ERROR ? reply->str : "a reply of another kind than wanted");
    for (char *at = text; *at; at++) {
        *at = (unsigned char)*at < 32 ? ' ' : *at;
    }
    int rc = -EIO;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        rc = valkey_is_error(reply, codes[i].code) ? codes[i].rc : rc;
    }
    return err_set(err, rc, "%s: %s: the server says: %s", target->shown, what, text);
}

int valkey_broken(const struct valkey_target *target, const redisContext *context, struct err *err)
{
    int code = errno;
    switch (context->err) {
    case REDIS_ERR_PROTOCOL:
        return err_set(err, -EPROTO,
                       "%s answers, but not as a Valkey or Redis does: is it another server%s?",
                       target->shown, target->tls ? "" : ", or one that wants TLS (rediss://)");
    case REDIS_ERR_EOF:
        return err_set(err, -ENOTCONN, "%s: the server ended the connection", target->shown);
    case REDIS_ERR_OOM:
        return err_set(err, -ENOMEM, "%s: no memory for a reply", target->shown);
    default:
        break;
    }
    if (code == EAGAIN || code == ETIMEDOUT) {
        return err_set(err, -ETIMEDOUT, "%s: no answer in time", target->shown);
    }
    return err_set(err, -ENOTCONN, "%s: the connection broke: %s", target->shown,
                   context->errstr[0] ? context->errstr : "no reason given");
}

bool valkey_info(const char *info, const char *name, char *out, size_t out_bytes)
{
    size_t name_bytes = strlen(name);
    for (const char *line = info; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, name_bytes) == 0 && line[name_bytes] == ':') {
            const char *value = line + name_bytes + 1;
            snprintf(out, out_bytes, "%.*s", (int)strcspn(value, "\r\n"), value);
            return true;
        }
    }
    return false;
}

int valkey_make_group(const struct valkey_target *target, redisContext *context,
                      int64_t deadline_ns, struct err *err)
{
    struct valkey_command command = {0};
    valkey_begin(&command, "XGROUP");
    valkey_word(&command, "CREATE");
    valkey_word(&command, target->stream);
    valkey_word(&command, VALKEY_GROUP);
    valkey_word(&command, "0"); /* "$" would skip what is there already */
    valkey_word(&command, "MKSTREAM");
    redisReply *reply = valkey_ask(target, context, deadline_ns, &command, err);
    valkey_command_free(&command);
    if (!reply) {
        return err ? err->code : -EIO;
    }
    int rc = 0;
    if (valkey_is_error(reply, "WRONGTYPE")) {
        rc = err_set(err, -EEXIST,
                     "%s: the key %s is there already and is no stream: remove it, or name another "
                     "with --valkey-stream",
                     target->shown, target->stream);
    } else if (valkey_is_error(reply, NULL) && !valkey_is_error(reply, "BUSYGROUP")) {
        rc = valkey_judge(target, "XGROUP CREATE", reply, err);
    }
    freeReplyObject(reply);
    return rc;
}

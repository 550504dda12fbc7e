/* A private Valkey for the sink of that name; where the machine has none, Redis in its place, and
 * then the version says so.
 *
 * The password is in the configuration file only (0600, in a folder of the server's account). Every
 * setting that decides durability, memory or background work is said there, even where it is the
 * default, and read back from the running server. */
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/file.h"
#include "prefix.h"

#define CONFIG_NAME "valkey.conf"

struct own {
    char *program;
    char *config_path;
};

/* An answer leaves only after the command is written and flushed (appendfsync always), also while
 * the file is being rewritten. No snapshots: the append-only file is the one truth. What an unclean
 * end leaves half-written at its tail was never answered, so it may be cut off. */
static const char settings_text[] = "bind 127.0.0.1\n"
                                    "protected-mode yes\n"
                                    "daemonize no\n"
                                    "supervised no\n"
                                    "logfile \"\"\n"
                                    "loglevel notice\n"
                                    "save \"\"\n"
                                    "appendonly yes\n"
                                    "appendfsync always\n"
                                    "no-appendfsync-on-rewrite no\n"
                                    "aof-load-truncated yes\n"
                                    "aof-use-rdb-preamble yes\n"
                                    "aof-rewrite-incremental-fsync yes\n"
                                    "auto-aof-rewrite-percentage 100\n"
                                    "auto-aof-rewrite-min-size 64mb\n"
                                    "maxmemory-policy noeviction\n"
                                    "tcp-keepalive 60\n"
                                    "timeout 0\n";

static const char *const settings_shown[] = {
    "save",
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "aof-load-truncated",
    "aof-use-rdb-preamble",
    "auto-aof-rewrite-percentage",
    "auto-aof-rewrite-min-size",
    "maxmemory",
    "maxmemory-policy",
    "maxclients",
    "io-threads",
    "bind",
    "protected-mode",
    NULL,
};

/* A quarter of what there is, at most 4 GiB: a rewrite forks, and while tasks pour in the copy may
 * come to need as much again; the other half is the rest of the run's. */
static long long memory_max_bytes(void)
{
    struct sysinfo info;
    struct buf limit = {0};
    unsigned long long bytes = 4ull << 30;
    if (sysinfo(&info) == 0) {
        bytes = (unsigned long long)info.totalram * info.mem_unit;
    }
    if (file_read("/sys/fs/cgroup/memory.max", 64, &limit, NULL) == 0) {
        char *end;
        unsigned long long most = strtoull(limit.data ? limit.data : "", &end, 10);
        bytes = most > 0 && most < bytes ? most : bytes; /* "max" reads as 0 */
    }
    buf_free(&limit);
    bytes /= 4;
    bytes = bytes > 4ull << 30 ? 4ull << 30 : bytes;
    return (long long)(bytes < 64ull << 20 ? 64ull << 20 : bytes);
}

static int write_settings(const struct server *server, struct err *err)
{
    struct buf text = {0};
    buf_puts(&text, settings_text);
    buf_printf(&text, "port %d\n", server->port);
    buf_printf(&text, "requirepass %s\n", server->password);
    buf_printf(&text, "dir \"%s\"\n", server->dir);
    buf_printf(&text, "maxmemory %lld\n", memory_max_bytes());
    buf_printf(&text, "maxclients %u\n", server->clients + 50);
    if (server->tls_port > 0) {
        buf_printf(&text, "tls-port %d\ntls-auth-clients no\n", server->tls_port);
        buf_printf(&text, "tls-ca-cert-file \"%s/ca.crt\"\n", server->dir);
        buf_printf(&text, "tls-cert-file \"%s/server.crt\"\n", server->dir);
        buf_printf(&text, "tls-key-file \"%s/server.key\"\n", server->dir);
    }
    int rc = server_write_file(server, CONFIG_NAME, text.data, err);
    explicit_bzero(text.data, text.len);
    buf_free(&text);
    return rc;
}

static int prepare(struct server *server, struct err *err)
{
    struct own *own = xcalloc(1, sizeof(*own));
    server->own = own;
    int rc = prefix_find_valkey(&own->program, err);
    if (rc == 0) {
        own->config_path = xasprintf("%s/" CONFIG_NAME, server->dir);
        rc = write_settings(server, err);
    }
    if (rc == 0) {
        server->url = xasprintf("redis://:%s@127.0.0.1:%d/0", server->password, server->port);
    }
    if (rc == 0 && server->tls_port > 0) {
        server->tls_url =
            xasprintf("rediss://:%s@127.0.0.1:%d/0", server->password, server->tls_port);
    }
    return rc;
}

static int launch(struct server *server, struct err *err)
{
    const struct own *own = server->own;
    const char *argv[] = {own->program, own->config_path, NULL};
    const char *env[] = {"LC_ALL=C", NULL};
    struct process_plan plan = {.who = server->who,
                                .argv = argv,
                                .env = env,
                                .log_path = server->log_path,
                                .cwd = server->dir,
                                .account = server->account};
    return process_start(&server->process, &plan, err);
}

/* One command's reply; NULL and err when there is none, or it is an error. Free it. */
static redisReply *ask(const struct server *server, redisContext *context, const char *command,
                       const char *argument, struct err *err)
{
    const char *argv[3] = {command, argument, NULL};
    char *copy = xstrdup(command);
    char *rest = strchr(copy, ' ');
    int argc = 1;
    if (rest) { /* "CONFIG GET" */
        *rest = '\0';
        argv[0] = copy;
        argv[argc++] = rest + 1;
    }
    if (argument) {
        argv[argc++] = argument;
    }
    redisReply *reply = redisCommandArgv(context, argc, argv, NULL);
    free(copy);
    if (!reply) {
        err_set(err, -EAGAIN, "%s: %s: %s", server->who, command, context->errstr);
    } else if (reply->type == REDIS_REPLY_ERROR) {
        /* Still reading its file, or about to end: neither is for good. */
        err_set(err, -EAGAIN, "%s: %s: %s", server->who, command, reply->str);
        freeReplyObject(reply);
        reply = NULL;
    }
    return reply;
}

/* A connection for a few quick questions; NULL and err when there is none. */
static redisContext *connect_once(const struct server *server, struct err *err)
{
    const struct timeval limit = {.tv_sec = 2};
    redisContext *context = redisConnectWithTimeout("127.0.0.1", server->port, limit);
    if (!context || context->err) {
        err_set(err, -EAGAIN, "%s: %s", server->who, context ? context->errstr : "no memory");
        redisFree(context);
        return NULL;
    }
    redisSetTimeout(context, limit);
    redisReply *reply = ask(server, context, "AUTH", server->password, err);
    if (!reply) {
        redisFree(context);
        return NULL;
    }
    freeReplyObject(reply);
    return context;
}

/* The value of "name:value\r\n" in what INFO said. false: it says nothing of it. */
static bool info_field(const char *info, const char *name, char *out, size_t out_bytes)
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

static int ready(struct server *server, struct err *err)
{
    redisContext *context = connect_once(server, err);
    if (!context) {
        return -EAGAIN;
    }
    char number[64];
    /* Refused (-LOADING) while it still reads its file. */
    redisReply *reply = ask(server, context, "PING", NULL, err);
    freeReplyObject(reply);
    reply = reply ? ask(server, context, "INFO", "server", err) : NULL;
    int rc = -EAGAIN;
    if (reply && info_field(reply->str, "valkey_version", number, sizeof(number))) {
        snprintf(server->version, sizeof(server->version), "Valkey %s", number);
        rc = 0;
    } else if (reply && info_field(reply->str, "redis_version", number, sizeof(number))) {
        snprintf(server->version, sizeof(server->version), "redis %s (in place of valkey)", number);
        rc = 0;
    }
    freeReplyObject(reply);
    redisFree(context);
    return rc;
}

/* 1: the append-only file is being rewritten, or soon will be; 0: it is not. */
static int rewriting(const struct server *server, redisContext *context, struct err *err)
{
    char running[16] = "0", scheduled[16] = "0", enabled[16] = "1";
    redisReply *reply = ask(server, context, "INFO", "persistence", err);
    if (!reply) {
        return -EAGAIN;
    }
    info_field(reply->str, "aof_rewrite_in_progress", running, sizeof(running));
    info_field(reply->str, "aof_rewrite_scheduled", scheduled, sizeof(scheduled));
    info_field(reply->str, "aof_enabled", enabled, sizeof(enabled));
    freeReplyObject(reply);
    if (enabled[0] != '1') {
        return err_set(err, -EIO, "%s keeps no append-only file; see its log %s", server->who,
                       server->log_path);
    }
    return running[0] != '0' || scheduled[0] != '0';
}

/* Nothing to put at rest but a rewrite that is still under way. */
static int settle(struct server *server, struct err *err)
{
    redisContext *context = connect_once(server, err);
    if (!context) {
        return -EAGAIN;
    }
    int rc = 1;
    for (int i = 0; rc == 1 && i < 200; i++) {
        rc = rewriting(server, context, err);
        if (rc == 1) {
            usleep(50 * 1000);
        }
    }
    redisFree(context);
    return rc < 0 ? rc : 0;
}

static int background(struct server *server, const char *what, struct err *err)
{
    (void)what; /* there is one only */
    char status[16] = "";
    redisContext *context = connect_once(server, err);
    redisReply *reply = context ? ask(server, context, "BGREWRITEAOF", NULL, err) : NULL;
    int rc = reply ? 1 : -EAGAIN;
    freeReplyObject(reply);
    while (rc == 1) {
        rc = rewriting(server, context, err);
        if (rc == 1) {
            usleep(2 * 1000);
        }
    }
    if (rc == 0) {
        reply = ask(server, context, "INFO", "persistence", err);
        if (!reply ||
            !info_field(reply->str, "aof_last_bgrewrite_status", status, sizeof(status)) ||
            strcmp(status, "ok") != 0) {
            rc = err_set(err, -EIO, "%s: the rewrite of its file failed; see its log %s",
                         server->who, server->log_path);
        }
        freeReplyObject(reply);
    }
    if (context) {
        redisFree(context);
    }
    return rc;
}

static int settings(struct server *server, struct buf *json, struct err *err)
{
    redisContext *context = connect_once(server, err);
    if (!context) {
        return -EAGAIN;
    }
    int rc = 0;
    buf_putc(json, '{');
    for (size_t i = 0, shown = 0; rc == 0 && settings_shown[i]; i++) {
        redisReply *reply = ask(server, context, "CONFIG GET", settings_shown[i], err);
        if (!reply) {
            rc = -EIO;
        } else if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2) {
            const redisReply *value = reply->element[1];
            buf_printf(json, "%s\"%s\": ", shown++ > 0 ? ", " : "", settings_shown[i]);
            buf_json_string(json, value->str, value->len);
        }
        freeReplyObject(reply);
    }
    buf_putc(json, '}');
    redisFree(context);
    return rc;
}

static void free_own(struct server *server)
{
    struct own *own = server->own;
    if (own) {
        free(own->program);
        free(own->config_path);
        free(own);
    }
}

static const char *const background_what[] = {"aof-rewrite", NULL};
static const char *const serves[] = {"valkey", NULL};

const struct server_kind server_valkey = {
    .name = "valkey",
    .sinks = serves,
    .stop_signal = SIGTERM,
    .start_timeout_ms = 30000,
    .stop_timeout_ms = 10000,
    .prepare = prepare,
    .launch = launch,
    .ready = ready,
    .settle = settle,
    .settings = settings,
    .background_what = background_what,
    .background = background,
    .free = free_own,
};

/* sink_valkey.h: what the files of the sink valkey share: the address, connections, commands,
 * replies.
 *
 * The files: sink_valkey.c (settings, setup, preflight, looking), sink_valkey_ingest.c,
 * sink_valkey_ drain.c, sink_valkey_hold.c, _link.c and _reply.c (this), _tls.h. Redis speaks the
 * same protocol, so it serves too.
 */
#ifndef SLUICE_SINK_SINK_VALKEY_H
#define SLUICE_SINK_SINK_VALKEY_H

#include <hiredis/hiredis.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/options.h"
#include "sink/sink.h"

#define VALKEY_CONNECT_NS (5 * NS_PER_S) /* from dialling to the end of the greeting */
#define VALKEY_GROUP      "sluice"

/* Where the server is; made once, read by any thread. */
struct valkey_target {
    char *host;
    char port[8];
    char *user; /* NULL: none */
    char *password;
    int db;
    bool tls;
    char *ca_file; /* NULL: the system's */
    char *shown;   /* the URL without user and password, for messages */
    char *stream;  /* the key */
};

/* -EINVAL and a sentence for a URL that is none, or asks for TLS that this build lacks. */
int valkey_target_new(struct valkey_target *target, const struct options *options, struct err *err);
void valkey_target_free(struct valkey_target *target);

/* ---- the socket ---- */

/* A non-blocking socket on its way to address; negative errno. */
int valkey_socket(const struct addrinfo *address);
/* A context around a connected socket, which it owns from then on, also on failure: NULL and a
 * sentence. Non-blocking if the socket is. */
redisContext *valkey_adopt(const struct valkey_target *target, int fd, bool blocking,
                           struct err *err);

/* Appends what a new connection says first: password, database, its name. Returns how many replies
 * will come, to be judged by valkey_greeted in turn: 0, or the code of what is wrong. */
int valkey_greet(const struct valkey_target *target, redisContext *context, const char *name);
int valkey_greeted(const struct valkey_target *target, const redisReply *reply, struct err *err);

/* A blocking connection, greeted. Codes: -ECONNREFUSED, -ETIMEDOUT, -EHOSTUNREACH, -EACCES
 * (password, rights), -EAGAIN (still loading), -EPROTO (no such server), -EINVAL (no such
 * database). */
int valkey_dial(const struct valkey_target *target, const char *name, int64_t deadline_ns,
                redisContext **context, struct err *err);

/* Where a connection went, so that the next one needs no name looked up (a resolver may take many
 * seconds, and nobody can call it off). */
struct valkey_peer {
    struct sockaddr_storage address;
    socklen_t bytes; /* 0: not known */
};
void valkey_peer_of(const redisContext *context, struct valkey_peer *peer);
int valkey_dial_again(const struct valkey_target *target, const struct valkey_peer *peer,
                      const char *name, int64_t deadline_ns, redisContext **context,
                      struct err *err);
/* Has the other side ended it, as far as this one knows? */
bool valkey_ended(const redisContext *context);

/* ---- commands ---- */

struct valkey_command {
    const char **words;
    size_t *lengths;
    int count, room;
};
void valkey_begin(struct valkey_command *command, const char *word); /* empties it first */
void valkey_word(struct valkey_command *command, const char *word);  /* borrowed */
void valkey_bytes(struct valkey_command *command, const void *bytes, size_t len);
void valkey_command_free(struct valkey_command *command);

/* Blocking: appends, or sends and takes the reply. Replies are NULL when the connection is of no
 * use any more (then *err has a sentence and its code); an error of the server is a reply. */
void valkey_append(redisContext *context, const struct valkey_command *command);
redisReply *valkey_reply(const struct valkey_target *target, redisContext *context,
                         int64_t deadline_ns, struct err *err);
redisReply *valkey_ask(const struct valkey_target *target, redisContext *context,
                       int64_t deadline_ns, const struct valkey_command *command, struct err *err);

/* ---- replies ---- */

bool valkey_is_error(const redisReply *reply, const char *code); /* "LOADING"; NULL: any error */
/* Code and sentence for an error reply to what ("XADD"). */
int valkey_judge(const struct valkey_target *target, const char *what, const redisReply *reply,
                 struct err *err);
/* The same for a broken context; call right after the failing function, errno still as it left it.
 */
int valkey_broken(const struct valkey_target *target, const redisContext *context, struct err *err);
/* "name:value" out of what INFO said. */
bool valkey_info(const char *info, const char *name, char *out, size_t out_bytes);

/* Makes stream and group where they are not; 0 when they are there. */
int valkey_make_group(const struct valkey_target *target, redisContext *context,
                      int64_t deadline_ns, struct err *err);

/* ---- the sides ---- */

struct valkey_ingest;
struct valkey_probe { /* a connection to look through, made when it is needed */
    redisContext *context;
    int64_t retry_ns;
    struct sink_backlog last;
    int64_t last_ns; /* 0: never */
};
struct valkey_sink {
    struct sink base;
    enum sink_role role;
    struct valkey_target target;
    struct valkey_ingest *ingest; /* SINK_INGEST only */
    struct valkey_probe probe;    /* the other roles */
    /* SINK_DRAIN */
    char *consumer;         /* what names of consumers begin with */
    int64_t claim_after_ns; /* idle for so long: its consumer is gone */
    atomic_uint released;   /* how often a lane has given entries up to the others */
    atomic_llong complained_ns;
};

struct valkey_ingest *valkey_ingest_new(struct valkey_sink *sink, const struct options *options,
                                        struct err *err);
void valkey_ingest_close(struct valkey_ingest *ingest, int64_t deadline_ns);
int valkey_ingest_backlog(struct valkey_ingest *ingest, struct sink_backlog *backlog);
int valkey_submit(struct sink *sink, const struct task *task, sink_done_fn *done, void *arg);
int valkey_fd(struct sink *sink);
int64_t valkey_due_ns(struct sink *sink);
int valkey_process(struct sink *sink);
bool valkey_ready(struct sink *sink);
int valkey_why(struct sink *sink, const char **sentence);

/* sink_valkey_hold.c */
int valkey_hold(struct sink_hold **hold, const struct options *options, struct err *err);
int valkey_hold_keep(struct sink_hold *hold, struct err *err);
void valkey_hold_end(struct sink_hold *hold);

int valkey_lane_open(struct sink *sink, unsigned lane, struct sink_lane **out, struct err *err);
int valkey_fetch(struct sink_lane *lane, unsigned max, int wait_ms, struct sink_batch *batch);
int valkey_keep(struct sink_lane *lane);
int valkey_ack(struct sink_lane *lane, struct sink_batch *batch);
int valkey_release(struct sink_lane *lane, struct sink_batch *batch);
void valkey_lane_close(struct sink_lane *lane);

static inline struct valkey_sink *valkey_of(struct sink *sink)
{
    return (struct valkey_sink *)sink;
}

#endif

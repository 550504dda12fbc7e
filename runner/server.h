/* server.h: private servers: started on a free loopback port, as an unprivileged user, below the
 * keeper; killed, paused and restarted by faults; stopped at the end.
 *
 * A kind of server is one `const struct server_kind` in a file of its own (server_NAME.c) and one
 * line in the registry (server.c). The kind says how to prepare a data folder, which program to
 * start, and how to tell that it is ready; server.c does the waiting, the messages and the faults.
 *
 * Not thread-safe. A struct server is owned by its caller; server_free releases what it holds.
 */
#ifndef SLUICE_RUNNER_SERVER_H
#define SLUICE_RUNNER_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "process.h"

struct server;

struct server_kind {
    const char *name;         /* "postgres" */
    const char *const *sinks; /* names of the sinks that it serves, NULL-ended */
    int stop_signal;          /* stops it in order, and soon */
    int abort_signal; /* ends it at once, yet lets it give back what the kernel would keep; 0: none
                       */
    int start_timeout_ms; /* from launch to ready */
    int stop_timeout_ms;

    /* Once: finds the programs, makes the data folder in server->dir, writes its settings. */
    int (*prepare)(struct server *server, struct err *err);
    /* Starts the process (server->process) on server->port; again after a kill. Waits for nothing.
     */
    int (*launch)(struct server *server, struct err *err);
    /* 0: it takes requests; -EAGAIN: not yet; other: it never will (err says why). */
    int (*ready)(struct server *server, struct err *err);
    /* Puts it at rest before the load starts (a checkpoint); fills version. */
    int (*settle)(struct server *server, struct err *err);
    /* Appends the settings that matter as a JSON object, read back from the running server. */
    int (*settings)(struct server *server, struct buf *json, struct err *err);
    /* Housekeeping that can be forced while it serves: words of background_do_names, NULL-ended;
     * NULL: none. */
    const char *const *background_what;
    /* Does one of them and waits until it is done; the caller bounds that. Called in a process
     * beside the runner's: what it changes in *server is lost, and server->process is no child of
     * it. Any error: it was not done, or nobody knows; the text says why. */
    int (*background)(struct server *server, const char *what, struct err *err);
    void (*free)(struct server *server); /* its own part only; may be NULL */
};

/* What its starter decides; all borrowed for server_start. */
struct server_place {
    const char *who;       /* "main-db" or "sink" */
    const char *state_dir; /* its data folder is made here (state.h) */
    const char *base;      /* where ports are reserved */
    const char *log_path;
    unsigned clients; /* connections it must bear */
    /* For tests: it listens with TLS, too, by ca.crt, server.crt and server.key (PEM) of this
     * folder, of which it gets copies. NULL, as in all runs: it does not. */
    const char *tls_dir;
};

struct server {
    const struct server_kind *kind;
    char who[16];
    char *dir;      /* data folder, the account's own */
    char *log_path; /* its output */
    char *base;     /* where ports are reserved */
    char *url;      /* with the password: never in argv, logs or files of a run */
    char password[40];
    char version[96];
    int port;
    int tls_port;  /* 0: no TLS; a kind that has both on one port ignores it */
    char *tls_url; /* as url; NULL: no TLS */
    int replicas;
    unsigned clients;
    struct account account;
    struct process process;
    bool paused;
    void *own; /* the kind's */
};

extern const struct server_kind *const server_kinds[]; /* visible, NULL-terminated */
extern const struct server_kind server_postgres;
extern const struct server_kind server_valkey;
extern const struct server_kind server_rabbit;

/* The kind that serves this sink; NULL: the sink needs no server. */
const struct server_kind *server_for_sink(const char *sink);
/* Is that a housekeeping which this kind (may be NULL) can be made to do? */
bool server_kind_does(const struct server_kind *kind, const char *what);

/* A file of the server's account alone in its folder. For the kinds. */
int server_write_file(const struct server *server, const char *name, const char *text,
                      struct err *err);

/* Prepares, launches, waits until ready. On failure nothing runs any more, and err names the log.
 * Ends early, with -EINTR, when the user interrupts. */
int server_start(struct server *server, const struct server_kind *kind,
                 const struct server_place *place, struct err *err);
/* After a kill: launches it again on the same port and data. server_poll_ready: 0, -EAGAIN while it
 * is not ready; -ECHILD when it died. Neither waits. */
int server_relaunch(struct server *server, struct err *err);
int server_poll_ready(struct server *server, struct err *err);

void server_kill(struct server *server);  /* SIGKILL for all of it; returns when it is gone */
void server_pause(struct server *server); /* SIGSTOP for all of it */
void server_resume(struct server *server);
/* In order; false when it had to be killed. No-op when it doesn't run. */
bool server_stop(struct server *server);
void server_free(struct server *server);

#endif

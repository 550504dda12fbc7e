/* pg.h: libpq without blocking. For maindb itself and for sinks that talk to a Postgres.
 *
 * A pg_target is a URL taken apart once; a pg_link is one connection to it, driven by whoever polls
 * its socket: pg_start, then pg_step whenever the socket is ready, until it says 1; then plain
 * libpq calls on link.conn (PQsend..., PQflush, PQconsumeInput, PQisBusy, PQgetResult). A link that
 * failed is down and may be started again.
 *
 * Only a host name may block: libpq looks it up inside pg_start. Numeric addresses do not.
 *
 * Every session has synchronous_commit on, client_connection_check_interval (so that the statement
 * of a killed client ends at once; Postgres 14 or later), UTF-8 and quiet notices; every connection
 * has keepalives and tcp_user_timeout. What the URL says itself wins over those network settings.
 *
 * Threads: a target is read-only and may be shared; a link belongs to one thread.
 */
#ifndef SLUICE_MAINDB_PG_H
#define SLUICE_MAINDB_PG_H

#include <libpq-fe.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct pg_target;

/* -EINVAL: not a libpq URI or keyword string. The URL is copied. */
int pg_target_new(struct pg_target **target, const char *url, const char *application_name,
                  struct err *err);
void pg_target_free(struct pg_target *target);              /* NULL is allowed */
const char *pg_target_name(const struct pg_target *target); /* the URL without its password */

enum pg_state {
    PG_DOWN,
    PG_CONNECTING,
    PG_SETTING, /* the session's settings are on their way */
    PG_READY,
};

struct pg_link { /* {0} before first use */
    PGconn *conn;
    const struct pg_target *target;
    enum pg_state state;
    short wants;         /* what to poll PQsocket(conn) for while connecting or setting */
    int64_t deadline_ns; /* clock_mono_ns by which it must be ready; then pg_step fails */
};

/* Begins connecting. 0, or -EAGAIN and the link is down. */
int pg_start(struct pg_link *link, const struct pg_target *target, struct err *err);
/* 1: ready; 0: poll again; negative and down: -EAGAIN worth another try, -EPERM a person must act
 * (unknown user, wrong password, no such database). */
int pg_step(struct pg_link *link, struct err *err);
void pg_drop(struct pg_link *link); /* closes; from any state */

/* The SQLSTATE of a failed result, "" when it has none (the connection went). */
const char *pg_sqlstate(const PGresult *result);
/* True when the result's error also ends the session. */
int pg_ends_session(const PGresult *result);
/* "message (SQLSTATE)" of a failed result, or the connection's last error when result is NULL or
 * bare; one line, no password. Returns out. */
char *pg_message(const struct pg_link *link, const PGresult *result, char *out, size_t out_bytes);

#endif

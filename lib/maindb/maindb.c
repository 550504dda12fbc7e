/* maindb.c: one connection and the one loop that waits for it. */
#include "maindb/maindb.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "maindb/internal.h"

enum { MESSAGE_BYTES = 400, CANCEL_GRACE_MS = 1000 };

const struct maindb_wait maindb_short_wait = {.cancel_fd = -1, .deadline_ns = MAINDB_SHORT_NS};

int maindb_open(struct maindb **out, const char *url, const char *application_name, struct err *err)
{
    struct maindb *db = xcalloc(1, sizeof(*db));
    int rc = pg_target_new(&db->target, url, application_name, err);
    if (rc < 0) {
        free(db);
        *out = NULL;
        return rc;
    }
    *out = db;
    return 0;
}

void maindb_close(struct maindb *db)
{
    if (!db) {
        return;
    }
    pg_drop(&db->link);
    pg_target_free(db->target);
    rows_free(&db->rows);
    PQclear(db->failed);
    free(db);
}

/* Waiting: one poll for the socket and the cancel descriptor, with the keeper called in between. */
struct waiter {
    const struct maindb_wait *wait;
    int64_t longest_ns;
    int64_t deadline_ns;
    int64_t keep_ns; /* next call; INT64_MAX: never */
};

static struct waiter waiter_start(const struct maindb_wait *wait)
{
    int64_t now_ns = clock_mono_ns();
    int64_t longest_ns = wait->deadline_ns > 0 ? wait->deadline_ns : MAINDB_ANSWER_NS;
    bool keeps = wait->keep && wait->keep_every_ns > 0;
    return (struct waiter){
        .wait = wait,
        .longest_ns = longest_ns,
        .deadline_ns = now_ns + longest_ns,
        .keep_ns = keeps ? now_ns + wait->keep_every_ns : INT64_MAX,
    };
}

/* 1: the socket is ready; 0: something else happened, look again; -ETIMEDOUT, -ECANCELED. */
static int waiter_poll(struct waiter *waiter, int socket, short events)
{
    int64_t now_ns = clock_mono_ns();
    if (now_ns >= waiter->deadline_ns) {
        return -ETIMEDOUT;
    }
    int64_t until_ns =
        waiter->keep_ns < waiter->deadline_ns ? waiter->keep_ns : waiter->deadline_ns;
    int64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    struct timespec timeout = {.tv_sec = left_ns / NS_PER_S, .tv_nsec = left_ns % NS_PER_S};
    struct pollfd polled[] = {{.fd = socket, .events = events},
                              {.fd = waiter->wait->cancel_fd, .events = POLLIN}};
    int ready = ppoll(polled, 2, &timeout, NULL);
    if (ready > 0 && polled[1].revents) {
        return -ECANCELED;
    }
    if (waiter->keep_ns != INT64_MAX && clock_mono_ns() >= waiter->keep_ns) {
        /* A lease that could not be renewed costs a redelivery, never a task: the commit goes on.
         */
        waiter->wait->keep(waiter->wait->arg);
        waiter->keep_ns = clock_mono_ns() + waiter->wait->keep_every_ns;
    }
    return ready > 0 && polled[0].revents ? 1 : 0;
}

static int lost(struct maindb *db, const char *what, struct err *err)
{
    char message[MESSAGE_BYTES];
    pg_message(&db->link, NULL, message, sizeof(message));
    pg_drop(&db->link);
    return err_set(err, -EAGAIN, "main DB %s: %s: %s", pg_target_name(db->target), what, message);
}

int maindb_connect(struct maindb *db, const struct maindb_wait *wait, struct err *err)
{
    if (db->link.state == PG_READY && PQstatus(db->link.conn) == CONNECTION_OK) {
        return 0;
    }
    int rc = pg_start(&db->link, db->target, err);
    struct waiter waiter = waiter_start(wait);
    while (rc == 0) {
        /* The link has a deadline of its own, which pg_step checks: wake for that too. */
        if (waiter.deadline_ns > db->link.deadline_ns) {
            waiter.deadline_ns = db->link.deadline_ns;
        }
        int polled = waiter_poll(&waiter, PQsocket(db->link.conn), db->link.wants);
        if (polled == -ECANCELED) {
            pg_drop(&db->link);
            return err_set(err, -ECANCELED, "stopped while connecting to the main DB");
        }
        if (polled != 0) {
            rc = pg_step(&db->link, err);
            if (rc == 0 && polled == -ETIMEDOUT) {
                return lost(db, "connecting took too long", err);
            }
        }
    }
    if (rc < 0) {
        err_prefix(err, "main DB");
    }
    return rc < 0 ? rc : 0;
}

/* PQcancel blocks for as long as the server does not answer, so it runs beside; the thread owns
 * what it is given and ends by itself. */
static void *cancel_thread(void *arg)
{
    char text[256];
    PQcancel(arg, text, sizeof(text));
    PQfreeCancel(arg);
    return NULL;
}

/* Tells the server, waits a moment for it to let go (its locks with it), and drops the connection:
 * should the message be lost, the session's connection check ends the statement. */
static int cancel(struct maindb *db, struct err *err)
{
    PGcancel *request = PQgetCancel(db->link.conn);
    pthread_t thread;
    if (request && pthread_create(&thread, NULL, cancel_thread, request) == 0) {
        pthread_detach(thread);
        struct pollfd polled = {.fd = PQsocket(db->link.conn), .events = POLLIN};
        while (poll(&polled, 1, CANCEL_GRACE_MS) < 0 && errno == EINTR) {
        }
    } else {
        PQfreeCancel(request);
    }
    pg_drop(&db->link);
    return err_set(err, -ECANCELED, "stopped while the main DB was working");
}

int maindb_next(struct maindb *db, const struct maindb_wait *wait, PGresult **result,
                struct err *err)
{
    PGconn *conn = db->link.conn;
    struct waiter waiter = waiter_start(wait);
    *result = NULL;
    for (;;) {
        int unsent = PQflush(conn);
        if (unsent < 0) {
            return lost(db, "sending a statement", err);
        }
        if (unsent == 0 && !PQisBusy(conn)) {
            *result = PQgetResult(conn);
            return 0;
        }
        int polled = waiter_poll(&waiter, PQsocket(conn), (short)(POLLIN | (unsent ? POLLOUT : 0)));
        if (polled == -ECANCELED) {
            return cancel(db, err);
        }
        if (polled == -ETIMEDOUT) {
            cancel(db, NULL);
            return err_set(err, -EAGAIN, "main DB %s: no answer within %lld s",
                           pg_target_name(db->target), (long long)(waiter.longest_ns / NS_PER_S));
        }
        if (polled > 0 && PQconsumeInput(conn) != 1) {
            return lost(db, "waiting for an answer", err);
        }
    }
}

int maindb_fail(struct maindb *db, PGresult *result, const char *what, struct err *err)
{
    char message[MESSAGE_BYTES];
    pg_message(&db->link, result, message, sizeof(message));
    enum maindb_verdict verdict = maindb_judge(pg_sqlstate(result));
    bool over = pg_ends_session(result) || PQstatus(db->link.conn) != CONNECTION_OK;
    PQclear(db->failed);
    db->failed = result;
    const char *name = pg_target_name(db->target);
    if (verdict == MAINDB_ROW && !over) {
        return err_set(err, -EBADMSG, "main DB %s: %s: %s", name, what, message);
    }
    /* A new session sees new privileges, a new schema, a server that came back. Whatever was open
     * is rolled back by the end of this one. */
    pg_drop(&db->link);
    if (verdict == MAINDB_FATAL) {
        return err_set(err, -EPERM, "main DB %s: %s: %s; a person must act", name, what, message);
    }
    return err_set(err, -EAGAIN, "main DB %s: %s: %s", name, what, message);
}

int maindb_finish(struct maindb *db, const struct maindb_wait *wait, const char *what,
                  PGresult **out, struct err *err)
{
    PGresult *last = NULL;
    PGresult *bad = NULL;
    PGresult *result = NULL;
    int rc;
    while ((rc = maindb_next(db, wait, &result, err)) == 0 && result) {
        ExecStatusType status = PQresultStatus(result);
        if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK && !bad) {
            bad = result;
            if (pg_ends_session(bad)) {
                break; /* what follows is the end of the connection */
            }
        } else {
            PQclear(last);
            last = result;
        }
    }
    if (rc == 0 && bad) {
        rc = maindb_fail(db, bad, what, err);
        bad = NULL;
    }
    PQclear(bad);
    if (rc == 0 && out) {
        *out = last;
    } else {
        PQclear(last);
    }
    return rc;
}

int maindb_run(struct maindb *db, const struct maindb_wait *wait, const char *what, const char *sql,
               PGresult **result, struct err *err)
{
    if (PQsendQuery(db->link.conn, sql) != 1) {
        return lost(db, what, err);
    }
    return maindb_finish(db, wait, what, result, err);
}

int maindb_check(struct maindb *db, struct err *err)
{
    int rc = maindb_connect(db, &maindb_short_wait, err);
    if (rc == 0) {
        rc = maindb_run(db, &maindb_short_wait, "looking for its tables",
                        "SELECT id, accepted_us, body, committed_at FROM task LIMIT 0; "
                        "SELECT id, accepted_us, body, reason, sqlstate, detail, dead_at "
                        "FROM task_dead LIMIT 0",
                        NULL, err);
    }
    return rc == -EBADMSG ? -EAGAIN : rc;
}

static const char *flushes_of(int version)
{
    if (version < 140000) {
        return "SELECT -1::bigint";
    }
    return version < 180000 ? "SELECT wal_sync FROM pg_stat_wal"
                            : "SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal'";
}

int maindb_count(struct maindb *db, struct maindb_counts *counts, struct err *err)
{
    int rc = maindb_connect(db, &maindb_short_wait, err);
    if (rc < 0) {
        return rc;
    }
    /* The checkpointer's figures moved in Postgres 17. A sequence starts with last_value 1, not
     * called. */
    char *sql = xasprintf(
        "SELECT (SELECT count(*) FROM task), d.dead, d.refused, "
        "(SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM task_row_sleeps), "
        "(SELECT %s), "
        "(SELECT coalesce(sum(autovacuum_count), 0)::bigint FROM pg_stat_user_tables "
        "WHERE relid IN ('task'::regclass, 'task_dead'::regclass)), "
        "pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint, (%s) "
        "FROM (SELECT count(*) AS dead, count(*) FILTER (WHERE reason <> 'conflict') AS refused "
        "FROM task_dead) AS d",
        PQserverVersion(db->link.conn) >= 170000
            ? "num_timed + num_requested FROM pg_stat_checkpointer"
            : "checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter",
        flushes_of(PQserverVersion(db->link.conn)));
    PGresult *result = NULL;
    rc = PQsendQueryParams(db->link.conn, sql, 0, NULL, NULL, NULL, NULL, 1) == 1
             ? maindb_finish(db, &maindb_short_wait, "counting rows", &result, err)
             : lost(db, "counting rows", err);
    free(sql);
    if (rc == 0) {
        counts->tasks = rows_read_int64(result, 0, 0);
        counts->dead = rows_read_int64(result, 0, 1);
        counts->refused = rows_read_int64(result, 0, 2);
        counts->row_sleeps = rows_read_int64(result, 0, 3);
        counts->checkpoints = rows_read_int64(result, 0, 4);
        counts->autovacuums = rows_read_int64(result, 0, 5);
        counts->wal_bytes = rows_read_int64(result, 0, 6);
        counts->wal_flushes = rows_read_int64(result, 0, 7);
    }
    PQclear(result);
    return rc == -EBADMSG ? -EAGAIN : rc;
}

/* pg_call.c: the loops that wait. */
#include "maindb/pg_call.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <time.h>

#include "base/clock.h"
#include "maindb/maindb.h"

enum { MESSAGE_BYTES = 500 };

int pg_call_fail(struct pg_link *link, const PGresult *result, struct err *err)
{
    char message[MESSAGE_BYTES];
    bool fatal = result && maindb_judge(pg_sqlstate(result)) == MAINDB_FATAL;
    pg_message(link, result, message, sizeof(message));
    int rc =
        err_set(err, fatal ? -EACCES : -EAGAIN, "%s: %s", pg_target_name(link->target), message);
    pg_drop(link);
    return rc;
}

/* false: the deadline has passed. */
static bool wait_for_socket(const struct pg_link *link, short events, int64_t deadline_ns)
{
    int64_t left_ns = deadline_ns - clock_mono_ns();
    if (left_ns <= 0) {
        return false;
    }
    struct timespec timeout = {.tv_sec = left_ns / NS_PER_S, .tv_nsec = left_ns % NS_PER_S};
    struct pollfd polled = {.fd = PQsocket(link->conn), .events = events};
    ppoll(&polled, 1, &timeout, NULL);
    return true;
}

int pg_call_connect(struct pg_link *link, const struct pg_target *target, int64_t deadline_ns,
                    struct err *err)
{
    int rc = 0;
    if (link->state == PG_READY) {
        if (PQstatus(link->conn) == CONNECTION_OK) {
            return 0;
        }
        pg_drop(link);
    }
    if (link->state == PG_DOWN) {
        rc = pg_start(link, target, err);
    }
    while (rc == 0) {
        /* pg_step knows that connecting itself took too long. */
        bool last = deadline_ns <= link->deadline_ns;
        if (!wait_for_socket(link, link->wants, last ? deadline_ns : link->deadline_ns) && last) {
            return err_set(err, -ETIMEDOUT, "%s: not connected yet", pg_target_name(target));
        }
        rc = pg_step(link, err);
    }
    if (rc == -EPERM) { /* which a preflight uses for settings */
        rc = -EACCES;
        if (err) {
            err->code = rc;
        }
    }
    return rc < 0 ? rc : 0;
}

static int too_late(struct pg_link *link, struct err *err)
{
    int rc = err_set(err, -ETIMEDOUT, "%s: no answer in time", pg_target_name(link->target));
    pg_drop(link);
    return rc;
}

int pg_call_finish(struct pg_link *link, int64_t deadline_ns, PGresult **result, struct err *err)
{
    PGresult *last = NULL;
    int unsent = 0;
    int rc = 0;
    for (;;) {
        /* Reading while sending: a server that cannot get rid of its answers stops reading. */
        unsent = PQflush(link->conn);
        if (unsent < 0 || PQconsumeInput(link->conn) != 1) {
            rc = pg_call_fail(link, last && PQresultStatus(last) == PGRES_FATAL_ERROR ? last : NULL,
                              err);
            break;
        }
        if (PQisBusy(link->conn)) {
            if (!wait_for_socket(link, (short)(POLLIN | (unsent ? POLLOUT : 0)), deadline_ns)) {
                rc = too_late(link, err);
                break;
            }
            continue;
        }
        PGresult *next = PQgetResult(link->conn);
        if (!next) {
            break;
        }
        if (last && PQresultStatus(last) == PGRES_FATAL_ERROR) {
            PQclear(next); /* the first error says why */
        } else {
            PQclear(last);
            last = next;
        }
    }
    if (rc == 0 && PQresultStatus(last) != PGRES_TUPLES_OK &&
        PQresultStatus(last) != PGRES_COMMAND_OK) {
        rc = pg_call_fail(link, last, err);
    }
    if (rc == 0 && result) {
        *result = last;
    } else {
        PQclear(last);
    }
    return rc;
}

int pg_call_run(struct pg_link *link, const char *sql, int64_t deadline_ns, PGresult **result,
                struct err *err)
{
    if (PQsendQuery(link->conn, sql) != 1) {
        return pg_call_fail(link, NULL, err);
    }
    return pg_call_finish(link, deadline_ns, result, err);
}

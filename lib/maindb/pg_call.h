/* pg_call.h: questions to a Postgres that may be waited for, each within a deadline: for those who
 * have a thread to wait in (lanes of the sink ingest, set-up, the runner).
 *
 * On any failure the link is down afterwards (pg_drop): a connection that failed once is not used
 * again, and a transaction that was open on it ends in the server.
 *
 * Codes: -ETIMEDOUT; -EAGAIN: lost, or an error that may pass; -EACCES: a person must act (role,
 * password, database, table). The text is one sentence without the password.
 */
#ifndef SLUICE_MAINDB_PG_CALL_H
#define SLUICE_MAINDB_PG_CALL_H

#include <libpq-fe.h>
#include <stdint.h>

#include "base/err.h"
#include "maindb/pg.h"

/* Connects, unless it is. A link that is still connecting at deadline_ns (clock_mono_ns) gives
 * -ETIMEDOUT and stays as it is: the next call goes on with it. */
int pg_call_connect(struct pg_link *link, const struct pg_target *target, int64_t deadline_ns,
                    struct err *err);

/* After a statement was sent (PQsend...): waits for its end. *result: the last of its results,
 * to be cleared by the caller; NULL: not wanted. */
int pg_call_finish(struct pg_link *link, int64_t deadline_ns, PGresult **result, struct err *err);

/* A simple query, several statements allowed. */
int pg_call_run(struct pg_link *link, const char *sql, int64_t deadline_ns, PGresult **result,
                struct err *err);

/* Drops the link and says why: what the result says, or what the connection said last. */
int pg_call_fail(struct pg_link *link, const PGresult *result, struct err *err);

#endif

/* internal.h: what maindb's own files share. */
#ifndef SLUICE_MAINDB_INTERNAL_H
#define SLUICE_MAINDB_INTERNAL_H

#include "maindb/maindb.h"
#include "maindb/pg.h"
#include "maindb/rows.h"

#define MAINDB_SHORT_NS (15 * NS_PER_S) /* for statements that have no rows to wait for */
/* Longest wait for one answer, unless the caller says less: a large batch may well take minutes,
 * and a peer that is gone is noticed by keepalives far sooner. */
#define MAINDB_ANSWER_NS (3600 * NS_PER_S)

struct maindb {
    struct pg_target *target;
    struct pg_link link;
    struct rows rows; /* parameters being built */
    PGresult *failed; /* the last statement's error, for row errors; owned */
};

extern const char maindb_schema_sql[]; /* schema.sql, embedded by the build */
extern const struct maindb_wait maindb_short_wait;

/* All return 0, -EAGAIN (down or transient), -EPERM (fatal), -ECANCELED, or -EBADMSG: a row error,
 * then db->failed holds it. The text says what was tried ("what") and what the server said. */
int maindb_connect(struct maindb *db, const struct maindb_wait *wait, struct err *err);
/* Waits for the next result; *result NULL: the statement is over. No judgement. Caller clears. */
int maindb_next(struct maindb *db, const struct maindb_wait *wait, PGresult **result,
                struct err *err);
/* After a statement was sent: collects to its end, the last result in *result (NULL: not wanted).
 */
int maindb_finish(struct maindb *db, const struct maindb_wait *wait, const char *what,
                  PGresult **result, struct err *err);
/* A simple query, several statements allowed. */
int maindb_run(struct maindb *db, const struct maindb_wait *wait, const char *what, const char *sql,
               PGresult **result, struct err *err);
/* Judges a failed result: one of the codes above; drops the connection where it is of no more use.
 */
int maindb_fail(struct maindb *db, PGresult *result, const char *what, struct err *err);

#endif

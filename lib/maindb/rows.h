/* rows.h: the two statements that store tasks, and their parameters. For commit.c and sinks that
 * write the main DB themselves, so that a task means the same whoever writes it.
 *
 * Both take arrays, in binary. In READ COMMITTED, statement by statement, they settle every race:
 *
 *   rows_insert_sql  inserts the tasks whose id is in neither table yet, by id, so that overlapping
 *                    batches cannot deadlock. A row that is there does not fire the trigger.
 * Another transaction's uncommitted row of the same id is waited for. Each id once at most. Returns
 * the ids that are new (binary uuid). rows_settle_sql  for the tasks that were not inserted, in a
 * snapshot taken afterwards, where the row that won is visible: writes those with another body, or
 * with an SQLSTATE, to task_dead. Returns one row of binary bigint: dead (written now), conflicts
 * (those of dead with reason conflict), absent (tasks that are in neither table; wants another
 * insert).
 *
 * Threads: a struct rows belongs to one thread.
 */
#ifndef SLUICE_MAINDB_ROWS_H
#define SLUICE_MAINDB_ROWS_H

#include <libpq-fe.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "task/task.h"

extern const char rows_insert_sql[];
extern const char rows_settle_sql[];

enum { ROWS_INSERT_PARAMS = 3, ROWS_SETTLE_PARAMS = 5, ROWS_DETAIL_BYTES = 600 };

/* Parameters being built: one array each. {0} before first use. */
struct rows {
    size_t count;
    struct buf ids, accepted, bodies, sqlstates, details;
};

void rows_clear(struct rows *rows); /* keeps the memory */
void rows_free(struct rows *rows);
/* Copies the task. sqlstate and detail: why it cannot be inserted, for rows_settle_sql; NULL: none.
 */
void rows_add(struct rows *rows, const struct task *task, const char *sqlstate, const char *detail);
size_t rows_bytes(const struct rows *rows);

/* Begin the statement (PQsendQueryParams): 1 sent or queued, 0 not. rows must not be empty. */
int rows_send_insert(PGconn *conn, struct rows *rows);
int rows_send_settle(PGconn *conn, struct rows *rows);

struct rows_settled {
    int64_t dead;
    int64_t conflicts;
    int64_t absent;
};
struct rows_settled
rows_read_settled(const PGresult *result); /* a PGRES_TUPLES_OK of rows_settle_sql */
int64_t rows_read_int64(const PGresult *result, int row, int column); /* binary bigint */

/* "primary message; detail" of a failed result for task_dead.detail, cut at ROWS_DETAIL_BYTES. */
char *rows_detail(const PGresult *result, char out[ROWS_DETAIL_BYTES]);

#endif

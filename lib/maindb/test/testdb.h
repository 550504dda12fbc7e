/* testdb.h: a fresh database for a test, on the server that SLUICE_TEST_MAIN_URL names.
 *
 * Talks to it over a plain blocking connection of its own, so that what maindb did is read back by
 * something else. Failures end the test (assert). One thread.
 */
#ifndef SLUICE_MAINDB_TESTDB_H
#define SLUICE_MAINDB_TESTDB_H

#include <libpq-fe.h>
#include <stdint.h>

#include "task/task.h"

struct testdb {
    char *url;  /* for maindb */
    char *name; /* of the database */
    PGconn *conn;
};

/* Without a server: prints why and ends the process, 77 (skipped), or 1 where CI=true. */
void testdb_need_server(void);
void testdb_open(struct testdb *db, double row_delay_s); /* with the schema; < 0: without it */
void testdb_close(struct testdb *db);                    /* drops the database */

void testdb_run(struct testdb *db, const char *format, ...) __attribute__((format(printf, 2, 3)));
int64_t testdb_int(struct testdb *db, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
char *testdb_text(struct testdb *db, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Is exactly this task in the table ("task", "task_dead"), accepted_us included? How often. */
int64_t testdb_has(struct testdb *db, const char *table, const struct task *task);
/* Server processes of clients with this application_name, in this database. */
int64_t testdb_sessions(struct testdb *db, const char *application_name);

#endif

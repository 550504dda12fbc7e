/* setup.c: makes the schema, and reads back what a run's honesty rests on. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "maindb/internal.h"

static int open_connected(struct maindb **db, const char *url, const char *who, struct err *err)
{
    int rc = maindb_open(db, url, who, err);
    if (rc == 0) {
        rc = maindb_connect(*db, &maindb_short_wait, err);
    }
    return rc;
}

int maindb_setup(const char *url, int64_t row_delay_ns, struct err *err)
{
    struct maindb *db = NULL;
    int rc = open_connected(&db, url, "sluice setup", err);
    if (rc == 0) {
        /* Several statements in one query are one transaction; the lock keeps two set-ups apart. */
        char *sql = xasprintf("SELECT pg_advisory_xact_lock(20260105, 1); %s; "
                              "SELECT task_set_row_delay(%.9f)",
                              maindb_schema_sql, (double)row_delay_ns / (double)NS_PER_S);
        rc = maindb_run(db, &maindb_short_wait, "making its tables", sql, NULL, err);
        free(sql);
        if (rc == 0) {
            rc = maindb_check(db, err);
        }
    }
    maindb_close(db);
    return rc == -EBADMSG ? -EPERM : rc;
}

int maindb_empty(const char *url, struct err *err)
{
    struct maindb *db = NULL;
    int rc = open_connected(&db, url, "sluice setup", err);
    if (rc == 0) {
        rc = maindb_run(db, &maindb_short_wait, "emptying its tables", "TRUNCATE task, task_dead",
                        NULL, err);
    }
    maindb_close(db);
    return rc == -EBADMSG ? -EPERM : rc;
}

static int judge_settings(const PGresult *result, const char *name, struct err *err)
{
    for (int i = 0; i < PQntuples(result); i++) {
        const char *setting = PQgetvalue(result, i, 0);
        const char *found = PQgetvalue(result, i, 1);
        const char *wanted = PQgetvalue(result, i, 2);
        if (strcmp(found, wanted) != 0 &&
            !(strcmp(setting, "synchronous_commit") == 0 && strcmp(found, "remote_apply") == 0)) {
            return err_set(err, -EPERM,
                           "main DB %s: %s is %s, wanted %s: a commit would not be durable", name,
                           setting, found, wanted);
        }
    }
    return 0;
}

int maindb_preflight(const char *url, char *version, size_t version_bytes, struct err *err)
{
    /* synchronous_commit as the worker's sessions have it: this one was set up alike (pg.c). */
    static const char sql[] =
        "SELECT name, current_setting(name), 'on' "
        "FROM unnest(ARRAY['fsync', 'full_page_writes', 'synchronous_commit']) AS s (name) "
        "UNION ALL SELECT 'table ' || n.name, coalesce((SELECT CASE c.relpersistence "
        "WHEN 'p' THEN 'logged' WHEN 'u' THEN 'unlogged' ELSE 'temporary' END "
        "FROM pg_class AS c WHERE c.oid = to_regclass(n.name)), 'absent'), 'logged' "
        "FROM unnest(ARRAY['task', 'task_dead']) AS n (name)";
    struct maindb *db = NULL;
    PGresult *result = NULL;
    int rc = open_connected(&db, url, "sluice preflight", err);
    if (rc == 0 && version_bytes > 0) {
        const char *found = PQparameterStatus(db->link.conn, "server_version");
        found = found ? found : "of unknown version";
        snprintf(version, version_bytes, "PostgreSQL %.*s", (int)strcspn(found, " "), found);
    }
    if (rc == 0) {
        rc = maindb_run(db, &maindb_short_wait, "reading its settings back", sql, &result, err);
    }
    if (rc == 0) {
        rc = judge_settings(result, pg_target_name(db->target), err);
    }
    PQclear(result);
    maindb_close(db);
    return rc == -EBADMSG ? -EAGAIN : rc;
}

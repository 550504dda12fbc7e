/* export.c: main.tsv, row by row, so that memory does not grow with the table. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "maindb/internal.h"

static int write_row(const PGresult *row, FILE *out)
{
    uint8_t id[UUID_BYTES];
    char text[UUID_TEXT_BYTES];
    memcpy(id, PQgetvalue(row, 0, 0), UUID_BYTES);
    size_t body_bytes = (size_t)PQgetlength(row, 0, 2);
    uint64_t hash = task_body_hash(PQgetvalue(row, 0, 2), body_bytes);
    fprintf(out, "%s\t%s\t%zu\t%016" PRIx64 "\t", uuid_format(id, text), PQgetvalue(row, 0, 1),
            body_bytes, hash);
    for (const char *at = PQgetvalue(row, 0, 3); *at; at++) {
        fputc(iscntrl((unsigned char)*at) ? ' ' : *at, out); /* anybody may write to the table */
    }
    return fputc('\n', out) == EOF ? -EIO : 0;
}

/* One snapshot for both tables: a task that moves is seen once. */
static const char export_sql[] = "SELECT id, 'main', body, '' FROM task UNION ALL "
                                 "SELECT id, 'dead', body, reason FROM task_dead";

static int export_rows(struct maindb *db, FILE *out, int64_t *rows, struct err *err)
{
    if (PQsendQueryParams(db->link.conn, export_sql, 0, NULL, NULL, NULL, NULL, 1) != 1 ||
        PQsetSingleRowMode(db->link.conn) != 1) {
        return err_set(err, -EAGAIN, "main DB %s: the export could not begin: %s",
                       pg_target_name(db->target), PQerrorMessage(db->link.conn));
    }
    PGresult *result = NULL;
    int rc;
    while ((rc = maindb_next(db, &maindb_short_wait, &result, err)) == 0 && result) {
        ExecStatusType status = PQresultStatus(result);
        if (status == PGRES_SINGLE_TUPLE) {
            (*rows)++;
            if (write_row(result, out) < 0) {
                rc = err_set(err, -EIO, "writing main.tsv failed: %s", strerror(errno));
            }
        } else if (status != PGRES_TUPLES_OK) {
            return maindb_fail(db, result, "exporting", err);
        }
        PQclear(result);
        if (rc < 0) {
            break;
        }
    }
    return rc;
}

int maindb_export(const char *url, FILE *out, struct err *err)
{
    struct maindb *db = NULL;
    int64_t rows = 0;
    int rc = maindb_open(&db, url, "sluice export", err);
    if (rc == 0) {
        rc = maindb_connect(db, &maindb_short_wait, err);
    }
    if (rc == 0) {
        fputs("#sluice-main 1\n", out);
        rc = export_rows(db, out, &rows, err);
    }
    if (rc == 0) {
        fprintf(out, "#end rows=%" PRId64 "\n", rows);
        if (fflush(out) != 0 || ferror(out)) {
            rc = err_set(err, -EIO, "writing main.tsv failed: %s", strerror(errno));
        }
    }
    maindb_close(db);
    return rc == -EBADMSG ? -EPERM : rc;
}

/* testdb.c: see testdb.h. */
#include "testdb.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "maindb/maindb.h"

void testdb_need_server(void)
{
    const char *url = getenv("SLUICE_TEST_MAIN_URL");
    if (url && *url) {
        return;
    }
    const char *ci = getenv("CI");
    printf("SKIP: no server: set SLUICE_TEST_MAIN_URL, or run it below `sluice with main-db --`\n");
    exit(ci && strcmp(ci, "true") == 0 ? 1 : 77);
}

/* The server's URL as a keyword string, with another database. */
static char *url_of(const char *database)
{
    PQconninfoOption *parsed = PQconninfoParse(getenv("SLUICE_TEST_MAIN_URL"), NULL);
    assert(parsed);
    struct buf url = {0};
    for (PQconninfoOption *option = parsed; option->keyword; option++) {
        const char *value = strcmp(option->keyword, "dbname") == 0 ? database : option->val;
        if (!value) {
            continue;
        }
        buf_printf(&url, "%s='", option->keyword);
        for (const char *at = value; *at; at++) {
            buf_printf(&url, *at == '\'' || *at == '\\' ? "\\%c" : "%c", *at);
        }
        buf_puts(&url, "' ");
    }
    PQconninfoFree(parsed);
    return url.data;
}

static PGconn *connect_to(const char *url)
{
    PGconn *conn = PQconnectdb(url);
    if (PQstatus(conn) != CONNECTION_OK) {
        fprintf(stderr, "testdb: %s\n", PQerrorMessage(conn));
        abort();
    }
    PGresult *result = PQexec(conn, "SET client_min_messages = error");
    PQclear(result);
    return conn;
}

static void run_on_server(const char *format, const char *database)
{
    PGconn *conn = connect_to(getenv("SLUICE_TEST_MAIN_URL"));
    char *sql = xasprintf("%s %s", format, database);
    PGresult *result = PQexec(conn, sql);
    if (PQresultStatus(result) != PGRES_COMMAND_OK) {
        fprintf(stderr, "testdb: %s: %s\n", sql, PQerrorMessage(conn));
        abort();
    }
    PQclear(result);
    free(sql);
    PQfinish(conn);
}

void testdb_open(struct testdb *db, double row_delay_s)
{
    static unsigned opened;
    db->name = xasprintf("sluice_test_%d_%u", (int)getpid(), opened++);
    run_on_server("CREATE DATABASE", db->name);
    db->url = url_of(db->name);
    struct err err = {0};
    if (row_delay_s >= 0 && maindb_setup(db->url, (int64_t)(row_delay_s * 1e9), &err) < 0) {
        fprintf(stderr, "testdb: %s\n", err.text);
        abort();
    }
    db->conn = connect_to(db->url);
}

void testdb_close(struct testdb *db)
{
    PQfinish(db->conn);
    char *forced = xasprintf("%s WITH (FORCE)", db->name);
    run_on_server("DROP DATABASE", forced);
    free(forced);
    free(db->name);
    free(db->url);
}

static PGresult *__attribute__((format(printf, 2, 0)))
query(struct testdb *db, const char *format, va_list args)
{
    struct buf sql = {0};
    buf_vprintf(&sql, format, args);
    PGresult *result = PQexec(db->conn, sql.data);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
        fprintf(stderr, "testdb: %s: %s\n", sql.data, PQerrorMessage(db->conn));
        abort();
    }
    buf_free(&sql);
    return result;
}

void testdb_run(struct testdb *db, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    PQclear(query(db, format, args));
    va_end(args);
}

int64_t testdb_int(struct testdb *db, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    PGresult *result = query(db, format, args);
    va_end(args);
    assert(PQntuples(result) == 1);
    int64_t value = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return value;
}

char *testdb_text(struct testdb *db, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    PGresult *result = query(db, format, args);
    va_end(args);
    assert(PQntuples(result) == 1);
    char *value = xstrdup(PQgetvalue(result, 0, 0));
    PQclear(result);
    return value;
}

int64_t testdb_has(struct testdb *db, const char *table, const struct task *task)
{
    char id[UUID_TEXT_BYTES];
    uuid_format(task->id, id);
    size_t escaped_bytes;
    unsigned char *body = PQescapeByteaConn(db->conn, task->body, task->body_bytes, &escaped_bytes);
    int64_t count = testdb_int(db,
                               "SELECT count(*) FROM %s WHERE id = '%s' AND accepted_us = %lld "
                               "AND body = '%s'::bytea",
                               table, id, (long long)task->accepted_us, body);
    PQfreemem(body);
    return count;
}

int64_t testdb_sessions(struct testdb *db, const char *application_name)
{
    return testdb_int(db,
                      "SELECT count(*) FROM pg_stat_activity WHERE datname = '%s' "
                      "AND application_name = '%s'",
                      db->name, application_name);
}

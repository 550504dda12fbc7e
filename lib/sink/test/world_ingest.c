/* world_ingest.c: a database of its own for each case, on the server of SLUICE_TEST_INGEST_URL. */
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "server_control.h"
#include "worlds.h"

static const char server[] = "ingest";
static char database[64];

static void run(const char *format, const char *name)
{
    PGconn *conn = PQconnectdb(server_url(server));
    char *sql = xasprintf("%s %s", format, name);
    PGresult *result = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(result);
    expect(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK, "%s: %s", sql,
           PQerrorMessage(conn));
    PQclear(result);
    PQfinish(conn);
    free(sql);
}

/* The server's URL as a keyword string, with the case's database. */
static char *url_of_database(void)
{
    PQconninfoOption *parsed = PQconninfoParse(server_url(server), NULL);
    struct buf url = {0};
    for (PQconninfoOption *option = parsed; option->keyword; option++) {
        const char *value = strcmp(option->keyword, "dbname") == 0 ? database : option->val;
        if (value) {
            buf_printf(&url, "%s='%s' ", option->keyword, value); /* none of them has quotes */
        }
    }
    PQconninfoFree(parsed);
    return url.data;
}

static void make(struct contract *contract)
{
    if (!server_url(server)) {
        contract_skip("no server: set SLUICE_TEST_INGEST_URL, or run it below "
                      "`sluice with ingest --`");
    }
    if (server_can_be_controlled(server)) {
        world_control(server, "start"); /* a case that failed may have left it down */
    }
    snprintf(database, sizeof(database), "sluice_contract_%d_%lld", (int)getpid(),
             (long long)clock_wall_us());
    run("CREATE DATABASE", database);
    char *url = url_of_database();
    world_set_option(contract, "sink-url", url);
    world_set_option(contract, "ingest-deadline", "2s");
    free(url);
    world_run_setup(contract);
}

static void unmake(struct contract *contract)
{
    (void)contract;
    if (server_can_be_controlled(server)) {
        world_control(server, "start");
    }
    char *forced = xasprintf("%s WITH (FORCE)", database);
    run("DROP DATABASE IF EXISTS", forced);
    free(forced);
}

static void cut(struct contract *contract)
{
    (void)contract;
    char *which = xasprintf("WHERE datname = '%s' AND pid <> pg_backend_pid()", database);
    run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity", which);
    free(which);
}

static void server_stop(struct contract *contract)
{
    (void)contract;
    world_control(server, "kill");
}

static void server_start(struct contract *contract)
{
    (void)contract;
    world_control(server, "start");
}

static void server_pause(struct contract *contract)
{
    (void)contract;
    world_control(server, "pause");
}

static void server_resume(struct contract *contract)
{
    (void)contract;
    world_control(server, "resume");
}

const struct world world_ingest = {
    .sink = "ingest",
    .make = make,
    .unmake = unmake,
    .cut = cut,
    .server_stop = server_stop,
    .server_start = server_start,
    .server_pause = server_pause,
    .server_resume = server_resume,
};

/* worlds.c: how to get a fresh sink of each kind. */
#include "contract.h"

#include <libpq-fe.h>
#include <stdlib.h>
#include <string.h>

#include "maindb/rows.h"
#include "server_control.h"
#include "testdb.h"
#include "worlds.h"

void world_set_option(struct contract *contract, const char *name, const char *text)
{
    struct err err = {0};
    int rc = options_set(contract->options, name, text, "the contract suite", &err);
    expect(rc == 0, "%s", err.text);
}

void world_run_setup(struct contract *contract)
{
    struct err err = {0};
    int rc = contract->driver->setup(contract->options, &err);
    expect(rc == 0, "setup: %d: %s", rc, err.text);
}

void world_control(const char *server, const char *command)
{
    struct err err = {0};
    if (!server_can_be_controlled(server)) {
        contract_skip("no hold of the server: run it below `sluice with`");
    }
    int rc = server_control(server, command, &err);
    expect(rc == 0, "%s", err.text);
}

static void make_any(struct contract *contract)
{
    world_run_setup(contract);
    if (contract->driver->flags & SINK_DRAINS) {
        struct store leftovers = {0};
        collect(contract, &leftovers);
        store_free(&leftovers);
    }
}

static void unmake_nothing(struct contract *contract)
{
    (void)contract;
}

const struct world world_any = {.make = make_any, .unmake = unmake_nothing};

/* Sinks that are a folder. */
static void make_folder(struct contract *contract, const char *option)
{
    char *inside = xasprintf("%s/sink", contract->folder);
    world_set_option(contract, option, inside);
    free(inside);
    world_run_setup(contract);
}

static void make_plain(struct contract *contract)
{
    make_folder(contract, "plain-dir");
}

static void make_wal(struct contract *contract)
{
    make_folder(contract, "wal-dir");
}

static const struct world world_plain = {
    .sink = "plain", .make = make_plain, .unmake = unmake_nothing};
static const struct world world_wal = {.sink = "wal", .make = make_wal, .unmake = unmake_nothing};

/* The main DB is the sink: a database of its own, and its tables are what is stored. */
static struct testdb main_db;

static void make_direct(struct contract *contract)
{
    const char *url = getenv("SLUICE_TEST_MAIN_URL");
    if (!url || !*url) {
        contract_skip("no server: set SLUICE_TEST_MAIN_URL, or run it below "
                      "`sluice with main-db --`");
    }
    testdb_open(&main_db, 0);
    world_set_option(contract, "main-url", main_db.url);
    world_run_setup(contract);
}

static void unmake_direct(struct contract *contract)
{
    (void)contract;
    testdb_close(&main_db);
}

static void look_into_main(struct contract *contract, struct store *store)
{
    (void)contract;
    PGresult *result = PQexecParams(main_db.conn,
                                    "SELECT id, accepted_us, body FROM task UNION ALL "
                                    "SELECT id, accepted_us, body FROM task_dead",
                                    0, NULL, NULL, NULL, NULL, 1);
    expect(PQresultStatus(result) == PGRES_TUPLES_OK, "%s", PQerrorMessage(main_db.conn));
    for (int i = 0; i < PQntuples(result); i++) {
        struct task task = {.accepted_us = rows_read_int64(result, i, 1),
                            .body = PQgetvalue(result, i, 2),
                            .body_bytes = (size_t)PQgetlength(result, i, 2)};
        memcpy(task.id, PQgetvalue(result, i, 0), UUID_BYTES);
        store_add(store, &task);
    }
    PQclear(result);
}

static void cut_main(struct contract *contract)
{
    (void)contract;
    testdb_run(&main_db,
               "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '%s' "
               "AND pid <> pg_backend_pid()",
               main_db.name);
}

static const struct world world_direct = {.sink = "direct",
                                          .make = make_direct,
                                          .unmake = unmake_direct,
                                          .look = look_into_main,
                                          .cut = cut_main};

const struct world *const worlds[] = {
    &world_plain, &world_wal, &world_direct, &world_ingest, &world_valkey, &world_rabbit, NULL,
};

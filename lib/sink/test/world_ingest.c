/* world_ingest.c: a database of its own for each case, on the server of SLUICE_TEST_INGEST_URL. */
#include <stdlib.h>

#include "server_control.h"
#include "testdb.h"
#include "worlds.h"

static const char server[] = "ingest";
static struct testdb db;

static void make(struct contract *contract)
{
    const char *url = server_url(server);
    if (!url) {
        contract_skip("no server: set SLUICE_TEST_INGEST_URL, or run it below "
                      "`sluice with ingest --`");
    }
    if (server_can_be_controlled(server)) {
        world_control(server, "start"); /* a case that failed may have left it down */
    }
    setenv("SLUICE_TEST_MAIN_URL", url, 1); /* where testdb makes its databases */
    testdb_open(&db, -1);
    world_set_option(contract, "sink-url", db.url);
    world_set_option(contract, "ingest-deadline", "2s");
    world_run_setup(contract);
}

static void unmake(struct contract *contract)
{
    (void)contract;
    if (server_can_be_controlled(server)) {
        world_control(server, "start");
    }
    testdb_close(&db);
}

static void cut(struct contract *contract)
{
    (void)contract;
    testdb_run(&db,
               "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '%s' "
               "AND pid <> pg_backend_pid()",
               db.name);
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

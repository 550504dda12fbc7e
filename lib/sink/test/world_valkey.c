/* world_valkey.c: a fresh stream on a real server, named by SLUICE_TEST_VALKEY_URL, whose starter
 * can be asked to kill and start it (SLUICE_TEST_VALKEY_CONTROL). */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "server_control.h"
#include "valkey_server.h"
#include "worlds.h"

static void make(struct contract *contract)
{
    const char *url = valkey_server_url();
    if (!url) {
        contract_skip("no server: set SLUICE_TEST_VALKEY_URL, or run it below "
                      "`sluice with valkey --`");
    }
    if (server_can_be_controlled("valkey")) {
        world_control("valkey", "start"); /* a case that failed may have left it down */
    }
    char *stream = xasprintf("sluice:test:%d:%lld", (int)getpid(), (long long)clock_mono_ns());
    world_set_option(contract, "sink-url", url);
    world_set_option(contract, "valkey-stream", stream);
    free(stream);
    world_run_setup(contract);
}

static void unmake(struct contract *contract)
{
    redisContext *context = valkey_server_connect();
    if (context) {
        freeReplyObject(
            redisCommand(context, "DEL %s", options_string(contract->options, "valkey-stream")));
    }
    redisFree(context);
}

static void cut(struct contract *contract)
{
    (void)contract;
    redisContext *context = valkey_server_connect();
    expect(context != NULL, "the server is not there");
    freeReplyObject(redisCommand(context, "CLIENT KILL TYPE normal SKIPME yes"));
    redisFree(context);
}

static void server_stop(struct contract *contract)
{
    (void)contract;
    world_control("valkey", "kill");
}

static void server_start(struct contract *contract)
{
    (void)contract;
    world_control("valkey", "start");
}

static void server_pause(struct contract *contract)
{
    (void)contract;
    world_control("valkey", "pause");
}

static void server_resume(struct contract *contract)
{
    (void)contract;
    world_control("valkey", "resume");
}

const struct world world_valkey = {.sink = "valkey",
                                   .make = make,
                                   .unmake = unmake,
                                   .cut = cut,
                                   .server_stop = server_stop,
                                   .server_start = server_start,
                                   .server_pause = server_pause,
                                   .server_resume = server_resume};

/* world_valkey.c: a fresh stream on a real server, named by SLUICE_TEST_VALKEY_URL, whose starter
 * can be asked to kill and start it (SLUICE_TEST_VALKEY_CONTROL). */
#include "contract.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "valkey_server.h"

static void set_option(struct contract *contract, const char *name, const char *text)
{
    struct err err = {0};
    int rc = options_set(contract->options, name, text, "the contract suite", &err);
    expect(rc == 0, "%s", err.text);
}

static void make(struct contract *contract)
{
    const char *url = valkey_server_url();
    if (!url) {
        contract_skip("no server: set SLUICE_TEST_VALKEY_URL, or run it below "
                      "`sluice with valkey --`");
    }
    char *stream = xasprintf("sluice:test:%d:%lld", (int)getpid(), (long long)clock_mono_ns());
    set_option(contract, "sink-url", url);
    set_option(contract, "valkey-stream", stream);
    free(stream);
    struct err err = {0};
    int rc = contract->driver->setup(contract->options, &err);
    expect(rc == 0, "setup: %d: %s", rc, err.text);
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

static void tell(const char *order)
{
    struct err err = {0};
    int rc = valkey_server_control(order, &err);
    if (rc == -ENOENT) {
        contract_skip(err.text);
    }
    expect(rc == 0, "%s: %s", order, err.text);
}

static void server_stop(struct contract *contract)
{
    (void)contract;
    tell("kill");
}

static void server_start(struct contract *contract)
{
    (void)contract;
    tell("start");
}

const struct world world_valkey = {.sink = "valkey",
                                   .make = make,
                                   .unmake = unmake,
                                   .cut = cut,
                                   .server_stop = server_stop,
                                   .server_start = server_start};

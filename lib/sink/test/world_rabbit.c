/* world_rabbit.c: a queue of its own for each case, on the server of SLUICE_TEST_RABBIT_URL. The
 * server is stopped and started through SLUICE_TEST_RABBIT_CONTROL, a socket of `sluice with`. */
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "server_control.h"
#include "sink/sink_rabbit_target.h"
#include "worlds.h"

enum { DESCRIPTORS_MAX = 1024 };

static int server_port;

static void make(struct contract *contract)
{
    const char *url = server_url("rabbit");
    if (!url) {
        contract_skip("no server: set SLUICE_TEST_RABBIT_URL, or run it below "
                      "`sluice with rabbit --`");
    }
    char queue[64];
    snprintf(queue, sizeof(queue), "sluice-contract-%d-%lld", getpid(), (long long)clock_wall_us());
    world_set_option(contract, "sink-url", url);
    world_set_option(contract, "rabbit-queue", queue);
    struct rabbit_target target;
    struct err err = {0};
    expect(rabbit_target_read(&target, contract->options, &err) == 0, "%s", err.text);
    server_port = target.port;
    rabbit_target_free(&target);
    world_run_setup(contract);
}

static void unmake(struct contract *contract)
{
    contract->driver->remove(contract->options, NULL); /* best effort: its server may be gone */
}

/* From this side, since the server has no command for it that AMQP could give. */
static void cut(struct contract *contract)
{
    (void)contract;
    for (int fd = 3; fd < DESCRIPTORS_MAX; fd++) {
        struct sockaddr_storage peer = {0};
        socklen_t len = sizeof(peer);
        if (getpeername(fd, (struct sockaddr *)&peer, &len) < 0) {
            continue;
        }
        int port = peer.ss_family == AF_INET ? ntohs(((const struct sockaddr_in *)&peer)->sin_port)
                   : peer.ss_family == AF_INET6
                       ? ntohs(((const struct sockaddr_in6 *)&peer)->sin6_port)
                       : 0;
        if (port == server_port) {
            shutdown(fd, SHUT_RDWR);
        }
    }
}

static void server_stop(struct contract *contract)
{
    (void)contract;
    world_control("rabbit", "kill");
}

static void server_start(struct contract *contract)
{
    (void)contract;
    world_control("rabbit", "start");
}

static void server_pause(struct contract *contract)
{
    (void)contract;
    world_control("rabbit", "pause");
}

static void server_resume(struct contract *contract)
{
    (void)contract;
    world_control("rabbit", "resume");
}

const struct world world_rabbit = {
    .sink = "rabbit",
    .make = make,
    .unmake = unmake,
    .cut = cut,
    .server_stop = server_stop,
    .server_start = server_start,
    .server_pause = server_pause,
    .server_resume = server_resume,
};

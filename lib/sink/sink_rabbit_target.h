/* sink_rabbit_target.h: which RabbitMQ server and queue, and as whom: what the settings of the sink
 * `rabbit` come to. Read-only once filled, then any thread may read it. */
#ifndef SLUICE_SINK_SINK_RABBIT_TARGET_H
#define SLUICE_SINK_SINK_RABBIT_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/options.h"

struct rabbit_target {
    char *where; /* "amqp://host:port/vhost" for messages: no user, no password */
    char *host, *user, *password, *vhost, *queue;
    char *ca_file; /* NULL: the system's */
    int port;
    bool tls;
    bool verify_peer;
    unsigned heartbeat_s;
    int64_t connect_ns; /* from the start of connecting until it may be used */
    int64_t confirm_ns; /* a task without an answer after that is given up */
    unsigned window;    /* most unconfirmed messages on a connection */
    unsigned connections;
};

/* -EINVAL: --sink-url is missing or is no AMQP URL, or another setting is wrong. */
int rabbit_target_read(struct rabbit_target *target, const struct options *options,
                       struct err *err);
void rabbit_target_free(struct rabbit_target *target); /* wipes the password */

#endif

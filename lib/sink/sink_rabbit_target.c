#include "sink/sink_rabbit_target.h"
#include "sink/rabbitmq_c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"

enum { WINDOW_DEFAULT = 100, NAME_MAX_BYTES = 200, CREDENTIAL_MAX_BYTES = 255 };

static int read_url(struct rabbit_target *target, const char *url, struct err *err)
{
    struct amqp_connection_info info;
    char shown[256];
    char *copy = xstrdup(url); /* the parser cuts it up */
    size_t copy_bytes = strlen(copy);
    int rc = 0;
    amqp_default_connection_info(&info);
    if (amqp_parse_url(copy, &info) != AMQP_STATUS_OK) {
        rc = err_set(err, -EINVAL,
                     "--sink-url=%s is no AMQP URL; wanted: amqp://USER:PASSWORD@HOST:PORT/VHOST, "
                     "or amqps:// for TLS (as environment variable or @FILE)",
                     url_redact(url, shown, sizeof(shown)));
    } else if (strlen(info.user) > CREDENTIAL_MAX_BYTES ||
               strlen(info.password) > CREDENTIAL_MAX_BYTES || strlen(info.vhost) > 255 ||
               info.host[0] == '\0') {
        rc = err_set(err, -EINVAL,
                     "--sink-url: host is empty, or user, password or virtual host are longer "
                     "than 255 bytes");
    } else {
        target->host = xstrdup(info.host);
        target->user = xstrdup(info.user);
        target->password = xstrdup(info.password);
        target->vhost = xstrdup(info.vhost);
        target->port = info.port;
        target->tls = info.ssl;
        target->where = xasprintf("%s://%s:%d%s%s", info.ssl ? "amqps" : "amqp", info.host,
                                  info.port, info.vhost[0] == '/' ? "" : "/", info.vhost);
    }
    explicit_bzero(copy, copy_bytes);
    free(copy);
    return rc;
}

static int read_queue(struct rabbit_target *target, const char *queue, struct err *err)
{
    /* Only names with our prefix are made and removed on somebody else's server. */
    if (strncmp(queue, "sluice", strlen("sluice")) != 0 || strlen(queue) > NAME_MAX_BYTES) {
        return err_set(err, -EINVAL,
                       "--rabbit-queue=%s: the name must begin with sluice and have at most %d "
                       "bytes",
                       queue, NAME_MAX_BYTES);
    }
    target->queue = xstrdup(queue);
    return 0;
}

int rabbit_target_read(struct rabbit_target *target, const struct options *options, struct err *err)
{
    *target = (struct rabbit_target){0};
    const char *url = options_string(options, "sink-url");
    if (!url || !*url) {
        return err_set(err, -EINVAL,
                       "the sink rabbit needs a server: set SLUICE_SINK_URL=amqp://USER:PASSWORD@"
                       "HOST:PORT/VHOST, or --sink-url=@FILE");
    }
    int rc = read_url(target, url, err);
    if (rc == 0) {
        rc = read_queue(target, options_string(options, "rabbit-queue"), err);
    }
    if (rc < 0) {
        rabbit_target_free(target);
        return rc;
    }
    const char *ca_file = options_string(options, "rabbit-tls-ca");
    target->ca_file = ca_file && *ca_file ? xstrdup(ca_file) : NULL;
    target->verify_peer = options_bool(options, "rabbit-tls-verify");
    target->heartbeat_s = (unsigned)(options_duration_ns(options, "rabbit-heartbeat") / NS_PER_S);
    target->connect_ns = options_duration_ns(options, "rabbit-connect-timeout");
    target->confirm_ns = options_duration_ns(options, "rabbit-confirm-timeout");
    target->window = (unsigned)options_int(options, "sink-batch-max");
    target->window = target->window > 0 ? target->window : WINDOW_DEFAULT;
    target->connections = (unsigned)options_int(options, "sink-connections");
    target->connections = target->connections > 0 ? target->connections : 1;
    return 0;
}

void rabbit_target_free(struct rabbit_target *target)
{
    if (target->password) {
        explicit_bzero(target->password, strlen(target->password));
    }
    free(target->where);
    free(target->host);
    free(target->user);
    free(target->password);
    free(target->vhost);
    free(target->queue);
    free(target->ca_file);
    *target = (struct rabbit_target){0};
}

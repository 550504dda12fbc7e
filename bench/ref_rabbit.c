/* ref_rabbit: the yardstick of the sink `rabbit`: publishes to a quorum queue as directly as
 * rabbitmq-c allows, with confirms and W messages unconfirmed.
 *
 *   SLUICE_SINK_URL=amqp://... ref_rabbit [W=100 [SECONDS=2 [BYTES=570]]]
 *
 * It waits without a limit and trusts its server: what a driver must not do. Prints "name value"
 * lines as flat_sink does, and removes its queue. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "sink/rabbitmq_c.h"

enum { CHANNEL = 1, EXIT_UNUSABLE = 3 };

#define QUEUE "sluice-reference"

struct reference {
    amqp_connection_state_t connection;
    uint64_t next_tag, confirmed_to; /* tags below confirmed_to are confirmed */
    uint64_t out_of_order;           /* confirmed beyond it, one by one */
};

static void expect_reply(amqp_connection_state_t connection, const char *what)
{
    amqp_rpc_reply_t reply = amqp_get_rpc_reply(connection);
    if (reply.reply_type != AMQP_RESPONSE_NORMAL) {
        fprintf(stderr, "ref_rabbit: %s failed (%s)\n", what,
                reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION
                    ? amqp_error_string2(reply.library_error)
                    : "the server refuses");
        exit(EXIT_UNUSABLE);
    }
}

static void open_connection(struct reference *reference, const char *url)
{
    struct amqp_connection_info info;
    char *copy = xstrdup(url);
    amqp_default_connection_info(&info);
    if (amqp_parse_url(copy, &info) != AMQP_STATUS_OK || info.ssl) {
        fprintf(stderr, "ref_rabbit: SLUICE_SINK_URL is no amqp:// URL\n");
        exit(2);
    }
    amqp_connection_state_t connection = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(connection);
    if (!socket || amqp_socket_open(socket, info.host, info.port) != AMQP_STATUS_OK) {
        fprintf(stderr, "ref_rabbit: cannot connect to %s:%d\n", info.host, info.port);
        exit(EXIT_UNUSABLE);
    }
    amqp_rpc_reply_t login = amqp_login(connection, info.vhost, 0, 131072, 0,
                                        AMQP_SASL_METHOD_PLAIN, info.user, info.password);
    if (login.reply_type != AMQP_RESPONSE_NORMAL) {
        fprintf(stderr, "ref_rabbit: the login is refused\n");
        exit(EXIT_UNUSABLE);
    }
    free(copy);
    reference->connection = connection;
}

static void make_queue(struct reference *reference)
{
    amqp_table_entry_t entries[2] = {{.key = amqp_cstring_bytes("x-queue-type")},
                                     {.key = amqp_cstring_bytes("x-overflow")}};
    entries[0].value.kind = entries[1].value.kind = AMQP_FIELD_KIND_UTF8;
    entries[0].value.value.bytes = amqp_cstring_bytes("quorum");
    entries[1].value.value.bytes = amqp_cstring_bytes("reject-publish");
    amqp_table_t arguments = {.num_entries = 2, .entries = entries};
    amqp_channel_open(reference->connection, CHANNEL);
    expect_reply(reference->connection, "opening a channel");
    amqp_queue_declare(reference->connection, CHANNEL, amqp_cstring_bytes(QUEUE), 0, 1, 0, 0,
                       arguments);
    expect_reply(reference->connection, "declaring the queue");
    amqp_confirm_select(reference->connection, CHANNEL);
    expect_reply(reference->connection, "asking for confirms");
    reference->next_tag = reference->confirmed_to = 1;
}

static void publish(struct reference *reference, amqp_bytes_t body)
{
    /* A task's three parts, as the driver sends them: id, time, body. */
    amqp_table_entry_t accepted = {.key = amqp_cstring_bytes("accepted_us")};
    accepted.value.kind = AMQP_FIELD_KIND_I64;
    accepted.value.value.i64 = clock_wall_us();
    char id[37];
    snprintf(id, sizeof(id), "00000000-0000-8000-8000-%012llu",
             (unsigned long long)reference->next_tag);
    amqp_basic_properties_t properties = {
        ._flags =
            AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_HEADERS_FLAG,
        .delivery_mode = AMQP_DELIVERY_PERSISTENT,
        .message_id = amqp_cstring_bytes(id),
        .headers = {.num_entries = 1, .entries = &accepted},
    };
    int rc = amqp_basic_publish(reference->connection, CHANNEL, amqp_empty_bytes,
                                amqp_cstring_bytes(QUEUE), 1, 0, &properties, body);
    if (rc != AMQP_STATUS_OK) {
        fprintf(stderr, "ref_rabbit: publish: %s\n", amqp_error_string2(rc));
        exit(EXIT_UNUSABLE);
    }
    reference->next_tag++;
}

/* Takes the confirms that are there; waits for one when the window is full. */
static void take_confirms(struct reference *reference, bool wait)
{
    struct timeval none = {0}, *timeout = wait ? NULL : &none;
    amqp_frame_t frame;
    while (amqp_simple_wait_frame_noblock(reference->connection, &frame, timeout) ==
           AMQP_STATUS_OK) {
        if (frame.frame_type != AMQP_FRAME_METHOD ||
            frame.payload.method.id != AMQP_BASIC_ACK_METHOD) {
            fprintf(stderr, "ref_rabbit: something else than a confirm came\n");
            exit(EXIT_UNUSABLE);
        }
        const amqp_basic_ack_t *ack = frame.payload.method.decoded;
        if (ack->multiple) {
            reference->confirmed_to = ack->delivery_tag + 1;
            reference->out_of_order = 0;
        } else if (ack->delivery_tag == reference->confirmed_to) {
            reference->confirmed_to++;
        } else {
            reference->out_of_order++;
        }
        amqp_maybe_release_buffers(reference->connection);
        timeout = &none;
    }
}

static uint64_t unconfirmed(const struct reference *reference)
{
    return reference->next_tag - reference->confirmed_to - reference->out_of_order;
}

int main(int argc, char *argv[])
{
    const char *url = getenv("SLUICE_SINK_URL");
    uint64_t window = argc > 1 ? strtoull(argv[1], NULL, 10) : 100;
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 2;
    size_t bytes = argc > 3 ? strtoull(argv[3], NULL, 10) : 570;
    if (!url || window == 0 || seconds <= 0 || bytes == 0) {
        fprintf(stderr, "usage: SLUICE_SINK_URL=amqp://... ref_rabbit [W [SECONDS [BYTES]]]\n");
        return 2;
    }
    struct reference reference = {0};
    char *text = xmalloc(bytes);
    memset(text, 'r', bytes);
    amqp_bytes_t body = {.len = bytes, .bytes = text};
    open_connection(&reference, url);
    make_queue(&reference);
    int64_t start_ns = clock_mono_ns();
    int64_t end_ns = start_ns + (int64_t)(seconds * 1e9);
    while (clock_mono_ns() < end_ns) {
        while (unconfirmed(&reference) < window) {
            publish(&reference, body);
        }
        take_confirms(&reference, true);
    }
    double took = (double)(clock_mono_ns() - start_ns) / 1e9;
    uint64_t confirmed = reference.next_tag - 1 - unconfirmed(&reference);
    while (unconfirmed(&reference) > 0) {
        take_confirms(&reference, true);
    }
    printf("rate %.0f\n", (double)confirmed / took);
    amqp_queue_delete(reference.connection, CHANNEL, amqp_cstring_bytes(QUEUE), 0, 0);
    amqp_connection_close(reference.connection, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(reference.connection);
    free(text);
    return 0;
}

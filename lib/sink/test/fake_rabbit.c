#include "fake_rabbit.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "sink/sink_rabbit_queue.h"

enum { CONNECTIONS_MAX = 16, PUBLISHED_MAX = 4096, METHODS_MAX = 64, CHANNELS = 4 };

struct connection {
    int fd; /* -1: none */
    amqp_connection_state_t codec;
    /* Of the message that is coming in. */
    bool mandatory;
    uint64_t missing;
    struct fake_published message;
};

struct fake_rabbit {
    pthread_t thread;
    pthread_mutex_t mutex; /* all of what follows */
    int listen_fd, port;
    int wake[2];
    bool ending, mute, deaf, queue_lost;
    unsigned heartbeat_s;
    uint32_t messages, consumers;
    struct buf greeting;
    unsigned refuse_code;
    char refuse_text[64];
    struct connection connections[CONNECTIONS_MAX];
    int current; /* -1: none */
    unsigned accepted, declares;
    struct {
        amqp_method_number_t id;
        unsigned count;
    } methods[METHODS_MAX];
    struct fake_published published[PUBLISHED_MAX];
    size_t published_count;
    uint64_t last_tag;
};

/* ---- writing, the mutex held ---- */

static void put16(char *at, unsigned value)
{
    at[0] = (char)(value >> 8);
    at[1] = (char)value;
}

static void put32(char *at, uint32_t value)
{
    put16(at, value >> 16);
    put16(at + 2, value & 0xffff);
}

static void add_frame(struct buf *out, uint8_t type, amqp_channel_t channel, const void *payload,
                      size_t len)
{
    char head[7];
    head[0] = (char)type;
    put16(head + 1, channel);
    put32(head + 3, (uint32_t)len);
    buf_append(out, head, sizeof(head));
    buf_append(out, payload, len);
    buf_putc(out, (char)AMQP_FRAME_END);
}

static void add_method(struct buf *out, amqp_channel_t channel, amqp_method_number_t id,
                       void *decoded)
{
    char payload[1024];
    put32(payload, id);
    int len = amqp_encode_method(id, decoded,
                                 (amqp_bytes_t){.len = sizeof(payload) - 4, .bytes = payload + 4});
    assert(len >= 0);
    add_frame(out, AMQP_FRAME_METHOD, channel, payload, (size_t)len + 4);
}

static void send_all(int fd, const char *bytes, size_t len, size_t at_once)
{
    while (len > 0) {
        ssize_t sent = send(fd, bytes, len < at_once ? len : at_once, MSG_NOSIGNAL);
        if (sent <= 0) {
            return;
        }
        bytes += sent;
        len -= (size_t)sent;
    }
}

static void reply(struct connection *connection, amqp_channel_t channel, amqp_method_number_t id,
                  void *decoded)
{
    struct buf out = {0};
    add_method(&out, channel, id, decoded);
    send_all(connection->fd, out.data, out.len, SIZE_MAX);
    buf_free(&out);
}

/* ---- answering ---- */

static void send_start(struct connection *connection)
{
    amqp_table_entry_t version = {.key = amqp_cstring_bytes("version")};
    version.value.kind = AMQP_FIELD_KIND_UTF8;
    version.value.value.bytes = amqp_cstring_bytes("3.10.8");
    amqp_connection_start_t start = {
        .version_major = 0,
        .version_minor = 9,
        .server_properties = {.num_entries = 1, .entries = &version},
        .mechanisms = amqp_cstring_bytes("AMQPLAIN PLAIN"),
        .locales = amqp_cstring_bytes("en_US"),
    };
    reply(connection, 0, AMQP_CONNECTION_START_METHOD, &start);
}

static void on_login(struct fake_rabbit *fake, struct connection *connection)
{
    if (fake->refuse_code > 0) {
        amqp_connection_close_t closed = {.reply_code = (uint16_t)fake->refuse_code,
                                          .reply_text = amqp_cstring_bytes(fake->refuse_text)};
        reply(connection, 0, AMQP_CONNECTION_CLOSE_METHOD, &closed);
        return;
    }
    amqp_connection_tune_t tune = {
        .channel_max = 2047, .frame_max = 131072, .heartbeat = (uint16_t)fake->heartbeat_s};
    reply(connection, 0, AMQP_CONNECTION_TUNE_METHOD, &tune);
}

static void on_declare(struct fake_rabbit *fake, struct connection *connection,
                       amqp_channel_t channel, const amqp_queue_declare_t *declare)
{
    bool counts = memmem(declare->queue.bytes, declare->queue.len, ".held-", 6) != NULL;
    if (!counts && declare->passive && fake->queue_lost) {
        amqp_channel_close_t closed = {.reply_code = AMQP_NOT_FOUND,
                                       .reply_text = amqp_cstring_bytes("NOT_FOUND - no queue")};
        reply(connection, channel, AMQP_CHANNEL_CLOSE_METHOD, &closed);
        return;
    }
    if (!counts && !declare->passive) {
        fake->declares++;
        fake->queue_lost = false;
    }
    if (!declare->nowait) {
        amqp_queue_declare_ok_t ok = {.queue = declare->queue,
                                      .message_count = counts ? 0 : fake->messages,
                                      .consumer_count = counts ? 0 : fake->consumers};
        reply(connection, channel, AMQP_QUEUE_DECLARE_OK_METHOD, &ok);
    }
}

static void count_method(struct fake_rabbit *fake, amqp_method_number_t id)
{
    for (size_t i = 0; i < METHODS_MAX; i++) {
        if (fake->methods[i].id == id || fake->methods[i].id == 0) {
            fake->methods[i].id = id;
            fake->methods[i].count++;
            return;
        }
    }
}

static void answer(struct fake_rabbit *fake, struct connection *connection,
                   const amqp_frame_t *frame)
{
    const void *decoded = frame->payload.method.decoded;
    amqp_channel_t channel = frame->channel;
    union {
        amqp_connection_open_ok_t open;
        amqp_channel_open_ok_t channel_open;
        amqp_confirm_select_ok_t select;
        amqp_basic_qos_ok_t qos;
        amqp_basic_consume_ok_t consume;
        amqp_basic_cancel_ok_t cancel;
        amqp_connection_close_ok_t close;
    } ok;
    memset(&ok, 0, sizeof(ok));
    count_method(fake, frame->payload.method.id);
    switch (frame->payload.method.id) {
    case AMQP_CONNECTION_START_OK_METHOD:
        on_login(fake, connection);
        break;
    case AMQP_CONNECTION_OPEN_METHOD:
        reply(connection, 0, AMQP_CONNECTION_OPEN_OK_METHOD, &ok.open);
        break;
    case AMQP_CONNECTION_CLOSE_METHOD:
        reply(connection, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &ok.close);
        break;
    case AMQP_CHANNEL_OPEN_METHOD:
        reply(connection, channel, AMQP_CHANNEL_OPEN_OK_METHOD, &ok.channel_open);
        break;
    case AMQP_CONFIRM_SELECT_METHOD:
        reply(connection, channel, AMQP_CONFIRM_SELECT_OK_METHOD, &ok.select);
        break;
    case AMQP_QUEUE_DECLARE_METHOD:
        on_declare(fake, connection, channel, decoded);
        break;
    case AMQP_BASIC_QOS_METHOD:
        reply(connection, channel, AMQP_BASIC_QOS_OK_METHOD, &ok.qos);
        break;
    case AMQP_BASIC_CONSUME_METHOD: {
        const amqp_basic_consume_t *consume = decoded;
        ok.consume.consumer_tag = consume->consumer_tag;
        if (!consume->nowait) {
            reply(connection, channel, AMQP_BASIC_CONSUME_OK_METHOD, &ok.consume);
        }
        break;
    }
    case AMQP_BASIC_CANCEL_METHOD: {
        const amqp_basic_cancel_t *cancel = decoded;
        ok.cancel.consumer_tag = cancel->consumer_tag;
        if (!cancel->nowait) {
            reply(connection, channel, AMQP_BASIC_CANCEL_OK_METHOD, &ok.cancel);
        }
        break;
    }
    case AMQP_BASIC_ACK_METHOD: {
        const amqp_basic_ack_t *ack = decoded;
        fake->last_tag = ack->delivery_tag | (uint64_t)(ack->multiple != 0) << 63;
        break;
    }
    case AMQP_BASIC_NACK_METHOD: {
        const amqp_basic_nack_t *nack = decoded;
        fake->last_tag = nack->delivery_tag | (uint64_t)(nack->multiple != 0) << 63;
        break;
    }
    case AMQP_BASIC_REJECT_METHOD:
        fake->last_tag = ((const amqp_basic_reject_t *)decoded)->delivery_tag;
        break;
    case AMQP_BASIC_PUBLISH_METHOD:
        connection->mandatory = ((const amqp_basic_publish_t *)decoded)->mandatory;
        break;
    default:
        break;
    }
}

static void finish_message(struct fake_rabbit *fake, struct connection *connection)
{
    assert(fake->published_count < PUBLISHED_MAX);
    fake->published[fake->published_count++] = connection->message;
}

static void on_frame(struct fake_rabbit *fake, struct connection *connection,
                     const amqp_frame_t *frame)
{
    if (frame->frame_type == 'A') {
        send_start(connection);
    } else if (frame->frame_type == AMQP_FRAME_METHOD) {
        answer(fake, connection, frame);
        if (frame->payload.method.id == AMQP_CONNECTION_TUNE_OK_METHOD) {
            amqp_tune_connection(connection->codec, 16, 131072, 0);
        }
    } else if (frame->frame_type == AMQP_FRAME_HEADER) {
        const amqp_basic_properties_t *properties = frame->payload.properties.decoded;
        struct fake_published *message = &connection->message;
        *message = (struct fake_published){
            .mandatory = connection->mandatory,
            .persistent = (properties->_flags & AMQP_BASIC_DELIVERY_MODE_FLAG) &&
                          properties->delivery_mode == 2,
            .body_bytes = (size_t)frame->payload.properties.body_size,
        };
        rabbit_properties_read(properties, message->id, &message->accepted_us);
        connection->missing = message->body_bytes;
        if (connection->missing == 0) {
            finish_message(fake, connection);
        }
    } else if (frame->frame_type == AMQP_FRAME_BODY) {
        connection->missing -= frame->payload.body_fragment.len;
        if (connection->missing == 0) {
            finish_message(fake, connection);
        }
    }
}

/* ---- the thread ---- */

static void drop(struct fake_rabbit *fake, struct connection *connection)
{
    if (connection->fd >= 0) {
        close(connection->fd);
        connection->fd = -1;
        amqp_destroy_connection(connection->codec);
        if (fake->current == (int)(connection - fake->connections)) {
            fake->current = -1;
        }
    }
}

static void take(struct fake_rabbit *fake, struct connection *connection)
{
    char bytes[65536];
    ssize_t got = recv(connection->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got <= 0) {
        if (got == 0 || errno != EAGAIN) {
            drop(fake, connection);
        }
        return;
    }
    if (fake->mute || fake->greeting.len > 0) {
        return;
    }
    amqp_bytes_t rest = {.len = (size_t)got, .bytes = bytes};
    while (rest.len > 0 && connection->fd >= 0) {
        amqp_frame_t frame;
        int used = amqp_handle_input(connection->codec, rest, &frame);
        assert(used >= 0); /* what the driver sends is AMQP */
        rest.bytes = (char *)rest.bytes + used;
        rest.len -= (size_t)used;
        if (frame.frame_type != 0) {
            on_frame(fake, connection, &frame);
            amqp_maybe_release_buffers_on_channel(connection->codec, frame.channel);
        }
    }
}

static void accept_one(struct fake_rabbit *fake)
{
    const int on = 1;
    int fd = accept4(fake->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    for (int i = 0; fd >= 0 && i < CONNECTIONS_MAX; i++) {
        struct connection *connection = &fake->connections[i];
        if (connection->fd < 0) {
            *connection = (struct connection){.fd = fd, .codec = amqp_new_connection()};
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
            fake->current = i;
            fake->accepted++;
            if (fake->greeting.len > 0) {
                send_all(fd, fake->greeting.data, fake->greeting.len, SIZE_MAX);
            }
            return;
        }
    }
    assert(fd < 0);
}

static void *serve(void *arg)
{
    struct fake_rabbit *fake = arg;
    for (;;) {
        struct pollfd polled[CONNECTIONS_MAX + 2] = {{.fd = fake->wake[0], .events = POLLIN},
                                                     {.fd = fake->listen_fd, .events = POLLIN}};
        pthread_mutex_lock(&fake->mutex);
        for (int i = 0; i < CONNECTIONS_MAX; i++) {
            polled[i + 2] =
                (struct pollfd){.fd = fake->deaf ? -1 : fake->connections[i].fd, .events = POLLIN};
        }
        pthread_mutex_unlock(&fake->mutex);
        poll(polled, CONNECTIONS_MAX + 2, -1);
        pthread_mutex_lock(&fake->mutex);
        if (polled[0].revents) {
            char byte;
            (void)!read(fake->wake[0], &byte, 1);
        }
        if (fake->ending) {
            pthread_mutex_unlock(&fake->mutex);
            return NULL;
        }
        for (int i = 0; i < CONNECTIONS_MAX; i++) {
            if (polled[i + 2].revents && polled[i + 2].fd == fake->connections[i].fd &&
                !fake->deaf) {
                take(fake, &fake->connections[i]);
            }
        }
        if (polled[1].revents) {
            accept_one(fake);
        }
        pthread_mutex_unlock(&fake->mutex);
    }
}

static void wake(struct fake_rabbit *fake)
{
    (void)!write(fake->wake[1], "!", 1);
}

/* ---- what tests call ---- */

struct fake_rabbit *fake_start(void)
{
    struct fake_rabbit *fake = xcalloc(1, sizeof(*fake));
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(address);
    pthread_mutex_init(&fake->mutex, NULL);
    fake->current = -1;
    fake->heartbeat_s = 60;
    for (int i = 0; i < CONNECTIONS_MAX; i++) {
        fake->connections[i].fd = -1;
    }
    fake->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool listens = bind(fake->listen_fd, (struct sockaddr *)&address, len) == 0 &&
                   listen(fake->listen_fd, 16) == 0 &&
                   getsockname(fake->listen_fd, (struct sockaddr *)&address, &len) == 0 &&
                   pipe(fake->wake) == 0;
    assert(listens);
    fake->port = ntohs(address.sin_port);
    int rc = pthread_create(&fake->thread, NULL, serve, fake);
    assert(rc == 0);
    return fake;
}

void fake_stop(struct fake_rabbit *fake)
{
    pthread_mutex_lock(&fake->mutex);
    fake->ending = true;
    pthread_mutex_unlock(&fake->mutex);
    wake(fake);
    pthread_join(fake->thread, NULL);
    for (int i = 0; i < CONNECTIONS_MAX; i++) {
        drop(fake, &fake->connections[i]);
    }
    close(fake->listen_fd);
    close(fake->wake[0]);
    close(fake->wake[1]);
    pthread_mutex_destroy(&fake->mutex);
    buf_free(&fake->greeting);
    free(fake);
}

int fake_port(const struct fake_rabbit *fake)
{
    return fake->port;
}

void fake_be_mute(struct fake_rabbit *fake, bool mute)
{
    pthread_mutex_lock(&fake->mutex);
    fake->mute = mute;
    pthread_mutex_unlock(&fake->mutex);
}

void fake_be_deaf(struct fake_rabbit *fake, bool deaf)
{
    pthread_mutex_lock(&fake->mutex);
    fake->deaf = deaf;
    pthread_mutex_unlock(&fake->mutex);
    wake(fake);
}

void fake_greet(struct fake_rabbit *fake, const char *bytes, size_t len)
{
    pthread_mutex_lock(&fake->mutex);
    buf_clear(&fake->greeting);
    buf_append(&fake->greeting, bytes, len);
    pthread_mutex_unlock(&fake->mutex);
}

void fake_refuse_login(struct fake_rabbit *fake, unsigned code, const char *text)
{
    pthread_mutex_lock(&fake->mutex);
    fake->refuse_code = code;
    snprintf(fake->refuse_text, sizeof(fake->refuse_text), "%s", text);
    pthread_mutex_unlock(&fake->mutex);
}

void fake_set_heartbeat(struct fake_rabbit *fake, unsigned seconds)
{
    pthread_mutex_lock(&fake->mutex);
    fake->heartbeat_s = seconds;
    pthread_mutex_unlock(&fake->mutex);
}

void fake_set_queue(struct fake_rabbit *fake, uint32_t messages, uint32_t consumers)
{
    pthread_mutex_lock(&fake->mutex);
    fake->messages = messages;
    fake->consumers = consumers;
    pthread_mutex_unlock(&fake->mutex);
}

void fake_lose_queue(struct fake_rabbit *fake)
{
    pthread_mutex_lock(&fake->mutex);
    fake->queue_lost = true;
    pthread_mutex_unlock(&fake->mutex);
}

unsigned fake_connections(struct fake_rabbit *fake)
{
    pthread_mutex_lock(&fake->mutex);
    unsigned accepted = fake->accepted;
    pthread_mutex_unlock(&fake->mutex);
    return accepted;
}

unsigned fake_real_declares(struct fake_rabbit *fake)
{
    pthread_mutex_lock(&fake->mutex);
    unsigned declares = fake->declares;
    pthread_mutex_unlock(&fake->mutex);
    return declares;
}

unsigned fake_count(struct fake_rabbit *fake, amqp_method_number_t id)
{
    unsigned count = 0;
    pthread_mutex_lock(&fake->mutex);
    for (size_t i = 0; i < METHODS_MAX; i++) {
        count += fake->methods[i].id == id ? fake->methods[i].count : 0;
    }
    pthread_mutex_unlock(&fake->mutex);
    return count;
}

size_t fake_published_count(struct fake_rabbit *fake)
{
    pthread_mutex_lock(&fake->mutex);
    size_t count = fake->published_count;
    pthread_mutex_unlock(&fake->mutex);
    return count;
}

struct fake_published fake_published(struct fake_rabbit *fake, size_t index)
{
    pthread_mutex_lock(&fake->mutex);
    assert(index < fake->published_count);
    struct fake_published message = fake->published[index];
    pthread_mutex_unlock(&fake->mutex);
    return message;
}

uint64_t fake_last_tag(struct fake_rabbit *fake)
{
    pthread_mutex_lock(&fake->mutex);
    uint64_t tag = fake->last_tag;
    pthread_mutex_unlock(&fake->mutex);
    return tag;
}

static bool send_chopped(struct fake_rabbit *fake, const char *bytes, size_t len, size_t at_once)
{
    pthread_mutex_lock(&fake->mutex);
    bool there = fake->current >= 0;
    if (there) {
        send_all(fake->connections[fake->current].fd, bytes, len, at_once);
    }
    pthread_mutex_unlock(&fake->mutex);
    return there;
}

bool fake_bytes(struct fake_rabbit *fake, const void *bytes, size_t len)
{
    return send_chopped(fake, bytes, len, SIZE_MAX);
}

bool fake_method(struct fake_rabbit *fake, amqp_channel_t channel, amqp_method_number_t id,
                 void *decoded)
{
    struct buf out = {0};
    add_method(&out, channel, id, decoded);
    bool there = fake_bytes(fake, out.data, out.len);
    buf_free(&out);
    return there;
}

bool fake_confirm(struct fake_rabbit *fake, uint64_t tag, bool multiple)
{
    amqp_basic_ack_t ack = {.delivery_tag = tag, .multiple = multiple};
    return fake_method(fake, 1, AMQP_BASIC_ACK_METHOD, &ack);
}

bool fake_nack(struct fake_rabbit *fake, uint64_t tag, bool multiple)
{
    amqp_basic_nack_t nack = {.delivery_tag = tag, .multiple = multiple};
    return fake_method(fake, 1, AMQP_BASIC_NACK_METHOD, &nack);
}

bool fake_message(struct fake_rabbit *fake, uint64_t tag, const uint8_t id[UUID_BYTES],
                  int64_t accepted_us, const void *body, size_t body_bytes, bool chop)
{
    struct buf out = {0};
    struct rabbit_properties properties;
    char header[512];
    if (tag > 0) {
        amqp_basic_deliver_t deliver = {.consumer_tag = amqp_cstring_bytes("lane-0"),
                                        .delivery_tag = tag,
                                        .redelivered = tag % 2 == 0,
                                        .routing_key = amqp_cstring_bytes("sluice")};
        add_method(&out, 1, AMQP_BASIC_DELIVER_METHOD, &deliver);
    } else {
        amqp_basic_return_t returned = {.reply_code = AMQP_NO_ROUTE,
                                        .reply_text = amqp_cstring_bytes("NO_ROUTE"),
                                        .routing_key = amqp_cstring_bytes("sluice")};
        add_method(&out, 1, AMQP_BASIC_RETURN_METHOD, &returned);
    }
    rabbit_properties_set(&properties, id ? id : (const uint8_t[UUID_BYTES]){0}, accepted_us);
    if (!id) {
        properties.basic = (amqp_basic_properties_t){0}; /* no task */
    }
    put16(header, AMQP_BASIC_CLASS);
    put16(header + 2, 0);
    put32(header + 4, 0);
    put32(header + 8, (uint32_t)body_bytes);
    int len =
        amqp_encode_properties(AMQP_BASIC_CLASS, &properties.basic,
                               (amqp_bytes_t){.len = sizeof(header) - 12, .bytes = header + 12});
    assert(len >= 0);
    add_frame(&out, AMQP_FRAME_HEADER, 1, header, (size_t)len + 12);
    for (size_t at = 0; at < body_bytes;) { /* in two frames, when it has two bytes */
        size_t part = at == 0 && body_bytes > 1 ? body_bytes / 2 : body_bytes - at;
        add_frame(&out, AMQP_FRAME_BODY, 1, (const char *)body + at, part);
        at += part;
    }
    bool there = send_chopped(fake, out.data, out.len, chop ? 1 : SIZE_MAX);
    buf_free(&out);
    return there;
}

void fake_cut(struct fake_rabbit *fake)
{
    pthread_mutex_lock(&fake->mutex);
    if (fake->current >= 0) {
        shutdown(fake->connections[fake->current].fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&fake->mutex);
    wake(fake);
}

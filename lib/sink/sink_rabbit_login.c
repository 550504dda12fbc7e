/* sink_rabbit_login.c: start, tune, open; how a connection or a channel ends; blocked and
 * unblocked. */
#include "sink/sink_rabbit_login.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { FRAME_MAX_BYTES = 131072, CHANNEL_MAX = 16 };

const char *rabbit_method_name(amqp_method_number_t id)
{
    static _Thread_local char text[24];
    const char *name = amqp_method_name(id);
    if (name) {
        return name;
    }
    snprintf(text, sizeof(text), "method 0x%08x", (unsigned)id);
    return text;
}

static const amqp_field_value_t *find(const amqp_table_t *table, const char *key)
{
    for (int i = 0; i < table->num_entries; i++) {
        const amqp_bytes_t *name = &table->entries[i].key;
        if (name->len == strlen(key) && memcmp(name->bytes, key, name->len) == 0) {
            return &table->entries[i].value;
        }
    }
    return NULL;
}

static void read_version(struct rabbit_link *link, const amqp_table_t *properties)
{
    const amqp_field_value_t *value = find(properties, "version");
    int major = 0, minor = 0, patch = 0;
    link->version_text[0] = '\0';
    if (value && (value->kind == AMQP_FIELD_KIND_UTF8 || value->kind == AMQP_FIELD_KIND_BYTES)) {
        snprintf(link->version_text, sizeof(link->version_text), "%.*s",
                 (int)value->value.bytes.len, (const char *)value->value.bytes.bytes);
        for (char *at = link->version_text; *at; at++) {
            *at = *at < 32 || *at > 126 ? '?' : *at;
        }
        if (sscanf(link->version_text, "%3d.%3d.%3d", &major, &minor, &patch) < 2) {
            major = minor = patch = 0;
        }
    }
    link->version = major * 10000 + minor * 100 + patch;
    link->version = link->version > 0 ? link->version : 1; /* known to be unknown */
}

static amqp_table_entry_t text_entry(const char *key, const char *text)
{
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes(key)};
    entry.value.kind = AMQP_FIELD_KIND_UTF8;
    entry.value.value.bytes = amqp_cstring_bytes(text);
    return entry;
}

static amqp_table_entry_t yes_entry(const char *key)
{
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes(key)};
    entry.value.kind = AMQP_FIELD_KIND_BOOLEAN;
    entry.value.value.boolean = 1;
    return entry;
}

static int on_start(struct rabbit_link *link, const amqp_connection_start_t *start)
{
    if (!memmem(start->mechanisms.bytes, start->mechanisms.len, "PLAIN", 5)) {
        return rabbit_link_problem(link, -EPROTONOSUPPORT,
                                   "it takes no login with user and password (PLAIN)");
    }
    read_version(link, &start->server_properties);
    amqp_table_entry_t able[] = {
        yes_entry("publisher_confirms"),
        yes_entry("consumer_cancel_notify"),
        yes_entry("basic.nack"),
        yes_entry("connection.blocked"),
        yes_entry("authentication_failure_close"),
    };
    amqp_table_entry_t capabilities = {.key = amqp_cstring_bytes("capabilities")};
    capabilities.value.kind = AMQP_FIELD_KIND_TABLE;
    capabilities.value.value.table = (amqp_table_t){.num_entries = 5, .entries = able};
    amqp_table_entry_t properties[] = {
        text_entry("product", "sluice"),
        text_entry("version", SLUICE_VERSION),
        text_entry("connection_name", link->name),
        capabilities,
    };
    char response[2 * 255 + 3];
    const struct rabbit_target *target = link->target;
    int len =
        snprintf(response, sizeof(response), "%c%s%c%s", 0, target->user, 0, target->password);
    amqp_connection_start_ok_t ok = {
        .client_properties = {.num_entries = 4, .entries = properties},
        .mechanism = amqp_cstring_bytes("PLAIN"),
        .response = {.len = (size_t)len, .bytes = response},
        .locale = amqp_cstring_bytes("en_US"),
    };
    rabbit_link_method(link, 0, AMQP_CONNECTION_START_OK_METHOD, &ok);
    explicit_bzero(response, sizeof(response));
    return 0;
}

static int on_tune(struct rabbit_link *link, const amqp_connection_tune_t *tune)
{
    unsigned heartbeat_s = link->target->heartbeat_s;
    if (tune->heartbeat > 0 && tune->heartbeat < heartbeat_s) {
        heartbeat_s = tune->heartbeat;
    }
    uint32_t frame_max = tune->frame_max > 0 && tune->frame_max < FRAME_MAX_BYTES ? tune->frame_max
                                                                                  : FRAME_MAX_BYTES;
    if (frame_max < 4096) {
        return rabbit_link_problem(link, -EPROTO, "it wants frames below 4096 bytes");
    }
    uint16_t channel_max =
        tune->channel_max > 0 && tune->channel_max < CHANNEL_MAX ? tune->channel_max : CHANNEL_MAX;
    /* The heartbeat is ours to keep, not the codec's. */
    if (amqp_tune_connection(link->codec, channel_max, (int)frame_max, 0) != AMQP_STATUS_OK) {
        return rabbit_link_problem(link, -ENOMEM, "no memory");
    }
    link->frame_max = frame_max;
    link->heartbeat_s = heartbeat_s;
    amqp_connection_tune_ok_t ok = {
        .channel_max = channel_max, .frame_max = frame_max, .heartbeat = (uint16_t)heartbeat_s};
    rabbit_link_method(link, 0, AMQP_CONNECTION_TUNE_OK_METHOD, &ok);
    amqp_connection_open_t open = {.virtual_host = amqp_cstring_bytes(link->target->vhost)};
    rabbit_link_method(link, 0, AMQP_CONNECTION_OPEN_METHOD, &open);
    return 0;
}

/* The one place where a reply code becomes an errno. */
static int code_of(unsigned reply_code)
{
    switch (reply_code) {
    case AMQP_ACCESS_REFUSED:
        return -EACCES;
    case AMQP_NOT_FOUND:
    case AMQP_NOT_ALLOWED: /* an unknown virtual host */
    case AMQP_INVALID_PATH:
        return -ENOENT;
    case AMQP_PRECONDITION_FAILED:
        return -EEXIST;
    case AMQP_CONNECTION_FORCED:
        return -ECONNRESET;
    case AMQP_RESOURCE_LOCKED:
        return -EAGAIN;
    default:
        return -EPROTO;
    }
}

static int on_close(struct rabbit_link *link, const amqp_connection_close_t *closed)
{
    amqp_connection_close_ok_t ok = {0};
    const char *hint = closed->reply_code == AMQP_ACCESS_REFUSED && link->state != RABBIT_OPEN
                           ? " (check user and password of --sink-url)"
                           : "";
    rabbit_link_method(link, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &ok);
    /* Into problem first: sending the answer may fail and has nothing better to say. */
    int code = rabbit_link_problem(link, code_of(closed->reply_code), "%u %.*s%s",
                                   closed->reply_code, (int)closed->reply_text.len,
                                   (const char *)closed->reply_text.bytes, hint);
    struct err said = link->problem;
    rabbit_link_say(link);
    link->problem = said;
    return code;
}

int rabbit_link_channel_closed(struct rabbit_link *link, const amqp_frame_t *frame)
{
    const amqp_channel_close_t *closed = frame->payload.method.decoded;
    amqp_channel_close_ok_t ok = {0};
    rabbit_link_method(link, frame->channel, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok);
    return rabbit_link_problem(link, code_of(closed->reply_code), "%u %.*s", closed->reply_code,
                               (int)closed->reply_text.len, (const char *)closed->reply_text.bytes);
}

int rabbit_login_frame(struct rabbit_link *link, const amqp_frame_t *frame)
{
    const void *decoded = frame->payload.method.decoded;
    bool in_login = link->state == RABBIT_LOGIN;
    switch (frame->payload.method.id) {
    case AMQP_CONNECTION_START_METHOD:
        if (in_login && link->version == 0) {
            return on_start(link, decoded);
        }
        break;
    case AMQP_CONNECTION_TUNE_METHOD:
        if (in_login && link->version > 0) {
            return on_tune(link, decoded);
        }
        break;
    case AMQP_CONNECTION_OPEN_OK_METHOD:
        if (in_login && link->heartbeat_s > 0) {
            link->state = RABBIT_OPEN;
            return 0;
        }
        break;
    case AMQP_CONNECTION_BLOCKED_METHOD: {
        const amqp_connection_blocked_t *blocked = decoded;
        link->blocked = true;
        snprintf(link->blocked_why, sizeof(link->blocked_why), "%.*s", (int)blocked->reason.len,
                 (const char *)blocked->reason.bytes);
        return 0;
    }
    case AMQP_CONNECTION_UNBLOCKED_METHOD:
        link->blocked = false;
        return 0;
    case AMQP_CONNECTION_CLOSE_METHOD:
        return on_close(link, decoded);
    case AMQP_CONNECTION_CLOSE_OK_METHOD:
        link->ended = true;
        return rabbit_link_problem(link, -ENOTCONN, "closed");
    default:
        break;
    }
    return rabbit_link_problem(link, -EPROTO, "unexpected %s on channel 0",
                               rabbit_method_name(frame->payload.method.id));
}

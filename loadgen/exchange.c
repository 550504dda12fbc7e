#include "exchange.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/options.h"
#include "task/task.h"

const char *outcome_name(enum outcome outcome)
{
    static const char *const names[OUTCOMES] = {"durable", "refused", "unknown", "unsent"};

    return names[outcome];
}

int target_parse(const char *text, struct target *target, struct err *err)
{
    const char *colon = strrchr(text, ':');
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found;
    char host[sizeof(target->host) - 8];
    const char *name = host;
    size_t len = colon ? (size_t)(colon - text) : 0;
    int64_t port;
    int rc;

    if (!colon || len == 0 || len >= sizeof(host) || colon[1] == '\0')
        return err_set(err, -EINVAL, "target \"%s\" must be HOST:PORT, as in 127.0.0.1:8080", text);
    if (option_parse_int(colon + 1, &port, NULL) < 0 || port < 1 || port > UINT16_MAX)
        return err_set(err, -EINVAL, "target \"%s\": the port must be a number from 1 to 65535",
                       text);
    memcpy(host, text, len);
    host[len] = '\0';
    if (host[0] == '[' && host[len - 1] == ']') {
        host[len - 1] = '\0';
        name = host + 1;
    }
    rc = getaddrinfo(name, colon + 1, &hints, &found);
    if (rc != 0)
        return err_set(err, -ENOENT, "target \"%s\" can't be resolved: %s", text, gai_strerror(rc));
    memset(target, 0, sizeof(*target));
    memcpy(&target->address, found->ai_addr, found->ai_addrlen);
    target->address_len = found->ai_addrlen;
    snprintf(target->host, sizeof(target->host), "%s", text);
    freeaddrinfo(found);
    return 0;
}

void request_form_init(struct request_form *form, const struct target *target, const char *path,
                       size_t payload_bytes)
{
    const uint8_t id[UUID_BYTES] = {0};
    struct buf body = {0};

    memset(form, 0, sizeof(*form));
    form->payload_bytes = payload_bytes;
    task_synth_body(id, payload_bytes, &body);
    buf_printf(&form->bytes,
               "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
               "Content-Length: %zu\r\n\r\n",
               path, target->host, body.len);
    form->head_bytes = form->bytes.len;
    buf_free(&body);
}

void request_form_free(struct request_form *form)
{
    buf_free(&form->bytes);
}

void request_form_fill(struct request_form *form, const uint8_t id[UUID_BYTES])
{
    form->bytes.len = form->head_bytes;
    task_synth_body(id, form->payload_bytes, &form->bytes);
}

/* Exactly {"id":"<uuid>"}, with or without the one space: what sluice-api writes. */
static bool plain_id(const char *body, size_t len, const uint8_t id[UUID_BYTES])
{
    static const char start[] = "{\"id\":";
    uint8_t found[UUID_BYTES];
    size_t at = sizeof(start) - 1;

    if (len < at + UUID_TEXT_BYTES + 2 || memcmp(body, start, at) != 0)
        return false;
    at += body[at] == ' ' ? 1 : 0;
    if (len != at + UUID_TEXT_BYTES + 2 || body[at] != '"' || body[len - 2] != '"' ||
        body[len - 1] != '}')
        return false;
    return uuid_parse(body + at + 1, UUID_TEXT_BYTES - 1, found) == 0 &&
           memcmp(found, id, UUID_BYTES) == 0;
}

/* Any JSON object whose only "id" is this one. */
static bool parsed_id(const char *body, size_t len, const uint8_t id[UUID_BYTES])
{
    const cJSON *item, *found = NULL;
    uint8_t parsed[UUID_BYTES];
    unsigned ids = 0;
    bool same;
    cJSON *json;

    if (json_check(body, len, NULL) < 0)
        return false;
    json = cJSON_ParseWithLength(body, len);
    cJSON_ArrayForEach(item, json)
    {
        if (item->string && strcmp(item->string, "id") == 0) {
            found = item;
            ids++;
        }
    }
    same = ids == 1 && cJSON_IsString(found) &&
           uuid_parse(found->valuestring, strlen(found->valuestring), parsed) == 0 &&
           memcmp(parsed, id, UUID_BYTES) == 0;
    cJSON_Delete(json);
    return same;
}

enum outcome exchange_outcome(const struct response *response, const uint8_t id[UUID_BYTES],
                              bool *wrong_id)
{
    int status = response->status;

    *wrong_id = false;
    if (status == 202) {
        if (plain_id(response->body, response->body_bytes, id) ||
            parsed_id(response->body, response->body_bytes, id))
            return OUTCOME_DURABLE;
        *wrong_id = true;
        return OUTCOME_UNKNOWN;
    }
    if (status == 503 || (status >= 400 && status < 500))
        return OUTCOME_REFUSED;
    return OUTCOME_UNKNOWN;
}

#include "task/task.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json.h"

/* cJSON keeps the first of two equal keys and compares them without case, so both are done by hand.
 */
static int find_key(const cJSON *object, const char *key, const cJSON **found, struct err *err)
{
    *found = NULL;
    for (const cJSON *item = object->child; item; item = item->next) {
        if (strcmp(item->string, key) != 0)
            continue;
        if (*found)
            return err_set(err, -EINVAL, "\"%s\" stands there more than once", key);
        *found = item;
    }
    return 0;
}

static int take_id(const cJSON *item, struct task *task, struct err *err)
{
    if (!item) {
        uuid_v7(task->id);
        return 0;
    }
    if (!cJSON_IsString(item) ||
        uuid_parse(item->valuestring, strlen(item->valuestring), task->id) < 0)
        return err_set(err, -EINVAL,
                       "\"id\" must be a UUID as a string of 36 characters, like "
                       "\"0197d0e2-5f5e-7c60-8b8a-0d3c5f1e2a4b\"; leave it out to be given one");
    return 0;
}

int task_parse(const char *body, size_t body_bytes, struct task *task, struct err *err)
{
    int result = json_check(body, body_bytes, err);
    if (result < 0)
        return result;
    cJSON *root = cJSON_ParseWithLength(body, body_bytes);
    if (!root)
        return err_set(err, -EINVAL, "not JSON that can be read");
    const cJSON *id = NULL;
    const cJSON *payload = NULL;
    if (!cJSON_IsObject(root))
        result =
            err_set(err, -EINVAL, "the body must be an object: {\"id\": ..., \"payload\": ...}");
    if (result == 0)
        result = find_key(root, "id", &id, err);
    if (result == 0)
        result = find_key(root, "payload", &payload, err);
    if (result == 0 && !payload)
        result = err_set(err, -EINVAL, "\"payload\" is missing; it may be any JSON value");
    if (result == 0)
        result = take_id(id, task, err);
    cJSON_Delete(root);
    task->body = body;
    task->body_bytes = body_bytes;
    return result;
}

void task_encode_header(const struct task *task, uint8_t header[TASK_HEADER_BYTES])
{
    memcpy(header, task->id, UUID_BYTES);
    uint64_t accepted = (uint64_t)task->accepted_us;
    for (int i = 0; i < 8; i++)
        header[UUID_BYTES + i] = (uint8_t)(accepted >> (8 * i));
}

int task_decode(const void *bytes, size_t len, struct task *task)
{
    if (len < TASK_HEADER_BYTES)
        return -EBADMSG;
    const uint8_t *header = bytes;
    memcpy(task->id, header, UUID_BYTES);
    uint64_t accepted = 0;
    for (int i = 0; i < 8; i++)
        accepted |= (uint64_t)header[UUID_BYTES + i] << (8 * i);
    task->accepted_us = (int64_t)accepted;
    task->body = header + TASK_HEADER_BYTES;
    task->body_bytes = len - TASK_HEADER_BYTES;
    return 0;
}

#include "api/reply.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/buf.h"

struct reply_text {
    unsigned code;
    unsigned retry_after_s; /* 0: no such header */
    const char *error;
    const char *reason;
    const char *detail;
};

static const struct reply_text texts[REPLY_COUNT] = {
    [REPLY_ACCEPTED] = {202, 0, NULL, "accepted", NULL},
    [REPLY_BAD_REQUEST] = {400, 0, "bad request", "bad_request", NULL},
    [REPLY_NOT_FOUND] = {404, 0, "not found", "not_found",
                         "there is only /task here; send POST /task"},
    [REPLY_METHOD] = {405, 0, "method not allowed", "method", "/task takes POST only"},
    [REPLY_TOO_LARGE] = {413, 0, "too large", "too_large",
                         "the body is larger than this server takes (--body-max)"},
    [REPLY_MEDIA_TYPE] = {415, 0, "unsupported media type", "media_type",
                          "send Content-Type: application/json, without a Content-Encoding"},
    [REPLY_IN_FLIGHT_TASKS] = {503, 1, "refused", "in_flight_tasks",
                               "too many tasks are in flight (--in-flight-max); nothing was "
                               "stored, try again"},
    [REPLY_IN_FLIGHT_BYTES] = {503, 1, "refused", "in_flight_bytes",
                               "too many bytes are in flight (--in-flight-bytes-max); nothing was "
                               "stored, try again"},
    [REPLY_BACKLOG_TASKS] = {503, 5, "refused", "backlog_tasks",
                             "too many stored tasks wait for the worker (--backlog-max); nothing "
                             "was stored, try again later"},
    [REPLY_BACKLOG_BYTES] = {503, 5, "refused", "backlog_bytes",
                             "too many stored bytes wait for the worker (--backlog-bytes-max); "
                             "nothing was stored, try again later"},
    [REPLY_SINK_REFUSED] = {503, 5, "refused", "sink_refused",
                            "the sink has refused the task, as when its disk quota is used up; "
                            "nothing was stored, try again later"},
    [REPLY_SINK_BUSY] = {503, 1, "refused", "sink_busy",
                         "the sink takes no task at this moment; nothing was stored, try again"},
    [REPLY_NOT_CONNECTED] = {503, 1, "refused", "not_connected",
                             "the sink is not connected; nothing was stored, try again"},
    [REPLY_SINK_BROKEN] = {503, 30, "refused", "sink_broken",
                           "the sink has failed for good and the server must be restarted; "
                           "nothing was stored"},
    [REPLY_STOPPING] = {503, 1, "refused", "stopping",
                        "the server is shutting down; nothing was stored, try again"},
    [REPLY_UNKNOWN_DEADLINE] = {504, 0, "unknown", "deadline",
                                "the sink did not answer in time, so the task may be stored or "
                                "not; it is safe to send it again with the same id"},
    [REPLY_UNKNOWN_SINK] = {504, 0, "unknown", "sink",
                            "the sink can't tell whether the task is stored; it is safe to send "
                            "it again with the same id"},
};

static struct MHD_Response *fixed[REPLY_COUNT][2]; /* [1]: with "Connection: close" */

unsigned reply_code(enum reply reply)
{
    return texts[reply].code;
}

const char *reply_reason(enum reply reply)
{
    return texts[reply].reason;
}

static bool has_own_text(enum reply reply)
{
    return reply == REPLY_ACCEPTED || reply == REPLY_BAD_REQUEST ||
           reply == REPLY_UNKNOWN_DEADLINE || reply == REPLY_UNKNOWN_SINK;
}

static void add_header(struct MHD_Response *response, const char *name, const char *value)
{
    enum MHD_Result added = MHD_add_response_header(response, name, value);
    assert(added == MHD_YES);
}

static void put_body(struct buf *body, enum reply reply, const char *detail, const uint8_t *id)
{
    const struct reply_text *text = &texts[reply];
    buf_puts(body, "{\"error\":");
    buf_json_string(body, text->error, strlen(text->error));
    buf_printf(body, ",\"reason\":\"%s\"", text->reason);
    if (id) {
        char id_text[UUID_TEXT_BYTES];
        buf_printf(body, ",\"id\":\"%s\"", uuid_format(id, id_text));
    }
    const char *sentence = detail ? detail : text->detail;
    buf_puts(body, ",\"detail\":");
    buf_json_string(body, sentence, strlen(sentence));
    buf_puts(body, "}\n");
}

static struct MHD_Response *build(enum reply reply, const char *detail, const uint8_t *id,
                                  bool close)
{
    const struct reply_text *text = &texts[reply];
    struct buf body = {0};
    put_body(&body, reply, detail, id);
    struct MHD_Response *response =
        MHD_create_response_from_buffer(body.len, body.data, MHD_RESPMEM_MUST_COPY);
    assert(response);
    buf_free(&body);
    add_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
    if (text->code == MHD_HTTP_METHOD_NOT_ALLOWED) {
        add_header(response, MHD_HTTP_HEADER_ALLOW, "POST");
    }
    if (text->retry_after_s > 0) {
        char *seconds = xasprintf("%u", text->retry_after_s);
        add_header(response, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
        free(seconds);
    }
    if (close) {
        add_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    }
    return response;
}

void replies_start(void)
{
    for (enum reply reply = REPLY_ACCEPTED; reply < REPLY_COUNT; reply++) {
        if (!has_own_text(reply) && !fixed[reply][0]) {
            fixed[reply][0] = build(reply, NULL, NULL, false);
            fixed[reply][1] = build(reply, NULL, NULL, true);
        }
    }
}

void replies_stop(void)
{
    for (enum reply reply = REPLY_ACCEPTED; reply < REPLY_COUNT; reply++) {
        for (int close = 0; close < 2; close++) {
            if (fixed[reply][close]) {
                MHD_destroy_response(fixed[reply][close]);
                fixed[reply][close] = NULL;
            }
        }
    }
}

enum MHD_Result reply_queue(struct MHD_Connection *connection, enum reply reply, const char *detail,
                            const uint8_t id[UUID_BYTES], bool close)
{
    assert(reply > REPLY_ACCEPTED && reply < REPLY_COUNT);
    if (fixed[reply][0] && !detail) {
        return MHD_queue_response(connection, texts[reply].code, fixed[reply][close ? 1 : 0]);
    }
    struct MHD_Response *response = build(reply, detail, has_own_text(reply) ? id : NULL, close);
    enum MHD_Result result = MHD_queue_response(connection, texts[reply].code, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result reply_queue_accepted(struct MHD_Connection *connection,
                                     struct reply_accepted *accepted, const uint8_t id[UUID_BYTES],
                                     bool close)
{
    static const char start[] = "{\"id\":\"";
    static const char end[] = "\"}\n";
    size_t bytes = sizeof(start) - 1 + UUID_TEXT_BYTES - 1 + sizeof(end) - 1;
    char *text = accepted->text;
    memcpy(text, start, sizeof(start) - 1);
    uuid_format(id, text + sizeof(start) - 1);
    memcpy(text + bytes - (sizeof(end) - 1), end, sizeof(end));
    if (close) {
        struct MHD_Response *last =
            MHD_create_response_from_buffer(bytes, text, MHD_RESPMEM_MUST_COPY);
        assert(last);
        add_header(last, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
        add_header(last, MHD_HTTP_HEADER_CONNECTION, "close");
        enum MHD_Result result = MHD_queue_response(connection, MHD_HTTP_ACCEPTED, last);
        MHD_destroy_response(last);
        return result;
    }
    if (!accepted->response) {
        accepted->response = MHD_create_response_from_buffer(bytes, text, MHD_RESPMEM_PERSISTENT);
        assert(accepted->response);
        add_header(accepted->response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
    }
    return MHD_queue_response(connection, MHD_HTTP_ACCEPTED, accepted->response);
}

void reply_accepted_free(struct reply_accepted *accepted)
{
    if (accepted->response) {
        MHD_destroy_response(accepted->response);
        accepted->response = NULL;
    }
}

bool reply_write(int fd, enum reply reply, const char *detail)
{
    const struct reply_text *text = &texts[reply];
    struct buf body = {0}, answer = {0};
    char date[64];
    struct tm now;
    time_t seconds = time(NULL);
    put_body(&body, reply, detail, NULL);
    strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&seconds, &now));
    buf_printf(&answer, "HTTP/1.1 %u %s\r\nDate: %s\r\nConnection: close\r\n", text->code,
               MHD_get_reason_phrase_for(text->code), date);
    if (text->code == MHD_HTTP_METHOD_NOT_ALLOWED) {
        buf_puts(&answer, "Allow: POST\r\n");
    }
    if (text->retry_after_s > 0) {
        buf_printf(&answer, "Retry-After: %u\r\n", text->retry_after_s);
    }
    buf_printf(&answer, "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n", body.len);
    buf_append(&answer, body.data, body.len);
    ssize_t sent = send(fd, answer.data, answer.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    bool whole = sent == (ssize_t)answer.len;
    buf_free(&answer);
    buf_free(&body);
    return whole && shutdown(fd, SHUT_WR) == 0;
}

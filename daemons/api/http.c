/* http.c: request -> task -> submit -> reply.
 *
 * libmicrohttpd calls on_request several times for one request: once when the header is there, once
 * for each piece of the body, once at its end. Only the first and the last may answer. At the end
 * the task goes to the sink and the function returns without an answer: MHD then calls again in its
 * next run, which the loop starts right after the sink's process(). Most tasks are decided by then,
 * and their connections never pay for being suspended (two epoll_ctl and an eventfd write each).
 * Only one that has seen a process() without being decided is suspended.
 */
#include "api/http.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/framing.h"
#include "base/clock.h"
#include "base/log.h"

enum {
    POOL_BYTES = 16 * 1024,      /* MHD's memory for one connection: header and read buffer */
    BODY_KEEP_BYTES = 16 * 1024, /* a larger body buffer is freed after its request */
    /* A refused body is read to its end up to here, so that the client keeps its connection. */
    DISCARD_MAX_BYTES = 4 * 1024 * 1024,
    /* A longer one is answered in its midst, and read on up to here, or until --request-timeout: to
     * close with unread bytes makes the kernel reset the connection, which may eat the answer. */
    LINGER_MAX_BYTES = 512 * 1024 * 1024,
};

/* What the sink says of itself, for a request that it would not take. */
static const char *detail_of(const struct connection *connection, char detail[320])
{
    const char *why = connection->api->counters.why;
    if (!connection->sink_says || why[0] == '\0') {
        return NULL;
    }
    snprintf(detail, 320, "%s; nothing was stored, try again", why);
    return detail;
}

static enum MHD_Result queue_reply(struct connection *connection)
{
    struct api *api = connection->api;
    bool close = connection->close_after || api->stopping;
    counter_add(&api->counters.replies[connection->reply], 1);
    connection->state = REQUEST_QUEUED;
    if (connection->reply == REPLY_ACCEPTED) {
        return reply_queue_accepted(connection->mhd, &connection->accepted, connection->id, close);
    }
    char detail[320];
    return reply_queue(connection->mhd, connection->reply, detail_of(connection, detail),
                       connection->id, close);
}

/* The body is too long to be waited for. */
static enum MHD_Result answer_early(struct connection *connection)
{
    char detail[320];
    counter_add(&connection->api->counters.replies[connection->reply], 1);
    connection->state = REQUEST_LINGER;
    return reply_write(connection->guarded.fd, connection->reply, detail_of(connection, detail))
               ? MHD_YES
               : MHD_NO;
}

static enum MHD_Result queue_bad_request(struct connection *connection, const char *detail)
{
    connection->api->answering++;
    connection->reply = REPLY_BAD_REQUEST;
    connection->state = REQUEST_QUEUED;
    counter_add(&connection->api->counters.replies[REPLY_BAD_REQUEST], 1);
    return reply_queue(connection->mhd, REPLY_BAD_REQUEST, detail, NULL, connection->close_after);
}

static void leave_admission(struct connection *connection)
{
    if (connection->entered) {
        admission_leave(&connection->api->admission, connection->entered_bytes);
        connection->entered = false;
        connection->entered_bytes = 0;
    }
}

void http_decide(struct connection *connection, enum reply reply)
{
    assert(connection->state == REQUEST_PENDING);
    connection->waiter = NULL;
    connection->reply = reply;
    connection->state = REQUEST_DECIDED;
    connection->api->answering++;
    if (connection->suspended) {
        connection->next_decided = connection->api->decided;
        connection->api->decided = connection;
    }
}

void http_resume_decided(struct api *api)
{
    while (api->decided) {
        struct connection *connection = api->decided;
        api->decided = connection->next_decided;
        connection->next_decided = NULL;
        connection->suspended = false;
        MHD_resume_connection(connection->mhd);
    }
}

void http_expire(struct api *api)
{
    while (api->waiters.first) {
        struct waiter *waiter = api->waiters.first;
        if (api->now_ns - waiter->complete_ns < api->settings.ack_deadline_ns) {
            return;
        }
        struct connection *connection = waiter->connection;
        waiter_give_up(&api->waiters, waiter);
        http_decide(connection, REPLY_UNKNOWN_DEADLINE);
    }
}

static void write_durable(struct api *api, const struct waiter *waiter, int64_t waited_ns,
                          unsigned batch)
{
    metrics_begin(&api->event, "durable");
    metrics_id(&api->event, "id", waiter->id);
    metrics_ms(&api->event, "durable_ms", waited_ns);
    metrics_int(&api->event, "batch", batch);
    metrics_write(api->metrics, &api->event);
}

static void on_done(void *arg, enum sink_outcome outcome, unsigned batch)
{
    static const enum reply replies[] = {[SINK_DURABLE] = REPLY_ACCEPTED,
                                         [SINK_REFUSED] = REPLY_SINK_REFUSED,
                                         [SINK_UNKNOWN] = REPLY_UNKNOWN_SINK};
    struct waiter *waiter = arg;
    struct api *api = waiter->api;
    int64_t waited_ns = clock_mono_ns() - waiter->complete_ns;
    counters_outcome(&api->counters, outcome, waited_ns, batch);
    if (outcome == SINK_DURABLE) {
        admission_durable(&api->admission, waiter->body_bytes);
        if (api->metrics) {
            write_durable(api, waiter, waited_ns, batch);
        }
    }
    if (waiter->connection) {
        struct connection *connection = waiter->connection;
        waiter_give_up(&api->waiters, waiter);
        http_decide(connection, replies[outcome]);
    } else {
        counter_add(&api->counters.late_outcomes, 1);
    }
    admission_leave(&api->admission, waiter->body_bytes);
    waiter_put(&api->waiters, waiter);
}

static enum reply reply_of_not_ready(struct connection *connection, int why)
{
    connection->sink_says = true;
    return why == -ENOSPC               ? REPLY_SINK_REFUSED
           : why == -EAGAIN || why == 0 ? REPLY_SINK_BUSY
                                        : REPLY_NOT_CONNECTED;
}

/* The sink has taken no task, though it was ready when last asked. */
static enum reply ask_why(struct connection *connection, int rc)
{
    struct api *api = connection->api;
    const char *sentence = "";
    int why = sink_why(api->driver, api->sink, &sentence);
    counters_why(&api->counters, sentence);
    return reply_of_not_ready(connection, rc == -ENOSPC ? rc : why);
}

static enum reply reply_of_submit(struct connection *connection, int rc)
{
    struct api *api = connection->api;
    switch (rc) {
    case -EAGAIN:
    case -ENOSPC:
        return ask_why(connection, rc);
    case -EMSGSIZE:
        return REPLY_TOO_LARGE;
    case -EIO:
        api->broken = true;
        api->submitted++; /* process() will tell those that wait */
        return REPLY_SINK_BROKEN;
    default:
        log_error("the sink %s has refused a task: %s", api->driver->name, strerror(-rc));
        return REPLY_SINK_REFUSED;
    }
}

/* The body is complete. */
static enum MHD_Result submit(struct connection *connection)
{
    struct api *api = connection->api;
    struct task task;
    struct err err;
    guard_waiting(&connection->guarded);
    api->receiving--;
    const char *body = connection->body.data ? connection->body.data : "";
    if (task_parse(body, connection->body.len, &task, &err) < 0) {
        leave_admission(connection);
        return queue_bad_request(connection, err.text);
    }
    task.accepted_us = clock_wall_us();
    memcpy(connection->id, task.id, UUID_BYTES);
    struct waiter *waiter = waiter_take(&api->waiters);
    waiter->api = api;
    waiter->connection = connection;
    waiter->complete_ns = clock_mono_ns();
    waiter->body_bytes = connection->entered_bytes;
    memcpy(waiter->id, task.id, UUID_BYTES);
    int rc = api->broken ? -EIO : api->driver->submit(api->sink, &task, on_done, waiter);
    if (rc < 0) {
        waiter_put(&api->waiters, waiter);
        leave_admission(connection);
        api->answering++;
        connection->reply = reply_of_submit(connection, rc);
        return queue_reply(connection);
    }
    connection->entered = false; /* the waiter leaves admission for it */
    connection->entered_bytes = 0;
    connection->waiter = waiter;
    connection->state = REQUEST_PENDING;
    connection->processed = api->processed;
    api->submitted++;
    return MHD_YES;
}

static enum MHD_Result on_header(void *arg, enum MHD_ValueKind kind, const char *name,
                                 size_t name_bytes, const char *value, size_t value_bytes)
{
    (void)kind;
    framing_header(arg, name, name_bytes, value, value_bytes);
    return MHD_YES;
}

/* RFC 9112, section 3.2.2: a server takes the absolute form too. */
static const char *path_of(const char *url)
{
    if (strncmp(url, "http://", 7) == 0) {
        const char *path = strchr(url + 7, '/');
        return path ? path : "/";
    }
    return url;
}

static enum reply reply_of_admission(enum admission_verdict verdict)
{
    switch (verdict) {
    case ADMISSION_OK:
        return REPLY_NONE;
    case ADMISSION_TASKS:
        return REPLY_IN_FLIGHT_TASKS;
    case ADMISSION_BYTES:
        return REPLY_IN_FLIGHT_BYTES;
    case ADMISSION_BACKLOG_TASKS:
        return REPLY_BACKLOG_TASKS;
    case ADMISSION_BACKLOG_BYTES:
        return REPLY_BACKLOG_BYTES;
    }
    return REPLY_NONE;
}

/* What the header alone decides: REPLY_NONE when the body is wanted. */
static enum reply judge_header(struct connection *connection, const char *url, const char *method,
                               const struct framing *framing)
{
    struct api *api = connection->api;
    if (strcmp(path_of(url), "/task") != 0) {
        return REPLY_NOT_FOUND;
    }
    if (strcmp(method, MHD_HTTP_METHOD_POST) != 0) {
        return REPLY_METHOD;
    }
    if (!framing->json || framing->coded) {
        return REPLY_MEDIA_TYPE;
    }
    if (framing->body_bytes > (int64_t)api->settings.body_max_bytes) {
        return REPLY_TOO_LARGE;
    }
    if (api->stopping) {
        return REPLY_STOPPING;
    }
    if (api->broken) {
        return REPLY_SINK_BROKEN;
    }
    if (!api->sink_is_ready) {
        return reply_of_not_ready(connection, api->sink_why);
    }
    return reply_of_admission(admission_check(&api->admission, (size_t)framing->body_bytes));
}

static enum MHD_Result begin(struct connection *connection, const char *url, const char *method,
                             const char *version)
{
    struct api *api = connection->api;
    struct framing framing = {0};
    buf_clear(&connection->body);
    connection->received_bytes = 0;
    connection->close_after = connection->sink_says = false;
    MHD_get_connection_values_n(connection->mhd, MHD_HEADER_KIND, on_header, &framing);
    const char *fault = framing_end(&framing, version);
    if (fault) {
        connection->close_after = true;
        return queue_bad_request(connection, fault);
    }
    connection->reply = judge_header(connection, url, method, &framing);
    if (connection->reply != REPLY_NONE && framing.expects_continue) {
        connection->close_after = framing.body_bytes > 0 || framing.chunked;
        api->answering++;
        return queue_reply(connection);
    }
    guard_body(&connection->guarded, api->now_ns);
    if (connection->reply != REPLY_NONE && framing.body_bytes > DISCARD_MAX_BYTES) {
        return answer_early(connection);
    }
    api->receiving++;
    if (connection->reply != REPLY_NONE) {
        connection->state = REQUEST_DISCARD;
        return MHD_YES;
    }
    connection->state = REQUEST_BODY;
    connection->entered = true;
    connection->entered_bytes = (size_t)framing.body_bytes;
    admission_enter(&api->admission, connection->entered_bytes);
    buf_reserve(&connection->body, connection->entered_bytes);
    return MHD_YES;
}

static void discard_from_now(struct connection *connection, enum reply reply)
{
    leave_admission(connection);
    buf_free(&connection->body);
    connection->reply = reply;
    connection->state = REQUEST_DISCARD;
}

static enum MHD_Result take_piece(struct connection *connection, const char *bytes, size_t len)
{
    struct api *api = connection->api;
    connection->received_bytes += len;
    if (connection->state == REQUEST_BODY &&
        connection->received_bytes > connection->entered_bytes) {
        /* Only a chunked body can outgrow what its header said. */
        size_t more = connection->received_bytes - connection->entered_bytes;
        if (connection->received_bytes > api->settings.body_max_bytes) {
            discard_from_now(connection, REPLY_TOO_LARGE);
        } else if (admission_grow(&api->admission, more) != ADMISSION_OK) {
            discard_from_now(connection, REPLY_IN_FLIGHT_BYTES);
        } else {
            connection->entered_bytes += more;
        }
    }
    if (connection->state == REQUEST_BODY) {
        buf_append(&connection->body, bytes, len);
        return MHD_YES;
    }
    if (connection->state == REQUEST_DISCARD && connection->received_bytes > DISCARD_MAX_BYTES) {
        api->receiving--;
        return answer_early(connection);
    }
    return connection->received_bytes > LINGER_MAX_BYTES ? MHD_NO : MHD_YES;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *mhd, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_bytes, void **context)
{
    (void)arg;
    struct connection *connection = *context;
    if (!connection) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
        connection = info->socket_context;
        *context = connection;
        return begin(connection, url, method, version);
    }
    switch (connection->state) {
    case REQUEST_BODY:
    case REQUEST_DISCARD:
    case REQUEST_LINGER:
        if (*upload_bytes > 0) {
            size_t len = *upload_bytes;
            *upload_bytes = 0;
            return take_piece(connection, upload, len);
        }
        if (connection->state == REQUEST_BODY) {
            return submit(connection);
        }
        if (connection->state == REQUEST_LINGER) {
            return MHD_NO; /* answered; nothing is unread, so the end is an orderly one */
        }
        guard_waiting(&connection->guarded);
        connection->api->receiving--;
        connection->api->answering++;
        return queue_reply(connection);
    case REQUEST_PENDING:
        if (!connection->suspended && connection->processed != connection->api->processed) {
            connection->suspended = true;
            MHD_suspend_connection(mhd);
        }
        return MHD_YES;
    case REQUEST_DECIDED:
        return queue_reply(connection);
    case REQUEST_NONE:
    case REQUEST_QUEUED:
        break;
    }
    return MHD_YES;
}

/* The request is over, whatever its end: answered, or the connection lost at any point. */
static void on_completed(void *arg, struct MHD_Connection *mhd, void **context,
                         enum MHD_RequestTerminationCode code)
{
    (void)arg;
    (void)mhd;
    (void)code;
    struct connection *connection = *context;
    if (!connection) {
        return;
    }
    struct api *api = connection->api;
    assert(!connection->suspended);
    if (connection->state == REQUEST_BODY || connection->state == REQUEST_DISCARD) {
        api->receiving--;
    } else if (connection->state == REQUEST_DECIDED || connection->state == REQUEST_QUEUED) {
        api->answering--;
    }
    if (connection->waiter) {
        waiter_give_up(&api->waiters, connection->waiter);
        connection->waiter = NULL;
    }
    leave_admission(connection);
    if (connection->body.cap > BODY_KEEP_BYTES) {
        buf_free(&connection->body);
    }
    connection->state = REQUEST_NONE;
    guard_between(&connection->guarded);
    *context = NULL;
}

static void on_connection(void *arg, struct MHD_Connection *mhd, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct api *api = arg;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
        struct connection *connection = xcalloc(1, sizeof(*connection));
        connection->api = api;
        connection->mhd = mhd;
        guard_add(&api->guard, &connection->guarded, info->connect_fd);
        *socket_context = connection;
        return;
    }
    struct connection *connection = *socket_context;
    if (connection) {
        guard_remove(&api->guard, &connection->guarded);
        reply_accepted_free(&connection->accepted);
        buf_free(&connection->body);
        free(connection);
        *socket_context = NULL;
    }
}

static void on_panic(void *arg, const char *file, unsigned line, const char *reason)
{
    (void)arg;
    log_error("libmicrohttpd gives up (%s:%u): %s", file, line, reason ? reason : "no reason");
    abort();
}

/* libmicrohttpd 1.0.1 takes the line feed behind the last chunk's extension for the next line. If a
 * bare line feed may end a line, it ends the trailer there, and what a proxy in front of us passed
 * on as a trailer is served as a request of its own. One step stricter than the default, it may
 * not. */
#if MHD_VERSION >= 0x01000000
#define CLIENT_DISCIPLINE MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1
#else
#define CLIENT_DISCIPLINE MHD_OPTION_STRICT_FOR_CLIENT, 0
#endif

int http_start(struct api *api, struct err *err)
{
    unsigned idle_s = (unsigned)((api->settings.idle_timeout_ns + NS_PER_S - 1) / NS_PER_S);
    MHD_set_panic_func(on_panic, NULL);
    replies_start();
    api->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, api,
        MHD_OPTION_LISTEN_SOCKET, api->listen_fd, MHD_OPTION_NOTIFY_CONNECTION, on_connection, api,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, api, MHD_OPTION_CONNECTION_LIMIT,
        api->settings.connections_max, MHD_OPTION_CONNECTION_TIMEOUT, idle_s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_BYTES, CLIENT_DISCIPLINE, MHD_OPTION_END);
    if (!api->daemon) {
        return err_set(err, -EIO, "cannot start the HTTP server: libmicrohttpd %s says no more",
                       MHD_get_version());
    }
    return 0;
}

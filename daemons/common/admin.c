/* admin.c: the admin port. An own loop around MHD in external mode, so that the guard's deadlines
 * are enforced by the thread that owns the connections. */
#include "common/admin.h"

#include <errno.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "common/guard.h"
#include "common/hostport.h"

enum {
    CONNECTIONS_MAX = 32,
    IDLE_TIMEOUT_S = 10,
    POOL_BYTES = 8 * 1024,
    SWEEP_EVERY_MS = 500,
};

struct admin {
    struct admin_source source;
    struct hostport address;
    struct MHD_Daemon *daemon;
    struct guard guard;
    pthread_t thread;
    int listen_fd;
    int epoll_fd;
    int wake_fd; /* readable: stop */
};

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned code, const char *type,
                              const struct buf *text)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        text->len, text->data ? text->data : (void *)"", MHD_RESPMEM_MUST_COPY);
    if (!response) {
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    }
    enum MHD_Result result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

static unsigned verdict(bool (*check)(void *, struct buf *), void *arg, struct buf *text)
{
    if (check(arg, text)) {
        buf_clear(text);
        buf_puts(text, "ok\n");
        return MHD_HTTP_OK;
    }
    buf_putc(text, '\n');
    return MHD_HTTP_SERVICE_UNAVAILABLE;
}

/* Answers in the first call, before any body is read: MHD then closes a connection that sends one.
 */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_bytes, void **context)
{
    (void)version;
    (void)upload;
    (void)upload_bytes;
    (void)context;
    struct admin *admin = arg;
    const struct admin_source *source = &admin->source;
    struct buf text = {0};
    const char *type = "text/plain; charset=utf-8";
    unsigned code = MHD_HTTP_OK;
    bool known =
        strcmp(url, "/healthz") == 0 || strcmp(url, "/readyz") == 0 || strcmp(url, "/metrics") == 0;
    if (!known) {
        code = MHD_HTTP_NOT_FOUND;
        buf_puts(&text, "no such path; there are /healthz, /readyz and /metrics\n");
    } else if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        code = MHD_HTTP_METHOD_NOT_ALLOWED;
        buf_puts(&text, "use GET\n");
    } else if (url[1] == 'h') {
        code = verdict(source->healthy, source->arg, &text);
    } else if (url[1] == 'r') {
        code = verdict(source->ready, source->arg, &text);
    } else {
        type = "text/plain; version=0.0.4; charset=utf-8";
        source->metrics(source->arg, &text);
    }
    enum MHD_Result result = answer(connection, code, type, &text);
    buf_free(&text);
    return result;
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **context,
                         enum MHD_RequestTerminationCode code)
{
    (void)arg;
    (void)context;
    (void)code;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (info && info->socket_context) {
        guard_between(info->socket_context);
    }
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct admin *admin = arg;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        struct guarded *guarded = xcalloc(1, sizeof(*guarded));
        guard_add(&admin->guard, guarded, info->connect_fd);
        *socket_context = guarded;
    } else if (*socket_context) {
        guard_remove(&admin->guard, *socket_context);
        free(*socket_context);
        *socket_context = NULL;
    }
}

static int wait_ms(struct admin *admin)
{
    unsigned long long mhd_ms;
    if (MHD_get_timeout(admin->daemon, &mhd_ms) == MHD_YES && mhd_ms < SWEEP_EVERY_MS) {
        return (int)mhd_ms;
    }
    return admin->guard.count > 0 ? SWEEP_EVERY_MS : -1;
}

static void *run(void *arg)
{
    struct admin *admin = arg;
    int64_t swept_ns = clock_mono_ns();
    for (;;) {
        struct epoll_event events[2];
        int count = epoll_wait(admin->epoll_fd, events, 2, wait_ms(admin));
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == admin->wake_fd) {
                return NULL;
            }
        }
        MHD_run(admin->daemon);
        int64_t now_ns = clock_mono_ns();
        if (now_ns - swept_ns >= SWEEP_EVERY_MS * NS_PER_MS) {
            guard_sweep(&admin->guard, now_ns);
            swept_ns = now_ns;
        }
    }
}

static int watch(int epoll_fd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int start_daemon(struct admin *admin, struct err *err)
{
    admin->daemon = MHD_start_daemon(
        MHD_USE_EPOLL, 0, NULL, NULL, on_request, admin, MHD_OPTION_LISTEN_SOCKET, admin->listen_fd,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, admin, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, admin, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)POOL_BYTES, MHD_OPTION_END);
    if (!admin->daemon) {
        return err_set(err, -EIO, "cannot start the HTTP server of the admin port %s",
                       admin->address.text);
    }
    admin->listen_fd = -1; /* MHD closes it */
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(admin->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    admin->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    admin->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!info || admin->epoll_fd < 0 || admin->wake_fd < 0 ||
        watch(admin->epoll_fd, info->epoll_fd) < 0 || watch(admin->epoll_fd, admin->wake_fd) < 0) {
        return err_set(err, -errno, "cannot watch the admin port's sockets: %s", strerror(errno));
    }
    int rc = pthread_create(&admin->thread, NULL, run, admin);
    if (rc != 0) {
        return err_set(err, -rc, "cannot start the admin port's thread: %s", strerror(rc));
    }
    return 0;
}

static void release(struct admin *admin)
{
    if (admin->daemon) {
        MHD_stop_daemon(admin->daemon);
    }
    int fds[] = {admin->listen_fd, admin->epoll_fd, admin->wake_fd};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    free(admin);
}

int admin_start(struct admin **out, const char *listen, const struct admin_source *source,
                struct err *err)
{
    *out = NULL;
    struct admin *admin = xcalloc(1, sizeof(*admin));
    admin->source = *source;
    admin->listen_fd = admin->epoll_fd = admin->wake_fd = -1;
    guard_init(&admin->guard, IDLE_TIMEOUT_S * NS_PER_S);
    int rc = hostport_parse(listen, &admin->address, err);
    if (rc < 0) {
        err_prefix(err, "--admin");
    } else {
        rc = admin->listen_fd = hostport_listen(&admin->address, "admin", err);
    }
    if (rc >= 0) {
        rc = start_daemon(admin, err);
    }
    if (rc < 0) {
        release(admin);
        return rc;
    }
    log_info("admin port on http://%s", admin->address.text);
    *out = admin;
    return 0;
}

void admin_stop(struct admin *admin)
{
    if (!admin) {
        return;
    }
    uint64_t one = 1;
    while (write(admin->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    pthread_join(admin->thread, NULL);
    release(admin);
}

const char *admin_address(const struct admin *admin)
{
    return admin->address.text;
}

void admin_metric(struct buf *out, const char *name, const char *kind, const char *help,
                  double value)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s %.15g\n", name, help, name, kind, name, value);
}

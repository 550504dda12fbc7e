/* bare_mhd: the yardstick for HTTP: libmicrohttpd in external-epoll mode and nothing else. Reads
 * each request to its end and answers 202 with a constant body of the length that sluice-api sends.
 *
 *   bare_mhd PORT     listens on 127.0.0.1 until SIGTERM or SIGINT; 0: any free port, which is
 * printed
 */
#include <errno.h>
#include <limits.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>

static struct MHD_Response *answer;

static enum MHD_Result handle(void *arg, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_bytes, void **state)
{
    static char seen;

    (void)arg;
    (void)url;
    (void)method;
    (void)version;
    (void)upload;
    if (*state == NULL) {
        *state = &seen;
        return MHD_YES;
    }
    if (*upload_bytes > 0) {
        *upload_bytes = 0;
        return MHD_YES;
    }
    return MHD_queue_response(connection, 202, answer);
}

static int serve(struct MHD_Daemon *daemon, int stop_fd)
{
    struct pollfd polled[2] = {
        {.fd = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd, .events = POLLIN},
        {.fd = stop_fd, .events = POLLIN},
    };

    for (;;) {
        MHD_UNSIGNED_LONG_LONG due_ms;
        int timeout_ms = -1;

        if (MHD_get_timeout(daemon, &due_ms) == MHD_YES)
            timeout_ms = due_ms > INT_MAX ? INT_MAX : (int)due_ms;
        if (timeout_ms != 0 && poll(polled, 2, timeout_ms) < 0 && errno != EINTR)
            return 1;
        if (polled[1].revents)
            return 0;
        MHD_run(daemon);
    }
}

int main(int argc, char **argv)
{
    static const char body[] = "{\"id\":\"00000000-0000-0000-0000-000000000000\"}";
    struct rlimit limit;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct MHD_Daemon *daemon;
    sigset_t signals;
    int stop_fd, port = argc == 2 ? atoi(argv[1]) : -1, status;

    if (port < 0 || port > UINT16_MAX) {
        fprintf(stderr, "usage: bare_mhd PORT\n");
        return 2;
    }
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 65536 ? limit.rlim_max : 65536;
    setrlimit(RLIMIT_NOFILE, &limit);
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    stop_fd = signalfd(-1, &signals, SFD_CLOEXEC);

    address.sin_port = htons((uint16_t)port);
    answer = MHD_create_response_from_buffer(sizeof(body) - 1, (void *)(uintptr_t)body,
                                             MHD_RESPMEM_PERSISTENT);
    MHD_add_response_header(answer, "Content-Type", "application/json");
    daemon = MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, handle, NULL, MHD_OPTION_SOCK_ADDR,
                              &address, MHD_OPTION_CONNECTION_LIMIT, 4096U, MHD_OPTION_END);
    if (!daemon) {
        fprintf(stderr, "bare_mhd: cannot listen on 127.0.0.1:%d: %s\n", port, strerror(errno));
        return 3;
    }
    printf("listening on http://127.0.0.1:%d\n",
           MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
    fflush(stdout);
    status = serve(daemon, stop_fd);
    MHD_stop_daemon(daemon);
    MHD_destroy_response(answer);
    return status;
}

#include "client.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "common/hostport.h"

enum { ARGUMENTS_MAX = 24 };

unsigned long spawn_files_max;

static pid_t spawn(const char *binary, const char *const arguments[], int *log_fd)
{
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    pid_t parent = getpid();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        char *argv[ARGUMENTS_MAX] = {(char *)(uintptr_t)binary,
                                     (char *)(uintptr_t) "--listen=127.0.0.1:0",
                                     (char *)(uintptr_t) "--admin=127.0.0.1:0"};
        int count = 3;
        for (int i = 0; arguments[i] && count < ARGUMENTS_MAX - 1; i++) {
            argv[count++] = (char *)(uintptr_t)arguments[i];
        }
        if (spawn_files_max > 0) {
            struct rlimit limit = {.rlim_cur = spawn_files_max, .rlim_max = spawn_files_max};
            setrlimit(RLIMIT_NOFILE, &limit);
        }
        dup2(pipe_fds[1], STDERR_FILENO);
        close(pipe_fds[0]);
        close(pipe_fds[1]);
        if (getppid() == parent) {
            execv(binary, argv);
        }
        _exit(127);
    }
    close(pipe_fds[1]);
    *log_fd = pipe_fds[0];
    return pid;
}

static bool read_log(int fd, struct buf *log)
{
    char bytes[1024];
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    if (poll(&ready, 1, PATIENCE_MS) != 1) {
        fail_msg("the server says nothing; so far: %s", log->data ? log->data : "");
    }
    ssize_t got = read(fd, bytes, sizeof(bytes));
    if (got > 0) {
        buf_append(log, bytes, (size_t)got);
    }
    return got > 0;
}

static void take_address(const struct buf *log, const char *before, char address[64])
{
    const char *start = strstr(log->data, before);
    assert_non_null(start);
    start += strlen(before);
    size_t len = strcspn(start, ", \n");
    assert_true(len < 64);
    memcpy(address, start, len);
    address[len] = '\0';
}

void server_start(struct server *server, const char *binary, const char *const arguments[])
{
    memset(server, 0, sizeof(*server));
    server->pid = spawn(binary, arguments, &server->log_fd);
    const char *line = NULL;
    do {
        if (!read_log(server->log_fd, &server->log)) {
            fail_msg("%s did not start: %s", binary, server->log.data ? server->log.data : "");
        }
        line = strstr(server->log.data, "listening on ");
    } while (!line || !strchr(line, '\n'));
    take_address(&server->log, "listening on http://", server->address);
    take_address(&server->log, "admin port on http://", server->admin);
}

int server_wait(struct server *server)
{
    while (read_log(server->log_fd, &server->log)) {
    }
    close(server->log_fd);
    int status;
    assert_int_equal(waitpid(server->pid, &status, 0), server->pid);
    server->pid = 0;
    if (!WIFEXITED(status)) {
        fail_msg("the server was ended by signal %d: %s", WTERMSIG(status), server->log.data);
    }
    return WEXITSTATUS(status);
}

void server_stop(struct server *server)
{
    kill(server->pid, SIGTERM);
    int code = server_wait(server);
    if (code != 0) {
        fail_msg("exit code %d: %s", code, server->log.data);
    }
    buf_free(&server->log);
}

int run_to_end(const char *binary, const char *const arguments[], struct buf *errors)
{
    struct server server = {0};
    server.pid = spawn(binary, arguments, &server.log_fd);
    int code = server_wait(&server);
    *errors = server.log;
    return code;
}

void response_free(struct response *response)
{
    buf_free(&response->head);
    buf_free(&response->body);
}

int client_connect(const char *address)
{
    struct hostport hostport;
    assert_int_equal(hostport_parse(address, &hostport, NULL), 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    assert_true(fd >= 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(fd, (const struct sockaddr *)&hostport.address, hostport.address_bytes) < 0) {
        int error = errno;
        close(fd);
        return -error;
    }
    return fd;
}

void client_send(int fd, const void *bytes, size_t len)
{
    size_t sent = 0;
    while (sent < len) {
        struct pollfd ready = {.fd = fd, .events = POLLOUT};
        assert_int_equal(poll(&ready, 1, PATIENCE_MS), 1);
        ssize_t got = send(fd, (const char *)bytes + sent, len - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (got < 0 && errno != EAGAIN && errno != EINTR) {
            return;
        }
        sent += got > 0 ? (size_t)got : 0;
    }
}

/* One byte; false at the end of the stream. Slow and simple. */
static bool receive_byte(int fd, char *byte)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    if (poll(&ready, 1, PATIENCE_MS) != 1) {
        fail_msg("the server neither answers nor closes");
    }
    return recv(fd, byte, 1, 0) == 1;
}

void client_receive(int fd, struct response *response, bool head_only)
{
    char byte;
    memset(response, 0, sizeof(*response));
    while (!response->head.data || !strstr(response->head.data, "\r\n\r\n")) {
        if (!receive_byte(fd, &byte)) {
            return;
        }
        buf_putc(&response->head, byte);
    }
    if (sscanf(response->head.data, "HTTP/1.%*1[01] %3d ", &response->code) != 1) {
        fail_msg("no status line: %s", response->head.data);
    }
    const char *length = strcasestr(response->head.data, "\r\nContent-Length:");
    size_t bytes = length && !head_only ? strtoul(length + 17, NULL, 10) : 0;
    while (response->body.len < bytes && receive_byte(fd, &byte)) {
        buf_putc(&response->body, byte);
    }
    assert_int_equal(response->body.len, bytes);
}

bool client_is_closed(int fd)
{
    char bytes[1024];
    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, PATIENCE_MS) != 1) {
            return false;
        }
        if (recv(fd, bytes, sizeof(bytes), 0) <= 0) {
            return true;
        }
    }
}

void client_ask(const char *address, const char *request, struct response *response)
{
    int fd = client_connect(address);
    assert_true(fd >= 0);
    client_send(fd, request, strlen(request));
    client_receive(fd, response, false);
    close(fd);
}

char *post_payload(const char *text)
{
    char *body = xasprintf("{\"payload\":\"%s\"}", text);
    char *request = xasprintf("POST /task HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                              "Content-Length: %zu\r\n\r\n%s",
                              strlen(body), body);
    free(body);
    return request;
}

double metric(const struct server *server, const char *name)
{
    struct response response;
    client_ask(server->admin, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", &response);
    assert_int_equal(response.code, 200);
    char *line = xasprintf("\n%s ", name);
    const char *text = response.body.data ? response.body.data : "";
    const char *found = strstr(text, line);
    double value = found ? strtod(found + strlen(line), NULL) : 0;
    if (!found) {
        fail_msg("no metric %s in: %s", name, text);
    }
    free(line);
    response_free(&response);
    return value;
}

void wait_for_metric(const struct server *server, const char *name, double value)
{
    for (int64_t end_ns = clock_mono_ns() + PATIENCE_MS * NS_PER_MS;;) {
        double now = metric(server, name);
        if (now >= value && now <= value) {
            return;
        }
        if (clock_mono_ns() > end_ns) {
            fail_msg("%s is %g and should become %g", name, now, value);
        }
        clock_sleep_ns(10 * NS_PER_MS);
    }
}

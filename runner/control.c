#include "control.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "keeper.h"

enum { CONTROLS_MAX = 16, LINE_MS = 2000 };

int control_open(struct control *control, struct server *server, const char *dir, const char *name,
                 struct err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    *control = (struct control){.server = server, .fd = -1};
    control->path = xasprintf("%s/%s.control", dir, name);
    if (strlen(control->path) >= sizeof(address.sun_path)) {
        int rc = err_set(err, -ENAMETOOLONG,
                         "%s: a socket's path has at most %zu bytes: choose a shorter --state",
                         control->path, sizeof(address.sun_path) - 1);
        control_close(control);
        return rc;
    }
    memcpy(address.sun_path, control->path, strlen(control->path));
    control->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* Nobody else may use it, from its first moment on. */
    mode_t mask = umask(0077);
    int rc = control->fd < 0 ||
                     bind(control->fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ||
                     listen(control->fd, 16) < 0
                 ? err_set(err, -errno, "%s: %s", control->path, strerror(errno))
                 : 0;
    umask(mask);
    if (rc < 0) {
        control_close(control);
    }
    return rc;
}

void control_close(struct control *control)
{
    if (control->path) {
        if (control->fd >= 0) {
            unlink(control->path);
            close(control->fd);
        }
        free(control->path);
    }
    *control = (struct control){.fd = -1};
}

static int start(struct server *server, struct err *err)
{
    if (server->paused) {
        server_resume(server);
    }
    if (!process_runs(&server->process) || process_ended(&server->process)) {
        int rc = server_relaunch(server, err);
        if (rc < 0) {
            return rc;
        }
    }
    int64_t deadline_ns = clock_mono_ns() + server->kind->start_timeout_ms * NS_PER_MS;
    int rc;
    while ((rc = server_poll_ready(server, err)) == -EAGAIN) {
        if (keeper_interrupted()) {
            return err_set(err, -EINTR, "interrupted");
        }
        if (clock_mono_ns() > deadline_ns) {
            return err_set(err, -ETIMEDOUT, "%s was not ready after %d s; see its log %s",
                           server->who, server->kind->start_timeout_ms / 1000, server->log_path);
        }
        keeper_nap(10);
    }
    return rc;
}

static int stop(struct server *server, struct err *err)
{
    if (server->paused) {
        server_resume(server);
    }
    if (!server_stop(server)) {
        return err_set(err, -EIO, "%s did not stop in order; see its log %s", server->who,
                       server->log_path);
    }
    return 0;
}

static int obey(struct server *server, const char *command, struct err *err)
{
    if (strcmp(command, "start") == 0) {
        return start(server, err);
    }
    if (strcmp(command, "stop") == 0) {
        return stop(server, err);
    }
    if (strcmp(command, "kill") == 0) {
        server_kill(server);
    } else if (strcmp(command, "pause") == 0) {
        server_pause(server);
    } else if (strcmp(command, "resume") == 0) {
        server_resume(server);
    } else {
        return err_set(err, -EINVAL, "\"%s\": expected kill, start, pause, resume or stop",
                       command);
    }
    return 0;
}

/* One client, from its line to the answer. It may be slow to write, but not for long. */
static void serve_client(const struct control *control, int client)
{
    char line[64] = "";
    size_t len = 0;
    int64_t until_ns = clock_mono_ns() + LINE_MS * NS_PER_MS;
    while (!memchr(line, '\n', len) && len + 1 < sizeof(line)) {
        struct pollfd polled = {.fd = client, .events = POLLIN};
        int64_t left_ns = until_ns - clock_mono_ns();
        if (left_ns <= 0 || poll(&polled, 1, (int)(left_ns / NS_PER_MS) + 1) <= 0) {
            return;
        }
        ssize_t got = read(client, line + len, sizeof(line) - 1 - len);
        if (got <= 0) {
            return;
        }
        len += (size_t)got;
    }
    line[len] = '\0';
    line[strcspn(line, "\n")] = '\0';
    struct err err = {0};
    int rc = obey(control->server, line, &err);
    if (rc < 0) {
        dprintf(client, "error: %s\n", err.text);
    } else {
        dprintf(client, "ok\n");
    }
}

void control_serve(const struct control *const *controls, size_t count, int wait_ms)
{
    struct pollfd polled[CONTROLS_MAX];
    assert(count <= CONTROLS_MAX);
    for (size_t i = 0; i < count; i++) {
        polled[i] = (struct pollfd){.fd = controls[i]->fd, .events = POLLIN};
    }
    if (poll(polled, (nfds_t)count, wait_ms) <= 0) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        int client =
            polled[i].revents & POLLIN ? accept4(controls[i]->fd, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (client >= 0) {
            serve_client(controls[i], client);
            close(client);
        }
    }
}

#include "server.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "keeper.h"
#include "state.h"

enum { CERTIFICATE_MAX_BYTES = 64 * 1024 };

const struct server_kind *const server_kinds[] = {
    &server_postgres,
    &server_valkey,
    &server_rabbit,
    NULL,
};

const struct server_kind *server_for_sink(const char *sink)
{
    for (size_t i = 0; server_kinds[i]; i++) {
        for (size_t k = 0; server_kinds[i]->sinks[k]; k++) {
            if (strcmp(server_kinds[i]->sinks[k], sink) == 0) {
                return server_kinds[i];
            }
        }
    }
    return NULL;
}

bool server_kind_does(const struct server_kind *kind, const char *what)
{
    for (size_t i = 0; kind && kind->background_what && kind->background_what[i]; i++) {
        if (strcmp(kind->background_what[i], what) == 0) {
            return true;
        }
    }
    return false;
}

static int make_password(char out[40], struct err *err)
{
    unsigned char random[16];
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        return err_set(err, -EIO, "the kernel gave no random bytes for a password");
    }
    for (size_t i = 0; i < sizeof(random); i++) {
        snprintf(out + 2 * i, 3, "%02x", random[i]);
    }
    return 0;
}

int server_write_file(const struct server *server, const char *name, const char *text,
                      struct err *err)
{
    char *path = xasprintf("%s/%s", server->dir, name);
    int rc = 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 ||
        (server->account.drop && fchown(fd, server->account.uid, server->account.gid) < 0) ||
        file_write_all(fd, text, strlen(text)) < 0) {
        rc = err_set(err, -errno, "%s: %s", path, strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    free(path);
    return rc;
}

/* Copies: a server takes no key that belongs to somebody else, and cannot read one of root's. */
static int take_certificates(struct server *server, const struct server_place *place,
                             struct err *err)
{
    static const char *const names[] = {"ca.crt", "server.crt", "server.key"};
    int rc = port_take(place->base, err);
    server->tls_port = rc;
    for (size_t i = 0; rc >= 0 && i < sizeof(names) / sizeof(names[0]); i++) {
        struct buf text = {0};
        char *path = xasprintf("%s/%s", place->tls_dir, names[i]);
        rc = file_read(path, CERTIFICATE_MAX_BYTES, &text, err);
        buf_putc(&text, '\0');
        if (rc == 0) {
            rc = server_write_file(server, names[i], text.data, err);
        }
        buf_free(&text);
        free(path);
    }
    return rc < 0 ? rc : 0;
}

int server_poll_ready(struct server *server, struct err *err)
{
    if (process_ended(&server->process)) {
        return process_obituary(&server->process, "while it started", err);
    }
    if (!process_runs(&server->process)) {
        return err_set(err, -ECHILD, "%s does not run", server->who);
    }
    return server->kind->ready(server, err);
}

static int wait_ready(struct server *server, struct err *err)
{
    int64_t deadline_ns = clock_mono_ns() + server->kind->start_timeout_ms * NS_PER_MS;
    for (;;) {
        int rc = server_poll_ready(server, err);
        if (rc != -EAGAIN) {
            return rc;
        }
        if (keeper_interrupted()) {
            return err_set(err, -EINTR, "interrupted");
        }
        if (clock_mono_ns() > deadline_ns) {
            return err_set(err, -ETIMEDOUT, "%s (%s) was not ready after %d s; see its log %s",
                           server->who, server->kind->name, server->kind->start_timeout_ms / 1000,
                           server->log_path);
        }
        keeper_nap(20);
    }
}

int server_start(struct server *server, const struct server_kind *kind,
                 const struct server_place *place, struct err *err)
{
    *server = (struct server){.kind = kind, .clients = place->clients, .replicas = 1};
    snprintf(server->who, sizeof(server->who), "%s", place->who);
    server->log_path = xstrdup(place->log_path);
    server->base = xstrdup(place->base);
    int rc = account_for_servers(&server->account, err);
    if (rc == 0) {
        rc = make_password(server->password, err);
    }
    if (rc == 0) {
        rc = port_take(place->base, err);
    }
    if (rc > 0) {
        server->port = rc;
        rc = state_subdir(place->state_dir, place->who, &server->account, &server->dir, err);
    }
    if (rc == 0 && place->tls_dir) {
        rc = take_certificates(server, place, err);
    }
    if (rc == 0) {
        rc = kind->prepare(server, err);
    }
    if (rc == 0) {
        rc = kind->launch(server, err);
    }
    if (rc == 0) {
        rc = wait_ready(server, err);
    }
    if (rc < 0) {
        server_kill(server);
        server_free(server);
    }
    return rc;
}

int server_relaunch(struct server *server, struct err *err)
{
    assert(!process_runs(&server->process));
    process_free(&server->process);
    return server->kind->launch(server, err);
}

void server_kill(struct server *server)
{
    server->paused = false;
    process_kill_tree(&server->process);
}

void server_pause(struct server *server)
{
    server->paused = true;
    process_signal_tree(&server->process, SIGSTOP);
}

void server_resume(struct server *server)
{
    server->paused = false;
    process_signal_tree(&server->process, SIGCONT);
}

bool server_stop(struct server *server)
{
    if (!server->kind) {
        return true;
    }
    return process_stop(&server->process, server->kind->stop_signal, server->kind->stop_timeout_ms);
}

void server_free(struct server *server)
{
    if (server->kind && server->kind->free) {
        server->kind->free(server);
    }
    explicit_bzero(server->password, sizeof(server->password));
    process_free(&server->process);
    free(server->dir);
    free(server->log_path);
    free(server->base);
    free(server->url);
    free(server->tls_url);
    *server = (struct server){0};
}

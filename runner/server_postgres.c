/* A private PostgreSQL: the slow main database, and the server of the sink "ingest".
 *
 * Only its programs are taken from the system (or the private prefix); data, settings, port and
 * password are our own. TCP only: a socket's path is limited to 107 bytes. The password keeps other
 * users of the machine out, since the server's superuser can run programs. */
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "prefix.h"

struct own {
    char *bin;          /* folder of initdb and postgres */
    char *port_setting; /* port=N */
};

/* Everything that decides durability or speed is said here, even where it is the default, so that a
 * distribution's own defaults don't slip in. */
static const char settings_text[] =
    "listen_addresses = '127.0.0.1'\n"
    "unix_socket_directories = ''\n"
    "password_encryption = 'scram-sha-256'\n"
    "fsync = on\n"
    "synchronous_commit = on\n"
    "full_page_writes = on\n"
    "wal_level = replica\n"
    "shared_buffers = 128MB\n"
    "max_wal_size = 2GB\n"
    "min_wal_size = 256MB\n"
    "checkpoint_timeout = 5min\n"
    "checkpoint_completion_target = 0.9\n"
    "autovacuum = on\n"
    "jit = off\n"
    "client_connection_check_interval = 500ms\n" /* else a killed worker's statement sleeps on */
    "tcp_keepalives_idle = 10\n"
    "logging_collector = off\n"
    "log_checkpoints = on\n"
    "log_line_prefix = '%m [%p] '\n"
    "log_timezone = 'GMT'\n"
    "timezone = 'GMT'\n"
    "lc_messages = 'C'\n";

static const char *const settings_shown[] = {
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "wal_level",
    "shared_buffers",
    "max_wal_size",
    "min_wal_size",
    "checkpoint_timeout",
    "checkpoint_completion_target",
    "autovacuum",
    "max_connections",
    "client_connection_check_interval",
    "jit",
    NULL,
};

static int write_settings(const struct server *server, struct err *err)
{
    struct buf text = {0};
    buf_puts(&text, settings_text);
    buf_printf(&text, "max_connections = %u\n", server->clients + 20);
    if (server->tls_port > 0) { /* on the same port */
        buf_printf(&text,
                   "ssl = on\nssl_cert_file = '%s/server.crt'\nssl_key_file = '%s/server.key'\n",
                   server->dir, server->dir);
    }
    char *path = xasprintf("%s/data/postgresql.conf", server->dir);
    int rc = file_write(path, text.data, text.len, err);
    if (rc == 0 && server->account.drop && chown(path, server->account.uid, server->account.gid)) {
        rc = err_set(err, -errno, "%s: %s", path, strerror(errno));
    }
    if (rc == 0 && chmod(path, 0600) < 0) {
        rc = err_set(err, -errno, "%s: %s", path, strerror(errno));
    }
    free(path);
    buf_free(&text);
    return rc;
}

static int write_password_file(const struct server *server, const char *path, struct err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 ||
        (server->account.drop && fchown(fd, server->account.uid, server->account.gid) < 0) ||
        file_write_all(fd, server->password, strlen(server->password)) < 0) {
        int rc = err_set(err, -errno, "%s: %s", path, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return rc;
    }
    close(fd);
    return 0;
}

static int run_initdb(struct server *server, struct err *err)
{
    const struct own *own = server->own;
    char *password_path = xasprintf("%s/password", server->dir);
    char *program = xasprintf("%s/initdb", own->bin);
    char *data = xasprintf("--pgdata=%s/data", server->dir);
    char *password_flag = xasprintf("--pwfile=%s", password_path);
    const char *argv[] = {program,
                          data,
                          "--username=sluice",
                          password_flag,
                          "--auth=scram-sha-256",
                          "--encoding=UTF8",
                          "--locale=C",
                          NULL};
    const char *env[] = {"LC_ALL=C", NULL};
    struct process initdb = {0};
    struct process_plan plan = {.who = "initdb",
                                .argv = argv,
                                .env = env,
                                .log_path = server->log_path,
                                .cwd = server->dir,
                                .account = server->account};
    int rc = write_password_file(server, password_path, err);
    if (rc == 0) {
        rc = process_start(&initdb, &plan, err);
    }
    if (rc == 0 && !process_wait(&initdb, 60000)) {
        process_kill_tree(&initdb);
        rc = err_set(err, -ETIMEDOUT, "initdb took over 60 s; see its log %s", server->log_path);
    } else if (rc == 0 && initdb.status != 0) {
        rc = process_obituary(&initdb, "while it made the data folder", err);
    }
    process_free(&initdb);
    unlink(password_path);
    free(password_flag);
    free(data);
    free(program);
    free(password_path);
    return rc;
}

static int prepare(struct server *server, struct err *err)
{
    struct own *own = xcalloc(1, sizeof(*own));
    server->own = own;
    int rc = prefix_find_postgres(&own->bin, err);
    if (rc == 0) {
        rc = run_initdb(server, err);
    }
    if (rc == 0) {
        rc = write_settings(server, err);
    }
    if (rc == 0) {
        server->url = xasprintf("postgresql://sluice:%s@127.0.0.1:%d/postgres", server->password,
                                server->port);
        own->port_setting = xasprintf("port=%d", server->port);
        if (server->tls_port > 0) {
            server->tls_url = xasprintf("%s?sslmode=verify-full", server->url);
        }
    }
    return rc;
}

static int launch(struct server *server, struct err *err)
{
    const struct own *own = server->own;
    char *program = xasprintf("%s/postgres", own->bin);
    char *data = xasprintf("%s/data", server->dir);
    const char *argv[] = {program, "-D", data, "-c", own->port_setting, NULL};
    const char *env[] = {"LC_ALL=C", NULL};
    struct process_plan plan = {.who = server->who,
                                .argv = argv,
                                .env = env,
                                .log_path = server->log_path,
                                .cwd = server->dir,
                                .account = server->account,
                                .death_signal = server->kind->abort_signal};
    int rc = process_start(&server->process, &plan, err);
    free(data);
    free(program);
    return rc;
}

/* A connection for a quick question; NULL and err when there is none. */
static PGconn *connect_once(const struct server *server, struct err *err)
{
    const char *const keys[] = {"dbname", "connect_timeout", "application_name", NULL};
    const char *const values[] = {server->url, "5", "sluice", NULL};
    PGconn *conn = PQconnectdbParams(keys, values, 1);
    if (PQstatus(conn) != CONNECTION_OK) {
        err_set(err, -EAGAIN, "%s: %s", server->who, PQerrorMessage(conn));
        PQfinish(conn);
        return NULL;
    }
    return conn;
}

static int ready(struct server *server, struct err *err)
{
    PGconn *conn = connect_once(server, err);
    if (!conn) {
        return -EAGAIN;
    }
    int number = PQserverVersion(conn);
    snprintf(server->version, sizeof(server->version), "PostgreSQL %d.%d", number / 10000,
             number % 10000);
    PQfinish(conn);
    return 0;
}

static int command(const struct server *server, const char *sql, struct err *err)
{
    PGconn *conn = connect_once(server, err);
    if (!conn) {
        return err ? err->code : -EAGAIN;
    }
    PGresult *result = PQexec(conn, sql);
    int rc = 0;
    if (PQresultStatus(result) != PGRES_COMMAND_OK) {
        rc = err_set(err, -EIO, "%s: %s: %s", server->who, sql, PQresultErrorMessage(result));
    }
    PQclear(result);
    PQfinish(conn);
    return rc;
}

static int settle(struct server *server, struct err *err)
{
    return command(server, "CHECKPOINT", err);
}

/* A checkpoint that is asked for writes as fast as it can, where one that is due spreads its
 * writes: this is the worst case of it. */
static int background(struct server *server, const char *what, struct err *err)
{
    return command(server, strcmp(what, "vacuum") == 0 ? "VACUUM (ANALYZE)" : "CHECKPOINT", err);
}

static int settings(struct server *server, struct buf *json, struct err *err)
{
    PGconn *conn = connect_once(server, err);
    if (!conn) {
        return err ? err->code : -EAGAIN;
    }
    int rc = 0;
    buf_putc(json, '{');
    for (size_t i = 0; settings_shown[i]; i++) {
        const char *const params[] = {settings_shown[i]};
        PGresult *result =
            PQexecParams(conn, "SELECT current_setting($1, true)", 1, NULL, params, NULL, NULL, 0);
        if (PQresultStatus(result) != PGRES_TUPLES_OK) {
            rc = err_set(err, -EIO, "%s: %s", server->who, PQresultErrorMessage(result));
            PQclear(result);
            break;
        }
        buf_printf(json, "%s\"%s\": ", i > 0 ? ", " : "", settings_shown[i]);
        buf_json_string(json, PQgetvalue(result, 0, 0), strlen(PQgetvalue(result, 0, 0)));
        PQclear(result);
    }
    buf_putc(json, '}');
    PQfinish(conn);
    return rc;
}

static void free_own(struct server *server)
{
    struct own *own = server->own;
    if (own) {
        free(own->bin);
        free(own->port_setting);
        free(own);
    }
}

static const char *const background_what[] = {"checkpoint", "vacuum", NULL};
static const char *const serves[] = {"ingest", NULL};

const struct server_kind server_postgres = {
    .name = "postgres",
    .sinks = serves,
    .stop_signal = SIGINT,   /* "fast": rolls back, disconnects, checkpoints */
    .abort_signal = SIGQUIT, /* shared memory */
    .start_timeout_ms = 60000,
    .stop_timeout_ms = 30000,
    .prepare = prepare,
    .launch = launch,
    .ready = ready,
    .settle = settle,
    .settings = settings,
    .background_what = background_what,
    .background = background,
    .free = free_own,
};

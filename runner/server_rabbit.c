/* A private RabbitMQ: the server of the sink "rabbit".
 *
 * Its programs come from the system or the private prefix; never the distribution's wrapper in
 * /usr/sbin, which becomes the user rabbitmq. Data, cookie, settings, ports and password are our
 * own. Three ports, all on loopback: AMQP, the Erlang distribution, and an epmd of our own, which
 * lives beside the broker: a kill of the broker leaves it, as a machine's epmd would be left. */
#include "server.h"
#include "sink/rabbitmq_c.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "prefix.h"
#include "state.h"

#define NODE            "sluice@localhost"
#define INSTALLED       "/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin"
#define SETTINGS_SCRIPT "settings.erl"
#define SETTINGS_ANSWER "settings.json"
#define ROLLOVER_SCRIPT "rollover.erl"
#define ROLLOVER_ANSWER "rollover.done"

enum {
    ENV_MAX = 24,
    ASK_MS = 10000,
    ROLLOVER_MS = 50000,
    EPMD_STOP_MS = 1000,
    ANSWER_MAX_BYTES = 65536
};

struct own {
    char *bin; /* folder of rabbitmq-server */
    int distribution_port, epmd_port;
    struct process epmd;
    char *env[ENV_MAX];
    size_t env_count;
};

/* Everything that decides durability, memory or how long a batch may be out. */
static const char settings_text[] =
    "loopback_users = none\n"
    "default_vhost = /\n"
    "default_permissions.configure = .*\n"
    "default_permissions.read = .*\n"
    "default_permissions.write = .*\n"
    "default_user_tags.administrator = true\n"
    "vm_memory_high_watermark.absolute = 1536MiB\n"
    "disk_free_limit.absolute = 256MiB\n"
    "raft.wal_max_size_bytes = 134217728\n" /* it takes up to three times that in memory */
    "consumer_timeout = 86400000\n" /* a batch may wait for the main DB longer than 30 minutes */
    "heartbeat = 60\n"
    "tcp_listen_options.nodelay = true\n"
    "log.file = false\n"
    "log.console = true\n"
    "log.console.level = info\n";

/* Run inside the broker; a map, so that the order is the same each time. */
static const char settings_script[] =
    "Text = fun(Term) -> iolist_to_binary(io_lib:format(\"~0p\", [Term])) end,\n"
    "Env = fun(Application, Key) ->\n"
    "    case application:get_env(Application, Key) of\n"
    "        {ok, Value} when is_integer(Value) -> Value;\n"
    "        {ok, Value} -> Text(Value);\n"
    "        undefined -> <<\"default\">>\n"
    "    end\n"
    "end,\n"
    "Settings = #{\n"
    "    <<\"erlang\">> => list_to_binary(erlang:system_info(otp_release)),\n"
    "    <<\"schedulers\">> => erlang:system_info(schedulers_online),\n"
    "    <<\"raft.wal_max_size_bytes\">> => Env(ra, wal_max_size_bytes),\n"
    "    <<\"raft.wal_sync_method\">> => Env(ra, wal_sync_method),\n"
    "    <<\"raft.wal_write_strategy\">> => Env(ra, wal_write_strategy),\n"
    "    <<\"vm_memory_high_watermark\">> => Env(rabbit, vm_memory_high_watermark),\n"
    "    <<\"disk_free_limit\">> => Env(rabbit, disk_free_limit),\n"
    "    <<\"consumer_timeout\">> => Env(rabbit, consumer_timeout),\n"
    "    <<\"heartbeat\">> => Env(rabbit, heartbeat),\n"
    "    <<\"policies\">> => length(rabbit_policy:list()),\n"
    "    <<\"operator_policies\">> => length(rabbit_policy:list_op()),\n"
    "    <<\"alarms\">> => Text(rabbit_alarm:get_alarms())\n"
    "},\n"
    "ok = file:write_file(\"" SETTINGS_ANSWER "\", rabbit_json:encode(Settings)).\n";

/* Run inside the broker. The call only asks for it, so what it does is waited for: a log's file is
 * deleted once the segment writer has written all of it to the queues' segments. */
static const char rollover_script[] =
    "#{names := #{wal := Log}} = System = ra_system:fetch(quorum_queues),\n"
    "Dir = maps:get(wal_data_dir, System, maps:get(data_dir, System)),\n"
    "Files = fun() -> filelib:wildcard(filename:join(Dir, \"*.wal\")) end,\n"
    "Old = Files(),\n"
    "ok = ra_log_wal:force_roll_over(Log),\n"
    "Wait = fun Wait(0) -> {not_done, Old};\n"
    "           Wait(Turns) ->\n"
    "               Now = Files(),\n"
    "               case Now =/= [] andalso Now -- Old =:= Now of\n"
    "                   true -> ok;\n"
    "                   false -> timer:sleep(5), Wait(Turns - 1)\n"
    "               end\n"
    "       end,\n"
    "ok = Wait(8000),\n"
    "ok = file:write_file(\"" ROLLOVER_ANSWER "\", <<\"done\">>).\n";

/* ---- programs ---- */

static bool holds_server(const char *folder)
{
    char *path = xasprintf("%s/rabbitmq-server", folder);
    bool there = access(path, X_OK) == 0;
    free(path);
    return there;
}

static char *find_installed(void)
{
    glob_t found;
    char *best = NULL;
    if (glob(INSTALLED, 0, NULL, &found) != 0) {
        return NULL;
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        if (holds_server(found.gl_pathv[i]) && (!best || strverscmp(found.gl_pathv[i], best) > 0)) {
            free(best);
            best = xstrdup(found.gl_pathv[i]);
        }
    }
    globfree(&found);
    return best;
}

static int find_programs(char **bin, struct err *err)
{
    const char *set = getenv("SLUICE_RABBITMQ_BIN");
    *bin = NULL;
    if (set && *set) {
        if (!holds_server(set)) {
            return err_set(err, -ENOENT,
                           "SLUICE_RABBITMQ_BIN=%s: that folder has no rabbitmq-server", set);
        }
        *bin = xstrdup(set);
        return 0;
    }
    *bin = find_installed();
    if (*bin) {
        return 0;
    }
    char *prefix = prefix_path();
    int rc = 0;
    *bin = xasprintf("%s/rabbitmq/bin", prefix);
    if (!holds_server(*bin)) {
        rc = err_set(err, -ENOENT,
                     "no RabbitMQ server was found: not below /usr/lib/rabbitmq, not in %s; run "
                     "scripts/deps, which unpacks one there, or name the folder of rabbitmq-server "
                     "in SLUICE_RABBITMQ_BIN",
                     prefix);
        free(*bin);
        *bin = NULL;
    }
    free(prefix);
    return rc;
}

/* Erlang's own programs: beside the server in the prefix, in PATH where it is installed. */
static char *erlang_program(const struct own *own, const char *name)
{
    char *path = xasprintf("%s/%s", own->bin, name);
    if (access(path, X_OK) != 0) {
        free(path);
        path = xstrdup(name);
    }
    return path;
}

/* ---- preparing ---- */

static void add_env(struct own *own, char *text)
{
    own->env[own->env_count++] = text;
}

/* Each is said, so that the starter's own RABBITMQ_* or ERL_* do not slip in. */
static void set_env(struct server *server)
{
    struct own *own = server->own;
    const char *dir = server->dir, *path = getenv("PATH");
    add_env(own, xasprintf("PATH=%s:%s", own->bin, path ? path : "/usr/bin:/bin"));
    add_env(own, xasprintf("HOME=%s", dir));          /* of the Erlang cookie */
    add_env(own, xstrdup("RUNNING_UNDER_SYSTEMD=1")); /* its script becomes the broker */
    add_env(own, xstrdup("NOTIFY_SOCKET="));
    add_env(own, xstrdup("RABBITMQ_NODENAME=" NODE));
    add_env(own, xstrdup("RABBITMQ_USE_LONGNAME=false"));
    add_env(own, xasprintf("RABBITMQ_MNESIA_BASE=%s/data", dir));
    add_env(own, xasprintf("RABBITMQ_LOG_BASE=%s/log", dir));
    add_env(own, xstrdup("RABBITMQ_LOGS=-"));
    add_env(own, xasprintf("RABBITMQ_CONFIG_FILE=%s/rabbitmq.conf", dir));
    add_env(own, xasprintf("RABBITMQ_CONFIG_FILES=%s/rabbitmq.conf.d", dir));
    add_env(own, xasprintf("RABBITMQ_ADVANCED_CONFIG_FILE=%s/advanced.config", dir));
    add_env(own, xstrdup("RABBITMQ_CONF_ENV_FILE=/dev/null"));
    add_env(own, xasprintf("RABBITMQ_ENABLED_PLUGINS_FILE=%s/plugins", dir));
    add_env(own, xasprintf("RABBITMQ_DIST_PORT=%d", own->distribution_port));
    add_env(own, xstrdup("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-start_epmd false -kernel "
                         "inet_dist_use_interface {127,0,0,1}"));
    add_env(own, xasprintf("ERL_EPMD_PORT=%d", own->epmd_port));
    add_env(own, xstrdup("ERL_EPMD_ADDRESS=127.0.0.1"));
    add_env(own, xasprintf("ERL_CRASH_DUMP=%s/erl_crash.dump", dir));
    add_env(own, xstrdup("ERL_FLAGS="));
    add_env(own, xstrdup("ERL_AFLAGS="));
    add_env(own, xstrdup("ERL_ZFLAGS="));
    add_env(own, NULL);
}

static int take_ports(struct server *server, struct err *err)
{
    struct own *own = server->own;
    own->distribution_port = port_take(server->base, err);
    own->epmd_port =
        own->distribution_port < 0 ? own->distribution_port : port_take(server->base, err);
    return own->epmd_port < 0 ? own->epmd_port : 0;
}

static int prepare(struct server *server, struct err *err)
{
    struct own *own = xcalloc(1, sizeof(*own));
    struct buf text = {0};
    server->own = own;
    int rc = find_programs(&own->bin, err);
    if (rc == 0) {
        rc = take_ports(server, err);
    }
    if (rc == 0) {
        buf_printf(&text, "listeners.tcp.1 = 127.0.0.1:%d\ndefault_user = sluice\n", server->port);
        buf_printf(&text, "default_pass = %s\n%s", server->password, settings_text);
        if (server->tls_port > 0) {
            buf_printf(&text, "listeners.ssl.1 = 127.0.0.1:%d\n", server->tls_port);
            buf_printf(&text, "ssl_options.cacertfile = %s/ca.crt\n", server->dir);
            buf_printf(&text, "ssl_options.certfile = %s/server.crt\n", server->dir);
            buf_printf(&text, "ssl_options.keyfile = %s/server.key\n", server->dir);
            buf_puts(&text, "ssl_options.verify = verify_none\n");
        }
        rc = server_write_file(server, "rabbitmq.conf", text.data, err);
        explicit_bzero(text.data, text.len);
    }
    if (rc == 0) {
        rc = server_write_file(server, "plugins", "[].\n", err);
    }
    if (rc == 0) {
        rc = server_write_file(server, SETTINGS_SCRIPT, settings_script, err);
    }
    if (rc == 0) {
        rc = server_write_file(server, ROLLOVER_SCRIPT, rollover_script, err);
    }
    if (rc == 0) {
        set_env(server);
        server->url =
            xasprintf("amqp://sluice:%s@127.0.0.1:%d/%%2f", server->password, server->port);
    }
    if (rc == 0 && server->tls_port > 0) {
        server->tls_url =
            xasprintf("amqps://sluice:%s@127.0.0.1:%d/%%2f", server->password, server->tls_port);
    }
    buf_free(&text);
    return rc;
}

/* ---- running ---- */

static int start_program(struct server *server, struct process *process, const char *who,
                         const char *const argv[], struct err *err)
{
    struct own *own = server->own;
    union {
        char *const *in;
        const char *const *out;
    } env = {.in = own->env};
    struct process_plan plan = {.who = who,
                                .argv = argv,
                                .env = env.out,
                                .log_path = server->log_path,
                                .cwd = server->dir,
                                .account = server->account};
    return process_start(process, &plan, err);
}

static int ensure_epmd(struct server *server, struct err *err)
{
    struct own *own = server->own;
    if (process_runs(&own->epmd) && !process_ended(&own->epmd)) {
        return 0;
    }
    process_free(&own->epmd);
    char *program = erlang_program(own, "epmd");
    const char *argv[] = {program, NULL}; /* in the foreground; where it listens is in its env */
    int rc = start_program(server, &own->epmd, "epmd", argv, err);
    free(program);
    return rc;
}

static int launch(struct server *server, struct err *err)
{
    struct own *own = server->own;
    int rc = ensure_epmd(server, err);
    if (rc == 0) {
        char *program = xasprintf("%s/rabbitmq-server", own->bin);
        const char *argv[] = {program, NULL};
        rc = start_program(server, &server->process, server->who, argv, err);
        free(program);
    }
    return rc;
}

static void read_version(struct server *server, amqp_connection_state_t connection)
{
    const amqp_table_t *properties = amqp_get_server_properties(connection);
    for (int i = 0; properties && i < properties->num_entries; i++) {
        const amqp_table_entry_t *entry = &properties->entries[i];
        if (entry->key.len == strlen("version") &&
            memcmp(entry->key.bytes, "version", entry->key.len) == 0 &&
            entry->value.kind == AMQP_FIELD_KIND_UTF8) {
            snprintf(server->version, sizeof(server->version), "RabbitMQ %.*s",
                     (int)entry->value.value.bytes.len,
                     (const char *)entry->value.value.bytes.bytes);
        }
    }
}

static bool listens(int port)
{
    struct timeval patience = {.tv_sec = 2};
    amqp_connection_state_t connection = amqp_new_connection();
    amqp_socket_t *socket = connection ? amqp_tcp_socket_new(connection) : NULL;
    bool opened =
        socket && amqp_socket_open_noblock(socket, "127.0.0.1", port, &patience) == AMQP_STATUS_OK;
    if (connection) {
        amqp_destroy_connection(connection);
    }
    return opened;
}

/* It listens last of all, so a login that is answered is the whole proof; but with TLS on a port of
 * its own, that one is opened a moment later. */
static int ready(struct server *server, struct err *err)
{
    struct timeval patience = {.tv_sec = 2};
    amqp_connection_state_t connection = amqp_new_connection();
    amqp_socket_t *socket = connection ? amqp_tcp_socket_new(connection) : NULL;
    int rc = socket ? amqp_socket_open_noblock(socket, "127.0.0.1", server->port, &patience)
                    : AMQP_STATUS_NO_MEMORY;
    if (rc != AMQP_STATUS_OK) {
        rc = err_set(err, -EAGAIN, "%s: %s", server->who, amqp_error_string2(rc));
    } else {
        amqp_set_handshake_timeout(connection, &patience);
        amqp_rpc_reply_t reply = amqp_login(connection, "/", 0, AMQP_DEFAULT_FRAME_SIZE, 0,
                                            AMQP_SASL_METHOD_PLAIN, "sluice", server->password);
        if (reply.reply_type == AMQP_RESPONSE_NORMAL) {
            read_version(server, connection);
            amqp_set_rpc_timeout(connection, &patience);
            amqp_connection_close(connection, AMQP_REPLY_SUCCESS);
        } else {
            rc = err_set(err, -EAGAIN, "%s: the login is not answered yet", server->who);
        }
    }
    if (connection) {
        amqp_destroy_connection(connection);
    }
    if (rc == 0 && server->tls_port > 0 && !listens(server->tls_port)) {
        rc = err_set(err, -EAGAIN, "%s: it does not listen for TLS yet", server->who);
    }
    return rc;
}

static int settle(struct server *server, struct err *err)
{
    (void)server; /* it has no checkpoint; its log of raft starts empty */
    (void)err;
    return 0;
}

/* Runs a script inside the broker and reads what it left in a file: no secret in argv, nothing to
 * parse. A script that failed leaves none. */
static int ask(struct server *server, const char *script, const char *answer, int timeout_ms,
               struct buf *out, struct err *err)
{
    struct own *own = server->own;
    struct process call = {0};
    char *program = erlang_program(own, "erl_call");
    char *path = xasprintf("%s/%s", server->dir, answer);
    char *call_text = xasprintf("file eval [\"%s\"]", script);
    const char *argv[] = {program, "-sname", NODE, "-a", call_text, NULL};
    unlink(path);
    int rc = start_program(server, &call, "erl_call", argv, err);
    if (rc == 0 && !process_wait(&call, timeout_ms)) {
        process_kill_tree(&call);
        rc = err_set(err, -ETIMEDOUT, "erl_call took over %d s", timeout_ms / 1000);
    } else if (rc == 0 && call.status != 0) {
        rc = process_obituary(&call, "while it asked the broker", err);
    }
    if (rc == 0) {
        rc = file_read(path, ANSWER_MAX_BYTES, out, err);
    }
    process_free(&call);
    free(call_text);
    free(path);
    free(program);
    return rc;
}

static int settings(struct server *server, struct buf *json, struct err *err)
{
    int rc = ask(server, SETTINGS_SCRIPT, SETTINGS_ANSWER, ASK_MS, json, err);
    return rc < 0 ? err_prefix(err, "%s: its settings cannot be read back", server->who) : 0;
}

static int background(struct server *server, const char *what, struct err *err)
{
    (void)what; /* there is one only */
    struct buf answer = {0};
    int rc = ask(server, ROLLOVER_SCRIPT, ROLLOVER_ANSWER, ROLLOVER_MS, &answer, err);
    buf_free(&answer);
    return rc < 0 ? err_prefix(err, "%s: its raft log was not seen to roll over", server->who) : 0;
}

static void free_own(struct server *server)
{
    struct own *own = server->own;
    if (!own) {
        return;
    }
    process_stop(&own->epmd, SIGTERM, EPMD_STOP_MS);
    process_free(&own->epmd);
    for (size_t i = 0; i < own->env_count; i++) {
        free(own->env[i]);
    }
    free(own->bin);
    free(own);
}

static const char *const background_what[] = {"raft-rollover", NULL};
static const char *const serves[] = {"rabbit", NULL};

const struct server_kind server_rabbit = {
    .name = "rabbitmq",
    .sinks = serves,
    .stop_signal = SIGTERM,
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

/* sluice with SERVER... -- COMMAND: private servers for as long as a command runs. Tests use it. */
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"
#include "control.h"
#include "keeper.h"
#include "maindb/maindb.h"
#include "server.h"
#include "sink/sink.h"
#include "state.h"

enum { SERVERS_MAX = 16, CLIENTS = 200, ENV_PER_SERVER = 4 };

static const struct option_spec with_options[] = {
    {.name = "row-delay",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "0",
     .help = "what each row inserted into the main database waits"},
    {.name = "missing-ok",
     .type = OPTION_BOOL,
     .help = "go on, loudly, without a server whose programs are not on this machine"},
    {.name = "state",
     .type = OPTION_STRING,
     .unit = "DIR",
     .help = "where the servers' data lies meanwhile, instead of /var/tmp/sluice-state-<uid>"},
    {.name = "keep-state", .type = OPTION_BOOL, .help = "leave the servers' data there at the end"},
    {.name = "tls",
     .type = OPTION_STRING,
     .unit = "DIR",
     .help =
         "the servers listen with TLS, too, by ca.crt, server.crt and server.key of that folder"},
    {.name = NULL},
};

static const char with_more[] =
    "\nSERVER is main-db (a PostgreSQL, tables and trigger made), or the name of a sink that has "
    "a\n"
    "server of its own; all: main-db and the servers of all sinks. Starts them, runs COMMAND, "
    "stops\n"
    "them, and exits as COMMAND did. COMMAND finds in its environment:\n\n"
    "  SLUICE_MAIN_URL            the main database\n"
    "  SLUICE_TEST_MAIN_URL       the same, for tests\n"
    "  SLUICE_TEST_NAME_URL       the server of the sink NAME\n"
    "  SLUICE_TEST_MAIN_TLS_URL, SLUICE_TEST_NAME_TLS_URL\n"
    "                             with --tls: the same servers by TLS\n"
    "  SLUICE_TEST_MAIN_CONTROL, SLUICE_TEST_NAME_CONTROL\n"
    "                             path of a Unix socket that takes one line, kill, start, pause,\n"
    "                             resume or stop, and answers ok once it is done\n";

/* One server, in the order of the command line. */
struct member {
    const char *name;
    const struct server_kind *kind;
    bool is_main;
    bool missing; /* its programs are not there, and that is allowed */
    char *log_path;
    struct server server;
    struct control control;
};

struct with {
    const struct options *options;
    char *base, *dir;
    struct member members[SERVERS_MAX];
    size_t count;
};

/* ---- which servers ---- */

static int add_member(struct with *with, const char *name, struct err *err)
{
    bool is_main = strcmp(name, "main-db") == 0;
    const struct server_kind *kind = is_main ? &server_postgres : server_for_sink(name);
    for (size_t i = 0; i < with->count; i++) {
        if (strcmp(with->members[i].name, name) == 0) {
            return err_set(err, -EINVAL, "with: %s is named twice", name);
        }
    }
    if (!kind || with->count == SERVERS_MAX) {
        struct buf known = {0};
        for (size_t i = 0; server_kinds[i]; i++) {
            for (size_t k = 0; server_kinds[i]->sinks[k]; k++) {
                buf_printf(&known, ", %s", server_kinds[i]->sinks[k]);
            }
        }
        int rc =
            err_set(err, -EINVAL, "with takes the name of a server, one of main-db%s, all; not %s",
                    known.data ? known.data : "", name);
        buf_free(&known);
        return rc;
    }
    with->members[with->count++] =
        (struct member){.name = name, .kind = kind, .is_main = is_main, .control = {.fd = -1}};
    return 0;
}

static int choose_members(struct with *with, struct err *err)
{
    size_t count;
    const char *const *names = options_args(with->options, &count);
    int rc = 0;
    if (count == 0) {
        return err_set(err, -EINVAL,
                       "with takes the name of a server: sluice with main-db -- COMMAND");
    }
    if (count > 1 || strcmp(names[0], "all") != 0) {
        for (size_t i = 0; rc == 0 && i < count; i++) {
            rc = add_member(with, names[i], err);
        }
        return rc;
    }
    rc = add_member(with, "main-db", err);
    for (size_t i = 0; rc == 0 && sink_drivers[i]; i++) {
        if (server_for_sink(sink_drivers[i]->name)) {
            rc = add_member(with, sink_drivers[i]->name, err);
        }
    }
    return rc;
}

/* ---- starting ---- */

static int start_member(struct with *with, struct member *member, struct err *err)
{
    /* The log beside the folder, which goes away: a message may name it. */
    member->log_path = xasprintf("%s.%s.log", with->dir, member->name);
    struct server_place place = {.who = member->name,
                                 .state_dir = with->dir,
                                 .base = with->base,
                                 .log_path = member->log_path,
                                 .clients = CLIENTS,
                                 .tls_dir = options_string(with->options, "tls")};
    int rc = server_start(&member->server, member->kind, &place, err);
    if (rc == -ENOENT && options_bool(with->options, "missing-ok")) {
        fprintf(stderr,
                "sluice: WARNING: there is no server for %s, and what needs it will be skipped: "
                "%s\n",
                member->name, err->text);
        member->missing = true;
        return 0;
    }
    if (rc == 0 && member->is_main) {
        rc = maindb_setup(member->server.url, options_duration_ns(with->options, "row-delay"), err);
    }
    if (rc == 0) {
        rc = control_open(&member->control, &member->server, with->dir, member->name, err);
    }
    return rc;
}

static int start_all(struct with *with, struct err *err)
{
    struct account account;
    int rc = account_for_servers(&account, err);
    if (rc == 0) {
        rc = state_base(options_string(with->options, "state"), &account, &with->base, err);
    }
    if (rc == 0) {
        rc = state_create(with->base, &with->dir, err);
    }
    for (size_t i = 0; rc == 0 && i < with->count; i++) {
        rc = start_member(with, &with->members[i], err);
    }
    return rc;
}

/* ---- the command ---- */

/* SLUICE_TEST_NAME_WHAT=value */
static char *test_variable(const struct member *member, const char *what, const char *value)
{
    char *name = xstrdup(member->is_main ? "MAIN" : member->name);
    for (char *at = name; *at; at++) {
        *at = *at == '-' ? '_' : (char)toupper((unsigned char)*at);
    }
    char *variable = xasprintf("SLUICE_TEST_%s_%s=%s", name, what, value);
    free(name);
    return variable;
}

/* Fills env, NULL-ended; each entry is to be freed. */
static void make_env(const struct with *with, char *env[SERVERS_MAX * ENV_PER_SERVER + 1])
{
    size_t count = 0;
    for (size_t i = 0; i < with->count; i++) {
        const struct member *member = &with->members[i];
        /* Empty when it is missing: one that an outer `sluice with` told of must not stand in. */
        const char *url = member->missing ? "" : member->server.url;
        const char *tls_url = member->missing ? NULL : member->server.tls_url;
        env[count++] = test_variable(member, "URL", url);
        env[count++] = test_variable(member, "TLS_URL", tls_url ? tls_url : "");
        env[count++] =
            test_variable(member, "CONTROL", member->missing ? "" : member->control.path);
        if (member->is_main && member->missing) {
            unsetenv("SLUICE_MAIN_URL"); /* empty it would be a mistake */
        } else if (member->is_main) {
            env[count++] = xasprintf("SLUICE_MAIN_URL=%s", url);
        }
    }
    env[count] = NULL;
}

static int start_command(const struct with *with, char *command[], struct process *process,
                         struct err *err)
{
    char *env[SERVERS_MAX * ENV_PER_SERVER + 1];
    make_env(with, env);
    union {
        char **in;
        const char *const *out;
    } words = {.in = command}, variables = {.in = env};
    struct process_plan plan = {.who = "the command",
                                .argv = words.out,
                                .env = variables.out,
                                .foreground = true,
                                .keep_env = true};
    int rc = process_start(process, &plan, err);
    for (size_t i = 0; env[i]; i++) {
        free(env[i]);
    }
    return rc;
}

static int run_command(const struct with *with, char *command[])
{
    struct err err = {0};
    struct process process = {0};
    if (start_command(with, command, &process, &err) < 0) {
        return command_fail(EXIT_UNUSABLE, err.text);
    }
    const struct control *controls[SERVERS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < with->count; i++) {
        if (!with->members[i].missing) {
            controls[count++] = &with->members[i].control;
        }
    }
    int told = 0;
    while (process_runs(&process) && !process_ended(&process)) {
        if (keeper_interrupted() && !told) {
            /* From a terminal it has heard Ctrl-C itself; a second one does no harm. */
            told = keeper_interrupted();
            process_signal(&process, told);
            process_wait(&process, 10000);
            process_stop(&process, SIGKILL, 0);
            break;
        }
        control_serve(controls, count, 20);
    }
    int status = process.status;
    process_free(&process);
    if (told) {
        return 128 + told;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- the end ---- */

static void stop_member(struct member *member)
{
    control_close(&member->control);
    if (member->server.paused) {
        server_resume(&member->server);
    }
    if (process_ended(&member->server.process)) {
        struct err err = {0};
        process_obituary(&member->server.process, "by itself while the command ran", &err);
        fprintf(stderr, "sluice: WARNING: %s\n", err.text);
    }
    server_stop(&member->server);
    server_free(&member->server);
}

static void tidy_up(struct with *with, bool keep_logs)
{
    for (size_t i = with->count; i-- > 0;) {
        struct member *member = &with->members[i];
        stop_member(member);
        if (member->log_path && !keep_logs) {
            unlink(member->log_path);
        }
        free(member->log_path);
    }
    if (with->dir) {
        bool keep = options_bool(with->options, "keep-state");
        if (keep) {
            fprintf(stderr, "sluice: kept %s\n", with->dir);
        }
        state_remove(with->dir, keep);
    }
    state_leave(with->base);
    free(with->dir);
}

static int with_run(struct options *options, char *command[])
{
    static struct with with;
    struct err err = {0};
    with.options = options;
    if (choose_members(&with, &err) < 0) {
        return command_fail(EXIT_MISTAKE, err.text);
    }
    if (!command || !command[0]) {
        return command_fail(EXIT_MISTAKE,
                            "with needs a command: sluice with main-db -- COMMAND ARGUMENTS");
    }
    keeper_enter();
    int code, rc = start_all(&with, &err);
    if (rc < 0) {
        int number = keeper_interrupted();
        code = number ? 128 + number : command_fail(EXIT_UNUSABLE, err.text);
    } else {
        code = run_command(&with, command);
    }
    tidy_up(&with, rc < 0);
    return code;
}

static int with_main(int argc, char *argv[])
{
    /* All after the first "--" is the command, flags and further "--" included. */
    int flags = 1;
    while (flags < argc && strcmp(argv[flags], "--") != 0) {
        flags++;
    }
    struct options *options = options_new("sluice with", "private servers while a command runs");
    options_add(options, "Settings", with_options);
    int code;
    if (command_start(options, flags, argv, "SERVER... [--row-delay=0] -- COMMAND [ARGUMENTS]",
                      with_more, &code)) {
        code = with_run(options, flags < argc ? argv + flags + 1 : NULL);
    }
    options_free(options);
    return code;
}

const struct command command_with = {
    .name = "with",
    .summary = "run a command beside private servers (for tests)",
    .run = with_main,
};

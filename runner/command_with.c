/* sluice with SERVER -- COMMAND: a private server for as long as a command runs. Tests use it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"
#include "keeper.h"
#include "maindb/maindb.h"
#include "server.h"
#include "state.h"

static const struct option_spec with_options[] = {
    {.name = "row-delay",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "0",
     .help = "what each row inserted into the main database waits"},
    {.name = "state",
     .type = OPTION_STRING,
     .unit = "DIR",
     .help = "where the server's data lies meanwhile, instead of /var/tmp/sluice-state-<uid>"},
    {.name = "keep-state", .type = OPTION_BOOL, .help = "leave the server's data there at the end"},
    {.name = NULL},
};

static const char with_more[] =
    "\nStarts a private main database (PostgreSQL, tables and trigger made), sets SLUICE_MAIN_URL "
    "and\n"
    "SLUICE_TEST_MAIN_URL, runs COMMAND, stops the server, and exits as COMMAND did.\n";

struct with {
    const struct options *options;
    char *base, *dir, *log_path;
    struct server server;
};

static int run_command(const struct with *with, char *command[])
{
    struct err err = {0};
    char *main_url = xasprintf("SLUICE_MAIN_URL=%s", with->server.url);
    char *test_url = xasprintf("SLUICE_TEST_MAIN_URL=%s", with->server.url);
    const char *env[] = {main_url, test_url, NULL};
    const char **argv;
    size_t count = 0;
    while (command[count]) {
        count++;
    }
    argv = xcalloc(count + 1, sizeof(*argv));
    for (size_t i = 0; i < count; i++) {
        argv[i] = command[i];
    }
    struct process process = {0};
    struct process_plan plan = {
        .who = "the command", .argv = argv, .env = env, .foreground = true, .keep_env = true};
    int rc = process_start(&process, &plan, &err);
    free(argv);
    free(main_url);
    free(test_url);
    if (rc < 0) {
        return command_fail(EXIT_UNUSABLE, err.text);
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
        keeper_nap(20);
    }
    if (told) {
        return 128 + told;
    }
    return WIFEXITED(process.status) ? WEXITSTATUS(process.status) : 128 + WTERMSIG(process.status);
}

static int start_main_db(struct with *with, struct err *err)
{
    const char *state = options_string(with->options, "state");
    struct account account;
    int rc = account_for_servers(&account, err);
    if (rc == 0) {
        rc = state_base(state, &account, &with->base, err);
    }
    if (rc == 0) {
        rc = state_create(with->base, &with->dir, err);
    }
    if (rc < 0) {
        return rc;
    }
    /* Beside the folder, which goes away: a message may name the log. */
    with->log_path = xasprintf("%s.main-db.log", with->dir);
    struct server_place place = {.who = "main-db",
                                 .state_dir = with->dir,
                                 .base = with->base,
                                 .log_path = with->log_path,
                                 .clients = 200};
    rc = server_start(&with->server, &server_postgres, &place, err);
    if (rc == 0) {
        rc = maindb_setup(with->server.url, options_duration_ns(with->options, "row-delay"), err);
    }
    return rc;
}

static int with_run(struct options *options, char *command[])
{
    size_t count;
    const char *const *servers = options_args(options, &count);
    if (count != 1 || strcmp(servers[0], "main-db") != 0) {
        return command_fail(EXIT_MISTAKE, "with takes the name of a server, which is main-db: "
                                          "sluice with main-db -- COMMAND");
    }
    if (!command || !command[0]) {
        return command_fail(EXIT_MISTAKE,
                            "with needs a command: sluice with main-db -- COMMAND ARGUMENTS");
    }
    struct with with = {.options = options};
    struct err err = {0};
    keeper_enter();
    int code, rc = start_main_db(&with, &err);
    if (rc < 0) {
        int number = keeper_interrupted();
        code = number ? 128 + number : command_fail(EXIT_UNUSABLE, err.text);
    } else {
        code = run_command(&with, command);
    }
    server_stop(&with.server);
    server_free(&with.server);
    if (with.log_path && rc == 0) {
        unlink(with.log_path);
    }
    if (with.dir) {
        bool keep = options_bool(options, "keep-state");
        if (keep) {
            fprintf(stderr, "sluice: kept %s\n", with.dir);
        }
        state_remove(with.dir, keep);
    }
    state_leave(with.base);
    free(with.dir);
    free(with.log_path);
    return code;
}

static int with_main(int argc, char *argv[])
{
    /* All after the first "--" is the command, flags and further "--" included. */
    int flags = 1;
    while (flags < argc && strcmp(argv[flags], "--") != 0) {
        flags++;
    }
    struct options *options = options_new("sluice with", "a private server while a command runs");
    options_add(options, "Settings", with_options);
    int code;
    if (command_start(options, flags, argv, "main-db [--row-delay=0] -- COMMAND [ARGUMENTS]",
                      with_more, &code)) {
        code = with_run(options, flags < argc ? argv + flags + 1 : NULL);
    }
    options_free(options);
    return code;
}

const struct command command_with = {
    .name = "with",
    .summary = "run a command beside a private main database (for tests)",
    .run = with_main,
};

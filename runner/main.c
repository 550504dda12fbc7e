/* sluice: compares sinks. One subcommand a file; this one only finds it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "command.h"
#include "commit.h"

const struct command *const commands[] = {
    &command_run,   &command_audit, &command_report, &command_export,  &command_trace,
    &command_sinks, &command_clean, &command_with,   &command_prepare, &command_attend,
    NULL,
};

static const char exit_codes[] =
    "\nExit codes:\n"
    "  0    done; every acknowledged task of every contender was found, unchanged\n"
    "  1    a contender lost, invented or changed a task (or missed the SLA, with --require-sla)\n"
    "  2    a mistake in the command or in a scenario; nothing was started\n"
    "  3    something could not be started or used; nothing was left running\n"
    "  130  interrupted (Ctrl-C; 143 by SIGTERM, 129 by SIGHUP); nothing was left running\n";

static void help(void)
{
    printf("sluice: where should a service put a task so that it is safe within 50 ms?\n\n"
           "usage: sluice COMMAND [ARGUMENTS]\n\nCommands:\n");
    for (size_t i = 0; commands[i]; i++) {
        printf("  %-8s %s\n", commands[i]->name, commands[i]->summary);
    }
    printf("\n  sluice COMMAND --help says more; --version prints the version.\n%s", exit_codes);
}

int command_fail(int exit_code, const char *text)
{
    fprintf(stderr, "sluice: %s\n", text);
    return exit_code;
}

bool command_start(struct options *options, int argc, char *argv[], const char *usage,
                   const char *more, int *exit_code)
{
    struct err err = {0};
    int result = options_parse(options, argc, argv, &err);
    *exit_code = EXIT_OK;
    switch (result) {
    case OPTIONS_OK:
        return true;
    case OPTIONS_HELP:
        printf("usage: sluice %s %s\n\n", argv[0], usage);
        options_help(options, stdout);
        printf("%s%s", more ? more : "", exit_codes);
        return false;
    case OPTIONS_VERSION:
        printf("sluice %s (%s)\n", SLUICE_VERSION, SLUICE_COMMIT);
        return false;
    default:
        *exit_code = command_fail(EXIT_MISTAKE, err.text);
        return false;
    }
}

int main(int argc, char *argv[])
{
    log_init("sluice");
    if (argc < 2) {
        help();
        return EXIT_MISTAKE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        help();
        return EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("sluice %s (%s)\n", SLUICE_VERSION, SLUICE_COMMIT);
        return EXIT_OK;
    }
    for (size_t i = 0; commands[i]; i++) {
        if (strcmp(argv[1], commands[i]->name) == 0) {
            return commands[i]->run(argc - 1, argv + 1);
        }
    }
    fprintf(stderr, "sluice: there is no command \"%s\"; sluice --help lists those there are\n",
            argv[1]);
    return EXIT_MISTAKE;
}

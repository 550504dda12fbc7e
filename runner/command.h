/* command.h: the subcommands of `sluice`, one file each (command_NAME.c, run.c). */
#ifndef SLUICE_RUNNER_COMMAND_H
#define SLUICE_RUNNER_COMMAND_H

#include <stdbool.h>

#include "base/options.h"

enum exit_code {
    EXIT_OK = 0,
    EXIT_BAD_RUN = 1,  /* a contender lost, invented or changed a task (or missed a required SLA) */
    EXIT_MISTAKE = 2,  /* in the command or a scenario */
    EXIT_UNUSABLE = 3, /* something could not be started or used */
    EXIT_INTERRUPTED = 130,
};

struct command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char *argv[]); /* argv[0] is the command's name; returns an exit code */
};

extern const struct command *const commands[]; /* visible, NULL-terminated */
extern const struct command command_run, command_audit, command_report, command_export,
    command_trace, command_sinks, command_clean, command_with, command_prepare, command_attend;

/* Parses argv by options. True to go on; else *exit_code is what to return, and help, version or
 * the error has been printed. `usage`: the words after "sluice NAME"; `more`: printed after the
 * flags in
 * --help, may be NULL. */
bool command_start(struct options *options, int argc, char *argv[], const char *usage,
                   const char *more, int *exit_code);

/* "sluice: " and the text to standard error; returns the exit code that fits err->code when code <
 * 0. */
int command_fail(int exit_code, const char *text);

#endif

/* What the commands of sluice-wal share. One thread; errors for the person go to stderr. */
#ifndef WAL_TOOL_H
#define WAL_TOOL_H

#include "wal/internal.h"

#include <stdio.h>

enum tool_exit {
    TOOL_FINE = 0,
    TOOL_DAMAGE = 1,
    TOOL_USAGE = 2,
    TOOL_CANNOT = 3,
};

enum tool_option_kind { TOOL_FLAG, TOOL_NUMBER, TOOL_TEXT };

struct tool_option {
    const char *name;     /* without "--"; NULL ends a table */
    const char *argument; /* its name in the help; NULL for a flag */
    enum tool_option_kind kind;
    void *target; /* bool, uint64_t or const char * */
    uint64_t min; /* of a number */
    uint64_t max;
    const char *help;
};

struct tool_command {
    const char *name;
    const char *summary; /* one line, for the list of commands */
    const char *text;    /* what it does and how it exits, for its own --help */
    /* `words` are those behind the command's name. Returns an exit status. */
    int (*run)(const struct tool_command *command, int count, char **words);
};

extern const struct tool_command tool_dump;
extern const struct tool_command tool_stat;
extern const struct tool_command tool_verify;
extern const struct tool_command tool_repair;
extern const struct tool_command tool_bench;

/* Reads options and one folder. -1: go on; else the exit status: help was printed, or a mistake. */
int tool_parse(const struct tool_command *command, const struct tool_option *options, int count,
               char **words, const char **dir);

/* Says "sluice-wal COMMAND: text" and returns TOOL_CANNOT. */
int tool_cannot(const struct tool_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* In quotes; bytes that are not printable ASCII as \u00xx. */
void tool_json_string(FILE *file, const char *text);

/* Which processes have the log open? No lock is taken. */
struct tool_owners {
    bool writer;
    bool reader;
    bool perhaps; /* either of them, or that can't be told */
};
struct tool_owners tool_owners(const char *dir);

/* Copies every regular file of `dir` to a new folder and makes it durable: `wanted`, or
 * DIR.backup-N beside it if that is NULL. The file systems must have room for the copy, and for
 * `more` bytes in `dir` besides: -ENOSPC else, and nothing was made. *made: the new folder. */
int tool_backup(const char *dir, const char *wanted, uint64_t more, char made[WAL_PATH_BYTES],
                struct wal_err *err);

#endif

/* process.h: starting, watching and signalling the processes that sluice runs.
 *
 * A struct process is filled by process_start and owned by the caller; process_free releases its
 * strings (it doesn't stop anything). Not thread-safe; one thread does all of it.
 */
#ifndef SLUICE_RUNNER_PROCESS_H
#define SLUICE_RUNNER_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

/* Who a process runs as; drop false: as we are. */
struct account {
    bool drop;
    uid_t uid;
    gid_t gid;
};

/* The account for servers: `nobody` when we are root, ourselves otherwise. */
int account_for_servers(struct account *account, struct err *err);

struct process_plan {
    const char *who;         /* "api", "main-db": for messages */
    const char *const *argv; /* argv[0] with a slash, or looked up in PATH; NULL-ended */
    const char *const *env; /* NAME=value, added to ours without its SLUICE_* (but SLUICE_TEST_*) */
    const char *log_path;   /* standard output and error are appended there; NULL: as ours */
    const char *cwd;        /* NULL: as ours */
    struct account account;
    int death_signal; /* sent to it when we die; 0: SIGKILL */
    bool foreground;  /* stays in our process group with our standard input: a user's command */
    bool keep_env;    /* keeps SLUICE_* of our environment */
    bool show;        /* standard output stays ours; only standard error goes to the log */
};

struct process {
    char who[32];
    char *log_path; /* NULL when there is none */
    pid_t pid;      /* 0: never started, or ended and collected */
    int status;     /* as waitpid gave it, once it has ended */
};

/* Starts it. -errno and a sentence when the program could not be executed (then nothing runs). The
 * process gets its death signal when we die, even after its change of user; below a keeper, SIGKILL
 * some seconds later. */
int process_start(struct process *process, const struct process_plan *plan, struct err *err);

/* Has it ended? Collects it; then pid is 0 and status set. False too for one that is not started.
 */
bool process_ended(struct process *process);
static inline bool process_runs(const struct process *process)
{
    return process->pid > 0;
}

/* Waits up to timeout_ms for the end. True when it has ended. Goes on through signals. */
bool process_wait(struct process *process, int timeout_ms);

/* Sends a signal to the process alone, or to it and everything below it. 0 or -errno (-ESRCH). */
int process_signal(const struct process *process, int number);
int process_signal_tree(const struct process *process, int number);

/* SIGKILL for the process and all below it; returns when all are gone (at most about 5 s). */
void process_kill_tree(struct process *process);

/* Asks with `number`, waits timeout_ms, then kills the tree. True when it ended by itself with
 * exit code 0. No-op (true) when it isn't running. */
bool process_stop(struct process *process, int number, int timeout_ms);

/* "exit code 3", "signal 9 (Killed)". */
const char *process_status_text(int status, char *out, size_t out_bytes);

/* Appends the last line of a log that says something, at most 200 bytes, control bytes replaced. */
void process_last_words(const char *log_path, struct buf *out);

/* "WHO ended (exit code 1) WHEN; its log PATH ends: LINE". Returns err->code (-ECHILD). */
int process_obituary(const struct process *process, const char *when, struct err *err);

void process_free(struct process *process);

/* SIGKILL for every direct child of `parent` (read from /proc); a postmaster, while `patiently`, is
 * asked for its immediate shutdown instead. */
void process_end_children(pid_t parent, bool patiently);

/* Path of the program NAME: next to our own executable, in `first` before that when it is not NULL.
 * NULL when it is not there; free it. */
char *process_sibling(const char *first, const char *name);

#endif

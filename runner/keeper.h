/* keeper.h: whatever happens to sluice, nothing that it started lives on.
 *
 * A command that starts processes calls keeper_enter() first. It splits the program in three:
 *
 *   front   the process that the user started; passes signals on and waits for the exit code
 *   keeper  a child subreaper: every orphan below it becomes its child
 *   runner  does the work; keeper_enter() returns only here
 *
 * When the runner ends or is killed (SIGKILL included), the keeper kills all that is left below it,
 * removes the state folders that were registered and not yet given up, and exits. When the front is
 * killed, a pipe tells the keeper, which does the same. When the keeper is killed, the runner dies
 * with it and the front, a subreaper too, kills what is left. So any single SIGKILL leaves nothing.
 *
 * Threads: call keeper_enter() while the program has only one.
 */
#ifndef SLUICE_RUNNER_KEEPER_H
#define SLUICE_RUNNER_KEEPER_H

#include <stdbool.h>

/* Returns in the runner process; the front exits with the runner's exit code (3 when it was
 * killed). From here on SIGINT, SIGTERM and SIGHUP only set a flag that keeper_interrupted() reads;
 * a second one, a second later or more, ends the runner at once (and the keeper tidies up). */
void keeper_enter(void);

/* The signal that asked the runner to stop, 0 while there was none. */
int keeper_interrupted(void);

/* Waits, but no longer than until a signal comes. */
void keeper_nap(int milliseconds);

/* Registers a folder (absolute path, short enough for PATH_MAX) that the keeper removes should the
 * runner not live to do so. One at a time; NULL gives it up. */
void keeper_state_dir(const char *path);
/* The same for the folder around it: marks of ports and of being busy are removed there. */
void keeper_state_base(const char *path);

#endif

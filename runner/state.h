/* state.h: folders and ports that a run has to itself.
 *
 * Server state (the data folders of databases, the WAL) lies in a folder of its own:
 *
 *   BASE/run-XXXXXX/owner      process id, its start time, boot id: who uses it
 *                  /main-db/   belongs to the server's account, 0700
 *                  /...
 *   BASE/ports/NNNNN           locked while a sluice uses that port
 *   BASE/busy                  locked (shared) while a comparison runs
 *
 * BASE is /var/tmp/sluice-state-<uid>, or --state DIR. It must be on a real disk (on tmpfs a flush
 * costs nothing, and the comparison would say nothing) and servers' users must be able to enter it.
 * Not thread-safe.
 */
#ifndef SLUICE_RUNNER_STATE_H
#define SLUICE_RUNNER_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "process.h"

/* Makes BASE when needed and checks it. base_option: --state, or NULL. Returns a path to free in
 * *base. -EXDEV: not a real disk; -EACCES: the account can't enter it; -EPERM: it is somebody
 * else's. */
int state_base(const char *base_option, const struct account *account, char **base,
               struct err *err);

/* Makes a fresh folder below base, owned by this process; registers it with the keeper. Free *dir.
 */
int state_create(const char *base, char **dir, struct err *err);

/* Makes dir/name for the account, mode 0700; a path to free in *path. */
int state_subdir(const char *dir, const char *name, const struct account *account, char **path,
                 struct err *err);

/* Removes the folder and takes it off the keeper's list; keep: only the latter. */
void state_remove(const char *dir, bool keep);

/* Removes the folders below base whose owner is dead; prints a line for each to out. Returns how
 * many were removed, or negative errno. A missing base is 0. */
int state_clean(const char *base, FILE *out, struct err *err);
/* The same for one folder (as a manifest names it): 1 removed, 0 in use, -ENOENT, -EINVAL: not such
 * a folder. */
int state_clean_one(const char *dir, FILE *out, struct err *err);

/* The default BASE without making it; free it. */
char *state_default_base(void);

/* File system type and device of the folder ("ext4", "/dev/vda"). */
void state_filesystem(const char *dir, char *type, size_t type_bytes, char *device,
                      size_t device_bytes);

/* A TCP port on 127.0.0.1 that nothing listens on and no other sluice has taken, below the range
 * the kernel takes for outgoing connections (or a client's socket could sit on it while a killed
 * server is down). Held until ports_give_back() or the end of this process. A port, or negative
 * errno. */
int port_take(const char *base, struct err *err);
/* The same for one port that is named. 0; -EADDRINUSE; -EMFILE: this process holds too many. */
int port_claim(const char *base, int port);
void ports_give_back(void); /* all of them */
/* Removes the marks of ports that no living process holds, and their folder when none is left. */
void ports_sweep(const char *base);

/* Joins those who run comparisons on this machine. True when another is there. */
bool busy_enter(const char *base);
/* Is another there now? */
bool busy_check(void);
void busy_leave(void);

/* Before the end: gives back ports and the busy mark, and removes base itself when it is the
 * default one and nobody else uses it. Frees base; NULL is allowed. */
void state_leave(char *base);

#endif

#include "prefix.h"

#include <errno.h>
#include <glob.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"

char *prefix_path(void)
{
    const char *set = getenv("SLUICE_PREFIX");
    return set && *set ? xstrdup(set) : xasprintf("/var/tmp/sluice-prefix-%u", (unsigned)geteuid());
}

static bool has_both(const char *bin)
{
    char *initdb = xasprintf("%s/initdb", bin), *postgres = xasprintf("%s/postgres", bin);
    bool both = access(initdb, X_OK) == 0 && access(postgres, X_OK) == 0;
    free(initdb);
    free(postgres);
    return both;
}

/* The one with the highest version number among those that the pattern finds; NULL: none. */
static char *newest(const char *pattern)
{
    glob_t found;
    char *best = NULL;
    if (glob(pattern, 0, NULL, &found) != 0) {
        return NULL;
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        if (has_both(found.gl_pathv[i]) && (!best || strverscmp(found.gl_pathv[i], best) > 0)) {
            free(best);
            best = xstrdup(found.gl_pathv[i]);
        }
    }
    globfree(&found);
    return best;
}

static char *from_path(void)
{
    const char *path = getenv("PATH");
    char *copy = xstrdup(path ? path : ""), *rest = copy, *found = NULL;
    for (const char *part; !found && (part = strsep(&rest, ":"));) {
        if (*part != '\0' && has_both(part)) {
            found = realpath(part, NULL);
        }
    }
    free(copy);
    return found;
}

int prefix_find_postgres(char **bin, struct err *err)
{
    const char *set = getenv("SLUICE_POSTGRES_BIN");
    *bin = NULL;
    if (set && *set) {
        if (!has_both(set)) {
            return err_set(err, -ENOENT,
                           "SLUICE_POSTGRES_BIN=%s: that folder lacks initdb or postgres", set);
        }
        *bin = xstrdup(set);
        return 0;
    }
    *bin = newest("/usr/lib/postgresql/*/bin");
    if (!*bin) {
        *bin = from_path();
    }
    if (*bin) {
        return 0;
    }
    char *prefix = prefix_path();
    char *unpacked = xasprintf("%s/postgres/bin", prefix);
    int rc = 0;
    if (has_both(unpacked)) {
        *bin = unpacked;
        unpacked = NULL;
    } else {
        rc = err_set(err, -ENOENT,
                     "no PostgreSQL server was found (initdb and postgres): not below "
                     "/usr/lib/postgresql, not in PATH, not in %s; run scripts/deps, which unpacks "
                     "one there, or name its folder in SLUICE_POSTGRES_BIN",
                     prefix);
    }
    free(unpacked);
    free(prefix);
    return rc;
}

/* folder/name when it can be run, else NULL. */
static char *runnable(const char *folder, const char *name)
{
    char *path = xasprintf("%s/%s", folder, name);
    if (access(path, X_OK) == 0) {
        return path;
    }
    free(path);
    return NULL;
}

static char *runnable_in_path(const char *name)
{
    const char *path = getenv("PATH");
    char *copy = xstrdup(path ? path : ""), *rest = copy, *found = NULL;
    for (const char *part; !found && (part = strsep(&rest, ":"));) {
        found = *part != '\0' ? runnable(part, name) : NULL;
    }
    free(copy);
    return found;
}

int prefix_find_valkey(char **program, struct err *err)
{
    static const char *const names[] = {"valkey-server", "redis-server"};
    const char *set = getenv("SLUICE_VALKEY_BIN");
    bool only_set = set && *set;
    char *prefix = prefix_path();
    char *unpacked = xasprintf("%s/valkey/bin", prefix);
    int rc = 0;
    *program = NULL;
    for (size_t i = 0; !*program && i < 2; i++) {
        if (only_set) {
            *program = runnable(set, names[i]);
            continue;
        }
        *program = runnable("/usr/bin", names[i]);
        *program = *program ? *program : runnable_in_path(names[i]);
        *program = *program ? *program : runnable(unpacked, names[i]);
    }
    if (!*program && only_set) {
        rc = err_set(err, -ENOENT,
                     "SLUICE_VALKEY_BIN=%s: that folder has neither valkey-server nor redis-server",
                     set);
    } else if (!*program) {
        rc =
            err_set(err, -ENOENT,
                    "no Valkey server was found (valkey-server, or redis-server in its place): not "
                    "in /usr/bin, PATH or %s; run scripts/deps, which unpacks one there, or name "
                    "its folder in SLUICE_VALKEY_BIN",
                    prefix);
    }
    free(unpacked);
    free(prefix);
    return rc;
}

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

/* A folder of its own on the disk that TMPDIR names, for tests that need a real one. */
#ifndef WAL_TEST_FOLDER_H
#define WAL_TEST_FOLDER_H

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static inline const char *folder_new(void)
{
    static char path[4096];
    const char *base = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/wal-test-XXXXXX", base != NULL ? base : "/var/tmp");
    assert_non_null(mkdtemp(path));
    strncat(path, "/log", sizeof path - strlen(path) - 1);
    return path;
}

static inline void folder_remove(const char *path)
{
    char name[8192];
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        unlink(name);
    }
    if (dir != NULL) {
        closedir(dir);
    }
    rmdir(path);
    snprintf(name, sizeof name, "%s", path);
    *strrchr(name, '/') = '\0';
    rmdir(name);
}

#endif

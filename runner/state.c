#include "state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "keeper.h"

char *state_default_base(void)
{
    return xasprintf("/var/tmp/sluice-state-%u", (unsigned)geteuid());
}

/* ---- the base ---- */

/* The folder that is there already, of those in which path lies or will lie. */
static char *nearest(const char *path)
{
    char *place = xstrdup(path), *slash;
    while (access(place, F_OK) < 0 && (slash = strrchr(place, '/'))) {
        slash[slash == place ? 1 : 0] = '\0'; /* "/" is always there */
    }
    if (access(place, F_OK) < 0) {
        free(place);
        place = xstrdup(".");
    }
    return place;
}

/* Before the folder is made: one that is refused must not be left there. */
static int check_disk(const char *path, struct err *err)
{
    char *place = nearest(path);
    struct statfs facts;
    int rc = 0;
    if (statfs(place, &facts) < 0) {
        rc = err_set(err, -errno, "%s: %s", place, strerror(errno));
    } else if (facts.f_type == TMPFS_MAGIC || facts.f_type == RAMFS_MAGIC) {
        rc = err_set(err, -EXDEV,
                     "%s lies in memory (tmpfs), where a flush costs nothing and a comparison says "
                     "nothing: name a folder on a disk with --state DIR",
                     path);
    }
    free(place);
    return rc;
}

/* Asks in the only way that counts: a child becomes that account and tries. */
static int check_enter(const char *base, const struct account *account, struct err *err)
{
    if (!account->drop) {
        return 0;
    }
    pid_t pid = fork();
    if (pid < 0) {
        return err_set(err, -errno, "fork: %s", strerror(errno));
    }
    if (pid == 0) {
        bool entered = setresgid(account->gid, account->gid, account->gid) == 0 &&
                       setresuid(account->uid, account->uid, account->uid) == 0 && chdir(base) == 0;
        _exit(entered ? 0 : 1);
    }
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return 0;
    }
    return err_set(err, -EACCES,
                   "%s cannot be entered by user %u, as whom the servers run: name another folder "
                   "with --state DIR, or give every folder above it permission x for others",
                   base, (unsigned)account->uid);
}

int state_base(const char *base_option, const struct account *account, char **base, struct err *err)
{
    char *path = base_option ? xstrdup(base_option) : state_default_base();
    *base = NULL;
    bool made = false;
    struct stat facts;
    int rc = check_disk(path, err);
    if (rc < 0) {
        goto fail;
    }
    /* 0711: servers of another user pass through; what lies inside is closed by itself. */
    if (mkdir(path, 0711) == 0) {
        chmod(path, 0711); /* whatever the umask says */
        made = true;
    } else if (errno == ENOENT) {
        rc = file_mkdirs(path, 0711, err);
    } else if (errno != EEXIST) {
        rc = err_set(err, -errno, "%s cannot be made: %s; name another folder with --state DIR",
                     path, strerror(errno));
    }
    if (rc < 0) {
        goto fail;
    }
    if (lstat(path, &facts) < 0) {
        rc = err_set(err, -errno, "%s: %s", path, strerror(errno));
        goto fail;
    }
    /* The default lies where anybody may make folders, so a foreign one must not be trusted. */
    if (!base_option && (!S_ISDIR(facts.st_mode) || facts.st_uid != geteuid())) {
        rc = err_set(err, -EPERM,
                     "%s is not a folder of this user: remove it, or name another with --state DIR",
                     path);
        goto fail;
    }
    *base = realpath(path, NULL);
    if (!*base) {
        rc = err_set(err, -errno, "%s: %s", path, strerror(errno));
        goto fail;
    }
    rc = check_enter(*base, account, err);
    if (rc < 0 && made) {
        rmdir(*base);
    }
    if (rc < 0) {
        free(*base);
        *base = NULL;
    } else {
        keeper_state_base(*base);
    }
fail:
    free(path);
    return rc;
}

void state_filesystem(const char *dir, char *type, size_t type_bytes, char *device,
                      size_t device_bytes)
{
    snprintf(type, type_bytes, "unknown");
    snprintf(device, device_bytes, "unknown");
    struct stat facts;
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    if (!mounts || stat(dir, &facts) < 0) {
        if (mounts) {
            fclose(mounts);
        }
        return;
    }
    char *line = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, mounts) > 0) {
        unsigned major_number, minor_number;
        char found_type[64], found_device[256];
        const char *rest = strstr(line, " - ");
        if (!rest || sscanf(line, "%*d %*d %u:%u", &major_number, &minor_number) != 2 ||
            makedev(major_number, minor_number) != facts.st_dev ||
            sscanf(rest, " - %63s %255s", found_type, found_device) != 2) {
            continue;
        }
        snprintf(type, type_bytes, "%s", found_type);
        snprintf(device, device_bytes, "%s", found_device);
    }
    free(line);
    fclose(mounts);
}

/* ---- who owns a folder ---- */

/* Field 22 of /proc/PID/stat: with it a process id that was given out again is not mistaken. */
static unsigned long long start_time(long pid)
{
    char path[64], line[512];
    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) {
        return 0;
    }
    size_t len = fread(line, 1, sizeof(line) - 1, file);
    fclose(file);
    line[len] = '\0';
    const char *rest = strrchr(line, ')');
    unsigned long long ticks = 0;
    if (!rest || sscanf(rest + 1,
                        " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                        "%*d %llu",
                        &ticks) != 1) {
        return 0;
    }
    return ticks;
}

static void boot_id(char id[40])
{
    id[0] = '\0';
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file) {
        if (fscanf(file, "%39s", id) != 1) {
            id[0] = '\0';
        }
        fclose(file);
    }
}

static int write_owner(const char *dir, struct err *err)
{
    char boot[40];
    boot_id(boot);
    char *path = xasprintf("%s/owner", dir);
    char *text =
        xasprintf("sluice-state 1 %ld %llu %s\n", (long)getpid(), start_time((long)getpid()), boot);
    int rc = file_write(path, text, strlen(text), err);
    free(text);
    free(path);
    return rc;
}

/* 1: in use; 0: its owner is dead; -EINVAL: no owner file, so no folder of ours. */
static int owner_alive(const char *dir)
{
    char *path = xasprintf("%s/owner", dir);
    FILE *file = fopen(path, "re");
    free(path);
    if (!file) {
        return -EINVAL;
    }
    long pid;
    unsigned long long ticks;
    char boot[40], now[40];
    int got = fscanf(file, "sluice-state 1 %ld %llu %39s", &pid, &ticks, boot);
    fclose(file);
    if (got != 3) {
        return -EINVAL;
    }
    boot_id(now);
    return strcmp(boot, now) == 0 && start_time(pid) == ticks;
}

int state_create(const char *base, char **dir, struct err *err)
{
    char *path = xasprintf("%s/run-XXXXXX", base);
    *dir = NULL;
    if (!mkdtemp(path)) {
        int rc = err_set(err, -errno, "no folder can be made in %s: %s", base, strerror(errno));
        free(path);
        return rc;
    }
    keeper_state_dir(path);
    chmod(path, 0711);
    int rc = write_owner(path, err);
    if (rc < 0) {
        state_remove(path, false);
        free(path);
        return rc;
    }
    *dir = path;
    return 0;
}

int state_subdir(const char *dir, const char *name, const struct account *account, char **path,
                 struct err *err)
{
    *path = xasprintf("%s/%s", dir, name);
    if (mkdir(*path, 0700) < 0 || (account->drop && chown(*path, account->uid, account->gid) < 0)) {
        return err_set(err, -errno, "%s cannot be made: %s", *path, strerror(errno));
    }
    return 0;
}

void state_remove(const char *dir, bool keep)
{
    if (!keep) {
        struct err err = {0};
        if (file_remove_tree(dir, &err) < 0) {
            fprintf(stderr, "sluice: %s\n", err.text);
        }
    }
    keeper_state_dir(NULL);
}

int state_clean_one(const char *dir, FILE *out, struct err *err)
{
    struct stat facts;
    if (lstat(dir, &facts) < 0) {
        return -ENOENT;
    }
    if (!S_ISDIR(facts.st_mode) || facts.st_uid != geteuid()) {
        return -EINVAL;
    }
    int alive = owner_alive(dir);
    if (alive != 0) {
        if (alive > 0) {
            fprintf(out, "left alone, in use: %s\n", dir);
        }
        return alive > 0 ? 0 : alive;
    }
    int rc = file_remove_tree(dir, err);
    if (rc < 0) {
        return rc;
    }
    fprintf(out, "removed: %s\n", dir);
    return 1;
}

/* BASE/run-XXXXXX.NAME.log, which `sluice with` writes beside its folder: 1: removed. */
static int clean_log(const char *path, FILE *out)
{
    size_t len = strlen(path);
    struct stat facts;
    if (len < 4 || strcmp(path + len - 4, ".log") != 0 || lstat(path, &facts) < 0 ||
        !S_ISREG(facts.st_mode) || facts.st_uid != geteuid()) {
        return 0;
    }
    const char *name = strrchr(path, '/');
    char *dir = xasprintf("%.*s", (int)strcspn(name, ".") + (int)(name - path), path);
    bool held = owner_alive(dir) > 0;
    free(dir);
    if (held || unlink(path) < 0) {
        return 0;
    }
    fprintf(out, "removed: %s\n", path);
    return 1;
}

int state_clean(const char *base, FILE *out, struct err *err)
{
    DIR *folder = opendir(base);
    if (!folder) {
        return errno == ENOENT ? 0 : err_set(err, -errno, "%s: %s", base, strerror(errno));
    }
    int removed = 0;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        if (strncmp(entry->d_name, "run-", 4) != 0) {
            continue;
        }
        char *path = xasprintf("%s/%s", base, entry->d_name);
        int rc = clean_log(path, out);
        if (rc == 0) {
            rc = state_clean_one(path, out, err);
        }
        free(path);
        if (rc < 0 && rc != -ENOENT && rc != -EINVAL) {
            closedir(folder);
            return rc;
        }
        removed += rc > 0;
    }
    closedir(folder);
    ports_sweep(base);
    return removed;
}

/* ---- the busy mark ---- */

static int busy_fd = -1;

/* Everybody holds the lock shared; who could have it alone is alone. */
bool busy_check(void)
{
    if (busy_fd < 0) {
        return false;
    }
    if (flock(busy_fd, LOCK_EX | LOCK_NB) == 0) {
        flock(busy_fd, LOCK_SH);
        return false;
    }
    /* A failed conversion may have given up the shared lock; whoever asks at this moment has it
     * alone, but not for long. */
    flock(busy_fd, LOCK_SH);
    return true;
}

bool busy_enter(const char *base)
{
    char *path = xasprintf("%s/busy", base);
    struct stat ours, there;
    bool contended = false, current = false;
    for (int tries = 0; tries < 10 && !current; tries++) {
        busy_leave();
        contended = false;
        busy_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (busy_fd < 0) {
            break;
        }
        if (flock(busy_fd, LOCK_SH | LOCK_NB) < 0) {
            contended = true; /* somebody is just asking whether he is alone, so he is there */
            flock(busy_fd, LOCK_SH);
        }
        /* One who leaves removes the file, and a lock on a removed file is seen by nobody. */
        current =
            fstat(busy_fd, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino;
    }
    free(path);
    return busy_check() || (contended && current);
}

void busy_leave(void)
{
    if (busy_fd >= 0) {
        close(busy_fd);
        busy_fd = -1;
    }
}

void state_leave(char *base)
{
    if (!base) {
        return;
    }
    ports_give_back();
    ports_sweep(base);
    busy_leave();
    char *standard = state_default_base(), *path = xasprintf("%s/busy", base);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            unlink(path); /* nobody has it */
        }
        close(fd);
    }
    if (strcmp(base, standard) == 0) {
        rmdir(base); /* fails while another has a folder or a mark there: as it should */
    }
    keeper_state_base(NULL);
    free(path);
    free(standard);
    free(base);
}

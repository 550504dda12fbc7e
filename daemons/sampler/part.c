#include "part.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"

/* Start times come in ticks of 10 ms, and the wall clock may be slewed while the machine runs. */
enum { START_SLACK_US = 2000000 };

int part_parse(const char *text, struct part *part, struct err *err)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    size_t who_bytes = strspn(text, allowed);
    if (who_bytes == 0 || text[who_bytes] != '=' || text[who_bytes + 1] == '\0')
        return err_set(err, -EINVAL,
                       "--watch=%s: it takes a name, \"=\" and the path of a pid file, such as "
                       "worker=pids/worker",
                       text);
    *part = (struct part){.who = xstrdup(text), .pid_file = xstrdup(text + who_bytes + 1)};
    part->who[who_bytes] = '\0';
    return 0;
}

void part_free(struct part *part)
{
    free(part->who);
    free(part->pid_file);
    *part = (struct part){0};
}

int64_t part_boot_wall_us(void)
{
    struct timespec since_boot;
    clock_gettime(CLOCK_BOOTTIME, &since_boot);
    return clock_wall_us() - (since_boot.tv_sec * US_PER_S + since_boot.tv_nsec / NS_PER_US);
}

/* The pid in the file, 0 when there is none; *changed: it was written anew since the last look. */
static pid_t read_pid_file(struct part *part, bool *changed)
{
    *changed = true;
    int fd = open(part->pid_file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    char text[32];
    struct stat stat;
    ssize_t len = read(fd, text, sizeof(text) - 1);
    bool known = fstat(fd, &stat) == 0;
    close(fd);
    if (len <= 0 || !known)
        return 0;
    text[len] = '\0';
    char *end;
    errno = 0;
    long pid = strtol(text, &end, 10);
    if (errno != 0 || end == text || (*end != '\n' && *end != '\0') || pid <= 0 || pid > INT32_MAX)
        return 0;
    *changed = pid != part->pid || stat.st_ino != part->inode ||
               stat.st_mtim.tv_sec != part->written.tv_sec ||
               stat.st_mtim.tv_nsec != part->written.tv_nsec;
    part->written = stat.st_mtim;
    part->inode = stat.st_ino;
    return (pid_t)pid;
}

pid_t part_resolve(struct part *part, const struct proc_table *table, int64_t boot_wall_us)
{
    if (part->pid_file) {
        bool changed;
        part->pid = read_pid_file(part, &changed);
        if (changed)
            part->start_ticks = 0;
    }
    const struct proc_stat *stat = part->pid > 0 ? proc_table_find(table, part->pid) : NULL;
    if (!stat)
        return 0;
    if (part->start_ticks != 0)
        return stat->start_ticks == part->start_ticks ? part->pid : 0;
    if (part->pid_file) {
        int64_t tick_us = US_PER_S / sysconf(_SC_CLK_TCK);
        int64_t began_us = boot_wall_us + (int64_t)stat->start_ticks * tick_us;
        int64_t written_us = part->written.tv_sec * US_PER_S + part->written.tv_nsec / NS_PER_US;
        if (began_us > written_us + START_SLACK_US)
            return 0;
    }
    part->start_ticks = stat->start_ticks;
    return part->pid;
}

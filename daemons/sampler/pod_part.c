#include "pod_part.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cgroup.h"

/* At 50 ms a look: no disk keeps all threads of a healthy part waiting for longer than this. */
enum { STUCK_LOOKS = 6 };

void pod_part_init(struct pod_part *part, const char *proc_root, const char *cgroup_root,
                   pid_t self)
{
    *part = (struct pod_part){.proc_root = proc_root, .cgroup_root = cgroup_root, .self = self};
    if (proc_read_cgroup(proc_root, self, part->own_group, sizeof(part->own_group)) < 0)
        part->own_group[0] = '\0';
    part->groups_tell = cgroup_is_container(part->own_group);
}

static bool belongs(const struct pod_part *part, pid_t pid)
{
    char group[CGROUP_TEXT_BYTES];
    if (pid == part->self)
        return false;
    if (!part->groups_tell)
        return true;
    return proc_read_cgroup(part->proc_root, pid, group, sizeof(group)) > 0 &&
           strcmp(group, part->own_group) != 0;
}

static bool has_ended(const struct proc_stat *stat)
{
    return stat->state == 'Z' || stat->state == 'X';
}

void pod_part_read_group(struct pod_part *part)
{
    if (part->main == 0)
        return;
    if (proc_read_cgroup(part->proc_root, part->main, part->group, sizeof(part->group)) < 0)
        part->group[0] = '\0';
}

bool pod_part_find(struct pod_part *part)
{
    struct proc_table table = {0};
    const struct proc_stat *oldest = NULL;
    if (part->main != 0 || proc_table_read(&table, part->proc_root) < 0)
        return false;
    for (size_t i = 0; i < table.count; i++) {
        const struct proc_stat *stat = &table.items[i];
        if (stat->parent != 0 || has_ended(stat) || !belongs(part, stat->pid))
            continue;
        if (!oldest || stat->start_ticks < oldest->start_ticks)
            oldest = stat;
    }
    if (oldest) {
        part->main = oldest->pid;
        part->start_ticks = oldest->start_ticks;
        part->stuck_looks = 0;
        pod_part_read_group(part);
    }
    proc_table_free(&table);
    return part->main != 0;
}

static bool all_threads_wait(const struct pod_part *part)
{
    char path[512], text[1024];
    int path_bytes = snprintf(path, sizeof(path), "%s/%d/task", part->proc_root, (int)part->main);
    DIR *folder = path_bytes > 0 && (size_t)path_bytes < sizeof(path) ? opendir(path) : NULL;
    if (!folder)
        return false;
    bool all = true;
    for (const struct dirent *entry; all && (entry = readdir(folder));) {
        struct proc_stat stat;
        if (entry->d_name[0] == '.')
            continue;
        char *file = xasprintf("%s/%s/stat", path, entry->d_name);
        ssize_t len = proc_read_text(file, text, sizeof(text));
        free(file);
        all = len > 0 && proc_parse_stat(text, (size_t)len, &stat) == 0 && stat.state == 'D';
    }
    closedir(folder);
    return all;
}

enum main_state pod_part_look(struct pod_part *part)
{
    struct proc_stat stat;
    if (part->main == 0)
        return MAIN_GONE;
    if (proc_read_stat(part->proc_root, part->main, &stat) < 0 || has_ended(&stat) ||
        stat.start_ticks != part->start_ticks) {
        part->main = 0;
        return MAIN_GONE;
    }
    int frozen = cgroup_frozen(part->cgroup_root, part->group);
    if (frozen == 1 || stat.state == 'T') /* T: SIGSTOP */
        return MAIN_FROZEN;
    bool stuck = frozen < 0 && stat.state == 'D' &&
                 (part->stuck_looks == 0 || stat.own_ticks == part->stuck_ticks) &&
                 all_threads_wait(part);
    part->stuck_ticks = stat.own_ticks;
    part->stuck_looks = stuck ? part->stuck_looks + 1 : 0;
    if (!stuck)
        return MAIN_RUNS;
    return part->stuck_looks >= STUCK_LOOKS ? MAIN_FROZEN : MAIN_STUCK;
}

int pod_part_processes(const struct pod_part *part, struct proc_table *table)
{
    int rc = proc_table_read(table, part->proc_root);
    size_t kept = 0;
    for (size_t i = 0; rc == 0 && i < table->count; i++)
        if (belongs(part, table->items[i].pid))
            table->items[kept++] = table->items[i];
    if (rc == 0)
        table->count = kept;
    return rc;
}

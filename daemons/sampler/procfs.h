/* procfs.h: what the kernel tells in /proc, read strictly. Source: proc(5).
 *
 * The parsers are pure functions of a text; the readers take the folder where proc is mounted, so
 * that tests bring one of their own. A process may end between any two reads: that is -ENOENT or
 * -ESRCH here, never a wrong figure. No state, thread-safe.
 */
#ifndef SLUICE_SAMPLER_PROCFS_H
#define SLUICE_SAMPLER_PROCFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* One /proc/PID/stat. CPU in clock ticks (sysconf(_SC_CLK_TCK)). */
struct proc_stat {
    pid_t pid;
    pid_t parent;
    char state;            /* 'R', 'S', 'D', 'Z' (ended, not yet reaped), ... */
    uint64_t own_ticks;    /* user and system time of all its threads */
    uint64_t reaped_ticks; /* the same of ended children it has waited for, and of theirs */
    uint64_t start_ticks;  /* since boot; with pid the identity of a process */
    uint64_t rss_pages;
};

struct proc_io {
    uint64_t read_bytes;  /* fetched from block devices; children that were reaped included */
    uint64_t write_bytes; /* sent, or dirtied to be sent, to block devices; likewise */
};

/* 0; -EBADMSG when the text is cut short or is not what proc(5) says. */
int proc_parse_stat(const char *text, size_t len, struct proc_stat *stat);
int proc_parse_io(const char *text, size_t len, struct proc_io *io);
int proc_parse_pss(const char *text, size_t len, uint64_t *bytes); /* smaps_rollup */

/* 0; -ENOENT, -ESRCH: it has ended; -EACCES, -EPERM: not for us; -EBADMSG. */
int proc_read_stat(const char *proc_root, pid_t pid, struct proc_stat *stat);
int proc_read_io(const char *proc_root, pid_t pid, struct proc_io *io);
int proc_read_pss(const char *proc_root, pid_t pid, uint64_t *bytes);

/* All interfaces but lo of the network namespace that proc_root shows. */
struct proc_net {
    uint64_t rx_bytes;
    uint64_t tx_bytes;
};
int proc_parse_net(const char *text, size_t len, struct proc_net *net); /* /proc/net/dev */
int proc_read_net(const char *proc_root, struct proc_net *net);

/* /proc/PID/cgroup as it is, NUL-terminated: its length, or an error as above. */
ssize_t proc_read_cgroup(const char *proc_root, pid_t pid, char *text, size_t text_bytes);

/* For files of this kind elsewhere: up to text_bytes of one, its length or a negative errno; the
 * number behind name at the start of a line. */
ssize_t proc_read_text(const char *path, char *text, size_t text_bytes);
bool proc_find_number(const char *text, size_t len, const char *name, uint64_t *value);

/* All processes of one moment, sorted by pid. {0} before first use. */
struct proc_table {
    struct proc_stat *items;
    size_t count, capacity;
};
/* 0; negative errno when proc_root cannot be listed. Processes that end meanwhile are left out. */
int proc_table_read(struct proc_table *table, const char *proc_root);
const struct proc_stat *proc_table_find(const struct proc_table *table, pid_t pid);
void proc_table_free(struct proc_table *table);

#endif

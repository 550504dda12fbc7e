/* fake_proc.h: a folder that looks like /proc to procfs.h, tree.h and netdiag.h. */
#ifndef SLUICE_SAMPLER_FAKE_PROC_H
#define SLUICE_SAMPLER_FAKE_PROC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct fake_process {
    pid_t pid, parent;
    char state; /* 0: 'S' */
    uint64_t own_ticks, reaped_ticks, start_ticks, rss_pages;
    bool no_io; /* /proc/PID/io is missing, as for a zombie */
    uint64_t read_bytes, write_bytes;
    uint64_t pss_kib;      /* 0: no smaps_rollup */
    uint64_t socket_inode; /* 0: no socket */
    const char *cgroup;    /* text of its cgroup file; NULL: none */
};

char *fake_proc_new(void); /* the folder's path */
void fake_proc_free(char *proc_root);
void fake_proc_host(const char *proc_root, const char *line);
void fake_proc_net(const char *proc_root, uint64_t rx_bytes, uint64_t tx_bytes); /* of eth0 */
void fake_proc_put(const char *proc_root, const struct fake_process *process);
void fake_proc_end(const char *proc_root, pid_t pid); /* gone without a trace */

#endif

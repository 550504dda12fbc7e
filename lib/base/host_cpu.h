/* host_cpu.h: how much of all cores was used, by whomever, from /proc/stat (proc(5)).
 *
 * Idle time, waiting for a disk included, is measured by the kernel to the microsecond wherever it
 * stops the tick of an idle core; user and system time are guessed, a tick for whatever runs as one
 * comes. Work that is paced (500 requests a second are 2 ms apart, a tick 4 ms) can meet every
 * tick, or none: then the guess is wrong by half a core and more, either way, and the fields do not
 * add up to the time that went by. So what was used is what was not idle in the time that the clock
 * gives.
 *
 * Stateless; any thread.
 */
#ifndef SLUICE_BASE_HOST_CPU_H
#define SLUICE_BASE_HOST_CPU_H

#include <stdint.h>

/* Ticks (sysconf(_SC_CLK_TCK) a second) since boot, of all cores together. */
struct host_cpu {
    uint64_t idle;
    uint64_t iowait;
    uint64_t steal;
    unsigned cores;  /* that are on */
    int64_t read_ns; /* clock_mono_ns() */
};

/* Of all cores, 100 is all of them; they may miss 100 together by what is told late. */
struct host_cpu_shares {
    double busy_pct; /* not idle, not waiting for a disk, not stolen; 0 to 100 */
    double steal_pct;
    double iowait_pct;
    double tick_pct; /* that one tick of work is */
};

/* proc_root: "/proc". 0; -ENOENT, -EACCES and the like; -EBADMSG: not what proc(5) says. */
int host_cpu_read(const char *proc_root, struct host_cpu *cpu);

/* Between two looks. -ENODATA: no time is between them; all shares are NAN then. */
int host_cpu_between(const struct host_cpu *from, const struct host_cpu *to,
                     struct host_cpu_shares *shares);

#endif

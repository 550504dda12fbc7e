#include "base/host_cpu.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

enum { USER, NICE, SYSTEM, IDLE, IOWAIT, IRQ, SOFTIRQ, STEAL, FIELDS };

/* "cpu  USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL ...", the sum of all cores. */
static int parse_sum(const char *line, struct host_cpu *cpu)
{
    unsigned long long field[FIELDS];
    if (strncmp(line, "cpu ", 4) != 0 ||
        sscanf(line + 4, "%llu %llu %llu %llu %llu %llu %llu %llu", &field[USER], &field[NICE],
               &field[SYSTEM], &field[IDLE], &field[IOWAIT], &field[IRQ], &field[SOFTIRQ],
               &field[STEAL]) != FIELDS) {
        return -EBADMSG;
    }
    *cpu = (struct host_cpu){.idle = field[IDLE], .iowait = field[IOWAIT], .steal = field[STEAL]};
    return 0;
}

int host_cpu_read(const char *proc_root, struct host_cpu *cpu)
{
    char path[512], *line = NULL;
    size_t line_bytes = 0;
    int len = snprintf(path, sizeof(path), "%s/stat", proc_root);
    if (len < 0 || (size_t)len >= sizeof(path)) {
        return -ENAMETOOLONG;
    }
    FILE *file = fopen(path, "re");
    if (!file) {
        return -errno;
    }
    int rc = getline(&line, &line_bytes, file) < 0 ? -EBADMSG : parse_sum(line, cpu);
    while (rc == 0 && getline(&line, &line_bytes, file) > 0 && strncmp(line, "cpu", 3) == 0 &&
           isdigit((unsigned char)line[3])) {
        cpu->cores++;
    }
    if (rc == 0) {
        cpu->read_ns = clock_mono_ns();
        rc = cpu->cores > 0 ? 0 : -EBADMSG;
    }
    free(line);
    fclose(file);
    return rc;
}

int host_cpu_between(const struct host_cpu *from, const struct host_cpu *to,
                     struct host_cpu_shares *shares)
{
    double span_s = (double)(to->read_ns - from->read_ns) / (double)NS_PER_S;
    double all = span_s * (double)sysconf(_SC_CLK_TCK) * to->cores;
    *shares = (struct host_cpu_shares){NAN, NAN, NAN, NAN};
    if (!(all > 0)) {
        return -ENODATA;
    }
    /* Signed: iowait of a core may be corrected downwards (proc(5)). */
    double iowait = (double)to->iowait - (double)from->iowait;
    double steal = (double)to->steal - (double)from->steal;
    double unused = (double)to->idle - (double)from->idle + iowait + steal;
    *shares = (struct host_cpu_shares){.busy_pct = fmin(100, fmax(0, 100 * (all - unused) / all)),
                                       .steal_pct = fmax(0, 100 * steal / all),
                                       .iowait_pct = fmax(0, 100 * iowait / all),
                                       .tick_pct = 100 / all};
    return 0;
}

#include "sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/host_cpu.h"
#include "base/log.h"
#include "disk.h"
#include "netdiag.h"
#include "procfs.h"
#include "tree.h"

/* CPU comes in ticks of 10 ms: over a shorter span a percentage would be mostly rounding. */
enum { PERCENT_SPAN_NS = 200000000 };

struct sampler {
    const char *proc_root;
    struct part *parts;
    size_t count;
    struct metrics *metrics;
    struct metrics_event event;
    struct proc_table table;
    struct tree **trees;
    struct tree_sample *samples;
    const char *disk; /* its name; NULL: none is looked at */
    struct netdiag *netdiag;
    bool net_known;
    bool net_complained;
    /* What percentages are counted from. */
    int64_t base_ns; /* 0: nothing yet */
    struct host_cpu base_host;
    uint64_t *base_ticks;
};

struct sampler *sampler_new(const char *proc_root, struct part *parts, size_t count,
                            const char *disk, struct metrics *metrics)
{
    struct sampler *sampler = xcalloc(1, sizeof(*sampler));
    sampler->proc_root = proc_root;
    sampler->parts = parts;
    sampler->count = count;
    sampler->disk = disk;
    sampler->metrics = metrics;
    sampler->trees = xcalloc(count + 1, sizeof(struct tree *));
    sampler->samples = xcalloc(count + 1, sizeof(struct tree_sample));
    sampler->base_ticks = xcalloc(count + 1, sizeof(uint64_t));
    for (size_t i = 0; i < count; i++)
        sampler->trees[i] = tree_new(proc_root);
    sampler->netdiag = netdiag_new(proc_root, count);
    return sampler;
}

void sampler_free(struct sampler *sampler)
{
    if (!sampler)
        return;
    for (size_t i = 0; i < sampler->count; i++)
        tree_free(sampler->trees[i]);
    netdiag_free(sampler->netdiag);
    proc_table_free(&sampler->table);
    metrics_event_free(&sampler->event);
    free(sampler->trees);
    free(sampler->samples);
    free(sampler->base_ticks);
    free(sampler);
}

static void look_at_network(struct sampler *sampler)
{
    struct netdiag_socket *sockets;
    size_t count;
    struct err err;
    sampler->net_known = netdiag_dump(&sockets, &count, &err) == 0;
    if (!sampler->net_known) {
        if (!sampler->net_complained)
            log_warning("%s", err.text);
        sampler->net_complained = true;
        return;
    }
    struct netdiag_owner *owners = xcalloc(sampler->count + 1, sizeof(*owners));
    for (size_t i = 0; i < sampler->count; i++) {
        owners[i].pids = tree_pids(sampler->trees[i], &owners[i].count);
        owners[i].generation = tree_generation(sampler->trees[i]);
    }
    netdiag_update(sampler->netdiag, sockets, count, owners);
    free(owners);
    free(sockets);
}

static void add_total(struct metrics_event *event, const char *field, bool known, uint64_t value)
{
    if (known)
        metrics_int(event, field, (int64_t)value);
    else
        metrics_json(event, field, "null");
}

static const char *memory_name(enum tree_memory_kind kind)
{
    switch (kind) {
    case TREE_MEMORY_NONE:
        return "none";
    case TREE_MEMORY_RSS:
        return "rss";
    case TREE_MEMORY_PSS:
        return "pss";
    case TREE_MEMORY_BOUND:
        return "rss_sum";
    }
    return "none";
}

static void write_part(struct sampler *sampler, size_t index, double span_ticks)
{
    const struct tree_sample *sample = &sampler->samples[index];
    const struct netdiag_totals *net = netdiag_totals(sampler->netdiag, index);
    struct metrics_event *event = &sampler->event;
    double used = (double)(sample->cpu_ticks - sampler->base_ticks[index]);
    metrics_begin(event, "os");
    metrics_string(event, "who", sampler->parts[index].who);
    metrics_double(event, "cpu_pct", span_ticks > 0 ? 100.0 * used / span_ticks : NAN);
    metrics_double(event, "cpu_s", (double)sample->cpu_ticks / (double)sysconf(_SC_CLK_TCK));
    metrics_int(event, "rss_bytes", (int64_t)sample->memory_bytes);
    metrics_string(event, "rss_kind", memory_name(sample->memory_kind));
    metrics_ms(event, "rss_age_ms", sample->memory_age_ns);
    add_total(event, "read_bytes", sample->io_known, sample->read_bytes);
    add_total(event, "write_bytes", sample->io_known, sample->write_bytes);
    add_total(event, "rx_bytes", sampler->net_known, net->rx_bytes);
    add_total(event, "tx_bytes", sampler->net_known, net->tx_bytes);
    metrics_int(event, "processes", sample->processes);
    metrics_write(sampler->metrics, event);
}

/* Totals since boot, of everybody's work on that disk. */
static void add_disk(struct sampler *sampler)
{
    struct disk_totals totals = {0};
    struct metrics_event *event = &sampler->event;
    if (!sampler->disk)
        return;
    bool known = disk_read(sampler->proc_root, sampler->disk, &totals) == 0;
    metrics_string(event, "disk", sampler->disk);
    add_total(event, "disk_read_bytes", known, totals.read_bytes);
    add_total(event, "disk_write_bytes", known, totals.write_bytes);
    add_total(event, "disk_flushes", known && totals.flushes_known, totals.flushes);
}

/* Steal and iowait are told apart from busy: the first was not ours to have, the second was idle.
 */
static void write_host(struct sampler *sampler, const struct host_cpu *host, bool spanned)
{
    struct host_cpu_shares shares = {NAN, NAN, NAN, NAN};
    double ours = 0;
    if (spanned)
        (void)host_cpu_between(&sampler->base_host, host, &shares);
    for (size_t i = 0; i < sampler->count; i++)
        ours += (double)(sampler->samples[i].cpu_ticks - sampler->base_ticks[i]);
    struct metrics_event *event = &sampler->event;
    double ours_pct = ours * shares.tick_pct;
    metrics_begin(event, "host");
    metrics_double(event, "busy_pct", shares.busy_pct);
    metrics_double(event, "steal_pct", shares.steal_pct);
    metrics_double(event, "iowait_pct", shares.iowait_pct);
    metrics_double(event, "ours_pct", ours_pct > 100 ? 100 : ours_pct);
    add_disk(sampler);
    metrics_write(sampler->metrics, event);
}

int sampler_tick(struct sampler *sampler, struct err *err)
{
    struct host_cpu host = {0};
    int rc = proc_table_read(&sampler->table, sampler->proc_root);
    if (rc == 0)
        rc = host_cpu_read(sampler->proc_root, &host);
    if (rc < 0)
        return err_set(err, rc, "cannot read %s: %s", sampler->proc_root, strerror(-rc));
    int64_t now_ns = clock_mono_ns(), boot_us = part_boot_wall_us();
    for (size_t i = 0; i < sampler->count; i++) {
        pid_t root = part_resolve(&sampler->parts[i], &sampler->table, boot_us);
        tree_update(sampler->trees[i], &sampler->table, root, now_ns, &sampler->samples[i]);
    }
    look_at_network(sampler);
    int64_t span_ns = now_ns - sampler->base_ns;
    bool spanned = sampler->base_ns != 0 && span_ns >= PERCENT_SPAN_NS;
    double span_ticks =
        spanned ? (double)span_ns / (double)NS_PER_S * (double)sysconf(_SC_CLK_TCK) : 0;
    for (size_t i = 0; i < sampler->count; i++)
        write_part(sampler, i, span_ticks);
    write_host(sampler, &host, spanned);
    if (spanned || sampler->base_ns == 0) {
        sampler->base_ns = now_ns;
        sampler->base_host = host;
        for (size_t i = 0; i < sampler->count; i++)
            sampler->base_ticks[i] = sampler->samples[i].cpu_ticks;
    }
    return 0;
}

/* What it took: processor, memory, disk, network of each part, the host, the sink's own statistics.
 */
#include <math.h>
#include <string.h>

#include "figures.h"

/* Totals so far that start again when a process is started again: rises count, and after a fall the
 * new value does. NAN when no sample holds one. */
struct counter {
    double total, last;
};

static void counter_add(struct counter *counter, double value)
{
    if (isnan(value))
        return;
    if (isnan(counter->total))
        counter->total = 0; /* what it had done before the first sample is none of the run's */
    else
        counter->total += value >= counter->last ? value - counter->last : value;
    counter->last = value;
}

struct level {
    double sum, peak;
    size_t count;
};

static void level_add(struct level *level, double value, bool in_mean)
{
    if (isnan(value))
        return;
    level->peak = fmax(level->peak, value);
    if (in_mean) {
        level->sum += value;
        level->count++;
    }
}

static double level_mean(const struct level *level)
{
    return level->count ? level->sum / (double)level->count : NAN;
}

static void one_part(struct figures *figures, const struct run *run, const struct part *part,
                     double thousands)
{
    const struct manifest *manifest = &run->manifest;
    struct level cpu = {.peak = NAN}, rss = {.peak = NAN}, cache = {.peak = NAN};
    struct counter cpu_s = {NAN, NAN}, reads = cpu_s, writes = cpu_s, rx = cpu_s, tx = cpu_s;
    for (size_t i = 0; i < part->count; i++) {
        const struct os_sample *sample = &part->samples[i];
        if (sample->ts_us > manifest->end_us)
            break;
        counter_add(&cpu_s, sample->cpu_s);
        counter_add(&reads, sample->read_bytes);
        counter_add(&writes, sample->write_bytes);
        counter_add(&rx, sample->rx_bytes);
        counter_add(&tx, sample->tx_bytes);
        if (sample->ts_us < manifest->start_us)
            continue;
        level_add(&cpu, sample->cpu_pct, sample->ts_us <= manifest->load_end_us);
        level_add(&rss, sample->rss_bytes, true);
        level_add(&cache, sample->cache_bytes, true);
    }
    const char *who = part->who;
    figures_set(figures, level_mean(&cpu), "part.%s.cpu_mean_pct", who);
    figures_set(figures, cpu.peak, "part.%s.cpu_peak_pct", who);
    figures_set(figures, cpu_s.total, "part.%s.cpu_s", who);
    figures_set(figures, level_mean(&rss), "part.%s.rss_mean_bytes", who);
    figures_set(figures, rss.peak, "part.%s.rss_peak_bytes", who);
    figures_set(figures, level_mean(&cache), "part.%s.cache_mean_bytes", who);
    figures_set(figures, cache.peak, "part.%s.cache_peak_bytes", who);
    figures_set(figures, reads.total, "part.%s.read_bytes", who);
    figures_set(figures, writes.total, "part.%s.write_bytes", who);
    figures_set(figures, rx.total, "part.%s.rx_bytes", who);
    figures_set(figures, tx.total, "part.%s.tx_bytes", who);
    if (thousands > 0)
        figures_set(figures, cpu_s.total / thousands, "part.%s.cpu_s_per_1000", who);
}

/* What parts in containers used of all cores, in percent: the sampler beside the runner, which
 * tells how busy the host was, does not see them. */
static double used_by_pods(const struct figures *figures, const struct run *run)
{
    double cores = json_number(json_get(run->manifest.json, "host"), "cores"), used = 0;
    for (size_t i = 0; i < run->part_count; i++) {
        double mean = figures_get(figures, "part.%s.cpu_mean_pct", run->parts[i].who);
        if (run->parts[i].from_pod && mean > 0 && cores > 0)
            used += mean / cores;
    }
    return used;
}

static void host(struct figures *figures, const struct run *run)
{
    const struct manifest *manifest = &run->manifest;
    struct level busy = {.peak = NAN}, steal = busy, iowait = busy, other = busy;
    for (size_t i = 0; i < run->host_count; i++) {
        const struct host_sample *sample = &run->host[i];
        if (sample->ts_us < manifest->start_us || sample->ts_us > manifest->load_end_us)
            continue;
        level_add(&busy, sample->busy_pct, true);
        level_add(&steal, sample->steal_pct, true);
        level_add(&iowait, sample->iowait_pct, true);
        level_add(&other, fmax(sample->busy_pct - sample->ours_pct, 0),
                  !isnan(sample->busy_pct) && !isnan(sample->ours_pct));
    }
    figures_set(figures, level_mean(&busy), "host.busy_pct");
    figures_set(figures, level_mean(&steal), "host.steal_pct");
    figures_set(figures, level_mean(&iowait), "host.iowait_pct");
    double rest = level_mean(&other) - used_by_pods(figures, run);
    figures_set(figures, rest < 0 ? 0 : rest, "host.other_pct"); /* NAN stays NAN */
}

/* ---- what 1,000 tasks cost ---- */

static double stat_rise(const struct run *run, const char *name)
{
    for (size_t i = 0; i < run->stat_count; i++)
        if (strcmp(run->stats[i].name, name) == 0)
            return run->stats[i].rise.total;
    return NAN;
}

/* What sinks' own counters tell of their logs: bytes written there, and flushes. */
static const struct {
    const char *sink, *bytes, *flushes; /* fields of sink_stats; NULL: there is none */
} own_counters[] = {
    {"wal", NULL, "flushes"},
    {"ingest", "wal_bytes", "wal_flushes"},
    {"valkey", "aof_current_bytes", NULL},
};

static void per_1000(struct figures *figures, const char *key, double total, double thousands)
{
    figures_set(figures, total, "%s", key);
    if (thousands > 0)
        figures_set(figures, total / thousands, "%s_per_1000", key);
}

/* The meter's own processes are none of what a sink costs; the main DB is what all of them have. */
static void cost_of_cpu(struct figures *figures, const struct run *run, double thousands)
{
    static const char *const sinks_own[] = {"api", "worker", "sink"}, *const meters[] = {"loadgen",
                                                                                         "sampler"};
    double sink_s = NAN, meter_s = NAN;
    for (size_t i = 0; i < run->part_count; i++) {
        const char *who = run->parts[i].who;
        double cpu_s = figures_get(figures, "part.%s.cpu_s", who);
        for (size_t k = 0; k < 3; k++)
            if (!isnan(cpu_s) && strcmp(who, sinks_own[k]) == 0)
                sink_s = isnan(sink_s) ? cpu_s : sink_s + cpu_s;
        for (size_t k = 0; k < 2; k++)
            if (!isnan(cpu_s) && strcmp(who, meters[k]) == 0)
                meter_s = isnan(meter_s) ? cpu_s : meter_s + cpu_s;
    }
    per_1000(figures, "cost.cpu_s", sink_s, thousands);
    per_1000(figures, "meter.cpu_s", meter_s, thousands);
}

static void cost(struct figures *figures, const struct run *run, double thousands)
{
    double payload = thousands * 1000 * json_number(run->manifest.json, "payload_bytes");
    double lines = 0;
    cost_of_cpu(figures, run, thousands);
    per_1000(figures, "disk.write_bytes", run->disk.write_bytes.total, thousands);
    per_1000(figures, "disk.flushes", run->disk.flushes.total, thousands);
    figures_set(figures, run->disk.read_bytes.total, "disk.read_bytes");
    if (payload > 0)
        figures_set(figures, run->disk.write_bytes.total / payload, "disk.write_amplification");
    per_1000(figures, "own.main_log_bytes", run->main_wal_bytes.total, thousands);
    per_1000(figures, "own.main_flushes", run->main_wal_flushes.total, thousands);
    for (size_t i = 0; i < sizeof(own_counters) / sizeof(own_counters[0]); i++) {
        if (strcmp(run->manifest.sink, own_counters[i].sink) != 0)
            continue;
        if (own_counters[i].bytes)
            per_1000(figures, "own.sink_log_bytes", stat_rise(run, own_counters[i].bytes),
                     thousands);
        if (own_counters[i].flushes)
            per_1000(figures, "own.sink_flushes", stat_rise(run, own_counters[i].flushes),
                     thousands);
    }
    for (size_t i = 0; i < run->file_count; i++)
        lines += (double)run->files[i].lines;
    figures_set(figures, lines, "meter.events");
}

/* ---- conditions ---- */

static void conditions(struct figures *figures, const struct run *run)
{
    const struct flush_times *times[] = {&run->flush_before, &run->flush_after};
    static const char *const names[] = {"before", "after"};
    for (size_t i = 0; i < 2; i++) {
        figures_set(figures, times[i]->n, "flush.%s_n", names[i]);
        figures_set(figures, times[i]->p50_us / 1e3, "flush.%s_p50_ms", names[i]);
        figures_set(figures, times[i]->p99_us / 1e3, "flush.%s_p99_ms", names[i]);
        figures_set(figures, times[i]->max_us / 1e3, "flush.%s_max_ms", names[i]);
    }
    figures_set(figures, run->before_busy_pct, "host.before_busy_pct");
    figures_set(figures, run->clock_ahead_ms, "clock.ahead_ms");
}

void figures_parts(struct figures *figures, const struct run *run)
{
    double thousands = figures_get(figures, "totals.durable") / 1000;
    for (size_t i = 0; i < run->part_count; i++)
        one_part(figures, run, &run->parts[i], thousands);
    host(figures, run);
    cost(figures, run, thousands);
    conditions(figures, run);
    for (size_t i = 0; i < run->stat_count; i++) {
        const struct stat_extremes *stat = &run->stats[i];
        figures_set(figures, stat->min, "stat.%s.min", stat->name);
        figures_set(figures, stat->max, "stat.%s.max", stat->name);
        figures_set(figures, stat->last, "stat.%s.last", stat->name);
    }
}

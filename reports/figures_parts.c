/* What it took: processor, memory, disk, network of each part, the host, the sink's own statistics.
 */
#include <math.h>

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
    if (thousands > 0) {
        figures_set(figures, cpu_s.total / thousands, "part.%s.cpu_s_per_1000", who);
        figures_set(figures, writes.total / thousands, "part.%s.write_bytes_per_1000", who);
    }
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

void figures_parts(struct figures *figures, const struct run *run)
{
    double thousands = figures_get(figures, "totals.durable") / 1000;
    for (size_t i = 0; i < run->part_count; i++)
        one_part(figures, run, &run->parts[i], thousands);
    host(figures, run);
    for (size_t i = 0; i < run->stat_count; i++) {
        const struct stat_extremes *stat = &run->stats[i];
        figures_set(figures, stat->min, "stat.%s.min", stat->name);
        figures_set(figures, stat->max, "stat.%s.max", stat->name);
        figures_set(figures, stat->last, "stat.%s.last", stat->name);
    }
}

#include "pod.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "cgroup.h"
#include "pod_end.h"
#include "pod_part.h"
#include "tree.h"

enum { PERCENT_SPAN_NS = 200000000, READY_PAUSE_NS = 100000000, SETTLE_US = 500000 };

const char pod_net_note[] =
    "all protocols, headers included, over every interface of the part's network namespace but "
    "lo; what its own processes say to each other is not in it";

enum pod_state {
    STARTING, /* not up yet, and nothing is wrong with that */
    UP,
    FAULTY, /* a fault was written, and nothing since */
};

enum figures_source { SOURCE_UNKNOWN, SOURCE_CGROUP, SOURCE_PROC };

struct pod {
    struct pod_settings settings;
    struct pod_part part;
    enum pod_state state;
    const char *what;      /* FAULTY: what happened */
    int64_t main_since_us; /* when its main process was first seen */
    int64_t well_us;       /* the last look at which it ran */
    int64_t ready_due_ns;

    enum figures_source source, disk;    /* disk: of a group's figures */
    struct cgroup_figures group, before; /* of this incarnation; of all before it, summed up */
    struct tree *tree;
    struct proc_table table;
    int64_t base_ns; /* what the percentage is counted from; 0: nothing yet */
    double base_cpu_s;
    struct metrics_event event;
};

struct pod *pod_new(const struct pod_settings *settings)
{
    struct pod *pod = xcalloc(1, sizeof(*pod));
    pod->settings = *settings;
    pod_part_init(&pod->part, settings->proc_root, settings->cgroup_root, settings->self);
    pod->tree = tree_new(settings->proc_root);
    return pod;
}

void pod_free(struct pod *pod)
{
    if (!pod)
        return;
    tree_free(pod->tree);
    proc_table_free(&pod->table);
    metrics_event_free(&pod->event);
    free(pod);
}

void pod_follow(struct pod *pod, struct metrics *metrics, const char *run_folder)
{
    pod->settings.metrics = metrics;
    pod->settings.run_folder = run_folder;
    pod->state = STARTING;
}

/* --- figures --- */

/* A group that was made anew begins at 0. */
static void take_group(struct pod *pod)
{
    struct cgroup_figures now, *last = &pod->group, *before = &pod->before;
    if (cgroup_read(pod->settings.cgroup_root, pod->part.group, &now) < 0)
        return;
    if (now.identity != last->identity || now.cpu_us < last->cpu_us) {
        before->cpu_us += last->cpu_us;
        before->read_bytes += last->read_bytes;
        before->write_bytes += last->write_bytes;
    }
    now.io_known |= last->io_known; /* what is known of those before remains so */
    *last = now;
}

/* Decided once: figures of two kinds must not be mixed. Against the group only when the part is up,
 * since it may not be in its group from its first moment on. */
static void choose_source(struct pod *pod)
{
    struct cgroup_figures figures;
    if (pod->source != SOURCE_UNKNOWN || pod->part.main == 0)
        return;
    if (cgroup_read(pod->settings.cgroup_root, pod->part.group, &figures) == 0) {
        pod->source = SOURCE_CGROUP;
        if (figures.version == CGROUP_V2)
            pod->disk = SOURCE_CGROUP;
    }
    if (pod->source == SOURCE_CGROUP || pod->state != UP)
        return;
    pod->source = SOURCE_PROC;
    log_warning("the control group of %s is not to be seen below %s (it takes `cgroup: host`, and "
                "with cgroup v1 the controllers cpuacct and memory): its figures come from /proc "
                "instead, without page cache, and without disk where its processes belong to "
                "another user",
                pod->settings.who, pod->settings.cgroup_root);
}

struct pod_figures {
    double cpu_s;
    bool cache_known, io_known;
    uint64_t memory_bytes, cache_bytes, read_bytes, write_bytes;
    const char *memory_kind;
    int64_t memory_age_ns;
    unsigned processes;
};

/* Before processes were seen whose disk figures may be read, the sums are of none, not 0. */
static void disk_of_proc(struct pod *pod, const struct tree_sample *sample,
                         struct pod_figures *figures)
{
    if (pod->disk == SOURCE_UNKNOWN && pod->state == UP && sample->processes > 0 &&
        sample->io_known)
        pod->disk = SOURCE_PROC;
    figures->io_known = pod->disk == SOURCE_PROC && sample->io_known;
    figures->read_bytes = sample->read_bytes;
    figures->write_bytes = sample->write_bytes;
}

/* cgroup v1 charges a write that the kernel does later to nobody, and new kernels count nothing
 * unless a limit is set. So /proc is better where it may be read; decided once, too. */
static void disk_of_v1(struct pod *pod, int64_t now_ns, struct pod_figures *figures)
{
    struct tree_sample sample;
    struct pod_figures of_proc = *figures;
    tree_update(pod->tree, &pod->table, TREE_ALL, now_ns, &sample);
    disk_of_proc(pod, &sample, &of_proc);
    if (pod->disk == SOURCE_UNKNOWN && pod->state == UP && sample.processes > 0)
        pod->disk = SOURCE_CGROUP;
    if (pod->disk != SOURCE_CGROUP)
        *figures = of_proc;
}

static void figures_of_group(struct pod *pod, int64_t now_ns, struct pod_figures *figures)
{
    if (pod->part.main != 0)
        take_group(pod);
    bool alive = pod->part.main != 0;
    figures->cpu_s = (double)(pod->before.cpu_us + pod->group.cpu_us) / (double)US_PER_S;
    figures->memory_kind = alive ? "cgroup" : "none";
    figures->memory_bytes = alive ? pod->group.memory_bytes : 0;
    figures->cache_bytes = alive ? pod->group.cache_bytes : 0;
    figures->cache_known = true;
    figures->io_known = pod->group.io_known;
    figures->read_bytes = pod->before.read_bytes + pod->group.read_bytes;
    figures->write_bytes = pod->before.write_bytes + pod->group.write_bytes;
    if (pod->disk != SOURCE_CGROUP)
        disk_of_v1(pod, now_ns, figures);
    for (size_t i = 0; i < pod->table.count; i++)
        figures->processes += pod->table.items[i].state != 'Z';
}

static void figures_of_proc(struct pod *pod, int64_t now_ns, struct pod_figures *figures)
{
    static const char *const kinds[] = {[TREE_MEMORY_NONE] = "none",
                                        [TREE_MEMORY_RSS] = "rss",
                                        [TREE_MEMORY_PSS] = "pss",
                                        [TREE_MEMORY_BOUND] = "rss_sum"};
    struct tree_sample sample;
    tree_update(pod->tree, &pod->table, TREE_ALL, now_ns, &sample);
    figures->cpu_s = (double)sample.cpu_ticks / (double)sysconf(_SC_CLK_TCK);
    figures->memory_kind = kinds[sample.memory_kind];
    figures->memory_bytes = sample.memory_bytes;
    figures->memory_age_ns = sample.memory_age_ns;
    figures->processes = sample.processes;
    disk_of_proc(pod, &sample, figures);
}

static void add_known(struct metrics_event *event, const char *field, bool known, uint64_t value)
{
    if (known)
        metrics_int(event, field, (int64_t)value);
    else
        metrics_json(event, field, "null");
}

static void write_os(struct pod *pod, const struct pod_figures *figures, double cpu_pct)
{
    struct metrics_event *event = &pod->event;
    struct proc_net net;
    bool net_known = proc_read_net(pod->settings.proc_root, &net) == 0;
    metrics_begin(event, "os");
    metrics_string(event, "who", pod->settings.who);
    metrics_double(event, "cpu_pct", cpu_pct);
    metrics_double(event, "cpu_s", figures->cpu_s);
    metrics_int(event, "rss_bytes", (int64_t)figures->memory_bytes);
    metrics_string(event, "rss_kind", figures->memory_kind);
    metrics_ms(event, "rss_age_ms", figures->memory_age_ns);
    add_known(event, "cache_bytes", figures->cache_known, figures->cache_bytes);
    add_known(event, "read_bytes", figures->io_known, figures->read_bytes);
    add_known(event, "write_bytes", figures->io_known, figures->write_bytes);
    add_known(event, "rx_bytes", net_known, net.rx_bytes);
    add_known(event, "tx_bytes", net_known, net.tx_bytes);
    metrics_int(event, "processes", figures->processes);
    metrics_write(pod->settings.metrics, event);
}

int pod_tick(struct pod *pod, struct err *err)
{
    int rc = pod_part_processes(&pod->part, &pod->table);
    if (rc < 0)
        return err_set(err, rc, "cannot read %s: %s", pod->settings.proc_root, strerror(-rc));
    pod_part_read_group(&pod->part);
    choose_source(pod);
    if (pod->source == SOURCE_UNKNOWN)
        return 0; /* nothing was there yet to have figures */
    int64_t now_ns = clock_mono_ns(), span_ns = now_ns - pod->base_ns;
    struct pod_figures figures = {0};
    if (pod->source == SOURCE_CGROUP)
        figures_of_group(pod, now_ns, &figures);
    else
        figures_of_proc(pod, now_ns, &figures);
    bool spanned = pod->base_ns != 0 && span_ns >= PERCENT_SPAN_NS;
    double used_s = figures.cpu_s - pod->base_cpu_s;
    write_os(pod, &figures, spanned ? 100 * used_s * (double)NS_PER_S / (double)span_ns : NAN);
    if (spanned || pod->base_ns == 0) {
        pod->base_ns = now_ns;
        pod->base_cpu_s = figures.cpu_s;
    }
    return 0;
}

/* --- faults --- */

static void write_change(struct pod *pod, const char *event, const char *what, int64_t ts_us)
{
    metrics_begin_at(&pod->event, event, ts_us);
    metrics_string(&pod->event, "what", what);
    metrics_string(&pod->event, "who", pod->settings.who);
    metrics_write(pod->settings.metrics, &pod->event);
    metrics_flush(pod->settings.metrics);
    log_info("%s %s: %s", pod->settings.who, event, what);
}

static bool run_is_over(const struct pod *pod)
{
    if (!pod->settings.run_folder)
        return false;
    char *path = xasprintf("%s/over", pod->settings.run_folder);
    bool over = file_exists(path);
    free(path);
    return over;
}

static void begin_fault(struct pod *pod, const char *what)
{
    pod->state = FAULTY;
    pod->what = what;
    write_change(pod, "fault", what, pod->well_us);
}

static void has_vanished(struct pod *pod)
{
    if (pod->source == SOURCE_CGROUP)
        take_group(pod); /* its group may outlive it for a moment: what it used last */
    if (pod->state != UP)
        return;
    const char *what =
        run_is_over(pod) ? NULL : pod_end(pod->settings.run_folder, pod->settings.who);
    if (what)
        begin_fault(pod, what);
    else
        pod->state = STARTING;
}

/* It runs. Is it also fit for work? Asked no more than ten times a second. */
static bool is_ready(struct pod *pod, int64_t now_us, int64_t *since_us)
{
    *since_us = now_us;
    if (!pod->settings.ready) {
        /* A container's first processes only set it up, and end. */
        *since_us = pod->main_since_us > pod->well_us ? pod->main_since_us : now_us;
        return now_us - pod->main_since_us >= SETTLE_US;
    }
    int64_t now_ns = clock_mono_ns();
    if (now_ns < pod->ready_due_ns)
        return false;
    bool ready = pod->settings.ready(pod->settings.ready_arg);
    *since_us = clock_wall_us();
    pod->ready_due_ns = clock_mono_ns() + READY_PAUSE_NS;
    return ready;
}

static void is_running(struct pod *pod, int64_t now_us)
{
    int64_t since_us;
    if (pod->state != UP && is_ready(pod, now_us, &since_us)) {
        if (pod->state == FAULTY)
            write_change(pod, "recovered", pod->what, since_us);
        pod->state = UP;
    }
    if (pod->state == UP)
        pod->well_us = now_us;
}

void pod_look(struct pod *pod)
{
    int64_t now_us = clock_wall_us();
    bool had_main = pod->part.main != 0;
    enum main_state state = pod_part_look(&pod->part);
    if (state == MAIN_GONE && had_main)
        has_vanished(pod);
    if (state == MAIN_GONE && pod_part_find(&pod->part)) {
        pod->main_since_us = now_us;
        choose_source(pod);
        state = MAIN_RUNS;
    }
    if (state == MAIN_FROZEN && pod->state == UP && !run_is_over(pod))
        begin_fault(pod, "pause");
    if (state == MAIN_RUNS)
        is_running(pod, now_us);
}

/* Oracle: pod.h and cgroup.h, with figures added up by hand, over a folder that looks like /proc
 * and one that looks like /sys/fs/cgroup. */
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "cgroup.h"
#include "fake_proc.h"
#include "pod.h"
#include "pod_end.h"
#include "ready.h"

enum { SELF = 1, PART = 7 };
#define OWN_GROUP  "0::/system.slice/docker-pod.scope\n"
#define PART_GROUP "0::/system.slice/docker-part.scope\n"
#define PART_PATH  "/system.slice/docker-part.scope"

struct fixture {
    char *root, *proc, *cgroup, *run; /* root holds the other three */
    char *metrics_path;
    struct metrics *metrics;
    struct pod *pod;
    bool ready;
    struct buf text;
};

static bool is_ready(void *arg)
{
    return ((const struct fixture *)arg)->ready;
}

static void put(const char *folder, const char *name, const char *text)
{
    char *path = xasprintf("%s/%s", folder, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(file_mkdirs(path, 0755, NULL), 0);
    *slash = '/';
    assert_int_equal(file_write(path, text, strlen(text), NULL), 0);
    free(path);
}

static void put_group(struct fixture *f, const char *cpu_us, const char *memory, const char *io,
                      const char *frozen)
{
    char *text = xasprintf("usage_usec %s\nuser_usec 1\n", cpu_us);
    put(f->cgroup, &PART_PATH "/cpu.stat"[1], text);
    free(text);
    put(f->cgroup, &PART_PATH "/memory.stat"[1], memory);
    put(f->cgroup, &PART_PATH "/io.stat"[1], io);
    text = xasprintf("populated 1\nfrozen %s\n", frozen);
    put(f->cgroup, &PART_PATH "/cgroup.events"[1], text);
    free(text);
}

static void end_group(struct fixture *f)
{
    char *path = xasprintf("%s%s", f->cgroup, PART_PATH);
    file_remove_tree(path, NULL);
    free(path);
}

static const struct fake_process sampler = {
    .pid = SELF, .start_ticks = 1, .own_ticks = 5, .cgroup = OWN_GROUP};

static void start_part(struct fixture *f, pid_t pid, uint64_t start_ticks)
{
    fake_proc_put(f->proc, &(struct fake_process){.pid = pid,
                                                  .start_ticks = start_ticks,
                                                  .own_ticks = 20,
                                                  .rss_pages = 3,
                                                  .cgroup = PART_GROUP});
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    f->proc = fake_proc_new();
    f->cgroup = xasprintf("%s/cgroup", f->proc);
    f->run = xasprintf("%s/run", f->proc);
    file_mkdirs(f->cgroup, 0755, NULL);
    file_mkdirs(f->run, 0755, NULL);
    f->metrics_path = xasprintf("%s/events", f->proc);
    fake_proc_put(f->proc, &sampler);
    fake_proc_net(f->proc, 100, 200);
    f->ready = true;
    *state = f;
    return metrics_open(&f->metrics, f->metrics_path, NULL);
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    pod_free(f->pod);
    metrics_close(f->metrics);
    free(f->cgroup);
    free(f->run);
    free(f->metrics_path);
    fake_proc_free(f->proc);
    buf_free(&f->text);
    free(f);
    return 0;
}

/* A pod whose answer to "is it ready?" is f->ready. */
static void make_pod(struct fixture *f, const char *who)
{
    f->pod = pod_new(&(struct pod_settings){.who = who,
                                            .proc_root = f->proc,
                                            .cgroup_root = f->cgroup,
                                            .self = SELF,
                                            .run_folder = f->run,
                                            .ready = is_ready,
                                            .ready_arg = f,
                                            .metrics = f->metrics});
}

/* A look, late enough for the question to be asked again. */
static void look(struct fixture *f)
{
    clock_sleep_ns(101 * NS_PER_MS);
    pod_look(f->pod);
}

/* Names and kinds of the faults so far: "fault kill, recovered kill". */
static const char *faults(struct fixture *f)
{
    static char said[512];
    said[0] = '\0';
    metrics_flush(f->metrics);
    buf_clear(&f->text);
    assert_int_equal(file_read(f->metrics_path, 1 << 20, &f->text, NULL), 0);
    char *rest = f->text.data ? f->text.data : (char[]){""};
    for (char *line; (line = strsep(&rest, "\n")) && *line;) {
        char event[16], what[16];
        if (sscanf(line, "{\"ts\": %*[0-9.], \"ev\": \"%15[a-z]\", \"what\": \"%15[a-z]\"", event,
                   what) != 2)
            continue;
        assert_non_null(strstr(line, "\"who\": \"worker\""));
        snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s%s %s", *said ? ", " : "",
                 event, what);
    }
    return said;
}

/* The last `os` event. */
static const char *last_os(struct fixture *f)
{
    const char *last = NULL;
    metrics_flush(f->metrics);
    buf_clear(&f->text);
    assert_int_equal(file_read(f->metrics_path, 1 << 20, &f->text, NULL), 0);
    for (const char *at = f->text.data; at && (at = strstr(at, "\"ev\": \"os\"")); at++)
        last = at;
    assert_non_null(last);
    return last;
}

static void assert_says(const char *event, const char *piece)
{
    if (!strstr(event, piece))
        fail_msg("no %s in: %s", piece, event);
}

static void a_vanished_part_is_killed_and_recovers_when_it_is_ready(void **state)
{
    struct fixture *f = *state;
    make_pod(f, "worker");
    look(f);
    start_part(f, PART, 50);
    f->ready = false;
    look(f);
    fake_proc_end(f->proc, PART); /* what set the container up, or a first start that failed */
    look(f);
    start_part(f, PART + 1, 60);
    f->ready = true;
    look(f);
    assert_string_equal(faults(f), "");
    fake_proc_end(f->proc, PART + 1);
    int64_t before_us = clock_wall_us();
    look(f);
    assert_string_equal(faults(f), "fault kill");
    double ts_s;
    metrics_flush(f->metrics);
    buf_clear(&f->text);
    assert_int_equal(file_read(f->metrics_path, 1 << 20, &f->text, NULL), 0);
    const char *line = f->text.data;
    assert_int_equal(sscanf(line, "{\"ts\": %lf", &ts_s), 1);
    assert_true(ts_s * 1e6 <= (double)before_us); /* that of the last look at which it ran */
    start_part(f, PART + 2, 90);
    f->ready = false;
    look(f);
    assert_string_equal(faults(f), "fault kill");
    f->ready = true;
    look(f);
    assert_string_equal(faults(f), "fault kill, recovered kill");
    /* The same pid, but another process: killed and started between two looks. */
    start_part(f, PART + 2, 99);
    look(f);
    assert_string_equal(faults(f), "fault kill, recovered kill, fault kill, recovered kill");
}

static void a_zombie_is_gone_and_a_child_is_not_the_part(void **state)
{
    struct fixture *f = *state;
    make_pod(f, "worker");
    start_part(f, PART, 50);
    fake_proc_put(f->proc, &(struct fake_process){.pid = 3,
                                                  .start_ticks = 70, /* lower pid */
                                                  .cgroup = PART_GROUP});
    look(f);
    fake_proc_end(f->proc, 3); /* a command that ran beside it */
    look(f);
    assert_string_equal(faults(f), "");
    fake_proc_put(f->proc, &(struct fake_process){
                               .pid = PART, .start_ticks = 50, .state = 'Z', .cgroup = PART_GROUP});
    fake_proc_put(f->proc, &(struct fake_process){.pid = 9,
                                                  .parent = SELF,
                                                  .start_ticks = 55,
                                                  .cgroup = PART_GROUP}); /* an orphan of it */
    look(f);
    look(f);
    assert_string_equal(faults(f), "fault kill");
}

static void a_frozen_part_is_paused(void **state)
{
    struct fixture *f = *state;
    make_pod(f, "worker");
    put_group(f, "100", "anon 1\nfile 2\nshmem 0\n", "", "0");
    start_part(f, PART, 50);
    look(f);
    put_group(f, "100", "anon 1\nfile 2\nshmem 0\n", "", "1");
    look(f);
    look(f);
    assert_string_equal(faults(f), "fault pause");
    put_group(f, "100", "anon 1\nfile 2\nshmem 0\n", "", "0");
    f->ready = false;
    look(f);
    assert_string_equal(faults(f), "fault pause");
    f->ready = true;
    look(f);
    assert_string_equal(faults(f), "fault pause, recovered pause");
    fake_proc_put(f->proc, &(struct fake_process){
                               .pid = PART, .start_ticks = 50, .state = 'T', .cgroup = PART_GROUP});
    look(f);
    assert_string_equal(faults(f), "fault pause, recovered pause, fault pause");
}

/* Without any freezer's state: all threads wait in the kernel, for long, and use no CPU. */
static void a_part_that_stands_still_in_the_kernel_is_paused(void **state)
{
    struct fixture *f = *state;
    make_pod(f, "worker");
    start_part(f, PART, 50);
    look(f);
    fake_proc_put(f->proc, &(struct fake_process){
                               .pid = PART, .start_ticks = 50, .state = 'D', .cgroup = PART_GROUP});
    for (int i = 0; i < 10; i++)
        pod_look(f->pod);
    assert_string_equal(faults(f), ""); /* its threads are not known */
    put(f->proc, "7/task/7/stat",
        "7 (a) D 0 1 1 0 -1 4194304 99 0 0 0 1 0 0 0 20 0 1 0 50 3133440 1 1 1 1 0 0\n");
    put(f->proc, "7/task/8/stat",
        "8 (a) S 0 1 1 0 -1 4194304 99 0 0 0 1 0 0 0 20 0 1 0 50 3133440 1 1 1 1 0 0\n");
    for (int i = 0; i < 10; i++)
        pod_look(f->pod);
    assert_string_equal(faults(f), "");
    put(f->proc, "7/task/8/stat",
        "8 (a) D 0 1 1 0 -1 4194304 99 0 0 0 1 0 0 0 20 0 1 0 50 3133440 1 1 1 1 0 0\n");
    for (int i = 0; i < 3; i++)
        pod_look(f->pod);
    assert_string_equal(faults(f), "");
    for (int i = 0; i < 7; i++)
        pod_look(f->pod);
    assert_string_equal(faults(f), "fault pause");
    put(f->cgroup, "freezer/docker/part/freezer.state", "FROZEN\n");
    assert_int_equal(cgroup_frozen(f->cgroup, "6:freezer:/docker/part\n0::/\n"), 1);
    put(f->cgroup, "freezer/docker/part/freezer.state", "THAWED\n");
    assert_int_equal(cgroup_frozen(f->cgroup, "6:freezer:/docker/part\n0::/\n"), 0);
    assert_int_equal(cgroup_frozen(f->cgroup, "6:freezer:/docker/other\n0::/\n"), -ENOENT);
}

static void an_orderly_end_and_the_end_of_the_run_are_no_kill(void **state)
{
    struct fixture *f = *state;
    static const char line[] = "{\"ts\": 1.0, \"ev\": \"committed\"}\n";
    char *told = xasprintf("%s{\"ts\": 2.0, \"ev\": \"stop\", \"role\": \"worker\", \"why\": "
                           "\"SIGTERM\"}\n",
                           line);
    make_pod(f, "worker");
    start_part(f, PART, 50);
    look(f);
    put(f->run, "worker-1.jsonl", told);
    fake_proc_end(f->proc, PART);
    look(f);
    assert_string_equal(faults(f), "fault term");
    start_part(f, PART, 80);
    look(f);
    put(f->run, "worker-2.jsonl", line); /* the newest counts */
    fake_proc_end(f->proc, PART);
    look(f);
    assert_string_equal(faults(f), "fault term, recovered term, fault kill");
    start_part(f, PART, 90);
    look(f);
    put(f->run, "over", "");
    put_group(f, "1", "anon 1\nfile 2\nshmem 0\n", "", "1");
    look(f);
    fake_proc_end(f->proc, PART);
    look(f);
    assert_string_equal(faults(f), "fault term, recovered term, fault kill, recovered kill");

    assert_string_equal(pod_end(NULL, "worker"), "kill");
    assert_string_equal(pod_end(f->run, "sink"), "kill");
    put(f->run, "api-1.jsonl", "{\"ts\": 2.0, \"ev\": \"stop\", \"why\": \"no room\"}\n");
    assert_string_equal(pod_end(f->run, "api"), "exit");
    put(f->run, "api-1.jsonl", "{\"ts\": 2.0, \"ev\": \"stop\", \"why\": \"SIGTERM\"");
    assert_string_equal(pod_end(f->run, "api"), "kill"); /* half a line */
    put(f->run, "loadgen-1.jsonl",
        "{\"ts\": 2, \"ev\": \"stop\", \"complete\": true, \"due\": 5}\n");
    assert_null(pod_end(f->run, "loadgen"));
    free(told);
}

static void figures_are_those_of_the_group_and_only_grow(void **state)
{
    struct fixture *f = *state;
    make_pod(f, "main-db");
    assert_int_equal(pod_tick(f->pod, NULL), 0);
    metrics_flush(f->metrics);
    assert_int_equal(file_read(f->metrics_path, 1 << 20, &f->text, NULL), 0);
    assert_int_equal(f->text.len, 0); /* nothing is there yet */
    put_group(f, "2500000", "anon 1000\nfile 5000\nkernel 77\nshmem 300\n",
              "8:0 rbytes=10 wbytes=20 rios=1 wios=1 dbytes=0 dios=0\n8:16 rbytes=1 wbytes=2\n",
              "0");
    start_part(f, PART, 50);
    fake_proc_put(f->proc, &(struct fake_process){
                               .pid = 8, .parent = PART, .start_ticks = 51, .cgroup = PART_GROUP});
    look(f);
    assert_int_equal(pod_tick(f->pod, NULL), 0);
    const char *os = last_os(f);
    assert_says(os, "\"who\": \"main-db\", \"cpu_pct\": null, \"cpu_s\": 2.5, \"rss_bytes\": 1300, "
                    "\"rss_kind\": \"cgroup\"");
    assert_says(os, "\"cache_bytes\": 4700, \"read_bytes\": 11, \"write_bytes\": 22, "
                    "\"rx_bytes\": 100, \"tx_bytes\": 200, \"processes\": 2}");
    put_group(f, "3000000", "anon 1000\nfile 5000\nshmem 300\n", "8:0 rbytes=110 wbytes=20\n", "0");
    fake_proc_end(f->proc, PART);
    fake_proc_end(f->proc, 8);
    look(f); /* the group outlives its processes for a moment */
    end_group(f);
    assert_int_equal(pod_tick(f->pod, NULL), 0);
    os = last_os(f);
    assert_says(os, "\"cpu_s\": 3, \"rss_bytes\": 0, \"rss_kind\": \"none\"");
    assert_says(os, "\"cache_bytes\": 0, \"read_bytes\": 110, \"write_bytes\": 20");
    put_group(f, "1000000", "anon 50\nfile 0\nshmem 0\n", "8:0 rbytes=5 wbytes=6\n", "0");
    start_part(f, PART, 80);
    look(f);
    clock_sleep_ns(200 * NS_PER_MS);
    assert_int_equal(pod_tick(f->pod, NULL), 0);
    os = last_os(f);
    assert_says(os, "\"cpu_s\": 4, \"rss_bytes\": 50");
    assert_says(os, "\"read_bytes\": 115, \"write_bytes\": 26");
}

static void without_a_group_the_figures_come_from_proc(void **state)
{
    struct fixture *f = *state;
    const uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK), page = (uint64_t)sysconf(_SC_PAGESIZE);
    fake_proc_put(f->proc, &(struct fake_process){.pid = SELF,
                                                  .start_ticks = 1,
                                                  .own_ticks = 9 * hz,
                                                  .cgroup = "1:pids:/docker/pod\n0::/\n"});
    make_pod(f, "api");
    struct fake_process part = {.pid = PART,
                                .start_ticks = 50,
                                .own_ticks = 2 * hz,
                                .rss_pages = 3,
                                .read_bytes = 5,
                                .write_bytes = 6,
                                .cgroup = "1:pids:/docker/part\n0::/\n"};
    fake_proc_put(f->proc, &part);
    fake_proc_put(f->proc, &(struct fake_process){.pid = 5,
                                                  .start_ticks = 9,
                                                  .own_ticks = hz,
                                                  .cgroup = "1:pids:/docker/pod\n0::/\n"});
    look(f);
    assert_int_equal(pod_tick(f->pod, NULL), 0);
    char *memory = xasprintf("\"cpu_s\": 2, \"rss_bytes\": %llu, \"rss_kind\": \"rss\"",
                             3 * (unsigned long long)page);
    const char *os = last_os(f);
    assert_says(os, memory);
    assert_says(os, "\"cache_bytes\": null, \"read_bytes\": 5, \"write_bytes\": 6");
    assert_says(os, "\"processes\": 1}");
    fake_proc_end(f->proc, PART);
    part.start_ticks = 90;
    part.own_ticks = hz;
    fake_proc_put(f->proc, &part);
    look(f);
    assert_int_equal(pod_tick(f->pod, NULL), 0);
    assert_int_equal(pod_tick(f->pod, NULL), 0); /* the old member of that pid has left */
    assert_says(last_os(f), "\"cpu_s\": 3, ");
    free(memory);
}

/* Of another user's processes nothing is known: not 0 either, when there are none (any more). */
static void disk_of_another_user_is_unknown_without_a_group(void **state)
{
    struct fixture *f = *state;
    make_pod(f, "main-db");
    fake_proc_put(f->proc,
                  &(struct fake_process){
                      .pid = PART, .start_ticks = 50, .no_io = true, .cgroup = PART_GROUP});
    look(f);
    assert_int_equal(pod_tick(f->pod, NULL), 0);
    assert_says(last_os(f), "\"read_bytes\": null, \"write_bytes\": null");
    fake_proc_end(f->proc, PART);
    look(f);
    assert_int_equal(pod_tick(f->pod, NULL), 0);
    assert_says(last_os(f), "\"read_bytes\": null, \"write_bytes\": null");
}

/* --- cgroup v1 --- */

#define V1_OTHERS "9:name=systemd:/\n7:blkio:/docker/part\n6:freezer:/docker/part\n"
#define V1_GROUP                                                                                   \
    V1_OTHERS "4:memory:/docker/part\n3:pids:/docker/part\n2:cpu,cpuacct:/docker/part\n0::/\n"
#define V1_OWN_GROUP "4:memory:/docker/pod\n3:pids:/docker/pod\n2:cpu,cpuacct:/docker/pod\n0::/\n"

static void put_v1_group(struct fixture *f, const char *cpu_ns, const char *memory, const char *io)
{
    put(f->cgroup, "cpu,cpuacct/docker/part/cpuacct.usage", cpu_ns);
    put(f->cgroup, "memory/docker/part/memory.stat", memory);
    put(f->cgroup, "blkio/docker/part/blkio.throttle.io_service_bytes", io);
    put(f->cgroup, "freezer/docker/part/freezer.state", "THAWED\n");
}

/* no_io: the part belongs to another user. */
static void start_v1_part(struct fixture *f, uint64_t start_ticks, bool no_io)
{
    fake_proc_put(f->proc, &(struct fake_process){.pid = PART,
                                                  .start_ticks = start_ticks,
                                                  .no_io = no_io,
                                                  .read_bytes = 5,
                                                  .write_bytes = 6,
                                                  .cgroup = V1_GROUP});
}

static void make_v1_pod(struct fixture *f, const char *who)
{
    fake_proc_put(f->proc,
                  &(struct fake_process){.pid = SELF, .start_ticks = 1, .cgroup = V1_OWN_GROUP});
    make_pod(f, who);
}

static const char *next_os(struct fixture *f)
{
    assert_int_equal(pod_tick(f->pod, NULL), 0);
    return last_os(f);
}

#define V1_MEMORY                                                                                  \
    "cache 1\nrss 2\nshmem 3\ntotal_cache 5000\ntotal_rss 1000\ntotal_rss_huge 7\n"                \
    "total_shmem 300\n"

static void figures_of_v1_are_those_of_v2(void **state)
{
    struct fixture *f = *state;
    make_v1_pod(f, "main-db");
    put_v1_group(f, "2500000000\n", V1_MEMORY,
                 "8:0 Read 10\n8:0 Write 20\n8:0 Sync 25\n8:0 Async 5\n8:0 Total 30\n"
                 "8:16 Read 1\n8:16 Write 2\n8:16 Total 3\nTotal 33\n");
    start_v1_part(f, 50, true);
    look(f);
    const char *os = next_os(f);
    assert_says(os, "\"cpu_s\": 2.5, \"rss_bytes\": 1300, \"rss_kind\": \"cgroup\"");
    assert_says(os, "\"cache_bytes\": 4700, \"read_bytes\": 11, \"write_bytes\": 22, ");
    /* Another group of that name, made when the part was started again. */
    char *old = xasprintf("%s/cpu,cpuacct/docker/part", f->cgroup);
    char *kept = xasprintf("%s/kept", f->cgroup); /* so that its inode is not taken again */
    assert_int_equal(rename(old, kept), 0);
    free(old);
    free(kept);
    put_v1_group(f, "3000000000\n", "total_cache 0\ntotal_rss 50\ntotal_shmem 0\n", "Total 0\n");
    fake_proc_end(f->proc, PART);
    look(f);
    start_v1_part(f, 80, true);
    look(f);
    os = next_os(f);
    assert_says(os, "\"cpu_s\": 5.5, \"rss_bytes\": 50, ");
    assert_says(os, "\"cache_bytes\": 0, \"read_bytes\": 11, \"write_bytes\": 22, ");
}

/* Where a controller lies alone, or by its own name only, and one of the two that count is missing.
 */
static void a_v1_controller_is_found_by_either_name(void **state)
{
    struct fixture *f = *state;
    struct cgroup_figures figures;
    static const char text[] = "4:memory:/p\n2:cpu,cpuacct:/p\n0::/\n";
    put(f->cgroup, "memory/p/memory.stat", V1_MEMORY);
    assert_int_equal(cgroup_read(f->cgroup, text, &figures), -ENOENT);
    put(f->cgroup, "cpuacct/p/cpuacct.usage", "7000\n");
    assert_int_equal(cgroup_read(f->cgroup, text, &figures), 0);
    assert_int_equal(figures.version, CGROUP_V1);
    assert_int_equal(figures.cpu_us, 7);
    assert_false(figures.io_known);
    assert_int_equal(cgroup_read(f->cgroup, "4:memory:/p\n2:cpuacct:/p\n", &figures), 0);
    /* Roots are no container's, other namespaces are not in this view. */
    put(f->cgroup, "memory/memory.stat", V1_MEMORY);
    put(f->cgroup, "cpuacct/cpuacct.usage", "7000\n");
    assert_int_equal(cgroup_read(f->cgroup, "4:memory:/\n2:cpuacct:/\n", &figures), -ENOENT);
    assert_int_equal(cgroup_read(f->cgroup, "4:memory:/../p\n2:cpuacct:/../p\n", &figures),
                     -ENOENT);
    assert_int_equal(cgroup_read(f->cgroup, "4:memory:/p\n2:cpu:/p\n", &figures), -ENOENT);
    put(f->cgroup, "memory/p/memory.stat", "total_cache 5\n");
    assert_int_equal(cgroup_read(f->cgroup, text, &figures), -EBADMSG);
}

/* A new kernel lists no device without a limit: that is no zero. */
static void a_v1_disk_that_is_not_counted_is_unknown(void **state)
{
    struct fixture *f = *state;
    make_v1_pod(f, "main-db");
    put_v1_group(f, "1\n", V1_MEMORY, "Total 0\n");
    start_v1_part(f, 50, true);
    look(f);
    assert_says(next_os(f), "\"cache_bytes\": 4700, \"read_bytes\": null, \"write_bytes\": null");
    put_v1_group(f, "1\n", V1_MEMORY, "8:0 Read 0\n8:0 Write 9\nTotal 9\n");
    assert_says(next_os(f), "\"read_bytes\": 0, \"write_bytes\": 9");
}

/* What is written later is charged to nobody: /proc knows more of processes of our own user. */
static void a_v1_disk_comes_from_proc_where_that_may_be_read(void **state)
{
    struct fixture *f = *state;
    static const char io[] = "8:0 Read 10\n8:0 Write 20\nTotal 30\n";
    make_v1_pod(f, "worker");
    put_v1_group(f, "1\n", V1_MEMORY, io);
    start_v1_part(f, 50, true); /* what sets the container up is another user's */
    f->ready = false;
    look(f);
    assert_says(next_os(f), "\"cache_bytes\": 4700, \"read_bytes\": null, \"write_bytes\": null");
    start_v1_part(f, 50, false); /* and becomes the part */
    f->ready = true;
    look(f);
    assert_says(next_os(f), "\"read_bytes\": 5, \"write_bytes\": 6");
    fake_proc_end(f->proc, PART);
    look(f);
    assert_says(next_os(f), "\"read_bytes\": 5, \"write_bytes\": 6"); /* not the group's */
    start_v1_part(f, 90, false);
    look(f);
    next_os(f); /* the old member of that pid leaves */
    assert_says(next_os(f), "\"read_bytes\": 10, \"write_bytes\": 12");
}

static void a_group_that_freezes_is_paused(void **state)
{
    struct fixture *f = *state;
    make_v1_pod(f, "worker");
    put_v1_group(f, "1\n", V1_MEMORY, "Total 0\n");
    start_v1_part(f, 50, false);
    look(f);
    put(f->cgroup, "freezer/docker/part/freezer.state", "FREEZING\n");
    look(f);
    assert_string_equal(faults(f), "fault pause");
    put(f->cgroup, "freezer/docker/part/freezer.state", "THAWED\n");
    look(f);
    assert_string_equal(faults(f), "fault pause, recovered pause");
    /* Old kernels with cgroup v2 do not tell in cgroup.events. */
    put(f->cgroup, &PART_PATH "/cgroup.events"[1], "populated 1\n");
    assert_int_equal(cgroup_frozen(f->cgroup, PART_GROUP), -ENOENT);
}

static void a_container_is_told_by_its_group(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool container;
    } cases[] = {
        {"0::/a/b\n", true},
        {"3:cpu,cpuacct:/x\n0::/y:z\n", true},
        {"0::/\n", false},
        {"0::/../other\n", false},
        {"3:cpu:/x\n", false},
        {"", false},
        {"nonsense\n0::/late", true},
        {"3:pids:/x\n0::/\n", true},
        {"3:pids:/\n0::/\n", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (cgroup_is_container(cases[i].text) != cases[i].container)
            fail_msg("%s", cases[i].text);
    char text[2048] = "0::/";
    memset(text + 4, 'x', sizeof(text) - 5);
    struct cgroup_figures figures;
    assert_int_equal(cgroup_read("/nowhere", text, &figures), -ENAMETOOLONG);
}

static bool skip_mapped(const char *device)
{
    return strcmp(device, "253:0") == 0;
}

static void disk_figures_count_each_device_once(void **state)
{
    (void)state;
    struct cgroup_figures figures;
    static const char text[] = "253:0 rbytes=100 wbytes=200\n8:0 rbytes=1 wbytes=2 rios=3\n"
                               "7:0 \n259:0 rbytes=10 wbytes=20\n";
    assert_int_equal(cgroup_parse_io(CGROUP_V2, text, strlen(text), skip_mapped, &figures), 0);
    assert_int_equal(figures.read_bytes, 11);
    assert_int_equal(figures.write_bytes, 22);
    assert_int_equal(cgroup_parse_io(CGROUP_V2, "", 0, NULL, &figures), 0);
    assert_int_equal(figures.read_bytes, 0);
}

static void what_ready_means_is_checked(void **state)
{
    (void)state;
    struct ready ready;
    struct err err;
    static const char *const bad[] = {
        "",        "tcp",     "tcp:5432",  "tcp::5432",      "tcp:h:",           "tcp:h:99999",
        "tcp:h:x", "ftp:h:1", "tcp:h:1/x", "postgres:h:1/x", "http:h:1234567890"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(ready_parse(bad[i], &ready, &err), -EINVAL);
        assert_non_null(strstr(err.text, "http:HOST:PORT"));
    }
    assert_int_equal(ready_parse("http:127.0.0.1:9101", &ready, &err), 0);
    assert_string_equal(ready.path, "/readyz");
    assert_int_equal(ready_parse("http:127.0.0.1:9101/x/y", &ready, &err), 0);
    assert_string_equal(ready.host, "127.0.0.1");
    assert_string_equal(ready.port, "9101");
    assert_string_equal(ready.path, "/x/y");
    assert_int_equal(ready_parse("tcp:127.0.0.1:1", &ready, &err), 0);
    assert_false(ready_now(&ready));
    assert_int_equal(ready_parse("postgres:127.0.0.1:1", &ready, &err), 0);
    assert_false(ready_now(&ready));
}

/* A server that takes one connection, reads, and gives this answer; its port. */
static int start_server(const char *answer, pid_t *pid)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    char text[512];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    *pid = fork();
    if (*pid == 0) {
        int peer = accept(fd, NULL, NULL);
        _exit(recv(peer, text, sizeof(text), 0) <= 0 ||
              send(peer, answer, strlen(answer), 0) != (ssize_t)strlen(answer));
    }
    close(fd);
    return ntohs(address.sin_port);
}

static void ready_is_who_answers_so(void **state)
{
    (void)state;
    static const struct {
        const char *kind, *answer;
        bool ready;
    } cases[] = {
        {"http", "HTTP/1.1 200 OK\r\n\r\nok\n", true},
        {"http", "HTTP/1.1 503 Service Unavailable\r\n\r\n", false},
        {"http", "200 ", false},
        {"http", "", false},
        {"valkey", "+PONG\r\n", true},
        {"valkey", "-NOAUTH Authentication required.\r\n", true},
        {"valkey", "-LOADING Redis is loading the dataset in memory\r\n", false},
        {"postgres", "nonsense", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ready ready;
        char text[64];
        pid_t pid;
        int port = start_server(cases[i].answer, &pid);
        snprintf(text, sizeof(text), "%s:127.0.0.1:%d", cases[i].kind, port);
        assert_int_equal(ready_parse(text, &ready, NULL), 0);
        if (ready_now(&ready) != cases[i].ready)
            fail_msg("%s \"%s\"", cases[i].kind, cases[i].answer);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
}

int main(void)
{
#define POD(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        POD(a_vanished_part_is_killed_and_recovers_when_it_is_ready),
        POD(a_zombie_is_gone_and_a_child_is_not_the_part),
        POD(a_frozen_part_is_paused),
        POD(a_part_that_stands_still_in_the_kernel_is_paused),
        POD(an_orderly_end_and_the_end_of_the_run_are_no_kill),
        POD(figures_are_those_of_the_group_and_only_grow),
        POD(without_a_group_the_figures_come_from_proc),
        POD(disk_of_another_user_is_unknown_without_a_group),
        POD(figures_of_v1_are_those_of_v2),
        POD(a_v1_controller_is_found_by_either_name),
        POD(a_v1_disk_that_is_not_counted_is_unknown),
        POD(a_v1_disk_comes_from_proc_where_that_may_be_read),
        POD(a_group_that_freezes_is_paused),
        cmocka_unit_test(a_container_is_told_by_its_group),
        cmocka_unit_test(disk_figures_count_each_device_once),
        cmocka_unit_test(what_ready_means_is_checked),
        cmocka_unit_test(ready_is_who_answers_so),
    };
    return cmocka_run_group_tests_name("pod", tests, NULL, NULL);
}

/* Oracle: pod.h, seen with real processes: the sampler (path: first argument) is process 1 of a pid
 * namespace of its own, and parts come into it from outside, as a container engine does it. Needs
 * root (CAP_SYS_ADMIN); says so and is skipped without. */
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"

enum { SKIPPED = 77 };

static const char *program;
static char folder[64], events_path[128], log_path[128];

/* Its parent stays outside: for the kernel it is a child of ours, as process 1 of a new namespace.
 */
static pid_t start_sampler(const char *in)
{
    char metrics[128];
    snprintf(metrics, sizeof(metrics), "--metrics=%s/", in);
    assert_int_equal(unshare(CLONE_NEWPID), 0); /* for children only */
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nothing */
        if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("proc", "/proc", "proc", 0, NULL) < 0 || !freopen(log_path, "w", stderr))
            _exit(99);
        execl(program, program, "--pod=worker", "--interval=50ms", metrics, (char *)NULL);
        _exit(99);
    }
    assert_true(pid > 0);
    return pid;
}

/* Puts our next children into the sampler's namespace. */
static void enter(pid_t sampler)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)sampler);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(setns(fd, CLONE_NEWPID), 0);
    close(fd);
}

static void leave(void)
{
    int fd = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(setns(fd, CLONE_NEWPID), 0);
    close(fd);
}

static void stop_sampler(pid_t sampler)
{
    int status;
    kill(sampler, SIGTERM);
    assert_int_equal(waitpid(sampler, &status, 0), sampler);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    leave();
}

/* A part: it has a child, which it leaves behind as an orphan when it is killed. */
static pid_t start_part(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (fork() == 0)
            sleep(2);
        else
            for (;;)
                pause();
        _exit(0);
    }
    assert_true(pid > 0);
    return pid;
}

static unsigned count(const char *text, const char *piece)
{
    unsigned found = 0;
    for (const char *at = text; at && (at = strstr(at, piece)); at++)
        found++;
    return found;
}

static void assert_written(const char *piece, unsigned times)
{
    struct buf text = {0};
    assert_int_equal(file_read(events_path, 16 << 20, &text, NULL), 0);
    if (count(text.data, piece) != times)
        fail_msg("not %u times %s in: %s", times, piece, text.data);
    buf_free(&text);
}

/* Waits until the sampler has written `piece` so often or oftener. */
static void await(const char *piece, unsigned times)
{
    int64_t deadline_ns = clock_mono_ns() + 30 * NS_PER_S;
    struct buf text = {0};
    while (clock_mono_ns() < deadline_ns) {
        buf_clear(&text);
        if (file_read(events_path, 16 << 20, &text, NULL) == 0 && count(text.data, piece) >= times)
            break;
        clock_sleep_ns(5 * NS_PER_MS);
    }
    if (count(text.data, piece) < times)
        fail_msg("not %u times %s in: %s", times, piece, text.data ? text.data : "");
    buf_free(&text);
}

/* Children of the sampler, as the kernel lists them. */
static void await_no_child(pid_t sampler)
{
    char path[96];
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)sampler, (int)sampler);
    int64_t deadline_ns = clock_mono_ns() + 30 * NS_PER_S;
    struct buf text = {0};
    do {
        buf_clear(&text);
        assert_int_equal(file_read(path, 4096, &text, NULL), 0);
        clock_sleep_ns(5 * NS_PER_MS);
    } while (text.len > 0 && clock_mono_ns() < deadline_ns);
    assert_int_equal(text.len, 0);
    buf_free(&text);
}

static void kill_and_reap(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

#define FAULT(what)     "\"ev\": \"fault\", \"what\": \"" what "\", \"who\": \"worker\""
#define RECOVERED(what) "\"ev\": \"recovered\", \"what\": \"" what "\", \"who\": \"worker\""

static void a_part_is_killed_paused_and_started_again(void **state)
{
    (void)state;
    pid_t sampler = start_sampler(folder);
    await("\"ev\": \"start\"", 1);
    enter(sampler);
    pid_t part = start_part();
    await("\"processes\": 2}", 1); /* it and its child, and not the sampler; so it is up */
    kill_and_reap(part);
    await(FAULT("kill"), 1);
    await_no_child(sampler);
    part = start_part();
    await(RECOVERED("kill"), 1);
    kill(part, SIGSTOP);
    await(FAULT("pause"), 1);
    kill(part, SIGCONT);
    await(RECOVERED("pause"), 1);
    kill_and_reap(part);
    await(FAULT("kill"), 2);
    stop_sampler(sampler); /* by a signal that process 1 must take care to hear */
    assert_written("\"ev\": \"stop\", \"role\": \"sampler\", \"why\": \"SIGTERM\"", 1);
    assert_written("\"ev\": \"fault\"", 3);
    assert_written("\"ev\": \"recovered\"", 2);
}

/* It is there before the run's folder, and goes on with the next run's. */
static void a_link_to_the_run_is_waited_for_and_followed(void **state)
{
    (void)state;
    char *now = xasprintf("%s/now", folder), *first = xasprintf("%s/first", folder);
    char *second = xasprintf("%s/second", folder), *other = xasprintf("%s/other", folder);
    pid_t sampler = start_sampler(now);
    snprintf(events_path, sizeof(events_path), "%s/log", folder);
    await("waiting for the folder", 1);
    stop_sampler(sampler);
    sampler = start_sampler(now);
    assert_int_equal(mkdir(first, 0755) + mkdir(second, 0755), 0);
    assert_int_equal(symlink(first, now), 0);
    snprintf(events_path, sizeof(events_path), "%s/sampler-worker-1.jsonl", first);
    await("\"ev\": \"start\"", 1);
    assert_int_equal(symlink(second, other), 0);
    assert_int_equal(rename(other, now), 0);
    await("\"ev\": \"stop\"", 1);
    snprintf(events_path, sizeof(events_path), "%s/sampler-worker-1.jsonl", second);
    await("\"ev\": \"start\"", 1);
    enter(sampler);
    pid_t part = start_part();
    await("\"processes\": 2}", 1);
    kill_and_reap(part);
    await(FAULT("kill"), 1);
    stop_sampler(sampler);
    free(now);
    free(first);
    free(second);
    free(other);
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/sluice-pod-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(events_path, sizeof(events_path), "%s/sampler-worker-1.jsonl", folder);
    snprintf(log_path, sizeof(log_path), "%s/log", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return file_remove_tree(folder, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_part_is_killed_paused_and_started_again, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_link_to_the_run_is_waited_for_and_followed, make_folder,
                                        remove_folder),
    };
    if (argc != 2)
        return 2;
    program = argv[1];
    if (geteuid() != 0) {
        fprintf(stderr, "SKIPPED: test_pod_namespace needs root to make a pid namespace\n");
        return SKIPPED;
    }
    return cmocka_run_group_tests_name("pod in a namespace", tests, NULL, NULL);
}

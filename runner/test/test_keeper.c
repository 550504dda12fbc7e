/* Oracle: /proc. Whatever is killed, and however, a few seconds later no process that carries this
 * test's mark in its environment is left, and neither is the state folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "keeper.h"
#include "process.h"
#include "state.h"

static char scratch[] = "/var/tmp/sluice-test-keeper-XXXXXX";

/* How many live processes carry the mark. */
static int count_marked(const char *mark)
{
    int count = 0;
    DIR *proc = opendir("/proc");
    for (const struct dirent *entry; proc && (entry = readdir(proc));) {
        char path[300], text[65536];
        snprintf(path, sizeof(path), "/proc/%.250s/environ", entry->d_name);
        FILE *file = entry->d_name[0] >= '0' && entry->d_name[0] <= '9' ? fopen(path, "re") : NULL;
        if (!file) {
            continue;
        }
        size_t len = fread(text, 1, sizeof(text), file);
        fclose(file);
        count += memmem(text, len, mark, strlen(mark)) != NULL;
    }
    if (proc) {
        closedir(proc);
    }
    return count;
}

/* Gone, or a zombie that a careless init has not collected yet. */
static bool is_gone(pid_t pid)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file) {
        return true;
    }
    (void)!fread(line, 1, sizeof(line) - 1, file);
    fclose(file);
    const char *rest = strrchr(line, ')');
    return !rest || rest[2] == 'Z';
}

enum ending { END_WAIT, END_EXIT, END_ABORT, END_DEAF };

struct family {
    pid_t front, keeper, runner;
    char mark[64];
    char state[300];
};

/* In the runner: starts a process of another user (when root) with children that hide from it in a
 * session of their own and as orphans, then does what `ending` says. */
static _Noreturn void be_runner(const char *mark, const char *report_path, enum ending ending)
{
    struct account account;
    struct err err = {0};
    char *state = NULL;
    const char *script = "(setsid sh -c 'sleep 600 & sleep 600' & ) ; sleep 600 & exec sleep 600";
    const char *argv[] = {"/bin/sh", "-c", script, NULL};
    const char *env[] = {mark, NULL};
    struct process process;
    char *base = NULL;
    if (account_for_servers(&account, &err) < 0 || state_base(scratch, &account, &base, &err) < 0 ||
        state_create(base, &state, &err) < 0 || port_take(base, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        exit(99);
    }
    struct process_plan plan = {
        .who = "family", .argv = argv, .env = env, .account = account, .cwd = "/"};
    if (process_start(&process, &plan, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        exit(99);
    }
    while (count_marked(mark) < 5) { /* two sleeps and their shell; the sleep beside; itself */
        poll(NULL, 0, 10);
    }
    char *text = xasprintf("%d %d %s\n", (int)getppid(), (int)getpid(), state);
    file_write(report_path, text, strlen(text), NULL);
    free(text);
    free(base);
    if (ending == END_EXIT) {
        process_free(&process);
        free(state);
        exit(7); /* careless: leaves all behind */
    }
    if (ending == END_ABORT) {
        signal(SIGABRT, SIG_DFL);
        raise(SIGABRT);
    }
    while (ending == END_DEAF || !keeper_interrupted()) {
        keeper_nap(50);
        if (ending == END_DEAF) {
            poll(NULL, 0, 20);
        }
    }
    process_kill_tree(&process);
    process_free(&process);
    state_remove(state, false);
    free(state);
    state_leave(xstrdup(scratch));
    exit(128 + keeper_interrupted());
}

static void start_family(struct family *family, enum ending ending)
{
    static int number;
    char report_path[300];
    *family = (struct family){0};
    snprintf(family->mark, sizeof(family->mark), "KEEPER_TEST=%d-%d", (int)getpid(), ++number);
    snprintf(report_path, sizeof(report_path), "%s/report-%d", scratch, number);
    fflush(NULL);
    family->front = fork();
    assert_true(family->front >= 0);
    if (family->front == 0) {
        keeper_enter();
        be_runner(family->mark, report_path, ending);
    }
    for (int tries = 0; tries < 1000; tries++) {
        FILE *file = fopen(report_path, "re");
        int keeper, runner;
        int got = file ? fscanf(file, "%d %d %299s", &keeper, &runner, family->state) : 0;
        if (file) {
            fclose(file);
        }
        if (got == 3) {
            family->keeper = keeper;
            family->runner = runner;
            return;
        }
        poll(NULL, 0, 10);
    }
    fail_msg("the family did not start");
}

/* Waits for the front's end; returns its status. Then nothing may be left. */
static int expect_clean(const struct family *family)
{
    int status = 0;
    pid_t got = 0;
    for (int tries = 0; tries < 1000 && got == 0; tries++) {
        got = waitpid(family->front, &status, WNOHANG);
        poll(NULL, 0, 10);
    }
    if (got != family->front) {
        kill(family->front, SIGKILL);
        fail_msg("the front did not end within 10 s");
    }
    int left = -1;
    char ports[300];
    snprintf(ports, sizeof(ports), "%s/ports", scratch);
    bool state_left = true, runner_left = true, keeper_left = true;
    for (int tries = 0; tries < 500; tries++) {
        left = count_marked(family->mark);
        state_left = file_exists(family->state) || file_exists(ports);
        runner_left = !is_gone(family->runner);
        keeper_left = !is_gone(family->keeper);
        if (left == 0 && !state_left && !runner_left && !keeper_left) {
            break;
        }
        poll(NULL, 0, 10);
    }
    assert_int_equal(left, 0);
    assert_false(state_left);
    assert_false(runner_left);
    assert_false(keeper_left);
    return status;
}

static void the_mark_is_seen(void **state)
{
    (void)state;
    struct family family;
    start_family(&family, END_WAIT);
    assert_true(count_marked(family.mark) >= 5);
    assert_true(file_exists(family.state));
    kill(family.front, SIGTERM);
    int status = expect_clean(&family);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 128 + SIGTERM);
}

static void sigkill_of_the_runner(void **state)
{
    (void)state;
    struct family family;
    start_family(&family, END_WAIT);
    kill(family.runner, SIGKILL);
    int status = expect_clean(&family);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 3);
}

static void sigkill_of_the_front(void **state)
{
    (void)state;
    struct family family;
    start_family(&family, END_WAIT);
    kill(family.front, SIGKILL);
    int status = expect_clean(&family);
    assert_true(WIFSIGNALED(status));
}

static void sigkill_of_the_keeper(void **state)
{
    (void)state;
    struct family family;
    start_family(&family, END_WAIT);
    kill(family.keeper, SIGKILL);
    int status = expect_clean(&family);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 3);
}

static void interrupt_from_the_terminal(void **state)
{
    (void)state;
    struct family family;
    start_family(&family, END_WAIT);
    kill(family.front, SIGINT); /* the front passes it on, and the group has it too */
    kill(family.runner, SIGINT);
    int status = expect_clean(&family);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 130);
}

static void second_interrupt_ends_a_deaf_runner(void **state)
{
    (void)state;
    struct family family;
    start_family(&family, END_DEAF);
    kill(family.front, SIGINT);
    poll(NULL, 0, 1300);
    kill(family.front, SIGINT);
    int status = expect_clean(&family);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 130);
}

static void careless_exit(void **state)
{
    (void)state;
    struct family family;
    start_family(&family, END_EXIT);
    int status = expect_clean(&family);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
}

static void crash(void **state)
{
    (void)state;
    struct family family;
    start_family(&family, END_ABORT);
    int status = expect_clean(&family);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 3);
}

static int make_scratch(void **state)
{
    (void)state;
    return mkdtemp(scratch) && chmod(scratch, 0755) == 0 ? 0 : -1;
}

static int remove_scratch(void **state)
{
    (void)state;
    return file_remove_tree(scratch, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mark_is_seen),
        cmocka_unit_test(sigkill_of_the_runner),
        cmocka_unit_test(sigkill_of_the_front),
        cmocka_unit_test(sigkill_of_the_keeper),
        cmocka_unit_test(interrupt_from_the_terminal),
        cmocka_unit_test(second_interrupt_ends_a_deaf_runner),
        cmocka_unit_test(careless_exit),
        cmocka_unit_test(crash),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}

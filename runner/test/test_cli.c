/* Oracle: what the documentation promises of the command: exit codes, the words of each mistake,
 * and that nothing is left running or lying about (by /proc and the file system), however it ends.
 * The runs are of the sink "memory": no other part's correctness is in question here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "prefix.h"

static const char *sluice;
static char scratch[] = "/var/tmp/sluice-test-cli-XXXXXX";
static bool have_postgres;

/* Every process below carries it in its environment. */
static char mark[64];

enum { ARGS_MAX = 24 };
#define QUIET "--set", "faults=[]", "--set", "load.phases.0.for=500ms", "--set", "load.rps=50"
#define SHORT QUIET, "--set", "load.phases.1.for=1s", "--set", "load.phases.2.for=500ms"
#define LONG  QUIET, "--set", "load.phases.1.for=120s"

static pid_t start(const char *program, const char *const args[], const char *out_name)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char *argv[ARGS_MAX + 2] = {xstrdup(program)};
        for (size_t i = 0; args[i]; i++) {
            argv[i + 1] = xstrdup(args[i]);
        }
        int fd = open(out_name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0) {
            _exit(99);
        }
        setpgid(0, 0);
        execv(program, argv);
        _exit(98);
    }
    return pid;
}

static int finish(pid_t pid, const char *out_name, struct buf *out)
{
    int status = -1;
    pid_t got = 0;
    for (int tries = 0; tries < 6000 && got == 0; tries++) {
        got = waitpid(pid, &status, WNOHANG);
        poll(NULL, 0, 10);
    }
    if (got != pid) {
        kill(pid, SIGKILL);
        fail_msg("sluice did not end within a minute");
    }
    buf_clear(out);
    file_read(out_name, 1024 * 1024, out, NULL);
    buf_puts(out, "");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int run(struct buf *out, const char *const args[])
{
    return finish(start(sluice, args, "out"), "out", out);
}

static void expect(int code, const char *part, const char *const args[])
{
    struct buf out = {0};
    int got = run(&out, args);
    const char *text = out.data ? out.data : "";
    if (got != code || !strstr(text, part)) {
        fail_msg("sluice %s %s ...: expected exit code %d and \"%s\", got %d and:\n%s", args[0],
                 args[0] ? args[1] : "", code, part, got, text);
    }
    buf_free(&out);
}
#define EXPECT(code, part, ...) expect(code, part, (const char *const[]){__VA_ARGS__, NULL})

static int count_marked(void)
{
    int count = 0;
    DIR *proc = opendir("/proc");
    for (const struct dirent *entry; proc && (entry = readdir(proc));) {
        char path[300], text[65536];
        snprintf(path, sizeof(path), "/proc/%.250s/environ", entry->d_name);
        FILE *file = entry->d_name[0] >= '0' && entry->d_name[0] <= '9' &&
                             strtol(entry->d_name, NULL, 10) != getpid()
                         ? fopen(path, "re")
                         : NULL;
        if (file) {
            size_t len = fread(text, 1, sizeof(text), file);
            fclose(file);
            count += memmem(text, len, mark, strlen(mark)) != NULL;
        }
    }
    if (proc) {
        closedir(proc);
    }
    return count;
}

static size_t count_files(const char *pattern)
{
    glob_t found;
    size_t count = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    if (count > 0) {
        globfree(&found);
    }
    return count;
}

/* No process, no state; a killed keeper may take a moment. */
static void expect_nothing_left(void)
{
    int left = -1;
    size_t folders = 1;
    for (int tries = 0; tries < 500 && (left != 0 || folders != 0); tries++) {
        left = count_marked();
        folders = count_files("state/run-*");
        poll(NULL, 0, 10);
    }
    assert_int_equal(left, 0);
    assert_int_equal(folders, 0);
}

static void need_postgres(void)
{
    if (!have_postgres) {
        const char *ci = getenv("CI");
        if (ci && strcmp(ci, "true") == 0) {
            fail_msg("no PostgreSQL server, and with CI=true nothing may be skipped");
        }
        print_message("SKIP: no PostgreSQL server; run scripts/deps\n");
        skip();
    }
}

/* ---- mistakes ---- */

static void help_is_everywhere(void **state)
{
    (void)state;
    static const char *const names[] = {"run",   "audit", "report", "export",
                                        "trace", "sinks", "clean",  "with"};
    EXPECT(0, "Exit codes", "--help");
    EXPECT(0, "sluice 0.", "--version");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        EXPECT(0, "Exit codes", names[i], "--help");
        EXPECT(0, "sluice 0.", names[i], "--version");
        EXPECT(2, "unknown flag --nonsense", names[i], "--nonsense");
    }
    EXPECT(0, "promise", "sinks");
    EXPECT(0, "memory", "sinks", "memory");
    EXPECT(2, "there is no sink kafka", "sinks", "kafka");
}

static void mistakes_start_nothing(void **state)
{
    (void)state;
    static const char bad[] =
        "name: bad\nload: {rps: 500,\n       phases: [{name: steady, for: 3}]}\n";
    assert_int_equal(file_write("bad.yaml", bad, strlen(bad), NULL), 0);
    EXPECT(2, "there is no command \"rum\"", "rum");
    EXPECT(2, "run takes one scenario", "run");
    EXPECT(2, "run takes one scenario", "run", "quick", "article");
    EXPECT(2, "there is no such scenario", "run", "nope");
    EXPECT(2, "there is no such scenario", "run", "./nope.yaml");
    EXPECT(2, "bad.yaml:3:37: load.phases[0].for: expected a duration", "run", "bad.yaml");
    EXPECT(2, "--sink kafka: expected one of", "run", "quick", "--sink", "kafka");
    EXPECT(2, "named twice", "run", "quick", "--sink", "memory", "--sink", "memory");
    EXPECT(2, "--set load.rps=-1: load.rps: expected a whole number", "run", "quick", "--set",
           "load.rps=-1");
    EXPECT(2, "quick.yaml:17:30: the sink memory has no worker", "run", "quick", "--sink",
           "memory");
    EXPECT(2, "the sink memory has no server of its own", "run", "quick", "--sink", "memory",
           "--set", "faults.0.who=sink");
    EXPECT(2, "no sink has a setting \"wal-colour\"", "run", "quick", "--set", "sink.wal-colour=1");
    EXPECT(2, "sink.sink-batch-max", "run", "quick", "--set", "sink.sink-batch-max=lots");
    EXPECT(2, "chosen by sluice itself", "run", "quick", "--set", "sink.sink-url=redis://h");
    EXPECT(2, "--repeat", "run", "quick", "--repeat", "0");
    EXPECT(2, "--daemons", "run", "quick", "--daemons", "/no/such", "--set", "faults=[]");
    EXPECT(2, "with takes the name of a server", "with");
    EXPECT(2, "with takes the name of a server", "with", "kafka", "--", "true");
    EXPECT(2, "with takes the name of a server", "with", "wal", "--", "true");
    EXPECT(2, "main-db is named twice", "with", "main-db", "main-db", "--", "true");
    EXPECT(2, "with needs a command", "with", "main-db");
    EXPECT(2, "with needs a command", "with", "main-db", "--");
    EXPECT(2, "there is no such folder", "audit", "no-such-run");
    EXPECT(3, "holds no manifest.json", "audit", ".");
    EXPECT(2, "audit takes the folder", "audit");
    EXPECT(2, "trace takes the folder", "trace", ".");
    EXPECT(2, "report takes the folder", "report");
    EXPECT(2, "there is no such folder", "report", "no-such");
    EXPECT(2, "there is no such folder", "report", ".", "no-such");
    EXPECT(3, "holds no run", "report", ".", ".");
    EXPECT(2, "--gate needs two comparisons", "report", ".", "--gate");
    EXPECT(2, "--require-sla is for a report of one", "report", ".", ".", "--require-sla");
    EXPECT(2, "or two", "report", ".", ".", ".");
    EXPECT(2, "export takes the folder of one run and --csv", "export", ".");
    EXPECT(3, "holds no manifest.json", "export", ".", "--csv");
    EXPECT(2, "takes no words", "clean", "everything");
    assert_false(file_exists("runs"));
    assert_false(file_exists("state"));
    expect_nothing_left();
}

/* ---- what cannot be started ---- */

static void make_program(const char *path, const char *text)
{
    assert_int_equal(file_write(path, text, strlen(text), NULL), 0);
    chmod(path, 0755);
}

static void unusable_places(void **state)
{
    (void)state;
    EXPECT(3, "/proc/nowhere", "run", "quick", "--sink", "memory", SHORT, "--state",
           "/proc/nowhere");
    EXPECT(3, "/proc/nowhere", "run", "quick", "--sink", "memory", SHORT, "--runs", "/proc/nowhere",
           "--state", "state");
    assert_int_equal(setenv("SLUICE_POSTGRES_BIN", "/no/such/folder", 1), 0);
    EXPECT(3, "SLUICE_POSTGRES_BIN=/no/such/folder", "run", "quick", "--sink", "memory", SHORT,
           "--state", "state");
    EXPECT(3, "SLUICE_POSTGRES_BIN=/no/such/folder", "with", "main-db", "--", "true");
    unsetenv("SLUICE_POSTGRES_BIN");
    expect_nothing_left();
}

static void broken_daemons_are_named_with_their_log(void **state)
{
    (void)state;
    need_postgres();
    assert_int_equal(mkdir("broken", 0755), 0);
    make_program("broken/sluice-api", "#!/bin/sh\necho 'port 80 is taken' >&2\nexit 3\n");
    EXPECT(3, "api ended while it started (exit code 3); its log ", "run", "quick", "--sink",
           "memory", SHORT, "--state", "state", "--daemons", "broken");
    EXPECT(3, "memory/1/logs/api.log ends: port 80 is taken", "run", "quick", "--sink", "memory",
           SHORT, "--state", "state", "--daemons", "broken");
    expect_nothing_left();
    unlink("broken/sluice-api");
    /* One that crashes in the middle of the load is a failure of the run, not a fault. */
    make_program("broken/sluice-sampler", "#!/bin/sh\nsleep 3\necho 'oh no' >&2\nexit 70\n");
    EXPECT(3, "sampler ended in the middle of the run (exit code 70)", "run", "quick", "--sink",
           "memory", LONG, "--state", "state", "--daemons", "broken");
    expect_nothing_left();
    unlink("broken/sluice-sampler");
    make_program("broken/sluice-loadgen", "#!/bin/sh\necho 'no descriptors' >&2\nexit 3\n");
    EXPECT(3, "loadgen ended before the load was over (exit code 3)", "run", "quick", "--sink",
           "memory", LONG, "--state", "state", "--daemons", "broken");
    expect_nothing_left();
    struct buf manifest = {0};
    glob_t found;
    assert_int_equal(glob("runs/quick-*/memory/1/manifest.json", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        assert_int_equal(file_read(found.gl_pathv[i], 1 << 20, &manifest, NULL), 0);
        assert_non_null(strstr(manifest.data, "\"outcome\": \"failed\""));
        buf_clear(&manifest);
    }
    globfree(&found);
    buf_free(&manifest);
    assert_int_equal(file_remove_tree("runs", NULL), 0);
}

static void programs_that_are_missing(void **state)
{
    (void)state;
    need_postgres();
    struct buf program = {0};
    assert_int_equal(file_read(sluice, 64 << 20, &program, NULL), 0);
    assert_int_equal(mkdir("alone", 0755), 0);
    assert_int_equal(file_write("alone/sluice", program.data, program.len, NULL), 0);
    chmod("alone/sluice", 0755);
    buf_clear(&program);
    const char *const args[] = {"run", "quick",   "--sink", "memory",
                                SHORT, "--state", "state",  NULL};
    assert_int_equal(finish(start("alone/sluice", args, "out"), "out", &program), 3);
    assert_non_null(strstr(program.data, "sluice-api is not beside sluice"));
    buf_free(&program);
    expect_nothing_left();
    assert_int_equal(file_remove_tree("runs", NULL), 0);
}

/* ---- ends ---- */

/* Starts a long run; returns when its load is under way. */
static pid_t start_long(void)
{
    static const char *const args[] = {"run", "quick",   "--sink", "memory",
                                       LONG,  "--state", "state",  NULL};
    pid_t pid = start(sluice, args, "long");
    for (int tries = 0; tries < 3000; tries++) {
        if (count_files("runs/quick-*/memory/1/pids/loadgen") > 0) {
            poll(NULL, 0, 500);
            return pid;
        }
        poll(NULL, 0, 10);
    }
    kill(pid, SIGKILL);
    fail_msg("the load did not start");
    return -1;
}

static void expect_interrupted_manifest(void)
{
    glob_t found;
    struct buf manifest = {0};
    assert_int_equal(glob("runs/quick-*/memory/1/manifest.json", 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    assert_int_equal(file_read(found.gl_pathv[0], 1 << 20, &manifest, NULL), 0);
    assert_non_null(strstr(manifest.data, "\"outcome\": \"interrupted\""));
    globfree(&found);
    buf_free(&manifest);
    assert_int_equal(file_remove_tree("runs", NULL), 0);
}

static void interrupted_runs_leave_nothing(void **state)
{
    (void)state;
    need_postgres();
    struct buf out = {0};
    pid_t pid = start_long();
    assert_true(count_marked() > 5);         /* so that none left means something */
    assert_int_equal(kill(-pid, SIGINT), 0); /* as a terminal does: the whole group */
    assert_int_equal(finish(pid, "long", &out), 130);
    assert_non_null(strstr(out.data, "interrupted"));
    expect_nothing_left();
    expect_interrupted_manifest();
    pid = start_long();
    assert_int_equal(kill(pid, SIGTERM), 0);
    assert_int_equal(finish(pid, "long", &out), 128 + SIGTERM);
    expect_nothing_left();
    expect_interrupted_manifest();
    buf_free(&out);
}

static void killed_runs_leave_nothing(void **state)
{
    (void)state;
    need_postgres();
    struct buf out = {0};
    pid_t pid = start_long();
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(finish(pid, "long", &out), 128 + SIGKILL);
    expect_nothing_left();
    expect_interrupted_manifest();
    buf_free(&out);
}

static void with_gives_back_the_commands_code(void **state)
{
    (void)state;
    need_postgres();
    EXPECT(0, "postgresql://sluice:", "with", "main-db", "--", "/bin/sh", "-c",
           "echo $SLUICE_TEST_MAIN_URL; test \"$SLUICE_MAIN_URL\" = \"$SLUICE_TEST_MAIN_URL\"");
    EXPECT(7, "", "with", "main-db", "--state", "state", "--", "/bin/sh", "-c", "exit 7");
    EXPECT(128 + SIGSEGV, "", "with", "main-db", "--", "/bin/sh", "-c", "kill -SEGV $$");
    EXPECT(3, "/no/such/command", "with", "main-db", "--", "/no/such/command");
    EXPECT(0, "--help", "with", "main-db", "--", "/bin/echo", "--help");
    expect_nothing_left();
}

static void with_starts_several_servers(void **state)
{
    (void)state;
    static const char script[] =
        "test -S $SLUICE_TEST_MAIN_CONTROL && test -S $SLUICE_TEST_INGEST_CONTROL && "
        "test -n \"$SLUICE_TEST_INGEST_URL\" && "
        "test \"$SLUICE_TEST_INGEST_URL\" != \"$SLUICE_TEST_MAIN_URL\" && echo two servers";
    need_postgres();
    EXPECT(0, "two servers", "with", "main-db", "ingest", "--state", "state", "--", "/bin/sh", "-c",
           script);
    expect_nothing_left();
    assert_int_equal(count_files("state/*"), 0);
}

static void with_goes_on_without_a_missing_server(void **state)
{
    (void)state;
    assert_int_equal(setenv("SLUICE_POSTGRES_BIN", "/no/such/folder", 1), 0);
    EXPECT(0, "WARNING: there is no server for main-db", "with", "main-db", "--missing-ok",
           "--state", "state", "--", "/bin/sh", "-c", "test -z \"$SLUICE_TEST_MAIN_URL\"");
    unsetenv("SLUICE_POSTGRES_BIN");
    expect_nothing_left();
    assert_int_equal(count_files("state/*"), 0);
}

static void with_needs_room_for_a_sockets_path(void **state)
{
    (void)state;
    need_postgres();
    char name[100];
    memset(name, 'd', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    EXPECT(3, "a socket's path has at most 107 bytes", "with", "main-db", "--state", name, "--",
           "true");
    expect_nothing_left();
    assert_int_equal(file_remove_tree(name, NULL), 0);
}

/* ---- whole runs ---- */

static void runs_are_resumed(void **state)
{
    (void)state;
    need_postgres();
    glob_t found;
    EXPECT(0, "nothing to resume", "run", "quick", "--sink", "memory", SHORT, "--state", "state",
           "--resume", "--repeat", "2");
    assert_int_equal(count_files("runs/quick-*/memory/[12]/audit.json"), 2);
    assert_int_equal(count_files("runs/quick-*/compare.md"), 1);
    expect_nothing_left();
    assert_int_equal(count_files("state/*"), 0);
    /* A run that was cut short, beside one that is complete. */
    assert_int_equal(glob("runs/quick-*/memory/2/manifest.json", 0, NULL, &found), 0);
    struct buf manifest = {0};
    assert_int_equal(file_read(found.gl_pathv[0], 1 << 20, &manifest, NULL), 0);
    memcpy(strstr(manifest.data, "\"complete\""), "\"failed\"  ", 10);
    assert_int_equal(file_write(found.gl_pathv[0], manifest.data, manifest.len, NULL), 0);
    struct buf out = {0};
    const char *const args[] = {"run",   "quick",    "--sink",   "memory", SHORT, "--state",
                                "state", "--resume", "--repeat", "2",      NULL};
    assert_int_equal(run(&out, args), 0);
    assert_non_null(strstr(out.data, "[1/2] memory: complete already, kept"));
    assert_non_null(strstr(out.data, "[2/2] memory: not complete, made anew"));
    assert_int_equal(count_files("runs/quick-*"), 1);
    /* Another rate is another scenario: not resumed. */
    EXPECT(0, "nothing to resume", "run", "quick", "--sink", "memory", SHORT, "--set",
           "load.rps=60", "--state", "state", "--resume");
    assert_int_equal(count_files("runs/quick-*"), 2);
    /* Of other sinks, or made by hand: it says which one that is, and touches nothing. */
    EXPECT(2, "of the sinks memory through native, not of direct memory", "run", "quick", "--sink",
           "memory", "--sink", "direct", SHORT, "--state", "state", "--resume");
    globfree(&found);
    assert_int_equal(glob("runs/quick-*/run.json", 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 2);
    assert_int_equal(unlink(found.gl_pathv[0]), 0);
    EXPECT(2, "was not made by sluice run", "run", "quick", "--sink", "memory", SHORT, "--state",
           "state", "--resume");
    assert_int_equal(count_files("runs/quick-*"), 2);
    globfree(&found);
    buf_free(&out);
    buf_free(&manifest);
    assert_int_equal(file_remove_tree("runs", NULL), 0);
}

static int set_up(void **state)
{
    (void)state;
    struct err err = {0};
    char *bin;
    have_postgres = prefix_find_postgres(&bin, &err) == 0;
    free(bin);
    snprintf(mark, sizeof(mark), "CLI_TEST=%d", (int)getpid());
    setenv("CLI_TEST", mark + strlen("CLI_TEST="), 1);
    return mkdtemp(scratch) && chmod(scratch, 0755) == 0 && chdir(scratch) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return chdir("/") == 0 ? file_remove_tree(scratch, NULL) : -1;
}

int main(int argc, char *argv[])
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_cli PATH-OF-SLUICE\n");
        return 2;
    }
    sluice = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_is_everywhere),
        cmocka_unit_test(mistakes_start_nothing),
        cmocka_unit_test(unusable_places),
        cmocka_unit_test(broken_daemons_are_named_with_their_log),
        cmocka_unit_test(programs_that_are_missing),
        cmocka_unit_test(interrupted_runs_leave_nothing),
        cmocka_unit_test(killed_runs_leave_nothing),
        cmocka_unit_test(with_gives_back_the_commands_code),
        cmocka_unit_test(with_starts_several_servers),
        cmocka_unit_test(with_goes_on_without_a_missing_server),
        cmocka_unit_test(with_needs_room_for_a_sockets_path),
        cmocka_unit_test(runs_are_resumed),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

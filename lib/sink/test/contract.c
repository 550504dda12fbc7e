/* contract.c: picks driver and cases, runs each in a process of its own, says what came of it. */
#include "contract.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "sink_plain.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_TOLD = 33, EXIT_SKIPPED = 77, CASE_TIME_S = 100 };

static const struct option_spec contract_options[] = {
    {.name = "case",
     .type = OPTION_LIST,
     .unit = "NAME",
     .help = "only this case; may be repeated"},
    {.name = "broken",
     .type = OPTION_STRING,
     .unit = "FAULT",
     .help = "put a fault around the driver, to see the suite fail"},
    {.name = "patience",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "10s",
     .min = NS_PER_MS,
     .max = 60 * NS_PER_S,
     .help = "nothing happens for so long: a failure"},
    {.name = "largest",
     .type = OPTION_SIZE,
     .unit = "SIZE",
     .default_text = "1000000B",
     .min = 1,
     .max = 64 << 20,
     .help = "the largest body"},
    {.name = "seed",
     .type = OPTION_INT,
     .unit = "N",
     .help = "of ids and bodies; default: the time"},
    {.name = NULL},
};

static struct contract contract; /* of this process; a case's process has its own copy */
static const struct contract_case *running;
static pid_t case_pid;

static const struct {
    enum need need;
    const char *why;
} reasons[] = {
    {NEED_STORE, "what it stores cannot be got out again"},
    {NEED_DRAIN, "it has no drain side (no SINK_DRAINS)"},
    {NEED_BACKLOG, "it does not count its backlog exactly (no SINK_BACKLOG_EXACT)"},
    {NEED_KILL, "it does not promise to survive SIGKILL (no SINK_DURABLE_KILL)"},
    {NEED_CUT, "its world has no connections to cut"},
    {NEED_SERVER, "its world has no server to stop"},
    {NEED_PAUSE, "its world has no server to pause"},
};

static unsigned abilities(void)
{
    unsigned flags = contract.driver->flags;
    const struct world *world = contract.world;
    unsigned able = 0;
    able |= flags & SINK_DRAINS ? NEED_DRAIN | NEED_STORE : 0;
    able |= world->look ? NEED_STORE : 0;
    able |= flags & SINK_BACKLOG_EXACT ? NEED_BACKLOG : 0;
    able |= flags & SINK_DURABLE_KILL ? NEED_KILL : 0;
    able |= world->cut ? NEED_CUT : 0;
    able |= world->server_stop && world->server_start ? NEED_SERVER : 0;
    able |= world->server_pause && world->server_resume ? NEED_PAUSE : 0;
    return able;
}

static void __attribute__((format(printf, 3, 0)))
say(const char *what, const char *name, const char *format, va_list args)
{
    struct buf text = {0};
    buf_printf(&text, "%-9s%s: %s", what, contract.driver->name, name);
    if (format) {
        buf_puts(&text, ": ");
        buf_vprintf(&text, format, args);
    }
    buf_putc(&text, '\n');
    fputs(text.data, stdout);
    fflush(stdout);
    buf_free(&text);
}

static void __attribute__((format(printf, 3, 4)))
say_simply(const char *what, const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(what, name, format, args);
    va_end(args);
}

static void __attribute__((noreturn)) leave(int status)
{
    /* Helpers fail too, but the sink is not theirs to clear away. */
    if (getpid() == case_pid) {
        contract.world->unmake(&contract);
    }
    _exit(status);
}

void contract_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say("FAIL", running->name, format, args);
    va_end(args);
    leave(EXIT_TOLD);
}

void contract_skip(const char *why)
{
    const char *ci = getenv("CI");
    printf("SKIP: %s\n", why);
    fflush(stdout);
    _exit(ci && strcmp(ci, "true") == 0 ? EXIT_TOLD : EXIT_SKIPPED);
}

void expect(bool condition, const char *format, ...)
{
    if (condition) {
        return;
    }
    struct buf text = {0};
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    contract_fail("%s", text.data);
}

/* In the case's process. */
static void run_case(const struct contract_case *one)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    case_pid = getpid();
    contract.world->make(&contract);
    one->run(&contract);
    contract.world->unmake(&contract);
    exit(0); /* not _exit: leaks are looked for here */
}

/* Returns the case's exit status. */
static int run_apart(const struct contract_case *one)
{
    pid_t pid = fork();
    if (pid < 0) {
        say_simply("FAIL", one->name, "no process: %s", strerror(errno));
        return EXIT_FAILED;
    }
    if (pid == 0) {
        run_case(one);
    }
    int status = 0;
    int64_t until_ns = clock_mono_ns() + CASE_TIME_S * NS_PER_S;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (clock_mono_ns() > until_ns) {
            say_simply("FAIL", one->name, "not done within %d s", CASE_TIME_S);
            kill(-pid, SIGKILL);
            waitpid(pid, &status, 0);
            return EXIT_FAILED;
        }
        clock_sleep_ns(2 * NS_PER_MS);
    }
    kill(-pid, SIGKILL); /* helpers it left */
    if (WIFSIGNALED(status)) {
        say_simply("FAIL", one->name, "ended by signal %d", WTERMSIG(status));
        return EXIT_FAILED;
    }
    int code = WEXITSTATUS(status);
    if (code != 0 && code != EXIT_TOLD && code != EXIT_SKIPPED) {
        say_simply("FAIL", one->name, "exit status %d", code); /* a sanitizer's, for one */
    }
    return code == 0 || code == EXIT_SKIPPED ? code : EXIT_FAILED;
}

/* With a folder of its own, removed even if the case dies. */
static int run_in_folder(const struct contract_case *one)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(contract.folder, sizeof(contract.folder), "%s/sluice-contract-XXXXXX",
             tmp && *tmp ? tmp : "/var/tmp");
    running = one;
    fflush(stdout);
    if (!mkdtemp(contract.folder)) {
        say_simply("FAIL", one->name, "cannot make %s: %s", contract.folder, strerror(errno));
        return EXIT_FAILED;
    }
    int code = run_apart(one);
    file_remove_tree(contract.folder, NULL);
    return code;
}

static bool wanted(const struct contract_case *one)
{
    size_t count;
    const char *const *names = options_list(contract.options, "case", &count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], one->name) == 0) {
            return true;
        }
    }
    return count == 0;
}

struct tally {
    unsigned passed, failed, excused, skipped;
};

static void run_cases(const struct contract_case *cases, struct tally *tally)
{
    unsigned able = abilities();
    for (const struct contract_case *one = cases; one->name; one++) {
        if (!wanted(one)) {
            continue;
        }
        unsigned missing = one->needs & ~able;
        if (missing) {
            for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
                if (missing & reasons[i].need) {
                    say_simply("excused", one->name, "%s", reasons[i].why);
                    break;
                }
            }
            tally->excused++;
            continue;
        }
        int code = run_in_folder(one);
        if (code == EXIT_SKIPPED) {
            tally->skipped++;
            return;
        }
        tally->failed += code != 0;
        tally->passed += code == 0;
        if (code == 0) {
            say_simply("ok", one->name, NULL);
        }
    }
}

static int choose_driver(struct err *err)
{
    const char *name = options_string(contract.options, "sink");
    int rc = 0;
    if (name && strcmp(name, sink_plain.name) == 0) {
        contract.driver = &sink_plain;
    } else {
        rc = sink_select(contract.options, &contract.driver, err);
        if (rc < 0 && name && sink_find(name)) {
            contract.driver = sink_find(name); /* what it requires, its world will set */
            rc = 0;
        }
    }
    if (rc < 0) {
        return rc;
    }
    contract.world = &world_any;
    for (size_t i = 0; worlds[i]; i++) {
        if (strcmp(worlds[i]->sink, contract.driver->name) == 0) {
            contract.world = worlds[i];
        }
    }
    const char *fault = options_string(contract.options, "broken");
    if (fault) {
        contract.driver = broken_driver(fault, contract.driver);
        return contract.driver ? 0 : err_set(err, -EINVAL, "--broken=%s: no such fault", fault);
    }
    return 0;
}

static int run_all(void)
{
    struct err err = {0};
    if (choose_driver(&err) < 0) {
        fprintf(stderr, "contract: %s\n", err.text);
        return EXIT_USAGE;
    }
    contract.patience_ns = options_duration_ns(contract.options, "patience");
    contract.largest_bytes = (size_t)options_size_bytes(contract.options, "largest");
    contract.seed = options_is_set(contract.options, "seed")
                        ? (uint64_t)options_int(contract.options, "seed")
                        : (uint64_t)clock_wall_us();
    struct tally tally = {0};
    run_cases(ingest_cases, &tally);
    run_cases(drain_cases, &tally);
    run_cases(kill_cases, &tally);
    run_cases(server_cases, &tally);
    printf("%s: %u passed, %u failed, %u excused (--seed=%llu)\n", contract.driver->name,
           tally.passed, tally.failed, tally.excused, (unsigned long long)contract.seed);
    if (tally.failed == 0 && tally.skipped > 0) {
        return EXIT_SKIPPED;
    }
    if (tally.passed + tally.failed == 0) {
        fprintf(stderr, "contract: no case ran\n");
        return EXIT_USAGE;
    }
    return tally.failed > 0 ? EXIT_FAILED : 0;
}

int main(int argc, char *argv[])
{
    int exit_code = 0;
    log_init("contract");
    log_set_level(LOG_LEVEL_ERROR); /* drivers whose server is gone have much to say */
    signal(SIGPIPE, SIG_IGN);
    contract.options = options_new("contract", "Holds a sink driver to what sink.h says.");
    options_add(contract.options, "Suite", contract_options);
    sink_add_options(contract.options);
    options_add(contract.options, "Sink plain (tests only)", sink_plain.options);
    if (options_start(contract.options, argc, argv, &exit_code)) {
        exit_code = run_all();
    }
    options_free(contract.options);
    return exit_code;
}

#include "keeper.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "process.h"
#include "state.h"

/* Shared by the three: the keeper must know the folder after the runner is gone. */
struct board {
    char state_dir[PATH_MAX];
    char state_base[PATH_MAX];
};

static struct board *board;
static volatile sig_atomic_t caught_signal;
static volatile int64_t caught_ns;

enum { EXIT_UNUSABLE = 3 };

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "sluice: %s: %s\n", what, strerror(errno));
    _exit(EXIT_UNUSABLE);
}

/* A Postgres that is told to end at once gives its own children 5 s. */
#define PATIENCE_NS (8 * NS_PER_S)

/* Kills children until there are none. Killing a child makes its own children ours, so this reaches
 * everything below, whatever process group or session it has moved to. */
static void kill_all_below(void)
{
    int64_t start_ns = clock_mono_ns();
    for (;;) {
        process_end_children(getpid(), clock_mono_ns() - start_ns < PATIENCE_NS);
        pid_t pid;
        do {
            pid = waitpid(-1, NULL, WNOHANG);
        } while (pid > 0 || (pid < 0 && errno == EINTR));
        if (pid < 0) {
            return; /* ECHILD */
        }
        poll(NULL, 0, 5);
    }
}

static void remove_state(void)
{
    if (board->state_dir[0] != '\0') {
        file_remove_tree(board->state_dir, NULL);
    }
    if (board->state_base[0] != '\0') {
        state_leave(xstrdup(board->state_base));
    }
}

static _Noreturn void keeper_loop(pid_t runner, int front_fd, int signal_fd)
{
    int exit_code = EXIT_UNUSABLE, killed_by = 0;
    for (;;) {
        struct pollfd fds[] = {{.fd = front_fd, .events = POLLIN},
                               {.fd = signal_fd, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR) {
            break;
        }
        if (fds[0].revents) {
            unsigned char number;
            ssize_t got = read(front_fd, &number, 1);
            if (got == 1) {
                kill(runner, number);
            } else if (got == 0) {
                break; /* the front is gone */
            }
        }
        if (fds[1].revents) {
            struct signalfd_siginfo info;
            (void)!read(signal_fd, &info, sizeof(info));
            int status;
            pid_t pid;
            bool ended = false;
            while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
                if (pid == runner) {
                    ended = true;
                    exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_UNUSABLE;
                    killed_by = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
                }
            }
            if (ended) {
                break;
            }
        }
    }
    kill_all_below();
    remove_state();
    if (killed_by) {
        fprintf(stderr,
                "sluice: was killed by signal %d in the middle of its work; all that it had "
                "started was stopped\n",
                killed_by);
    }
    _exit(exit_code);
}

static void on_signal(int number)
{
    int64_t now_ns = clock_mono_ns(); /* clock_gettime(2): safe in a handler */
    if (caught_signal == 0) {
        caught_signal = number;
        caught_ns = now_ns;
    } else if (now_ns - caught_ns > NS_PER_S) {
        /* A terminal's Ctrl-C may come twice at once (to the group, and passed on by the front), so
         * only a later one means "now". */
        _exit(128 + number);
    }
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* In the keeper: makes the runner, returns in it. */
static void start_runner(int front_fd)
{
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    signal(SIGTSTP, SIG_IGN);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
        die("prctl(PR_SET_CHILD_SUBREAPER)");
    }
    sigset_t child, old;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &old);
    int signal_fd = signalfd(-1, &child, SFD_CLOEXEC);
    if (signal_fd < 0) {
        die("signalfd");
    }
    pid_t keeper = getpid();
    pid_t runner = fork();
    if (runner < 0) {
        die("fork");
    }
    if (runner > 0) {
        prctl(PR_SET_NAME, "sluice-keeper");
        keeper_loop(runner, front_fd, signal_fd);
    }
    close(signal_fd);
    close(front_fd);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper) {
        _exit(EXIT_UNUSABLE);
    }
    signal(SIGQUIT, SIG_DFL);
    signal(SIGTSTP, SIG_DFL);
    catch_signals();
    sigemptyset(&old);
    sigprocmask(SIG_SETMASK, &old, NULL);
}

static _Noreturn void front_loop(pid_t keeper, int keeper_fd, const sigset_t *signals)
{
    prctl(PR_SET_NAME, "sluice-front");
    for (;;) {
        int number = sigwaitinfo(signals, NULL);
        if (number < 0) {
            continue;
        }
        if (number != SIGCHLD) {
            unsigned char byte = (unsigned char)number;
            (void)!write(keeper_fd, &byte, 1);
            continue;
        }
        int status;
        pid_t pid;
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
            if (pid != keeper) {
                continue;
            }
            if (WIFSIGNALED(status)) {
                kill_all_below();
                remove_state();
                fprintf(stderr,
                        "sluice: its keeper was killed by signal %d; all that it had "
                        "started was stopped\n",
                        WTERMSIG(status));
                _exit(EXIT_UNUSABLE);
            }
            _exit(WEXITSTATUS(status));
        }
    }
}

void keeper_enter(void)
{
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        die("mmap");
    }
    fflush(NULL); /* or each of the three prints what is buffered */
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) {
        die("pipe");
    }
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    /* A front whose parent ignores SIGCHLD would never hear of the keeper's end. */
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
        die("prctl(PR_SET_CHILD_SUBREAPER)");
    }
    pid_t keeper = fork();
    if (keeper < 0) {
        die("fork");
    }
    if (keeper > 0) {
        close(ends[0]);
        front_loop(keeper, ends[1], &signals);
    }
    close(ends[1]);
    start_runner(ends[0]);
}

int keeper_interrupted(void)
{
    return caught_signal;
}

void keeper_nap(int milliseconds)
{
    if (!caught_signal && milliseconds > 0) {
        poll(NULL, 0, milliseconds);
    }
}

static void publish(char *slot, const char *path)
{
    if (!path) {
        slot[0] = '\0';
        return;
    }
    size_t len = strlen(path);
    assert(path[0] == '/' && len < PATH_MAX);
    memcpy(slot + 1, path + 1, len); /* the first byte last: it makes the rest valid */
    slot[0] = path[0];
}

/* Without a board there is no keeper: in tests. */
void keeper_state_dir(const char *path)
{
    if (board) {
        publish(board->state_dir, path);
    }
}

void keeper_state_base(const char *path)
{
    if (board) {
        publish(board->state_base, path);
    }
}

#include "common/stop.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static int open_set(const sigset_t *set, struct err *err)
{
    int rc = sigprocmask(SIG_BLOCK, set, NULL);
    int fd = rc < 0 ? -1 : signalfd(-1, set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0) {
        return err_set(err, -errno, "cannot set up signal handling: %s", strerror(errno));
    }
    return fd;
}

int stop_open(struct err *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    signal(SIGPIPE, SIG_IGN);
    return open_set(&set, err);
}

int stop_open_other(int number, struct err *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    return open_set(&set, err);
}

int stop_signal(int stop_fd)
{
    struct signalfd_siginfo info;
    ssize_t got;
    do {
        got = read(stop_fd, &info, sizeof(info));
    } while (got < 0 && errno == EINTR);
    return got == (ssize_t)sizeof(info) ? (int)info.ssi_signo : 0;
}

const char *stop_signal_name(int signal)
{
    switch (signal) {
    case SIGTERM:
        return "SIGTERM";
    case SIGINT:
        return "SIGINT";
    default:
        return "a signal";
    }
}

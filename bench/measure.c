/* measure: runs a command and prints, after it, how long it took and the most memory it (or a child
 * of its) had: "seconds 1.234", "rss_max_mib 56.7", on standard output. Exits as the command did.
 *
 *   measure COMMAND [ARGUMENTS] */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

int main(int argc, char **argv)
{
    int64_t start_ns = clock_mono_ns();
    struct rusage usage;
    int status;
    pid_t pid;

    if (argc < 2) {
        fprintf(stderr, "usage: measure COMMAND [ARGUMENTS]\n");
        return 2;
    }
    pid = fork();
    if (pid == 0) {
        execvp(argv[1], argv + 1);
        fprintf(stderr, "measure: %s: %s\n", argv[1], strerror(errno));
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0) {
        fprintf(stderr, "measure: %s\n", strerror(errno));
        return 3;
    }
    getrusage(RUSAGE_CHILDREN, &usage);
    printf("seconds %.3f\nrss_max_mib %.1f\n", (double)(clock_mono_ns() - start_ns) / 1e9,
           (double)usage.ru_maxrss / 1024);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

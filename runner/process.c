#include "process.h"

#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

extern char **environ;

int account_for_servers(struct account *account, struct err *err)
{
    *account = (struct account){0};
    if (geteuid() != 0) {
        return 0;
    }
    const struct passwd *nobody = getpwnam("nobody");
    if (!nobody || nobody->pw_uid == 0) {
        return err_set(err, -ENOENT,
                       "servers must not run as root, and this system has no user "
                       "called nobody to run them as: start sluice as another user");
    }
    *account = (struct account){.drop = true, .uid = nobody->pw_uid, .gid = nobody->pw_gid};
    return 0;
}

/* ---- starting ---- */

static char **make_environment(const struct process_plan *plan)
{
    size_t ours = 0, added = 0;
    while (environ[ours]) {
        ours++;
    }
    while (plan->env && plan->env[added]) {
        added++;
    }
    char **all = xcalloc(ours + added + 1, sizeof(*all));
    size_t count = 0;
    for (size_t i = 0; i < ours; i++) {
        /* Settings of a daemon come from the scenario, not from the user's shell. */
        if (!plan->keep_env && strncmp(environ[i], "SLUICE_", 7) == 0 &&
            strncmp(environ[i], "SLUICE_TEST_", 12) != 0) {
            continue;
        }
        bool replaced = false;
        size_t name_len = strcspn(environ[i], "=") + 1;
        for (size_t k = 0; k < added && !replaced; k++) {
            replaced = strncmp(environ[i], plan->env[k], name_len) == 0;
        }
        if (!replaced) {
            all[count++] = environ[i];
        }
    }
    for (size_t i = 0; i < added; i++) {
        union {
            const char *in;
            char *out;
        } text = {.in = plan->env[i]};
        all[count++] = text.out;
    }
    return all;
}

struct child_report {
    int error;
    char step[32];
};

static _Noreturn void child_fail(int report_fd, const char *step)
{
    struct child_report report = {.error = errno};
    snprintf(report.step, sizeof(report.step), "%s", step);
    (void)!write(report_fd, &report, sizeof(report));
    _exit(127);
}

/* Between fork and exec: only what is safe there. */
static _Noreturn void child_run(const struct process_plan *plan, char **env, int log_fd,
                                int report_fd, pid_t parent)
{
    for (int number = 1; number < 32; number++) {
        signal(number, SIG_DFL);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (!plan->foreground) {
        setpgid(0, 0); /* Ctrl-C is for the runner, which stops the others in order */
        int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0) {
            child_fail(report_fd, "open /dev/null");
        }
    }
    if (log_fd >= 0 &&
        ((!plan->show && dup2(log_fd, STDOUT_FILENO) < 0) || dup2(log_fd, STDERR_FILENO) < 0)) {
        child_fail(report_fd, "redirect to the log");
    }
    if (plan->account.drop &&
        (setgroups(0, NULL) < 0 ||
         setresgid(plan->account.gid, plan->account.gid, plan->account.gid) < 0 ||
         setresuid(plan->account.uid, plan->account.uid, plan->account.uid) < 0)) {
        child_fail(report_fd, "change of user");
    }
    if (plan->cwd && chdir(plan->cwd) < 0) {
        child_fail(report_fd, "change of folder");
    }
    /* After the change of user, which would clear it. */
    prctl(PR_SET_PDEATHSIG, plan->death_signal ? plan->death_signal : SIGKILL);
    if (getppid() != parent) {
        _exit(127);
    }
    union {
        const char *const *in;
        char *const *out;
    } argv = {.in = plan->argv};
    execvpe(argv.out[0], argv.out, env);
    child_fail(report_fd, "execute");
}

int process_start(struct process *process, const struct process_plan *plan, struct err *err)
{
    *process = (struct process){0};
    snprintf(process->who, sizeof(process->who), "%s", plan->who);
    int log_fd = -1, rc = 0;
    int report[2] = {-1, -1};
    char **env = NULL;
    if (plan->log_path) {
        log_fd = open(plan->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (log_fd < 0) {
            return err_set(err, -errno, "%s: the log %s cannot be written: %s", plan->who,
                           plan->log_path, strerror(errno));
        }
    }
    if (pipe2(report, O_CLOEXEC) < 0) {
        rc = err_set(err, -errno, "%s: pipe: %s", plan->who, strerror(errno));
        goto out;
    }
    env = make_environment(plan);
    fflush(NULL);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0) {
        rc = err_set(err, -errno, "%s: fork: %s", plan->who, strerror(errno));
        goto out;
    }
    if (pid == 0) {
        close(report[0]);
        child_run(plan, env, log_fd, report[1], parent);
    }
    if (!plan->foreground) {
        setpgid(pid, pid);
    }
    close(report[1]);
    report[1] = -1;
    struct child_report failed;
    ssize_t got;
    do {
        got = read(report[0], &failed, sizeof(failed));
    } while (got < 0 && errno == EINTR);
    if (got == (ssize_t)sizeof(failed)) {
        waitpid(pid, NULL, 0);
        failed.step[sizeof(failed.step) - 1] = '\0';
        rc = err_set(err, -failed.error, "%s could not be started: %s %s: %s", plan->who,
                     failed.step, plan->argv[0], strerror(failed.error));
        goto out;
    }
    process->pid = pid;
    process->log_path = plan->log_path ? xstrdup(plan->log_path) : NULL;
out:
    free(env);
    if (log_fd >= 0) {
        close(log_fd);
    }
    if (report[0] >= 0) {
        close(report[0]);
    }
    if (report[1] >= 0) {
        close(report[1]);
    }
    return rc;
}

void process_free(struct process *process)
{
    free(process->log_path);
    *process = (struct process){0};
}

/* ---- watching ---- */

bool process_ended(struct process *process)
{
    if (process->pid <= 0) {
        return false;
    }
    pid_t got;
    do {
        got = waitpid(process->pid, &process->status, WNOHANG);
    } while (got < 0 && errno == EINTR);
    if (got == 0) {
        return false;
    }
    process->pid = 0;
    return true;
}

bool process_wait(struct process *process, int timeout_ms)
{
    int64_t deadline_ns = clock_mono_ns() + timeout_ms * NS_PER_MS;
    while (process_runs(process) && !process_ended(process)) {
        if (clock_mono_ns() >= deadline_ns) {
            return false;
        }
        poll(NULL, 0, 10);
    }
    return true;
}

const char *process_status_text(int status, char *out, size_t out_bytes)
{
    if (WIFSIGNALED(status)) {
        snprintf(out, out_bytes, "signal %d, %s", WTERMSIG(status), strsignal(WTERMSIG(status)));
    } else {
        snprintf(out, out_bytes, "exit code %d", WEXITSTATUS(status));
    }
    return out;
}

void process_last_words(const char *log_path, struct buf *out)
{
    FILE *file = fopen(log_path, "re");
    if (!file) {
        return;
    }
    char tail[4097];
    if (fseek(file, -4096, SEEK_END) < 0) {
        rewind(file);
    }
    size_t len = fread(tail, 1, sizeof(tail) - 1, file);
    fclose(file);
    while (len > 0 && isspace((unsigned char)tail[len - 1])) {
        len--;
    }
    tail[len] = '\0';
    const char *line = memrchr(tail, '\n', len);
    line = line ? line + 1 : tail;
    for (size_t i = 0; line[i] != '\0' && i < 200; i++) {
        buf_putc(out, (unsigned char)line[i] < 32 ? ' ' : line[i]);
    }
}

int process_obituary(const struct process *process, const char *when, struct err *err)
{
    char how[64];
    struct buf words = {0};
    process_status_text(process->status, how, sizeof(how));
    if (process->log_path) {
        process_last_words(process->log_path, &words);
    }
    if (!process->log_path) {
        err_set(err, -ECHILD, "%s ended %s (%s)", process->who, when, how);
    } else if (words.len == 0) {
        err_set(err, -ECHILD, "%s ended %s (%s); its log %s is empty", process->who, when, how,
                process->log_path);
    } else {
        err_set(err, -ECHILD, "%s ended %s (%s); its log %s ends: %s", process->who, when, how,
                process->log_path, words.data);
    }
    buf_free(&words);
    return -ECHILD;
}

/* ---- signalling ---- */

struct pid_pair {
    pid_t pid, parent;
};

/* All processes with their parents, as /proc shows them now. */
static struct pid_pair *read_pids(size_t *count)
{
    struct pid_pair *all = NULL;
    size_t used = 0, cap = 0;
    DIR *proc = opendir("/proc");
    if (!proc) {
        *count = 0;
        return NULL;
    }
    for (const struct dirent *entry; (entry = readdir(proc));) {
        if (!isdigit((unsigned char)entry->d_name[0])) {
            continue;
        }
        char path[64 + sizeof(entry->d_name)];
        snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
        FILE *file = fopen(path, "re");
        if (!file) {
            continue;
        }
        char line[512];
        size_t len = fread(line, 1, sizeof(line) - 1, file);
        fclose(file);
        line[len] = '\0';
        /* The name in parentheses may hold anything, so the last one counts. */
        const char *rest = strrchr(line, ')');
        int parent;
        char state;
        if (!rest || sscanf(rest + 1, " %c %d", &state, &parent) != 2 || state == 'Z') {
            continue;
        }
        if (used == cap) {
            cap = cap ? 2 * cap : 256;
            all = xrealloc(all, cap * sizeof(*all));
        }
        all[used++] = (struct pid_pair){(pid_t)strtol(entry->d_name, NULL, 10), parent};
    }
    closedir(proc);
    *count = used;
    return all;
}

/* Killed outright, a postmaster leaves its shared memory with the kernel for good. */
static bool is_postgres(pid_t pid)
{
    char path[64], name[16] = "";
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, name, sizeof(name) - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    return got > 0 && strcmp(name, "postgres\n") == 0;
}

void process_end_children(pid_t parent, bool patiently)
{
    size_t count;
    struct pid_pair *all = read_pids(&count);
    for (size_t i = 0; i < count; i++) {
        if (all[i].parent != parent) {
            continue;
        }
        if (patiently && is_postgres(all[i].pid)) {
            kill(all[i].pid, SIGQUIT); /* "immediate shutdown" */
            kill(all[i].pid, SIGCONT);
        } else {
            kill(all[i].pid, SIGKILL);
        }
    }
    free(all);
}

/* The process and all below it, parents before children. Free it. */
static pid_t *read_tree(pid_t root, size_t *count)
{
    size_t all_count;
    struct pid_pair *all = read_pids(&all_count);
    pid_t *tree = xcalloc(all_count + 1, sizeof(*tree));
    size_t used = 0;
    tree[used++] = root;
    for (size_t next = 0; next < used; next++) {
        for (size_t i = 0; i < all_count && used <= all_count; i++) {
            if (all[i].parent == tree[next] && all[i].pid != root) {
                tree[used++] = all[i].pid;
            }
        }
    }
    free(all);
    *count = used;
    return tree;
}

int process_signal(const struct process *process, int number)
{
    if (process->pid <= 0) {
        return -ESRCH;
    }
    return kill(process->pid, number) < 0 ? -errno : 0;
}

int process_signal_tree(const struct process *process, int number)
{
    if (process->pid <= 0) {
        return -ESRCH;
    }
    size_t count;
    pid_t *tree = read_tree(process->pid, &count);
    int rc = kill(tree[0], number) < 0 ? -errno : 0;
    for (size_t i = 1; i < count; i++) {
        kill(tree[i], number);
    }
    free(tree);
    return rc;
}

void process_kill_tree(struct process *process)
{
    if (process->pid <= 0) {
        return;
    }
    size_t count;
    /* Stopped first, so that none makes children while the list is being read and worked through.
     */
    kill(process->pid, SIGSTOP);
    pid_t *tree = read_tree(process->pid, &count);
    for (size_t i = 0; i < count; i++) {
        kill(tree[i], SIGKILL);
    }
    process_wait(process, 5000);
    for (size_t i = 1; i < count; i++) {
        for (int tries = 0; tries < 500 && kill(tree[i], 0) == 0; tries++) {
            poll(NULL, 0, 10);
        }
    }
    free(tree);
}

bool process_stop(struct process *process, int number, int timeout_ms)
{
    if (!process_runs(process)) {
        return true;
    }
    process_signal_tree(process, SIGCONT); /* a paused one could not hear it */
    process_signal(process, number);
    if (!process_wait(process, timeout_ms)) {
        process_kill_tree(process);
        return false;
    }
    return WIFEXITED(process->status) && WEXITSTATUS(process->status) == 0;
}

char *process_sibling(const char *first, const char *name)
{
    if (first) {
        char *path = xasprintf("%s/%s", first, name);
        if (access(path, X_OK) == 0) {
            return path;
        }
        free(path);
    }
    char self[4096];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (len <= 0) {
        return NULL;
    }
    self[len] = '\0';
    char *slash = strrchr(self, '/');
    assert(slash);
    *slash = '\0';
    char *path = xasprintf("%s/%s", self, name);
    if (access(path, X_OK) != 0) {
        free(path);
        return NULL;
    }
    return path;
}

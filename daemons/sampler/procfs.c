#include "procfs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"

/* Every file read here has what is wanted within its first bytes; /proc/stat goes on for longer. */
enum { PROC_TEXT_BYTES = 4096, NET_TEXT_BYTES = 16384 };

/* A reader over a text that need not end in NUL. */
struct cursor {
    const char *at;
    const char *end;
};

static bool take_number(struct cursor *cursor, uint64_t *value)
{
    while (cursor->at < cursor->end && *cursor->at == ' ')
        cursor->at++;
    const char *first = cursor->at;
    uint64_t number = 0;
    while (cursor->at < cursor->end && isdigit((unsigned char)*cursor->at)) {
        uint64_t digit = (uint64_t)(*cursor->at++ - '0');
        if (number > (UINT64_MAX - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    *value = number;
    /* At the very end of a text that was cut short, more digits may be missing. */
    return cursor->at > first && cursor->at < cursor->end;
}

static bool skip_words(struct cursor *cursor, unsigned count)
{
    while (count-- > 0) {
        while (cursor->at < cursor->end && *cursor->at == ' ')
            cursor->at++;
        const char *first = cursor->at;
        while (cursor->at < cursor->end && !isspace((unsigned char)*cursor->at))
            cursor->at++;
        if (cursor->at == first || cursor->at == cursor->end)
            return false;
    }
    return true;
}

static bool fits_pid(uint64_t value)
{
    return value <= INT32_MAX;
}

int proc_parse_stat(const char *text, size_t len, struct proc_stat *stat)
{
    struct cursor cursor = {text, text + len};
    uint64_t pid;
    if (!take_number(&cursor, &pid) || !fits_pid(pid))
        return -EBADMSG;
    /* The name is what the process says it is, brackets and line ends included: its last closing
     * bracket is the last one of the line, since only numbers follow. */
    const char *close = memrchr(text, ')', len);
    if (!close || close < cursor.at || cursor.end - close < 4 || close[1] != ' ')
        return -EBADMSG;
    char state = close[2];
    cursor.at = close + 3;
    uint64_t parent, user, system, child_user, child_system, start, rss;
    /* Fields of proc(5): 4 ppid; 14-17 utime stime cutime cstime; 22 starttime; 24 rss. */
    if (!take_number(&cursor, &parent) || !fits_pid(parent) || !skip_words(&cursor, 9) ||
        !take_number(&cursor, &user) || !take_number(&cursor, &system) ||
        !take_number(&cursor, &child_user) || !take_number(&cursor, &child_system) ||
        !skip_words(&cursor, 4) || !take_number(&cursor, &start) || !skip_words(&cursor, 1) ||
        !take_number(&cursor, &rss))
        return -EBADMSG;
    *stat = (struct proc_stat){.pid = (pid_t)pid,
                               .parent = (pid_t)parent,
                               .state = state,
                               .own_ticks = user + system,
                               .reaped_ticks = child_user + child_system,
                               .start_ticks = start,
                               .rss_pages = rss};
    return 0;
}

bool proc_find_number(const char *text, size_t len, const char *name, uint64_t *value)
{
    size_t name_bytes = strlen(name);
    const char *end = text + len;
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        const char *line_end = stop ? stop + 1 : end;
        if ((size_t)(line_end - line) > name_bytes && memcmp(line, name, name_bytes) == 0) {
            struct cursor cursor = {line + name_bytes, line_end};
            return take_number(&cursor, value);
        }
        line = line_end;
    }
    return false;
}

int proc_parse_io(const char *text, size_t len, struct proc_io *io)
{
    struct proc_io found;
    if (!proc_find_number(text, len, "read_bytes:", &found.read_bytes) ||
        !proc_find_number(text, len, "write_bytes:", &found.write_bytes))
        return -EBADMSG;
    *io = found;
    return 0;
}

int proc_parse_pss(const char *text, size_t len, uint64_t *bytes)
{
    uint64_t kibibytes;
    if (!proc_find_number(text, len, "Pss:", &kibibytes) || kibibytes > UINT64_MAX / 1024)
        return -EBADMSG;
    *bytes = kibibytes * 1024;
    return 0;
}

ssize_t proc_read_text(const char *path, char *text, size_t text_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t len = 0;
    while ((size_t)len < text_bytes) {
        ssize_t got = read(fd, text + len, text_bytes - (size_t)len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            len = -errno;
        if (got <= 0)
            break;
        len += got;
    }
    close(fd);
    return len;
}

static ssize_t read_of_pid(const char *proc_root, pid_t pid, const char *file,
                           char text[PROC_TEXT_BYTES])
{
    char path[512];
    int len = snprintf(path, sizeof(path), "%s/%d/%s", proc_root, (int)pid, file);
    if (len < 0 || (size_t)len >= sizeof(path))
        return -ENAMETOOLONG;
    ssize_t got = proc_read_text(path, text, PROC_TEXT_BYTES);
    /* Some files of a process that is ending read as empty. */
    return got == 0 ? -ESRCH : got;
}

int proc_read_stat(const char *proc_root, pid_t pid, struct proc_stat *stat)
{
    char text[PROC_TEXT_BYTES] = "";
    ssize_t len = read_of_pid(proc_root, pid, "stat", text);
    return len < 0 ? (int)len : proc_parse_stat(text, (size_t)len, stat);
}

int proc_read_io(const char *proc_root, pid_t pid, struct proc_io *io)
{
    char text[PROC_TEXT_BYTES] = "";
    ssize_t len = read_of_pid(proc_root, pid, "io", text);
    return len < 0 ? (int)len : proc_parse_io(text, (size_t)len, io);
}

int proc_read_pss(const char *proc_root, pid_t pid, uint64_t *bytes)
{
    char text[PROC_TEXT_BYTES] = "";
    ssize_t len = read_of_pid(proc_root, pid, "smaps_rollup", text);
    return len < 0 ? (int)len : proc_parse_pss(text, (size_t)len, bytes);
}

ssize_t proc_read_cgroup(const char *proc_root, pid_t pid, char *text, size_t text_bytes)
{
    char path[512];
    int len = snprintf(path, sizeof(path), "%s/%d/cgroup", proc_root, (int)pid);
    if (len < 0 || (size_t)len >= sizeof(path))
        return -ENAMETOOLONG;
    ssize_t got = proc_read_text(path, text, text_bytes - 1);
    if (got >= 0)
        text[got] = '\0';
    return got == 0 ? -ESRCH : got;
}

/* A line is "  eth0: RX_BYTES packets errs drop fifo frame compressed multicast TX_BYTES ...". */
int proc_parse_net(const char *text, size_t len, struct proc_net *net)
{
    *net = (struct proc_net){0};
    const char *end = text + len;
    unsigned headings = 0;
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop)
            return -EBADMSG;
        const char *colon = memchr(line, ':', (size_t)(stop - line));
        const char *name = line;
        line = stop + 1;
        if (!colon) {
            headings++;
            continue;
        }
        while (*name == ' ')
            name++;
        struct cursor cursor = {colon + 1, stop + 1};
        uint64_t received, sent;
        if (!take_number(&cursor, &received) || !skip_words(&cursor, 7) ||
            !take_number(&cursor, &sent))
            return -EBADMSG;
        if (colon - name == 2 && memcmp(name, "lo", 2) == 0)
            continue;
        net->rx_bytes += received;
        net->tx_bytes += sent;
    }
    return headings > 0 ? 0 : -EBADMSG;
}

int proc_read_net(const char *proc_root, struct proc_net *net)
{
    char path[512], text[NET_TEXT_BYTES];
    int path_bytes = snprintf(path, sizeof(path), "%s/net/dev", proc_root);
    if (path_bytes < 0 || (size_t)path_bytes >= sizeof(path))
        return -ENAMETOOLONG;
    ssize_t len = proc_read_text(path, text, sizeof(text));
    return len < 0 ? (int)len : proc_parse_net(text, (size_t)len, net);
}

static int compare_pids(const void *left, const void *right)
{
    pid_t a = ((const struct proc_stat *)left)->pid, b = ((const struct proc_stat *)right)->pid;
    return (a > b) - (a < b);
}

int proc_table_read(struct proc_table *table, const char *proc_root)
{
    table->count = 0;
    DIR *folder = opendir(proc_root);
    if (!folder)
        return -errno;
    const struct dirent *entry;
    while ((entry = readdir(folder))) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);
        if (*end != '\0' || pid <= 0 || pid > INT32_MAX)
            continue;
        struct proc_stat stat;
        if (proc_read_stat(proc_root, (pid_t)pid, &stat) < 0)
            continue;
        if (table->count == table->capacity) {
            table->capacity = table->capacity > 0 ? table->capacity * 2 : 256;
            table->items = xrealloc(table->items, table->capacity * sizeof(*table->items));
        }
        table->items[table->count++] = stat;
    }
    closedir(folder);
    if (table->count > 0)
        qsort(table->items, table->count, sizeof(*table->items), compare_pids);
    return 0;
}

const struct proc_stat *proc_table_find(const struct proc_table *table, pid_t pid)
{
    struct proc_stat key = {.pid = pid};
    if (table->count == 0)
        return NULL;
    return bsearch(&key, table->items, table->count, sizeof(*table->items), compare_pids);
}

void proc_table_free(struct proc_table *table)
{
    free(table->items);
    *table = (struct proc_table){0};
}

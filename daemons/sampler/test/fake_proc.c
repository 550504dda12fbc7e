#include "fake_proc.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"

__attribute__((format(printf, 2, 3))) static void put(const char *path, const char *format, ...)
{
    struct buf text = {0};
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    FILE *file = fopen(path, "we"); /* not file_write: nothing here needs to survive anything */
    assert(file);
    size_t written = fwrite(text.data, 1, text.len, file);
    assert(written == text.len);
    int rc = fclose(file);
    assert(rc == 0);
    buf_free(&text);
}

char *fake_proc_new(void)
{
    char *path = xstrdup("/tmp/sluice-fake-proc-XXXXXX");
    char *made = mkdtemp(path);
    assert(made);
    fake_proc_host(path, "cpu  100 0 50 800 30 0 0 20 0 0\n");
    return path;
}

void fake_proc_free(char *proc_root)
{
    file_remove_tree(proc_root, NULL);
    free(proc_root);
}

void fake_proc_host(const char *proc_root, const char *line)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/stat", proc_root);
    put(path, "%scpu0 1 2 3\nintr 5\n", line);
}

void fake_proc_net(const char *proc_root, uint64_t rx_bytes, uint64_t tx_bytes)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/net", proc_root);
    assert(file_mkdirs(path, 0755, NULL) == 0);
    snprintf(path, sizeof(path), "%s/net/dev", proc_root);
    put(path,
        "Inter-|   Receive                            |  Transmit\n"
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n"
        "    lo:  999 1 0 0 0 0 0 0  999 1 0 0 0 0 0 0\n"
        "  eth0: %" PRIu64 " 5 0 0 0 0 0 0 %" PRIu64 " 6 0 0 0 0 0 0\n",
        rx_bytes, tx_bytes);
}

void fake_proc_end(const char *proc_root, pid_t pid)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%d", proc_root, (int)pid);
    file_remove_tree(path, NULL);
}

void fake_proc_put(const char *proc_root, const struct fake_process *p)
{
    char path[256], link[64];
    fake_proc_end(proc_root, p->pid);
    snprintf(path, sizeof(path), "%s/%d/fd", proc_root, (int)p->pid);
    assert(file_mkdirs(path, 0755, NULL) == 0);
    snprintf(path, sizeof(path), "%s/%d/stat", proc_root, (int)p->pid);
    put(path,
        "%d (a) b (c) %c %d 1 1 0 -1 4194304 99 0 0 0 %" PRIu64 " 0 %" PRIu64 " 0 20 0 1 0 %" PRIu64
        " 3133440 %" PRIu64 " 18446744073709551615 1 1 0 0\n",
        (int)p->pid, p->state ? p->state : 'S', (int)p->parent, p->own_ticks, p->reaped_ticks,
        p->start_ticks, p->rss_pages);
    if (!p->no_io) {
        snprintf(path, sizeof(path), "%s/%d/io", proc_root, (int)p->pid);
        put(path,
            "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: %" PRIu64 "\nwrite_bytes: %" PRIu64
            "\ncancelled_write_bytes: 7\n",
            p->read_bytes, p->write_bytes);
    }
    if (p->pss_kib > 0) {
        snprintf(path, sizeof(path), "%s/%d/smaps_rollup", proc_root, (int)p->pid);
        put(path,
            "1-2 ---p 0 00:00 0 [rollup]\nRss: 9999 kB\nPss:  %" PRIu64 " kB\nPss_Dirty: 1 kB\n",
            p->pss_kib);
    }
    if (p->cgroup) {
        snprintf(path, sizeof(path), "%s/%d/cgroup", proc_root, (int)p->pid);
        put(path, "%s", p->cgroup);
    }
    if (p->socket_inode > 0) {
        snprintf(path, sizeof(path), "%s/%d/fd/3", proc_root, (int)p->pid);
        snprintf(link, sizeof(link), "socket:[%" PRIu64 "]", p->socket_inode);
        int rc = symlink(link, path);
        assert(rc == 0);
    }
}

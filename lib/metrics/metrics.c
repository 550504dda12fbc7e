#include "metrics/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

enum { METRICS_FLUSH_BYTES = 64 * 1024, INCARNATIONS_MAX = 9999 };

struct metrics {
    pthread_mutex_t lock;
    char *path;
    int fd; /* -1: drops everything */
    struct buf pending;
    int error; /* the first, negative errno */
};

/* Descriptor of the file, new or old; negative errno. */
static int create_at(const char *path, char **chosen)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0)
        return -errno;
    *chosen = xstrdup(path);
    return fd;
}

/* Descriptor of a new file ROLE-N.jsonl, whose path goes into *chosen; negative errno. */
static int create_in(const char *folder, const char *role, char **chosen)
{
    for (int number = 1; number <= INCARNATIONS_MAX; number++) {
        char *path = xasprintf("%s%s-%d.jsonl", folder, role, number);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
        int code = -errno;
        if (fd >= 0) {
            *chosen = path;
            return fd;
        }
        free(path);
        if (code != -EEXIST)
            return code;
    }
    return -EEXIST;
}

/* Only a file has a life to be told of: /dev/full, a pipe or a terminal has none. Whole lines are
 * appended, so two that share a file spoil nothing but that. */
static void lock_for_life(int fd, const char *path)
{
    struct stat status;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || fcntl(fd, F_OFD_SETLK, &lock) == 0)
        return;
    if (errno == EAGAIN || errno == EACCES)
        log_warning("another process is writing the metrics file %s, too; give each one of its own",
                    path);
    else
        log_warning("cannot lock the metrics file %s (%s): nobody can tell from it whether this "
                    "process lives",
                    path, strerror(errno));
}

int metrics_open_as(struct metrics **metrics, const char *path, const char *role, struct err *err)
{
    int fd = -1;
    char *chosen = NULL;
    if (path && *path) {
        bool folder = role && path[strlen(path) - 1] == '/';
        fd = folder ? create_in(path, role, &chosen) : create_at(path, &chosen);
        if (fd < 0)
            return err_set(err, fd, "cannot open the metrics file %s%s%s: %s", path,
                           folder ? role : "", folder ? "-N.jsonl" : "", strerror(-fd));
        lock_for_life(fd, chosen);
    }
    struct metrics *made = xcalloc(1, sizeof(*made));
    pthread_mutex_init(&made->lock, NULL);
    made->path = chosen ? chosen : xstrdup("");
    made->fd = fd;
    *metrics = made;
    return 0;
}

int metrics_open(struct metrics **metrics, const char *path, struct err *err)
{
    return metrics_open_as(metrics, path, NULL, err);
}

const char *metrics_path(const struct metrics *metrics)
{
    return metrics->path;
}

int metrics_alive(const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fd < 0 || fcntl(fd, F_OFD_GETLK, &lock) < 0) {
        int code = -errno;
        if (fd >= 0)
            close(fd);
        return err_set(err, code, "cannot tell whether the process that writes %s lives: %s", path,
                       strerror(-code));
    }
    close(fd);
    return lock.l_type == F_UNLCK ? 0 : 1;
}

static void flush_locked(struct metrics *metrics)
{
    if (metrics->pending.len == 0)
        return;
    int result = file_write_all(metrics->fd, metrics->pending.data, metrics->pending.len);
    if (result < 0 && metrics->error == 0) {
        metrics->error = result;
        log_error("cannot write metrics to %s: %s; this run's figures are incomplete",
                  metrics->path, strerror(-result));
    }
    buf_clear(&metrics->pending);
}

int metrics_flush(struct metrics *metrics)
{
    pthread_mutex_lock(&metrics->lock);
    flush_locked(metrics);
    int error = metrics->error;
    pthread_mutex_unlock(&metrics->lock);
    return error;
}

int metrics_close(struct metrics *metrics)
{
    if (!metrics)
        return 0;
    int error = metrics_flush(metrics);
    if (metrics->fd >= 0 && close(metrics->fd) < 0 && error == 0)
        error = -errno;
    buf_free(&metrics->pending);
    pthread_mutex_destroy(&metrics->lock);
    free(metrics->path);
    free(metrics);
    return error;
}

void metrics_begin_at(struct metrics_event *event, const char *name, int64_t ts_us)
{
    buf_clear(&event->line);
    buf_printf(&event->line, "{\"ts\": %lld.%06lld, \"ev\": \"%s\"", (long long)(ts_us / US_PER_S),
               (long long)(ts_us % US_PER_S), name);
}

void metrics_begin(struct metrics_event *event, const char *name)
{
    metrics_begin_at(event, name, clock_wall_us());
}

/* Names the next value: a field of the object, or (NULL) the next value of the open array. */
static void name_value(struct metrics_event *event, const char *field)
{
    struct buf *line = &event->line;
    if (field) {
        buf_puts(line, ", \"");
        buf_puts(line, field);
        buf_puts(line, "\": ");
    } else if (line->data[line->len - 1] != '[') {
        buf_puts(line, ", ");
    }
}

void metrics_int(struct metrics_event *event, const char *field, int64_t value)
{
    name_value(event, field);
    buf_printf(&event->line, "%lld", (long long)value);
}

void metrics_double(struct metrics_event *event, const char *field, double value)
{
    name_value(event, field);
    if (isfinite(value))
        buf_printf(&event->line, "%.12g", value);
    else
        buf_puts(&event->line, "null");
}

void metrics_bool(struct metrics_event *event, const char *field, bool value)
{
    name_value(event, field);
    buf_puts(&event->line, value ? "true" : "false");
}

void metrics_ms(struct metrics_event *event, const char *field, int64_t duration_ns)
{
    name_value(event, field);
    long long us = (duration_ns < 0 ? -duration_ns : duration_ns) / NS_PER_US;
    buf_printf(&event->line, "%s%lld.%03lld", duration_ns < 0 && us ? "-" : "", us / 1000,
               us % 1000);
}

void metrics_string(struct metrics_event *event, const char *field, const char *text)
{
    name_value(event, field);
    if (text)
        buf_json_string(&event->line, text, strlen(text));
    else
        buf_puts(&event->line, "null");
}

void metrics_id(struct metrics_event *event, const char *field, const uint8_t id[UUID_BYTES])
{
    char text[UUID_TEXT_BYTES];
    name_value(event, field);
    buf_putc(&event->line, '"');
    buf_puts(&event->line, uuid_format(id, text));
    buf_putc(&event->line, '"');
}

void metrics_json(struct metrics_event *event, const char *field, const char *json)
{
    name_value(event, field);
    buf_puts(&event->line, json);
}

void metrics_array(struct metrics_event *event, const char *field)
{
    name_value(event, field);
    buf_putc(&event->line, '[');
}

void metrics_array_end(struct metrics_event *event)
{
    buf_putc(&event->line, ']');
}

void metrics_write(struct metrics *metrics, struct metrics_event *event)
{
    if (metrics->fd < 0)
        return;
    buf_puts(&event->line, "}\n");
    pthread_mutex_lock(&metrics->lock);
    buf_append(&metrics->pending, event->line.data, event->line.len);
    if (metrics->pending.len >= METRICS_FLUSH_BYTES)
        flush_locked(metrics);
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_event_free(struct metrics_event *event)
{
    buf_free(&event->line);
}

/* admission.h: the one bound on what is taken in, the same for every sink.
 *
 * Three things are bounded: tasks in flight (from a request's header to the sink's outcome), the
 * bytes of their bodies, and the backlog (tasks and bytes that are durable in the sink and not yet
 * acknowledged by the worker). The backlog comes from the sink as a cached figure; what became
 * durable since it was read is added, so that the bound holds between two readings.
 *
 * A pure state machine: no clock, no I/O. One thread.
 */
#ifndef SLUICE_API_ADMISSION_H
#define SLUICE_API_ADMISSION_H

#include <stddef.h>
#include <stdint.h>

enum admission_verdict {
    ADMISSION_OK,
    ADMISSION_TASKS,         /* too many tasks in flight */
    ADMISSION_BYTES,         /* too many bytes in flight */
    ADMISSION_BACKLOG_TASKS, /* the worker is too far behind, in tasks */
    ADMISSION_BACKLOG_BYTES, /* the same in bytes */
};

struct admission_limits {
    int64_t tasks;
    int64_t bytes;
    int64_t backlog_tasks;
    int64_t backlog_bytes;
};

struct admission {
    struct admission_limits limits;
    int64_t tasks; /* in flight */
    int64_t bytes;
    int64_t backlog_tasks; /* as last read; -1 unknown, then not bounded */
    int64_t backlog_bytes;
    int64_t added_tasks; /* durable since */
    int64_t added_bytes;
};

void admission_init(struct admission *admission, const struct admission_limits *limits);

/* May a task whose body has body_bytes (0 when not known yet) come in? Changes nothing. */
enum admission_verdict admission_check(const struct admission *admission, size_t body_bytes);

void admission_enter(struct admission *admission, size_t body_bytes);
/* A body of unknown length grew: ADMISSION_OK and counted, or ADMISSION_BYTES and not counted. */
enum admission_verdict admission_grow(struct admission *admission, size_t more_bytes);
void admission_leave(struct admission *admission, size_t body_bytes);

void admission_durable(struct admission *admission, size_t body_bytes);
void admission_backlog(struct admission *admission, int64_t tasks, int64_t bytes); /* -1: unknown */

#endif

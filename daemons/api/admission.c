#include "api/admission.h"

#include <assert.h>
#include <string.h>

void admission_init(struct admission *admission, const struct admission_limits *limits)
{
    memset(admission, 0, sizeof(*admission));
    admission->limits = *limits;
    admission->backlog_tasks = admission->backlog_bytes = -1;
}

enum admission_verdict admission_check(const struct admission *admission, size_t body_bytes)
{
    const struct admission_limits *limits = &admission->limits;
    if (admission->tasks >= limits->tasks) {
        return ADMISSION_TASKS;
    }
    if (admission->bytes + (int64_t)body_bytes > limits->bytes) {
        return ADMISSION_BYTES;
    }
    /* What is in flight will be backlog too: without it, a slow sink would overshoot the bound. */
    if (admission->backlog_tasks >= 0 &&
        admission->backlog_tasks + admission->added_tasks + admission->tasks >=
            limits->backlog_tasks) {
        return ADMISSION_BACKLOG_TASKS;
    }
    if (admission->backlog_bytes >= 0 &&
        admission->backlog_bytes + admission->added_bytes + admission->bytes + (int64_t)body_bytes >
            limits->backlog_bytes) {
        return ADMISSION_BACKLOG_BYTES;
    }
    return ADMISSION_OK;
}

void admission_enter(struct admission *admission, size_t body_bytes)
{
    admission->tasks++;
    admission->bytes += (int64_t)body_bytes;
}

enum admission_verdict admission_grow(struct admission *admission, size_t more_bytes)
{
    if (admission->bytes + (int64_t)more_bytes > admission->limits.bytes) {
        return ADMISSION_BYTES;
    }
    admission->bytes += (int64_t)more_bytes;
    return ADMISSION_OK;
}

void admission_leave(struct admission *admission, size_t body_bytes)
{
    admission->tasks--;
    admission->bytes -= (int64_t)body_bytes;
    assert(admission->tasks >= 0 && admission->bytes >= 0);
}

void admission_durable(struct admission *admission, size_t body_bytes)
{
    admission->added_tasks++;
    admission->added_bytes += (int64_t)body_bytes;
}

void admission_backlog(struct admission *admission, int64_t tasks, int64_t bytes)
{
    admission->backlog_tasks = tasks;
    admission->backlog_bytes = bytes;
    admission->added_tasks = admission->added_bytes = 0;
}

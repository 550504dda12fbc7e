/* metrics.h: JSON lines, one event a line: {"ts": 1767182400.000001, "ev": "durable", ...}.
 *
 * An event is built in a struct metrics_event (one a thread, reused), then written whole. Writers
 * are thread-safe; lines are gathered and reach the file by metrics_flush, at 64 KiB, or at close,
 * always at a line's end, except where the process is killed in the middle of a write: readers skip
 * such a half line and count it. Field names carry their unit. A writer without a path drops
 * everything. Errors in writing are kept: metrics_close returns the first, and log.h says it once.
 */
#ifndef SLUICE_METRICS_METRICS_H
#define SLUICE_METRICS_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/uuid.h"

struct metrics;
struct metrics_event {
    struct buf line; /* {0} before first use; free with metrics_event_free */
};

/* Opens for appending, creates; NULL or "" for a writer that drops. The file stays locked (a write
 * lock of the open file description, fcntl(2)) until metrics_close or the process's end, however it
 * ends. When another process holds it, both append, and that is warned of; so is a file system
 * without locks. */
int metrics_open(struct metrics **metrics, const char *path, struct err *err);

/* The same; but a path that ends in '/' is a folder that must exist, and the file is the first
 * ROLE-N.jsonl (N from 1) that is not there yet: each incarnation of a process has its own. */
int metrics_open_as(struct metrics **metrics, const char *path, const char *role, struct err *err);

const char *metrics_path(const struct metrics *metrics); /* of the file; "" when it drops */

/* Does a process live that writes this file? 1: yes, 0: no; in another container, too, as long as
 * both share the folder and the kernel. The lock comes right after the file: who sees a line in it
 * may ask. Negative errno when the file cannot be opened, or has no locks. */
int metrics_alive(const char *path, struct err *err);

int metrics_flush(struct metrics *metrics);
int metrics_close(struct metrics *metrics); /* flushes; NULL is allowed */

void metrics_begin(struct metrics_event *event, const char *name); /* ts = now */
void metrics_begin_at(struct metrics_event *event, const char *name, int64_t ts_us);
void metrics_int(struct metrics_event *event, const char *field, int64_t value);
void metrics_double(struct metrics_event *event, const char *field, double value); /* NaN: null */
void metrics_bool(struct metrics_event *event, const char *field, bool value);
void metrics_ms(struct metrics_event *event, const char *field,
                int64_t duration_ns); /* 3 decimals */
void metrics_string(struct metrics_event *event, const char *field, const char *text);
void metrics_id(struct metrics_event *event, const char *field, const uint8_t id[UUID_BYTES]);
void metrics_json(struct metrics_event *event, const char *field, const char *json); /* as it is */
void metrics_array(struct metrics_event *event, const char *field); /* opens; values: field NULL */
void metrics_array_end(struct metrics_event *event);
void metrics_write(struct metrics *metrics, struct metrics_event *event); /* ends the event */
void metrics_event_free(struct metrics_event *event);

#endif

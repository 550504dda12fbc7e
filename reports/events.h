/* events.h: one *.jsonl into a struct run. */
#ifndef SLUICE_REPORTS_EVENTS_H
#define SLUICE_REPORTS_EVENTS_H

#include "run.h"

/* Reads run->dir/name. What can't be used is skipped and counted in the struct event_file that this
 * adds to run->files. only_audit: skips the events that the audit does not need. */
void events_read(struct run *run, const char *name, bool only_audit);

/* One line as an object, or NULL when it is not exactly one JSON object with ts and ev; *ts_us and
 * *ev (which points into it) are set then. Free with cJSON_Delete. */
cJSON *event_parse(const char *line, size_t len, int64_t *ts_us, const char **ev);

#endif

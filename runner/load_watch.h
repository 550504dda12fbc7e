/* load_watch.h: how far a load generator is that others started, from the events that it writes.
 *
 * Zero-initialise; load_watch_close releases what it holds. One thread. */
#ifndef SLUICE_RUNNER_LOAD_WATCH_H
#define SLUICE_RUNNER_LOAD_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

struct load_watch {
    char *path; /* NULL: not open */
    FILE *file;
    char *line; /* the last one, while it is not whole */
    size_t line_bytes;
    int64_t answers, durable; /* so far; of those with 202 */
    double worst_ms;          /* latency, since load_watch_read was told to begin anew */
    bool stopped, complete;   /* its last event is there; the load ran to its end */
    char why[64];             /* as that says */
};

/* The first PART-N.jsonl in dir that a living process writes; free it. NULL: there is none. */
char *live_record(const char *dir, const char *part);
/* Has it lived? There is a PART-N.jsonl, and no living process writes any. */
bool records_are_dead(const char *dir, const char *part);

int load_watch_open(struct load_watch *watch, const char *path, struct err *err);
/* Takes in what was written since. anew: worst_ms begins at 0. */
void load_watch_read(struct load_watch *watch, bool anew);
/* Does its writer live? */
bool load_watch_alive(const struct load_watch *watch);
void load_watch_close(struct load_watch *watch);

#endif

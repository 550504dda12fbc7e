/* cognitive_count.h: counts, while sluice is built, what docs/cognitive-load.md speaks of. Used by
 * cognitive_tool and by tests; no part of the program. */
#ifndef SLUICE_REPORTS_COGNITIVE_COUNT_H
#define SLUICE_REPORTS_COGNITIVE_COUNT_H

#include "base/buf.h"
#include "base/err.h"
#include "base/options.h"

struct cognitive_counts {
    unsigned code, options, server_lines, failure_modes, metrics, alerts, runbook, services;
    struct buf service_names; /* buf_free it */
};

/* Lines of C that hold more than blanks and comments. */
unsigned cognitive_lines(const char *text);

/* Lines of configuration in a source's settings_text[] (each ends in \n inside a string); -1: it
 * has none. */
int cognitive_server_lines(const char *text);

/* Reads root/docs/sinks/SINK.md and the files it names. tables: option tables the sink's settings
 * may stand in, NULL-terminated, its own first, of which every required option must be listed.
 * -EINVAL and a sentence with file and line: the front matter is missing or wrong. */
int cognitive_count(const char *root, const char *sink, const struct option_spec *const *tables,
                    struct cognitive_counts *counts, struct err *err);

#endif

/* cognitive.h: what a sink asks of the people who run it, from counted facts
 * (docs/cognitive-load.md).
 *
 * The counts are made when sluice is built (cognitive_tool), from the sources, the option tables
 * and the front matter of docs/sinks/, and become a table in the program. */
#ifndef SLUICE_REPORTS_COGNITIVE_H
#define SLUICE_REPORTS_COGNITIVE_H

#include "base/buf.h"

struct comparison;

enum cognitive_part {
    COGNITIVE_CODE,          /* lines of own code */
    COGNITIVE_CONFIG,        /* settings that must be set */
    COGNITIVE_FAILURE,       /* failure modes */
    COGNITIVE_OBSERVABILITY, /* metrics and alerts */
    COGNITIVE_RUNBOOKS,      /* steps */
    COGNITIVE_PARTS
};
enum { COGNITIVE_SCORE_MAX = 5 };

struct cognitive_sink {
    const char *sink;
    unsigned counts[COGNITIVE_PARTS];
    unsigned options, server_lines; /* of the settings */
    unsigned metrics, alerts;
    unsigned services;
    const char *service_names; /* "RabbitMQ, epmd" */
};
extern const struct cognitive_sink cognitive_sinks[]; /* made by the build; sink NULL ends it */

/* 0 to 5 by the rubric. */
unsigned cognitive_score(enum cognitive_part part, unsigned count);

/* Appends the rubric as a Markdown table; docs/cognitive-load.md holds the very same. */
void cognitive_rubric(struct buf *out);

/* Appends the section: counts, scores, the article's beside them, the rubric. */
void cognitive_markdown(const struct comparison *comparison, struct buf *out);

#endif

/* svg.h: panels with axes, lines, bands and marks, one below the other in a picture. Knows nothing
 * of sinks. Every text is made inert here. Sizes are in user units, 560 wide; shown 360 pixels
 * wide, the smallest letters are still 9.6 pixels high. */
#ifndef SLUICE_REPORTS_SVG_H
#define SLUICE_REPORTS_SVG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct svg_axis {
    double low, high; /* of a logarithmic one both above 0 */
    bool log;
    bool share; /* x = 1 / (1 - q), to be shown as q */
};

struct svg_line { /* NAN in y: a gap */
    const double *x, *y;
    size_t count;
    unsigned style, group;
};

struct svg_band { /* over the whole height */
    double begin, end;
    const char *label; /* or NULL */
    bool hatched;
};

struct svg_mark { /* above the panel, in a row of its group's style */
    double begin, end;
    unsigned style, group, row;
};

struct svg_limit {
    double value; /* NAN: none */
    const char *label;
};

struct svg_panel {
    const char *title; /* with its unit: "api p99, ms" */
    const char *unit;  /* of y, for a reader who points at a line */
    double height;
    struct svg_axis x, y;
    const char *x_title; /* NULL: none */
    struct svg_limit limit;
    struct svg_line *lines;
    size_t line_count;
    const struct svg_band *bands;
    size_t band_count;
    const struct svg_mark *marks;
    size_t mark_count;
    unsigned mark_rows;
};

struct svg_key { /* one entry of the legend */
    char *label;
    unsigned style, group;
};

struct svg_picture {
    const char *name;  /* letters only: it becomes part of ids */
    const char *title; /* for who can't see it */
    const char *css;   /* NULL: the page around it has it */
    const struct svg_key *keys;
    size_t key_count;
    struct svg_panel *panels;
    size_t panel_count;
};

void svg_put(struct buf *out, const struct svg_picture *picture);

/* For XML and HTML, in text and in quoted attributes. One line, no control characters. */
void svg_text(struct buf *out, const char *text);

/* An axis that holds 0 and high, or (logarithmic) low and high, and ends on round numbers. */
struct svg_axis svg_linear(double high);
struct svg_axis svg_logarithmic(double low, double high);

#endif

/* charts.h: the pictures of a comparison, as SVG of our own making.
 *
 * One picture serves a page, a phone, a dark page and a grey print: colours come from classes whose
 * values the picture's own style sheet changes with prefers-color-scheme, and every line has dashes
 * and marks of its own beside its colour. The same picture stands in compare.html, where the page
 * carries the style sheet and a script that reads the axes from data attributes. */
#ifndef SLUICE_REPORTS_CHARTS_H
#define SLUICE_REPORTS_CHARTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "run.h"

struct comparison;

/* ---- latency by percentile ---- */

enum { CURVE_API, CURVE_DURABLE, CURVE_AGE, CURVE_COUNT };

/* Of the steady phase, faults and all: x = 1 / (1 - q), y the nearest rank at q. The last point is
 * (n, the greatest of n samples). */
struct curve {
    double *x, *y;
    size_t count;
};

/* Fills curves[CURVE_COUNT]; a request without a 202 is at its timeout at least. Needs
 * run_times_ok(run) and the ledger. */
void curves_compute(struct curve *curves, const struct run *run);
void curves_free(struct curve *curves);

/* ---- pictures ---- */

/* Writes dir/charts/NAME.svg for each that has something to show, removes those that have not, and
 * fills chart_files or chart_problem. -errno when a file could not be written. */
int charts_draw(struct comparison *comparison, struct err *err);

/* Appends one picture by its name ("backlog"). inlined: for a page that carries charts_css itself.
 * false, and nothing appended: there is no such picture, or nothing to show in it. */
bool charts_put(const struct comparison *comparison, const char *name, bool inlined,
                struct buf *out);

/* The class of a sink's colour, dashes and marks: "c0" to "c9", the same in all pictures. */
unsigned charts_style(const struct comparison *comparison, size_t group);

extern const char charts_css[]; /* charts.css, embedded by the build */

#endif

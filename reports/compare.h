/* compare.h: the runs of a comparison, judged and grouped; what compare.md, compare.json and the
 * charts are written from. */
#ifndef SLUICE_REPORTS_COMPARE_H
#define SLUICE_REPORTS_COMPARE_H

#include <stdbool.h>
#include <stddef.h>

#include "audit.h"
#include "charts.h"
#include "figures.h"
#include "report.h"
#include "run.h"
#include "text.h"

struct strings {
    char **items;
    size_t count, capacity;
};
void strings_add(struct strings *strings, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void strings_free(struct strings *strings);

struct entry {      /* one run */
    char *sink;     /* the manifest's word, or the folder's name when there is none */
    struct run run; /* the ledger and the samples are gone */
    struct audit audit;
    struct figures figures; /* empty when has_figures is false */
    struct series series;
    struct curve curves[CURVE_COUNT];
    bool has_figures;
    struct strings reasons; /* why it stays out of the verdict; none: it counts */
    struct strings notes;   /* what a reader should know besides */
};

struct group { /* one sink */
    const char *sink;
    bool control;
    const struct entry **entries; /* its runs, in the order of their names */
    size_t count;
    const struct entry *
        *shown;         /* those whose figures are shown: the ones that count, or else all that */
    size_t shown_count; /* have figures */
    size_t counting;    /* how many of them count */
    const struct entry *first; /* shown[0], else entries[0] */
};

struct comparison {
    const char *dir;
    struct entry *entries;
    size_t count;
    struct group *groups; /* contenders first, then controls */
    size_t group_count;
    const struct manifest
        *reference; /* of the first run that counts, else of the first readable; or NULL */
    struct strings chart_files; /* below dir */
    char *chart_problem;        /* why there are none, or NULL */
};

/* -ENOENT: no run there. */
int comparison_load(struct comparison *comparison, const char *dir, struct err *err);
void comparison_free(struct comparison *comparison);

/* The limits beyond which a run does not count (gates.c). */
extern const double GATE_RATE_MISSED_PCT, GATE_LATENESS_P99_MS, GATE_HOST_OTHER_PCT,
    GATE_HOST_STEAL_PCT, GATE_CLOCK_STEP_MS;

/* Adds to entry->reasons and notes, and gate.* to its figures. Before the ledger is dropped. */
void gates_check(struct entry *entry);

/* A figure's name, where %s stands for the steady phase's; free it. reference may be NULL. */
char *figure_key(const struct manifest *reference, const char *key);

/* A figure over the runs that are shown. n is 0 when none has it. */
struct spread group_spread(const struct group *group, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Sums of an audit count over all runs of the sink, those that do not count included: a lost task
 * is lost on a busy host, too. *uncounted: runs whose audit could not count. */
struct audit group_audit(const struct group *group, size_t *uncounted);

/* One sentence a sink, and one on their order. markdown: escaped for it, else plain. */
void sentence_of(const struct group *group, struct buf *out, bool markdown);
void sentence_of_order(const struct comparison *comparison, struct buf *out, bool markdown);

/* A cell of a table: the median, and behind it the range when there are several runs. */
enum unit { UNIT_COUNT, UNIT_NUMBER, UNIT_MS, UNIT_SECONDS, UNIT_BYTES, UNIT_PERCENT };
void spread_cell(struct buf *cell, struct spread spread, enum unit unit);

/* Tables of figures: a row a sink (or a sink's part), a column a figure "prefix.key". */
struct column {
    const char *title;
    const char *key; /* behind the prefix */
    enum unit unit;
};
void columns_name(struct table *table, const struct group *group, const char *about);
void columns_header(struct table *table, const char *first, const struct column *columns,
                    size_t count);
void columns_row(struct table *table, const struct group *group, const char *about,
                 const char *prefix, const struct column *columns, size_t count);
void columns_table(const struct comparison *comparison, struct buf *out, const char *prefix,
                   const struct column *columns, size_t count);

/* A sink's name, "(control)" added; its version and replicas. */
void put_text(struct buf *out, const char *text, bool markdown);
void put_server(struct buf *out, const struct group *group, bool markdown);
double server_replicas(const cJSON *server);                                 /* NAN: not known */
double group_replicas(const struct group *group);                            /* the same */
void put_version(struct buf *out, const struct group *group, bool markdown); /* both */

void compare_markdown(const struct comparison *comparison, struct buf *out);
/* The same as a page that needs no other file: markdown is what compare_markdown made. */
void compare_html(const struct comparison *comparison, const char *markdown, struct buf *out);
void tables_measured(const struct comparison *comparison,
                     struct buf *out); /* latency to statistics */
void tables_fairness(const struct comparison *comparison,
                     struct buf *out); /* batches, recovery, row sleeps, work in the background */
void tables_order(const struct comparison *comparison,
                  struct buf *out); /* who is ahead in what, and who ties */
void tables_faults(const struct comparison *comparison,
                   struct buf *out); /* when each part was down, run by run */
void tables_cost(const struct comparison *comparison,
                 struct buf *out); /* of 1,000 tasks; the harness's own */
void tables_flushes(const struct comparison *comparison, struct buf *out); /* of the run's disk */
void tables_surroundings(const struct comparison *comparison,
                         struct buf *out); /* promises to validity */
void compare_json(const struct comparison *comparison, struct buf *out);

#endif

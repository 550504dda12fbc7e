/* report.h: the verdict. Files in, files out: audit, figures, compare.md, compare.json, charts.
 *
 * Nothing here talks to a server, and no function trusts what it reads: a file that is cut short or
 * damaged leads to an error that names it, or to a skip that is counted and shown, never to a
 * better figure. The formats are those of docs/metrics.md.
 *
 * Ownership: strings that come back belong to the struct they are in; the _free functions release
 * them. Threads: no shared state; two threads may work on two folders.
 */
#ifndef SLUICE_REPORTS_REPORT_H
#define SLUICE_REPORTS_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/uuid.h"

/* ---- the audit: ledger against main DB and dead letters ---- */

enum audit_verdict {
    AUDIT_PASS,    /* every acknowledged task is there once, unchanged; nothing else is */
    AUDIT_FAIL,    /* a contender lost, invented or changed a task: `sluice` exits 1 */
    AUDIT_EXCUSED, /* would have failed, but the sink is a control: fails no run */
    AUDIT_VOID, /* could not be made (files missing, cut short, sink not drained): proves nothing */
};
const char *audit_verdict_name(enum audit_verdict verdict); /* "pass", "fail", "excused", "void" */

enum audit_bad {
    AUDIT_LOST,           /* acknowledged, and neither in main nor in the dead letters */
    AUDIT_UNEXPECTED,     /* in main or dead letters, and never sent */
    AUDIT_CORRUPT,        /* there with another body than the one sent */
    AUDIT_REFUSED_STORED, /* there although the client was told that it surely is not */
    AUDIT_DUPLICATED,     /* there more than once with the same body */
    AUDIT_BAD_COUNT
};
const char *audit_bad_name(enum audit_bad kind); /* "lost", "unexpected", ... */

enum { AUDIT_IDS_MAX = 10 };

struct audit_ids {
    int64_t count;
    unsigned kept; /* ids[0..kept-1]: the first ones, in file order */
    uint8_t ids[AUDIT_IDS_MAX][UUID_BYTES];
};

struct audit {
    enum audit_verdict verdict;
    char *why; /* one sentence for void, fail and excused, else "" */
    char *sink;
    bool control;
    bool counted; /* false: ledger or main.tsv could not be read, and the counts below mean nothing
                   */

    /* Always: acknowledged = committed + dead + lost + not_drained (ids, not rows). The last are
     * those that did not arrive while the sink still held at least as many: the audit is void, and
     * lost is 0. Of a sink that was drained it is 0. */
    int64_t acknowledged, committed, dead, not_drained;
    struct audit_ids bad[AUDIT_BAD_COUNT];
    int64_t
        redelivered;   /* rows that came again; a lower bound: sum over the committed events read */
    int64_t conflicts; /* dead letters with the reason "conflict" */
    int64_t unknown_arrived, unknown_absent;
    int64_t refused, unsent;
    int64_t ledger_rows, main_rows, dead_rows; /* rows of the files */
    int64_t backlog_end;                       /* what the sink still held; -1: not known */
    int64_t half_lines, damaged_lines;         /* of the *.jsonl that were read */
};

/* Audits one run folder and writes its audit.json. Returns the verdict, also in audit->verdict;
 * audit is always filled and must be freed. err is set when audit.json could not be written (the
 * verdict then is AUDIT_VOID) and, as a copy of why, when the verdict is AUDIT_VOID. */
enum audit_verdict audit_run(const char *run_dir, struct audit *audit, struct err *err);
void audit_print(const struct audit *audit, FILE *out); /* for a person; about ten lines */
void audit_free(struct audit *audit);

/* ---- the report of a comparison ---- */

struct report_result {
    unsigned runs;       /* run folders found */
    unsigned in_verdict; /* of those, how many count */
    unsigned failed;     /* runs of contenders whose audit failed: `sluice` exits 1 */
    unsigned voided;     /* contenders' runs whose audit is void: `sluice report` exits 3 */
    unsigned
        sla_missed;  /* contenders that missed the SLA in a run that counts, or have no such run */
    unsigned charts; /* charts drawn */
    struct buf summary; /* plain text: one sentence a sink, a line each, fit for a terminal */
};

/* Reads every run below comparison_dir (<sink>/<n>/), audits each anew, and writes compare.md,
 * compare.json and charts/ there. 0, or a negative errno with a sentence: no run found (-ENOENT), a
 * file could not be written. A run that can't be read doesn't fail the report: it is left out, and
 * the report says why. Free the result in any case. */
int report_comparison(const char *comparison_dir, struct report_result *result, struct err *err);
void report_result_free(struct report_result *result);

/* ---- two comparisons ---- */

struct report_against {
    bool fair;            /* the same load, main DB, faults and SLA; else nothing is judged */
    struct buf unfair;    /* what differs, when it is not */
    unsigned judged;      /* contenders in both with runs that count on both sides */
    unsigned unjudged;    /* contenders of A of which nothing can be said */
    unsigned worse_count; /* figures of contenders in which B is worse beyond noise */
    struct buf worse;     /* them, in words: "wal: api p99; ..." */
    struct buf text;      /* Markdown */
};

/* Reads both comparisons as report_comparison does (each run's audit.json is written anew, nothing
 * else) and sets them side by side. What is noise: against.h. 0, or a negative errno and a
 * sentence. Free the result in any case. */
int report_against(const char *dir_a, const char *dir_b, struct report_against *result,
                   struct err *err);
void report_against_free(struct report_against *result);

/* ---- for other programs ---- */

/* Writes a line a task of one run to out, as CSV (RFC 4180, with a header line); columns:
 * docs/metrics.md. No cell can be taken for a formula. 0; -EBADMSG: manifest or ledger can't be
 * read (a sentence); -EIO: out could not be written. */
int export_csv(const char *run_dir, FILE *out, struct err *err);

/* ---- one task's life ---- */

/* Prints what every file of the run knows of one id, in the order of time. 0; -EINVAL: not a UUID;
 * -ENOENT: no file knows it (said on out too), or no run folder. */
int trace_task(const char *run_dir, const char *id_text, FILE *out, struct err *err);

#endif

/* tiny.h: copies of fixtures/tiny with one thing made wrong, and what a report of them says. Test
 * failures end the test. */
#ifndef SLUICE_REPORTS_TEST_TINY_H
#define SLUICE_REPORTS_TEST_TINY_H

#include <stddef.h>

#include "reports/report.h"

enum { RUNS = 4, FILES = 10 };
extern const char *const tiny_runs[RUNS];
extern const char *const tiny_files[FILES];

/* A fresh copy of the fixture's first n runs; rundir_remove() ends it. */
char *copy_tiny(size_t n);
/* A run of that copy once more ("wal/1" to "valkey/1"), as another sink. */
void copy_as(const char *dir, const char *from, const char *to, const char *sink);
/* Replaces one text in one file, every time it is there (at least once). */
void change(const char *dir, const char *name, const char *old, const char *fresh);
/* Takes the last task of the last batch out of main.tsv. */
void lose_one(const char *run);

/* Reports; returns compare.md, and fills result. compare.json must be valid. */
char *report(const char *dir, struct report_result *result);

void has(const char *text, const char *part);
void has_not(const char *text, const char *part);
/* The nth cell (from 0: the label) of the first row with this label, blanks stripped; a static
 * text. */
const char *cell(const char *markdown, const char *label, int n);

/* Does that file hold nothing but what page_check.h allows? */
void check_page(const char *dir, const char *name);

#endif

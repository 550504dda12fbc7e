/* text.h: words, numbers and tables for people, with everything that comes from files made inert.
 */
#ifndef SLUICE_REPORTS_TEXT_H
#define SLUICE_REPORTS_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* For a terminal: one line, no control bytes (escape sequences), no invalid UTF-8. */
void text_plain(struct buf *out, const char *text);

/* For Markdown, in running text and in table cells: nothing in text can start markup, HTML, a link,
 * a mention, or end a cell. Long texts are cut. Readable in raw form, too. */
void text_markdown(struct buf *out, const char *text);

/* One byte of text in HTML or SVG, in an element or in a quoted attribute; a control byte other
 * than a tab becomes a blank. */
void text_xml_char(struct buf *out, char c);

/* Numbers. NAN: "–"; INFINITY (a rank among requests without a 202): "not 202". Three significant
 * digits where that rounds nothing away that matters; a thin group separator is not used, so that
 * figures can be copied. */
void text_ms(struct buf *out, double ms);        /* "4.13 ms", "12.3 s" */
void text_seconds(struct buf *out, double s);    /* "33.1 s" */
void text_bytes(struct buf *out, double bytes);  /* "12.3 MiB" */
void text_count(struct buf *out, double count);  /* "20000" */
void text_number(struct buf *out, double value); /* "353", "0.0042" */

/* A Markdown table, padded so that its raw form lines up too. Cells are Markdown already. */
struct table {
    struct buf *cells; /* row by row */
    size_t columns, count, capacity;
    bool all_left; /* aligned left; else the first column is, the others right */
};
void table_begin(struct table *table, size_t columns);
struct buf *
table_cell(struct table *table); /* the next cell, row by row; the first row is the header */
void table_text(struct table *table, const char *markdown); /* one whole cell */
void table_end(struct table *table, struct buf *out);       /* frees */

#endif

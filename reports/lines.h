/* lines.h: reads a text file line by line, with bounded memory. */
#ifndef SLUICE_REPORTS_LINES_H
#define SLUICE_REPORTS_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

enum { LINE_BYTES_MAX = 16 * 1024 * 1024 }; /* a line longer than this is damage */

struct lines {
    FILE *file;
    char *path;
    char *line;     /* the current line, NUL-terminated, without its newline; ours until the next */
    size_t len;     /* bytes in it; it may hold NUL bytes */
    bool ended;     /* it had a newline: false only for a last line that was cut short */
    bool too_long;  /* it was longer than LINE_BYTES_MAX; line holds its start */
    int64_t number; /* of the current line, from 1 */
    size_t capacity; /* allocated */
};

/* 0, or a negative errno and a sentence that names the file. Only regular files are taken. */
int lines_open(struct lines *lines, const char *path, struct err *err);
int lines_next(struct lines *lines,
               struct err *err);       /* 1: there is a line; 0: end; negative errno */
void lines_close(struct lines *lines); /* also after a failed open */

/* Splits the current line at its tabs, in place: fills field[0..max-1] and returns how many fields
 * there are (which may be more than max). A line with a NUL byte has 0 fields. */
size_t lines_split(struct lines *lines, char *field[], size_t max);

/* Grows *items (element size item_bytes) to hold at least one more than count. */
void array_grow(void **items, size_t *capacity, size_t count, size_t item_bytes);

/* A whole decimal number, optional sign, nothing else; false when it is none or does not fit. */
bool parse_int64(const char *text, int64_t *value);

#endif

/* options.h: one table of settings becomes flags, environment variables, --help and docs.
 *
 * A setting named "wal-dir" is the flag --wal-dir=VALUE (or --wal-dir VALUE) and the variable
 * SLUICE_WAL_DIR; the flag wins over the variable, the variable over a file of settings, the file
 * over the default. A bool is --name, --name=yes|no, or --no-name. "--" ends the flags; other words
 * are positional.
 *
 * A program that adds options_file_table takes --options-file=FILE: lines "name=value" with the
 * names of the flags; empty lines and lines that begin with # say nothing; white space around name
 * and value is not part of them. A list may stand there several times, anything else once.
 *
 * Secrets: an OPTION_URL may carry a password only when it comes from the environment, from a file
 * of settings, or from a file of its own ("@/path/to/file", whose first line is the URL); one in
 * argv is refused, since argv is public.
 *
 * Units: a duration is a number directly followed by ns, us, ms, s, m or h ("500us", "1.5s"; a bare
 * 0 is allowed), kept in nanoseconds. A size is a number with B, KiB, MiB, GiB, kB, MB, GB or
 * nothing (bytes), kept in bytes.
 *
 * Ownership: tables must outlive the struct options; values belong to it. Not thread-safe while
 * being filled; read-only afterwards, then any thread may read.
 */
#ifndef SLUICE_BASE_OPTIONS_H
#define SLUICE_BASE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"

enum option_type {
    OPTION_STRING,
    OPTION_BOOL,
    OPTION_INT,
    OPTION_DECIMAL,  /* a double */
    OPTION_DURATION, /* nanoseconds */
    OPTION_SIZE,     /* bytes */
    OPTION_URL,      /* string; shown without its password everywhere */
    OPTION_CHOICE,   /* one of choices, "a|b|c" */
    OPTION_LIST,     /* string, may be repeated; the variable takes one value */
};

struct option_spec {
    const char *name; /* NULL ends a table */
    enum option_type type;
    const char *unit;         /* what to show for the value in --help: "DIR", "N", "DURATION" */
    const char *default_text; /* as a user would write it; NULL: none */
    bool required;            /* checked by options_require, not by options_parse */
    const char *help;         /* one sentence, no full stop */
    int64_t min, max;         /* for numbers, durations, sizes; both 0: anything >= 0; in --help */
    const char *choices;
};

struct options;

extern const struct option_spec options_file_table[]; /* --options-file */

enum options_result { OPTIONS_OK = 0, OPTIONS_HELP = 1, OPTIONS_VERSION = 2 };

struct options *options_new(const char *program, const char *summary);
void options_free(struct options *options);

/* Adds a table under a heading. A name that is there already (two sinks sharing "sink-url") must
 * have the same type and default; it is kept once. */
void options_add(struct options *options, const char *heading, const struct option_spec *table);

/* Reads the file of settings, environment and argv[1..]. Returns an options_result, or -EINVAL with
 * a sentence that names the flag, variable or FILE:LINE and what it takes. On OPTIONS_HELP or
 * OPTIONS_VERSION nothing is printed. */
int options_parse(struct options *options, int argc, char *const argv[], struct err *err);

/* The usual start of a main(): parse; print help or version to stdout, or the error to stderr.
 * Returns true when the program should go on; otherwise *exit_code (0 or 2) is what to return. */
bool options_start(struct options *options, int argc, char *const argv[], int *exit_code);

/* Sets one value as if it came from `where` ("--set", "scenario quick.yaml:3:5"). */
int options_set(struct options *options, const char *name, const char *text, const char *where,
                struct err *err);

/* -EINVAL when a required setting of this table has no value; says which flag and variable set it.
 */
int options_require(const struct options *options, const struct option_spec *table,
                    struct err *err);

/* Values. The name must be in a table and of that type (asserted). A string without a value is
 * NULL, a number without one 0. */
const char *options_string(const struct options *options, const char *name); /* STRING URL CHOICE */
bool options_bool(const struct options *options, const char *name);
int64_t options_int(const struct options *options, const char *name);
double options_decimal(const struct options *options, const char *name);
int64_t options_duration_ns(const struct options *options, const char *name);
int64_t options_size_bytes(const struct options *options, const char *name);
const char *const *options_list(const struct options *options, const char *name, size_t *count);
bool options_is_set(const struct options *options, const char *name); /* not just its default */
/* Of any type but a list, as it was written (for a URL, what its file said); NULL: no value. */
const char *options_text(const struct options *options, const char *name);
const char *const *options_args(const struct options *options, size_t *count); /* positional */

/* Appends {"name": "text", ...} of all settings that have a value, passwords left out. */
void options_json(const struct options *options, struct buf *out);

void options_help(const struct options *options, FILE *out);
void options_markdown(const struct options *options, FILE *out); /* the table for docs/ */

/* "4MiB to 1TiB", "1 to 100", "250ms to 1h": the range of a setting as a user would write it; ""
 * when it has none but "not negative". Returns out, which is always terminated. */
char *option_range(const struct option_spec *spec, char *out, size_t out_bytes);

/* The parsers behind the types; -EINVAL and a sentence without the setting's name. */
int option_parse_duration(const char *text, int64_t *duration_ns, struct err *err);
int option_parse_size(const char *text, int64_t *bytes, struct err *err);
int option_parse_int(const char *text, int64_t *value, struct err *err);
int option_parse_decimal(const char *text, double *value, struct err *err);

/* "postgresql://u:secret@h/db" -> "postgresql://u:***@h/db", and the same for password=... in a
 * libpq keyword string. Returns out, which is always terminated. */
char *url_redact(const char *url, char *out, size_t out_bytes);
/* The same, as a copy to free; for any text that a person gave, before a message cuts it short. */
char *url_redacted(const char *text);

#endif

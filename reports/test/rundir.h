/* rundir.h: makes run folders for the tests, from the tests' own words. Everything is asserted. */
#ifndef SLUICE_REPORTS_TEST_RUNDIR_H
#define SLUICE_REPORTS_TEST_RUNDIR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/uuid.h"

enum { RUNDIR_PAYLOAD_BYTES = 24 };

char *rundir_make(void);       /* a fresh folder below TMPDIR; free, and rundir_remove it */
void rundir_remove(char *dir); /* with all that is in it; frees dir */
void rundir_write(const char *dir, const char *name, const char *bytes, size_t len);
void rundir_puts(const char *dir, const char *name, const char *text);
char *rundir_read(const char *dir, const char *name); /* NUL-terminated; free it */

/* The nth id of the tests, as bytes and as text (a static ring of 8 texts). */
void rundir_id(unsigned n, uint8_t id[UUID_BYTES]);
const char *rundir_id_text(unsigned n);

/* Rows: ids by number. */
struct buf rundir_ledger_begin(void);
void rundir_ledger_row(struct buf *ledger, unsigned n, int64_t due_us, int64_t sent_us,
                       int64_t done_us, int code, const char *outcome, const char *phase);
void rundir_ledger_end(struct buf *ledger, const char *dir, const char *name); /* frees */

struct buf rundir_main_begin(void);
void rundir_main_row(struct buf *table, unsigned n, const char *where, bool changed,
                     const char *reason);
void rundir_main_end(struct buf *table, const char *dir); /* frees */

/* A complete manifest: load of 10 s from 1000 s on, drained by 1020 s. replace/with change its
 * text. */
void rundir_manifest(const char *dir, const char *sink, bool control, int repeat,
                     const char *replace, const char *with);

#endif

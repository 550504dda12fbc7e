/* ingest_table.h: the one table of the sink ingest: its name, set-up, check and removal.
 *
 * All block for a few seconds at most (connect timeout, then 15 s for a statement).
 * Codes beside those of pg_call.h: -EINVAL the URL or the name; -EEXIST: a table of that name
 * is there with other columns; -EBUSY: the database is the main one.
 */
#ifndef SLUICE_SINK_INGEST_TABLE_H
#define SLUICE_SINK_INGEST_TABLE_H

#include "base/err.h"
#include "base/options.h"
#include "sink/sink.h"

/* --ingest-table, checked: begins with "sluice", small letters, digits and _ only, so that it may
 * stand in a statement as it is. */
int ingest_table_name(const char **name, const struct options *options, struct err *err);

int ingest_table_setup(const struct options *options, struct err *err);
int ingest_table_preflight(const struct options *options, struct err *err);
/* "PostgreSQL 15.18" */
int ingest_table_version(const struct options *options, char *out, size_t out_bytes,
                         struct err *err);
/* As sink.h says of hold: a session that keeps an advisory lock. */
int ingest_table_hold(struct sink_hold **hold, const struct options *options, struct err *err);
int ingest_table_hold_keep(struct sink_hold *hold, struct err *err);
void ingest_table_hold_end(struct sink_hold *hold);
/* Drops it, with all that is in it. */
int ingest_table_remove(const struct options *options, struct err *err);

#endif

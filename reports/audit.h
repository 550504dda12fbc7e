/* audit.h: the audit inside the report, on a run that is loaded already. */
#ifndef SLUICE_REPORTS_AUDIT_H
#define SLUICE_REPORTS_AUDIT_H

#include "report.h"
#include "run.h"

/* Reads main.tsv, compares, judges. Fills audit (free it), never writes a file. Uses the found_
 * fields of the run's ledger rows. */
void audit_compute(struct audit *audit, struct run *run);
int audit_write(const struct audit *audit, const char *run_dir, struct err *err); /* audit.json */

/* Appends audit.json's object, without a newline at its end. */
void audit_json(const struct audit *audit, struct buf *out);

#endif

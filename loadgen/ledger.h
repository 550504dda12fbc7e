/* ledger.h: writes ledger.tsv (docs/metrics.md): what became of every id.
 *
 * Rows are gathered and reach the file by ledger_flush or at 64 KiB, always whole. Only
 * ledger_close with complete = true writes the "#end" line, so that a file cut short can be told.
 * Errors in writing are kept and returned by ledger_flush and ledger_close. One thread at a time.
 */
#ifndef SLUICE_LOADGEN_LEDGER_H
#define SLUICE_LOADGEN_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "attack.h"
#include "base/err.h"

struct ledger;

/* Creates the file and writes its first line. -EEXIST: it is there already; a ledger is evidence
 * and never overwritten. start_wall_us: the load's begin, unix microseconds; seed: as in "#...
 * seed=". */
int ledger_open(struct ledger **ledger, const char *path, uint64_t seed, size_t payload_bytes,
                int64_t start_wall_us, struct err *err);
void ledger_row(struct ledger *ledger, const struct settled *settled, const char *phase);
int ledger_flush(struct ledger *ledger);
int ledger_close(struct ledger *ledger, bool complete, struct err *err); /* NULL: 0 */

#endif

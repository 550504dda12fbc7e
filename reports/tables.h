/* tables.h: ledger*.tsv and main.tsv, read strictly. A table that is cut short or damaged anywhere
 * is an error that names file and line: what rests on it proves nothing. */
#ifndef SLUICE_REPORTS_TABLES_H
#define SLUICE_REPORTS_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/uuid.h"

enum outcome { OUTCOME_DURABLE, OUTCOME_REFUSED, OUTCOME_UNKNOWN, OUTCOME_UNSENT, OUTCOME_COUNT };
extern const char *const outcome_names[OUTCOME_COUNT];

/* One id, and what the event files know of it (NAN where they do not). */
struct ledger_row {
    uint8_t id[UUID_BYTES];
    uint8_t outcome; /* enum outcome */
    uint8_t source;  /* which ledger file: index in sources */
    uint16_t phase;  /* index in phases */
    int32_t code;    /* HTTP status, 0 without an answer */
    int64_t due_us, sent_us, done_us;
    double latency_ms, service_ms;   /* api_latency */
    double durable_ms;               /* durable */
    double age_ms;                   /* committed: the first time it was */
    int64_t committed_us;            /* when; 0: no event says so */
    uint16_t found_main, found_dead; /* rows of main.tsv with this id and the body sent */
    uint16_t found_other;            /* rows of main.tsv with this id and another body */
    uint32_t batch;                  /* durable: tasks that became so together; 0: not told */
};

struct ledger_source {
    char *name; /* file name */
    int64_t payload_bytes;
    int64_t rows;
};
enum { LEDGER_SOURCES_MAX = 16, LEDGER_PHASES_MAX = 256 };

struct ledger {
    struct ledger_row *rows;
    size_t count, capacity;
    uint32_t *slots; /* open addressing: index + 1, 0 empty */
    size_t slot_count;
    struct ledger_source sources[LEDGER_SOURCES_MAX]; /* the first is ledger.tsv, the load itself */
    size_t source_count;
    char *phases[LEDGER_PHASES_MAX];
    size_t phase_count;
};

/* Adds one file. -EBADMSG: damaged; -EEXIST: an id that is there already; and so on. */
int ledger_read(struct ledger *ledger, const char *run_dir, const char *name, struct err *err);
struct ledger_row *ledger_find(const struct ledger *ledger, const uint8_t id[UUID_BYTES]);
void ledger_free(struct ledger *ledger);

enum { REASON_BYTES = 64 };
struct main_row {
    uint8_t id[UUID_BYTES];
    bool dead; /* where: false main, true dead */
    int64_t body_bytes;
    uint64_t body_hash;
    char reason[REASON_BYTES]; /* cut when longer */
};

/* Calls each for every row, in file order; returns the number of rows, or a negative errno. Rows
 * that were given before an error count for nothing. */
int64_t main_read(const char *run_dir, void (*each)(void *arg, const struct main_row *row),
                  void *arg, struct err *err);

#endif

/* scenario.h: what a run does: load, main database, worker, faults, target. From a YAML file, with
 * overrides. DESIGN and scenarios/README.md say what the keys mean.
 *
 * Every key is known, every unit and range checked; a mistake is one sentence that begins with
 * "file:line:column: " (or "--set key=value: ") and says what was expected. Not thread-safe.
 */
#ifndef SLUICE_RUNNER_SCENARIO_H
#define SLUICE_RUNNER_SCENARIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    SCENARIO_NAME_BYTES = 41, /* with "-" and a time it makes a run id of at most 64 */
    SCENARIO_PHASES_MAX = 16,
    SCENARIO_FAULTS_MAX = 32,
    SCENARIO_BACKGROUND_MAX = 32,
    SCENARIO_SINK_MAX = 32
};

enum pacing { PACING_PACED, PACING_BURST };
enum fault_do { FAULT_KILL, FAULT_TERM, FAULT_PAUSE };
enum fault_who { FAULT_API, FAULT_WORKER, FAULT_SINK, FAULT_MAIN_DB };

/* Housekeeping that a run forces, to show what it does to the latency. */
enum background_do {
    BACKGROUND_CHECKPOINT,
    BACKGROUND_VACUUM,
    BACKGROUND_AOF_REWRITE,
    BACKGROUND_RAFT_ROLLOVER,
    BACKGROUND_SEGMENT_ROTATION
};
enum background_who { BACKGROUND_MAIN_DB, BACKGROUND_SINK, BACKGROUND_API };

extern const char *const pacing_names[];    /* "paced", "burst", NULL */
extern const char *const fault_do_names[];  /* "kill", "term", "pause", NULL */
extern const char *const fault_who_names[]; /* "api", "worker", "sink", "main-db", NULL */
/* "checkpoint", "vacuum", "aof-rewrite", "raft-rollover", "segment-rotation", NULL */
extern const char *const background_do_names[];
extern const char *const background_who_names[]; /* "main-db", "sink", "api", NULL */

struct scenario_phase {
    char name[SCENARIO_NAME_BYTES];
    int64_t duration_ns;
    double rate; /* a factor of rps */
};

struct scenario_fault {
    int64_t at_ns; /* from the start of the load */
    int64_t for_ns;
    enum fault_do what;
    enum fault_who who;
    char *place; /* where `who` was said, for messages */
};

struct scenario_background {
    int64_t at_ns; /* from the start of the load */
    enum background_do what;
    enum background_who who;
};

/* A setting of the sinks' drivers: their names and values are checked by whoever knows the drivers.
 */
struct scenario_sink_option {
    char *name, *text, *place;
};

struct scenario {
    char name[SCENARIO_NAME_BYTES];
    char *file;
    int64_t rps;
    enum pacing pacing;
    int64_t connections;
    int64_t payload_bytes;
    int64_t timeout_ns;
    size_t phase_count;
    struct scenario_phase phases[SCENARIO_PHASES_MAX];
    int64_t row_delay_ns;
    int64_t batch, lanes;
    size_t fault_count;
    struct scenario_fault faults[SCENARIO_FAULTS_MAX];
    size_t background_count;
    struct scenario_background background[SCENARIO_BACKGROUND_MAX];
    int64_t sla_api_p99_ns;
    size_t sink_count;
    struct scenario_sink_option sink[SCENARIO_SINK_MAX];
};

/* Reads `file`, applies overrides ("load.rps=2000") in order, checks all. -EINVAL: a mistake in it;
 * other errors: it could not be read. The caller frees it with scenario_free, also after an error.
 */
int scenario_load(struct scenario *scenario, const char *file, const char *const *overrides,
                  size_t override_count, struct err *err);
/* The same from memory; `name` stands for the file. */
int scenario_parse(struct scenario *scenario, const char *text, size_t len, const char *name,
                   const char *const *overrides, size_t override_count, struct err *err);
void scenario_free(struct scenario *scenario);

/* The path of a scenario named on the command line: as it is when it has a slash or ends in .yaml,
 * else NAME.yaml in ./scenarios, in the installed ones, or in the source tree. NULL: there is none.
 */
char *scenario_find(const char *name);

/* Finds it and loads it, each override taken apart at its semicolons (a variable holds but one
 * text). -EINVAL: there is none of that name, or a mistake in it. */
int scenario_open(struct scenario *scenario, const char *name, const char *const *overrides,
                  size_t override_count, struct err *err);

int64_t scenario_load_ns(const struct scenario *scenario); /* the length of all phases */
double scenario_tasks(const struct scenario *scenario);    /* how many requests will be due */

/* How long a drain may take at most, unless told: see scenarios/README.md. */
int64_t scenario_drain_timeout_ns(const struct scenario *scenario);

/* Appends the JSON object that stands in a manifest; faults: only those whose bit is set. The
 * background schedule is whole, the same for every sink. */
void scenario_json(const struct scenario *scenario, uint32_t fault_bits, struct buf *out);
/* Appends a JSON array of those of the background schedule whose bit is set. */
void scenario_background_json(const struct scenario *scenario, uint32_t bits, struct buf *out);

#endif

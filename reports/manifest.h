/* manifest.h: what ran, on what, with which settings. Every key of the schema must be there. */
#ifndef SLUICE_REPORTS_MANIFEST_H
#define SLUICE_REPORTS_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "base/err.h"

#define MANIFEST_SCHEMA "sluice-manifest/1"

struct manifest_phase {
    const char *name;
    double for_ms;
    double rate; /* a factor of rps */
};

/* Strings point into json. */
struct manifest {
    cJSON *json; /* the whole document; NULL when it could not be read */
    const char *scenario;
    const cJSON *scenario_json;
    double rps;
    const char *pacing;
    double timeout_ms;
    struct manifest_phase *phases;
    size_t phase_count;
    double row_delay_ms;
    double lanes, batch;
    double api_p99_ms; /* the SLA */
    const char *sink;
    bool control;
    bool drains; /* flags hold DRAINS, or there are no flags to say that it does not */
    const char *promise;
    int64_t repeat;
    const char *outcome, *why; /* complete, interrupted, failed */
    int64_t start_us, load_end_us, end_us;
    const char *sluice_version, *sluice_commit;
    const char *state_dir;
};

/* Reads run_dir/manifest.json. Otherwise an error that names the file and the key. Free in any
 * case. */
int manifest_read(struct manifest *manifest, const char *run_dir, struct err *err);
void manifest_free(struct manifest *manifest);

/* Did the parts run in containers ("through": "compose")? */
bool manifest_in_containers(const struct manifest *manifest);

/* The first server with this role ("main-db", "sink"), or NULL. */
const cJSON *manifest_server(const struct manifest *manifest, const char *role);

/* Items of objects by exact name, tolerant: NULL, "" and NAN where there is none. */
const cJSON *json_get(const cJSON *object, const char *name);
const char *json_text(const cJSON *object, const char *name);
double json_number(const cJSON *object, const char *name);

#endif

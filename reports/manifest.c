#include "manifest.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"

enum { MANIFEST_BYTES_MAX = 4 * 1024 * 1024 };

/* A run longer than a week is a damaged time; the bound also bounds every per-second series. */
static const int64_t RUN_US_MAX = 7LL * 86400 * 1000000;

const cJSON *json_get(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

const char *json_text(const cJSON *object, const char *name)
{
    const char *text = cJSON_GetStringValue(json_get(object, name));
    return text ? text : "";
}

double json_number(const cJSON *object, const char *name)
{
    const cJSON *item = json_get(object, name);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

/* Walks the schema: remembers the first thing that is wrong, so that the reader below stays a list.
 */
struct walk {
    const char *path;
    struct err *err;
    int result;
};

static void complain(struct walk *walk, const char *key, const char *what)
{
    if (walk->result == 0)
        walk->result = err_set(walk->err, -EBADMSG, "%s: \"%s\" %s", walk->path, key, what);
}

static const cJSON *need(struct walk *walk, const cJSON *object, const char *prefix,
                         const char *name, int type, const char *type_name)
{
    const cJSON *item = json_get(object, name);
    char key[128];
    snprintf(key, sizeof(key), "%s%s%s", prefix, *prefix ? "." : "", name);
    if (!item)
        complain(walk, key, "is missing");
    else if (!(item->type & type)) {
        char what[64];
        snprintf(what, sizeof(what), "is not %s", type_name);
        complain(walk, key, what);
    } else {
        return item;
    }
    return NULL;
}

static const cJSON *need_object(struct walk *walk, const cJSON *object, const char *prefix,
                                const char *name)
{
    return need(walk, object, prefix, name, cJSON_Object, "an object");
}

static const cJSON *need_array(struct walk *walk, const cJSON *object, const char *prefix,
                               const char *name)
{
    return need(walk, object, prefix, name, cJSON_Array, "an array");
}

static const char *need_text(struct walk *walk, const cJSON *object, const char *prefix,
                             const char *name)
{
    const cJSON *item = need(walk, object, prefix, name, cJSON_String, "a string");
    return item ? item->valuestring : "";
}

/* Between 0 and max. */
static double need_number(struct walk *walk, const cJSON *object, const char *prefix,
                          const char *name, double max)
{
    const cJSON *item = need(walk, object, prefix, name, cJSON_Number, "a number");
    if (!item)
        return 0;
    if (!(item->valuedouble >= 0 && item->valuedouble <= max)) {
        complain(walk, name, "is out of range");
        return 0;
    }
    return item->valuedouble;
}

static void read_phases(struct walk *walk, struct manifest *manifest, const cJSON *load)
{
    const cJSON *phases = need_array(walk, load, "scenario.load", "phases");
    int count = cJSON_GetArraySize(phases);
    if (count <= 0 || count > 256) {
        complain(walk, "scenario.load.phases", "is empty or too long");
        return;
    }
    manifest->phases = xcalloc((size_t)count, sizeof(*manifest->phases));
    const cJSON *item;
    cJSON_ArrayForEach(item, phases)
    {
        struct manifest_phase *phase = &manifest->phases[manifest->phase_count++];
        phase->name = need_text(walk, item, "scenario.load.phases", "name");
        phase->for_ms = need_number(walk, item, "scenario.load.phases", "for_ms", 1e9);
        phase->rate = need_number(walk, item, "scenario.load.phases", "rate", 1e6);
    }
}

static void read_scenario(struct walk *walk, struct manifest *manifest, const cJSON *root)
{
    const cJSON *scenario = need_object(walk, root, "", "scenario");
    manifest->scenario_json = scenario;
    manifest->scenario = need_text(walk, scenario, "scenario", "name");
    need_text(walk, scenario, "scenario", "file");
    const cJSON *load = need_object(walk, scenario, "scenario", "load");
    manifest->rps = need_number(walk, load, "scenario.load", "rps", 1e9);
    manifest->pacing = need_text(walk, load, "scenario.load", "pacing");
    need_number(walk, load, "scenario.load", "connections", 1e9);
    need_number(walk, load, "scenario.load", "payload_bytes", 1e12);
    manifest->timeout_ms = need_number(walk, load, "scenario.load", "timeout_ms", 1e9);
    read_phases(walk, manifest, load);
    manifest->row_delay_ms = need_number(walk, scenario, "scenario", "row_delay_ms", 1e9);
    const cJSON *worker = need_object(walk, scenario, "scenario", "worker");
    manifest->lanes = need_number(walk, worker, "scenario.worker", "lanes", 1e9);
    manifest->batch = need_number(walk, worker, "scenario.worker", "batch", 1e9);
    need_array(walk, scenario, "scenario", "faults");
    const cJSON *sla = need_object(walk, scenario, "scenario", "sla");
    manifest->api_p99_ms = need_number(walk, sla, "scenario.sla", "api_p99_ms", 1e9);
}

static void read_surroundings(struct walk *walk, struct manifest *manifest, const cJSON *root)
{
    const cJSON *sluice = need_object(walk, root, "", "sluice");
    manifest->sluice_version = need_text(walk, sluice, "sluice", "version");
    manifest->sluice_commit = need_text(walk, sluice, "sluice", "commit");
    need_text(walk, sluice, "sluice", "compiler");
    need_text(walk, sluice, "sluice", "build_type");
    const cJSON *host = need_object(walk, root, "", "host");
    static const char *const host_texts[] = {"kernel", "cpu", "filesystem", "device", "os"};
    for (size_t i = 0; i < sizeof(host_texts) / sizeof(host_texts[0]); i++)
        need_text(walk, host, "host", host_texts[i]);
    need_number(walk, host, "host", "cores", 1e6);
    need_number(walk, host, "host", "memory_bytes", 1e18);
    const cJSON *servers = need_array(walk, root, "", "servers");
    const cJSON *server;
    cJSON_ArrayForEach(server, servers)
    {
        need_text(walk, server, "servers", "role");
        need_text(walk, server, "servers", "name");
        need_text(walk, server, "servers", "version");
        need_number(walk, server, "servers", "replicas", 1e6);
        need_object(walk, server, "servers", "settings");
    }
    const cJSON *settings = need_object(walk, root, "", "settings");
    static const char *const parts[] = {"api", "worker", "loadgen", "sampler"};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        need_object(walk, settings, "settings", parts[i]);
    manifest->state_dir = need_text(walk, root, "", "state_dir");
    need_array(walk, root, "", "unsafe");
    need_array(walk, root, "", "unverified");
}

static void read_flags(struct walk *walk, struct manifest *manifest, const cJSON *root)
{
    const cJSON *flags = need_array(walk, root, "", "flags");
    manifest->drains = cJSON_GetArraySize(flags) == 0;
    const cJSON *flag;
    cJSON_ArrayForEach(flag, flags)
    {
        if (cJSON_IsString(flag) && strcasecmp(flag->valuestring, "DRAINS") == 0)
            manifest->drains = true;
    }
}

static void read_run(struct walk *walk, struct manifest *manifest, const cJSON *root)
{
    const char *schema = need_text(walk, root, "", "schema");
    if (walk->result == 0 && strcmp(schema, MANIFEST_SCHEMA) != 0)
        complain(walk, "schema", "is not \"" MANIFEST_SCHEMA "\"");
    read_scenario(walk, manifest, root);
    manifest->sink = need_text(walk, root, "", "sink");
    const cJSON *control = need(walk, root, "", "control", cJSON_True | cJSON_False, "a boolean");
    manifest->control = cJSON_IsTrue(control);
    read_flags(walk, manifest, root);
    manifest->promise = need_text(walk, root, "", "promise");
    manifest->repeat = (int64_t)need_number(walk, root, "", "repeat", 1e6);
    need_text(walk, root, "", "seed");
    need_number(walk, root, "", "payload_bytes", 1e12);
    read_surroundings(walk, manifest, root);
    manifest->start_us = (int64_t)need_number(walk, root, "", "start_us", 1e16);
    manifest->load_end_us = (int64_t)need_number(walk, root, "", "load_end_us", 1e16);
    manifest->end_us = (int64_t)need_number(walk, root, "", "end_us", 1e16);
    manifest->outcome = need_text(walk, root, "", "outcome");
    manifest->why = need_text(walk, root, "", "why");
    if (walk->result != 0)
        return;
    bool complete = strcmp(manifest->outcome, "complete") == 0;
    if (!complete && strcmp(manifest->outcome, "interrupted") != 0 &&
        strcmp(manifest->outcome, "failed") != 0)
        complain(walk, "outcome", "is none of complete, interrupted, failed");
    if (complete &&
        !(manifest->start_us < manifest->load_end_us && manifest->load_end_us <= manifest->end_us &&
          manifest->end_us - manifest->start_us <= RUN_US_MAX))
        complain(walk, "start_us, load_end_us, end_us", "are not in order within a week");
}

int manifest_read(struct manifest *manifest, const char *run_dir, struct err *err)
{
    memset(manifest, 0, sizeof(*manifest));
    struct buf text = {0};
    char *path = xasprintf("%s/manifest.json", run_dir);
    struct walk walk = {.path = path, .err = err};
    walk.result = file_read(path, MANIFEST_BYTES_MAX, &text, err);
    if (walk.result < 0)
        goto out;
    walk.result =
        text.len ? json_check(text.data, text.len, err) : err_set(err, -EBADMSG, "it is empty");
    if (walk.result < 0) {
        err_prefix(err, "%s is damaged", path);
        goto out;
    }
    manifest->json = cJSON_ParseWithLength(text.data, text.len);
    if (!cJSON_IsObject(manifest->json))
        walk.result = err_set(err, -EBADMSG, "%s: expected a JSON object", path);
    else
        read_run(&walk, manifest, manifest->json);
out:
    free(path);
    buf_free(&text);
    return walk.result;
}

void manifest_free(struct manifest *manifest)
{
    cJSON_Delete(manifest->json);
    free(manifest->phases);
    memset(manifest, 0, sizeof(*manifest));
}

bool manifest_in_containers(const struct manifest *manifest)
{
    return strcmp(json_text(manifest->json, "through"), "compose") == 0;
}

const cJSON *manifest_server(const struct manifest *manifest, const char *role)
{
    const cJSON *server;
    cJSON_ArrayForEach(server, json_get(manifest->json, "servers"))
    {
        if (strcmp(json_text(server, "role"), role) == 0)
            return server;
    }
    return NULL;
}

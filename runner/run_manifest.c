#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "commit.h"
#include "host.h"
#include "run.h"

void json_item(struct buf *list, const char *text)
{
    buf_puts(list, list->len > 0 ? ", " : "");
    buf_json_string(list, text, strlen(text));
}

static void field(struct buf *out, const char *name, const char *text)
{
    buf_printf(out, "\"%s\": ", name);
    buf_json_string(out, text, strlen(text));
}

static void add_flags(unsigned flags, struct buf *out)
{
    static const struct {
        unsigned bit;
        const char *name;
    } names[] = {{SINK_CONTROL, "CONTROL"},
                 {SINK_DRAINS, "DRAINS"},
                 {SINK_BACKLOG_EXACT, "BACKLOG_EXACT"},
                 {SINK_NEEDS_MAIN, "NEEDS_MAIN"},
                 {SINK_DURABLE_KILL, "DURABLE_KILL"}};
    bool first = true;
    buf_puts(out, "\"flags\": [");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (flags & names[i].bit) {
            buf_printf(out, "%s\"%s\"", first ? "" : ", ", names[i].name);
            first = false;
        }
    }
    buf_putc(out, ']');
}

/* What a daemon itself says its settings are, in its start event: the truth, defaults included. */
static void add_settings(const char *dir, const char *role, const char *file_name, struct buf *out)
{
    char *path = xasprintf("%s/%s", dir, file_name);
    FILE *file = fopen(path, "re");
    char *line = NULL, *found = NULL;
    size_t cap = 0;
    for (int i = 0; file && !found && i < 50 && getline(&line, &cap, file) > 0; i++) {
        cJSON *event = cJSON_Parse(line);
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(event, "ev"));
        const cJSON *settings = cJSON_GetObjectItemCaseSensitive(event, "settings");
        if (name && strcmp(name, "start") == 0 && cJSON_IsObject(settings)) {
            found = cJSON_PrintUnformatted(settings);
        }
        cJSON_Delete(event);
    }
    buf_printf(out, "\"%s\": %s", role, found ? found : "{}");
    free(found);
    free(line);
    if (file) {
        fclose(file);
    }
    free(path);
}

int manifest_write(const struct one_run *run, const char *outcome, const char *why, struct err *err)
{
    const struct run_request *request = run->request;
    const struct sink_driver *driver = request->driver;
    struct buf out = {0};
    buf_puts(&out, "{\n\"schema\": \"sluice-manifest/1\",\n\"scenario\": ");
    scenario_json(request->scenario, request->fault_bits, &out);
    buf_puts(&out, ",\n\"background\": ");
    scenario_background_json(request->scenario, request->background_bits, &out);
    buf_puts(&out, ",\n");
    field(&out, "sink", driver->name);
    buf_printf(&out, ", \"control\": %s, ", driver->flags & SINK_CONTROL ? "true" : "false");
    add_flags(driver->flags, &out);
    buf_puts(&out, ", ");
    field(&out, "promise", driver->promise);
    buf_printf(&out, ",\n\"repeat\": %u, \"seed\": \"%llu\", \"payload_bytes\": %lld,\n",
               request->repeat, (unsigned long long)request->seed,
               (long long)request->scenario->payload_bytes);
    buf_puts(&out, "\"sluice\": {\"version\": \"" SLUICE_VERSION "\", \"commit\": \"" SLUICE_COMMIT
                   "\", \"compiler\": \"" SLUICE_COMPILER "\", \"build_type\": \"" SLUICE_BUILD_TYPE
                   "\"},\n\"host\": ");
    host_json(run->state_dir ? run->state_dir : request->base, &out);
    buf_printf(&out, ",\n\"servers\": [%s],\n\"settings\": {",
               run->servers.data ? run->servers.data : "");
    add_settings(request->dir, "api", "api-1.jsonl", &out);
    buf_puts(&out, ",\n  ");
    add_settings(request->dir, "worker", "worker-1.jsonl", &out);
    buf_puts(&out, ",\n  ");
    add_settings(request->dir, "loadgen", request->places ? "loadgen-1.jsonl" : "loadgen.jsonl",
                 &out);
    buf_puts(&out, ",\n  ");
    add_settings(request->dir, "sampler", "sampler.jsonl", &out);
    buf_puts(&out, "},\n");
    if (request->parts_json) {
        buf_printf(&out, "\"through\": \"compose\", \"parts\": %s,\n", request->parts_json);
    }
    field(&out, "state_dir", run->state_dir ? run->state_dir : "");
    if (request->daemons) {
        buf_puts(&out, ", ");
        field(&out, "daemons", request->daemons);
    }
    buf_printf(&out, ",\n\"start_us\": %lld, \"load_end_us\": %lld, \"end_us\": %lld,\n",
               (long long)run->start_us, (long long)run->load_end_us, (long long)run->end_us);
    buf_printf(&out, "\"neighbours\": %s, ", run->neighbours ? "true" : "false");
    buf_printf(&out, "\"unsafe\": [%s], \"unverified\": [%s],\n",
               run->unsafe.data ? run->unsafe.data : "",
               run->unverified.data ? run->unverified.data : "");
    field(&out, "outcome", outcome);
    buf_puts(&out, ", ");
    field(&out, "why", why);
    buf_puts(&out, "\n}\n");
    char *path = xasprintf("%s/manifest.json", request->dir);
    int rc = file_write(path, out.data, out.len, err);
    free(path);
    buf_free(&out);
    return rc;
}

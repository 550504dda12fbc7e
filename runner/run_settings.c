/* What a scenario says to the daemons, once: as flags for those that sluice starts, as files for
 * those that others start. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "run.h"

/* The api takes bodies of 128 KiB unless told. */
enum { BODY_PLAIN_BYTES = 100 * 1024, BODY_FRAME_BYTES = 1024 };

/* In the largest unit that keeps it whole: the manifest shows these. */
static void put_duration(struct buf *lines, int64_t duration_ns)
{
    static const struct {
        int64_t ns;
        const char *name;
    } units[] = {{NS_PER_S, "s"}, {NS_PER_MS, "ms"}, {NS_PER_US, "us"}, {1, "ns"}};
    size_t i = 0;
    while (duration_ns % units[i].ns != 0) {
        i++;
    }
    buf_printf(lines, "%lld%s", (long long)(duration_ns / units[i].ns), units[i].name);
}

void settings_api(const struct run_request *request, struct buf *lines)
{
    int64_t payload_bytes = request->scenario->payload_bytes;
    if (payload_bytes > BODY_PLAIN_BYTES) {
        buf_printf(lines, "body-max=%lld\n", (long long)payload_bytes + BODY_FRAME_BYTES);
    }
    if (request->allow_unsafe) {
        buf_puts(lines, "allow-unsafe=yes\n");
    }
}

void settings_worker(const struct run_request *request, struct buf *lines)
{
    buf_printf(lines, "lanes=%lld\nbatch=%lld\n", (long long)request->scenario->lanes,
               (long long)request->scenario->batch);
}

void settings_loadgen(const struct run_request *request, struct buf *lines)
{
    const struct scenario *scenario = request->scenario;
    buf_printf(lines, "rps=%lld\npacing=%s\nconnections=%lld\npayload-bytes=%lld\ntimeout=",
               (long long)scenario->rps, pacing_names[scenario->pacing],
               (long long)scenario->connections, (long long)scenario->payload_bytes);
    put_duration(lines, scenario->timeout_ns);
    for (size_t i = 0; i < scenario->phase_count; i++) {
        const struct scenario_phase *phase = &scenario->phases[i];
        buf_printf(lines, "\nphase=%s:", phase->name);
        put_duration(lines, phase->duration_ns);
        buf_printf(lines, ":%.12g", phase->rate);
    }
    buf_printf(lines, "\nseed=%llu\nledger=%s/ledger.tsv\n", (unsigned long long)request->seed,
               request->dir);
}

const struct option_spec *settings_find(const struct option_spec *table, const char *name)
{
    for (; table && table->name; table++) {
        if (strcmp(table->name, name) == 0) {
            return table;
        }
    }
    return NULL;
}

int settings_check_sink(const struct scenario *scenario, struct err *err)
{
    struct options *options = options_new("sluice", "");
    sink_add_options(options);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < scenario->sink_count; i++) {
        const struct scenario_sink_option *setting = &scenario->sink[i];
        const struct option_spec *spec = settings_find(sink_common_options, setting->name);
        for (size_t k = 0; !spec && sink_drivers[k]; k++) {
            spec = settings_find(sink_drivers[k]->options, setting->name);
        }
        if (!spec) {
            rc = err_set(err, -EINVAL, "%s: no sink has a setting \"%s\": sluice sinks lists them",
                         setting->place, setting->name);
        } else if (spec->type == OPTION_URL || (spec->unit && strcmp(spec->unit, "DIR") == 0)) {
            rc = err_set(err, -EINVAL, "%s: sink.%s is chosen by sluice itself, for each run",
                         setting->place, setting->name);
        } else if (strchr(setting->text, '\n')) {
            rc = err_set(err, -EINVAL, "%s: sink.%s may not hold a line break", setting->place,
                         setting->name);
        } else {
            char *where = xasprintf("%s: sink.%s", setting->place, setting->name);
            rc = options_set(options, setting->name, setting->text, where, err);
            free(where);
        }
    }
    options_free(options);
    return rc;
}

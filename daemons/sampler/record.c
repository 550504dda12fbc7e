#include "record.h"

#include <unistd.h>

#include "base/buf.h"

void record_start(struct metrics *metrics, const struct options *options, const char *pod,
                  const char *sink, const char *net_note)
{
    struct metrics_event event = {0};
    struct buf settings = {0};
    options_json(options, &settings);
    metrics_begin(&event, "start");
    metrics_string(&event, "role", "sampler");
    if (pod)
        metrics_string(&event, "pod", pod);
    metrics_string(&event, "sink", sink);
    metrics_string(&event, "version", SLUICE_VERSION);
    metrics_int(&event, "pid", getpid());
    metrics_json(&event, "settings", settings.data);
    metrics_string(&event, "net_note", net_note);
    metrics_write(metrics, &event);
    metrics_flush(metrics);
    metrics_event_free(&event);
    buf_free(&settings);
}

void record_stop(struct metrics *metrics, const char *why)
{
    struct metrics_event event = {0};
    metrics_begin(&event, "stop");
    metrics_string(&event, "role", "sampler");
    metrics_string(&event, "why", why);
    metrics_write(metrics, &event);
    metrics_event_free(&event);
}

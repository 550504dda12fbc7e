/* sink.c: helpers around the registry. The registry itself is registry.c. */
#include "sink/sink.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct option_spec select_options[] = {
    {.name = "sink",
     .type = OPTION_STRING,
     .unit = "NAME",
     .required = true,
     .help = "where tasks become durable before the client is answered"},
    {.name = NULL},
};

const struct option_spec sink_common_options[] = {
    {.name = "sink-url",
     .type = OPTION_URL,
     .unit = "URL",
     .help = "the sink's server; with a password only by environment or @file"},
    {.name = "sink-connections",
     .type = OPTION_INT,
     .unit = "N",
     .default_text = "0",
     .min = 0,
     .max = 1024,
     .help = "connections to the sink's server; 0: as many as suit this sink best"},
    {.name = "sink-batch-max",
     .type = OPTION_INT,
     .unit = "N",
     .default_text = "0",
     .min = 0,
     .max = 1000000,
     .help = "most tasks that share a flush, statement or round trip; 0: as suits this sink best"},
    {.name = NULL},
};

const struct sink_driver *sink_find(const char *name)
{
    for (size_t i = 0; sink_drivers[i]; i++) {
        if (strcmp(sink_drivers[i]->name, name) == 0) {
            return sink_drivers[i];
        }
    }
    return NULL;
}

void sink_add_options(struct options *options)
{
    /* options keeps pointers to headings, so they live as long as the program. */
    static char headings[32][48];
    options_add(options, "Sink", select_options);
    options_add(options, "Sink", sink_common_options);
    for (size_t i = 0; sink_drivers[i]; i++) {
        assert(i < sizeof(headings) / sizeof(headings[0]));
        if (!sink_drivers[i]->options || !sink_drivers[i]->options[0].name) {
            continue;
        }
        snprintf(headings[i], sizeof(headings[i]), "Sink %s", sink_drivers[i]->name);
        options_add(options, headings[i], sink_drivers[i]->options);
    }
}

static void list_names(struct buf *out)
{
    for (size_t i = 0; sink_drivers[i]; i++) {
        buf_printf(out, "%s%s", i > 0 ? ", " : "", sink_drivers[i]->name);
    }
}

int sink_select(const struct options *options, const struct sink_driver **driver, struct err *err)
{
    *driver = NULL;
    const char *name = options_string(options, "sink");
    const struct sink_driver *found = name ? sink_find(name) : NULL;
    if (!found) {
        struct buf names = {0};
        list_names(&names);
        int rc;
        if (name) {
            rc = err_set(err, -EINVAL,
                         "--sink=%s (or SLUICE_SINK): there is no such sink; use one of: %s", name,
                         names.data);
        } else {
            rc = err_set(err, -EINVAL,
                         "no sink is named: use --sink=NAME (or SLUICE_SINK) with one of: %s",
                         names.data);
        }
        buf_free(&names);
        return rc;
    }
    if (found->options) {
        int rc = options_require(options, found->options, err);
        if (rc < 0) {
            err_prefix(err, "sink %s", found->name);
            return rc;
        }
    }
    *driver = found;
    return 0;
}

int sink_why(const struct sink_driver *driver, struct sink *sink, const char **sentence)
{
    int rc = driver->why ? driver->why(sink, sentence) : driver->ready(sink) ? 0 : -ENOTCONN;
    if (rc == 0) {
        *sentence = "";
    } else if (!driver->why) {
        *sentence = "the sink is not connected";
    }
    return rc;
}

const char *sink_outcome_name(enum sink_outcome outcome)
{
    switch (outcome) {
    case SINK_DURABLE:
        return "durable";
    case SINK_REFUSED:
        return "refused";
    case SINK_UNKNOWN:
        return "unknown";
    }
    assert(false);
    return "unknown";
}

int sink_no_setup(const struct options *options, struct err *err)
{
    (void)options;
    (void)err;
    return 0;
}

int sink_no_preflight(const struct options *options, struct err *err)
{
    (void)options;
    (void)err;
    return 0;
}

int sink_no_upkeep(struct sink *sink)
{
    (void)sink;
    return -ENOTSUP;
}

int sink_no_lane_open(struct sink *sink, unsigned lane, struct sink_lane **out, struct err *err)
{
    (void)lane;
    *out = NULL;
    return err_set(err, -ENOTSUP, "the sink %s has no drain side: nothing can be fetched from it",
                   sink->driver->name);
}

int sink_no_fetch(struct sink_lane *lane, unsigned max, int wait_ms, struct sink_batch *batch)
{
    (void)lane;
    (void)max;
    (void)wait_ms;
    *batch = (struct sink_batch){0};
    return -ENOTSUP;
}

int sink_no_keep(struct sink_lane *lane)
{
    (void)lane;
    return -ENOTSUP;
}

int sink_no_ack(struct sink_lane *lane, struct sink_batch *batch)
{
    (void)lane;
    (void)batch;
    return -ENOTSUP;
}

int sink_no_release(struct sink_lane *lane, struct sink_batch *batch)
{
    (void)lane;
    (void)batch;
    return -ENOTSUP;
}

void sink_no_lane_close(struct sink_lane *lane)
{
    (void)lane;
}

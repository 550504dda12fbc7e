/* settings.c: what api and worker can be told, apart from their sinks. */
#include "settings/settings.h"

#include "base/clock.h"

const struct option_spec api_options[] = {
    {.name = "listen",
     .type = OPTION_STRING,
     .unit = "HOST:PORT",
     .default_text = "127.0.0.1:8080",
     .help = "where POST /task is served; port 0: any free one, which the log names"},
    {.name = "admin",
     .type = OPTION_STRING,
     .unit = "HOST:PORT",
     .default_text = "127.0.0.1:8081",
     .help = "where /healthz, /readyz and /metrics are served"},
    {.name = "metrics",
     .type = OPTION_STRING,
     .unit = "FILE|DIR/",
     .help = "append events to FILE as JSON lines; in DIR/, to the first api-N.jsonl that is not "
             "there yet; without it, none are kept"},
    {.name = "allow-unsafe",
     .type = OPTION_BOOL,
     .default_text = "no",
     .help = "start even though a setting of the sink voids its promise"},
    {.name = NULL},
};

const struct option_spec limit_options[] = {
    {.name = "in-flight-max",
     .type = OPTION_INT,
     .unit = "N",
     .default_text = "10000",
     .min = 1,
     .max = 10000000,
     .help = "most tasks between header and outcome; more are answered 503"},
    {.name = "in-flight-bytes-max",
     .type = OPTION_SIZE,
     .unit = "SIZE",
     .default_text = "32MiB",
     .min = 1,
     .max = 1LL << 40,
     .help = "most bytes of their bodies; more are answered 503"},
    {.name = "backlog-max",
     .type = OPTION_INT,
     .unit = "N",
     .default_text = "1000000",
     .min = 1,
     .max = 1000000000000LL,
     .help = "most tasks stored and not yet drained; more are answered 503"},
    {.name = "backlog-bytes-max",
     .type = OPTION_SIZE,
     .unit = "SIZE",
     .default_text = "4GiB",
     .min = 1,
     .max = 1LL << 50,
     .help = "most bytes stored and not yet drained; more are answered 503"},
    {.name = "body-max",
     .type = OPTION_SIZE,
     .unit = "SIZE",
     .default_text = "128KiB",
     .min = 1,
     .max = 16 << 20,
     .help = "largest request body; a larger one is answered 413"},
    {.name = "ack-deadline",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "5s",
     .min = NS_PER_MS,
     .max = 3600 * NS_PER_S,
     .help = "a client whose task is not decided by then is answered 504"},
    {.name = "request-timeout",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "10s",
     .min = 100 * NS_PER_MS,
     .max = 3600 * NS_PER_S,
     .help = "a header, or a body, that takes longer ends its connection"},
    {.name = "idle-timeout",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "75s",
     .min = NS_PER_S,
     .max = 24 * 3600 * NS_PER_S,
     .help = "a connection without a request is closed after that"},
    {.name = "connections-max",
     .type = OPTION_INT,
     .unit = "N",
     .default_text = "4096",
     .min = 1,
     .max = 100000,
     .help = "most open connections; more wait in the kernel's queue"},
    {.name = NULL},
};

const struct option_spec worker_options[] = {
    {.name = "main-url",
     .type = OPTION_URL,
     .unit = "URL",
     .required = true,
     .help = "the main DB's Postgres; with a password only by environment or @file"},
    {.name = "lanes",
     .type = OPTION_INT,
     .unit = "N",
     .default_text = "20",
     .min = 1,
     .max = 1000,
     .help = "parallel paths, each with a connection to the main DB of its own"},
    {.name = "batch",
     .type = OPTION_INT,
     .unit = "N",
     .default_text = "200",
     .min = 1,
     .max = 10000,
     .help = "most tasks in one transaction"},
    {.name = "batch-wait",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "100ms",
     .min = NS_PER_MS,
     .max = NS_PER_S,
     .help = "how long a batch may fill after its first task came"},
    {.name = "back-off-max",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "2s",
     .min = NS_PER_MS,
     .max = 600 * NS_PER_S,
     .help = "longest pause between two attempts while the main DB or the sink fails"},
    {.name = "start-wait",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "60s",
     .max = 24 * 3600 * NS_PER_S,
     .help = "how long to try again at the start while the sink is not there yet"},
    {.name = "admin",
     .type = OPTION_STRING,
     .unit = "HOST:PORT",
     .default_text = "127.0.0.1:8082",
     .help = "where /healthz, /readyz and /metrics are served"},
    {.name = "metrics",
     .type = OPTION_STRING,
     .unit = "FILE|DIR/",
     .help =
         "append events to FILE as JSON lines; in DIR/, to the first worker-N.jsonl that is not "
         "there yet; without it, none are kept"},
    {.name = NULL},
};

static int check(const char *program, const struct option_spec *const tables[], struct err *err)
{
    char name[] = "settings";
    char *words[] = {name, NULL};
    struct options *options = options_new(program, "");
    for (; *tables; tables++)
        options_add(options, "", *tables);
    int rc = options_parse(options, 1, words, err);
    options_free(options);
    return rc < 0 ? rc : 0;
}

int settings_check_environment(struct err *err)
{
    static const struct option_spec *const api[] = {api_options, limit_options, NULL};
    static const struct option_spec *const worker[] = {worker_options, NULL};
    int rc = check("sluice-api", api, err);
    return rc < 0 ? rc : check("sluice-worker", worker, err);
}

/* sluice attend SCENARIO: the verdict on a run whose parts others start: waits for them, starts the
 * load, waits for the drain, audits, reports. */
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "attended.h"
#include "base/clock.h"
#include "base/file.h"
#include "command.h"
#include "comparison.h"
#include "http.h"
#include "keeper.h"
#include "metrics/metrics.h"
#include "verdict.h"

static const struct option_spec attend_options[] = {
    {.name = "api",
     .type = OPTION_STRING,
     .unit = "HOST:PORT",
     .default_text = "127.0.0.1:8080",
     .help = "where the api takes tasks"},
    {.name = "api-admin",
     .type = OPTION_STRING,
     .unit = "HOST:PORT",
     .default_text = "127.0.0.1:8081",
     .help = "where it says whether it is ready"},
    {.name = "worker-admin",
     .type = OPTION_STRING,
     .unit = "HOST:PORT",
     .default_text = "127.0.0.1:8082",
     .help = "where the worker says whether it is ready"},
    {.name = "ready-wait",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "60s",
     .max = 3600 * NS_PER_S,
     .help = "how long each part may take to be ready"},
    {.name = "drain-timeout",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .help =
         "longest wait for an empty sink after the load; without: a minute and twice what rows, "
         "lanes and row delay need"},
    {.name = "progress",
     .type = OPTION_DURATION,
     .unit = "DURATION",
     .default_text = "5s",
     .max = 3600 * NS_PER_S,
     .help = "a line on how far the load is, as often; 0: none"},
    {.name = "report",
     .type = OPTION_BOOL,
     .default_text = "yes",
     .help = "write the comparison's report; no: only audit the run"},
    {.name = "parts",
     .type = OPTION_STRING,
     .unit = "NAME=IMAGE,CPUS,MEMORY;...",
     .help = "the parts run in containers, of these images and limits (0: none): for the report"},
    {.name = "require-sla",
     .type = OPTION_BOOL,
     .help = "exit 1 also when a contender missed the SLA"},
    {.name = NULL},
};

static const char attend_more[] =
    "\nThe run's folder is the one to which LINK leads, made by `sluice prepare` with the same "
    "scenario.\n"
    "sluice-api, sluice-worker and sluice-loadgen are started by others, with --metrics=LINK/,\n"
    "--options-file=LINK/api.options and the like, the load generator with "
    "--start-file=LINK/load,\n"
    "which is written here once all are ready. Whoever kills a part starts it again; what is "
    "started\n"
    "goes on at the end. Every flag is also a variable: SLUICE_API_ADMIN for --api-admin.\n";

enum { REPORT_MAX = 16 * 1024 * 1024 };

/* ---- which run ---- */

/* A run in which another verdict was ended: nobody saw what happened meanwhile. */
static int say_void(const char *dir, struct err *err)
{
    char *path = xasprintf("%s/runner.jsonl", dir);
    int rc;
    if (metrics_alive(path, NULL) == 1) {
        rc = err_set(err, -EBUSY, "%s is attended by another sluice, which lives", dir);
    } else {
        rc = comparison_manifest_void(
            dir, "the verdict was ended in the middle of the run and started again", err);
    }
    if (rc == 0) {
        rc = err_set(err, -ESTALE,
                     "the run %s is void: its verdict was ended in the middle of it and started "
                     "again; make a new one (sluice prepare; docker compose down, then up)",
                     dir);
    }
    free(path);
    return rc;
}

/* The folder of a run that nobody has attended yet. -ESTALE: one that is void now. */
static int find_run(struct attended *attended, char **dir, struct err *err)
{
    struct run_request *request = &attended->request;
    struct comparison_manifest manifest = {0};
    int rc = 0;
    *dir = realpath(attended->now, NULL);
    if (!*dir) {
        rc = err_set(err, -errno,
                     "%s leads to no folder (%s): sluice prepare makes it, with the same --now",
                     attended->now, strerror(errno));
    } else {
        rc = comparison_manifest_read(*dir, &attended->scenario, &manifest, err);
    }
    if (rc == 0 && strcmp(manifest.outcome, "complete") == 0) {
        rc = err_set(
            err, -EALREADY,
            "the run %s is over already: sluice report says what came of it; sluice prepare "
            "makes another (docker compose down, then up)",
            *dir);
    } else if (rc == 0 && strcmp(manifest.outcome, "failed") == 0) {
        rc = err_set(err, -EALREADY,
                     "the run %s is over already, it has failed: %s; sluice prepare makes another "
                     "(docker compose down, then up)",
                     *dir, manifest.why);
    } else if (rc == 0 && !run_is_fresh(*dir)) {
        rc = say_void(*dir, err);
    } else if (rc == 0 && !manifest.same) {
        rc =
            err_set(err, -EINVAL,
                    "%s was prepared for another scenario, or with other --set: give both commands "
                    "the same (SLUICE_SCENARIO, SLUICE_SET)",
                    *dir);
    }
    if (rc == 0) {
        request->dir = request->base = *dir;
        request->seed = manifest.seed;
        request->repeat = manifest.repeat;
    }
    return rc;
}

/* ---- the containers, for the manifest ---- */

/* "512m", as in a compose file. */
static int read_memory(const char *text, double *bytes)
{
    static const char units[] = "bkmg";
    char *end;
    *bytes = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end) : units;
    if (end == text || !(*bytes >= 0) || !unit || (*end && end[1])) {
        return -EINVAL;
    }
    *bytes *= (double)(INT64_C(1) << (10 * (unit - units)));
    return 0;
}

static int add_part(char *text, struct buf *json, struct err *err)
{
    char *rest = text, *cpus_end = NULL;
    const char *name = strsep(&rest, "="), *image = strsep(&rest, ",");
    const char *cpus_text = strsep(&rest, ",");
    double memory_bytes, cpus = cpus_text ? strtod(cpus_text, &cpus_end) : 0;
    if (!rest || cpus_end == cpus_text || *cpus_end || !(cpus >= 0) ||
        read_memory(rest, &memory_bytes) < 0) {
        return err_set(
            err, -EINVAL,
            "--parts (or SLUICE_PARTS): the part %.40s is not NAME=IMAGE,CPUS,MEMORY, such "
            "as api=sluice,1.0,512m",
            name);
    }
    buf_puts(json, json->len > 1 ? ", " : "");
    buf_json_string(json, name, strlen(name));
    buf_puts(json, ": {\"image\": ");
    buf_json_string(json, image, strlen(image));
    buf_printf(json, ", \"cpus\": %.12g, \"memory_bytes\": %.0f}", cpus, memory_bytes);
    return 0;
}

/* json stays empty when none are named. */
static int read_parts(const struct options *options, struct buf *json, struct err *err)
{
    const char *text = options_string(options, "parts");
    char *copy = xstrdup(text ? text : ""), *rest = copy;
    int rc = 0;
    for (char *one; rc == 0 && (one = strsep(&rest, ";"));) {
        one += strspn(one, " \t\n");
        if (*one) {
            buf_puts(json, json->len == 0 ? "{" : "");
            rc = add_part(one, json, err);
        }
    }
    if (json->len > 0) {
        buf_putc(json, '}');
    }
    free(copy);
    return rc;
}

/* ---- all of it ---- */

/* The table that the report begins with: many read no more than this log. */
static void print_table(const char *comparison)
{
    static const char heading[] = "## Verdict\n";
    char *path = xasprintf("%s/compare.md", comparison);
    struct buf text = {0};
    const char *begin = NULL;
    if (file_read(path, REPORT_MAX, &text, NULL) == 0 && text.len > 0) {
        begin = strstr(text.data, heading);
    }
    if (begin) {
        begin += sizeof(heading) - 1;
        const char *end = strstr(begin, "\n## ");
        printf("%.*s\n", end ? (int)(end - begin) : (int)strlen(begin), begin);
    }
    buf_free(&text);
    free(path);
}

/* Into the folder above the sink's. */
static void report(const struct options *options, const char *run_dir, int *code)
{
    char *copy = xstrdup(run_dir);
    const char *comparison = dirname(dirname(copy));
    verdict_report(comparison, options_bool(options, "require-sla"), code);
    print_table(comparison);
    char *charts = xasprintf("%s/charts", comparison);
    (void)comparison_share(charts, NULL); /* as the folders that sluice prepare makes */
    free(charts);
    free(copy);
}

static int attend(const struct options *options, struct attended *attended, const char *dir)
{
    struct err err = {0};
    struct run_request *request = &attended->request;
    const struct run_places places = {.api = options_string(options, "api"),
                                      .api_admin = options_string(options, "api-admin"),
                                      .worker_admin = options_string(options, "worker-admin"),
                                      .ready_wait_ns = options_duration_ns(options, "ready-wait"),
                                      .progress_ns = options_duration_ns(options, "progress")};
    int code = EXIT_OK;
    request->places = &places;
    request->drain_timeout_ns = options_is_set(options, "drain-timeout")
                                    ? options_duration_ns(options, "drain-timeout")
                                    : scenario_drain_timeout_ns(&attended->scenario);
    printf("%s: %s, %.0f s of load; results in %s\n", request->label, attended->scenario.name,
           (double)scenario_load_ns(&attended->scenario) / 1e9, dir);
    switch (run_attend(request, &err)) {
    case RUN_COMPLETE:
        verdict_audit(dir, request->label, &code);
        break;
    case RUN_INTERRUPTED:
        return 128 + keeper_interrupted();
    case RUN_FAILED:
        fflush(stdout);
        fprintf(stderr, "sluice: %s: %s\n", request->label, err.text);
        code = EXIT_UNUSABLE;
        break;
    }
    if (options_bool(options, "report")) {
        report(options, dir, &code);
        printf("%s: over; the parts that others started go on until they end them (Ctrl-C, docker "
               "compose down)\n",
               request->label);
    }
    return code;
}

static int find_and_attend(const struct options *options, struct attended *attended)
{
    struct err err = {0};
    struct buf why = {0};
    char *dir = NULL;
    int code = attended_why_read(attended, &why);
    if (code != 0) {
        fprintf(stderr, "sluice: sluice prepare could not do its part: %s\n", why.data);
        buf_free(&why);
        return code;
    }
    int rc = find_run(attended, &dir, &err);
    if (rc == 0) {
        keeper_enter();
        code = attend(options, attended, dir);
    } else {
        code = command_fail(rc == -EINVAL ? EXIT_MISTAKE : EXIT_UNUSABLE, err.text);
        if (rc == -ESTALE && options_bool(options, "report")) {
            report(options, dir, &code);
        }
    }
    free(dir);
    return code;
}

static int check_addresses(const struct options *options, struct err *err)
{
    static const char *const names[][2] = {{"api", "SLUICE_API"},
                                           {"api-admin", "SLUICE_API_ADMIN"},
                                           {"worker-admin", "SLUICE_WORKER_ADMIN"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        int rc = http_address_check(options_string(options, names[i][0]), err);
        if (rc < 0) {
            return err_prefix(err, "--%s (or %s)", names[i][0], names[i][1]);
        }
    }
    return 0;
}

static int attend_main(int argc, char *argv[])
{
    struct options *options =
        options_new("sluice attend", "the verdict on a run whose parts others start");
    options_add(options, "Attending", attend_options);
    attended_add_options(options);
    struct attended attended = {0};
    struct buf parts = {0};
    struct err err = {0};
    int code;
    if (command_start(options, argc, argv, "SCENARIO --sink NAME [--now LINK] [--api HOST:PORT]...",
                      attend_more, &code)) {
        int rc = check_addresses(options, &err);
        if (rc == 0) {
            rc = read_parts(options, &parts, &err);
            attended.request.parts_json = parts.len > 0 ? parts.data : NULL;
        }
        if (rc == 0) {
            rc = attended_read(&attended, options, &err);
        }
        code = rc < 0 ? command_fail(EXIT_MISTAKE, err.text) : find_and_attend(options, &attended);
    }
    attended_free(&attended);
    buf_free(&parts);
    options_free(options);
    return code;
}

const struct command command_attend = {
    .name = "attend",
    .summary = "audit and report a run whose parts others start",
    .run = attend_main,
};

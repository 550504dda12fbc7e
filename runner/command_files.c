/* sluice audit, report, export, trace: what can be said again from a run's files, at any time. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "command.h"
#include "reports/report.h"

static const struct option_spec place_options[] = {
    {.name = "runs",
     .type = OPTION_STRING,
     .unit = "DIR",
     .default_text = "runs",
     .help = "where comparisons are kept: names that are no path of their own are looked up there"},
    {.name = NULL},
};

static const struct option_spec report_options[] = {
    {.name = "require-sla",
     .type = OPTION_BOOL,
     .help = "exit 1 also when a contender missed the SLA"},
    {.name = "gate",
     .type = OPTION_BOOL,
     .help = "with A and B: exit 1 when a contender is worse in B beyond noise, 3 when that can't "
             "be judged (docs/method.md, \"A against B\")"},
    {.name = NULL},
};

/* The folder that a word means: a path, or a name below --runs. NULL: neither; the error is said.
 */
static char *find_folder(const struct options *options, const char *word)
{
    char *path = realpath(word, NULL);
    if (!path) {
        char *below = xasprintf("%s/%s", options_string(options, "runs"), word);
        path = realpath(below, NULL);
        free(below);
    }
    if (!path) {
        fprintf(stderr, "sluice: %s: there is no such folder, here or in %s\n", word,
                options_string(options, "runs"));
    }
    return path;
}

/* The folder of one run. NULL: the error has been said, and *code is its exit code. */
static char *find_run(const struct options *options, const char *word, int *code)
{
    char *path = find_folder(options, word);
    *code = EXIT_MISTAKE;
    if (!path) {
        return NULL;
    }
    char *manifest = xasprintf("%s/manifest.json", path);
    if (!file_exists(manifest)) {
        fprintf(stderr,
                "sluice: %s holds no manifest.json: expected the folder of one run, such as "
                "runs/quick-20260131-120000/wal/1\n",
                path);
        *code = EXIT_UNUSABLE;
        free(path);
        path = NULL;
    }
    free(manifest);
    return path;
}

static int audit_code(enum audit_verdict verdict)
{
    switch (verdict) {
    case AUDIT_PASS:
    case AUDIT_EXCUSED:
        return EXIT_OK;
    case AUDIT_FAIL:
        return EXIT_BAD_RUN;
    case AUDIT_VOID:
        break;
    }
    return EXIT_UNUSABLE;
}

static int audit_main(int argc, char *argv[])
{
    struct options *options =
        options_new("sluice audit", "every acknowledged task against what the main database held");
    options_add(options, "Settings", place_options);
    int code;
    if (command_start(options, argc, argv, "RUN", NULL, &code)) {
        size_t count;
        const char *const *args = options_args(options, &count);
        if (count != 1) {
            code = command_fail(EXIT_MISTAKE, "audit takes the folder of one run");
        } else {
            char *run_dir = find_run(options, args[0], &code);
            if (run_dir) {
                struct audit audit = {0};
                struct err err = {0};
                code = audit_code(audit_run(run_dir, &audit, &err));
                audit_print(&audit, stdout);
                if (err.code < 0) {
                    command_fail(code, err.text);
                }
                audit_free(&audit);
            }
            free(run_dir);
        }
    }
    options_free(options);
    return code;
}

static int make_report(const struct options *options, const char *dir)
{
    struct report_result result = {0};
    struct err err = {0};
    int code = EXIT_OK;
    if (report_comparison(dir, &result, &err) < 0) {
        code = command_fail(EXIT_UNUSABLE, err.text);
    } else {
        printf("%s%s/compare.md\n", result.summary.data ? result.summary.data : "", dir);
        if (result.failed > 0 || (result.sla_missed > 0 && options_bool(options, "require-sla"))) {
            code = EXIT_BAD_RUN;
        } else if (result.voided > 0) {
            code = command_fail(EXIT_UNUSABLE, "a contender's run proves nothing about losses (its "
                                               "audit is void); the report says which and why");
        }
    }
    report_result_free(&result);
    return code;
}

/* What --gate says of it, in one sentence; the exit code. */
static int gate_code(const struct report_against *result)
{
    if (!result->fair) {
        fprintf(stderr,
                "sluice: A and B did not do the same work (scenario: %s), so neither is worse: "
                "expected comparisons of one load\n",
                result->unfair.data);
        return EXIT_UNUSABLE;
    }
    if (result->worse_count > 0) {
        fprintf(stderr, "sluice: B is worse than A beyond noise: %s\n", result->worse.data);
        return EXIT_BAD_RUN;
    }
    if (result->judged == 0 || result->unjudged > 0) {
        fprintf(stderr,
                "sluice: %u of A's contenders can't be judged, since B lacks them or no run "
                "counts: expected runs that count of each on both sides\n",
                result->unjudged);
        return EXIT_UNUSABLE;
    }
    return EXIT_OK;
}

static int set_side_by_side(const struct options *options, const char *dir_a, const char *dir_b)
{
    struct report_against result = {0};
    struct err err = {0};
    int code = EXIT_OK;
    if (report_against(dir_a, dir_b, &result, &err) < 0) {
        code = command_fail(EXIT_UNUSABLE, err.text);
    } else {
        fputs(result.text.data, stdout);
        fflush(stdout);
        if (options_bool(options, "gate")) {
            code = gate_code(&result);
        }
    }
    report_against_free(&result);
    return code;
}

static int report_two(const struct options *options, const char *const *args)
{
    char *dir_a = find_folder(options, args[0]);
    char *dir_b = dir_a ? find_folder(options, args[1]) : NULL;
    int code = dir_b ? set_side_by_side(options, dir_a, dir_b) : EXIT_MISTAKE;
    free(dir_a);
    free(dir_b);
    return code;
}

static int report_main(int argc, char *argv[])
{
    struct options *options = options_new(
        "sluice report",
        "writes compare.md, compare.html, compare.json and charts of a comparison again; of two "
        "(A, B: before, after) prints a Markdown text that sets them side by side");
    options_add(options, "Settings", place_options);
    options_add(options, "Settings", report_options);
    int code;
    if (command_start(options, argc, argv, "COMPARISON | A B [--gate]", NULL, &code)) {
        size_t count;
        const char *const *args = options_args(options, &count);
        if (count == 2 && !options_is_set(options, "require-sla")) {
            code = report_two(options, args);
        } else if (count == 2) {
            code = command_fail(EXIT_MISTAKE, "--require-sla is for a report of one comparison; "
                                              "of two, --gate fails when the SLA is met no more");
        } else if (count != 1) {
            code = command_fail(EXIT_MISTAKE, "report takes the folder of one comparison, or two");
        } else if (options_bool(options, "gate")) {
            code = command_fail(EXIT_MISTAKE, "--gate needs two comparisons: report A B --gate");
        } else {
            char *dir = find_folder(options, args[0]);
            code = dir ? make_report(options, dir) : EXIT_MISTAKE;
            free(dir);
        }
    }
    options_free(options);
    return code;
}

static int trace_main(int argc, char *argv[])
{
    struct options *options =
        options_new("sluice trace", "one task's life, from all files of a run, in order of time");
    options_add(options, "Settings", place_options);
    int code;
    if (command_start(options, argc, argv, "RUN ID", NULL, &code)) {
        size_t count;
        const char *const *args = options_args(options, &count);
        if (count != 2) {
            code = command_fail(EXIT_MISTAKE, "trace takes the folder of one run and a task's id");
        } else {
            char *run_dir = find_run(options, args[0], &code);
            struct err err = {0};
            if (run_dir) {
                int rc = trace_task(run_dir, args[1], stdout, &err);
                code = rc == 0         ? EXIT_OK
                       : rc == -EINVAL ? command_fail(EXIT_MISTAKE, err.text)
                                       : command_fail(EXIT_UNUSABLE, err.text);
            }
            free(run_dir);
        }
    }
    options_free(options);
    return code;
}

static const struct option_spec export_options[] = {
    {.name = "csv",
     .type = OPTION_BOOL,
     .help = "as CSV, a line a task (the only format there is); columns: docs/metrics.md"},
    {.name = NULL},
};

static int export_main(int argc, char *argv[])
{
    struct options *options =
        options_new("sluice export", "a run's tasks for other programs, to standard output");
    options_add(options, "Settings", place_options);
    options_add(options, "Settings", export_options);
    int code;
    if (command_start(options, argc, argv, "RUN --csv", NULL, &code)) {
        size_t count;
        const char *const *args = options_args(options, &count);
        if (count != 1 || !options_bool(options, "csv")) {
            code =
                command_fail(EXIT_MISTAKE, "export takes the folder of one run and --csv, as in "
                                           "sluice export runs/quick-20260131-120000/wal/1 --csv");
        } else {
            char *run_dir = find_run(options, args[0], &code);
            struct err err = {0};
            if (run_dir) {
                code = export_csv(run_dir, stdout, &err) < 0 ? command_fail(EXIT_UNUSABLE, err.text)
                                                             : EXIT_OK;
            }
            free(run_dir);
        }
    }
    options_free(options);
    return code;
}

const struct command command_audit = {
    .name = "audit",
    .summary = "audit one run again: ledger against main database",
    .run = audit_main,
};
const struct command command_report = {
    .name = "report",
    .summary = "write the report of a comparison again, or set two side by side",
    .run = report_main,
};
const struct command command_export = {
    .name = "export",
    .summary = "give a run's tasks to other programs",
    .run = export_main,
};
const struct command command_trace = {
    .name = "trace",
    .summary = "tell one task's life from a run's files",
    .run = trace_main,
};

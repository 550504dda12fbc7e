/* Oracle: fixtures/tiny, worked out by hand (its README.md), for what compare.md and compare.json
 * must say; the rules of a run that counts (tables_surroundings.c tells them to readers) for what
 * happens to a copy with one thing made wrong; and for damaged copies: never a crash, never invalid
 * JSON, and a loss that the whole files show never turns into "lost nothing". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/json.h"
#include "page_check.h"
#include "reports/against.h"
#include "reports/report.h"
#include "rundir.h"

static const char *const runs[] = {"wal/1", "wal/2", "wal/3", "direct/1"};
static const char *const files[] = {
    "manifest.json", "ledger.tsv",     "ledger-probe.tsv", "main.tsv",      "loadgen.jsonl",
    "api-1.jsonl",   "worker-1.jsonl", "worker-2.jsonl",   "sampler.jsonl", "runner.jsonl"};
enum { RUNS = 4, FILES = 10 };

/* A fresh copy of the fixture's first n runs. */
static char *copy_tiny(size_t n)
{
    char *dir = rundir_make();
    for (size_t run = 0; run < n; run++) {
        char *from = xasprintf("%s/tiny/%s", FIXTURES, runs[run]);
        char *to = xasprintf("%s/%s", dir, runs[run]);
        for (size_t i = 0; i < FILES; i++) {
            char *path = xasprintf("%s/%s", from, files[i]);
            if (file_exists(path)) {
                char *text = rundir_read(from, files[i]);
                rundir_puts(to, files[i], text);
                free(text);
            }
            free(path);
        }
        free(from);
        free(to);
    }
    return dir;
}

/* Replaces one text in one file, every time it is there (at least once). */
static void change(const char *dir, const char *name, const char *old, const char *fresh)
{
    char *text = rundir_read(dir, name);
    struct buf out = {0};
    const char *at = text;
    assert_non_null(strstr(text, old));
    for (const char *hit; (hit = strstr(at, old)); at = hit + strlen(old)) {
        buf_append(&out, at, (size_t)(hit - at));
        buf_puts(&out, fresh);
    }
    buf_puts(&out, at);
    rundir_write(dir, name, out.data, out.len);
    buf_free(&out);
    free(text);
}

/* Reports; returns compare.md, and fills result. compare.json must be valid. */
static char *report(const char *dir, struct report_result *result)
{
    struct err err = {0};
    if (report_comparison(dir, result, &err) != 0)
        fail_msg("%s", err.text);
    char *json = rundir_read(dir, "compare.json");
    if (json_check(json, strlen(json), &err) != 0)
        fail_msg("compare.json: %s", err.text);
    free(json);
    return rundir_read(dir, "compare.md");
}

static void has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is missing in:\n%.6000s", part, text);
}

static void has_not(const char *text, const char *part)
{
    const char *at = strstr(text, part);
    if (at)
        fail_msg("\"%s\" is there: ...%.200s", part, at);
}

/* The nth cell (from 0: the label) of the first row with this label, blanks stripped; a static
 * text. */
static const char *cell(const char *markdown, const char *label, int n)
{
    static char text[256];
    char *start = xasprintf("\n| %s ", label);
    const char *row = strstr(markdown, start);
    assert_non_null(row);
    free(start);
    row += 2;
    for (; n > 0; n--)
        row = strchr(row, '|') + 1;
    row += strspn(row, " ");
    size_t len = strcspn(row, "|\n");
    while (len > 0 && row[len - 1] == ' ')
        len--;
    snprintf(text, sizeof(text), "%.*s", (int)len, row);
    return text;
}

static void test_tiny(void **state)
{
    (void)state;
    char *dir = copy_tiny(RUNS);
    struct report_result result;
    char *md = report(dir, &result);
    assert_int_equal(result.runs, 4);
    assert_int_equal(result.in_verdict, 4);
    assert_int_equal(result.failed, 0);
    assert_int_equal(result.voided, 0);
    assert_int_equal(result.sla_missed, 0); /* direct is a control */
    has(result.summary.data,
        "wal: meets the SLA (api p99 20 ms, limit 50 ms), lost nothing through a 2 s "
        "worker kill, drained in 6.50 s; median of 3 runs.\n");
    has(result.summary.data, "direct (control): misses the SLA");
    /* Column 1 is wal, 2 direct: contenders come first. */
    has(md, "\n|                                 |                 wal |   direct (control) |");
    assert_string_equal(cell(md, "replicas", 1), "1");
    assert_string_equal(cell(md, "SLA: api p99 <= 50 ms", 1), "**met**");
    assert_string_equal(cell(md, "SLA: api p99 <= 50 ms", 2), "**missed**");
    assert_string_equal(cell(md, "api p99, steady, outside faults", 1), "20 ms (12 to 31 ms)");
    assert_string_equal(cell(md, "api p99, steady, outside faults", 2), "not 202");
    assert_string_equal(cell(md, "runs that count", 2), "1 of 1, indicative");
    assert_string_equal(cell(md, "acknowledged", 1), "60"); /* 3 x (19 and the probe) */
    assert_string_equal(cell(md, "acknowledged", 2), "11");
    assert_string_equal(cell(md, "redelivered", 1), "6");
    assert_string_equal(cell(md, "unknown, arrived", 1), "0");
    assert_string_equal(cell(md, "unknown, arrived", 2), "1");
    assert_string_equal(cell(md, "unknown, absent", 2), "9");
    assert_string_equal(cell(md, "lost", 1), "0");
    assert_string_equal(cell(md, "wal, warm-up", 3), "200 ms"); /* api: n, not 202, p50 */
    assert_string_equal(cell(md, "wal, steady", 4), "60 ms");   /* p90 */
    /* Of the three runs only the first tells of batches, restarts and counters. */
    assert_string_equal(cell(md, "wal, ingest", 3), "1");
    assert_string_equal(cell(md, "wal, ingest", 5), "1 (1 to 4)");
    assert_string_equal(cell(md, "wal, ingest", 6), "100 % (76.9 to 100 %)");
    has(md, "| sink | restarts | fault to first commit | restart to first commit |");
    has(md, "| wal  |        1 |                   4 s |                  2.20 s |");
    has(md, "| wal    |                 2 |         28 |   19 |            2 |      7 |   25 % |");
    assert_string_equal(cell(md, "main-db checkpoint", 1), "0 (0 to 1) forced, 3 natural");
    assert_string_equal(cell(md, "main-db checkpoint", 2), "not counted");
    assert_string_equal(cell(md, "main-db vacuum", 1), "**never**");
    assert_string_equal(cell(md, "api segment-rotation", 1), "2 natural");
    assert_string_equal(cell(md, "api segment-rotation", 2), "–");
    has(md, "\n- wal never reached: main-db vacuum\n");
    has_not(md, "Not the same in all runs");
    has(md, "worker-1.jsonl ends in half a line");
    free(md);
    char *json = rundir_read(dir, "compare.json");
    has(json, "\"schema\": \"sluice-compare/1\"");
    has(json, "\"sla.p99_ms\": {\"median\": 20, \"min\": 12, \"max\": 31, \"n\": 3}");
    has(json, "\"sla.p99_ms\": 31,");
    free(json);
    report_result_free(&result);
    rundir_remove(dir);
}

static void test_terms(void **state)
{
    (void)state;
    char *dir = copy_tiny(RUNS);
    struct report_result result;
    for (size_t i = 0; i < RUNS; i++) {
        char *run = xasprintf("%s/%s", dir, runs[i]);
        change(run, "manifest.json", "\"listen\": \"127.0.0.1:8080\"",
               i == 1 ? "\"backlog-max\": \"7\", \"ack-deadline\": \"5s\""
                      : "\"backlog-max\": \"8\", \"ack-deadline\": \"5s\"");
        free(run);
    }
    char *md = report(dir, &result);
    has(md, "The same in all runs: api ack-deadline=5s.\n");
    has(md,
        "**Not the same in all runs:** direct/1 api backlog-max=8, wal/1 api backlog-max=8, wal/2 "
        "api backlog-max=7, wal/3 api backlog-max=8.\n");
    free(md);
    report_result_free(&result);
    rundir_remove(dir);
}

/* What the old worker committed after its fault began is no recovery. */
static void test_recovery(void **state)
{
    (void)state;
    char *dir = copy_tiny(1), *run = xasprintf("%s/wal/1", dir);
    struct report_result result;
    change(run, "worker-1.jsonl", "{\"ts\": 1004.500000", "{\"ts\": 1005.500000");
    char *md = report(dir, &result);
    has(md, "| wal  |        1 |                   4 s |                  2.20 s |");
    free(md);
    report_result_free(&result);
    free(run);
    rundir_remove(dir);
}

/* A rewrite that goes on is one, and drawn as long as it does. The fixture's segments (1, 3, 2)
 * stand for "in progress", its rotations for rewrites. */
static void test_rewrite(void **state)
{
    (void)state;
    char *dir = copy_tiny(1), *run = xasprintf("%s/wal/1", dir);
    struct report_result result;
    change(run, "manifest.json", "\"sink\": \"wal\"", "\"sink\": \"valkey\"");
    change(
        run, "manifest.json", "\"servers\": [",
        "\"servers\": [{\"role\": \"sink\", \"name\": \"valkey\", \"version\": \"Valkey 8.1.1\", "
        "\"replicas\": 1, \"settings\": {}},");
    change(run, "sampler.jsonl", "\"rotations\"", "\"aof_rewrites\"");
    change(run, "sampler.jsonl", "\"segments\"", "\"aof_rewrite_in_progress\"");
    change(run, "runner.jsonl", "\"kill\", \"who\": \"worker\"", "\"kill\", \"who\": \"main-db\"");
    char *md = report(dir, &result);
    assert_string_equal(cell(md, "sink aof-rewrite", 1), "2 natural");
    assert_string_equal(cell(md, "version", 1), "Valkey 8.1.1");
    has(md, "the main DB was killed: its count of row sleeps is only about right");
    free(md);
    /* The run takes 20 s on 484 units: 1 s lies at 60 + 24.2, and 9 s are 217.8 from there; here
     * until 9 s, so 193.6. */
    char *picture = rundir_read(dir, "charts/backlog.svg");
    has(picture, "<rect class=\"w\" x=\"84.2\"");
    has(picture, "width=\"193.6\"");
    has_not(picture, "<rect class=\"w\" x=\"60.0\""); /* the checkpoint before the load */
    free(picture);
    report_result_free(&result);
    free(run);
    rundir_remove(dir);
}

/* Forced work of which no kind is known here, and lines that can't be used. */
static void test_unknown_background(void **state)
{
    (void)state;
    char *dir = copy_tiny(1), *run = xasprintf("%s/wal/1", dir);
    struct report_result result;
    change(run, "runner.jsonl", "\"checkpoint\", \"who\": \"main-db\"",
           "\"defrag\", \"who\": \""
           "disk|<b>"
           "\"");
    char *md = report(dir, &result);
    assert_string_equal(cell(md, "main-db checkpoint", 1), "4 natural");
    assert_string_equal(cell(md, "disk&#124;&lt;b&gt; defrag", 1), "1 forced, others not counted");
    free(md);
    report_result_free(&result);
    change(run, "runner.jsonl", "\"state\": \"end\"}", "\"state\": \"end\", \"gave_up\": true}");
    md = report(dir, &result);
    assert_string_equal(cell(md, "disk&#124;&lt;b&gt; defrag", 1), "not counted");
    free(md);
    report_result_free(&result);
    change(run, "runner.jsonl", "\"background\", \"what\": \"defrag\"",
           "\"background\", \"what\": \"checkpoint\"");
    change(run, "runner.jsonl", "disk|<b>", "main-db");
    md = report(dir, &result);
    assert_string_equal(cell(md, "main-db checkpoint", 1), "4 natural");
    free(md);
    report_result_free(&result);
    change(run, "runner.jsonl", "\"state\": \"begin\"}", "\"state\": \"starts\"}");
    md = report(dir, &result);
    has(md, "runner.jsonl: 2 damaged lines skipped, the first is line 2");
    has_not(md, "defrag");
    free(md);
    report_result_free(&result);
    free(run);
    rundir_remove(dir);
}

/* A part's container is watched from beside it: what both the runner and the watcher tell of is one
 * fault, what only the watcher saw came by hand, what was over before the load is none of the
 * run's.
 */
static void test_pods(void **state)
{
    (void)state;
    char *dir = copy_tiny(1), *run = xasprintf("%s/wal/1", dir);
    struct report_result result;
    rundir_puts(
        run, "sampler-sink-1.jsonl",
        "{\"ts\": 990.0, \"ev\": \"start\", \"role\": \"sampler\", \"pod\": \"sink\"}\n"
        "{\"ts\": 1000.5, \"ev\": \"os\", \"who\": \"sink\", \"cpu_pct\": 20, \"cpu_s\": 1, "
        "\"rss_bytes\": 1048576, \"rss_kind\": \"cgroup\", \"cache_bytes\": 3145728, "
        "\"read_bytes\": 0, \"write_bytes\": 4096, \"rx_bytes\": 5, \"tx_bytes\": 6}\n"
        "{\"ts\": 1001.5, \"ev\": \"os\", \"who\": \"sink\", \"cpu_pct\": 40, \"cpu_s\": 1.4, "
        "\"rss_bytes\": 1048576, \"rss_kind\": \"cgroup\", \"cache_bytes\": 5242880, "
        "\"read_bytes\": 0, \"write_bytes\": 8192, \"rx_bytes\": 5, \"tx_bytes\": 6}\n");
    static const char watched[] =
        "{\"ts\": 990.0, \"ev\": \"fault\", \"what\": \"kill\", \"who\": \"worker\"}\n"
        "{\"ts\": 991.0, \"ev\": \"recovered\", \"what\": \"kill\", \"who\": \"worker\"}\n"
        "{\"ts\": 1004.95, \"ev\": \"fault\", \"what\": \"exit\", \"who\": \"worker\"}\n"
        "{\"ts\": 1007.95, \"ev\": \"recovered\", \"what\": \"exit\", \"who\": \"worker\"}\n";
    rundir_puts(run, "sampler-worker-1.jsonl", watched);
    change(
        run, "manifest.json", "\"schema\":",
        "\"through\": \"compose\", \"parts\": {\"sink\": {\"image\": \"docker.io/x:1\", \"cpus\": "
        "1.5, \"memory_bytes\": 536870912}, \"api\": {\"image\": \"sluice:dev\"}}, \"schema\":");
    change(run, "sampler.jsonl", "\"busy_pct\": 50", "\"busy_pct\": 40");
    char *md = report(dir, &result);
    has(result.summary.data, "lost nothing through a 3 s worker kill,");
    has(md, "| wal: sink ");
    assert_string_equal(cell(md, "wal: sink", 1), "docker.io/x:1");
    assert_string_equal(cell(md, "wal: sink", 2), "1.5");
    assert_string_equal(cell(md, "wal: sink", 3), "512 MiB");
    assert_string_equal(cell(md, "wal: api", 3), "none");
    assert_string_equal(cell(md, "parts", 1), "containers, started by docker compose");
    assert_string_equal(cell(md, "wal, sink", 1), "30 %");
    assert_string_equal(cell(md, "wal, sink", 4), "1 MiB");
    assert_string_equal(cell(md, "wal, sink", 10), "4 MiB");
    has_not(md, "came from outside");
    free(md);
    report_result_free(&result);
    /* The watcher was stopped before the end, which the runner tells. */
    rundir_puts(run, "sampler-worker-1.jsonl",
                "{\"ts\": 1004.0, \"ev\": \"fault\", \"what\": \"kill\", \"who\": \"worker\"}\n");
    md = report(dir, &result);
    has_not(md, "has no end");
    has(result.summary.data, "lost nothing through a 3 s worker kill,");
    free(md);
    report_result_free(&result);
    /* The runner told only of the begin, the watcher of another fault, too. */
    change(run, "runner.jsonl", "\"ev\": \"recovered\"", "\"ev\": \"recover\"");
    char *more = xasprintf(
        "%s{\"ts\": 1009.0, \"ev\": \"fault\", \"what\": \"pause\", \"who\": \"worker\"}\n"
        "{\"ts\": 1009.5, \"ev\": \"recovered\", \"what\": \"pause\", \"who\": \"worker\"}\n",
        watched);
    rundir_puts(run, "sampler-worker-1.jsonl", more);
    free(more);
    rundir_puts(run, "sampler-api-1.jsonl",
                "{\"ts\": 1008.0, \"ev\": \"fault\", \"what\": \"pause\", \"who\": \"api\"}\n"
                "{\"ts\": 1009.0, \"ev\": \"recovered\", \"what\": \"pause\", \"who\": \"api\"}\n");
    md = report(dir, &result);
    has_not(md, "has no end");
    has(md, "3 faults, of which the scenario holds 1: the others came from outside");
    has(result.summary.data, "through 3 faults");
    free(md);
    report_result_free(&result);
    rundir_puts(run, "sampler-api-1.jsonl",
                "{\"ts\": 1008.0, \"ev\": \"fault\", \"what\": \"pause\", \"who\": \"api\"}\n");
    md = report(dir, &result);
    has(md, "the fault \"pause api\" has no end");
    free(md);
    report_result_free(&result);
    free(run);
    rundir_remove(dir);
}

/* What containers used is ours, too, though the sampler beside the runner does not see them. */
static void test_pods_are_no_other_work(void **state)
{
    (void)state;
    char *dir = copy_tiny(1), *run = xasprintf("%s/wal/1", dir);
    struct report_result result;
    change(run, "sampler.jsonl", "\"busy_pct\": 50", "\"busy_pct\": 90");
    char *md = report(dir, &result);
    has(md, "busy with other work: 27.5 %");
    has(md, " dirtied, at most |");
    has_not(md, "Written is what its control");
    free(md);
    report_result_free(&result);
    /* 60 % of a core of the two: 30 % of all. */
    rundir_puts(run, "sampler-sink-1.jsonl",
                "{\"ts\": 1001.5, \"ev\": \"os\", \"who\": \"sink\", \"cpu_pct\": 30, "
                "\"cache_bytes\": null}\n");
    md = report(dir, &result);
    has_not(md, "busy with other work: ");
    has(md, " written or dirtied |"); /* of the sink, and of the others */
    has(md, "Written is what its control");
    assert_string_equal(cell(md, "wal/1", 6), "12.5 %");
    free(md);
    report_result_free(&result);
    free(run);
    rundir_remove(dir);
}

/* One thing made wrong in wal/2: it does not count, and the report says why. */
static const struct wrong {
    const char *file, *old, *fresh, *reason;
} wrongs[] = {
    {"manifest.json", "\"complete\"", "\"interrupted\"", "the run is interrupted"},
    {"manifest.json", "\"outcome\": \"complete\",\n \"why\": \"\"",
     "\"outcome\": \"failed\", \"why\": \"disk full\"", "the run is failed: disk full"},
    {"manifest.json", "\"rps\": 2", "\"rps\": 3", "another scenario"},
    {"manifest.json", "\"version\": \"0.1.0\"", "\"version\": \"0.2.0\"", "it ran sluice 0.2.0"},
    {"manifest.json", "\"payload_bytes\": 24,\n \"sluice\"", "\"sluice\"",
     "\"payload_bytes\" is missing"},
    {"manifest.json", "\"load_end_us\": 1010000000", "\"load_end_us\": 1", "are not in order"},
    {"manifest.json", "{", "", "is damaged"},
    {"loadgen.jsonl", "\"own_p99_ms\": 0.250", "\"own_p99_ms\": 5.1",
     "late by itself in phase steady"},
    {"loadgen.jsonl", "\"on_time\": 16", "\"on_time\": 15",
     "missed its rate in phase steady by 6.2 %"},
    {"loadgen.jsonl", "\"planned\": 16, \"due\": 16, \"on_time\": 16",
     "\"planned\": 8, \"due\": 8, \"on_time\": 8", "missed its rate in phase steady by 50.0 %"},
    {"loadgen.jsonl", "\"ev\": \"lateness\", \"phase\": \"steady\"",
     "\"ev\": \"late\", \"phase\": \"steady\"",
     "no (whole) record of its own lateness in phase steady"},
    {"sampler.jsonl", "\"busy_pct\": 50", "\"busy_pct\": 90", "busy with other work: 27.5 %"},
    {"sampler.jsonl", "\"steal_pct\": 1", "\"steal_pct\": 20", "hypervisor took 10.0 %"},
    {"runner.jsonl", "{",
     "{\"ts\": 990, \"ev\": \"host_before\", \"busy_pct\": 15.2, \"steal_pct\": 0}\n{",
     "busy with other work before the run: 15.2 % of its cores (limit 15 %)"},
    {"runner.jsonl", "{",
     "{\"ts\": 1020, \"ev\": \"clock\", \"ahead_ms\": -111, \"over_s\": 20}\n{",
     "the clock was set during the run, by -111 ms in all (limit 110 ms)"},
    {"loadgen.jsonl", "\"latency_ms\": 7.000", "\"latency_ms\": 108.000",
     "the times of 1 requests differ by over 100 ms"},
    {"sampler.jsonl", "\"host\"", "\"hosts\"", "nothing tells how busy the host was"},
    {"runner.jsonl", "\"recovered\"", "\"recover\"", "has no end"},
    {"runner.jsonl", "\"fault\"", "\"faults\"", "no event tells of the scenario's fault"},
    {"manifest.json", "\"for_ms\": 2000\n", "\"for_ms\": 2001\n", "another scenario"},
    {"main.tsv", "#end", "#", "its audit is void"},
    {"ledger.tsv", "#end", "#", "its audit is void"},
    {"loadgen.jsonl", "{", "{\"ts\": 999.0, \"ev\": \"start\", \"role\": \"loadgen\"}\n{",
     "the load generator was killed before its load was over: the run is void"},
};

/* The api's second process tells of an end that no sampler saw; a third one that follows a fault
 * which was told, the worker's, or one before the load, adds none. */
static void test_unseen_ends(void **state)
{
    (void)state;
    static const char start[] = "{\"ts\": %s, \"ev\": \"start\", \"role\": \"api\"}\n";
    static const char *const times[] = {"990", "995", "1002", "1004"};
    char *dir = copy_tiny(RUNS), *run = xasprintf("%s/wal/1", dir);
    struct report_result result;
    char *md = report(dir, &result);
    has(md, "| worker kill |    wal/1 | 5 s |      2 s |                      12 |");
    has(md, "| worker kill | direct/1 | 5 s |      2 s |                       – |");
    has_not(md, "| api unseen end");
    report_result_free(&result);
    free(md);
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        char *name = xasprintf("api-%zu.jsonl", i + 5);
        const char *middle = strstr(start, "%s");
        char *text = xasprintf("%.*s%s%s", (int)(middle - start), start, times[i], middle + 2);
        rundir_puts(run, name, text);
        free(text);
        free(name);
    }
    /* The last word of the one before the last. */
    char *text = rundir_read(run, "api-7.jsonl");
    char *longer = xasprintf("%s{\"ts\": 1002.5, \"ev\": \"stop\", \"role\": \"api\"}\n", text);
    rundir_puts(run, "api-7.jsonl", longer);
    md = report(dir, &result);
    has(md, "| api unseen end |    wal/1 |   -5 s |      7 s | "); /* it reaches into the load */
    has(md, "| api unseen end |    wal/1 | 2.50 s |   1.50 s | ");
    has(result.summary.data, "through 3 faults");
    report_result_free(&result);
    free(md);
    free(longer);
    free(text);
    free(run);
    rundir_remove(dir);
}

static void test_left_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
        char *dir = copy_tiny(RUNS), *run = xasprintf("%s/wal/2", dir);
        struct report_result result;
        change(run, wrongs[i].file, wrongs[i].old, wrongs[i].fresh);
        char *md = report(dir, &result);
        if (result.in_verdict != 3)
            fail_msg("%s: %u runs count", wrongs[i].reason, result.in_verdict);
        has(md, "1 of 4 runs does not count");
        has(md, wrongs[i].reason);
        assert_string_equal(cell(md, "runs that count", 1), "2 of 3");
        /* wal/2 had the 31. */
        assert_string_equal(cell(md, "api p99, steady, outside faults", 1), "20 ms (12 to 20 ms)");
        free(md);
        report_result_free(&result);
        free(run);
        rundir_remove(dir);
    }
}

static void lose_one(const char *run)
{
    /* The last row before the end: the last task of the last batch. */
    char *text = rundir_read(run, "main.tsv");
    char *end = strstr(text, "#end rows=20");
    assert_non_null(end);
    char *row = end - 1;
    while (row[-1] != '\n')
        row--;
    struct buf out = {0};
    buf_append(&out, text, (size_t)(row - text));
    buf_puts(&out, "#end rows=19\n");
    rundir_write(run, "main.tsv", out.data, out.len);
    buf_free(&out);
    free(text);
}

/* A lost task is lost, also in a run that does not count. */
static void test_loss_stays(void **state)
{
    (void)state;
    char *dir = copy_tiny(RUNS), *run = xasprintf("%s/wal/2", dir);
    struct report_result result;
    lose_one(run);
    change(run, "sampler.jsonl", "\"busy_pct\": 50", "\"busy_pct\": 90");
    char *md = report(dir, &result);
    assert_int_equal(result.in_verdict, 3);
    assert_int_equal(result.failed, 1);
    assert_string_equal(cell(md, "lost", 1), "**1**");
    assert_string_equal(cell(md, "audit", 1), "fail 1 of 3, pass 2 of 3");
    has(result.summary.data, "lost 1 acknowledged tasks");
    has_not(result.summary.data, "wal: meets the SLA (api p99 20 ms, limit 50 ms), lost nothing");
    free(md);
    report_result_free(&result);
    /* One void audit: the count says that it is not the whole. */
    change(run, "main.tsv", "#end", "#");
    md = report(dir, &result);
    assert_int_equal(result.failed, 0);
    assert_int_equal(result.voided, 1);
    assert_string_equal(cell(md, "lost", 1), "0 (1 void)");
    has(result.summary.data,
        "proves nothing about losses in 1 of 3 runs (audit void), lost nothing in "
        "the others");
    free(md);
    report_result_free(&result);
    free(run);
    rundir_remove(dir);
}

/* What a sink that was not drained still holds is not shown as lost. */
static void test_not_drained(void **state)
{
    (void)state;
    char *dir = copy_tiny(RUNS), *run = xasprintf("%s/wal/2", dir);
    struct report_result result;
    char *md = report(dir, &result);
    has_not(md, "not drained (in the sink still)");
    free(md);
    report_result_free(&result);
    lose_one(run);
    change(run, "runner.jsonl", "\"backlog\": 0", "\"backlog\": 1");
    md = report(dir, &result);
    assert_int_equal(result.failed, 0);
    assert_int_equal(result.voided, 1);
    assert_string_equal(cell(md, "lost", 1), "0");
    assert_string_equal(cell(md, "not drained (in the sink still)", 1), "1");
    free(md);
    report_result_free(&result);
    free(run);
    rundir_remove(dir);
}

static void test_none_counts(void **state)
{
    (void)state;
    char *dir = copy_tiny(1), *run = xasprintf("%s/wal/1", dir);
    struct report_result result;
    change(run, "sampler.jsonl", "\"busy_pct\": 50", "\"busy_pct\": 90");
    char *md = report(dir, &result);
    assert_int_equal(result.in_verdict, 0);
    assert_int_equal(result.sla_missed, 1);
    assert_string_equal(cell(md, "SLA: api p99 <= 50 ms", 1), "no run counts");
    assert_string_equal(cell(md, "api p99, steady, outside faults", 1), "–");
    assert_string_equal(cell(md, "wal \\*, warm-up", 3), "200 ms"); /* shown, but marked */
    free(md);
    report_result_free(&result);
    free(run);
    rundir_remove(dir);
}

/* ---- foreign text ---- */

#define NASTY                                                                                      \
    "<img src=x onerror=alert(1)>|`id`[a](javascript:b)*c*\\n\\u001b[31m</title></script><svg "    \
    "onload=x>\\\"'&#60;b&#62;{\\\"a\\\": 1}"

static void check_inert(const char *md)
{
    has(md, "&lt;img src=x");
    has_not(md, "<img");
    has_not(md, "a](javascript"); /* the bracket is escaped: "a\\](" */
    has_not(md, "\x1b");
    /* Every row of a table has as many cells as its header. */
    size_t wanted = 0;
    for (const char *line = md; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        size_t pipes = 0, len = strcspn(line, "\n");
        if (line[0] != '|') {
            wanted = 0;
            continue;
        }
        for (size_t i = 0; i < len; i++)
            pipes += line[i] == '|';
        if (wanted && pipes != wanted)
            fail_msg("%zu cells instead of %zu: %.*s", pipes, wanted, (int)len, line);
        wanted = pipes;
    }
}

static void check_page(const char *dir, const char *name)
{
    char why[256], *page = rundir_read(dir, name);
    if (!page_check(page, why, sizeof(why)))
        fail_msg("%s: %s", name, why);
    free(page);
}

/* The checker itself must be able to fail. */
static void test_page_check(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "<p>a",
        "<p>a</b>",
        "<b>a</b>",
        "<p onclick=\"a\">a</p>",
        "<p class=a>a</p>",
        "<p>a > b</p>",
        "<p>&nbsp;</p>",
        "<p>a & b</p>",
        "<a href=\"javascript:b\">a</a>",
        "<a href=\"//b\">a</a>",
        "<p class=\"<\">a</p>",
        "<p>\x1b[31m</p>",
        "<script>a</title></script>",
        "<!-- a -->",
        "<p class=\"a\"\"></p>",
    };
    char why[256];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (page_check(bad[i], why, sizeof(why)))
            fail_msg("taken: %s", bad[i]);
    assert_true(page_check("<p class=\"a\">a &lt; &#35; <code>b</code></p>\n", why, sizeof(why)));
}

static size_t count(const char *text, const char *part)
{
    size_t found = 0;
    while ((text = strstr(text, part))) {
        found++;
        text += strlen(part);
    }
    return found;
}

/* The page says what compare.md says, holds all pictures, and can neither load nor send anything.
 */
static void test_page(void **state)
{
    (void)state;
    char *dir = copy_tiny(RUNS);
    struct report_result result;
    char *md = report(dir, &result), *html = rundir_read(dir, "compare.html");
    check_page(dir, "compare.html");
    assert_true(strlen(html) < 2 * 1024 * 1024);
    has(html, "content=\"default-src 'none'; script-src 'sha256-");
    has_not(html, "unsafe-");
    has_not(html, "fetch(");
    has_not(html, "XMLHttpRequest");
    has_not(html, "innerHTML");
    has_not(html, "import");
    has_not(html, "url(http");
    assert_int_equal(count(html, "<script"), 1);
    assert_int_equal(count(html, "<style"), 2);
    assert_int_equal(count(html, "<svg"), 6);
    /* Every row of every table, heading and entry of a list. */
    assert_int_equal(count(html, "<tr>"), count(md, "\n|") - count(md, "\n| -"));
    assert_int_equal(count(html, "<h2>"), count(md, "\n## "));
    assert_int_equal(count(html, "<h3>"), count(md, "\n### "));
    assert_int_equal(count(html, "<li>"), count(md, "\n- ") + count(md, "\n> - "));
    has(html, "<td>SLA: api p99 &lt;= 50 ms</td><td class=\"r\"><strong>met</strong></td>");
    has(html, "<td class=\"r\">20 ms (12 to 31 ms)</td>");
    has(html, "<li><strong>wal</strong>: meets the SLA (api p99 20 ms, limit 50 ms)");
    *strstr(html, "<script") = '\0'; /* what is left is text */
    has_not(html, "**");
    has_not(html, "\\");
    free(html);
    free(md);
    report_result_free(&result);
    rundir_remove(dir);
}

static void test_inert(void **state)
{
    (void)state;
    char *dir = copy_tiny(RUNS), *run = xasprintf("%s/wal/1", dir);
    struct report_result result;
    static const char *const manifest_texts[] = {
        "\"wal\"",
        "\"tiny\"",
        "\"steady\"",
        "\"PostgreSQL\"",
        "\"15.1\"",
        "\"Debian 12\"",
        "\"paced\"",
        "\"abc1234\"",
        "\"survives a crash of the process and of the OS, not of the disk\""};
    for (size_t i = 0; i < sizeof(manifest_texts) / sizeof(manifest_texts[0]); i++)
        change(run, "manifest.json", manifest_texts[i], "\"" NASTY "\"");
    change(run, "manifest.json", "\"unsafe\": []", "\"unsafe\": [\"" NASTY "\"]");
    change(run, "manifest.json", "\"fsync\": \"on\"", "\"" NASTY "\": \"" NASTY "\"");
    change(run, "sampler.jsonl", "\"who\": \"api\"", "\"who\": \"" NASTY "\"");
    change(run, "sampler.jsonl", "\"segments\"", "\"" NASTY "\"");
    change(run, "runner.jsonl", "\"worker\"", "\"" NASTY "\"");
    change(run, "loadgen.jsonl", "\"steady\"", "\"" NASTY "\"");
    change(run, "ledger.tsv", "\tsteady",
           "\t<img src=x onerror=alert(1)>|`id`[a](javascript:b)*c*");
    /* Leave only this run, so that its texts are the reference's. */
    for (size_t i = 1; i < RUNS; i++) {
        char *other = xasprintf("%s/%s", dir, runs[i]);
        assert_int_equal(file_remove_tree(other, NULL), 0);
        free(other);
    }
    char *md = report(dir, &result);
    check_inert(md);
    has_not(result.summary.data, "\x1b");
    check_page(dir, "compare.html");
    char *html = rundir_read(dir, "compare.html");
    assert_int_equal(count(html, "<script"), 1);
    has(html, "&lt;img src=x onerror=alert(1)&gt;|`id`[a](javascript:b)*c*");
    free(html);
    check_page(dir, "charts/backlog.svg");
    check_page(dir, "charts/latency.svg");
    check_page(dir, "charts/cpu.svg");
    free(md);
    report_result_free(&result);
    free(run);
    rundir_remove(dir);
}

/* ---- charts ---- */

static void test_charts(void **state)
{
    (void)state;
    static const char *const names[] = {"backlog",   "latency", "percentiles",
                                        "committed", "cpu",     "memory"};
    char *dir = copy_tiny(RUNS);
    struct report_result result;
    rundir_puts(dir, "charts/backlog.gp", "an old script");
    char *md = report(dir, &result);
    assert_int_equal(result.charts, 6);
    for (size_t i = 0; i < 6; i++) {
        char *file = xasprintf("charts/%s.svg", names[i]);
        char *link = xasprintf("![%s](%s)", names[i], file), *picture = rundir_read(dir, file);
        has(md, link);
        has(picture, "prefers-color-scheme:dark");
        has(picture, "class=\"l c0\""); /* wal's */
        has(picture, "</svg>\n");
        check_page(dir, file);
        free(picture);
        free(link);
        free(file);
    }
    char *old = xasprintf("%s/charts/backlog.gp", dir);
    assert_false(file_exists(old));
    free(old);
    free(md);
    report_result_free(&result);
    /* A picture that has nothing to show any more is gone: it would show other figures. */
    for (size_t i = 0; i < RUNS; i++) {
        char *run = xasprintf("%s/%s", dir, runs[i]);
        change(run, "manifest.json", "\"load_end_us\": 1010000000", "\"load_end_us\": 1");
        free(run);
    }
    md = report(dir, &result);
    assert_int_equal(result.charts, 0);
    has(md, "Charts are missing: no run has figures to draw");
    has_not(md, "![");
    char *path = xasprintf("%s/charts/backlog.svg", dir);
    assert_false(file_exists(path));
    free(path);
    free(md);
    report_result_free(&result);
    rundir_remove(dir);
}

/* ---- bad input ---- */

static void test_nothing_there(void **state)
{
    (void)state;
    char *dir = rundir_make();
    struct report_result result;
    struct err err = {0};
    assert_int_equal(report_comparison(dir, &result, &err), -ENOENT);
    has(err.text, "holds no run");
    report_result_free(&result);
    assert_int_equal(report_comparison("/nonexistent/x", &result, &err), -ENOENT);
    has(err.text, "/nonexistent/x");
    report_result_free(&result);
    /* Folders that only look like runs are somebody else's: nothing is written there. */
    rundir_puts(dir, "wal/1/x", "");
    rundir_puts(dir, "charts/backlog.svg", "an old picture");
    assert_int_equal(report_comparison(dir, &result, &err), -ENOENT);
    has(err.text, "holds no run");
    report_result_free(&result);
    char *untouched = xasprintf("%s/charts/backlog.svg", dir);
    char *written = xasprintf("%s/wal/1/audit.json", dir);
    assert_true(file_exists(untouched));
    assert_false(file_exists(written));
    free(untouched);
    free(written);
    /* An empty run folder beside a manifest: found, left out, every missing file named. */
    rundir_puts(dir, "wal/2/manifest.json", "{");
    char *md = report(dir, &result);
    char *picture = xasprintf("%s/charts/backlog.svg", dir);
    assert_false(file_exists(picture));
    free(picture);
    assert_int_equal(result.runs, 2);
    assert_int_equal(result.voided, 2);
    has(md, "manifest.json");
    has(md, "ledger.tsv");
    has(md, "worker-\\*.jsonl is missing");
    free(md);
    report_result_free(&result);
    rundir_remove(dir);
}

static uint64_t next_random(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

/* Cuts, flips, zeroes, doubles or removes a piece of bytes[0..*len-1], which has room for twice
 * that. */
static void damage(char *bytes, size_t *len, uint64_t *seed)
{
    size_t at = (size_t)(next_random(seed) % *len), rest = *len - at;
    size_t piece = (size_t)(next_random(seed) % (rest < 64 ? rest : 64)) + 1;
    switch (next_random(seed) % 5) {
    case 0:
        *len = at;
        break;
    case 1:
        bytes[at] = (char)next_random(seed);
        break;
    case 2:
        memset(bytes + at, 0, piece);
        break;
    case 3:
        memmove(bytes + at + piece, bytes + at, rest);
        *len += piece;
        break;
    default:
        memmove(bytes + at, bytes + at + piece, rest - piece);
        *len -= piece;
    }
}

static void test_damage(void **state)
{
    (void)state;
    uint64_t seed = (uint64_t)time(NULL);
    const char *given = getenv("SLUICE_TEST_SEED");
    if (given)
        seed = strtoull(given, NULL, 10);
    char *dir = copy_tiny(1), *run = xasprintf("%s/wal/1", dir);
    lose_one(run);
    for (size_t i = 0; i < FILES; i++) {
        char *whole = rundir_read(run, files[i]);
        size_t whole_len = strlen(whole);
        char *bytes = xmalloc(2 * whole_len + 256);
        for (int round = 0; round < 60; round++) {
            uint64_t round_seed = seed;
            size_t len = whole_len;
            memcpy(bytes, whole, len);
            damage(bytes, &len, &seed);
            rundir_write(run, files[i], bytes, len);
            struct report_result result;
            free(report(dir, &result));
            if (result.failed + result.voided == 0 && !strstr(result.summary.data, "excused"))
                fail_msg("%s, SLUICE_TEST_SEED=%llu: the loss is gone: %s", files[i],
                         (unsigned long long)round_seed, result.summary.data);
            report_result_free(&result);
        }
        rundir_write(run, files[i], whole, whole_len);
        free(bytes);
        free(whole);
    }
    free(run);
    rundir_remove(dir);
}

/* ---- trace ---- */

static char *trace(const char *run, const char *id, int wanted)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    struct err err = {0};
    assert_int_equal(trace_task(run, id, out, &err), wanted);
    fclose(out);
    assert_non_null(text);
    if (wanted < 0)
        assert_true(err.text[0] != '\0');
    return text;
}

static void test_trace(void **state)
{
    (void)state;
    char *dir = copy_tiny(1), *run = xasprintf("%s/wal/1", dir);
    /* The 6th task (n = 5): due at 2.75 s, answered after 3 ms, committed at 4.5 s, and again at 9
     * s, after a fault at 5 s that ended at 7 s. */
    change(run, "runner.jsonl", "\"who\": \"worker\"", "\"who\": \"worker\\u001b[31m\"");
    char *text = trace(run, rundir_id_text(5), 0);
    static const char *const in_order[] = {
        "+0.000 ms  ledger.tsv: due, phase steady",
        "+0.250 ms  ledger.tsv: sent",
        "+3.000 ms  api-1.jsonl: durable",
        "ledger.tsv: settled as durable, code 202",
        "+1750.000 ms  worker-1.jsonl: committed by lane 0, one of 3 rows",
        "6000.000 ms after it was accepted",
        "+2250.000 ms  runner.jsonl: fault kill worker?[31m",
        "+4250.000 ms  runner.jsonl: recovered kill worker?[31m",
        "+6250.000 ms  worker-2.jsonl: committed",
        "main.tsv: in main, body of 82 bytes"};
    const char *at = text;
    for (size_t i = 0; i < sizeof(in_order) / sizeof(in_order[0]); i++) {
        at = strstr(at, in_order[i]);
        if (!at) {
            fail_msg("\"%s\" is missing, or not in its place:\n%s", in_order[i], text);
            break; /* for analyzers, which do not know that fail_msg never returns */
        }
    }
    has_not(text, "\x1b");
    free(text);
    /* A first task's life ends before the fault. */
    text = trace(run, rundir_id_text(0), 0);
    has_not(text, "fault");
    free(text);
    text = trace(run, rundir_id_text(399), -ENOENT);
    has(text, "main.tsv: not there");
    free(text);
    free(trace(run, "not-a-uuid", -EINVAL));
    free(trace("/nonexistent/run", rundir_id_text(5), -ENOENT));
    change(run, "main.tsv", "#end", "#");
    text = trace(run, rundir_id_text(5), 0);
    has(text, "could not be read, so something may be missing above");
    free(text);
    free(run);
    rundir_remove(dir);
}

/* What does not make a run void, but is said. */
static void test_conditions(void **state)
{
    (void)state;
    char *dir = copy_tiny(1), *run = xasprintf("%s/wal/1", dir);
    struct report_result result;
    static const char *const events[] = {
        "{\"ts\": 990, \"ev\": \"flush_probe\", \"state\": \"begin\", \"n\": 9, \"p50_us\": 19, "
        "\"p99_us\": 90, \"max_us\": 90}\n"
        "{\"ts\": 1019, \"ev\": \"flush_probe\", \"state\": \"end\", \"n\": 9, \"p50_us\": 39, "
        "\"p99_us\": 90, \"max_us\": 90}\n"
        "{\"ts\": 1020, \"ev\": \"clock\", \"ahead_ms\": 109, \"over_s\": 20}\n"
        "{\"ts\": 990, \"ev\": \"host_before\", \"busy_pct\": 15, \"steal_pct\": 0}\n",
        "{\"ts\": 990, \"ev\": \"flush_probe\", \"state\": \"begin\", \"n\": 9, \"p50_us\": 20, "
        "\"p99_us\": 90, \"max_us\": 90}\n"};
    char *whole = rundir_read(run, "runner.jsonl");
    for (int i = 0; i < 2; i++) {
        char *text = xasprintf("%s%s", events[i], whole);
        rundir_puts(run, "runner.jsonl", text);
        free(text);
        char *md = report(dir, &result);
        assert_int_equal(result.in_verdict, 1);
        assert_string_equal(cell(md, "wal/1", 1), "yes");
        if (i == 0) {
            has(md, "WARNING: a flush took 19 us (median), less than a disk can do it in");
            has(md, "a flush took 0.02 ms before the run and 0.04 ms after it");
            has(md, "| wal/1 |         0.0190 ms | 0.0900 ms |  0.0390 ms | 0.0900 ms |");
        } else {
            has_not(md, "less than a disk can");
            has_not(md, "the disk changed meanwhile");
        }
        free(md);
        report_result_free(&result);
    }
    free(whole);
    free(run);
    rundir_remove(dir);
}

/* The sinks of a copy of tiny: wal/1 to 3 as they are, and as another sink with other latencies. */
static void copy_as(const char *dir, const char *from, const char *to, const char *sink)
{
    char *source = xasprintf("%s/%s", dir, from), *target = xasprintf("%s/%s", dir, to);
    char *name = xasprintf("\"sink\": \"%s\"", sink);
    for (size_t i = 0; i < FILES; i++) {
        char *path = xasprintf("%s/%s", source, files[i]);
        if (file_exists(path)) {
            char *text = rundir_read(source, files[i]);
            rundir_puts(target, files[i], text);
            free(text);
        }
        free(path);
    }
    change(target, "manifest.json", "\"sink\": \"wal\"", name);
    free(name);
    free(source);
    free(target);
}

static void test_order(void **state)
{
    (void)state;
    char *dir = copy_tiny(3);
    struct report_result result;
    /* wal 12, 20, 31; valkey 31 and 31: they touch, and tie; rabbit 12 and 12. */
    copy_as(dir, "wal/2", "valkey/1", "valkey");
    copy_as(dir, "wal/2", "valkey/2", "valkey");
    copy_as(dir, "wal/1", "rabbit/1", "rabbit");
    copy_as(dir, "wal/1", "rabbit/2", "rabbit");
    char *md = report(dir, &result);
    has(md, "| rabbit 12 ms = wal 20 ms &lt; valkey 31 ms");
    has_not(md, "(indicative)");
    free(md);
    report_result_free(&result);
    char *gone = xasprintf("%s/rabbit", dir);
    assert_int_equal(file_remove_tree(gone, NULL), 0);
    free(gone);
    md = report(dir, &result);
    has(md, "| wal 20 ms = valkey 31 ms");
    has(result.summary.data, "No clear winner by api p99: wal (20 ms) and valkey (31 ms) tie");
    free(md);
    report_result_free(&result);
    gone = xasprintf("%s/valkey/2", dir);
    assert_int_equal(file_remove_tree(gone, NULL), 0);
    free(gone);
    md = report(dir, &result);
    has(md, "an order with one is indicative");
    free(md);
    report_result_free(&result);
    rundir_remove(dir);
}

static void judge(double a_min, double a, double a_max, size_t a_n, double b_min, double b,
                  double b_max, size_t b_n, bool highest, enum against wanted)
{
    struct spread before = {a, a_min, a_max, a_n}, after = {b, b_min, b_max, b_n};
    assert_int_equal(against_judge(before, after, highest), wanted);
}

static void test_judge(void **state)
{
    (void)state;
    judge(9, 10, 11, 3, 11.5, 12, 13, 3, false, AGAINST_WORSE);
    judge(9, 10, 11, 3, 11.5, 12, 13, 3, true, AGAINST_BETTER);
    judge(11.5, 12, 13, 2, 9, 10, 11, 3, false, AGAINST_BETTER);
    judge(9, 10, 11, 3, 11, 12, 13, 3, false, AGAINST_TIE);          /* they touch */
    judge(10, 10, 10, 3, 10.4, 10.5, 10.6, 3, false, AGAINST_TIE);   /* 5 % */
    judge(10, 10, 10, 3, 10.4, 10.6, 10.6, 3, false, AGAINST_WORSE); /* 6 % */
    judge(10, 10, 10, 1, 19, 19, 20, 3, false, AGAINST_TIE);         /* one run: a factor of 2 */
    judge(10, 10, 10, 1, 21, 21, 21, 1, false, AGAINST_WORSE);
    judge(10, 10, 10, 1, 4.9, 4.9, 4.9, 1, false, AGAINST_BETTER);
    judge(10, 10, 10, 1, 4.9, 4.9, 4.9, 1, true, AGAINST_WORSE);
    judge(10, 10, 10, 1, INFINITY, INFINITY, INFINITY, 1, false, AGAINST_WORSE);
    judge(INFINITY, INFINITY, INFINITY, 1, INFINITY, INFINITY, INFINITY, 1, false, AGAINST_TIE);
    judge(9, 10, 11, 2, INFINITY, INFINITY, INFINITY, 2, false, AGAINST_WORSE);
    judge(INFINITY, INFINITY, INFINITY, 2, INFINITY, INFINITY, INFINITY, 2, false, AGAINST_TIE);
    judge(INFINITY, INFINITY, INFINITY, 2, 9, 10, 11, 2, false, AGAINST_BETTER);
    judge(0, 0, 0, 2, 0, 0, 0, 2, false, AGAINST_TIE);
    judge(NAN, NAN, NAN, 0, 1, 1, 1, 1, false, AGAINST_UNKNOWN);
}

static char *against(const char *a, const char *b, struct report_against *result)
{
    struct err err = {0};
    if (report_against(a, b, result, &err) != 0)
        fail_msg("%s", err.text);
    return result->text.data;
}

static void change_all(const char *dir, const char *file, const char *old, const char *fresh)
{
    for (int i = 1; i <= 3; i++) {
        char *run = xasprintf("%s/wal/%d", dir, i);
        change(run, file, old, fresh);
        free(run);
    }
}

static void test_against(void **state)
{
    (void)state;
    char *a = copy_tiny(RUNS), *b = copy_tiny(RUNS);
    struct report_against result;
    char *md = against(a, b, &result);
    assert_true(result.fair && result.worse_count == 0 && result.judged == 1 &&
                result.unjudged == 0);
    has(md, "Scenario, host, build, settings and servers are the same.");
    has(md, "| api p99, steady, outside faults | 20 ms (12 to 31 ms) | 20 ms (12 to 31 ms) | "
            "+0.0 % |           tie |");
    report_against_free(&result);
    /* B twice as slow at the median, and above A's range: 10 becomes 60. */
    change_all(b, "loadgen.jsonl", "\"latency_ms\": 10.000", "\"latency_ms\": 48.000");
    change_all(b, "loadgen.jsonl", "\"latency_ms\": 11.000", "\"latency_ms\": 49.000");
    change_all(b, "manifest.json", "\"batch\": 6", "\"batch\": 1");
    change_all(b, "manifest.json", "\"cpu\": \"", "\"cpu\": \"<b>|");
    md = against(a, b, &result);
    assert_true(result.fair);
    has(result.worse.data, "wal: api p99, steady, outside faults");
    has(md, "|     **worse** |");
    has(md, "| scenario worker");
    has(md, "&lt;b&gt;&#124;");
    has_not(md, "<b>");
    report_against_free(&result);
    md = against(b, a, &result); /* a swapped pair is better, not worse */
    assert_int_equal(result.worse_count, 0);
    has(md, "|        better |");
    report_against_free(&result);
    /* The SLA, met before; another load; a sink that is gone. */
    change_all(b, "loadgen.jsonl", "\"latency_ms\": 49.000", "\"latency_ms\": 51.000");
    md = against(a, b, &result);
    has(result.worse.data, "wal: the SLA, met before");
    has(md, "SLA: A met, B missed.");
    report_against_free(&result);
    change_all(b, "manifest.json", "\"rps\": 2", "\"rps\": 3");
    md = against(a, b, &result);
    assert_false(result.fair);
    assert_string_equal(result.unfair.data, "load");
    has(md, "**Not the same work** (scenario: load)");
    report_against_free(&result);
    char *gone = xasprintf("%s/wal", b);
    assert_int_equal(file_remove_tree(gone, NULL), 0);
    free(gone);
    md = against(a, b, &result);
    assert_int_equal(result.unjudged, 1);
    has(md, "Left out: wal, which only A has.");
    report_against_free(&result);
    md = against(b, a, &result);
    assert_int_equal(result.unjudged, 0); /* one more is no loss */
    has(md, "Left out: wal, which only B has.");
    report_against_free(&result);
    struct err err = {0};
    assert_int_equal(report_against(a, "/nonexistent", &result, &err), -ENOENT);
    report_against_free(&result);
    rundir_remove(a);
    rundir_remove(b);
}

/* A lost task is no noise, and neither is one run that does not count. */
static void test_against_lost(void **state)
{
    (void)state;
    char *a = copy_tiny(1), *b = copy_tiny(1), *run = xasprintf("%s/wal/1", b);
    struct report_against result;
    char *table = rundir_read(run, "main.tsv"), *row = strchr(table, '\n') + 1;
    char *rest = strchr(row, '\n') + 1;
    memmove(row, rest, strlen(rest) + 1);
    char *end = strstr(table, "#end rows=20");
    assert_non_null(end);
    end[strlen("#end rows=")] = '1';
    end[strlen("#end rows=1")] = '9';
    rundir_puts(run, "main.tsv", table);
    free(table);
    char *md = against(a, b, &result);
    has(result.worse.data, "wal: audits that failed");
    has(md, "With one run on a side the noise is not known");
    report_against_free(&result);
    change(run, "manifest.json", "\"complete\"", "\"interrupted\"");
    md = against(a, b, &result);
    has(md, "Left out: no run of B counts (the run is interrupted).");
    has(result.worse.data, "wal: audits that failed");
    assert_int_equal(result.unjudged, 1);
    report_against_free(&result);
    free(run);
    rundir_remove(a);
    rundir_remove(b);
}

static void test_export(void **state)
{
    (void)state;
    char *dir = copy_tiny(1), *run = xasprintf("%s/wal/1", dir), *text = NULL;
    size_t len = 0;
    struct err err = {0};
    change(run, "ledger.tsv", "\twarm-up\n", "\t=1+\"x\",y\n");
    FILE *out = open_memstream(&text, &len);
    assert_int_equal(export_csv(run, out, &err), 0);
    fclose(out);
    int lines = 0;
    for (size_t i = 0; i < len; i++)
        lines += text[i] == '\n';
    assert_int_equal(lines, 21); /* without the runner's probe */
    has(text, "id,phase,in_fault,code,outcome,due_s,sent_s,done_s,committed_s,api_ms,service_ms,"
              "durable_ms,age_ms\n");
    /* By fixtures/README.md: the 7 ms request at 2.25 s, sent 0.25 ms late, committed at 4.5 s. */
    has(text,
        ",steady,0,202,durable,2.250000,2.250250,2.257000,4.500000,7.000,6.750,0.700,5000.000\n");
    has(text, ",steady,1,503,refused,6.250000,6.250250,6.252000,,2.000,1.750,,\n");
    has(text, ",\"'=1+\"\"x\"\",y\",0,202,");
    free(text);
    change(run, "ledger.tsv", "#end", "#");
    out = open_memstream(&text, &len);
    assert_int_equal(export_csv(run, out, &err), -EBADMSG);
    has(err.text, "ledger.tsv");
    fclose(out);
    assert_int_equal(len, 0);
    free(text);
    free(run);
    rundir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conditions),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_judge),
        cmocka_unit_test(test_against),
        cmocka_unit_test(test_against_lost),
        cmocka_unit_test(test_export),
        cmocka_unit_test(test_terms),
        cmocka_unit_test(test_rewrite),
        cmocka_unit_test(test_recovery),
        cmocka_unit_test(test_unknown_background),
        cmocka_unit_test(test_tiny),
        cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_unseen_ends),
        cmocka_unit_test(test_loss_stays),
        cmocka_unit_test(test_not_drained),
        cmocka_unit_test(test_none_counts),
        cmocka_unit_test(test_page_check),
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_inert),
        cmocka_unit_test(test_charts),
        cmocka_unit_test(test_nothing_there),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_trace),
        cmocka_unit_test(test_pods),
        cmocka_unit_test(test_pods_are_no_other_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

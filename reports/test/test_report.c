/* Oracle: fixtures/tiny, worked out by hand (its README.md), for what compare.md and compare.json
 * must say; the rules of a run that counts (tables_surroundings.c tells them to readers) for what
 * happens to a copy with one thing made wrong. Damage and foreign text: test_hostile.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "reports/report.h"
#include "rundir.h"
#include "tiny.h"

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
        char *run = xasprintf("%s/%s", dir, tiny_runs[i]);
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
        char *run = xasprintf("%s/%s", dir, tiny_runs[i]);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conditions),  cmocka_unit_test(test_order),
        cmocka_unit_test(test_terms),       cmocka_unit_test(test_rewrite),
        cmocka_unit_test(test_recovery),    cmocka_unit_test(test_unknown_background),
        cmocka_unit_test(test_tiny),        cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_unseen_ends), cmocka_unit_test(test_loss_stays),
        cmocka_unit_test(test_not_drained), cmocka_unit_test(test_none_counts),
        cmocka_unit_test(test_charts),      cmocka_unit_test(test_trace),
        cmocka_unit_test(test_pods),        cmocka_unit_test(test_pods_are_no_other_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

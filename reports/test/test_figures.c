/* Oracle: figures worked out by hand from the runs in fixtures/tiny, whose README.md tells what
 * lies in them; the working stands beside the values. A phase leak, a wrong rank, a mixed-up pair
 * of kinds or of ids and ages, or a redelivered age each changes one of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "reports/figures.h"
#include "rundir.h"

#define NOT_202 INFINITY
#define ABSENT  NAN

struct expected {
    const char *key;
    double value;
};

static void check(const char *run_name, const struct expected *expected, size_t count)
{
    struct run run;
    struct figures figures = {0};
    struct series series = {0};
    char *dir = xasprintf("%s/tiny/%s", FIXTURES, run_name);
    run_load(&run, dir, false);
    assert_int_equal(run.manifest_err.code, 0);
    assert_int_equal(run.ledger_err.code, 0);
    assert_true(run_times_ok(&run));
    figures_compute(&figures, &series, &run);
    for (size_t i = 0; i < count; i++) {
        double value = figures_get(&figures, "%s", expected[i].key), wanted = expected[i].value;
        bool same = isnan(wanted)   ? isnan(value)
                    : isinf(wanted) ? isinf(value)
                                    : fabs(value - wanted) < 1e-9 * fmax(fabs(wanted), 1);
        if (!same)
            fail_msg("%s: %s is %.12g, not %.12g", run_name, expected[i].key, value, wanted);
    }
    figures_free(&figures);
    series_free(&series);
    run_free(&run);
    free(dir);
}

#define CHECK(run, expected) check(run, expected, sizeof(expected) / sizeof((expected)[0]))

static void test_latency(void **state)
{
    (void)state;
    static const struct expected expected[] = {
        /* Steady outside the fault: 1..12. Ranks: p50 6, p99 ceil(11.88) = 12. */
        {"sla.n", 12},
        {"sla.not_202", 0},
        {"sla.p50_ms", 6},
        {"sla.p99_ms", 12},
        {"sla.met", 1},
        {"tail.api", 2},
        /* All 16 steady ones: 1..12, 30, 40, 60, the 503. p99: rank 16. */
        {"sla.through_faults_n", 16},
        {"sla.through_faults_not_202", 1},
        {"sla.through_faults_p99_ms", NOT_202},
        /* Two requests are due in each second; the second that begins at 6 holds the 503 and
           the 60. */
        {"sla.seconds", 8},
        {"sla.seconds_over", 1},
        {"sla.worst_second_p99_ms", NOT_202},
        {"sla.worst_second_at_s", 6},
        /* 100 200 300 400: p50 rank 2, p90 rank ceil(3.6) = 4. */
        {"api.warm-up.n", 4},
        {"api.warm-up.not_202", 0},
        {"api.warm-up.p50_ms", 200},
        {"api.warm-up.p90_ms", 400},
        {"api.warm-up.p99_ms", 400},
        {"api.warm-up.mean_ms", 250},
        /* p50 rank 8, p90 rank ceil(14.4) = 15. */
        {"api.steady.n", 16},
        {"api.steady.not_202", 1},
        {"api.steady.p50_ms", 8},
        {"api.steady.p90_ms", 60},
        {"api.steady.p99_ms", NOT_202},
        {"api.steady.max_ms", NOT_202},
        {"api.(in faults).n", 4},
        {"api.(in faults).p50_ms", 40},
        {"api.(all).n", 20},
        {"api.cool-down.n", ABSENT},
        {"api.probe.n", ABSENT}, /* the runner's probe is no load */
        {"service.warm-up.p50_ms", 199.75},
        {"service.steady.n", 15},
        {"service.steady.p50_ms", 7.75},
        {"service.steady.max_ms", 59.75},
        /* 0.1 .. 1.2, 3, 4, 6: p50 rank 8 of 15, p99 rank 15. */
        {"durable.warm-up.p50_ms", 60},
        {"durable.warm-up.max_ms", 80},
        {"durable.steady.n", 15},
        {"durable.steady.missing", 0},
        {"durable.steady.p50_ms", 0.8},
        {"durable.steady.p90_ms", 4},
        {"durable.steady.p99_ms", 6},
        {"tail.durable", 7.5},
        {"totals.due", 20},
        {"totals.sent", 20},
        {"totals.durable", 19},
        {"totals.refused", 1},
        {"totals.unknown", 0},
        {"totals.code_202", 19},
        {"totals.code_503", 1},
        {"totals.misplaced_in_phase", 0},
        {"totals.durable_per_s", 1.9},
    };
    CHECK("wal/1", expected);
}

static void test_flow(void **state)
{
    (void)state;
    static const struct expected expected[] = {
        /* Ages 1..4 s in warm-up, 5..19 s in steady (15): p50 rank 8, p90 rank 14. The two that
         * came again with 7.777 and 8.888 s keep 6 and 7 s. */
        {"age.warm-up.p50_ms", 2000},
        {"age.warm-up.max_ms", 4000},
        {"age.warm-up.mean_ms", 2500},
        {"age.steady.n", 15},
        {"age.steady.missing", 0},
        {"age.steady.p50_ms", 12000},
        {"age.steady.p90_ms", 18000},
        {"age.steady.max_ms", 19000},
        {"age.steady.mean_ms", 12000},
        /* 1000 x 4, 1500, 2000; rows 4 + 3 + 6 + 2 + 4 + 2. */
        {"commit.batches", 6},
        {"commit.db.mean_ms", 1250},
        {"commit.db.p50_ms", 1000},
        {"commit.db.p90_ms", 2000},
        {"commit.rows_per_batch", 3.5},
        {"commit.inserted", 19},
        {"commit.redelivered", 2},
        {"commit.dead", 0},
        /* (0+4)/2*2 + (4+5)/2*2 + (5+12)/2*4 + (12+6)/2*2 + (6+2)/2*2 + 2*4 + (2+0)/2*0.5 */
        {"backlog.samples", 8},
        {"backlog.missing", 1},
        {"backlog.peak_tasks", 12},
        {"backlog.peak_at_s", 8},
        {"backlog.peak_bytes", 1200},
        {"backlog.area_task_s", 81.5},
        {"backlog.at_load_end_tasks", 6},
        {"backlog.end_tasks", 0},
        /* The longest batch took 2 s, so the fault reaches from 3 to 7 s; seconds 2, 7, 8, 9
         * remain, with 4, 0, 4, 2 rows. By the second of commit (3.0 belongs to second 3): 0, 0,
         * 0, 4. */
        {"committed.seconds", 4},
        {"committed.rows_per_s", 2.5},
        {"committed.cv", 0.66332495807108},
        {"committed.unspread_cv", 1.7320508075688772},
        /* The last commit is 6.5 s after the load's end (the runner says 7.1); 4 + 2 rows
           meanwhile. */
        {"drain.s", 6.5},
        {"drain.rows_per_s", 6 / 6.5},
        {"drain.theory_rows_per_s", 5},
        {"drain.theory_s", 1.2},
    };
    CHECK("wal/1", expected);
}

static void test_fairness(void **state)
{
    (void)state;
    static const struct expected expected[] = {
        /* 4 + 2 + 3 + 10 x 1 events of sizes 4, 2, 3, 1: 13 batches, as sorted sizes ten 1, 2,
         * 3, 4. p50 rank ceil(6.5) = 7, p90 rank ceil(11.7) = 12. */
        {"batch.ingest.batches", 13},
        {"batch.ingest.mean", 19.0 / 13},
        {"batch.ingest.p50", 1},
        {"batch.ingest.p90", 3},
        {"batch.ingest.max", 4},
        {"batch.ingest.singles_pct", 1000.0 / 13},
        /* 2 2 3 4 4 6; the probe's single is none of the load. */
        {"batch.drain.batches", 6},
        {"batch.drain.mean", 3.5},
        {"batch.drain.p50", 3},
        {"batch.drain.p90", 6},
        {"batch.drain.max", 6},
        {"batch.drain.singles_pct", 0},
        /* Killed at 5 s, the new one starts at 6.8 s, commits at 9 s what took 1 s. */
        {"recovery.restarts", 1},
        {"recovery.fault_to_commit_s", 4},
        {"recovery.restart_to_commit_s", 2.2},
        {"recovery.in_main_db_s", 1},
        /* 1 to 29 sleeps, 1 to 20 rows, 0 to 2 refused: 28 - 19 - 2. */
        {"row_sleeps.total", 28},
        {"row_sleeps.rows", 19},
        {"row_sleeps.refused", 2},
        {"row_sleeps.wasted", 7},
        {"row_sleeps.wasted_pct", 25},
    };
    CHECK("wal/1", expected);
    static const struct expected without[] = {
        {"recovery.restarts", ABSENT}, /* no start is told */
        {"row_sleeps.total", ABSENT},
        {"batch.ingest.singles_pct", 100},
    };
    CHECK("wal/2", without);
    static const struct expected direct[] = {{"batch.drain.batches", ABSENT}};
    CHECK("direct/1", direct);
}

static void test_background(void **state)
{
    (void)state;
    static const struct expected expected[] = {
        /* Steady is 2 to 10 s. Checkpoints 4, 5: before the load; 6: between 1 and 2.4 s, the
         * middle lies in the warm-up; 7 at 4 s is the forced one of 3 s; 8 at 8 s; 2 at 9 s,
         * counted anew after a restart: 1 + 2. */
        {"background.main-db.checkpoint.forced", 1},
        {"background.main-db.checkpoint.natural", 3},
        {"background.main-db.vacuum.forced", 0},
        {"background.main-db.vacuum.natural", 0},
        {"background.api.segment-rotation.forced", 0},
        {"background.api.segment-rotation.natural", 2},
        {"background.sink.checkpoint.forced", ABSENT}, /* wal has no server */
    };
    CHECK("wal/1", expected);
    static const struct expected uncounted[] = {
        {"background.main-db.checkpoint.forced", 0},
        {"background.main-db.checkpoint.natural", ABSENT},
    };
    CHECK("wal/2", uncounted);
}

static void test_parts(void **state)
{
    (void)state;
    static const struct expected expected[] = {
        /* 10 and 30 % while the load lasts, 50 % after it. */
        {"part.api.cpu_mean_pct", 20},
        {"part.api.cpu_peak_pct", 50},
        {"part.api.cpu_s", 3},
        {"part.api.rss_mean_bytes", 200},
        {"part.api.rss_peak_bytes", 300},
        {"part.api.read_bytes", 0},
        /* 1000, 5000, then anew 2000. */
        {"part.api.write_bytes", 6000},
        {"part.api.rx_bytes", ABSENT},
        {"part.api.cpu_s_per_1000", 3 / 0.019},
        /* 50 - 45 and 60 - 50; the sample after the load's end is none of it. */
        {"host.other_pct", 7.5},
        {"host.steal_pct", 0.5},
        {"stat.segments.min", 1},
        {"stat.segments.max", 3},
        {"stat.segments.last", 2},
        {"stat.ts.max", ABSENT},
    };
    CHECK("wal/1", expected);
}

/* ---- runs made here: tiny's manifest with 10 requests a second, 1 lane, 200 ms a row ---- */

static char *make_run(const char *replace, const char *with, const char *runner)
{
    char *dir = rundir_make();
    struct buf ledger = rundir_ledger_begin();
    for (unsigned n = 0; n < 20; n++)
        rundir_ledger_row(&ledger, n, 1000000000 + n * 500000, 1000000000 + n * 500000,
                          1000000000 + n * 500000 + 1000, 202, "durable",
                          n < 4 ? "warm-up" : "steady");
    rundir_ledger_end(&ledger, dir, "ledger.tsv");
    rundir_manifest(dir, "\"ingest\"", false, 1, replace, with);
    rundir_puts(dir, "runner.jsonl", runner);
    return dir;
}

static void figures_of(const char *dir, struct figures *figures)
{
    struct run run;
    struct series series = {0};
    memset(figures, 0, sizeof(*figures));
    run_load(&run, dir, false);
    assert_true(run_times_ok(&run));
    figures_compute(figures, &series, &run);
    series_free(&series);
    run_free(&run);
}

/* The model goes in steps of 10 ms. */
static void near(const struct figures *figures, const char *key, double wanted)
{
    double value = figures_get(figures, "%s", key);
    if (!(fabs(value - wanted) <= wanted * 0.005))
        fail_msg("%s is %g, not about %g", key, value, wanted);
}

static void test_theory(void **state)
{
    (void)state;
    struct figures figures;
    /* 10/s come in for 10 s, 5/s are taken up, batches of 10 take 2 s: 20 tasks after 2 s, from
     * then on 5/s more, 60 after 10 s, none after 22 s. Area 20 + 8 x 40 + 12 x 30. */
    char *dir = make_run(NULL, NULL, "");
    rundir_puts(dir, "sampler.jsonl",
                "{\"ts\": 1001, \"ev\": \"backlog\", \"tasks\": 90, \"exact\": true}\n"
                "{\"ts\": 1002, \"ev\": \"backlog\", \"tasks\": 0, \"exact\": true}\n"
                "{\"ts\": 1003, \"ev\": \"backlog\", \"tasks\": 3, \"exact\": true}\n"
                "{\"ts\": 1004, \"ev\": \"backlog\", \"tasks\": 1, \"exact\": true}\n"
                "{\"ts\": 1007, \"ev\": \"backlog\", \"tasks\": 4, \"exact\": true}\n"
                "{\"ts\": 1011, \"ev\": \"backlog\", \"tasks\": 90, \"exact\": true}\n");
    figures_of(dir, &figures);
    near(&figures, "backlog.theory_growth_per_s", 5);
    near(&figures, "backlog.theory_peak_tasks", 60);
    near(&figures, "backlog.theory_area_task_s", 700);
    near(&figures, "backlog.growth_per_s", 9.0 / 14); /* as in test_stats.c; 1 and 11 s are out */
    figures_free(&figures);
    rundir_remove(dir);
    /* Killed at 5.5 s: the sample at 7 s is none of it; 0, 3, 1 at 2, 3, 4 s: 1 / 2. */
    dir = make_run(
        NULL, NULL,
        "{\"ts\": 1005.5, \"ev\": \"fault\", \"what\": \"kill\", \"who\": \"worker\"}\n"
        "{\"ts\": 1006, \"ev\": \"recovered\", \"what\": \"kill\", \"who\": \"worker\"}\n");
    rundir_puts(dir, "sampler.jsonl",
                "{\"ts\": 1002, \"ev\": \"backlog\", \"tasks\": 0, \"exact\": true}\n"
                "{\"ts\": 1003, \"ev\": \"backlog\", \"tasks\": 3, \"exact\": true}\n"
                "{\"ts\": 1004, \"ev\": \"backlog\", \"tasks\": 1, \"exact\": true}\n"
                "{\"ts\": 1007, \"ev\": \"backlog\", \"tasks\": 40, \"exact\": true}\n");
    figures_of(dir, &figures);
    near(&figures, "backlog.growth_per_s", 0.5);
    figures_free(&figures);
    rundir_remove(dir);
    /* The worker is gone from 5 to 7 s: 35 at 5 s, the 10 at work are thrown back, so 75 at 9 s,
     * 80 at 10 s, none at 26 s. 20 + 3 x 27.5 + 4 x 55 + 77.5 + 16 x 40. */
    static const char fault[] =
        "{\"ts\": 1005, \"ev\": \"fault\", \"what\": \"kill\", \"who\": \"WHO\"}\n"
        "{\"ts\": 1007, \"ev\": \"recovered\", \"what\": \"kill\", \"who\": \"WHO\"}\n";
    static const struct {
        const char *who;
        double peak, area;
    } faults[] = {{"worker", 80, 1040},
                  {"main-db", 80, 1040},
                  /* Nothing comes in either: 35 until 7 s, 55 at 9 s, 60 at 10 s, none at 22 s. */
                  {"sink", 60, 20 + 82.5 + 70 + 90 + 57.5 + 360},
                  /* 35 at 5 s, 25 at 7 s, 40 at 10 s, none at 18 s. */
                  {"api", 40, 20 + 82.5 + 60 + 97.5 + 160},
                  {"loadgen", 60, 700}};
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        struct buf text = {0};
        for (const char *at = fault; *at; at++) {
            bool hole = strncmp(at, "WHO", 3) == 0;
            if (hole)
                buf_puts(&text, faults[i].who);
            else
                buf_putc(&text, *at);
            at += hole ? 2 : 0;
        }
        dir = make_run(NULL, NULL, text.data);
        figures_of(dir, &figures);
        near(&figures, "backlog.theory_peak_tasks", faults[i].peak);
        near(&figures, "backlog.theory_area_task_s", faults[i].area);
        figures_free(&figures);
        rundir_remove(dir);
        buf_free(&text);
    }
    /* Batches that do not fill: 2 a second wait 1 s, so 2 rows, 400 ms: 0.8 tasks at work. */
    dir = make_run("\"rps\": 10", "\"rps\": 2", "");
    char *text = rundir_read(dir, "manifest.json"), *at = strstr(text, "\"worker\": {}");
    assert_non_null(at);
    char *fresh = xasprintf("%.*s\"worker\": {\"batch-wait\": \"1s\"}%s", (int)(at - text), text,
                            at + strlen("\"worker\": {}"));
    rundir_puts(dir, "manifest.json", fresh);
    free(fresh);
    free(text);
    figures_of(dir, &figures);
    near(&figures, "backlog.theory_peak_tasks", 0.8);
    assert_true(figures_get(&figures, "backlog.theory_growth_per_s") == 0);
    figures_free(&figures);
    rundir_remove(dir);
}

/* Commits of 100 ms that end at each half second, `rows` a commit. */
static void put_commits(struct buf *out, unsigned *id, double from_s, double to_s, unsigned rows)
{
    unsigned commits = (unsigned)lround((to_s - from_s) / 0.5);
    for (unsigned commit = 1; commit <= commits; commit++) {
        double at_s = from_s + 0.5 * commit;
        buf_printf(out,
                   "{\"ts\": %.3f, \"ev\": \"committed\", \"rows\": %u, \"inserted\": %u, "
                   "\"redelivered\": 0, \"dead\": 0, \"db_ms\": 100, \"ids\": [",
                   1000 + at_s, rows, rows);
        for (unsigned i = 0; i < rows; i++)
            buf_printf(out, "%s\"%s\"", i ? ", " : "", rundir_id_text((*id)++));
        buf_puts(out, "], \"age_ms\": [");
        for (unsigned i = 0; i < rows; i++)
            buf_puts(out, i ? ", 1" : "1");
        buf_puts(out, "]}\n");
    }
}

/* 8 rows a second until 6 s; killed at 6.2 s, back at 8.2 s; nothing until 9 s, 6 a second in the
 * tenth, which is not enough, then 8 again. Warm-up (2 s): 2 a second. */
static void test_back_to_rate(void **state)
{
    (void)state;
    static const char runner[] =
        "{\"ts\": 1006.2, \"ev\": \"fault\", \"what\": \"kill\", \"who\": \"worker\"}\n"
        "{\"ts\": 1008.2, \"ev\": \"recovered\", \"what\": \"kill\", \"who\": \"worker\"}\n";
    char *dir = make_run(NULL, NULL, runner);
    struct buf worker = {0};
    struct figures figures;
    unsigned id = 100;
    put_commits(&worker, &id, 0, 2, 1);
    put_commits(&worker, &id, 2, 6, 4);
    put_commits(&worker, &id, 6.5, 7, 9); /* its transaction outlived the worker */
    put_commits(&worker, &id, 9, 10, 3);
    put_commits(&worker, &id, 10, 14, 4);
    rundir_puts(dir, "worker-1.jsonl", worker.data);
    figures_of(dir, &figures);
    /* Seconds 3, 4, 5 are whole, of the phase and after its first 100 ms. */
    assert_true(fabs(figures_get(&figures, "recovery.rate_before_rows_per_s") - 8) < 1e-9);
    assert_true(fabs(figures_get(&figures, "recovery.back_to_rate_s") - 3.8) < 1e-9);
    assert_true(fabs(figures_get(&figures, "recovery.fault_s") - 2) < 1e-9);
    assert_true(figures_get(&figures, "recovery.back_to_rate") == 1);
    /* Batches of 4 and, after the fault, up to 10 s, of 3: 8 fours and 2 threes. */
    assert_true(figures_get(&figures, "commit.steady_db_cv") == 0);
    assert_true(fabs(figures_get(&figures, "commit.steady_rows_cv") - 0.4 / 3.8) < 1e-9);
    figures_free(&figures);
    buf_clear(&worker);
    put_commits(&worker, &id, 0, 6, 4); /* and never again */
    rundir_puts(dir, "worker-1.jsonl", worker.data);
    figures_of(dir, &figures);
    assert_true(figures_get(&figures, "recovery.back_to_rate") == 0);
    assert_true(isnan(figures_get(&figures, "recovery.back_to_rate_s")));
    figures_free(&figures);
    buf_clear(&worker);
    put_commits(&worker, &id, 0, 14, 4); /* as if nothing had been */
    rundir_puts(dir, "worker-1.jsonl", worker.data);
    figures_of(dir, &figures);
    assert_true(figures_get(&figures, "recovery.back_to_rate_s") == 0);
    figures_free(&figures);
    buf_free(&worker);
    rundir_remove(dir);
}

static void test_cost(void **state)
{
    (void)state;
    static const char runner[] =
        "{\"ts\": 990, \"ev\": \"host_before\", \"busy_pct\": 3, \"steal_pct\": 0}\n"
        "{\"ts\": 991, \"ev\": \"flush_probe\", \"state\": \"begin\", \"n\": 200, \"p50_us\": "
        "250, \"p99_us\": 900, \"max_us\": 1000}\n"
        "{\"ts\": 1019, \"ev\": \"flush_probe\", \"state\": \"end\", \"n\": 100, \"p50_us\": "
        "300, \"p99_us\": 800, \"max_us\": 2000}\n"
        "{\"ts\": 1019, \"ev\": \"clock\", \"ahead_ms\": -7, \"over_s\": 19}\n";
    /* At 990 and 999 s before the load; a fall at 1010 s; at 1021 s the run is over. Written: 4000
     * from 1000 at 999 s, then anew 500. */
    static const struct {
        int at, write, flushes, wal_bytes, wal_flushes, main_bytes, main_flushes;
    } samples[] = {{990, 100, 1, 1, 1, 1, 1},
                   {999, 1000, 10, 50, 5, 500, 3},
                   {1005, 5000, 40, 250, 25, 900, 9},
                   {1010, 500, 8, 350, 27, 900, 9},
                   {1021, 9999, 99, 999, 99, 999, 99}};
    char *dir = make_run(NULL, NULL, runner);
    struct buf text = {0};
    struct figures figures;
    for (size_t i = 0; i < 5; i++) {
        buf_printf(&text,
                   "{\"ts\": %d, \"ev\": \"host\", \"busy_pct\": 5, \"steal_pct\": 0, "
                   "\"iowait_pct\": 0, \"ours_pct\": 5, \"disk\": \"vda\", \"disk_read_bytes\": 7, "
                   "\"disk_write_bytes\": %d, \"disk_flushes\": %d}\n",
                   samples[i].at, samples[i].write, samples[i].flushes);
        buf_printf(&text,
                   "{\"ts\": %d, \"ev\": \"sink_stats\", \"wal_bytes\": %d, \"wal_flushes\": %d}\n",
                   samples[i].at, samples[i].wal_bytes, samples[i].wal_flushes);
        buf_printf(&text,
                   "{\"ts\": %d, \"ev\": \"db_count\", \"wal_bytes\": %d, \"wal_flushes\": %d}\n",
                   samples[i].at, samples[i].main_bytes, samples[i].main_flushes);
    }
    static const char *const parts[] = {"api", "worker", "sink", "main-db", "loadgen", "sampler"};
    for (int i = 0; i < 6; i++) /* 1, 2, 4, 8, 16, 32 s */
        buf_printf(&text,
                   "{\"ts\": 1000, \"ev\": \"os\", \"who\": \"%s\", \"cpu_s\": 0}\n{\"ts\": "
                   "1010, \"ev\": \"os\", \"who\": \"%s\", \"cpu_s\": %d}\n",
                   parts[i], parts[i], 1 << i);
    rundir_puts(dir, "sampler.jsonl", text.data);
    figures_of(dir, &figures);
    static const struct expected expected[] = {
        /* 20 acknowledged tasks of 24 bytes. */
        {"disk.write_bytes", 4500},
        {"disk.write_bytes_per_1000", 225000},
        {"disk.write_amplification", 4500.0 / 480},
        {"disk.flushes", 38},
        {"disk.flushes_per_1000", 1900},
        {"disk.read_bytes", 0},
        {"own.sink_log_bytes", 300},
        {"own.sink_flushes", 22},
        {"own.sink_flushes_per_1000", 1100},
        {"own.main_log_bytes", 400},
        {"own.main_flushes", 6},
        {"cost.cpu_s", 7},
        {"cost.cpu_s_per_1000", 350},
        {"meter.cpu_s", 48},
        {"meter.events", 31}, /* 15 and 12 of the sampler, 4 of the runner */
        {"flush.before_p50_ms", 0.25},
        {"flush.before_p99_ms", 0.9},
        {"flush.after_p50_ms", 0.3},
        {"flush.after_max_ms", 2},
        {"host.before_busy_pct", 3},
        {"clock.ahead_ms", -7},
    };
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        double value = figures_get(&figures, "%s", expected[i].key);
        if (!(fabs(value - expected[i].value) < 1e-9 * fmax(1, expected[i].value)))
            fail_msg("%s is %g, not %g", expected[i].key, value, expected[i].value);
    }
    figures_free(&figures);
    buf_free(&text);
    rundir_remove(dir);
}

static void test_repeats_and_control(void **state)
{
    (void)state;
    static const struct expected second[] = {{"sla.p99_ms", 31}, {"sla.p50_ms", 6}};
    static const struct expected third[] = {{"sla.p99_ms", 20}, {"sla.p50_ms", 6}};
    static const struct expected direct[] = {
        /* 6 of 12 steady ones outside the fault are answered: the p50 is the slowest of those. */
        {"sla.n", 12},
        {"sla.not_202", 6},
        {"sla.p50_ms", 118},
        {"sla.p99_ms", NOT_202},
        {"sla.met", 0},
        {"api.steady.p50_ms", NOT_202},
        {"api.warm-up.max_ms", 103},
        {"durable.warm-up.max_ms", 93},
        {"sla.seconds_over", 8},
        {"totals.unknown", 10},
        {"drain.theory_rows_per_s", ABSENT}, /* it has nothing to drain */
        {"backlog.peak_tasks", ABSENT},
        {"committed.rows_per_s", ABSENT},
    };
    CHECK("wal/2", second);
    CHECK("wal/3", third);
    CHECK("direct/1", direct);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_latency),  cmocka_unit_test(test_flow),
        cmocka_unit_test(test_fairness), cmocka_unit_test(test_background),
        cmocka_unit_test(test_parts),    cmocka_unit_test(test_repeats_and_control),
        cmocka_unit_test(test_theory),   cmocka_unit_test(test_back_to_rate),
        cmocka_unit_test(test_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Oracle: rules worked out by hand (docs/method.md: A against B), on copies of fixtures/tiny with
 * one thing changed; for export, the fixture's own README.md. */
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

#include "base/buf.h"
#include "base/file.h"
#include "reports/against.h"
#include "reports/report.h"
#include "rundir.h"
#include "tiny.h"

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
    lose_one(run);
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
        cmocka_unit_test(test_judge),
        cmocka_unit_test(test_against),
        cmocka_unit_test(test_against_lost),
        cmocka_unit_test(test_export),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Oracle: what comes from files is text and nothing else in every output, and damaged copies of
 * fixtures/tiny: never a crash, never invalid JSON, and a loss that the whole files show never
 * turns into "lost nothing". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/file.h"
#include "page_check.h"
#include "reports/report.h"
#include "rundir.h"
#include "tiny.h"

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
        char *other = xasprintf("%s/%s", dir, tiny_runs[i]);
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
        char *whole = rundir_read(run, tiny_files[i]);
        size_t whole_len = strlen(whole);
        char *bytes = xmalloc(2 * whole_len + 256);
        for (int round = 0; round < 60; round++) {
            uint64_t round_seed = seed;
            size_t len = whole_len;
            memcpy(bytes, whole, len);
            damage(bytes, &len, &seed);
            rundir_write(run, tiny_files[i], bytes, len);
            struct report_result result;
            free(report(dir, &result));
            if (result.failed + result.voided == 0 && !strstr(result.summary.data, "excused"))
                fail_msg("%s, SLUICE_TEST_SEED=%llu: the loss is gone: %s", tiny_files[i],
                         (unsigned long long)round_seed, result.summary.data);
            report_result_free(&result);
        }
        rundir_write(run, tiny_files[i], whole, whole_len);
        free(bytes);
        free(whole);
    }
    free(run);
    rundir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page_check), cmocka_unit_test(test_page),
        cmocka_unit_test(test_inert),      cmocka_unit_test(test_nothing_there),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

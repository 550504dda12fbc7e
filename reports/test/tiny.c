#include "tiny.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "page_check.h"
#include "rundir.h"

const char *const tiny_runs[RUNS] = {"wal/1", "wal/2", "wal/3", "direct/1"};
const char *const tiny_files[FILES] = {
    "manifest.json", "ledger.tsv",     "ledger-probe.tsv", "main.tsv",      "loadgen.jsonl",
    "api-1.jsonl",   "worker-1.jsonl", "worker-2.jsonl",   "sampler.jsonl", "runner.jsonl"};
static void copy_run(const char *from, const char *to)
{
    for (size_t i = 0; i < FILES; i++) {
        char *path = xasprintf("%s/%s", from, tiny_files[i]);
        if (file_exists(path)) {
            char *text = rundir_read(from, tiny_files[i]);
            rundir_puts(to, tiny_files[i], text);
            free(text);
        }
        free(path);
    }
}

char *copy_tiny(size_t n)
{
    char *dir = rundir_make();
    for (size_t run = 0; run < n; run++) {
        char *from = xasprintf("%s/tiny/%s", FIXTURES, tiny_runs[run]);
        char *to = xasprintf("%s/%s", dir, tiny_runs[run]);
        copy_run(from, to);
        free(from);
        free(to);
    }
    return dir;
}

void change(const char *dir, const char *name, const char *old, const char *fresh)
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

char *report(const char *dir, struct report_result *result)
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

void has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is missing in:\n%.6000s", part, text);
}

void has_not(const char *text, const char *part)
{
    const char *at = strstr(text, part);
    if (at)
        fail_msg("\"%s\" is there: ...%.200s", part, at);
}

const char *cell(const char *markdown, const char *label, int n)
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

void copy_as(const char *dir, const char *from, const char *to, const char *sink)
{
    char *source = xasprintf("%s/%s", dir, from), *target = xasprintf("%s/%s", dir, to);
    char *name = xasprintf("\"sink\": \"%s\"", sink);
    copy_run(source, target);
    change(target, "manifest.json", "\"sink\": \"wal\"", name);
    free(name);
    free(source);
    free(target);
}

void lose_one(const char *run)
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

void check_page(const char *dir, const char *name)
{
    char why[256], *page = rundir_read(dir, name);
    if (!page_check(page, why, sizeof(why)))
        fail_msg("%s: %s", name, why);
    free(page);
}

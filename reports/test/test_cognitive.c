/* Oracle: fixtures/cognitive, counted by hand: toy.c has 7 lines of code and toy.h 1, server_toy.c
 * 3 lines of configuration, the page 2 settings, 3 failure modes, 2 metrics, 1 alert, 4 steps, 2
 * services. Each mistake in the page has its own sentence. The published rubric is the one that is
 * used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cognitive_count.h"
#include "reports/cognitive.h"
#include "rundir.h"

static const struct option_spec toy_options[] = {
    {.name = "toy-dir", .required = true}, {.name = "toy-size"}, {.name = NULL}};
static const struct option_spec common_options[] = {{.name = "toy-url"}, {.name = NULL}};
static const struct option_spec *const tables[] = {toy_options, common_options, NULL};

static void test_counts(void **state)
{
    (void)state;
    struct cognitive_counts counts;
    struct err err = {0};
    if (cognitive_count(FIXTURES "/cognitive", "toy", tables, &counts, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(counts.code, 7 + 1);
    assert_int_equal(counts.options, 2);
    assert_int_equal(counts.server_lines, 3);
    assert_int_equal(counts.failure_modes, 3);
    assert_int_equal(counts.metrics, 2);
    assert_int_equal(counts.alerts, 1);
    assert_int_equal(counts.runbook, 4);
    assert_int_equal(counts.services, 2);
    assert_string_equal(counts.service_names.data, "Toy, its helper");
    buf_free(&counts.service_names);
}

static void test_lines(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned lines;
    } cases[] = {
        {"", 0},
        {"\n \n\t\n", 0},
        {"a", 1},
        {"a;\nb;", 2},
        {"/* a\nb */ c;\n", 1},
        {"\"//\" a\n", 1},
        {"s = \"\\\"/*\";\nb;\n", 2},
        {"c = '\\'';\n/* */\n", 1},
        {"a /* b\n*/\nc // d\n", 2},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (cognitive_lines(cases[i].text) != cases[i].lines)
            fail_msg("%s: %u lines", cases[i].text, cognitive_lines(cases[i].text));
    assert_int_equal(cognitive_server_lines("int x;"), -1);
}

/* Replaces the first old in the fixture's page; the rest of the tree as it is. */
static char *wrong_tree(const char *old, const char *fresh)
{
    static const char *const files[] = {"lib/toy.c.txt", "lib/toy.h.txt", "lib/server_toy.c.txt"};
    char *dir = rundir_make();
    for (size_t i = 0; i < 3; i++) {
        char *text = rundir_read(FIXTURES "/cognitive", files[i]);
        rundir_puts(dir, files[i], text);
        free(text);
    }
    char *page = rundir_read(FIXTURES "/cognitive", "docs/sinks/toy.md");
    char *at = strstr(page, old);
    assert_non_null(at);
    char *changed = xasprintf("%.*s%s%s", (int)(at - page), page, fresh, at + strlen(old));
    rundir_puts(dir, "docs/sinks/toy.md", changed);
    free(changed);
    free(page);
    return dir;
}

static const struct {
    const char *old, *fresh, *sentence;
} wrongs[] = {
    {"---\n", "", "docs/sinks/toy.md:1: no front matter"},
    {"\n---\n#", "\n#", "no front matter"},
    {"alerts: [depth grows]\n", "", "the list \"alerts\" is missing; write \"alerts: []\""},
    {"alerts: [", "alarms: [", "toy.md:11:1: \"alarms\" is no list of a sink's page"},
    {"alerts: [depth grows]", "alerts: depth grows", "\"alerts\" must be a list"},
    {"- free space", "- free: space", "an entry of \"runbook\" must be one text"},
    {"- restart it", "- free space", "\"free space\" stands in \"runbook\" twice"},
    {"- go home", "- ''", "an entry of \"runbook\" must be one text"},
    {"metrics: [depth, age_s]", "metrics: [depth, speed]", "does not explain the metric `speed`"},
    {"[toy-dir, toy-url]", "[toy-dir, toy-colour]", "\"toy-colour\" is no option of this sink"},
    {"[toy-dir, toy-url]", "[toy-url]", "the option \"toy-dir\" is required and is missing"},
    {"lib/toy*.[ch].txt", "lib/tow*.[ch].txt", "no file is called \"lib/tow*.[ch].txt\""},
    {"[lib/server_toy.c.txt]", "[lib/toy.c.txt]", "lib/toy.c.txt has no settings_text[]"},
    {"[lib/server_toy.c.txt]", "[lib/none.c]", "lib/none.c"},
    {"services: [Toy, its helper]", "services: [Toy", "docs/sinks/toy.md:"},
};

static void test_wrong_pages(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
        char *dir = wrong_tree(wrongs[i].old, wrongs[i].fresh);
        struct cognitive_counts counts;
        struct err err = {0};
        if (cognitive_count(dir, "toy", tables, &counts, &err) == 0)
            fail_msg("taken: %s", wrongs[i].sentence);
        if (!strstr(err.text, wrongs[i].sentence))
            fail_msg("\"%s\" instead of \"%s\"", err.text, wrongs[i].sentence);
        buf_free(&counts.service_names);
        rundir_remove(dir);
    }
    struct cognitive_counts counts;
    struct err err = {0};
    assert_true(cognitive_count(FIXTURES "/cognitive", "nobody", tables, &counts, &err) < 0);
    assert_non_null(strstr(err.text, "docs/sinks/nobody.md"));
}

static void test_scores(void **state)
{
    (void)state;
    static const struct {
        enum cognitive_part part;
        unsigned count, score;
    } cases[] = {
        {COGNITIVE_CODE, 0, 0},     {COGNITIVE_CODE, 250, 0},         {COGNITIVE_CODE, 251, 1},
        {COGNITIVE_CODE, 4000, 4},  {COGNITIVE_CODE, 4001, 5},        {COGNITIVE_CONFIG, 0, 0},
        {COGNITIVE_CONFIG, 1, 1},   {COGNITIVE_CONFIG, 20, 4},        {COGNITIVE_FAILURE, 10, 3},
        {COGNITIVE_FAILURE, 11, 4}, {COGNITIVE_OBSERVABILITY, 16, 5}, {COGNITIVE_RUNBOOKS, 8, 3},
        {COGNITIVE_RUNBOOKS, 9, 4},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(cognitive_score(cases[i].part, cases[i].count), cases[i].score);
}

static void test_published(void **state)
{
    (void)state;
    struct buf rubric = {0};
    cognitive_rubric(&rubric);
    char *page = rundir_read(SOURCE_DIR, "docs/cognitive-load.md");
    if (!strstr(page, rubric.data))
        fail_msg("docs/cognitive-load.md does not hold this rubric:\n%s", rubric.data);
    free(page);
    buf_free(&rubric);
    /* The table of the build: every sink is there, and the log is code of one's own. */
    unsigned sinks = 0;
    for (const struct cognitive_sink *sink = cognitive_sinks; sink->sink; sink++, sinks++)
        if (strcmp(sink->sink, "wal") == 0)
            assert_true(sink->counts[COGNITIVE_CODE] > 1000 && sink->services == 0);
    assert_int_equal(sinks, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts), cmocka_unit_test(test_lines),
                                       cmocka_unit_test(test_wrong_pages),
                                       cmocka_unit_test(test_scores),
                                       cmocka_unit_test(test_published)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

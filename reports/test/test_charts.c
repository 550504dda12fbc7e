/* Oracle: for percentiles 1000 latencies of 1..1000 ms, where the nearest rank at q is 1000 q; for
 * pictures places worked out by hand on a plot of 484 units from 60 on, and the checker of pages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "page_check.h"
#include "reports/charts.h"
#include "reports/compare.h"
#include "reports/svg.h"

/* ---- percentiles ---- */

static double at(const struct curve *curve, double x)
{
    for (size_t i = 0; i < curve->count; i++)
        if (fabs(curve->x[i] - x) < x * 1e-9)
            return curve->y[i];
    fail_msg("no point at %g", x);
    return NAN;
}

/* Rows 1..1000 ms in a mixed order, due in "steady"; others that must not count. */
static void fill(struct run *run, struct manifest_phase *phases, struct ledger_row *rows)
{
    memset(run, 0, sizeof(*run));
    phases[0].name = (char *)(uintptr_t) "warm-up";
    phases[1].name = (char *)(uintptr_t) "steady";
    run->manifest.phases = phases;
    run->manifest.phase_count = 2;
    run->manifest.timeout_ms = 5000;
    run->ledger.phases[0] = (char *)(uintptr_t) "warm-up";
    run->ledger.phases[1] = (char *)(uintptr_t) "steady";
    run->ledger.phase_count = 2;
    run->ledger.rows = rows;
    run->ledger.count = 1002;
    for (size_t i = 0; i < 1000; i++)
        rows[i] = (struct ledger_row){.outcome = OUTCOME_DURABLE,
                                      .phase = 1,
                                      .latency_ms = (double)(i * 7 % 1000) + 1,
                                      .durable_ms = i < 10 ? (double)i + 1 : NAN,
                                      .age_ms = NAN};
    rows[1000] = rows[1001] = rows[0];
    rows[1000].phase = 0;
    rows[1001].source = 1; /* the runner's probe */
    rows[1000].latency_ms = rows[1001].latency_ms = 100000;
}

static void test_curves(void **state)
{
    (void)state;
    struct run run;
    struct manifest_phase phases[2] = {{0}};
    struct ledger_row *rows = calloc(1002, sizeof(*rows));
    struct curve curves[CURVE_COUNT] = {{0}};
    fill(&run, phases, rows);
    curves_compute(curves, &run);
    const struct curve *api = &curves[CURVE_API], *durable = &curves[CURVE_DURABLE];
    assert_true(at(api, 1) == 1);
    assert_true(at(api, 10) == 900);
    assert_true(at(api, 100) == 990);
    assert_true(api->x[api->count - 1] == 1000 && api->y[api->count - 1] == 1000);
    for (size_t i = 1; i < api->count; i++)
        assert_true(api->y[i] >= api->y[i - 1] && api->x[i] > api->x[i - 1]);
    assert_true(durable->x[durable->count - 1] == 10 && durable->y[durable->count - 1] == 10);
    assert_true(curves[CURVE_AGE].count == 0);
    curves_free(curves);
    /* Eleven quick refusals are no quick answers: the 99th percentile is the timeout. */
    for (size_t i = 0; i < 11; i++)
        rows[i].outcome = OUTCOME_REFUSED;
    curves_compute(curves, &run);
    assert_true(at(&curves[CURVE_API], 100) == 5000);
    assert_true(curves[CURVE_DURABLE].count == 0);
    curves_free(curves);
    free(rows);
}

/* ---- Markdown as a page ---- */

static void check_markdown(const char *markdown, const char *wanted)
{
    struct comparison comparison = {0};
    struct buf page = {0};
    char why[256];
    compare_html(&comparison, markdown, &page);
    const char *start = strstr(page.data, "<main>\n") + 7, *end = strstr(page.data, "</main>");
    if ((size_t)(end - start) != strlen(wanted) || strncmp(start, wanted, strlen(wanted)) != 0)
        fail_msg("%s\nbecame\n%.*s", markdown, (int)(end - start), start);
    if (!page_check(page.data, why, sizeof(why)))
        fail_msg("%s", why);
    buf_free(&page);
}

static void test_markdown(void **state)
{
    (void)state;
    check_markdown("# a\n\nb\nc **d** `e<f`\n",
                   "<h1>a</h1>\n<p>b c <strong>d</strong> <code>e&lt;f</code></p>\n");
    check_markdown("- a\n  b\n- c\n\nd\n", "<ul>\n<li>a   b</li>\n<li>c</li>\n</ul>\n<p>d</p>\n");
    check_markdown("> **a**\n>\n> - b\n",
                   "<blockquote>\n<p><strong>a</strong></p>\n<ul>\n<li>b</li>\n</ul>\n"
                   "</blockquote>\n");
    check_markdown(
        "| a | b |\n| - | -: |\n| c |  |\n",
        "<div class=\"table\"><table>\n<thead><tr><th>a</th><th class=\"r\">b</th></tr>\n"
        "</thead>\n<tbody>\n<tr><td>c</td><td class=\"r\"></td></tr>\n"
        "</tbody></table></div>\n");
    check_markdown("[a](docs/b.md) [c](https://d.e/f)\n",
                   "<p><a href=\"docs/b.md\">a</a> <a href=\"https://d.e/f\">c</a></p>\n");
    check_markdown("[a](//b) [c](javascript:d) [e\n", "<p>[a](//b) [c](javascript:d) [e</p>\n");
    check_markdown("**a\n", "<p><strong>a</strong></p>\n");
    check_markdown("\\*\\<&lt;&#124;&#9;&x;\n", "<p>*&lt;&lt;&#124;&amp;#9;&amp;x;</p>\n");
    check_markdown("![nothing](https://x/y.svg)\n", "");
}

/* ---- pictures ---- */

static struct buf picture_of(struct svg_panel *panel)
{
    static struct svg_key keys[] = {{(char *)(uintptr_t) "a<b", 0, 0}};
    struct svg_picture picture = {.name = "test",
                                  .title = "</title><script>",
                                  .keys = keys,
                                  .key_count = 1,
                                  .panels = panel,
                                  .panel_count = 1};
    struct buf out = {0};
    char why[256];
    svg_put(&out, &picture);
    if (!page_check(out.data, why, sizeof(why)))
        fail_msg("%s", why);
    return out;
}

static void has(const struct buf *out, const char *part)
{
    if (!strstr(out->data, part))
        fail_msg("\"%s\" is missing in:\n%s", part, out->data);
}

static void test_panel(void **state)
{
    (void)state;
    const double x[] = {0, 1, 2, 3, 4, 5}, y[] = {0, 100, NAN, 50, 100, 100};
    struct svg_line line = {x, y, 6, 0, 0};
    const struct svg_band band = {1, 2, "x\"y", false};
    struct svg_panel panel = {.title = "\"&'",
                              .unit = "<ms>",
                              .height = 100,
                              .x = {.low = 0, .high = 10},
                              .y = svg_linear(100),
                              .limit = {.value = NAN},
                              .lines = &line,
                              .line_count = 1,
                              .bands = &band,
                              .band_count = 1};
    struct buf out = picture_of(&panel);
    /* Legend 4 + 22 + 4, title 27: the plot is from 57 to 157. The gap begins anew. */
    has(&out, "class=\"l c0\" d=\"M60.0 157.0L108.4 57.0M205.2 107.0L253.6 57.0L302.0 57.0\"");
    has(&out, "<rect class=\"f\" x=\"108.4\" y=\"57.0\" width=\"48.4\" height=\"100.0\"/>");
    has(&out, "data-plot=\"60 57.0 484 100.0\" data-x=\"0 10\" data-y=\"0 100\" data-log=\"\"");
    buf_free(&out);
}

/* One peak in 10,000 points is drawn to its full height. */
static void test_peak(void **state)
{
    (void)state;
    enum { N = 10000 };
    double *x = calloc(N, sizeof(double)), *y = calloc(N, sizeof(double));
    for (size_t i = 0; i < N; i++) {
        x[i] = (double)i;
        y[i] = 10;
    }
    y[4321] = 1000;
    struct svg_line line = {x, y, N, 0, 0};
    struct svg_panel panel = {.title = "",
                              .unit = "",
                              .height = 100,
                              .x = {.low = 0, .high = N},
                              .y = svg_logarithmic(10, 1000),
                              .limit = {.value = NAN},
                              .lines = &line,
                              .line_count = 1};
    struct buf out = picture_of(&panel);
    has(&out, " 57.0L"); /* the top */
    assert_true(out.len < 20000);
    buf_free(&out);
    free(x);
    free(y);
}

static void test_axes(void **state)
{
    (void)state;
    static const struct {
        double high, end;
    } linear[] = {{100, 100}, {101, 150}, {3688, 4000}, {0, 1}, {0.3, 0.3}, {NAN, 1}};
    for (size_t i = 0; i < sizeof(linear) / sizeof(linear[0]); i++)
        if (fabs(svg_linear(linear[i].high).high - linear[i].end) > 1e-9)
            fail_msg("%g ends at %g", linear[i].high, svg_linear(linear[i].high).high);
    struct svg_axis axis = svg_logarithmic(0.4, 130);
    assert_true(fabs(axis.low - 0.1) < 1e-9 && fabs(axis.high - 200) < 1e-9);
    axis = svg_logarithmic(INFINITY, -INFINITY); /* of no values at all */
    assert_true(axis.low > 0 && axis.high > axis.low && isfinite(axis.high));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_curves), cmocka_unit_test(test_panel),
                                       cmocka_unit_test(test_peak), cmocka_unit_test(test_markdown),
                                       cmocka_unit_test(test_axes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

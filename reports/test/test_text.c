/* Oracle: CommonMark 0.30 and GitHub's extensions, by what starts markup there: after escaping,
 * none of it is left unescaped. Numbers: worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/text.h"

static void markdown(const char *text, const char *wanted)
{
    struct buf out = {0};
    text_markdown(&out, text);
    assert_string_equal(out.data ? out.data : "", wanted);
    buf_free(&out);
}

static void plain(const char *text, const char *wanted)
{
    struct buf out = {0};
    text_plain(&out, text);
    assert_string_equal(out.data ? out.data : "", wanted);
    buf_free(&out);
}

static void test_markdown(void **state)
{
    (void)state;
    markdown("PostgreSQL 15.18 (Debian), x86_64", "PostgreSQL 15.18 (Debian), x86_64");
    markdown("a|b", "a&#124;b");
    markdown("`rm`", "\\`rm\\`");
    markdown("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;");
    markdown("&lt;", "&amp;lt;");
    markdown("[x](javascript:1)", "\\[x\\](javascript:1)");
    markdown("![x](y)", "\\!\\[x\\](y)");
    markdown("*b* _i_ ~~s~~ $m$", "\\*b\\* \\_i\\_ \\~\\~s\\~\\~ \\$m\\$");
    markdown("a\\", "a\\\\");
    markdown("two\nlines\r\n# head", "two lines  &#35; head");
    markdown("https://evil.example www.evil.example",
             "https&#58;//evil.example www&#46;evil.example");
    markdown("@someone me@mail #12", "&#64;someone me&#64;mail &#35;12");
    markdown("- item", "\\- item");
    markdown("", "");
}

/* Every byte alone and between letters: what can start markup never comes out bare. */
static void test_markdown_all_bytes(void **state)
{
    (void)state;
    for (int byte = 1; byte < 256; byte++) {
        char texts[2][4] = {{(char)byte, 0}, {'a', (char)byte, 'b', 0}};
        for (int i = 0; i < 2; i++) {
            struct buf out = {0};
            text_markdown(&out, texts[i]);
            for (size_t k = 0; k < out.len; k++) {
                char c = out.data[k];
                bool escaped = k > 0 && out.data[k - 1] == '\\';
                assert_true((unsigned char)c >= 0x20 && c != 0x7f);
                assert_null(memchr("<>|@", c, 4));
                if (strchr("`*[]!~$", c))
                    assert_true(escaped);
            }
            buf_free(&out);
        }
    }
}

static void test_plain(void **state)
{
    (void)state;
    plain("x\x1b[31mred\x07\n", "x?[31mred? ");
    plain("\xc3\xa4 \xff \xc2\x9b", "\xc3\xa4 ? ?"); /* ae umlaut, no UTF-8, C1's escape */
    plain("a\xe2\x80\xae"
          "b \xe2\x80\x93",
          "a?b \xe2\x80\x93"); /* right-to-left override; a dash */
    char text[1001];
    memset(text, 'x', 1000);
    text[1000] = '\0';
    struct buf out = {0};
    text_plain(&out, text);
    assert_true(out.len < 500);
    assert_string_equal(out.data + out.len - 3, "...");
    buf_free(&out);
}

static void number(void (*put)(struct buf *out, double value), double value, const char *wanted)
{
    struct buf out = {0};
    put(&out, value);
    assert_string_equal(out.data, wanted);
    buf_free(&out);
}

static void test_numbers(void **state)
{
    (void)state;
    number(text_ms, 4.1349, "4.13 ms");
    number(text_ms, 12, "12 ms");
    number(text_ms, 99.96, "100 ms");
    number(text_ms, 0.0314, "0.0314 ms");
    number(text_ms, 9999, "9999 ms");
    number(text_ms, 12345, "12.3 s");
    number(text_ms, INFINITY, "not 202");
    number(text_ms, NAN, "–");
    number(text_seconds, 33.14, "33.1 s");
    number(text_bytes, 1023, "1023 B");
    number(text_bytes, 1536, "1.50 KiB");
    number(text_bytes, 64.0 * 1024 * 1024, "64 MiB");
    number(text_count, 199999.6, "200000");
    number(text_number, 0.0042, "0.00420");
    number(text_number, 353.2, "353");
    number(text_number, 0, "0");
}

static void test_table(void **state)
{
    (void)state;
    struct table table;
    struct buf out = {0};
    table_begin(&table, 2);
    table_text(&table, "sink");
    table_text(&table, "p99");
    table_text(&table, "wal");
    table_text(&table, "–");
    table_text(&table, "a longer one");
    table_end(&table, &out);
    assert_string_equal(out.data, "| sink         | p99 |\n"
                                  "| ------------ | --: |\n"
                                  "| wal          |   – |\n"
                                  "| a longer one |     |\n\n");
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_markdown), cmocka_unit_test(test_markdown_all_bytes),
        cmocka_unit_test(test_plain),    cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

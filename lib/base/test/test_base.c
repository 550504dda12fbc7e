/* Oracle: RFC 8259 and RFC 3629 for what is JSON and UTF-8 (cases written by hand), RFC 9562 for
 * UUIDs, and round trips against what was put in. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "base/uuid.h"

static int check(const char *text)
{
    return json_check(text, strlen(text), NULL);
}

static void json_takes_what_rfc_8259_takes(void **state)
{
    (void)state;
    static const char *const good[] = {
        "{}",
        "[]",
        "0",
        "-0",
        "1",
        "-1.5e+10",
        "1E5",
        "1e-5",
        "0.5",
        "true",
        "false",
        "null",
        "\"\"",
        " \t\r\n{} \n",
        "{\"a\":1}",
        "{\"a\":{\"b\":[1,2,{\"c\":null}]},\"d\":[]}",
        "[[],{}]",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"",
        "\"\\ud83d\\ude00\"",
        "\"\xc3\xa9\"",
        "\"\xf0\x9f\x98\x80\"",
        "\"\x7f\"",
        "[1 , 2]",
        "{\"a\" : 1 , \"b\" : 2}",
        "\"\\u0001\"",
        "\"\xed\x9f\xbf\"",
        "\"\xee\x80\x80\"",
        "\"\xf4\x8f\xbf\xbf\"",
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        if (check(good[i]) != 0)
            fail_msg("refused: %s", good[i]);
}

static void json_refuses_everything_else(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        " ",
        "{",
        "}",
        "[",
        "]",
        "{]",
        "[}",
        "{}{}",
        "{} x",
        "1 2",
        "01",
        "-",
        "-01",
        "1.",
        ".5",
        "1e",
        "1e+",
        "+1",
        "0x10",
        "NaN",
        "Infinity",
        "tru",
        "True",
        "nulll",
        "'a'",
        "\"",
        "\"\\",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "\"\\ud800x\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "\"\\ud800\\n\"",
        "\"\n\"",
        "\"\t\"",
        "\"\x01\"",
        "\"\x80\"",
        "\"\xc0\x80\"",
        "\"\xc3\"",
        "\"\xed\xa0\x80\"",
        "\"\xf4\x90\x80\x80\"",
        "\"\xe0\x80\x80\"",
        "\"\xff\"",
        "[1,]",
        "[,1]",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{\"a\":1,}",
        "{,}",
        "{\"a\" 1}",
        "[1 2]",
        "{1:2}",
        "\xef\xbb\xbf{}",
        "[1}",
        "{\"a\":1]",
        "[",
        "[[",
        "{\"a\":",
        "/**/1",
        "1//",
        "\v1",
        "[\"a\",\"b\"",
        "--1",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (check(bad[i]) != -EINVAL)
            fail_msg("taken: %s", bad[i]);
    assert_int_equal(json_check("1\0", 2, NULL), -EINVAL);
    assert_int_equal(json_check("\"a\0b\"", 5, NULL), -EINVAL);
    assert_int_equal(json_check("\"\\\0\"", 4, NULL), -EINVAL);
}

static void json_depth_is_bounded(void **state)
{
    (void)state;
    struct buf text = {0};
    for (size_t depth = JSON_DEPTH_MAX; depth <= JSON_DEPTH_MAX + 1; depth++) {
        buf_clear(&text);
        for (size_t i = 0; i < depth; i++)
            buf_putc(&text, '[');
        for (size_t i = 0; i < depth; i++)
            buf_putc(&text, ']');
        assert_int_equal(json_check(text.data, text.len, NULL),
                         depth <= JSON_DEPTH_MAX ? 0 : -EINVAL);
    }
    buf_clear(&text);
    for (size_t i = 0; i < 1000000; i++)
        buf_putc(&text, '[');
    assert_int_equal(json_check(text.data, text.len, NULL), -EINVAL);
    buf_free(&text);
}

static void json_every_prefix_of_an_object_is_refused(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\":[1,-2.5e3,true,\"x\\u00e9\\ud83d\\ude00\xc3\xa9\"],\"b\":{}}";
    for (size_t len = 0; len < sizeof(text) - 1; len++) {
        char *exact = malloc(len ? len : 1); /* so that ASan sees a read past the end */
        memcpy(exact, text, len);
        assert_int_equal(json_check(exact, len, NULL), -EINVAL);
        free(exact);
    }
    assert_int_equal(check(text), 0);
}

static void json_error_names_the_byte(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(json_check("{\"a\":x}", 7, &err), -EINVAL);
    assert_string_equal(err.text, "not JSON at byte 5: a value was expected");
}

static void escaped_strings_are_json_whatever_they_hold(void **state)
{
    (void)state;
    struct buf out = {0};
    char every[256];
    for (int i = 0; i < 256; i++)
        every[i] = (char)i;
    buf_json_string(&out, every, sizeof(every));
    /* NUL comes out as \u0000, which json_check refuses by design: look at the rest alone. */
    assert_memory_equal(out.data, "\"\\u0000\\u0001", 13);
    buf_clear(&out);
    buf_json_string(&out, every + 1, sizeof(every) - 1);
    assert_int_equal(json_check(out.data, out.len, NULL), 0);
    assert_null(memchr(out.data, '\n', out.len));
    buf_clear(&out);
    buf_json_string(&out, "a\"b\\c\n\xc3\xa9\xff", 9);
    assert_string_equal(out.data, "\"a\\\"b\\\\c\\n\xc3\xa9\\ufffd\"");
    buf_free(&out);
}

static void buf_grows_and_stays_terminated(void **state)
{
    (void)state;
    struct buf buf = {0};
    for (int i = 0; i < 1000; i++)
        buf_printf(&buf, "%d,", i);
    assert_int_equal(buf.len, strlen(buf.data));
    assert_memory_equal(buf.data + buf.len - 8, "998,999,", 8);
    char *large = malloc(100001);
    memset(large, 'x', 100000);
    large[100000] = '\0';
    buf_clear(&buf);
    buf_printf(&buf, "%s%s", large, large);
    assert_int_equal(buf.len, 200000);
    free(large);
    buf_free(&buf);
    assert_null(buf.data);
}

static void uuid_round_trips(void **state)
{
    (void)state;
    uint8_t id[UUID_BYTES];
    char text[UUID_TEXT_BYTES];
    assert_int_equal(uuid_parse("00112233-4455-6677-8899-AAbbCCddEEff", 36, id), 0);
    for (int i = 0; i < UUID_BYTES; i++)
        assert_int_equal(id[i], i * 0x11);
    assert_string_equal(uuid_format(id, text), "00112233-4455-6677-8899-aabbccddeeff");
    static const char *const bad[] = {
        "",
        "00112233-4455-6677-8899-aabbccddeef",
        "00112233-4455-6677-8899-aabbccddeefff",
        "001122334-455-6677-8899-aabbccddeeff",
        "g0112233-4455-6677-8899-aabbccddeeff",
        "{0112233-4455-6677-8899-aabbccddeeff",
        "00112233-4455-6677-8899-aabbccddeef ",
        "00112233445566778899aabbccddeeff0000",
        "00112233-4455-6677-8899_aabbccddeeff",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(uuid_parse(bad[i], strlen(bad[i]), id), -EINVAL);
}

static void uuid_v7_holds_time_version_and_variant(void **state)
{
    (void)state;
    uint8_t id[UUID_BYTES], other[UUID_BYTES];
    int64_t before_ms = clock_wall_us() / 1000;
    uuid_v7(id);
    int64_t after_ms = clock_wall_us() / 1000;
    int64_t ms = 0;
    for (int i = 0; i < 6; i++)
        ms = ms << 8 | id[i];
    assert_in_range(ms, before_ms, after_ms);
    assert_int_equal(id[6] >> 4, 7);
    assert_int_equal(id[8] >> 6, 2);
    uuid_v7(other);
    assert_memory_not_equal(id, other, UUID_BYTES);
}

static void err_texts_are_one_line_and_cut(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(err_set(&err, -EIO, "a\nb %d\n", 7), -EIO);
    assert_string_equal(err.text, "a b 7");
    assert_int_equal(err_prefix(&err, "file %s", "x"), -EIO);
    assert_string_equal(err.text, "file x: a b 7");
    char large[2000];
    memset(large, 'y', sizeof(large) - 1);
    large[sizeof(large) - 1] = '\0';
    err_set(&err, -EIO, "%s", large);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
    assert_string_equal(err.text + sizeof(err.text) - 4, "...");
    err_set(&err, 0, "a\x1b[2J\x7f \xff\xfe gr\xc3\xbc\xc3\x9f \xc2\x9b b");
    assert_string_equal(err.text, "a?[2J? ?? gr\xc3\xbc\xc3\x9f ?? b");
    assert_int_equal(err_set(NULL, -EPERM, "nobody listens"), -EPERM);
}

static void files_are_written_whole_and_trees_removed(void **state)
{
    (void)state;
    char folder[] = "/tmp/sluice-test-XXXXXX";
    assert_non_null(mkdtemp(folder));
    struct err err = {0};
    char *deep = xasprintf("%s/a/b/c", folder);
    char *file = xasprintf("%s/a/b/c/f", folder);
    char *link_path = xasprintf("%s/a/link", folder);
    char *outside = xasprintf("%s-outside", folder);
    assert_int_equal(file_mkdirs(deep, 0755, &err), 0);
    assert_int_equal(file_mkdirs(deep, 0755, &err), 0);
    assert_int_equal(file_write(file, "one", 3, &err), 0);
    assert_int_equal(file_write(file, "twice", 5, &err), 0);
    struct buf got = {0};
    assert_int_equal(file_read(file, 5, &got, &err), 0);
    assert_string_equal(got.data, "twice");
    buf_clear(&got);
    assert_int_equal(file_read(file, 4, &got, &err), -EFBIG);
    assert_int_equal(file_mkdirs(file, 0755, &err), -ENOTDIR);
    assert_non_null(strstr(err.text, file));
    assert_int_equal(file_write(outside, "keep", 4, &err), 0);
    assert_int_equal(symlink(outside, link_path), 0);
    assert_int_equal(file_remove_tree(folder, &err), 0);
    assert_false(file_exists(folder));
    assert_true(file_exists(outside)); /* the link went, what it pointed at did not */
    assert_int_equal(unlink(outside), 0);
    buf_free(&got);
    free(deep);
    free(file);
    free(link_path);
    free(outside);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_takes_what_rfc_8259_takes),
        cmocka_unit_test(json_refuses_everything_else),
        cmocka_unit_test(json_depth_is_bounded),
        cmocka_unit_test(json_every_prefix_of_an_object_is_refused),
        cmocka_unit_test(json_error_names_the_byte),
        cmocka_unit_test(escaped_strings_are_json_whatever_they_hold),
        cmocka_unit_test(buf_grows_and_stays_terminated),
        cmocka_unit_test(uuid_round_trips),
        cmocka_unit_test(uuid_v7_holds_time_version_and_variant),
        cmocka_unit_test(err_texts_are_one_line_and_cut),
        cmocka_unit_test(files_are_written_whole_and_trees_removed),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}

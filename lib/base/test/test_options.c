/* Oracle: options.h, case by case: which source wins, which texts are taken, what an error names.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/options.h"

static const struct option_spec table[] = {
    {"dir", OPTION_STRING, "DIR", NULL, true, "where it lies", 0, 0, NULL},
    {"safe", OPTION_BOOL, NULL, "yes", false, "be safe", 0, 0, NULL},
    {"lanes", OPTION_INT, "N", "20", false, "lanes", 1, 100, NULL},
    {"rate", OPTION_DECIMAL, "R", "0.5", false, "rate", 0, 0, NULL},
    {"wait", OPTION_DURATION, "DURATION", "500us", false, "wait", 0, 0, NULL},
    {"quota", OPTION_SIZE, "SIZE", "64MiB", false, "quota", 0, 0, NULL},
    {"db-url", OPTION_URL, "URL", NULL, false, "database", 0, 0, NULL},
    {"pacing", OPTION_CHOICE, NULL, "paced", false, "pacing", 0, 0, "paced|burst"},
    {"phase", OPTION_LIST, "P", NULL, false, "phases", 0, 0, NULL},
    {NULL, OPTION_STRING, NULL, NULL, false, NULL, 0, 0, NULL},
};

static int parse(struct options **options, struct err *err, int argc, char *const argv[])
{
    *options = options_new("prog", "prog: a program");
    options_add(*options, "Things", table);
    return options_parse(*options, argc, argv, err);
}
#define PARSE(options, err, ...)                                                                   \
    parse(options, err, (int)(sizeof((char *[]){"prog", __VA_ARGS__}) / sizeof(char *)),           \
          (char *[]){"prog", __VA_ARGS__})

static void clear_environment(void)
{
    unsetenv("SLUICE_LANES");
    unsetenv("SLUICE_DB_URL");
    unsetenv("SLUICE_PHASE");
}

static void flag_beats_variable_beats_default(void **state)
{
    (void)state;
    struct options *o;
    struct err err = {0};
    clear_environment();
    assert_int_equal(PARSE(&o, &err, "x"), OPTIONS_OK);
    assert_int_equal(options_int(o, "lanes"), 20);
    assert_false(options_is_set(o, "lanes"));
    options_free(o);
    setenv("SLUICE_LANES", "30", 1);
    assert_int_equal(PARSE(&o, &err, "x"), OPTIONS_OK);
    assert_int_equal(options_int(o, "lanes"), 30);
    assert_true(options_is_set(o, "lanes"));
    options_free(o);
    assert_int_equal(PARSE(&o, &err, "--lanes=40"), OPTIONS_OK);
    assert_int_equal(options_int(o, "lanes"), 40);
    options_free(o);
    setenv("SLUICE_LANES", "many", 1);
    assert_int_equal(PARSE(&o, &err, "x"), -EINVAL);
    assert_non_null(strstr(err.text, "SLUICE_LANES"));
    options_free(o);
    clear_environment();
}

static void every_type_reads_its_own_form(void **state)
{
    (void)state;
    struct options *o;
    struct err err = {0};
    clear_environment();
    assert_int_equal(PARSE(&o, &err, "a", "--dir", "/x y", "--no-safe", "--rate=1.25",
                           "--wait=1.5s", "--quota=2GiB", "--pacing=burst", "--phase=p1", "--phase",
                           "p2", "--db-url=postgresql://u@h/db", "--", "--b"),
                     OPTIONS_OK);
    assert_string_equal(options_string(o, "dir"), "/x y");
    assert_false(options_bool(o, "safe"));
    assert_true(options_decimal(o, "rate") == 1.25);
    assert_int_equal(options_duration_ns(o, "wait"), 1500000000);
    assert_int_equal(options_size_bytes(o, "quota"), 2LL << 30);
    assert_string_equal(options_string(o, "pacing"), "burst");
    size_t count;
    const char *const *list = options_list(o, "phase", &count);
    assert_int_equal(count, 2);
    assert_string_equal(list[1], "p2");
    const char *const *args = options_args(o, &count);
    assert_int_equal(count, 2);
    assert_string_equal(args[0], "a");
    assert_string_equal(args[1], "--b");
    options_free(o);
}

static void flags_replace_a_list_from_the_environment(void **state)
{
    (void)state;
    struct options *o;
    struct err err = {0};
    size_t count;
    setenv("SLUICE_PHASE", "env", 1);
    assert_int_equal(PARSE(&o, &err, "x"), OPTIONS_OK);
    assert_string_equal(options_list(o, "phase", &count)[0], "env");
    options_free(o);
    assert_int_equal(PARSE(&o, &err, "--phase=flag"), OPTIONS_OK);
    assert_string_equal(options_list(o, "phase", &count)[0], "flag");
    assert_int_equal(count, 1);
    options_free(o);
    clear_environment();
}

/* The file beats defaults only; a list of a higher source replaces that of the file. */
static struct options *parse_with_file(const char *text, const char *flag, int *result,
                                       struct err *err)
{
    char path[] = "/tmp/sluice-options-XXXXXX", option[64];
    int fd = mkstemp(path);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    struct options *o = options_new("prog", "prog: a program");
    options_add(o, "Things", table);
    options_add(o, "Things", options_file_table);
    snprintf(option, sizeof(option), "--options-file=%s", path);
    char *argv[] = {(char[]){"prog"}, option, (char *)(uintptr_t)flag, NULL};
    *result = options_parse(o, flag ? 3 : 2, argv, err);
    unlink(path);
    return o;
}

static void a_file_of_settings_beats_defaults_only(void **state)
{
    (void)state;
    struct err err = {0};
    size_t count;
    int result;
    clear_environment();
    const char *text = "# as stated by the scenario\n\n  lanes = 7 \r\nwait=2s\nphase=a:1s:1\n"
                       "phase=b:2s:0.5\n\tsafe=no\ndir=/a = b\ndb-url=postgresql://u:pw@h/db";
    struct options *o = parse_with_file(text, NULL, &result, &err);
    assert_int_equal(result, OPTIONS_OK);
    assert_int_equal(options_int(o, "lanes"), 7);
    assert_true(options_is_set(o, "lanes"));
    assert_int_equal(options_duration_ns(o, "wait"), 2000000000);
    assert_false(options_bool(o, "safe"));
    assert_string_equal(options_string(o, "dir"), "/a = b");
    assert_string_equal(options_string(o, "db-url"), "postgresql://u:pw@h/db");
    assert_string_equal(options_list(o, "phase", &count)[1], "b:2s:0.5");
    assert_int_equal(count, 2);
    options_free(o);
    setenv("SLUICE_LANES", "30", 1);
    setenv("SLUICE_PHASE", "env", 1);
    o = parse_with_file(text, "--wait=3s", &result, &err);
    assert_int_equal(result, OPTIONS_OK);
    assert_int_equal(options_int(o, "lanes"), 30);
    assert_int_equal(options_duration_ns(o, "wait"), 3000000000);
    assert_string_equal(options_list(o, "phase", &count)[0], "env");
    assert_int_equal(count, 1);
    options_free(o);
    o = parse_with_file(text, "--phase=flag", &result, &err);
    assert_string_equal(options_list(o, "phase", &count)[0], "flag");
    assert_int_equal(count, 1);
    options_free(o);
    clear_environment();
    assert_int_equal(PARSE(&o, &err, "--options-file=x"), -EINVAL); /* only who adds its table */
    options_free(o);
}

static void the_environment_may_name_the_file(void **state)
{
    (void)state;
    struct err err = {0};
    clear_environment();
    setenv("SLUICE_OPTIONS_FILE", "/nonexistent/worker.options", 1);
    struct options *o = options_new("prog", "prog: a program");
    options_add(o, "Things", options_file_table);
    char *argv[] = {(char[]){"prog"}, NULL};
    assert_int_equal(options_parse(o, 1, argv, &err), -EINVAL);
    assert_non_null(strstr(err.text, "--options-file: cannot open /nonexistent/worker.options"));
    options_free(o);
    unsetenv("SLUICE_OPTIONS_FILE");
}

static void mistakes_in_the_file_name_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"lanes=0", ":1: lanes: it must be 1 to 100"},
        {"\n# x\nlane=5\n", ":3: there is no setting \"lane\""},
        {"lanes", ":1: \"lanes\" is not name=value"},
        {"=5", ":1: there is no setting \"\""},
        {"lanes=5\nlanes=6\n", ":2: lanes is set twice"},
        {"options-file=x", ":1: there is no setting"},
        {"--lanes=5", ":1: there is no setting"},
        {"lanes=", ":1: lanes: "},
    };
    clear_environment();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = {0};
        int result;
        struct options *o = parse_with_file(cases[i].text, NULL, &result, &err);
        assert_int_equal(result, -EINVAL);
        if (!strstr(err.text, cases[i].says))
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].text, err.text, cases[i].says);
        options_free(o);
    }
}

static void mistakes_name_flag_and_what_it_takes(void **state)
{
    (void)state;
    static const struct {
        const char *argument, *says;
    } cases[] = {
        {"--lanes=0", "it must be 1 to 100"},
        {"--lanes=1.5", "not a whole number"},
        {"--lanes=99999999999999999999", "too large"},
        {"--lanes", "--lanes=N"},
        {"--wait=5", "500us, 60ms"},
        {"--wait=-5s", "--wait"},
        {"--wait=1e3s", "--wait"},
        {"--quota=5Mb", "256KiB"},
        {"--rate=inf", "not a number"},
        {"--rate=-1", "negative"},
        {"--safe=maybe", "neither yes nor no"},
        {"--pacing=slow", "paced|burst"},
        {"--lane=5", "--help"},
        {"--no-lanes", "unknown flag"},
        {"-l", "--name=value"},
        {"--db-url=postgresql://u:secret@h/db", "environment"},
        {"--db-url=host=h password=secret", "environment"},
        {"--db-url=@/nonexistent/file", "/nonexistent/file"},
    };
    clear_environment();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct options *o;
        struct err err = {0};
        assert_int_equal(PARSE(&o, &err, (char *)(uintptr_t)cases[i].argument), -EINVAL);
        if (!strstr(err.text, cases[i].says))
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].argument, err.text, cases[i].says);
        assert_null(strstr(err.text, "secret"));
        options_free(o);
    }
}

static void passwords_come_by_environment_or_file_and_are_never_shown(void **state)
{
    (void)state;
    struct options *o;
    struct err err = {0};
    setenv("SLUICE_DB_URL", "postgresql://u:s3cret@h/db?password=s3cret&x=1", 1);
    assert_int_equal(PARSE(&o, &err, "x"), OPTIONS_OK);
    assert_string_equal(options_string(o, "db-url"),
                        "postgresql://u:s3cret@h/db?password=s3cret&x=1");
    struct buf json = {0};
    options_json(o, &json);
    assert_null(strstr(json.data, "s3cret"));
    assert_non_null(strstr(json.data, "\"db-url\": \"postgresql://u:***@h/db?password=***&x=1\""));
    options_free(o);
    clear_environment();
    char path[] = "/tmp/sluice-url-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "redis://:pw@h\nsecond\n", 21), 21);
    close(fd);
    char flag[64];
    snprintf(flag, sizeof(flag), "--db-url=@%s", path);
    assert_int_equal(PARSE(&o, &err, flag), OPTIONS_OK);
    assert_string_equal(options_string(o, "db-url"), "redis://:pw@h");
    options_free(o);
    unlink(path);
    buf_free(&json);
}

static void redaction_keeps_everything_but_the_password(void **state)
{
    (void)state;
    static const struct {
        const char *url, *shown;
    } cases[] = {
        {"postgresql://u:p@h:5/db", "postgresql://u:***@h:5/db"},
        {"postgresql://u@h:5/db", "postgresql://u@h:5/db"},
        {"amqps://u:p@ss@h/v", "amqps://u:***@h/v"},
        {"redis://:p@h", "redis://:***@h"},
        {"amqp://u:a/b@h/v", "amqp://u:***@h/v"},
        {"postgresql://u:p@ss/w:rd@h:5/db", "postgresql://u:***@h:5/db"},
        {"postgresql://u:p@ss?w#rd@h:5/db", "postgresql://u:***@h:5/db"},
        {"postgresql://u:12/34@h:5/db", "postgresql://u:***@h:5/db"},
        {"postgresql://us@er:p@h/db", "postgresql://us@er:***@h/db"},
        {"postgresql://us@er:p/w@h/db", "postgresql://us@er:***@h/db"},
        {"postgresql://u:@h/db", "postgresql://u:***@h/db"},
        {"postgresql://h:5/db", "postgresql://h:5/db"},
        {"postgresql://u@h:5/db?user=a@b", "postgresql://u@h:5/db?user=a@b"},
        {"host=h password=p user=u", "host=h password=*** user=u"},
        {"host=h password='p \\' q' user=u", "host=h password=*** user=u"},
        {"postgresql://h/db?PASSWORD=p", "postgresql://h/db?PASSWORD=***"},
    };
    char shown[128];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(url_redact(cases[i].url, shown, sizeof(shown)), cases[i].shown);
    assert_string_equal(url_redact("postgresql://u:p@h", shown, 8), "postgre");
}

/* Half of it would be the name of a host, in every library another half. */
static void a_password_must_be_fit_for_a_url(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "p@ss/w:rd", "p/w", "p:w", "p?w", "p#w", "p w", "p%w", "p%4", "p[w]", "p\\w", "p\303\244w",
    };
    static const char *const good[] = {
        "redis://:local-main@h", "redis://:a%40b%2Fc@h", "redis://:a!b$c&d'e(f)*+,;=~._-@h",
        "redis://h:6379/0",      "redis://u@h:6379",     "redis://h:6379/0?user=a@b",
        "redis://:@h",
    };
    struct err err;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct options *o;
        char *url = xasprintf("redis://u:%s@h:6379", bad[i]);
        setenv("SLUICE_DB_URL", url, 1);
        assert_int_equal(PARSE(&o, &err, "x"), -EINVAL);
        assert_non_null(strstr(err.text, "SLUICE_DB_URL"));
        assert_non_null(strstr(err.text, "%40"));
        assert_null(strstr(err.text, bad[i]));
        unsetenv("SLUICE_DB_URL");
        options_free(o);
        free(url);
    }
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct options *o;
        setenv("SLUICE_DB_URL", good[i], 1);
        assert_int_equal(PARSE(&o, &err, "x"), OPTIONS_OK);
        assert_string_equal(options_string(o, "db-url"), good[i]);
        unsetenv("SLUICE_DB_URL");
        options_free(o);
    }
}

static void required_settings_are_asked_for(void **state)
{
    (void)state;
    struct options *o;
    struct err err = {0};
    assert_int_equal(PARSE(&o, &err, "x"), OPTIONS_OK);
    assert_int_equal(options_require(o, table, &err), -EINVAL);
    assert_string_equal(err.text, "--dir=DIR is needed (or SLUICE_DIR): where it lies");
    assert_int_equal(options_set(o, "dir", "/d", "--set", &err), 0);
    assert_int_equal(options_require(o, table, &err), 0);
    assert_int_equal(options_set(o, "dirt", "/d", "--set", &err), -EINVAL);
    options_free(o);
}

/* Each end reads back as itself: what is printed may be typed. */
static void ranges_are_shown_as_they_are_typed(void **state)
{
    (void)state;
    static const struct option_spec ranges[] = {
        {"segment", OPTION_SIZE, "SIZE", NULL, false, "size", 4 << 20, 1LL << 40, NULL},
        {"odd", OPTION_SIZE, "SIZE", NULL, false, "odd", 1025, 1000000, NULL},
        {"pause", OPTION_DURATION, "DURATION", NULL, false, "pause", 1500000, 3600000000000, NULL},
        {"zero", OPTION_DURATION, "DURATION", NULL, false, "zero", 0, 90000000000, NULL},
        {"level", OPTION_INT, "N", NULL, false, "level", -5, 5, NULL},
        {"floor", OPTION_SIZE, "SIZE", NULL, false, "floor", 16 << 20, INT64_MAX, NULL},
        {"free", OPTION_INT, "N", NULL, false, "free", 0, 0, NULL},
        {NULL, OPTION_STRING, NULL, NULL, false, NULL, 0, 0, NULL},
    };
    static const char *const says[] = {
        "size; 4MiB to 1TiB\n",
        "odd; 1025B to 1MB\n",
        "pause; 1500us to 1h\n",
        "zero; 0 to 90s\n",
        "level; -5 to 5\n",
        "floor; at least 16MiB\n",
        "free\n",
        "| `--segment` | `SLUICE_SEGMENT` | SIZE, 4MiB to 1TiB | ",
        "| `--free` | `SLUICE_FREE` | N | ",
    };
    struct options *o = options_new("prog", "prog: a program");
    struct err err = {0};
    options_add(o, "Ranges", ranges);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    options_help(o, out);
    options_markdown(o, out);
    fclose(out);
    for (size_t i = 0; i < sizeof(says) / sizeof(says[0]); i++)
        if (!strstr(text, says[i]))
            fail_msg("\"%s\" is missing in:\n%s", says[i], text);
    free(text);
    assert_int_equal(options_set(o, "segment", "1MiB", "--segment", &err), -EINVAL);
    assert_string_equal(err.text, "--segment: it must be 4MiB to 1TiB");
    assert_int_equal(options_set(o, "segment", "4MiB", "--segment", &err), 0);
    assert_int_equal(options_set(o, "segment", "1TiB", "--segment", &err), 0);
    assert_int_equal(options_set(o, "odd", "1025B", "--odd", &err), 0);
    assert_int_equal(options_set(o, "odd", "1MB", "--odd", &err), 0);
    assert_int_equal(options_set(o, "pause", "1500us", "--pause", &err), 0);
    options_free(o);
}

static void help_and_version_win_over_mistakes(void **state)
{
    (void)state;
    struct options *o;
    struct err err = {0};
    assert_int_equal(PARSE(&o, &err, "--lanes=0", "--help"), OPTIONS_HELP);
    options_free(o);
    assert_int_equal(PARSE(&o, &err, "--version"), OPTIONS_VERSION);
    options_free(o);
    assert_int_equal(PARSE(&o, &err, "--", "--help"), OPTIONS_OK);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    options_help(o, out);
    options_markdown(o, out);
    fclose(out);
    assert_non_null(strstr(text, "--lanes=N"));
    assert_non_null(strstr(text, "[20]"));
    assert_non_null(strstr(text, "| `--wait` | `SLUICE_WAIT` | DURATION | 500us | wait |"));
    assert_non_null(strstr(text, "| paced, burst |"));
    free(text);
    options_free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flag_beats_variable_beats_default),
        cmocka_unit_test(every_type_reads_its_own_form),
        cmocka_unit_test(flags_replace_a_list_from_the_environment),
        cmocka_unit_test(a_file_of_settings_beats_defaults_only),
        cmocka_unit_test(the_environment_may_name_the_file),
        cmocka_unit_test(mistakes_in_the_file_name_its_line),
        cmocka_unit_test(mistakes_name_flag_and_what_it_takes),
        cmocka_unit_test(passwords_come_by_environment_or_file_and_are_never_shown),
        cmocka_unit_test(redaction_keeps_everything_but_the_password),
        cmocka_unit_test(a_password_must_be_fit_for_a_url),
        cmocka_unit_test(required_settings_are_asked_for),
        cmocka_unit_test(ranges_are_shown_as_they_are_typed),
        cmocka_unit_test(help_and_version_win_over_mistakes),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}

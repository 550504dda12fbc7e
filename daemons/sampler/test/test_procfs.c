/* Oracle: proc(5), and lines copied from a running kernel whose figures were read off by hand. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "procfs.h"

static const char ordinary[] =
    "1963 (cat) R 1946 1946 3179 0 -1 4194304 99 0 0 0 11 22 333 444 20 0 1 0 128751 3133440 388 "
    "18446744073709551615 94401901850624 94401901870505 140726719161168 0 0 0 0 0 0 0 0 0 17 1 0 0 "
    "0 0 0 94401901886512 94401901888128 94402078294016 140726719163003 140726719163023 "
    "140726719163023 140726719164395 0\n";

static void test_stat_of_an_ordinary_process(void **state)
{
    (void)state;
    struct proc_stat stat;
    assert_int_equal(proc_parse_stat(ordinary, strlen(ordinary), &stat), 0);
    assert_int_equal(stat.pid, 1963);
    assert_int_equal(stat.parent, 1946);
    assert_int_equal(stat.state, 'R');
    assert_int_equal(stat.own_ticks, 33);
    assert_int_equal(stat.reaped_ticks, 777);
    assert_int_equal(stat.start_ticks, 128751);
    assert_int_equal(stat.rss_pages, 388);
}

static void test_stat_with_a_name_made_to_confuse(void **state)
{
    (void)state;
    static const char *const names[] = {"tmux: server", "a) R 1 (b", "((sd-pam))", ") S 9 9",
                                        "x\ny)"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char text[512];
        int len =
            snprintf(text, sizeof(text),
                     "77 (%s) S 5 0 0 0 -1 0 0 0 0 0 7 8 9 10 20 0 1 0 4242 1 6 0\n", names[i]);
        struct proc_stat stat;
        assert_int_equal(proc_parse_stat(text, (size_t)len, &stat), 0);
        assert_int_equal(stat.parent, 5);
        assert_int_equal(stat.own_ticks, 15);
        assert_int_equal(stat.reaped_ticks, 19);
        assert_int_equal(stat.start_ticks, 4242);
        assert_int_equal(stat.rss_pages, 6);
    }
}

/* Whatever is cut off, no figure may come out of it: a number that ends where the text ends may
 * have lost digits. */
static void test_stat_cut_at_every_byte(void **state)
{
    (void)state;
    size_t needed = (size_t)(strstr(ordinary, " 388 ") + 5 - ordinary);
    for (size_t len = 0; len < strlen(ordinary); len++) {
        struct proc_stat stat;
        int expected = len >= needed ? 0 : -EBADMSG;
        assert_int_equal(proc_parse_stat(ordinary, len, &stat), expected);
    }
}

static void test_stat_that_is_none(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "\n",
        "x (y) S 1",
        "1 y S 1 0 0 0 -1 0 0 0 0 0 7 8 9 10 20 0 1 0 4242 1 6 0\n",
        "1 (y) S x 0 0 0 -1 0 0 0 0 0 7 8 9 10 20 0 1 0 4242 1 6 0\n",
        "1 (y) S 5 0 0 0 -1 0 0 0 0 0 -7 8 9 10 20 0 1 0 4242 1 6 0\n",
        "1 (y) S 5 0 0 0 -1 0 0 0 0 0 99999999999999999999 8 9 10 20 0 1 0 4242 1 6 0\n",
        "99999999999 (y) S 5 0 0 0 -1 0 0 0 0 0 7 8 9 10 20 0 1 0 4242 1 6 0\n",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct proc_stat stat;
        assert_int_equal(proc_parse_stat(bad[i], strlen(bad[i]), &stat), -EBADMSG);
    }
}

static void test_io(void **state)
{
    (void)state;
    const char *text = "rchar: 6976\nwchar: 5\nsyscr: 10\nsyscw: 0\nread_bytes: 4096\nwrite_bytes: "
                       "18446744073709551615\n"
                       "cancelled_write_bytes: 8192\n";
    struct proc_io io;
    assert_int_equal(proc_parse_io(text, strlen(text), &io), 0);
    assert_int_equal(io.read_bytes, 4096);
    assert_true(io.write_bytes == UINT64_MAX);
    size_t needed = (size_t)(strstr(text, "cancelled") - text);
    for (size_t len = 0; len < needed; len++)
        assert_int_equal(proc_parse_io(text, len, &io), -EBADMSG);
}

static void test_pss(void **state)
{
    (void)state;
    const char *text =
        "55cf5a7f6000-7ffd3a51c000 ---p 00000000 00:00 0   [rollup]\nRss:                1676 kB\n"
        "Pss:                 289 kB\nPss_Dirty:           116 kB\n";
    uint64_t bytes = 0;
    assert_int_equal(proc_parse_pss(text, strlen(text), &bytes), 0);
    assert_int_equal(bytes, 289 * 1024);
    assert_int_equal(proc_parse_pss("Pss_Dirty: 116 kB\n", 18, &bytes), -EBADMSG);
}

static void test_this_process_in_the_real_proc(void **state)
{
    (void)state;
    struct proc_stat stat;
    assert_int_equal(proc_read_stat("/proc", getpid(), &stat), 0);
    assert_int_equal(stat.pid, getpid());
    assert_int_equal(stat.parent, getppid());
    struct proc_table table = {0};
    assert_int_equal(proc_table_read(&table, "/proc"), 0);
    const struct proc_stat *found = proc_table_find(&table, getpid());
    assert_non_null(found);
    assert_true(found->start_ticks == stat.start_ticks);
    for (size_t i = 1; i < table.count; i++)
        assert_true(table.items[i - 1].pid < table.items[i].pid);
    proc_table_free(&table);
    assert_true(proc_read_stat("/proc", INT32_MAX, &stat) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stat_of_an_ordinary_process),
        cmocka_unit_test(test_stat_with_a_name_made_to_confuse),
        cmocka_unit_test(test_stat_cut_at_every_byte),
        cmocka_unit_test(test_stat_that_is_none),
        cmocka_unit_test(test_io),
        cmocka_unit_test(test_pss),
        cmocka_unit_test(test_this_process_in_the_real_proc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

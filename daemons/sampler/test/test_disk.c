/* Oracle: lines of a running kernel whose figures were read off by the kernel's own description
 * (Documentation/admin-guide/iostats.rst); a folder that looks like /sys. */
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
#include "base/file.h"
#include "disk.h"
#include "fake_proc.h"

static const char lines[] =
    "   7       0 loop0 160 20 1650 10 25175 3333 757494 15336 0 12464 26064 0 0 0 0 12005 10717\n"
    " 254       1 vda1 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n"
    " 254       0 vda 1048053 67433 20846666 731751 21296863 2248679 792213120 4448613 0 1799200 "
    "6221755 7426703 207 576235992 561799 6326559 479591\n"
    "   8       0 sda 1 2 3 4 5 6 7 8 9 10 11\n";

static void test_parse(void **state)
{
    (void)state;
    struct disk_totals totals;
    size_t len = strlen(lines);
    assert_int_equal(disk_parse(lines, len, "vda", &totals), 0);
    assert_true(totals.read_bytes == 20846666ULL * 512);
    assert_true(totals.write_bytes == 792213120ULL * 512);
    assert_true(totals.flushes_known && totals.flushes == 6326559);
    assert_int_equal(disk_parse(lines, len, "sda", &totals), 0); /* a kernel before 4.18 */
    assert_true(totals.write_bytes == 7 * 512 && !totals.flushes_known);
    assert_int_equal(disk_parse(lines, len, "vd", &totals), -ENOENT);
    assert_int_equal(disk_parse(lines, len - 1, "sda", &totals), -ENOENT); /* cut short */
    assert_int_equal(disk_parse("1 0 a 1 2 3\n", 12, "a", &totals), -EBADMSG);
    assert_int_equal(disk_parse("1 0 a 1 2 3 4 5 6 -7\n", 21, "a", &totals), -EBADMSG);
}

static void put(const char *root, const char *name, const char *text)
{
    char *path = xasprintf("%s/%s", root, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(file_mkdirs(path, 0755, NULL), 0);
    *slash = '/';
    assert_int_equal(file_write(path, text, strlen(text), NULL), 0);
    free(path);
}

static void put_link(const char *root, const char *name, const char *target)
{
    char *path = xasprintf("%s/%s", root, name);
    put(root, name, "");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(target, path), 0);
    free(path);
}

static void test_find(void **state)
{
    (void)state;
    char *root = fake_proc_new(), name[DISK_NAME_BYTES];
    struct err err = {0};
    put(root, "devices/pci/vda/size", "1");
    put(root, "devices/pci/vda/vda1/partition", "1");
    put(root, "devices/virtual/dm-0/slaves/vda1", "");
    put(root, "devices/virtual/md0/slaves/vda", "");
    put(root, "devices/virtual/md0/slaves/vdb", "");
    put_link(root, "class/block/vda1", "../../devices/pci/vda/vda1");
    put_link(root, "dev/block/254:0", "../../devices/pci/vda");
    put_link(root, "dev/block/254:1", "../../devices/pci/vda/vda1");
    put_link(root, "dev/block/253:0", "../../devices/virtual/dm-0");
    put_link(root, "dev/block/9:0", "../../devices/virtual/md0");
    static const unsigned numbers[][2] = {{254, 0}, {254, 1}, {253, 0}};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(disk_find_number(root, numbers[i][0], numbers[i][1], name, &err), 0);
        assert_string_equal(name, "vda");
    }
    assert_int_equal(disk_find_number(root, 9, 0, name, &err), -ENODEV);
    assert_non_null(strstr(err.text, "several disks"));
    assert_int_equal(disk_find_number(root, 0, 25, name, &err), -ENODEV); /* tmpfs and its like */
    assert_int_equal(disk_find(root, "/nonexistent", name, &err), -ENOENT);
    fake_proc_free(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parse), cmocka_unit_test(test_find)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

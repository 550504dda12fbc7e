/* Oracle: figures added up by hand for made-up processes, and, for the random histories, a model
 * that knows what every process ever used and what the kernel moves to a parent that waits. */
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "fake_proc.h"
#include "part.h"
#include "tree.h"

struct fixture {
    char *proc_root;
    struct tree *tree;
    struct proc_table table;
    int64_t now_ns;
};

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof(*fixture));
    fixture->proc_root = fake_proc_new();
    fixture->tree = tree_new(fixture->proc_root);
    fixture->now_ns = 1;
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    tree_free(fixture->tree);
    proc_table_free(&fixture->table);
    fake_proc_free(fixture->proc_root);
    free(fixture);
    return 0;
}

static struct tree_sample look(struct fixture *fixture, pid_t root)
{
    struct tree_sample sample;
    assert_int_equal(proc_table_read(&fixture->table, fixture->proc_root), 0);
    fixture->now_ns += 3600 * NS_PER_S; /* so that PSS is read every time */
    tree_update(fixture->tree, &fixture->table, root, fixture->now_ns, &sample);
    return sample;
}

static void test_tree_counts_descendants_only(void **state)
{
    struct fixture *f = *state;
    fake_proc_put(f->proc_root, &(struct fake_process){.pid = 500,
                                                       .parent = 1,
                                                       .own_ticks = 10,
                                                       .start_ticks = 1,
                                                       .rss_pages = 2,
                                                       .read_bytes = 1,
                                                       .write_bytes = 100,
                                                       .pss_kib = 8});
    /* Pids wrap: a child's may be lower. */
    fake_proc_put(f->proc_root, &(struct fake_process){.pid = 40,
                                                       .parent = 500,
                                                       .own_ticks = 20,
                                                       .start_ticks = 2,
                                                       .rss_pages = 3,
                                                       .read_bytes = 2,
                                                       .write_bytes = 200,
                                                       .pss_kib = 16});
    fake_proc_put(f->proc_root, &(struct fake_process){.pid = 30,
                                                       .parent = 40,
                                                       .own_ticks = 40,
                                                       .start_ticks = 3,
                                                       .read_bytes = 4,
                                                       .write_bytes = 400,
                                                       .pss_kib = 32});
    fake_proc_put(
        f->proc_root,
        &(struct fake_process){
            .pid = 600, .parent = 1, .own_ticks = 999, .start_ticks = 1, .write_bytes = 9999});
    struct tree_sample sample = look(f, 500);
    assert_int_equal(sample.processes, 3);
    assert_int_equal(sample.cpu_ticks, 70);
    assert_true(sample.io_known);
    assert_int_equal(sample.read_bytes, 7);
    assert_int_equal(sample.write_bytes, 700);
    assert_int_equal(sample.memory_kind, TREE_MEMORY_PSS);
    assert_int_equal(sample.memory_bytes, 56 * 1024);
    size_t count;
    tree_pids(f->tree, &count);
    assert_int_equal(count, 3);
}

static void test_one_process_is_its_rss(void **state)
{
    struct fixture *f = *state;
    fake_proc_put(f->proc_root,
                  &(struct fake_process){
                      .pid = 50, .parent = 1, .rss_pages = 7, .start_ticks = 1, .pss_kib = 1});
    struct tree_sample sample = look(f, 50);
    assert_int_equal(sample.memory_kind, TREE_MEMORY_RSS);
    assert_int_equal(sample.memory_bytes, 7 * sysconf(_SC_PAGESIZE));
}

/* A waited-for child's time appears in its parent: once in the total, with what it used at its end.
 */
static void test_reaped_child_is_not_counted_twice(void **state)
{
    struct fixture *f = *state;
    struct fake_process parent = {
        .pid = 10, .parent = 1, .own_ticks = 5, .start_ticks = 1, .write_bytes = 10};
    struct fake_process child = {
        .pid = 11, .parent = 10, .own_ticks = 100, .start_ticks = 2, .write_bytes = 1000};
    fake_proc_put(f->proc_root, &parent);
    fake_proc_put(f->proc_root, &child);
    assert_int_equal(look(f, 10).cpu_ticks, 105);
    fake_proc_end(f->proc_root, 11);
    parent.own_ticks = 6;
    parent.reaped_ticks = 103; /* 3 more after the last look */
    parent.write_bytes = 10 + 1005;
    fake_proc_put(f->proc_root, &parent);
    struct tree_sample sample = look(f, 10);
    assert_int_equal(sample.cpu_ticks, 6 + 103);
    assert_int_equal(sample.write_bytes, 10 + 1005);
    assert_int_equal(sample.processes, 1);
    assert_int_equal(look(f, 10).cpu_ticks, 6 + 103);
}

/* The parent was read before it waited, the child after: the next look explains it. */
static void test_child_reaped_in_the_middle_of_a_look(void **state)
{
    struct fixture *f = *state;
    struct fake_process parent = {
        .pid = 10, .parent = 1, .own_ticks = 5, .start_ticks = 1, .write_bytes = 10};
    fake_proc_put(f->proc_root, &parent);
    fake_proc_put(
        f->proc_root,
        &(struct fake_process){
            .pid = 11, .parent = 10, .own_ticks = 100, .start_ticks = 2, .write_bytes = 1000});
    look(f, 10);
    fake_proc_end(f->proc_root, 11);
    assert_int_equal(look(f, 10).cpu_ticks, 105);
    parent.reaped_ticks = 100;
    parent.write_bytes = 1010;
    fake_proc_put(f->proc_root, &parent);
    struct tree_sample sample = look(f, 10);
    assert_int_equal(sample.cpu_ticks, 105);
    assert_int_equal(sample.write_bytes, 1010);
}

/* A grandchild and then the child end between two looks: all of it arrives in the grandparent. */
static void test_two_generations_end_at_once(void **state)
{
    struct fixture *f = *state;
    struct fake_process top = {.pid = 10, .parent = 1, .own_ticks = 1, .start_ticks = 1};
    fake_proc_put(f->proc_root, &top);
    fake_proc_put(f->proc_root, &(struct fake_process){
                                    .pid = 11, .parent = 10, .own_ticks = 20, .start_ticks = 2});
    fake_proc_put(f->proc_root, &(struct fake_process){
                                    .pid = 12, .parent = 11, .own_ticks = 300, .start_ticks = 3});
    assert_int_equal(look(f, 10).cpu_ticks, 321);
    fake_proc_end(f->proc_root, 11);
    fake_proc_end(f->proc_root, 12);
    top.reaped_ticks = 325;
    fake_proc_put(f->proc_root, &top);
    assert_int_equal(look(f, 10).cpu_ticks, 326);
}

/* Nobody in the tree waits for its root: what it used stays in the total when another takes over.
 */
static void test_killed_and_started_again(void **state)
{
    struct fixture *f = *state;
    fake_proc_put(f->proc_root,
                  &(struct fake_process){
                      .pid = 10, .parent = 1, .own_ticks = 50, .start_ticks = 1, .write_bytes = 7});
    look(f, 10);
    fake_proc_end(f->proc_root, 10);
    struct tree_sample sample = look(f, 0);
    assert_int_equal(sample.processes, 0);
    assert_int_equal(sample.cpu_ticks, 50);
    assert_int_equal(sample.memory_kind, TREE_MEMORY_NONE);
    assert_int_equal(sample.memory_bytes, 0);
    fake_proc_put(f->proc_root,
                  &(struct fake_process){
                      .pid = 20, .parent = 1, .own_ticks = 2, .start_ticks = 9, .write_bytes = 3});
    sample = look(f, 20);
    assert_int_equal(sample.cpu_ticks, 52);
    assert_int_equal(sample.write_bytes, 10);
    assert_int_equal(sample.processes, 1);
}

/* The kernel gave the pid of a member to a stranger. */
static void test_pid_used_again(void **state)
{
    struct fixture *f = *state;
    struct fake_process parent = {.pid = 10, .parent = 1, .own_ticks = 5, .start_ticks = 1};
    fake_proc_put(f->proc_root, &parent);
    fake_proc_put(f->proc_root, &(struct fake_process){
                                    .pid = 11, .parent = 10, .own_ticks = 100, .start_ticks = 2});
    look(f, 10);
    parent.reaped_ticks = 100;
    fake_proc_put(f->proc_root, &parent);
    fake_proc_put(f->proc_root, &(struct fake_process){
                                    .pid = 11, .parent = 1, .own_ticks = 7000, .start_ticks = 8});
    assert_int_equal(look(f, 10).cpu_ticks, 105);
    assert_int_equal(look(f, 10).cpu_ticks, 105);
    /* ... or to a new child of the same parent, which joins one look later. */
    fake_proc_put(f->proc_root, &(struct fake_process){
                                    .pid = 11, .parent = 10, .own_ticks = 4, .start_ticks = 9});
    assert_int_equal(look(f, 10).cpu_ticks, 109);
}

/* A server is killed; its children go to another parent but belong to it until they end. */
static void test_orphans_still_belong(void **state)
{
    struct fixture *f = *state;
    fake_proc_put(f->proc_root,
                  &(struct fake_process){.pid = 10, .parent = 1, .own_ticks = 5, .start_ticks = 1});
    struct fake_process child = {.pid = 11, .parent = 10, .own_ticks = 10, .start_ticks = 2};
    fake_proc_put(f->proc_root, &child);
    look(f, 10);
    fake_proc_end(f->proc_root, 10);
    child.parent = 1;
    child.own_ticks = 30;
    fake_proc_put(f->proc_root, &child);
    struct tree_sample sample = look(f, 0);
    assert_int_equal(sample.processes, 1);
    assert_int_equal(sample.cpu_ticks, 35);
    fake_proc_end(f->proc_root, 11);
    sample = look(f, 0);
    assert_int_equal(sample.processes, 0);
    assert_int_equal(sample.cpu_ticks, 35);
}

/* Between the look at the table and the look at its files a process may end: what it had stays. */
static void test_process_ends_between_two_reads(void **state)
{
    struct fixture *f = *state;
    struct fake_process parent = {
        .pid = 10, .parent = 1, .own_ticks = 5, .start_ticks = 1, .write_bytes = 10, .pss_kib = 4};
    struct fake_process child = {.pid = 11,
                                 .parent = 10,
                                 .own_ticks = 1,
                                 .start_ticks = 2,
                                 .write_bytes = 1000,
                                 .pss_kib = 8};
    fake_proc_put(f->proc_root, &parent);
    fake_proc_put(f->proc_root, &child);
    look(f, 10);
    struct tree_sample sample;
    assert_int_equal(proc_table_read(&f->table, f->proc_root), 0);
    fake_proc_end(f->proc_root, 11);
    f->now_ns += 3600 * NS_PER_S;
    tree_update(f->tree, &f->table, 10, f->now_ns, &sample);
    assert_int_equal(sample.write_bytes, 1010);
    assert_true(sample.io_known);
    assert_int_equal(sample.memory_kind, TREE_MEMORY_PSS);
    assert_int_equal(sample.memory_bytes, 4 * 1024);
    assert_int_equal(look(f, 10).write_bytes, 1010);
}

static void test_zombie_counts_its_time_but_is_no_process(void **state)
{
    struct fixture *f = *state;
    fake_proc_put(f->proc_root,
                  &(struct fake_process){
                      .pid = 10, .parent = 1, .own_ticks = 5, .start_ticks = 1, .rss_pages = 1});
    fake_proc_put(f->proc_root, &(struct fake_process){.pid = 11,
                                                       .parent = 10,
                                                       .own_ticks = 9,
                                                       .start_ticks = 2,
                                                       .state = 'Z',
                                                       .no_io = true});
    struct tree_sample sample = look(f, 10);
    assert_int_equal(sample.processes, 1);
    assert_int_equal(sample.cpu_ticks, 14);
    assert_true(sample.io_known);
    assert_int_equal(sample.memory_kind, TREE_MEMORY_RSS);
}

static void test_io_that_may_not_be_read(void **state)
{
    struct fixture *f = *state;
    fake_proc_put(f->proc_root,
                  &(struct fake_process){
                      .pid = 10, .parent = 1, .own_ticks = 5, .start_ticks = 1, .no_io = true});
    assert_false(look(f, 10).io_known);
}

/* --- random histories --- */

enum { PEOPLE = 24, ROUNDS = 60 };

struct person { /* one process of the model */
    bool alive;
    int parent; /* index, -1: outside */
    uint64_t own, reaped;
    uint64_t start;
};

static uint64_t seed_state;
static unsigned roll(unsigned below)
{
    seed_state = seed_state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(seed_state >> 33) % below;
}

static void put_person(struct fixture *f, const struct person *people, int i)
{
    const struct person *p = &people[i];
    fake_proc_put(f->proc_root,
                  &(struct fake_process){.pid = 100 + i,
                                         .parent = p->parent < 0 ? 1 : 100 + p->parent,
                                         .own_ticks = p->own,
                                         .reaped_ticks = p->reaped,
                                         .start_ticks = p->start});
}

static bool has_children(const struct person *people, int i)
{
    for (int k = 0; k < PEOPLE; k++)
        if (people[k].alive && people[k].parent == i)
            return true;
    return false;
}

/* Processes below one root are born, work and are waited for when they end. The total must be all
 * that was ever used, exactly: ended children's last moments reach their parents. */
static void test_random_histories(void **state)
{
    struct fixture *f = *state;
    uint64_t seed = (uint64_t)clock_wall_us();
    const char *given = getenv("SLUICE_TEST_SEED");
    if (given)
        seed = strtoull(given, NULL, 10);
    seed_state = seed;
    struct person people[PEOPLE] = {{.alive = true, .parent = -1, .start = 1}};
    uint64_t used = 0, next_start = 2;
    for (int round = 0; round < ROUNDS; round++) {
        for (int step = 0; step < 12; step++) {
            int i = (int)roll(PEOPLE);
            struct person *p = &people[i];
            if (p->alive && i > 0 && roll(3) == 0 && !has_children(people, i)) {
                people[p->parent].reaped += p->own + p->reaped;
                p->alive = false;
                fake_proc_end(f->proc_root, 100 + i);
            } else if (p->alive) {
                unsigned work = roll(50);
                p->own += work;
                used += work;
            } else {
                int parent = (int)roll(PEOPLE);
                if (people[parent].alive)
                    *p = (struct person){.alive = true, .parent = parent, .start = next_start++};
            }
        }
        for (int i = 0; i < PEOPLE; i++)
            if (people[i].alive)
                put_person(f, people, i);
        /* A pid used again joins one look late, so look twice. */
        look(f, 100);
        uint64_t total = look(f, 100).cpu_ticks;
        if (total != used)
            print_error("seed %" PRIu64 ", round %d: set SLUICE_TEST_SEED to see it again\n", seed,
                        round);
        assert_int_equal(total, used);
    }
}

/* --- pid files --- */

static void write_pid(const char *path, const char *text, int64_t written_us)
{
    assert_int_equal(file_write(path, text, strlen(text), NULL), 0);
    struct timespec times[2] = {
        {.tv_sec = written_us / US_PER_S, .tv_nsec = written_us % US_PER_S * NS_PER_US},
        {.tv_sec = written_us / US_PER_S, .tv_nsec = written_us % US_PER_S * NS_PER_US}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static pid_t resolve(struct fixture *f, struct part *part, int64_t boot_us)
{
    assert_int_equal(proc_table_read(&f->table, f->proc_root), 0);
    return part_resolve(part, &f->table, boot_us);
}

static void test_pid_file(void **state)
{
    struct fixture *f = *state;
    const int64_t boot_us = 1700000000 * US_PER_S;
    const int64_t ticks = sysconf(_SC_CLK_TCK);
    struct part part;
    char *text = xasprintf("worker=%s/pid", f->proc_root);
    assert_int_equal(part_parse(text, &part, NULL), 0);
    assert_string_equal(part.who, "worker");
    assert_int_equal(resolve(f, &part, boot_us), 0); /* no file yet */

    write_pid(part.pid_file, "77\n", boot_us + 100 * US_PER_S);
    assert_int_equal(resolve(f, &part, boot_us), 0); /* no process */
    fake_proc_put(f->proc_root, &(struct fake_process){
                                    .pid = 77, .parent = 1, .start_ticks = (uint64_t)(99 * ticks)});
    assert_int_equal(resolve(f, &part, boot_us), 77);

    /* The same file, another process with the pid. */
    fake_proc_put(
        f->proc_root,
        &(struct fake_process){.pid = 77, .parent = 1, .start_ticks = (uint64_t)(101 * ticks)});
    assert_int_equal(resolve(f, &part, boot_us), 0);

    /* Started again, and the file says so. */
    fake_proc_put(
        f->proc_root,
        &(struct fake_process){.pid = 78, .parent = 1, .start_ticks = (uint64_t)(120 * ticks)});
    write_pid(part.pid_file, "78", boot_us + 120 * US_PER_S);
    assert_int_equal(resolve(f, &part, boot_us), 78);

    /* A stale file, found for the first time: whoever has the pid now began long after it. */
    write_pid(part.pid_file, "78\n", boot_us + 20 * US_PER_S);
    assert_int_equal(resolve(f, &part, boot_us), 0);

    static const char *const bad[] = {"", "x", "-4\n", "0\n", "78 79\n", "99999999999999\n"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        write_pid(part.pid_file, bad[i], boot_us + 200 * US_PER_S);
        assert_int_equal(resolve(f, &part, boot_us), 0);
    }
    part_free(&part);
    free(text);
}

static void test_watch_that_is_none(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "worker", "=x", "worker=", "wor ker=x", "w/=x"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct part part;
        struct err err = {0};
        assert_true(part_parse(bad[i], &part, &err) < 0);
        assert_non_null(strstr(err.text, "pid file"));
    }
}

int main(void)
{
#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(test_tree_counts_descendants_only),
        WITH_FIXTURE(test_one_process_is_its_rss),
        WITH_FIXTURE(test_reaped_child_is_not_counted_twice),
        WITH_FIXTURE(test_child_reaped_in_the_middle_of_a_look),
        WITH_FIXTURE(test_two_generations_end_at_once),
        WITH_FIXTURE(test_killed_and_started_again),
        WITH_FIXTURE(test_pid_used_again),
        WITH_FIXTURE(test_orphans_still_belong),
        WITH_FIXTURE(test_process_ends_between_two_reads),
        WITH_FIXTURE(test_zombie_counts_its_time_but_is_no_process),
        WITH_FIXTURE(test_io_that_may_not_be_read),
        WITH_FIXTURE(test_random_histories),
        WITH_FIXTURE(test_pid_file),
        cmocka_unit_test(test_watch_that_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

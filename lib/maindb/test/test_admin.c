/* Oracle: docs/metrics.md for main.tsv (and task_body_hash for its hashes), PostgreSQL's catalogue
 * for what setup made, settings changed on purpose for the preflight. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "maindb/maindb.h"
#include "testdb.h"

static struct testdb db;

static int open_bare(void **state)
{
    (void)state;
    testdb_open(&db, -1);
    return 0;
}

static int open_db(void **state)
{
    (void)state;
    testdb_open(&db, 0);
    return 0;
}

static int close_db(void **state)
{
    (void)state;
    testdb_close(&db);
    return 0;
}

static char *trigger_text(void)
{
    return testdb_text(&db, "SELECT coalesce(string_agg(pg_get_triggerdef(oid), ';'), '') FROM "
                            "pg_trigger WHERE tgrelid = 'task'::regclass");
}

static void setup_makes_and_updates(void **state)
{
    (void)state;
    struct err err = {0};
    struct maindb *main = NULL;
    assert_int_equal(maindb_open(&main, db.url, "test", &err), 0);
    assert_int_equal(maindb_check(main, &err), -EPERM); /* no tables yet */
    assert_int_equal(maindb_setup(db.url, 60 * NS_PER_MS, &err), 0);
    assert_int_equal(maindb_check(main, &err), 0);
    char *trigger = trigger_text();
    assert_non_null(strstr(trigger, "BEFORE INSERT ON public.task FOR EACH ROW"));
    assert_non_null(strstr(trigger, "('0.06')"));
    free(trigger);
    testdb_run(&db, "INSERT INTO task VALUES (gen_random_uuid(), 1, 'kept')");
    assert_int_equal(maindb_setup(db.url, 500 * NS_PER_US, &err), 0);
    trigger = trigger_text();
    assert_non_null(strstr(trigger, "('0.0005')"));
    free(trigger);
    assert_int_equal(maindb_setup(db.url, 0, &err), 0);
    trigger = trigger_text();
    assert_non_null(strstr(trigger, "('0')")); /* it still counts */
    free(trigger);
    assert_int_equal(testdb_int(&db, "SELECT count(*) FROM task"), 1);
    testdb_run(&db, "INSERT INTO task_dead VALUES (gen_random_uuid(), 1, 'dead', 'conflict')");
    assert_int_equal(maindb_empty(db.url, &err), 0);
    assert_int_equal(testdb_int(&db, "SELECT count(*) FROM task"), 0);
    assert_int_equal(testdb_int(&db, "SELECT count(*) FROM task_dead"), 0);
    maindb_close(main);
}

static void *setup_thread(void *arg)
{
    struct err *err = arg;
    maindb_setup(db.url, NS_PER_MS, err);
    return NULL;
}

static void setups_at_the_same_time(void **state)
{
    (void)state;
    pthread_t threads[4];
    struct err errs[4] = {0};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, setup_thread, &errs[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_string_equal(errs[i].text, "");
    }
}

static void setup_refuses_another_schema(void **state)
{
    (void)state;
    struct err err = {0};
    testdb_run(&db, "CREATE TABLE task (id int PRIMARY KEY)");
    assert_int_equal(maindb_setup(db.url, 0, &err), -EPERM);
    assert_non_null(strstr(err.text, "accepted_us"));
}

static void preflight_reads_back(void **state)
{
    (void)state;
    struct err err = {0};
    char version[64];
    if (maindb_preflight(db.url, version, sizeof(version), &err) != 0) {
        fail_msg("%s", err.text);
    }
    char *expected = testdb_text(&db, "SELECT 'PostgreSQL ' || "
                                      "split_part(current_setting('server_version'), ' ', 1)");
    assert_string_equal(version, expected);
    free(expected);

    testdb_run(&db, "ALTER TABLE task SET UNLOGGED");
    assert_int_equal(maindb_preflight(db.url, version, sizeof(version), &err), -EPERM);
    assert_non_null(strstr(err.text, "table task is unlogged, wanted logged"));
    testdb_run(&db, "ALTER TABLE task SET LOGGED");
    testdb_run(&db, "ALTER TABLE task_dead RENAME TO elsewhere");
    assert_int_equal(maindb_preflight(db.url, version, sizeof(version), &err), -EPERM);
    assert_non_null(strstr(err.text, "table task_dead is absent"));
    testdb_run(&db, "ALTER TABLE elsewhere RENAME TO task_dead");

    /* For the whole server, so only for a moment. */
    testdb_run(&db, "ALTER SYSTEM SET full_page_writes = off");
    testdb_run(&db, "SELECT pg_reload_conf()");
    int rc = 0;
    for (int i = 0; i < 500 && rc == 0; i++) {
        rc = maindb_preflight(db.url, version, sizeof(version), &err);
    }
    testdb_run(&db, "ALTER SYSTEM RESET full_page_writes");
    testdb_run(&db, "SELECT pg_reload_conf()");
    assert_int_equal(rc, -EPERM);
    assert_non_null(strstr(err.text, "full_page_writes is off, wanted on"));
}

static void export_and_count(void **state)
{
    (void)state;
    struct err err = {0};
    testdb_run(&db, "INSERT INTO task SELECT ('00000000-0000-4000-8000-' || lpad(i::text, 12, "
                    "'0'))::uuid, i, ('body ' || i)::bytea FROM generate_series(1, 3000) AS i");
    testdb_run(&db,
               "INSERT INTO task_dead VALUES ('%s', 1, 'x', 'conflict'), ('%s', 1, '', E'a\\tb')",
               "10000000-0000-4000-8000-000000000000", "20000000-0000-4000-8000-000000000000");
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *out = open_memstream(&text, &text_bytes);
    assert_int_equal(maindb_export(db.url, out, &err), 0);
    fclose(out);

    char *rest = text;
    assert_string_equal(strsep(&rest, "\n"), "#sluice-main 1");
    for (int i = 1; i <= 3000; i++) {
        char body[32];
        char line[200];
        int body_bytes = snprintf(body, sizeof(body), "body %d", i);
        snprintf(line, sizeof(line), "00000000-0000-4000-8000-%012d\tmain\t%d\t%016" PRIx64 "\t", i,
                 body_bytes, task_body_hash(body, (size_t)body_bytes));
        assert_string_equal(strsep(&rest, "\n"), line);
    }
    char line[200];
    snprintf(line, sizeof(line),
             "10000000-0000-4000-8000-000000000000\tdead\t1\t%016" PRIx64 "\tconflict",
             task_body_hash("x", 1));
    assert_string_equal(strsep(&rest, "\n"), line);
    snprintf(line, sizeof(line),
             "20000000-0000-4000-8000-000000000000\tdead\t0\t%016" PRIx64 "\ta b",
             task_body_hash("", 0));
    assert_string_equal(strsep(&rest, "\n"), line);
    assert_string_equal(rest, "#end rows=3002\n");
    free(text);

    struct maindb *main = NULL;
    struct maindb_counts counts;
    assert_int_equal(maindb_open(&main, db.url, "test", &err), 0);
    assert_int_equal(maindb_count(main, &counts, &err), 0);
    assert_int_equal(counts.tasks, 3000);
    assert_int_equal(counts.dead, 2);
    assert_int_equal(counts.refused, 1); /* the other is a conflict */
    assert_int_equal(counts.row_sleeps, 3000);
    assert_int_equal(counts.autovacuums, 0);
    int64_t before = counts.checkpoints;
    testdb_run(&db, "CHECKPOINT");
    for (int i = 0; i < 1000 && counts.checkpoints == before; i++) { /* the server tells it late */
        assert_int_equal(maindb_count(main, &counts, &err), 0);
    }
    assert_true(counts.checkpoints > before);
    maindb_close(main);
}

static void export_says_when_it_cannot(void **state)
{
    (void)state;
    struct err err = {0};
    FILE *full = fopen("/dev/full", "w");
    assert_int_equal(maindb_export(db.url, full, &err), -EIO);
    fclose(full);
    testdb_run(&db, "ALTER TABLE task RENAME TO elsewhere");
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *out = open_memstream(&text, &text_bytes);
    assert_int_equal(maindb_export(db.url, out, &err), -EPERM);
    fclose(out);
    assert_null(strstr(text, "#end"));
    free(text);
}

int main(void)
{
    testdb_need_server();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(setup_makes_and_updates, open_bare, close_db),
        cmocka_unit_test_setup_teardown(setups_at_the_same_time, open_bare, close_db),
        cmocka_unit_test_setup_teardown(setup_refuses_another_schema, open_bare, close_db),
        cmocka_unit_test_setup_teardown(preflight_reads_back, open_db, close_db),
        cmocka_unit_test_setup_teardown(export_and_count, open_db, close_db),
        cmocka_unit_test_setup_teardown(export_says_when_it_cannot, open_db, close_db),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

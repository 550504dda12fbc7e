/* Oracle: the tables themselves, read back by a plain connection; every task handed to
 * maindb_commit is afterwards in task or task_dead, once, with its bytes, and the counts add up to
 * the tasks given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "maindb/maindb.h"
#include "testdb.h"

struct fixture {
    struct testdb db;
    struct maindb *main;
};

static const struct maindb_wait plain_wait = {.cancel_fd = -1};

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof(*fixture));
    testdb_open(&fixture->db, 0);
    assert_int_equal(maindb_open(&fixture->main, fixture->db.url, "test", NULL), 0);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    maindb_close(fixture->main);
    testdb_close(&fixture->db);
    free(fixture);
    return 0;
}

/* A task whose id is a number, with a text as body. */
static struct task make(unsigned number, const char *body)
{
    struct task task = {.accepted_us = 1767182400000001 + number};
    task.id[14] = (uint8_t)(number >> 8);
    task.id[15] = (uint8_t)number;
    task.body = body;
    task.body_bytes = strlen(body);
    return task;
}

static struct maindb_result commit(struct fixture *fixture, const struct task *tasks, size_t count)
{
    struct maindb_result result;
    struct err err = {0};
    int rc = maindb_commit(fixture->main, tasks, count, &plain_wait, &result, &err);
    if (rc != 0) {
        fail_msg("commit: %d: %s", rc, err.text);
    }
    assert_int_equal(result.inserted + result.redelivered + result.dead, count);
    assert_true(result.conflicts <= result.dead);
    return result;
}

static int commit_fails(struct fixture *fixture, const struct task *tasks, size_t count,
                        const char *text)
{
    struct maindb_result result;
    struct err err = {0};
    int rc = maindb_commit(fixture->main, tasks, count, &plain_wait, &result, &err);
    if (!strstr(err.text, text)) {
        fail_msg("'%s' does not say '%s'", err.text, text);
    }
    /* No transaction may stay open, holding its locks. */
    int64_t open = 1;
    for (int i = 0; i < 500 && open > 0; i++) {
        open = testdb_int(&fixture->db,
                          "SELECT count(*) FROM pg_stat_activity WHERE datname = '%s' "
                          "AND application_name = 'test' AND xact_start IS NOT NULL",
                          fixture->db.name);
        clock_sleep_ns(open > 0 ? 10 * NS_PER_MS : 0);
    }
    assert_int_equal(open, 0);
    return rc;
}

static void expect_rows(struct fixture *fixture, int64_t tasks, int64_t dead)
{
    assert_int_equal(testdb_int(&fixture->db, "SELECT count(*) FROM task"), tasks);
    assert_int_equal(testdb_int(&fixture->db, "SELECT count(*) FROM task_dead"), dead);
}

static void bytes_are_exact(void **state)
{
    struct fixture *fixture = *state;
    static char every[256];
    for (size_t i = 0; i < sizeof(every); i++) {
        every[i] = (char)i;
    }
    size_t large_bytes = 9 * 1024 * 1024; /* more than a statement's worth */
    char *large = xmalloc(large_bytes);
    for (size_t i = 0; i < large_bytes; i++) {
        large[i] = (char)(i * 31 >> 3);
    }
    struct task tasks[] = {make(5, "x"), make(4, ""), make(3, ""), make(2, ""), make(1, "last")};
    tasks[1].body = every;
    tasks[1].body_bytes = sizeof(every);
    tasks[2].body = large;
    tasks[2].body_bytes = large_bytes;
    tasks[3].body = NULL; /* empty, and nothing to point to */
    struct maindb_result result = commit(fixture, tasks, 5);
    assert_int_equal(result.inserted, 5);
    assert_true(result.db_ns > 0);
    tasks[3].body = "";
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(testdb_has(&fixture->db, "task", &tasks[i]), 1);
    }
    expect_rows(fixture, 5, 0);
    result = commit(fixture, tasks, 5);
    assert_int_equal(result.redelivered, 5);
    free(large);
}

static void redelivery_changes_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct task tasks[] = {make(1, "a"), make(2, "b"), make(3, "c")};
    assert_int_equal(commit(fixture, tasks, 2).inserted, 2);
    struct maindb_result result = commit(fixture, tasks, 3);
    assert_int_equal(result.inserted, 1);
    assert_int_equal(result.redelivered, 2);
    result = commit(fixture, tasks, 3);
    assert_int_equal(result.redelivered, 3);
    expect_rows(fixture, 3, 0);
}

/* A trigger that counts its calls stands for the row delay. */
static void count_rows(struct fixture *fixture)
{
    testdb_run(&fixture->db,
               "CREATE SEQUENCE fired; CREATE FUNCTION count_row() RETURNS trigger LANGUAGE "
               "plpgsql AS $$BEGIN PERFORM nextval('fired'); RETURN NEW; END$$; CREATE TRIGGER "
               "counts BEFORE INSERT ON task FOR EACH ROW EXECUTE FUNCTION count_row()");
}

static void duplicates_do_not_pay_the_row_delay(void **state)
{
    struct fixture *fixture = *state;
    count_rows(fixture);
    struct task tasks[] = {make(1, "a"), make(2, "b"), make(1, "a"), make(2, "other")};
    commit(fixture, tasks, 4);
    commit(fixture, tasks, 4);
    assert_int_equal(testdb_int(&fixture->db, "SELECT last_value FROM fired"), 2);
}

static void expect_sleeps(struct fixture *fixture, int64_t sleeps, int64_t rows, int64_t refused)
{
    struct maindb_counts counts;
    assert_int_equal(maindb_count(fixture->main, &counts, NULL), 0);
    assert_int_equal(counts.row_sleeps, sleeps);
    assert_int_equal(counts.tasks, rows);
    assert_int_equal(counts.refused, refused);
}

static void every_row_sleep_is_counted_once(void **state)
{
    struct fixture *fixture = *state;
    expect_sleeps(fixture, 0, 0, 0);
    struct task tasks[] = {make(1, "a"), make(2, "b")};
    commit(fixture, tasks, 2);
    expect_sleeps(fixture, 2, 2, 0);
    commit(fixture, tasks, 2); /* redelivered: nobody sleeps */
    struct task other = make(1, "other");
    commit(fixture, &other, 1); /* a conflict neither */
    expect_sleeps(fixture, 2, 2, 0);
    testdb_run(&fixture->db, "BEGIN");
    testdb_run(&fixture->db, "INSERT INTO task VALUES (gen_random_uuid(), 1, 'gone')");
    testdb_run(&fixture->db, "ROLLBACK"); /* what a killed worker's transaction comes to */
    expect_sleeps(fixture, 3, 2, 0);
    /* Both sleep, the second is refused: once more row by row, and both sleep again. */
    testdb_run(&fixture->db, "ALTER TABLE task ADD CHECK (body <> 'bad')");
    struct task mixed[] = {make(3, "c"), make(4, "bad")};
    commit(fixture, mixed, 2);
    expect_sleeps(fixture, 7, 3, 1);
}

static void repeats_inside_a_batch(void **state)
{
    struct fixture *fixture = *state;
    struct task tasks[] = {make(7, "a"), make(1, "z"), make(7, "a"), make(7, "b"), make(7, "b")};
    struct maindb_result result = commit(fixture, tasks, 5);
    assert_int_equal(result.inserted, 2);
    assert_int_equal(result.dead, 1);
    assert_int_equal(result.conflicts, 1);
    assert_int_equal(result.redelivered, 2);
    assert_int_equal(testdb_has(&fixture->db, "task", &tasks[0]), 1); /* the first wins */
    assert_int_equal(testdb_has(&fixture->db, "task_dead", &tasks[3]), 1);
    result = commit(fixture, tasks, 5);
    assert_int_equal(result.redelivered, 5);
    expect_rows(fixture, 2, 1);
}

static void conflict_with_what_is_there(void **state)
{
    struct fixture *fixture = *state;
    struct task first = make(1, "first");
    struct task other = make(1, "other");
    struct task longer = make(1, "first and more");
    struct task pair[] = {other, first}; /* here the batch's first is not the table's */
    commit(fixture, &first, 1);
    struct maindb_result result = commit(fixture, pair, 2);
    assert_int_equal(result.conflicts, 1);
    assert_int_equal(result.redelivered, 1);
    result = commit(fixture, &longer, 1);
    assert_int_equal(result.conflicts, 1);
    assert_int_equal(testdb_has(&fixture->db, "task", &first), 1);
    assert_int_equal(testdb_has(&fixture->db, "task_dead", &other), 1);
    assert_int_equal(testdb_has(&fixture->db, "task_dead", &longer), 1);
    char *reason = testdb_text(&fixture->db, "SELECT string_agg(DISTINCT reason || ':' || "
                                             "coalesce(sqlstate, '-'), ',') FROM task_dead");
    assert_string_equal(reason, "conflict:-");
    free(reason);
    expect_rows(fixture, 1, 2);
}

static void refused_rows_become_dead_letters(void **state)
{
    struct fixture *fixture = *state;
    /* 23514 by a constraint, 22P02 and 54000 by a trigger; row 9 stands for every healthy one. */
    testdb_run(
        &fixture->db,
        "ALTER TABLE task ADD CONSTRAINT no_bad CHECK (body <> 'bad'); "
        "CREATE FUNCTION picky() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "
        "IF NEW.body = 'text' THEN PERFORM 'x'::int; END IF; "
        "IF NEW.body = 'big' THEN RAISE EXCEPTION 'too \xc3\xa4 %%', repeat('\xc3\xa4', 900) "
        "USING ERRCODE = '54000'; END IF; RETURN NEW; END$$; "
        "CREATE TRIGGER picky BEFORE INSERT ON task FOR EACH ROW EXECUTE FUNCTION picky()");
    struct task tasks[] = {make(1, "bad"), make(2, "good"), make(3, "text"),
                           make(4, "big"), make(5, "good"), make(1, "good")};
    struct maindb_result result = commit(fixture, tasks, 6);
    assert_int_equal(result.inserted, 3); /* the second body of id 1 too: the first never got in */
    assert_int_equal(result.dead, 3);
    assert_int_equal(result.conflicts, 0);
    char *reasons =
        testdb_text(&fixture->db, "SELECT string_agg(reason || '=' || sqlstate || '=' || "
                                  "convert_from(body, 'UTF8'), ' ' ORDER BY id) FROM task_dead");
    assert_string_equal(reasons, "23514=23514=bad 22P02=22P02=text 54000=54000=big");
    free(reasons);
    char *detail = testdb_text(&fixture->db, "SELECT detail FROM task_dead WHERE body = 'bad'");
    assert_non_null(strstr(detail, "no_bad"));
    free(detail);
    for (size_t i = 0; i < 6; i++) {
        const char *table = i == 0 || i == 2 || i == 3 ? "task_dead" : "task";
        assert_int_equal(testdb_has(&fixture->db, table, &tasks[i]), 1);
    }
    result = commit(fixture, tasks, 6);
    assert_int_equal(result.redelivered, 6);
    expect_rows(fixture, 3, 3);
    /* Even once the reason is gone, a dead letter stays in its one place. */
    testdb_run(&fixture->db, "ALTER TABLE task DROP CONSTRAINT no_bad; DROP TRIGGER picky ON task");
    result = commit(fixture, tasks, 6);
    assert_int_equal(result.redelivered, 6);
    expect_rows(fixture, 3, 3);
}

static void deferred_constraint_is_a_row_error_too(void **state)
{
    struct fixture *fixture = *state;
    testdb_run(&fixture->db, "CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "
                             "IF NEW.body = 'bad' THEN RAISE EXCEPTION 'late' USING ERRCODE = "
                             "'23000'; END IF; RETURN NULL; END$$; CREATE CONSTRAINT TRIGGER late "
                             "AFTER INSERT ON task DEFERRABLE INITIALLY DEFERRED FOR EACH ROW "
                             "EXECUTE FUNCTION late()");
    struct task tasks[] = {make(1, "good"), make(2, "bad"), make(3, "good")};
    struct maindb_result result = commit(fixture, tasks, 3);
    assert_int_equal(result.inserted, 2);
    assert_int_equal(result.dead, 1);
    assert_int_equal(testdb_has(&fixture->db, "task_dead", &tasks[1]), 1);
    expect_rows(fixture, 2, 1);
}

static void raise_on_insert(struct fixture *fixture, const char *sqlstate)
{
    testdb_run(&fixture->db,
               "CREATE OR REPLACE FUNCTION raises() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "
               "IF NEW.body = 'bad' THEN RAISE EXCEPTION 'told to' USING ERRCODE = '%s'; END IF; "
               "RETURN NEW; END$$; DROP TRIGGER IF EXISTS raises ON task; CREATE TRIGGER raises "
               "BEFORE INSERT ON task FOR EACH ROW EXECUTE FUNCTION raises()",
               sqlstate);
}

static void transient_and_fatal_errors_store_nothing(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        const char *sqlstate;
        int rc;
    } cases[] = {
        {"40001", -EAGAIN}, {"57014", -EAGAIN}, {"53100", -EAGAIN}, {"55P03", -EAGAIN},
        {"58030", -EAGAIN}, {"XX000", -EAGAIN}, {"P0001", -EAGAIN}, {"42501", -EPERM},
        {"42P01", -EPERM},  {"28000", -EPERM},
    };
    struct task tasks[] = {make(1, "good"), make(2, "bad"), make(3, "good")};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        raise_on_insert(fixture, cases[i].sqlstate);
        assert_int_equal(commit_fails(fixture, tasks, 3, cases[i].sqlstate), cases[i].rc);
        expect_rows(fixture, 0, 0);
    }
    /* The same when it is found row by row: a row error first, then something else. */
    testdb_run(&fixture->db, "ALTER TABLE task ADD CHECK (body <> 'refused')");
    struct task mixed[] = {make(1, "refused"), make(2, "bad")};
    raise_on_insert(fixture, "40001");
    assert_int_equal(commit_fails(fixture, mixed, 2, "40001"), -EAGAIN);
    expect_rows(fixture, 0, 0);
    testdb_run(&fixture->db, "DROP TRIGGER raises ON task");
    assert_int_equal(commit(fixture, tasks, 3).inserted, 3);
}

static void a_missing_table_is_fatal_and_heals(void **state)
{
    struct fixture *fixture = *state;
    struct task task = make(1, "a");
    commit(fixture, &task, 1);
    testdb_run(&fixture->db, "ALTER TABLE task RENAME TO elsewhere");
    assert_int_equal(commit_fails(fixture, &task, 1, "42P01"), -EPERM);
    assert_int_equal(maindb_check(fixture->main, NULL), -EPERM);
    testdb_run(&fixture->db, "ALTER TABLE elsewhere RENAME TO task");
    assert_int_equal(maindb_check(fixture->main, NULL), 0);
    assert_int_equal(commit(fixture, &task, 1).redelivered, 1);
}

static void a_trigger_that_drops_rows_is_fatal(void **state)
{
    struct fixture *fixture = *state;
    testdb_run(&fixture->db, "CREATE FUNCTION drops() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "
                             "IF NEW.body = 'bad' THEN RETURN NULL; END IF; RETURN NEW; END$$; "
                             "CREATE TRIGGER drops BEFORE INSERT ON task FOR EACH ROW EXECUTE "
                             "FUNCTION drops()");
    struct task tasks[] = {make(1, "good"), make(2, "bad")};
    assert_int_equal(commit_fails(fixture, tasks, 2, "neither inserted nor refused"), -EPERM);
    expect_rows(fixture, 0, 0);
}

static void unwritable_dead_letters_are_fatal(void **state)
{
    struct fixture *fixture = *state;
    testdb_run(&fixture->db, "ALTER TABLE task ADD CHECK (body <> 'bad'); ALTER TABLE task_dead "
                             "ADD CHECK (body <> 'bad')");
    struct task tasks[] = {make(1, "good"), make(2, "bad")};
    assert_int_equal(commit_fails(fixture, tasks, 2, "dead letters"), -EPERM);
    expect_rows(fixture, 0, 0);
}

/* Many threads, overlapping batches, conflicting bodies, some refused rows. */
enum { THREADS = 4, ROUNDS = 40, IDS = 60, BATCH = 40 };

struct racer {
    const char *url;
    unsigned seed;
    pthread_t thread;
    char failure[600];
    unsigned inserted, dead;
};

static const char *const racing_bodies[] = {"one", "two", "bad", "three"};

static void *race(void *arg)
{
    struct racer *racer = arg;
    struct maindb *db = NULL;
    struct err err = {0};
    maindb_open(&db, racer->url, "racer", &err);
    unsigned seed = racer->seed;
    for (int round = 0; round < ROUNDS; round++) {
        struct task tasks[BATCH];
        for (int i = 0; i < BATCH; i++) {
            unsigned id = (unsigned)rand_r(&seed) % IDS + (unsigned)round * 20;
            tasks[i] = make(id, racing_bodies[(unsigned)rand_r(&seed) % 4]);
        }
        struct maindb_result result;
        int rc = maindb_commit(db, tasks, BATCH, &plain_wait, &result, &err);
        if (rc != 0) { /* a deadlock would be 40P01 here */
            snprintf(racer->failure, sizeof(racer->failure), "%d: %s", rc, err.text);
            break;
        }
        racer->inserted += result.inserted;
        racer->dead += result.dead;
    }
    maindb_close(db);
    return NULL;
}

static void overlapping_batches_agree(void **state)
{
    struct fixture *fixture = *state;
    unsigned seed = (unsigned)clock_mono_ns();
    testdb_run(&fixture->db, "ALTER TABLE task ADD CHECK (body <> 'bad')");
    struct racer racers[THREADS] = {0};
    for (unsigned i = 0; i < THREADS; i++) {
        racers[i].url = fixture->db.url;
        racers[i].seed = seed + i;
        assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    unsigned inserted = 0;
    unsigned dead = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(racers[i].thread, NULL);
        if (racers[i].failure[0]) {
            fail_msg("seed %u: %s", seed, racers[i].failure);
        }
        inserted += racers[i].inserted;
        dead += racers[i].dead;
    }
    expect_rows(fixture, inserted, dead); /* nobody counted a row twice or forgot one */
    /* Every pair that any thread committed is in exactly one table. */
    for (unsigned t = 0; t < THREADS; t++) {
        unsigned replay = seed + t;
        for (int i = 0; i < ROUNDS * BATCH; i++) {
            unsigned id = (unsigned)rand_r(&replay) % IDS + (unsigned)(i / BATCH) * 20;
            struct task task = make(id, racing_bodies[(unsigned)rand_r(&replay) % 4]);
            int64_t places = testdb_has(&fixture->db, "task", &task) +
                             testdb_has(&fixture->db, "task_dead", &task);
            if (places != 1) {
                fail_msg("seed %u: id %u '%s' is in %lld places", seed, id, (const char *)task.body,
                         (long long)places);
            }
        }
    }
}

/* Two transactions, one id, two bodies, both inserts begun before either commits. */
static void a_race_ends_in_a_conflict(void **state)
{
    struct fixture *fixture = *state;
    struct task tasks[] = {make(0, "new"), make(1, "mine")};
    count_rows(fixture);
    testdb_run(&fixture->db, "BEGIN; INSERT INTO task VALUES ('%s', 1, 'theirs')",
               "00000000-0000-0000-0000-000000000001");
    /* The rival's transaction ends once our insert waits for it. */
    char *wait_sql =
        xasprintf("DO $$BEGIN FOR i IN 1..200 LOOP PERFORM pg_sleep(0.02); "
                  "PERFORM pg_stat_clear_snapshot(); EXIT WHEN EXISTS (SELECT FROM "
                  "pg_stat_activity WHERE application_name = 'test' AND "
                  "wait_event_type = 'Lock' AND datname = '%s'); END LOOP; END$$; COMMIT",
                  fixture->db.name);
    assert_int_equal(PQsendQuery(fixture->db.conn, wait_sql), 1);
    struct maindb_result result = commit(fixture, tasks, 2);
    PGresult *left;
    while ((left = PQgetResult(fixture->db.conn))) {
        assert_int_equal(PQresultStatus(left), PGRES_COMMAND_OK);
        PQclear(left);
    }
    free(wait_sql);
    assert_int_equal(result.conflicts, 1);
    assert_int_equal(testdb_has(&fixture->db, "task_dead", &tasks[1]), 1);
    expect_rows(fixture, 2, 1);
    /* Theirs, and each of ours once: losing a race is no reason to do the batch again. */
    assert_int_equal(testdb_int(&fixture->db, "SELECT last_value FROM fired"), 3);
}

int main(void)
{
    testdb_need_server();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_are_exact, setup, teardown),
        cmocka_unit_test_setup_teardown(redelivery_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(duplicates_do_not_pay_the_row_delay, setup, teardown),
        cmocka_unit_test_setup_teardown(every_row_sleep_is_counted_once, setup, teardown),
        cmocka_unit_test_setup_teardown(repeats_inside_a_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(conflict_with_what_is_there, setup, teardown),
        cmocka_unit_test_setup_teardown(refused_rows_become_dead_letters, setup, teardown),
        cmocka_unit_test_setup_teardown(deferred_constraint_is_a_row_error_too, setup, teardown),
        cmocka_unit_test_setup_teardown(transient_and_fatal_errors_store_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_missing_table_is_fatal_and_heals, setup, teardown),
        cmocka_unit_test_setup_teardown(a_trigger_that_drops_rows_is_fatal, setup, teardown),
        cmocka_unit_test_setup_teardown(unwritable_dead_letters_are_fatal, setup, teardown),
        cmocka_unit_test_setup_teardown(overlapping_batches_agree, setup, teardown),
        cmocka_unit_test_setup_teardown(a_race_ends_in_a_conflict, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

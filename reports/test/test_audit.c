/* Oracle: the audit's rule (every acknowledged id is in main or the dead letters, with the body
 * that was sent, once; nothing refused and nothing never sent is there), worked out by hand for
 * each small table below. Damage: whatever is cut off or changed, the audit must not find fewer
 * faults than the whole files hold, unless it says "void". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reports/report.h"
#include "rundir.h"

/* Ids 1..9 of the load, 100 the probe; row 1..4 durable, 5 refused, 6 and 7 unknown, 8 unsent. */
static void write_ledgers(const char *dir)
{
    struct buf ledger = rundir_ledger_begin();
    for (unsigned n = 1; n <= 4; n++)
        rundir_ledger_row(&ledger, n, 1000000000, 1000000100, 1000005000, 202, "durable", "steady");
    rundir_ledger_row(&ledger, 5, 1001000000, 1001000100, 1001005000, 503, "refused", "steady");
    rundir_ledger_row(&ledger, 6, 1001000000, 1001000100, 1001005000, 504, "unknown", "steady");
    rundir_ledger_row(&ledger, 7, 1001000000, 1001000100, 1001005000, 0, "unknown", "steady");
    rundir_ledger_row(&ledger, 8, 1001000000, 0, 1001005000, 0, "unsent", "steady");
    rundir_ledger_end(&ledger, dir, "ledger.tsv");
    ledger = rundir_ledger_begin();
    rundir_ledger_row(&ledger, 100, 990000000, 990000100, 990005000, 202, "durable", "probe");
    rundir_ledger_end(&ledger, dir, "ledger-probe.tsv");
}

static char *good_run(bool control)
{
    char *dir = rundir_make();
    write_ledgers(dir);
    rundir_manifest(dir, "\"wal\"", control, 1, NULL, NULL);
    struct buf table = rundir_main_begin();
    rundir_main_row(&table, 100, "main", false, "");
    rundir_main_row(&table, 2, "main", false, "");
    rundir_main_row(&table, 1, "main", false, "");
    rundir_main_row(&table, 3, "main", false, "");
    rundir_main_row(&table, 4, "dead", false, "22021");
    rundir_main_row(&table, 6, "main", false, "");
    rundir_main_end(&table, dir);
    rundir_puts(
        dir, "worker-1.jsonl",
        "{\"ts\": 1002.5, \"ev\": \"committed\", \"lane\": 0, \"rows\": 1, \"inserted\": 1, "
        "\"redelivered\": 0, \"dead\": 0, \"conflicts\": 0, \"db_ms\": 3.5, \"ids\": "
        "[\"00000000-0000-4000-8000-000000000000\"], \"age_ms\": [5]}\n"
        "{\"ts\": 1003.5, \"ev\": \"committed\", \"lane\": 0, \"rows\": 0, \"inserted\": 0, "
        "\"redelivered\": 7, \"dead\": 0, \"conflicts\": 0, \"db_ms\": 3.5, \"ids\": [], "
        "\"age_ms\": []}\n"
        "{\"ts\": 1004.5, \"ev\": \"commi");
    return dir;
}

static void check(const char *dir, enum audit_verdict verdict, const char *why_part)
{
    struct audit audit;
    struct err err = {0};
    assert_int_equal(audit_run(dir, &audit, &err), verdict);
    assert_int_equal(audit.verdict, verdict);
    if (!strstr(audit.why, why_part))
        fail_msg("\"%s\" does not say \"%s\"", audit.why, why_part);
    if (verdict == AUDIT_VOID)
        assert_non_null(strstr(err.text, why_part));
    audit_free(&audit);
}

static void test_good(void **state)
{
    (void)state;
    char *dir = good_run(false);
    struct audit audit;
    assert_int_equal(audit_run(dir, &audit, NULL), AUDIT_PASS);
    assert_true(audit.counted);
    assert_int_equal(audit.acknowledged, 5);
    assert_int_equal(audit.committed, 4);
    assert_int_equal(audit.dead, 1);
    for (int kind = 0; kind < AUDIT_BAD_COUNT; kind++)
        assert_int_equal(audit.bad[kind].count, 0);
    assert_int_equal(audit.unknown_arrived, 1);
    assert_int_equal(audit.unknown_absent, 1);
    assert_int_equal(audit.refused, 1);
    assert_int_equal(audit.unsent, 1);
    assert_int_equal(audit.redelivered, 7);
    assert_int_equal(audit.ledger_rows, 9);
    assert_int_equal(audit.main_rows, 5);
    assert_int_equal(audit.dead_rows, 1);
    assert_int_equal(audit.half_lines, 1);
    assert_int_equal(audit.damaged_lines, 0);
    audit_free(&audit);
    char *json = rundir_read(dir, "audit.json");
    assert_non_null(strstr(json, "\"verdict\": \"pass\""));
    assert_non_null(strstr(json, "\"acknowledged\": 5,"));
    free(json);
    rundir_remove(dir);
}

/* One bad thing at a time: what main.tsv holds instead, and which count must be 1. */
struct bad_case {
    const char *name;
    void (*write)(struct buf *table);
    enum audit_bad kind;
    unsigned id;
};

static void rows(struct buf *table, unsigned from, unsigned to)
{
    for (unsigned n = from; n <= to; n++)
        rundir_main_row(table, n, "main", false, "");
    rundir_main_row(table, 100, "main", false, "");
}

static void lose_3(struct buf *table)
{
    rows(table, 1, 2);
    rundir_main_row(table, 4, "main", false, "");
}

static void lose_probe(struct buf *table)
{
    for (unsigned n = 1; n <= 4; n++)
        rundir_main_row(table, n, "main", false, "");
}

static void invent_200(struct buf *table)
{
    rows(table, 1, 4);
    rundir_main_row(table, 200, "main", false, "");
}

static void invent_dead_200(struct buf *table)
{
    rows(table, 1, 4);
    rundir_main_row(table, 200, "dead", false, "22P05");
}

static void store_unsent(struct buf *table)
{
    rows(table, 1, 4);
    rundir_main_row(table, 8, "main", false, "");
}

static void change_2(struct buf *table)
{
    rows(table, 3, 4);
    rundir_main_row(table, 1, "main", false, "");
    rundir_main_row(table, 2, "main", true, "");
}

static void change_unknown(struct buf *table)
{
    rows(table, 1, 4);
    rundir_main_row(table, 6, "main", true, "");
}

static void conflict_2(struct buf *table)
{
    rows(table, 1, 4);
    rundir_main_row(table, 2, "dead", true, "conflict");
}

static void store_refused(struct buf *table)
{
    rows(table, 1, 5);
}

static void twice_2(struct buf *table)
{
    rows(table, 1, 4);
    rundir_main_row(table, 2, "main", false, "");
}

static void both_2(struct buf *table)
{
    rows(table, 1, 4);
    rundir_main_row(table, 2, "dead", false, "23505");
}

static const struct bad_case bad_cases[] = {
    {"lost", lose_3, AUDIT_LOST, 3},
    {"lost probe", lose_probe, AUDIT_LOST, 100},
    {"never sent", invent_200, AUDIT_UNEXPECTED, 200},
    {"never sent, dead", invent_dead_200, AUDIT_UNEXPECTED, 200},
    {"unsent, yet there", store_unsent, AUDIT_UNEXPECTED, 8},
    {"changed", change_2, AUDIT_CORRUPT, 2},
    {"changed, unknown", change_unknown, AUDIT_CORRUPT, 6},
    {"a body nobody sent as conflict", conflict_2, AUDIT_CORRUPT, 2},
    {"refused, yet stored", store_refused, AUDIT_REFUSED_STORED, 5},
    {"twice in main", twice_2, AUDIT_DUPLICATED, 2},
    {"in main and dead", both_2, AUDIT_DUPLICATED, 2},
};

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_cases) / sizeof(bad_cases[0]); i++) {
        const struct bad_case *bad = &bad_cases[i];
        for (int control = 0; control < 2; control++) {
            char *dir = good_run(control);
            struct buf table = rundir_main_begin();
            bad->write(&table);
            rundir_main_end(&table, dir);
            struct audit audit;
            uint8_t id[UUID_BYTES];
            rundir_id(bad->id, id);
            enum audit_verdict verdict = audit_run(dir, &audit, NULL);
            if (verdict != (control ? AUDIT_EXCUSED : AUDIT_FAIL))
                fail_msg("%s: %s", bad->name, audit_verdict_name(verdict));
            for (int kind = 0; kind < AUDIT_BAD_COUNT; kind++)
                if (audit.bad[kind].count != (kind == (int)bad->kind))
                    fail_msg("%s: %s is %d", bad->name, audit_bad_name((enum audit_bad)kind),
                             (int)audit.bad[kind].count);
            assert_int_equal(audit.acknowledged,
                             audit.committed + audit.dead + audit.bad[AUDIT_LOST].count);
            assert_memory_equal(audit.bad[bad->kind].ids[0], id, UUID_BYTES);
            char *json = rundir_read(dir, "audit.json");
            assert_non_null(strstr(json, rundir_id_text(bad->id)));
            free(json);
            audit_free(&audit);
            rundir_remove(dir);
        }
    }
}

static void test_swapped_bodies(void **state)
{
    (void)state;
    /* A pair that changed places: both ids are there, each with the other's hash. */
    char *dir = good_run(false);
    char *text = rundir_read(dir, "main.tsv");
    char *first = strstr(text, rundir_id_text(1)), *second = strstr(text, rundir_id_text(2));
    char id[36];
    memcpy(id, first, 36);
    memcpy(first, second, 36);
    memcpy(second, id, 36);
    rundir_puts(dir, "main.tsv", text);
    free(text);
    check(dir, AUDIT_FAIL, "corrupt 2");
    rundir_remove(dir);
}

static void test_void(void **state)
{
    (void)state;
    static const char *const needed[] = {"ledger.tsv", "main.tsv", "manifest.json"};
    for (size_t i = 0; i < 3; i++) {
        char *dir = good_run(false);
        rundir_puts(dir, needed[i], "");
        check(dir, AUDIT_VOID, needed[i]);
        char *path = xasprintf("%s/%s", dir, needed[i]);
        assert_int_equal(remove(path), 0);
        check(dir, AUDIT_VOID, needed[i]);
        free(path);
        rundir_remove(dir);
    }
    /* The same id in two ledgers. */
    char *dir = good_run(false);
    struct buf ledger = rundir_ledger_begin();
    rundir_ledger_row(&ledger, 1, 990000000, 990000100, 990005000, 202, "durable", "probe");
    rundir_ledger_end(&ledger, dir, "ledger-probe.tsv");
    check(dir, AUDIT_VOID, "ledger-probe.tsv line 2: the id");
    rundir_remove(dir);
    /* A wrong count of rows. */
    dir = good_run(false);
    rundir_puts(dir, "main.tsv", "#sluice-main 1\n#end rows=1\n");
    check(dir, AUDIT_VOID, "holds 0 rows");
    char *json = rundir_read(dir, "audit.json");
    assert_non_null(strstr(json, "\"lost\": null"));
    free(json);
    rundir_puts(dir, "main.tsv", "#sluice-main 1\n#end rows=0\nmore\n");
    check(dir, AUDIT_VOID, "after \"#end\"");
    rundir_remove(dir);
    check("/nonexistent/run", AUDIT_VOID, "/nonexistent/run");
}

/* Cut at the end of a line, where nothing else gives it away. */
static void test_cut_between_rows(void **state)
{
    (void)state;
    static const char *const tables[] = {"ledger.tsv", "ledger-probe.tsv", "main.tsv"};
    for (size_t i = 0; i < 3; i++) {
        char *dir = good_run(false);
        char *text = rundir_read(dir, tables[i]);
        for (char *end = text; (end = strchr(end, '\n')); end++) {
            if (end[1] == '\0')
                break;
            rundir_write(dir, tables[i], text, (size_t)(end + 1 - text));
            char *wanted = xasprintf("%s was cut short", tables[i]);
            check(dir, AUDIT_VOID, wanted);
            free(wanted);
        }
        free(text);
        rundir_remove(dir);
    }
}

static void test_not_drained(void **state)
{
    (void)state;
    char *dir = good_run(false);
    struct buf table = rundir_main_begin();
    lose_3(&table);
    rundir_main_end(&table, dir);
    rundir_puts(dir, "runner.jsonl",
                "{\"ts\": 1015, \"ev\": \"drained\", \"backlog\": 1, \"seconds\": 5}\n");
    check(dir, AUDIT_VOID, "not drained");
    struct audit audit;
    audit_run(dir, &audit, NULL); /* it is in the sink, for all that is known, and not lost */
    assert_int_equal(audit.not_drained, 1);
    assert_int_equal(audit.bad[AUDIT_LOST].count, 0);
    assert_int_equal(audit.acknowledged, audit.committed + audit.dead + 1);
    audit_free(&audit);
    char *json = rundir_read(dir, "audit.json");
    assert_non_null(strstr(json, "\"not_drained\": 1,\n  \"lost\": 0"));
    free(json);
    /* More missing than the sink holds, or something else wrong: that is a failure. */
    rundir_puts(dir, "runner.jsonl",
                "{\"ts\": 1015, \"ev\": \"drained\", \"backlog\": 0, \"seconds\": 5}\n");
    check(dir, AUDIT_FAIL, "lost 1");
    audit_run(dir, &audit, NULL);
    assert_int_equal(audit.not_drained, 0);
    assert_int_equal(audit.bad[AUDIT_LOST].count, 1);
    audit_free(&audit);
    rundir_remove(dir);
}

/* Cuts every file at every offset, and changes every byte in several ways. The whole run lacks id
 * 3: a verdict of "pass" would be a better figure than the truth. A changed byte can turn the loss
 * into another (the id in the ledger), never into none. */
static void never_better(const char *dir, const char *name, size_t at, int flip)
{
    struct audit audit;
    enum audit_verdict verdict = audit_run(dir, &audit, NULL);
    int64_t bad = 0;
    for (int kind = 0; kind < AUDIT_BAD_COUNT; kind++)
        bad += audit.bad[kind].count;
    if (verdict == AUDIT_PASS || (verdict != AUDIT_VOID && bad == 0))
        fail_msg("%s at byte %zu, flip %d: %s", name, at, flip, audit_verdict_name(verdict));
    audit_free(&audit);
}

static void test_damage(void **state)
{
    (void)state;
    static const char *const names[] = {"ledger.tsv", "ledger-probe.tsv", "main.tsv",
                                        "manifest.json", "worker-1.jsonl"};
    char *dir = good_run(false);
    struct buf table = rundir_main_begin();
    lose_3(&table);
    rundir_main_end(&table, dir);
    check(dir, AUDIT_FAIL, "lost 1");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char *whole = rundir_read(dir, names[i]);
        size_t len = strlen(whole);
        for (size_t at = 0; at < len; at++) {
            rundir_write(dir, names[i], whole, at);
            never_better(dir, names[i], at, -1);
        }
        for (size_t at = 0; at < len; at++) {
            for (int bit = 0; bit < 8; bit++) {
                whole[at] = (char)(whole[at] ^ (1 << bit));
                rundir_write(dir, names[i], whole, len);
                never_better(dir, names[i], at, bit);
                whole[at] = (char)(whole[at] ^ (1 << bit));
            }
        }
        rundir_write(dir, names[i], whole, len);
        free(whole);
    }
    rundir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_swapped_bodies),
        cmocka_unit_test(test_void),
        cmocka_unit_test(test_cut_between_rows),
        cmocka_unit_test(test_not_drained),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

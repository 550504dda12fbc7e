/* Oracle: PostgreSQL documentation, appendix A (names of the codes), against the policy of
 * docs/architecture.md: 22, 23, 54 are the row's fault, 28, 3D, 42 need a person, all else passes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "maindb/maindb.h"

static void every_class(void **state)
{
    (void)state;
    static const struct {
        const char *sqlstate;
        enum maindb_verdict verdict;
    } cases[] = {
        {"22001", MAINDB_ROW},       /* string_data_right_truncation */
        {"22P02", MAINDB_ROW},       /* invalid_text_representation */
        {"23502", MAINDB_ROW},       /* not_null_violation */
        {"23505", MAINDB_ROW},       /* unique_violation */
        {"23514", MAINDB_ROW},       /* check_violation */
        {"54000", MAINDB_ROW},       /* program_limit_exceeded */
        {"28000", MAINDB_FATAL},     /* invalid_authorization_specification */
        {"28P01", MAINDB_FATAL},     /* invalid_password */
        {"3D000", MAINDB_FATAL},     /* invalid_catalog_name */
        {"42501", MAINDB_FATAL},     /* insufficient_privilege */
        {"42P01", MAINDB_FATAL},     /* undefined_table */
        {"08006", MAINDB_TRANSIENT}, /* connection_failure */
        {"25006", MAINDB_TRANSIENT}, /* read_only_sql_transaction: a standby */
        {"25P03", MAINDB_TRANSIENT}, /* idle_in_transaction_session_timeout */
        {"40001", MAINDB_TRANSIENT}, /* serialization_failure */
        {"40P01", MAINDB_TRANSIENT}, /* deadlock_detected */
        {"53100", MAINDB_TRANSIENT}, /* disk_full */
        {"53300", MAINDB_TRANSIENT}, /* too_many_connections */
        {"55P03", MAINDB_TRANSIENT}, /* lock_not_available */
        {"57014", MAINDB_TRANSIENT}, /* query_canceled */
        {"57P01", MAINDB_TRANSIENT}, /* admin_shutdown */
        {"57P03", MAINDB_TRANSIENT}, /* cannot_connect_now */
        {"58030", MAINDB_TRANSIENT}, /* io_error */
        {"XX001", MAINDB_TRANSIENT}, /* data_corrupted */
        {"P0001", MAINDB_TRANSIENT}, /* raise_exception: unknown to the policy */
        {"3F000", MAINDB_TRANSIENT}, /* invalid_schema_name: 3D only, not all of 3 */
        {"2200", MAINDB_TRANSIENT},  /* not a code */
        {"", MAINDB_TRANSIENT},      /* a lost connection */
        {NULL, MAINDB_TRANSIENT},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (maindb_judge(cases[i].sqlstate) != cases[i].verdict) {
            fail_msg("SQLSTATE %s is judged %d", cases[i].sqlstate,
                     (int)maindb_judge(cases[i].sqlstate));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_class)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

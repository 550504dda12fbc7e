/* judge.c: the SQLSTATE policy, in one place. Codes: PostgreSQL documentation, appendix A. */
#include <string.h>

#include "maindb/maindb.h"

enum maindb_verdict maindb_judge(const char *sqlstate)
{
    static const struct {
        char class_code[3];
        enum maindb_verdict verdict;
    } policy[] = {
        {"22", MAINDB_ROW},   /* data exception */
        {"23", MAINDB_ROW},   /* integrity constraint violation */
        {"54", MAINDB_ROW},   /* program limit exceeded */
        {"28", MAINDB_FATAL}, /* invalid authorization */
        {"3D", MAINDB_FATAL}, /* invalid catalog name: no such database */
        {"42", MAINDB_FATAL}, /* syntax error or access rule: another schema, no privilege */
    };
    if (!sqlstate || strlen(sqlstate) != 5) {
        return MAINDB_TRANSIENT;
    }
    for (size_t i = 0; i < sizeof(policy) / sizeof(policy[0]); i++) {
        if (strncmp(sqlstate, policy[i].class_code, 2) == 0) {
            return policy[i].verdict;
        }
    }
    return MAINDB_TRANSIENT;
}

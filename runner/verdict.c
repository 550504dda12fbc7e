#include "verdict.h"

#include <errno.h>
#include <stdio.h>

#include "command.h"
#include "reports/report.h"

void verdict_audit(const char *run_dir, const char *label, int *exit_code)
{
    struct audit audit = {0};
    struct err err = {0};
    enum audit_verdict verdict = audit_run(run_dir, &audit, &err);
    bool tell_why = audit.why && (verdict == AUDIT_FAIL || verdict == AUDIT_VOID);
    printf("%s: audit: %s: %lld acknowledged, %lld committed, %lld dead, %lld lost", label,
           audit_verdict_name(verdict), (long long)audit.acknowledged, (long long)audit.committed,
           (long long)audit.dead, (long long)audit.bad[AUDIT_LOST].count);
    if (audit.not_drained > 0) {
        printf(", %lld not drained", (long long)audit.not_drained);
    }
    printf("%s%s\n", tell_why ? ": " : "", tell_why ? audit.why : "");
    if (verdict == AUDIT_FAIL) {
        *exit_code = EXIT_BAD_RUN;
    } else if (verdict == AUDIT_VOID && *exit_code == EXIT_OK) {
        *exit_code = EXIT_UNUSABLE;
    }
    audit_free(&audit);
    fflush(stdout);
}

void verdict_report(const char *comparison_dir, bool require_sla, int *exit_code)
{
    struct report_result result = {0};
    struct err err = {0};
    int rc = report_comparison(comparison_dir, &result, &err);
    if (rc == -ENOENT && *exit_code != EXIT_OK) {
        /* Not one run came about, and why has been said. */
    } else if (rc < 0) {
        fprintf(stderr, "sluice: the report could not be made: %s\n", err.text);
        if (*exit_code == EXIT_OK) {
            *exit_code = EXIT_UNUSABLE;
        }
    } else {
        printf("\n%s\n%s/compare.md\n", result.summary.data ? result.summary.data : "",
               comparison_dir);
        if (result.failed > 0) {
            *exit_code = EXIT_BAD_RUN;
        } else if (result.sla_missed > 0 && *exit_code == EXIT_OK && require_sla) {
            *exit_code = EXIT_BAD_RUN;
        }
    }
    report_result_free(&result);
}

/* verdict.h: what a command says at the end of a run and of a comparison, and its exit code by
 * that. Text goes to standard output, failures to standard error. */
#ifndef SLUICE_RUNNER_VERDICT_H
#define SLUICE_RUNNER_VERDICT_H

#include <stdbool.h>

/* Audits a run that is complete. A sink that is no control must pass. *exit_code is only ever made
 * worse. */
void verdict_audit(const char *run_dir, const char *label, int *exit_code);

/* Writes compare.md, compare.json and the charts; prints a sentence a sink. *exit_code as above. */
void verdict_report(const char *comparison_dir, bool require_sla, int *exit_code);

#endif

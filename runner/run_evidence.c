/* What the main DB holds, counted and written out. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "maindb/maindb.h"
#include "run.h"

/* What lies in the main DB and how often a row slept for it, before the load and after all. A run
 * without it lacks a figure, no more. */
void evidence_count(struct one_run *run, const char *state)
{
    struct maindb *db;
    struct maindb_counts counts = {0};
    struct err err = {0};
    int rc = maindb_open(&db, run->main_url, "sluice", &err);
    if (rc == 0) {
        rc = maindb_count(db, &counts, &err);
        maindb_close(db);
    }
    if (rc < 0) {
        run_say(run, "row sleeps are not counted: %s", err.text);
        return;
    }
    metrics_begin(&run->event, "main_rows");
    metrics_string(&run->event, "state", state);
    metrics_int(&run->event, "row_sleeps", counts.row_sleeps);
    metrics_int(&run->event, "rows", counts.tasks);
    metrics_int(&run->event, "refused", counts.refused);
    metrics_int(&run->event, "checkpoints", counts.checkpoints);
    metrics_int(&run->event, "autovacuums", counts.autovacuums);
    metrics_write(run->metrics, &run->event);
    metrics_flush(run->metrics);
}

int evidence_export(struct one_run *run, struct err *err)
{
    char *path = xasprintf("%s/main.tsv", run->request->dir);
    char *part_path = xasprintf("%s.part", path);
    FILE *out = fopen(part_path, "we");
    int rc = 0;
    if (!out) {
        rc = err_set(err, -errno, "%s: %s", part_path, strerror(errno));
        goto done;
    }
    rc = maindb_export(run->main_url, out, err);
    if (fclose(out) != 0 && rc == 0) {
        rc = err_set(err, -errno, "%s: %s", part_path, strerror(errno));
    }
    if (rc == 0 && rename(part_path, path) < 0) {
        rc = err_set(err, -errno, "%s: %s", path, strerror(errno));
    }
done:
    free(part_path);
    free(path);
    return rc;
}

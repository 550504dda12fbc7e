#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/uuid.h"
#include "http.h"
#include "keeper.h"
#include "maindb/maindb.h"
#include "run.h"
#include "task/task.h"

enum { POST_MS = 15000, ARRIVE_S = 60 };

static int write_ledger(const struct one_run *run, const uint8_t id[UUID_BYTES], int64_t sent_us,
                        int64_t done_us, int code, struct err *err)
{
    char text[UUID_TEXT_BYTES];
    struct buf ledger = {0};
    char *path = xasprintf("%s/ledger-probe.tsv", run->request->dir);
    buf_printf(&ledger, "#sluice-ledger 1 seed=0 payload_bytes=%lld\n",
               (long long)run->request->scenario->payload_bytes);
    buf_printf(&ledger, "%s\t%lld\t%lld\t%lld\t%d\t%s\tprobe\n", uuid_format(id, text),
               (long long)sent_us, (long long)sent_us, (long long)done_us, code,
               code == 202 ? "durable" : "unknown");
    buf_puts(&ledger, "#end rows=1\n");
    int rc = file_write(path, ledger.data, ledger.len, err);
    free(path);
    buf_free(&ledger);
    return rc;
}

static int wait_arrival(struct one_run *run, struct err *err)
{
    struct maindb *db;
    int rc = maindb_open(&db, run->main_url, "sluice", err);
    if (rc < 0) {
        return rc;
    }
    int64_t deadline_ns = clock_mono_ns() + ARRIVE_S * NS_PER_S;
    for (;;) {
        struct maindb_counts counts;
        rc = maindb_count(db, &counts, err);
        if (rc == 0 && counts.dead > 0) {
            rc = err_set(err, -EIO, "the probe task ended among the dead letters; see %s",
                         run->parts[PART_WORKER].look_at);
            break;
        }
        if ((rc == 0 && counts.tasks > 0) || (rc < 0 && rc != -EAGAIN)) {
            break;
        }
        if (keeper_interrupted()) {
            rc = err_set(err, -EINTR, "interrupted");
            break;
        }
        if (clock_mono_ns() > deadline_ns) {
            rc = err_set(err, -ETIMEDOUT,
                         "the probe task was acknowledged, but did not reach the main database "
                         "within %d s; see %s",
                         ARRIVE_S, run->parts[PART_WORKER].look_at);
            break;
        }
        keeper_nap(20);
    }
    maindb_close(db);
    return rc;
}

int probe_task(struct one_run *run, struct err *err)
{
    unsigned flags = run->request->driver->flags;
    uint8_t id[UUID_BYTES];
    struct buf body = {0}, answer = {0};
    uuid_v7(id);
    task_synth_body(id, (size_t)run->request->scenario->payload_bytes, &body);
    int64_t sent_us = clock_wall_us();
    int code =
        http_post(run->parts[PART_API].listen, "/task", body.data, body.len, POST_MS, &answer);
    int rc = write_ledger(run, id, sent_us, clock_wall_us(), code < 0 ? 0 : code, err);
    if (rc == 0 && code < 0) {
        rc = err_set(err, code, "the probe task got no answer from the api: %s; see %s",
                     strerror(-code), run->parts[PART_API].look_at);
    } else if (rc == 0 && code != 202) {
        rc = err_set(err, -EIO, "the probe task was answered %d, not 202: %.200s; see %s", code,
                     answer.data ? answer.data : "", run->parts[PART_API].look_at);
    }
    if (rc == 0 && flags & (SINK_DRAINS | SINK_NEEDS_MAIN)) {
        rc = wait_arrival(run, err);
    }
    buf_free(&body);
    buf_free(&answer);
    return rc;
}

/* ingest_parts.h: what the tests of the sink ingest share: a fresh database on the server that
 * SLUICE_TEST_INGEST_URL names, with the sink's table, and a driver of the ingest side. One thread.
 */
#ifndef SLUICE_SINK_INGEST_PARTS_H
#define SLUICE_SINK_INGEST_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/options.h"
#include "sink/drivers.h"
#include "testdb.h"

/* testdb's server is the ingest one from here on. Without it: prints why and ends the process, 77
 * (skipped), or 1 where CI=true. */
void ingest_need_server(void);

struct ingest_fixture {
    struct testdb db;
    struct options *options;
    struct sink *api;
};

/* cmocka's: the sink is set up, nothing is open. */
int ingest_fixture_setup(void **state);
int ingest_fixture_teardown(void **state);

struct options *ingest_options(const char *url);
void ingest_set(struct options *options, const char *name, const char *text);

/* Opens fixture->api, and waits until it is ready. */
void ingest_open_api(struct ingest_fixture *fixture);
void ingest_close_api(struct ingest_fixture *fixture, int64_t grace_ns);
void ingest_turn(struct sink *sink); /* of the loop; waits at most 100 ms */

/* A task whose id and body follow from the number. Static: good until the next call. */
struct task ingest_task(unsigned number);

struct ingest_outcome {
    int outcome; /* -1: none yet */
    unsigned batch;
};
void ingest_submit(struct sink *sink, unsigned number, struct ingest_outcome *outcome);
/* Turns until the first count have their outcome. */
void ingest_settle(struct sink *sink, const struct ingest_outcome *outcomes, unsigned count);
/* Tasks first..first+count-1, all DURABLE. */
void ingest_put(struct ingest_fixture *fixture, unsigned first, unsigned count);

int64_t ingest_rows(struct ingest_fixture *fixture);

#endif

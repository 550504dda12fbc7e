/* ref_ingest: the yardstick for the sink ingest: what a plain client of libpq reaches with
 * multi-row inserts of BATCH tasks, one statement in flight on each connection, and nothing else:
 * no outcomes, deadlines, reconnection.
 *
 *   SLUICE_SINK_URL=postgresql://USER:PASSWORD@HOST:PORT/DB ref_ingest SECONDS CONNECTIONS BATCH
 * BYTES
 *
 * Prints rate and the time from sending a statement to its answer. The table sluice_bench_ref is
 * dropped before and after. */
#include <endian.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "hist.h"
#include "task/task.h"

enum { CONNECTIONS_MAX = 64, PARAMS = 3, ARRAY_HEADER_BYTES = 20 };
enum { OID_BYTEA = 17, OID_INT8 = 20, OID_UUID = 2950 };

static const char create_sql[] =
    "CREATE TABLE sluice_bench_ref (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
    "id uuid NOT NULL, accepted_us bigint NOT NULL, body bytea NOT NULL)";
static const char insert_sql[] = "INSERT INTO sluice_bench_ref (id, accepted_us, body) "
                                 "SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bytea[])";

static PGconn *conns[CONNECTIONS_MAX];
static int64_t began_ns[CONNECTIONS_MAX];
static char *params[PARAMS]; /* arrays in binary form, filled anew for each statement */
static int lengths[PARAMS];
static int batch;
static size_t body_bytes;
static int64_t sent, received;

static void fail(PGconn *conn, const char *what)
{
    fprintf(stderr, "ref_ingest: %s: %s", what, PQerrorMessage(conn));
    exit(3);
}

static void run(PGconn *conn, const char *sql)
{
    PGresult *result = PQexec(conn, sql);
    if (PQresultStatus(result) != PGRES_COMMAND_OK) {
        fail(conn, sql);
    }
    PQclear(result);
}

static char *put_int32(char *at, uint32_t value)
{
    uint32_t wire = htobe32(value);
    memcpy(at, &wire, sizeof(wire));
    return at + sizeof(wire);
}

static char *begin_array(int index, size_t element_bytes, uint32_t oid)
{
    if (!params[index]) {
        params[index] = malloc(ARRAY_HEADER_BYTES + (size_t)batch * (4 + element_bytes));
        lengths[index] = (int)(ARRAY_HEADER_BYTES + (size_t)batch * (4 + element_bytes));
    }
    char *at = put_int32(params[index], 1); /* dimensions, has-null, type, length, lower bound */
    at = put_int32(at, 0);
    at = put_int32(at, oid);
    at = put_int32(at, (uint32_t)batch);
    return put_int32(at, 1);
}

static void send_one(int index)
{
    static const int formats[PARAMS] = {1, 1, 1};
    char *ids = begin_array(0, UUID_BYTES, OID_UUID);
    char *accepted = begin_array(1, sizeof(int64_t), OID_INT8);
    char *bodies = begin_array(2, body_bytes, OID_BYTEA);
    for (int i = 0; i < batch; i++, sent++) {
        uint64_t wire = htobe64((uint64_t)sent);
        ids = put_int32(ids, UUID_BYTES);
        task_synth_id(1, (uint64_t)sent, (uint8_t *)ids);
        ids += UUID_BYTES;
        accepted = put_int32(accepted, sizeof(wire));
        memcpy(accepted, &wire, sizeof(wire));
        accepted += sizeof(wire);
        bodies = put_int32(bodies, (uint32_t)body_bytes);
        memset(bodies, 'x', body_bytes);
        bodies += body_bytes;
    }
    began_ns[index] = clock_mono_ns();
    if (PQsendQueryPrepared(conns[index], "insert", PARAMS, (const char *const *)params, lengths,
                            formats, 1) != 1 ||
        PQflush(conns[index]) < 0) {
        fail(conns[index], "sending");
    }
}

/* True once the statement's answer is there. */
static int receive(int index, struct hist *latency)
{
    PGconn *conn = conns[index];
    if (PQconsumeInput(conn) != 1 || PQflush(conn) < 0) {
        fail(conn, "receiving");
    }
    while (!PQisBusy(conn)) {
        PGresult *result = PQgetResult(conn);
        if (!result) {
            hist_add(latency, clock_mono_ns() - began_ns[index]);
            received += batch;
            return 1;
        }
        if (PQresultStatus(result) != PGRES_COMMAND_OK) {
            fail(conn, "INSERT");
        }
        PQclear(result);
    }
    return 0;
}

static void connect_all(const char *url, int connections)
{
    for (int i = 0; i < connections; i++) {
        conns[i] = PQconnectdb(url);
        if (PQstatus(conns[i]) != CONNECTION_OK) {
            fail(conns[i], "connecting");
        }
        if (i == 0) {
            run(conns[0], "SET client_min_messages = error");
            run(conns[0], "DROP TABLE IF EXISTS sluice_bench_ref");
            run(conns[0], create_sql);
        }
        run(conns[i], "SET plan_cache_mode = force_generic_plan");
        PGresult *result = PQprepare(conns[i], "insert", insert_sql, PARAMS, NULL);
        if (PQresultStatus(result) != PGRES_COMMAND_OK || PQsetnonblocking(conns[i], 1) != 0) {
            fail(conns[i], "PREPARE");
        }
        PQclear(result);
    }
}

static void go(int connections, int64_t end_ns, struct hist *latency)
{
    struct pollfd polled[CONNECTIONS_MAX];
    for (int i = 0; i < connections; i++) {
        send_one(i);
    }
    while (clock_mono_ns() < end_ns) {
        for (int i = 0; i < connections; i++) {
            short unsent = PQflush(conns[i]) > 0 ? POLLOUT : 0;
            polled[i] = (struct pollfd){.fd = PQsocket(conns[i]), .events = POLLIN | unsent};
        }
        poll(polled, (nfds_t)connections, 1000);
        for (int i = 0; i < connections; i++) {
            if (polled[i].revents && receive(i, latency)) {
                send_one(i);
            }
        }
    }
}

int main(int argc, char **argv)
{
    double seconds = argc == 5 ? atof(argv[1]) : 0;
    int connections = argc == 5 ? atoi(argv[2]) : 0;
    const char *url = getenv("SLUICE_SINK_URL");
    batch = argc == 5 ? atoi(argv[3]) : 0;
    body_bytes = argc == 5 ? strtoul(argv[4], NULL, 10) : 0;
    if (!url || seconds <= 0 || connections <= 0 || connections > CONNECTIONS_MAX || batch <= 0 ||
        body_bytes == 0) {
        fprintf(stderr, "usage: SLUICE_SINK_URL=URL ref_ingest SECONDS CONNECTIONS BATCH BYTES\n");
        return 2;
    }
    struct hist *latency = hist_new();
    connect_all(url, connections);
    int64_t start_ns = clock_mono_ns();
    go(connections, start_ns + (int64_t)(seconds * 1e9), latency);
    double took_s = (double)(clock_mono_ns() - start_ns) / 1e9;
    printf("rate %.0f\np50_ms %.3f\np99_ms %.3f\n", (double)received / took_s,
           (double)hist_percentile_ns(latency, 0.5) / 1e6,
           (double)hist_percentile_ns(latency, 0.99) / 1e6);
    for (int i = 0; i < connections; i++) {
        PQfinish(conns[i]); /* what is under way is given up */
    }
    PGconn *conn = PQconnectdb(url);
    run(conn, "SET client_min_messages = error");
    run(conn, "DROP TABLE IF EXISTS sluice_bench_ref");
    PQfinish(conn);
    for (int i = 0; i < PARAMS; i++) {
        free(params[i]);
    }
    hist_free(latency);
    return 0;
}

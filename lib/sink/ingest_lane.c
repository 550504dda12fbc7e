/* ingest_lane.c: taking rows under a lock, keeping it, and letting go. */
#include "sink/ingest_lane.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "maindb/pg.h"
#include "maindb/pg_call.h"
#include "sink/drivers.h"
#include "sink/ingest_table.h"

/* A lane must end within a worker's 5 s, even if its server hangs. */
#define ANSWER_NS   (4 * NS_PER_S)
#define CONNECT_NS  (1 * NS_PER_S) /* within a fetch; the next one goes on with it */
#define LET_GO_NS   (1 * NS_PER_S)
#define AGAIN_NS    (20 * NS_PER_MS)
#define POLL_MIN_NS (2 * NS_PER_MS)
#define POLL_MAX_NS (16 * NS_PER_MS)
#define FULL_NS     (1 * NS_PER_S)

enum {
    RENEWALS = 5,    /* within a lease */
    FULL_SHARE = 50, /* taking from the start rests this many times as long as it took */
    WINDOW = 10000,  /* rows; see take_from() */
    KEEP_SOON_MS = 10,
};

struct taken { /* what one statement brought; owns the bodies */
    PGresult *rows;
};

struct lane {
    struct sink_lane base;
    struct ingest_drain *drain;
    struct pg_target *target;
    struct pg_link link;
    bool prepared;
    bool preparing; /* it was asked for, and not answered yet */
    bool in_transaction;
    bool renewing;      /* a statement that renews the lease is under way */
    int64_t renewed_ns; /* when the server last heard of us */
    struct taken *taken;
    size_t taken_count;
    struct task *tasks;
    int64_t *seqs;
    size_t count, capacity;
    unsigned redelivered;
};

static struct lane *lane_of(struct sink_lane *lane)
{
    return (struct lane *)lane;
}

int ingest_drain_open(struct ingest_drain *drain, const struct options *options, struct err *err)
{
    struct pg_target *target = NULL;
    *drain = (struct ingest_drain){.url = options_string(options, "sink-url"),
                                   .lease_ns = options_duration_ns(options, "ingest-lease")};
    int rc = ingest_table_name(&drain->table, options, err);
    if (rc == 0) {
        rc = pg_target_new(&target, drain->url, "sluice-worker", err); /* can it be read? */
    }
    if (rc < 0) {
        return rc;
    }
    pg_target_free(target);
    pthread_mutex_init(&drain->mutex, NULL);
    return 0;
}

void ingest_drain_close(struct ingest_drain *drain)
{
    pthread_mutex_destroy(&drain->mutex);
}

/* ---- connection ---- */

/* false: the session is gone, and with it the transaction and its locks. */
static bool is_up(struct lane *lane)
{
    if (lane->link.state == PG_READY && PQstatus(lane->link.conn) != CONNECTION_OK) {
        pg_drop(&lane->link);
    }
    if (lane->link.state != PG_READY) {
        lane->prepared = lane->preparing = lane->in_transaction = lane->renewing = false;
        return false;
    }
    return true;
}

static int run(struct lane *lane, const char *sql, int64_t wait_ns, PGresult **result,
               struct err *err)
{
    int rc = pg_call_run(&lane->link, sql, clock_mono_ns() + wait_ns, result, err);
    lane->renewed_ns = clock_mono_ns();
    return rc;
}

/* An ack needs no flush of its own: should a crash take it back, the tasks come again. The order of
 * the rows comes from the index, whatever the statistics of a table that is empty one moment and
 * full the next say. The transaction may stand idle for as long as the lease. */
static int send_preparation(struct lane *lane, struct err *err)
{
    const struct ingest_drain *drain = lane->drain;
    char *sql =
        xasprintf("SET synchronous_commit = off; SET plan_cache_mode = force_generic_plan; "
                  "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; "
                  "SET statement_timeout = %lld; SET idle_in_transaction_session_timeout = %lld; "
                  "PREPARE sluice_take (bigint, bigint) AS "
                  "SELECT seq, id, accepted_us, body, xmax::text <> '0' FROM %s "
                  "WHERE seq > $1 ORDER BY seq LIMIT $2 FOR UPDATE SKIP LOCKED; "
                  "PREPARE sluice_done (bigint[]) AS DELETE FROM %s WHERE seq = ANY ($1)",
                  (long long)(ANSWER_NS / NS_PER_MS), (long long)(drain->lease_ns / NS_PER_MS),
                  drain->table, drain->table);
    int rc = PQsendQuery(lane->link.conn, sql) == 1 ? 0 : pg_call_fail(&lane->link, NULL, err);
    free(sql);
    lane->preparing = rc == 0;
    return rc;
}

static int end_preparation(struct lane *lane, struct err *err)
{
    lane->preparing = false;
    int rc = pg_call_finish(&lane->link, clock_mono_ns() + ANSWER_NS, NULL, err);
    lane->prepared = rc == 0;
    lane->renewed_ns = clock_mono_ns();
    return rc;
}

static int connect_lane(struct lane *lane, int64_t deadline_ns, struct err *err)
{
    if (is_up(lane) && lane->prepared) {
        return 0;
    }
    int rc = pg_call_connect(&lane->link, lane->target, deadline_ns, err);
    if (rc == 0 && !lane->preparing) {
        rc = send_preparation(lane, err);
    }
    return rc == 0 ? end_preparation(lane, err) : rc;
}

/* Waits for the answer of keep(). */
static int end_renewal(struct lane *lane, struct err *err)
{
    if (!lane->renewing) {
        return 0;
    }
    lane->renewing = false;
    return pg_call_finish(&lane->link, clock_mono_ns() + ANSWER_NS, NULL, err);
}

/* ---- taking ---- */

static void forget_batch(struct lane *lane)
{
    for (size_t i = 0; i < lane->taken_count; i++) {
        PQclear(lane->taken[i].rows);
    }
    lane->taken_count = 0;
    lane->count = 0;
    lane->redelivered = 0;
}

static int64_t read_int64(const PGresult *result, int row, int column)
{
    uint64_t wire;
    assert(PQgetlength(result, row, column) == (int)sizeof(wire));
    memcpy(&wire, PQgetvalue(result, row, column), sizeof(wire));
    return (int64_t)be64toh(wire);
}

/* The result's rows into the batch, which owns it from now on. */
static void add_rows(struct lane *lane, PGresult *result)
{
    int rows = PQntuples(result);
    lane->taken = xrealloc(lane->taken, (lane->taken_count + 1) * sizeof(*lane->taken));
    lane->taken[lane->taken_count++].rows = result;
    if (lane->count + (size_t)rows > lane->capacity) {
        lane->capacity = lane->count + (size_t)rows;
        lane->tasks = xrealloc(lane->tasks, lane->capacity * sizeof(*lane->tasks));
        lane->seqs = xrealloc(lane->seqs, lane->capacity * sizeof(*lane->seqs));
    }
    for (int i = 0; i < rows; i++) {
        struct task *task = &lane->tasks[lane->count];
        lane->seqs[lane->count++] = read_int64(result, i, 0);
        assert(PQgetlength(result, i, 1) == UUID_BYTES);
        memcpy(task->id, PQgetvalue(result, i, 1), UUID_BYTES);
        task->accepted_us = read_int64(result, i, 2);
        task->body = PQgetvalue(result, i, 3);
        task->body_bytes = (size_t)PQgetlength(result, i, 3);
        /* A row remembers the last transaction that locked it, also one that was rolled back. */
        lane->redelivered += *PQgetvalue(result, i, 4) != 0;
    }
}

/* Behind which row taking begins. Rows that were deleted stay in the index until a vacuum may
 * remove them, and a transaction that stands open for long (a lane's, a dump) forbids that; so the
 * scan does not begin at the start each time, but some way before the newest row taken. A number is
 * drawn before its row is visible, so rows may appear further back than any such distance; and rows
 * are given back there. Therefore the scan begins at the start once a second, and at once when
 * this process gave something back. (Within a batch, rows that it has itself are left out.) */
static int64_t take_from(struct lane *lane, bool *full)
{
    struct ingest_drain *drain = lane->drain;
    *full = false;
    if (lane->count > 0) {
        return lane->seqs[lane->count - 1];
    }
    pthread_mutex_lock(&drain->mutex);
    *full = drain->highest_seq <= WINDOW || clock_mono_ns() >= drain->full_due_ns;
    int64_t from = *full ? INT64_MIN : drain->highest_seq - WINDOW;
    pthread_mutex_unlock(&drain->mutex);
    return from;
}

static void note_taken(struct lane *lane, bool full, int64_t took_ns)
{
    struct ingest_drain *drain = lane->drain;
    pthread_mutex_lock(&drain->mutex);
    if (full) {
        int64_t rest_ns = took_ns * FULL_SHARE;
        drain->full_due_ns = clock_mono_ns() + (rest_ns > FULL_NS ? rest_ns : FULL_NS);
    }
    if (lane->count > 0 && lane->seqs[lane->count - 1] > drain->highest_seq) {
        drain->highest_seq = lane->seqs[lane->count - 1];
    }
    pthread_mutex_unlock(&drain->mutex);
}

/* Takes what can be had at this moment, up to `most` rows. */
static int take(struct lane *lane, unsigned most, struct err *err)
{
    static const int lengths[] = {sizeof(uint64_t), sizeof(uint64_t)};
    static const int formats[] = {1, 1};
    bool full;
    uint64_t from = htobe64((uint64_t)take_from(lane, &full));
    uint64_t limit = htobe64(most);
    const char *const values[] = {(const char *)&from, (const char *)&limit};
    int64_t began_ns = clock_mono_ns();
    PGresult *result = NULL;
    if (!lane->in_transaction) {
        int rc = run(lane, "BEGIN", ANSWER_NS, NULL, err);
        if (rc < 0) {
            return rc;
        }
        lane->in_transaction = true;
    }
    if (PQsendQueryPrepared(lane->link.conn, "sluice_take", 2, values, lengths, formats, 1) != 1) {
        return pg_call_fail(&lane->link, NULL, err);
    }
    int rc = pg_call_finish(&lane->link, began_ns + ANSWER_NS, &result, err);
    if (rc < 0) {
        return rc;
    }
    lane->renewed_ns = clock_mono_ns();
    if (PQntuples(result) > 0) {
        add_rows(lane, result);
    } else {
        PQclear(result);
    }
    note_taken(lane, full, lane->renewed_ns - began_ns);
    return 0;
}

/* Full, or wait_ns after the first row; until end_ns for that one. */
static int fill(struct lane *lane, unsigned max, int64_t wait_ns, int64_t end_ns, struct err *err)
{
    int64_t pause_ns = POLL_MIN_NS;
    for (;;) {
        size_t before = lane->count;
        int rc = take(lane, max - (unsigned)before, err);
        int64_t now_ns = clock_mono_ns();
        if (rc < 0 || lane->count == max) {
            return rc;
        }
        if (before == 0 && lane->count > 0) {
            end_ns = now_ns + wait_ns;
        }
        if (now_ns >= end_ns) {
            return 0;
        }
        pause_ns = lane->count > before ? POLL_MIN_NS : 2 * pause_ns;
        pause_ns = pause_ns < POLL_MAX_NS ? pause_ns : POLL_MAX_NS;
        clock_sleep_ns(pause_ns < end_ns - now_ns ? pause_ns : end_ns - now_ns);
    }
}

/* The transaction ends without a trace, and what it held is free; or the session does. */
static void let_go(struct lane *lane)
{
    struct err err = {0};
    forget_batch(lane);
    if (is_up(lane) && lane->in_transaction) {
        int rc = end_renewal(lane, &err);
        if (rc == 0) {
            run(lane, "ROLLBACK", LET_GO_NS, NULL, &err);
        }
        lane->in_transaction = false;
    }
}

static int fetch_error(struct lane *lane, int code, const struct err *err)
{
    forget_batch(lane); /* its locks went with the session */
    log_warning("sink ingest: %s", err->text);
    return code == -EACCES ? -ESHUTDOWN : -ENOTCONN;
}

int ingest_lane_fetch(struct sink_lane *base, unsigned max, int wait_ms, struct sink_batch *batch)
{
    struct lane *lane = lane_of(base);
    struct err err = {0};
    int64_t now_ns = clock_mono_ns();
    int64_t wait_ns = wait_ms * NS_PER_MS;
    assert(lane->count == 0 && max > 0);
    *batch = (struct sink_batch){0};
    int rc = connect_lane(lane, now_ns + (wait_ns > CONNECT_NS ? wait_ns : CONNECT_NS), &err);
    if (rc < 0) {
        return fetch_error(lane, rc, &err);
    }
    rc = fill(lane, max, wait_ns, now_ns + wait_ns, &err);
    if (rc < 0) {
        is_up(lane);
        return fetch_error(lane, rc, &err);
    }
    if (lane->count == 0) {
        let_go(lane); /* no transaction stands open for nothing */
    }
    *batch = (struct sink_batch){
        .count = lane->count, .tasks = lane->tasks, .redelivered = lane->redelivered};
    return (int)lane->count;
}

/* ---- holding ---- */

/* Reads what came and sends what waits. 0, or -ENOTCONN: the session is gone. */
static int service(struct lane *lane)
{
    /* Twice: the first one may bring the server's last words, the second the end itself. */
    if (!is_up(lane) || PQconsumeInput(lane->link.conn) != 1 ||
        PQconsumeInput(lane->link.conn) != 1 || PQflush(lane->link.conn) < 0) {
        pg_drop(&lane->link);
        is_up(lane);
        return -ENOTCONN;
    }
    return 0;
}

/* One step of connecting, if it can be made without waiting. 1: ready; 0: not yet. */
static int step_connecting(struct lane *lane, struct err *err)
{
    struct pg_link *link = &lane->link;
    if (link->state == PG_DOWN) {
        return pg_start(link, lane->target, err);
    }
    struct pollfd polled = {.fd = PQsocket(link->conn), .events = link->wants};
    if (poll(&polled, 1, 0) == 0 && clock_mono_ns() < link->deadline_ns) {
        return 0;
    }
    return pg_step(link, err);
}

/* Without a batch: one step towards a session that can take rows, or none. Nothing waits here but a
 * host name that is looked up. */
static int keep_idle(struct lane *lane)
{
    struct err err = {0};
    int rc = 0;
    if (!is_up(lane)) {
        /* What is wrong, the next fetch says. */
        rc = step_connecting(lane, &err);
        if (rc <= 0) {
            return rc < 0 ? -ENOTCONN : KEEP_SOON_MS;
        }
    }
    rc = service(lane);
    if (rc == 0 && !lane->prepared && !lane->preparing) {
        rc = send_preparation(lane, &err);
    }
    if (rc == 0 && lane->preparing) {
        if (PQisBusy(lane->link.conn)) {
            return KEEP_SOON_MS;
        }
        rc = end_preparation(lane, &err);
    }
    is_up(lane);
    return rc < 0 ? -ENOTCONN : 0;
}

/* A statement that says nothing, whose answer the next call reads: nothing here waits. */
int ingest_lane_keep(struct sink_lane *base)
{
    struct lane *lane = lane_of(base);
    if (lane->count == 0) {
        return keep_idle(lane);
    }
    if (service(lane) < 0) {
        return -ENOTCONN;
    }
    int64_t now_ns = clock_mono_ns();
    if (lane->renewing && !PQisBusy(lane->link.conn)) {
        struct err err = {0};
        int rc = end_renewal(lane, &err);
        if (rc < 0) {
            log_warning("sink ingest: %s: what a lane holds will be delivered again", err.text);
            is_up(lane);
            return -ENOTCONN;
        }
        lane->renewed_ns = now_ns;
    }
    if (!lane->renewing && now_ns - lane->renewed_ns >= lane->drain->lease_ns / RENEWALS) {
        if (PQsendQuery(lane->link.conn, "SELECT") != 1) {
            pg_drop(&lane->link);
            is_up(lane);
            return -ENOTCONN;
        }
        PQflush(lane->link.conn);
        lane->renewing = true;
    }
    return 0;
}

/* ---- letting go ---- */

static void write_seqs(const struct lane *lane, struct buf *out)
{
    buf_putc(out, '{');
    for (size_t i = 0; i < lane->count; i++) {
        buf_printf(out, i > 0 ? ",%lld" : "%lld", (long long)lane->seqs[i]);
    }
    buf_putc(out, '}');
}

/* With the locks still held. */
static int delete_held(struct lane *lane, const char *seqs, struct err *err)
{
    int rc = end_renewal(lane, err);
    if (rc == 0) {
        char *sql = xasprintf("EXECUTE sluice_done ('%s'); COMMIT", seqs);
        rc = run(lane, sql, ANSWER_NS, NULL, err);
        free(sql);
        lane->in_transaction = false;
    }
    return rc;
}

/* The session was lost, before or while it deleted. What another lane has taken since is left to
 * it. Returns how many rows are still there, or negative errno. */
static int delete_lost(struct lane *lane, const char *seqs, int64_t deadline_ns, struct err *err)
{
    PGresult *result = NULL;
    const char *table = lane->drain->table;
    int rc = connect_lane(lane, deadline_ns, err);
    if (rc < 0) {
        return rc;
    }
    char *sql = xasprintf(
        "WITH gone AS (DELETE FROM %s WHERE seq IN (SELECT seq FROM %s WHERE seq = ANY ('%s') "
        "FOR UPDATE SKIP LOCKED) RETURNING seq) "
        "SELECT (SELECT count(*) FROM %s WHERE seq = ANY ('%s')) - (SELECT count(*) FROM gone)",
        table, table, seqs, table, seqs);
    rc = run(lane, sql, LET_GO_NS, &result, err);
    free(sql);
    if (rc == 0) {
        rc = (int)strtol(PQgetvalue(result, 0, 0), NULL, 10);
    }
    PQclear(result);
    return rc;
}

int ingest_lane_ack(struct sink_lane *base, struct sink_batch *batch)
{
    struct lane *lane = lane_of(base);
    struct err err = {0};
    struct buf seqs = {0};
    int rc = -ENOTCONN;
    write_seqs(lane, &seqs);
    batch->count = 0;
    if (lane->count == 0) {
        rc = 0;
    } else if (is_up(lane) && lane->in_transaction) {
        rc = delete_held(lane, seqs.data, &err);
    }
    if (rc < 0) {
        /* The server may not have noticed yet that the old session is gone. */
        int64_t deadline_ns = clock_mono_ns() + LET_GO_NS;
        while ((rc = delete_lost(lane, seqs.data, deadline_ns, &err)) != 0 &&
               clock_mono_ns() < deadline_ns) {
            clock_sleep_ns(AGAIN_NS);
        }
    }
    forget_batch(lane);
    is_up(lane);
    buf_free(&seqs);
    return rc > 0 ? -EIO : rc;
}

int ingest_lane_release(struct sink_lane *base, struct sink_batch *batch)
{
    struct lane *lane = lane_of(base);
    struct ingest_drain *drain = lane->drain;
    batch->count = 0;
    let_go(lane);
    pthread_mutex_lock(&drain->mutex);
    drain->full_due_ns = 0;
    pthread_mutex_unlock(&drain->mutex);
    return 0;
}

int ingest_lane_open(struct ingest_drain *drain, unsigned number, struct sink_lane **out,
                     struct err *err)
{
    struct lane *lane = xcalloc(1, sizeof(*lane));
    char *name = xasprintf("sluice-worker lane-%u", number);
    lane->base.driver = &sink_ingest;
    lane->drain = drain;
    *out = NULL;
    int rc = pg_target_new(&lane->target, drain->url, name, err);
    free(name);
    if (rc == 0) {
        rc = connect_lane(lane, INT64_MAX, err); /* no longer than the connect timeout */
    }
    if (rc < 0) {
        pg_drop(&lane->link);
        pg_target_free(lane->target);
        free(lane);
        return rc == -EACCES ? -EPERM : rc; /* a person must act */
    }
    *out = &lane->base;
    return 0;
}

void ingest_lane_close(struct sink_lane *base)
{
    struct lane *lane = lane_of(base);
    struct sink_batch none = {0};
    ingest_lane_release(base, &none);
    pg_drop(&lane->link);
    pg_target_free(lane->target);
    free(lane->taken);
    free(lane->tasks);
    free(lane->seqs);
    free(lane);
}

/* ingest_watch.c: counting at a bounded cost, and what else there is to be watched. */
#include "sink/ingest_watch.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "maindb/pg_call.h"

enum { SHARE = 99 }; /* this many times as long as a count took it rests */

#define LONGEST_NS   (10 * NS_PER_S)
#define ANSWER_NS    (10 * NS_PER_S)
#define RETRY_MIN_NS (500 * NS_PER_MS)
#define ROW_NS       300 /* about what a count takes for each */

/* By the index, whose size follows the backlog: the table may be far larger, full of room. */
static const char count_sql[] =
    "SET enable_seqscan = off; SET enable_bitmapscan = off; SET statement_timeout = '10s'; "
    "SET max_parallel_workers_per_gather = 0; "
    "SELECT count(*), coalesce(sum(octet_length(body)), 0) FROM %s";

void ingest_watch_start(struct ingest_watch *watch, const struct pg_target *target,
                        const char *table, int64_t shortest_ns)
{
    *watch = (struct ingest_watch){.target = target,
                                   .table = table,
                                   .shortest_ns = shortest_ns,
                                   .seed = (unsigned)clock_mono_ns()};
}

void ingest_watch_stop(struct ingest_watch *watch)
{
    PQclear(watch->answer);
    watch->answer = NULL;
    watch->asking = false;
    pg_drop(&watch->link);
}

/* The figure that is known stays, and grows old. */
static void failed(struct ingest_watch *watch)
{
    ingest_watch_stop(watch);
    watch->failing = true;
    watch->due_ns = clock_mono_ns() + RETRY_MIN_NS + rand_r(&watch->seed) % RETRY_MIN_NS;
}

static void ask(struct ingest_watch *watch)
{
    char *sql = xasprintf(count_sql, watch->table);
    watch->began_ns = clock_mono_ns();
    watch->due_ns = watch->began_ns + ANSWER_NS;
    watch->asking = true;
    if (PQsendQuery(watch->link.conn, sql) != 1) {
        failed(watch);
    }
    free(sql);
}

static bool counted(struct ingest_watch *watch)
{
    PGresult *answer = watch->answer;
    watch->answer = NULL;
    watch->asking = false;
    if (PQresultStatus(answer) != PGRES_TUPLES_OK || PQntuples(answer) != 1) {
        PQclear(answer);
        failed(watch);
        return false;
    }
    watch->tasks = strtoll(PQgetvalue(answer, 0, 0), NULL, 10);
    watch->bytes = strtoll(PQgetvalue(answer, 0, 1), NULL, 10);
    PQclear(answer);
    watch->asked_ns = watch->began_ns;
    watch->answered_ns = clock_mono_ns();
    watch->failing = false;
    int64_t rest_ns = (watch->answered_ns - watch->began_ns) * SHARE;
    rest_ns = rest_ns > watch->shortest_ns ? rest_ns : watch->shortest_ns;
    watch->due_ns = watch->answered_ns + (rest_ns < LONGEST_NS ? rest_ns : LONGEST_NS);
    return true;
}

void ingest_watch_expect(struct ingest_watch *watch, int64_t tasks)
{
    if (watch->link.state == PG_READY && !watch->asking) {
        int64_t rest_ns = tasks * ROW_NS * SHARE;
        int64_t due_ns = watch->answered_ns + (rest_ns < LONGEST_NS ? rest_ns : LONGEST_NS);
        watch->due_ns = due_ns > watch->due_ns ? due_ns : watch->due_ns;
    }
}

static bool read_answer(struct ingest_watch *watch)
{
    PGconn *conn = watch->link.conn;
    if (PQflush(conn) < 0 || PQconsumeInput(conn) != 1 || PQstatus(conn) != CONNECTION_OK) {
        failed(watch);
        return false;
    }
    while (watch->asking && !PQisBusy(conn)) {
        PGresult *result = PQgetResult(conn);
        if (!result) {
            return counted(watch);
        }
        PQclear(watch->answer); /* of the SETs; an error is the last of all */
        watch->answer = result;
    }
    return false;
}

bool ingest_watch_step(struct ingest_watch *watch)
{
    bool is_due = clock_mono_ns() >= watch->due_ns;
    bool new_count = false;
    int rc = 0;
    if (watch->link.state == PG_DOWN && is_due) {
        rc = pg_start(&watch->link, watch->target, NULL);
        watch->due_ns = watch->link.deadline_ns;
    } else if (watch->link.state == PG_CONNECTING || watch->link.state == PG_SETTING) {
        rc = pg_step(&watch->link, NULL);
        if (rc == 1) {
            ask(watch);
        }
    } else if (watch->link.state == PG_READY) {
        new_count = read_answer(watch);
        if (!new_count && is_due && watch->link.state == PG_READY) {
            if (watch->asking) {
                rc = -ETIMEDOUT;
            } else {
                ask(watch);
            }
        }
    }
    if (rc < 0) {
        failed(watch);
    }
    return new_count;
}

int ingest_watch_fd(const struct ingest_watch *watch, short *events)
{
    switch (watch->link.state) {
    case PG_DOWN:
        return -1;
    case PG_CONNECTING:
    case PG_SETTING:
        *events = watch->link.wants;
        break;
    case PG_READY:
        *events = (short)(POLLIN | (PQflush(watch->link.conn) > 0 ? POLLOUT : 0));
        break;
    }
    return PQsocket(watch->link.conn);
}

int64_t ingest_watch_due_ns(const struct ingest_watch *watch)
{
    return watch->due_ns;
}

/* Steps until there is a new count, nothing more is to be done now, or the time is over. */
int ingest_watch_ask(struct ingest_watch *watch, int64_t wait_ns)
{
    int64_t until_ns = clock_mono_ns() + wait_ns;
    while (!ingest_watch_step(watch)) {
        int64_t now_ns = clock_mono_ns();
        short events = 0;
        int fd = ingest_watch_fd(watch, &events);
        bool at_work = fd >= 0 && (watch->asking || watch->link.state != PG_READY);
        if (now_ns >= until_ns || !at_work) {
            break;
        }
        int64_t left_ns = (watch->due_ns < until_ns ? watch->due_ns : until_ns) - now_ns;
        struct timespec timeout = {.tv_sec = left_ns > 0 ? left_ns / NS_PER_S : 0,
                                   .tv_nsec = left_ns > 0 ? left_ns % NS_PER_S : 0};
        struct pollfd polled = {.fd = fd, .events = events};
        ppoll(&polled, 1, &timeout, NULL);
    }
    return watch->answered_ns == 0 || watch->failing ? -EAGAIN : 0;
}

/* ---- what is to be watched ---- */

static const char stats_sql[] =
    "SELECT t.n_live_tup, t.n_dead_tup, t.autovacuum_count, "
    "pg_relation_size(t.relid), pg_indexes_size(t.relid), "
    "pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0'), "
    "(SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0) "
    "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)), "
    "%s, (%s) "
    "FROM pg_stat_user_tables AS t%s WHERE t.relid = to_regclass('%s')";
/* The checkpointer's figures moved in Postgres 17. */
static const char checkpoints_old[] = "b.checkpoints_timed, b.checkpoints_req";
static const char checkpoints_new[] = "b.num_timed, b.num_requested";

/* How often the log was flushed: 14 to 17 tell it in one place, 18 in another. */
static const char *flushes_of(int version)
{
    if (version < 140000) {
        return "SELECT 'NaN'";
    }
    return version < 180000 ? "SELECT wal_sync FROM pg_stat_wal"
                            : "SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal'";
}

static const char *const stat_names[] = {
    "live_tuples",           "dead_tuples", "autovacuums",          "table_bytes",
    "index_bytes",           "wal_bytes",   "oldest_transaction_s", "checkpoints_timed",
    "checkpoints_requested", "wal_flushes",
};

int ingest_watch_stats(struct ingest_watch *watch, struct sink_stats *stats, int64_t wait_ns)
{
    PGresult *answer = NULL;
    if (watch->link.state != PG_READY || watch->asking) {
        return -EAGAIN;
    }
    bool is_new = PQserverVersion(watch->link.conn) >= 170000;
    char *sql =
        xasprintf(stats_sql, is_new ? checkpoints_new : checkpoints_old,
                  flushes_of(PQserverVersion(watch->link.conn)),
                  is_new ? ", pg_stat_checkpointer AS b" : ", pg_stat_bgwriter AS b", watch->table);
    int rc = pg_call_run(&watch->link, sql, clock_mono_ns() + wait_ns, &answer, NULL);
    free(sql);
    if (rc < 0) {
        failed(watch);
        return -EAGAIN;
    }
    stats->count = 0;
    for (size_t i = 0; PQntuples(answer) == 1 && i < sizeof(stat_names) / sizeof(stat_names[0]);
         i++) {
        stats->items[stats->count++] =
            (struct sink_stat){stat_names[i], strtod(PQgetvalue(answer, 0, (int)i), NULL)};
    }
    PQclear(answer);
    return 0;
}

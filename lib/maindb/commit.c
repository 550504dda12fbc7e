/* commit.c: a batch into task or task_dead, in one transaction.
 *
 * First all at once. When a row makes that fail, once more with a savepoint a row, so that the
 * culprit is known; it goes to task_dead and the rest on its way. READ COMMITTED is asked for by
 * name: the second statement (rows.h) must see what another transaction committed during the first.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "maindb/internal.h"

/* One statement's parameters are held by client and server at once. */
enum { CHUNK_BYTES = 8 * 1024 * 1024, CHUNK_ROWS = 1000 };

/* One of the distinct (id, body) pairs of a batch. */
struct entry {
    const struct task *task;
    size_t position; /* in the caller's array: of two bodies with one id the earlier comes first */
    bool first;      /* the first of its id */
    bool inserted;
    char sqlstate[6]; /* why it cannot be inserted; "": nothing known against it */
    char *detail;     /* owned */
};

struct batch {
    struct maindb *db;
    const struct maindb_wait *wait;
    struct entry *entries; /* by id, then position */
    size_t count;
    size_t inserted;
    struct rows_settled settled;
};

static int compare_entries(const void *left, const void *right)
{
    const struct entry *a = left;
    const struct entry *b = right;
    int by_id = memcmp(a->task->id, b->task->id, UUID_BYTES);
    if (by_id != 0) {
        return by_id;
    }
    return a->position < b->position ? -1 : a->position > b->position;
}

static bool same_body(const struct task *a, const struct task *b)
{
    return a->body_bytes == b->body_bytes &&
           (a->body_bytes == 0 || memcmp(a->body, b->body, a->body_bytes) == 0);
}

/* Sorts, and leaves out what repeats an earlier pair. */
static void batch_fill(struct batch *batch, const struct task *tasks, size_t count)
{
    batch->entries = xcalloc(count, sizeof(*batch->entries));
    for (size_t i = 0; i < count; i++) {
        batch->entries[i] = (struct entry){.task = &tasks[i], .position = i};
    }
    qsort(batch->entries, count, sizeof(*batch->entries), compare_entries);

    size_t kept = 0;
    size_t group = 0; /* where the entries of this id begin */
    for (size_t i = 0; i < count; i++) {
        struct entry entry = batch->entries[i];
        if (kept == 0 || memcmp(batch->entries[group].task->id, entry.task->id, UUID_BYTES) != 0) {
            group = kept;
        }
        bool repeated = false;
        for (size_t j = group; j < kept && !repeated; j++) {
            repeated = same_body(batch->entries[j].task, entry.task);
        }
        if (!repeated) {
            entry.first = kept == group;
            batch->entries[kept++] = entry;
        }
    }
    batch->count = kept;
}

static void batch_free(struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        free(batch->entries[i].detail);
    }
    free(batch->entries);
}

static struct entry *find_first(struct batch *batch, const uint8_t id[UUID_BYTES])
{
    size_t low = 0;
    size_t high = batch->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (memcmp(batch->entries[middle].task->id, id, UUID_BYTES) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    assert(low < batch->count && memcmp(batch->entries[low].task->id, id, UUID_BYTES) == 0);
    return &batch->entries[low];
}

static int send_failed(struct batch *batch, struct err *err)
{
    err_set(err, -EAGAIN, "main DB %s: sending tasks: %s", pg_target_name(batch->db->target),
            PQerrorMessage(batch->db->link.conn));
    pg_drop(&batch->db->link);
    return -EAGAIN;
}

/* Inserts what db->rows holds. new_rows: how many were not there; the ids are left in *result. */
static int insert_rows(struct batch *batch, PGresult **result, struct err *err)
{
    struct maindb *db = batch->db;
    if (rows_send_insert(db->link.conn, &db->rows) != 1) {
        return send_failed(batch, err);
    }
    return maindb_finish(db, batch->wait, "inserting tasks", result, err);
}

static int insert_chunk(struct batch *batch, struct err *err)
{
    PGresult *result = NULL;
    int rc = insert_rows(batch, &result, err);
    for (int i = 0; rc == 0 && i < PQntuples(result); i++) {
        assert(PQgetlength(result, i, 0) == UUID_BYTES);
        uint8_t id[UUID_BYTES];
        memcpy(id, PQgetvalue(result, i, 0), UUID_BYTES);
        find_first(batch, id)->inserted = true;
        batch->inserted++;
    }
    PQclear(result);
    rows_clear(&batch->db->rows);
    return rc;
}

static bool chunk_full(const struct rows *rows, const struct task *next)
{
    return rows->count > 0 &&
           (rows->count >= CHUNK_ROWS || rows_bytes(rows) + next->body_bytes > CHUNK_BYTES);
}

static int insert_all(struct batch *batch, struct err *err)
{
    struct rows *rows = &batch->db->rows;
    rows_clear(rows);
    for (size_t i = 0; i < batch->count; i++) {
        const struct entry *entry = &batch->entries[i];
        if (!entry->first) {
            continue; /* settled against the first */
        }
        if (chunk_full(rows, entry->task)) {
            int rc = insert_chunk(batch, err);
            if (rc < 0) {
                return rc;
            }
        }
        rows_add(rows, entry->task, NULL, NULL);
    }
    return insert_chunk(batch, err);
}

static int insert_one(struct batch *batch, struct entry *entry, struct err *err)
{
    struct maindb *db = batch->db;
    int rc = maindb_run(db, batch->wait, "setting a savepoint", "SAVEPOINT row", NULL, err);
    if (rc < 0) {
        return rc;
    }
    PGresult *result = NULL;
    rows_clear(&db->rows);
    rows_add(&db->rows, entry->task, NULL, NULL);
    rc = insert_rows(batch, &result, err);
    rows_clear(&db->rows);
    if (rc == -EBADMSG) {
        char detail[ROWS_DETAIL_BYTES];
        entry->detail = xstrdup(rows_detail(db->failed, detail));
        memcpy(entry->sqlstate, pg_sqlstate(db->failed), 5); /* a row error has one */
        return maindb_run(db, batch->wait, "undoing a row", "ROLLBACK TO SAVEPOINT row", NULL, err);
    }
    if (rc == 0) {
        entry->inserted = PQntuples(result) > 0;
        batch->inserted += entry->inserted;
        rc = maindb_run(db, batch->wait, "ending a savepoint", "RELEASE SAVEPOINT row", NULL, err);
    }
    PQclear(result);
    return rc;
}

static int insert_each(struct batch *batch, struct err *err)
{
    for (size_t i = 0; i < batch->count; i++) {
        int rc = insert_one(batch, &batch->entries[i], err);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int settle_chunk(struct batch *batch, struct err *err)
{
    struct maindb *db = batch->db;
    PGresult *result = NULL;
    int rc =
        rows_send_settle(db->link.conn, &db->rows) == 1
            ? maindb_finish(db, batch->wait, "settling duplicates and dead letters", &result, err)
            : send_failed(batch, err);
    rows_clear(&db->rows);
    if (rc == 0) {
        struct rows_settled settled = rows_read_settled(result);
        batch->settled.dead += settled.dead;
        batch->settled.conflicts += settled.conflicts;
        batch->settled.absent += settled.absent;
    }
    PQclear(result);
    return rc;
}

/* Everything that was not inserted: there with the same body, there with another, or refused. */
static int settle_rest(struct batch *batch, struct err *err)
{
    struct rows *rows = &batch->db->rows;
    rows_clear(rows);
    for (size_t i = 0; i < batch->count; i++) {
        const struct entry *entry = &batch->entries[i];
        if (entry->inserted) {
            continue;
        }
        if (chunk_full(rows, entry->task)) {
            int rc = settle_chunk(batch, err);
            if (rc < 0) {
                return rc;
            }
        }
        rows_add(rows, entry->task, entry->sqlstate[0] ? entry->sqlstate : NULL, entry->detail);
    }
    return rows->count > 0 ? settle_chunk(batch, err) : 0;
}

static int commit(struct batch *batch, struct err *err)
{
    PGresult *result = NULL;
    int rc = maindb_run(batch->db, batch->wait, "committing", "COMMIT", &result, err);
    if (rc == 0 && strcmp(PQcmdStatus(result), "COMMIT") != 0) {
        rc = err_set(err, -EAGAIN, "main DB %s: it answered COMMIT with %s",
                     pg_target_name(batch->db->target), PQcmdStatus(result));
    }
    PQclear(result);
    return rc;
}

/* One transaction. -EBADMSG: a row stands in the way (or one was in neither table): go row by row.
 */
static int attempt(struct batch *batch, bool row_by_row, struct err *err)
{
    batch->inserted = 0;
    batch->settled = (struct rows_settled){0};
    for (size_t i = 0; i < batch->count; i++) {
        batch->entries[i].inserted = false;
    }
    /* Row by row, a deferred constraint must speak up at its row and not at the end. */
    const char *begin = row_by_row ? "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; "
                                     "SET CONSTRAINTS ALL IMMEDIATE"
                                   : "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
    int rc = maindb_run(batch->db, batch->wait, "beginning a transaction", begin, NULL, err);
    if (rc == 0) {
        rc = row_by_row ? insert_each(batch, err) : insert_all(batch, err);
    }
    if (rc == 0 && batch->inserted < batch->count) {
        rc = settle_rest(batch, err);
        if (rc == 0 && batch->settled.absent > 0) {
            rc = err_set(err, -EBADMSG,
                         "main DB %s: %lld tasks are neither inserted nor refused: does a trigger "
                         "on table task drop rows?",
                         pg_target_name(batch->db->target), (long long)batch->settled.absent);
        }
    }
    return rc == 0 ? commit(batch, err) : rc;
}

/* Leaves no transaction open; a connection that cannot even do that is of no use. */
static void roll_back(struct maindb *db)
{
    if (db->link.state == PG_READY && PQtransactionStatus(db->link.conn) != PQTRANS_IDLE) {
        if (maindb_run(db, &maindb_short_wait, "rolling back", "ROLLBACK", NULL, NULL) < 0) {
            pg_drop(&db->link);
        }
    }
}

int maindb_commit(struct maindb *db, const struct task *tasks, size_t count,
                  const struct maindb_wait *wait, struct maindb_result *result, struct err *err)
{
    *result = (struct maindb_result){0};
    if (count == 0) {
        return 0;
    }
    int rc = maindb_connect(db, wait, err);
    if (rc < 0) {
        return rc;
    }
    struct batch batch = {.db = db, .wait = wait};
    batch_fill(&batch, tasks, count);

    int64_t start_ns = clock_mono_ns();
    rc = attempt(&batch, false, err);
    if (rc == -EBADMSG) {
        roll_back(db);
        rc = db->link.state == PG_READY ? attempt(&batch, true, err) : -EAGAIN;
    }
    if (rc == 0) {
        result->inserted = (unsigned)batch.inserted;
        result->dead = (unsigned)batch.settled.dead;
        result->conflicts = (unsigned)batch.settled.conflicts;
        result->redelivered = (unsigned)(count - batch.inserted) - result->dead;
        result->db_ns = clock_mono_ns() - start_ns;
    } else {
        roll_back(db);
    }
    if (rc == -EBADMSG) {
        /* Row by row, and still something cannot be stored, not even as a dead letter. */
        err_prefix(err, "a person must act");
        rc = -EPERM;
    }
    batch_free(&batch);
    return rc;
}

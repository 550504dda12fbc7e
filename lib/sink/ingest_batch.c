/* ingest_batch.c: binary arrays as PostgreSQL's array_recv wants them (utils/adt/arrayfuncs.c):
 * dimensions, has-null flag, element type, length, lower bound; then length and bytes of each. */
#include "sink/ingest_batch.h"

#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

enum { OID_BYTEA = 17, OID_INT8 = 20, OID_UUID = 2950 };
enum { HEADER_BYTES = 20, LENGTH_BYTES = 4, PARAMS = 3, KEEP_BYTES_MAX = 1024 * 1024 };
enum {
    ID_ELEMENT_BYTES = LENGTH_BYTES + UUID_BYTES,
    TIME_ELEMENT_BYTES = LENGTH_BYTES + (int)sizeof(int64_t)
};

struct ingest_batch *ingest_batch_new(void)
{
    return xcalloc(1, sizeof(struct ingest_batch));
}

void ingest_batch_free(struct ingest_batch *batch)
{
    buf_free(&batch->ids);
    buf_free(&batch->accepted);
    buf_free(&batch->bodies);
    free(batch->waiters);
    free(batch);
}

void ingest_batch_clear(struct ingest_batch *batch)
{
    buf_clear(&batch->ids);
    buf_clear(&batch->accepted);
    buf_clear(&batch->bodies);
    if (batch->bodies.cap > KEEP_BYTES_MAX) {
        buf_free(&batch->bodies);
    }
    batch->count = batch->settled = 0;
    batch->next = NULL;
}

static void put_int32(struct buf *out, uint32_t value)
{
    uint32_t wire = htobe32(value);
    buf_append(out, &wire, sizeof(wire));
}

static void add_element(struct buf *array, const void *bytes, size_t len)
{
    static const char header[HEADER_BYTES];
    if (array->len == 0) {
        buf_append(array, header, sizeof(header));
    }
    assert(len <= INT32_MAX);
    put_int32(array, (uint32_t)len);
    buf_append(array, bytes, len);
}

void ingest_batch_add(struct ingest_batch *batch, const struct task *task,
                      const struct ingest_waiter *waiter)
{
    uint64_t accepted = htobe64((uint64_t)task->accepted_us);
    add_element(&batch->ids, task->id, UUID_BYTES);
    add_element(&batch->accepted, &accepted, sizeof(accepted));
    add_element(&batch->bodies, task->body_bytes > 0 ? task->body : "", task->body_bytes);
    if (batch->count == batch->room) {
        batch->room = batch->room > 0 ? 2 * batch->room : 16;
        batch->waiters = xrealloc(batch->waiters, batch->room * sizeof(*batch->waiters));
    }
    batch->waiters[batch->count] = *waiter;
    batch->waiters[batch->count].body_bytes = task->body_bytes;
    batch->count++;
}

size_t ingest_batch_bytes(const struct ingest_batch *batch)
{
    return batch->ids.len + batch->accepted.len + batch->bodies.len;
}

/* Takes bytes out from behind the header. */
static void cut_front(struct buf *array, size_t bytes)
{
    memmove(array->data + HEADER_BYTES, array->data + HEADER_BYTES + bytes,
            array->len - HEADER_BYTES - bytes);
    array->len -= bytes;
}

void ingest_batch_forget_settled(struct ingest_batch *batch)
{
    size_t gone = batch->settled;
    size_t body_bytes = 0;
    if (gone == 0) {
        return;
    }
    for (size_t i = 0; i < gone; i++) {
        body_bytes += LENGTH_BYTES + batch->waiters[i].body_bytes;
    }
    cut_front(&batch->ids, gone * ID_ELEMENT_BYTES);
    cut_front(&batch->accepted, gone * TIME_ELEMENT_BYTES);
    cut_front(&batch->bodies, body_bytes);
    memmove(batch->waiters, batch->waiters + gone, (batch->count - gone) * sizeof(*batch->waiters));
    batch->count -= gone;
    batch->settled = 0;
}

static void finish(struct buf *array, uint32_t element_oid, size_t count)
{
    const uint32_t header[] = {1, 0, element_oid, (uint32_t)count, 1};
    for (size_t i = 0; i < sizeof(header) / sizeof(header[0]); i++) {
        uint32_t wire = htobe32(header[i]);
        memcpy(array->data + i * sizeof(wire), &wire, sizeof(wire));
    }
}

int ingest_batch_send(struct ingest_batch *batch, PGconn *conn, const char *statement)
{
    static const int formats[PARAMS] = {1, 1, 1};
    assert(batch->count > 0 && batch->settled == 0);
    finish(&batch->ids, OID_UUID, batch->count);
    finish(&batch->accepted, OID_INT8, batch->count);
    finish(&batch->bodies, OID_BYTEA, batch->count);
    assert(batch->bodies.len <= INT32_MAX);
    const char *const values[PARAMS] = {batch->ids.data, batch->accepted.data, batch->bodies.data};
    const int lengths[PARAMS] = {(int)batch->ids.len, (int)batch->accepted.len,
                                 (int)batch->bodies.len};
    return PQsendQueryPrepared(conn, statement, PARAMS, values, lengths, formats, 1);
}

static void settle_next(struct ingest_batch *batch, enum sink_outcome outcome, unsigned together)
{
    /* Counted first, and copied: done may submit, into this very batch. */
    struct ingest_waiter waiter = batch->waiters[batch->settled++];
    waiter.done(waiter.arg, outcome, together);
}

void ingest_batch_expire(struct ingest_batch *batch, int64_t now_ns, enum sink_outcome outcome)
{
    while (batch->settled < batch->count && batch->waiters[batch->settled].deadline_ns <= now_ns) {
        settle_next(batch, outcome, 1);
    }
}

void ingest_batch_settle(struct ingest_batch *batch, enum sink_outcome outcome, unsigned together)
{
    while (batch->settled < batch->count) {
        settle_next(batch, outcome, together);
    }
}

int64_t ingest_batch_deadline_ns(const struct ingest_batch *batch)
{
    return batch->settled < batch->count ? batch->waiters[batch->settled].deadline_ns : INT64_MAX;
}

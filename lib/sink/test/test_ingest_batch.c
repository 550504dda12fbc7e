/* Oracle: a batch that never held those that are gone has the same bytes; and the format that
 * PostgreSQL's documentation and array_recv give for binary arrays, written out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sink/ingest_batch.h"

struct settled {
    unsigned count[3];
    unsigned together;
    struct ingest_batch *again; /* a task is added to it at each outcome */
};

static void add(struct ingest_batch *batch, unsigned number, struct settled *settled);

static void on_done(void *arg, enum sink_outcome outcome, unsigned together)
{
    struct settled *settled = arg;
    settled->count[outcome]++;
    settled->together = together;
    if (settled->again) {
        add(settled->again, 50, settled);
    }
}

/* Bodies of different lengths, one of them empty; the deadline is 100 times the number. */
static void add(struct ingest_batch *batch, unsigned number, struct settled *settled)
{
    char body[64];
    struct task task = {.accepted_us = 1000 + number, .body = body};
    const struct ingest_waiter waiter = {
        .done = on_done, .arg = settled, .deadline_ns = 100 * (int64_t)number};
    memset(task.id, (int)number, UUID_BYTES);
    memset(body, 'a' + (int)number % 26, sizeof(body));
    task.body_bytes = number % 3 == 0 ? 0 : 7 * number % 64;
    ingest_batch_add(batch, &task, &waiter);
}

static void assert_same(const struct buf *a, const struct buf *b)
{
    assert_int_equal(a->len, b->len);
    assert_memory_equal(a->data, b->data, a->len);
}

static void expired_ones_are_taken_out(void **state)
{
    (void)state;
    for (unsigned gone = 0; gone < 10; gone++) {
        struct settled settled = {0};
        struct ingest_batch *batch = ingest_batch_new();
        struct ingest_batch *other = ingest_batch_new();
        for (unsigned i = 1; i <= 10; i++) {
            add(batch, i, &settled);
            if (i > gone) {
                add(other, i, &settled);
            }
        }
        assert_int_equal(ingest_batch_deadline_ns(batch), 100);
        ingest_batch_expire(batch, 100 * (int64_t)gone, SINK_REFUSED);
        assert_int_equal(settled.count[SINK_REFUSED], gone);
        ingest_batch_forget_settled(batch);
        assert_int_equal(batch->count, 10 - gone);
        assert_same(&batch->ids, &other->ids);
        assert_same(&batch->accepted, &other->accepted);
        assert_same(&batch->bodies, &other->bodies);
        assert_int_equal(ingest_batch_deadline_ns(batch), 100 * (gone + 1));
        ingest_batch_settle(batch, SINK_DURABLE, batch->count > 5 ? 9 : 3);
        assert_int_equal(settled.count[SINK_DURABLE], 10 - gone);
        assert_int_equal(settled.together, gone < 5 ? 9 : 3);
        assert_int_equal(ingest_batch_deadline_ns(batch), INT64_MAX);
        ingest_batch_free(batch);
        ingest_batch_free(other);
    }
}

/* An outcome may make its client send again, into the batch that is being settled. */
static void a_waiter_may_come_back(void **state)
{
    (void)state;
    struct settled settled = {0};
    struct ingest_batch *batch = ingest_batch_new();
    for (unsigned i = 1; i <= 16; i++) { /* the next one makes it grow */
        add(batch, i, &settled);
    }
    settled.again = batch;
    ingest_batch_expire(batch, 500, SINK_REFUSED);
    assert_int_equal(settled.count[SINK_REFUSED], 5);
    assert_int_equal(batch->count, 21);
    ingest_batch_forget_settled(batch);
    assert_int_equal(batch->count, 16);
    assert_int_equal(ingest_batch_deadline_ns(batch), 600);
    ingest_batch_free(batch);
}

/* Two tasks; all numbers big-endian. The header is filled in for sending, here over no connection.
 */
static void the_wire_format(void **state)
{
    (void)state;
    static const uint8_t ids[] = {
        0, 0, 0, 1,  0, 0, 0, 0, 0, 0, 0x0b, 0x86, 0, 0, 0, 2, 0, 0, 0, 1, /* uuid is type 2950 */
        0, 0, 0, 16, 1, 1, 1, 1, 1, 1, 1,    1,    1, 1, 1, 1, 1, 1, 1, 1, /* 16 bytes */
        0, 0, 0, 16, 2, 2, 2, 2, 2, 2, 2,    2,    2, 2, 2, 2, 2, 2, 2, 2};
    static const uint8_t accepted[] = {0,    0,    0, 1, 0, 0, 0, 0, 0, 0, 0, 20, 0,    0,   0,
                                       2,    0,    0, 0, 1, 0, 0, 0, 8, 0, 0, 0,  0,    0,   0,
                                       0x03, 0xe9, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0,  0x03, 0xea};
    static const uint8_t bodies[] = {
        0,  0,   0,   1,   0,   0,   0,   0,   0,   0,   0,   17,  0,   0,   0,  2, 0,
        0,  0,   1,   0,   0,   0,   7,   'b', 'b', 'b', 'b', 'b', 'b', 'b', 0,  0, 0,
        14, 'c', 'c', 'c', 'c', 'c', 'c', 'c', 'c', 'c', 'c', 'c', 'c', 'c', 'c'};
    struct settled settled = {0};
    struct ingest_batch *batch = ingest_batch_new();
    add(batch, 1, &settled);
    add(batch, 2, &settled);
    assert_int_equal(ingest_batch_send(batch, NULL, "none"), 0);
    assert_int_equal(batch->ids.len, sizeof(ids));
    assert_memory_equal(batch->ids.data, ids, sizeof(ids));
    assert_int_equal(batch->accepted.len, sizeof(accepted));
    assert_memory_equal(batch->accepted.data, accepted, sizeof(accepted));
    assert_int_equal(batch->bodies.len, sizeof(bodies));
    assert_memory_equal(batch->bodies.data, bodies, sizeof(bodies));
    ingest_batch_free(batch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expired_ones_are_taken_out),
        cmocka_unit_test(a_waiter_may_come_back),
        cmocka_unit_test(the_wire_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

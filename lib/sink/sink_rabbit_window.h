/* sink_rabbit_window.h: tasks that wait for their outcome: those not sent yet, and those on the
 * wire of one channel, by delivery tag. Confirms come in any order, one by one or up to a tag; a
 * return carries no tag and is matched by what the message says of itself.
 *
 * Ownership: a waiter belongs to the list or window that holds it. Outcomes are gathered as
 * verdicts; whoever runs them does so after everything here is consistent, since a done may submit
 * again. Not thread-safe.
 */
#ifndef SLUICE_SINK_SINK_RABBIT_WINDOW_H
#define SLUICE_SINK_SINK_RABBIT_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sink/sink.h"

struct rabbit_waiter {
    struct rabbit_waiter *next;
    sink_done_fn *done;
    void *arg;
    uint8_t id[UUID_BYTES];
    int64_t accepted_us;
    int64_t by_ns; /* given up then */
    size_t body_bytes;
    char body[];
};
struct rabbit_waiter *rabbit_waiter_new(const struct task *task, sink_done_fn *done, void *arg,
                                        int64_t by_ns);

struct rabbit_waiters { /* first in, first out */
    struct rabbit_waiter *first, *last;
    size_t count;
};
void rabbit_waiters_push(struct rabbit_waiters *waiters, struct rabbit_waiter *waiter);
struct rabbit_waiter *rabbit_waiters_pop(struct rabbit_waiters *waiters); /* NULL: empty */
/* All of `front` go before what is in waiters; front is empty then. */
void rabbit_waiters_prepend(struct rabbit_waiters *waiters, struct rabbit_waiters *front);

struct rabbit_verdict {
    sink_done_fn *done;
    void *arg;
    enum sink_outcome outcome;
};
struct rabbit_verdicts {
    struct rabbit_verdict *items;
    size_t count, room;
    unsigned durable; /* how many of them are DURABLE: the batch */
};
void rabbit_verdicts_add(struct rabbit_verdicts *verdicts, struct rabbit_waiter *waiter,
                         enum sink_outcome outcome); /* frees the waiter */
void rabbit_verdicts_run(struct rabbit_verdicts *verdicts);
void rabbit_verdicts_free(struct rabbit_verdicts *verdicts);

struct rabbit_slot {
    struct rabbit_waiter *waiter; /* NULL: given up, but its confirm is still to come */
    uint64_t begin;               /* of its first byte in the connection's output */
    bool decided;
    bool returned;  /* its confirm means REFUSED */
    bool ambiguous; /* one of several that a return may have meant: UNKNOWN */
};
struct rabbit_window {
    struct rabbit_slot *slots; /* a ring */
    size_t head, count, room;
    uint64_t first_tag; /* of slots[head]; tags begin at 1 */
    size_t undecided, undecided_bytes;
};
void rabbit_window_reset(struct rabbit_window *window); /* empty, tags from 1; must be empty */
void rabbit_window_push(struct rabbit_window *window, struct rabbit_waiter *waiter, uint64_t begin);
/* basic.ack (outcome DURABLE) and basic.nack (UNKNOWN). Tag 0 with multiple: all. -EPROTO: no such
 * tag was ever used. One that is decided already is passed over. */
int rabbit_window_confirm(struct rabbit_window *window, uint64_t tag, bool multiple,
                          enum sink_outcome outcome, struct rabbit_verdicts *verdicts);
/* basic.return: of several that look alike, each becomes UNKNOWN. Returns how many it may mean. */
size_t rabbit_window_return(struct rabbit_window *window, const uint8_t id[UUID_BYTES],
                            int64_t accepted_us, size_t body_bytes);
/* Those whose time is over become UNKNOWN; their tags stay. Returns how many. */
size_t rabbit_window_expire(struct rabbit_window *window, int64_t now_ns,
                            struct rabbit_verdicts *verdicts);
int64_t rabbit_window_due_ns(const struct rabbit_window *window); /* by_ns of the first; -1: none */
/* The connection is gone: what was offered to it (begin < given) is UNKNOWN, a returned one
 * REFUSED, the rest is back in `unsent`, in order. */
void rabbit_window_fail(struct rabbit_window *window, uint64_t given,
                        struct rabbit_verdicts *verdicts, struct rabbit_waiters *unsent);
void rabbit_window_free(struct rabbit_window *window);

#endif

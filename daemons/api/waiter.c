#include "api/waiter.h"

#include <assert.h>
#include <stdlib.h>

#include "base/buf.h"

enum { BLOCK_WAITERS = 256 };

struct waiter_block {
    struct waiter_block *next;
    struct waiter waiters[BLOCK_WAITERS];
};

static void grow(struct waiters *waiters)
{
    struct waiter_block *block = xcalloc(1, sizeof(*block));
    block->next = waiters->blocks;
    waiters->blocks = block;
    for (size_t i = 0; i < BLOCK_WAITERS; i++) {
        block->waiters[i].next = waiters->free;
        waiters->free = &block->waiters[i];
    }
}

static void unlink_waiter(struct waiters *waiters, struct waiter *waiter)
{
    if (waiter->previous) {
        waiter->previous->next = waiter->next;
    } else {
        waiters->first = waiter->next;
    }
    if (waiter->next) {
        waiter->next->previous = waiter->previous;
    } else {
        waiters->last = waiter->previous;
    }
    waiter->previous = waiter->next = NULL;
}

struct waiter *waiter_take(struct waiters *waiters)
{
    if (!waiters->free) {
        grow(waiters);
    }
    struct waiter *waiter = waiters->free;
    waiters->free = waiter->next;
    waiter->next = NULL;
    waiter->previous = waiters->last;
    if (waiters->last) {
        waiters->last->next = waiter;
    } else {
        waiters->first = waiter;
    }
    waiters->last = waiter;
    waiters->taken++;
    return waiter;
}

void waiter_give_up(struct waiters *waiters, struct waiter *waiter)
{
    assert(waiter->connection);
    unlink_waiter(waiters, waiter);
    waiter->connection = NULL;
}

void waiter_put(struct waiters *waiters, struct waiter *waiter)
{
    if (waiter->connection) {
        waiter_give_up(waiters, waiter);
    }
    waiter->next = waiters->free;
    waiters->free = waiter;
    waiters->taken--;
}

void waiters_free(struct waiters *waiters)
{
    assert(waiters->taken == 0);
    while (waiters->blocks) {
        struct waiter_block *next = waiters->blocks->next;
        free(waiters->blocks);
        waiters->blocks = next;
    }
    waiters->free = NULL;
}

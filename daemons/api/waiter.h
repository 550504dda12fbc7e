/* waiter.h: one task that the sink has taken and not yet decided, and the client that waits for it.
 *
 * A waiter outlives its client when the client's deadline passes or its connection ends: the sink's
 * done still comes, exactly once. All deadlines are equally far from their start, so a list in
 * order of arrival is in order of deadline. One thread.
 */
#ifndef SLUICE_API_WAITER_H
#define SLUICE_API_WAITER_H

#include <stddef.h>
#include <stdint.h>

#include "base/uuid.h"

struct api;
struct connection;

struct waiter {
    struct waiter *previous, *next; /* in the list of those with a client, or of free ones */
    struct api *api;
    struct connection *connection; /* NULL: nobody waits any more */
    int64_t complete_ns;           /* when the request was complete */
    size_t body_bytes;
    uint8_t id[UUID_BYTES];
};

struct waiters {
    struct waiter *first, *last; /* with a client, oldest first */
    struct waiter *free;
    struct waiter_block *blocks;
    size_t taken; /* all that the sink has not decided */
};

struct waiter *waiter_take(struct waiters *waiters);                 /* at the end of the list */
void waiter_give_up(struct waiters *waiters, struct waiter *waiter); /* its client is gone */
void waiter_put(struct waiters *waiters, struct waiter *waiter);     /* decided */
void waiters_free(struct waiters *waiters);                          /* none may be taken */

#endif

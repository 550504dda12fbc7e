/* pause.h: growing, jittered pauses between attempts at something that fails for now. One thread.
 */
#ifndef SLUICE_WORKER_PAUSE_H
#define SLUICE_WORKER_PAUSE_H

#include <stdbool.h>
#include <stdint.h>

struct pause {
    int64_t max_ns;
    int64_t next_ns; /* 0: the first pause is next */
    unsigned seed;
};

/* The next pause: doubles from 50 ms to max_ns, and lies between a half and the whole of that, so
 * that lanes that failed together do not come back together. */
int64_t pause_next_ns(struct pause *pause);
void pause_reset(struct pause *pause); /* it worked */

/* Sleeps, or returns true as soon as stop_fd is readable. */
bool pause_sleep(int stop_fd, int64_t duration_ns);

#endif

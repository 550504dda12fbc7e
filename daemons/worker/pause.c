/* pause.c: see pause.h. */
#include "worker/pause.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "base/clock.h"

#define FIRST_NS (50 * NS_PER_MS)

int64_t pause_next_ns(struct pause *pause)
{
    int64_t whole_ns = pause->next_ns > 0 ? pause->next_ns : FIRST_NS;
    if (whole_ns > pause->max_ns) {
        whole_ns = pause->max_ns;
    }
    pause->next_ns = 2 * whole_ns;
    int64_t half_ns = whole_ns / 2;
    return half_ns + (int64_t)((double)half_ns * rand_r(&pause->seed) / RAND_MAX);
}

void pause_reset(struct pause *pause)
{
    pause->next_ns = 0;
}

bool pause_sleep(int stop_fd, int64_t duration_ns)
{
    int64_t until_ns = clock_mono_ns() + duration_ns;
    for (;;) {
        int64_t left_ns = until_ns - clock_mono_ns();
        left_ns = left_ns > 0 ? left_ns : 0;
        struct timespec timeout = {.tv_sec = left_ns / NS_PER_S, .tv_nsec = left_ns % NS_PER_S};
        struct pollfd polled = {.fd = stop_fd, .events = POLLIN};
        int ready = ppoll(&polled, 1, &timeout, NULL);
        if (ready > 0) {
            return true;
        }
        if (ready == 0 || errno != EINTR) {
            return false;
        }
    }
}

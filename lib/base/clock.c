#include "base/clock.h"

#include <errno.h>
#include <time.h>

int64_t clock_mono_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

int64_t clock_wall_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * US_PER_S + now.tv_nsec / NS_PER_US;
}

void clock_sleep_ns(int64_t duration_ns)
{
    if (duration_ns <= 0)
        return;
    int64_t end_ns = clock_mono_ns() + duration_ns;
    struct timespec end = {.tv_sec = end_ns / NS_PER_S, .tv_nsec = end_ns % NS_PER_S};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
        ;
}

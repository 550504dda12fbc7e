/* clock.h: the two clocks. Intervals and deadlines use the monotonic one, records the wall clock.
 */
#ifndef SLUICE_BASE_CLOCK_H
#define SLUICE_BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_US 1000LL
#define NS_PER_MS 1000000LL
#define NS_PER_S  1000000000LL
#define US_PER_S  1000000LL

int64_t clock_mono_ns(void); /* CLOCK_MONOTONIC, nanoseconds; shared by all processes of one boot */
int64_t clock_wall_us(void); /* CLOCK_REALTIME, microseconds since 1970; may step */
void clock_sleep_ns(int64_t duration_ns); /* goes on after signals; <= 0 returns at once */

#endif

/* Intervals that the program times itself: recorded by `barograph_agent.interval()` and `mark()`. */
#ifndef BAROGRAPH_INTERVALS_H
#define BAROGRAPH_INTERVALS_H

#include <stdint.h>

#define INTERVALS_OTHER "other" /* the name of all sites for which the ring has no room */

/* Starts recording if BAROGRAPH_RING_DIR names a directory; in the child of a fork, again. `rank`, `size`: of the
 * processes started together; 0 and 1 for one that is alone. Returns whether intervals are recorded. */
int barograph_intervals_start(int rank, int size);

/* The site of a name, in this process and its children. */
uint32_t barograph_intervals_site(const char *name);

/* One interval; times in nanoseconds of CLOCK_MONOTONIC. */
void barograph_intervals_put(uint64_t enter, uint64_t exit, uint32_t site);

#endif

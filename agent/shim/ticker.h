/* The clock of the records: nanoseconds of CLOCK_MONOTONIC, read from the time stamp counter where that can be trusted.
 *
 * A straight line through one reading of both clocks turns ticks into nanoseconds. The line is laid anew, through a
 * fresh reading, by the first conversion that lies a period away from the last one; the period doubles up to a second.
 * So ticks are never extrapolated far, and a jump of the counter (a suspended node, a migrated virtual machine) has no
 * effect after the next reading. */
#ifndef BAROGRAPH_TICKER_H
#define BAROGRAPH_TICKER_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#if defined __x86_64__
#include <x86intrin.h>
#endif

struct reading {
    uint64_t tick;
    uint64_t ns; /* CLOCK_MONOTONIC at that tick */
};

struct ticker {
    bool tsc;            /* ticks are the time stamp counter's; else they are nanoseconds already */
    struct reading at;   /* a point of the line */
    uint64_t rate;       /* its slope, nanoseconds per tick in units of 2^-32 */
    uint64_t period;     /* ticks for which the line holds, on both sides of the point */
    uint64_t longest_ns; /* that the period may grow to */
};

static inline uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t ticker_now(const struct ticker *ticker)
{
#if defined __x86_64__
    if (ticker->tsc)
        return __rdtsc();
#endif
    (void)ticker;
    return clock_ns(CLOCK_MONOTONIC);
}

/* Whether the counter runs at one rate on all cores, the kernel itself keeps time by it, and it may be read. */
bool ticker_tsc_usable(void);

/* Both clocks at one instant: some 20 ns apart. */
struct reading ticker_read(void);

/* Lays the first line through two readings, the farther apart the better; by CLOCK_MONOTONIC alone where the counter
 * is not usable or the two make no line. */
void ticker_start(struct ticker *ticker, bool usable, struct reading first, struct reading second);

/* Lays the line through a new reading. False where the counter jumped: then ticks before it cannot be converted. */
bool ticker_follow(struct ticker *ticker, struct reading reading);

/* Whether the line is too old, or the counter too far off, to convert this tick. */
static inline bool ticker_lags(const struct ticker *ticker, uint64_t tick)
{
    return ticker->tsc && tick - ticker->at.tick + ticker->period >= 2 * ticker->period;
}

static inline uint64_t ticker_ns(const struct ticker *ticker, uint64_t tick)
{
    if (!ticker->tsc)
        return tick;
    __int128 ticks = (int64_t)(tick - ticker->at.tick);
    return ticker->at.ns + (uint64_t)((ticks * (__int128)ticker->rate) >> 32);
}

/* How long so many ticks last. */
static inline uint64_t ticker_span_ns(const struct ticker *ticker, uint64_t ticks)
{
    return ticker->tsc ? (uint64_t)(((unsigned __int128)ticks * ticker->rate) >> 32) : ticks;
}

#endif

/* The clock of the records: nanoseconds of CLOCK_MONOTONIC, derived from the time stamp counter if it is reliable: the
 * TSC of x86-64, the virtual counter of AArch64.
 *
 * Ticks are converted to nanoseconds by a straight line through a reading of both clocks. The line is updated with a
 * new reading by the first conversion a period away from the last reading; the period doubles up to a second. So ticks
 * are never extrapolated far, and a jump of the counter (a suspended node, a migrated virtual machine) has no effect
 * after the next reading. */
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
    bool tsc;            /* whether ticks are those of the time stamp counter; else nanoseconds */
    struct reading at;   /* a point of the line */
    uint64_t rate;       /* its slope, nanoseconds per tick in units of 2^-32 */
    uint64_t period;     /* ticks for which the line is valid, on both sides of the point */
    uint64_t longest_ns; /* limit of the period */
};

static inline uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#if defined __x86_64__ || defined __aarch64__
#define TICKER_HAS_COUNTER 1
static inline uint64_t ticker_counter(void)
{
#if defined __x86_64__
    return __rdtsc();
#else
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#endif
}
#endif

static inline uint64_t ticker_now(const struct ticker *ticker)
{
#ifdef TICKER_HAS_COUNTER
    if (ticker->tsc)
        return ticker_counter();
#endif
    (void)ticker;
    return clock_ns(CLOCK_MONOTONIC);
}

/* Whether the counter has the same rate on all cores, is the clock source of the kernel, and is readable. */
bool ticker_tsc_usable(void);

/* A reading of both clocks, about 20 ns apart. */
struct reading ticker_read(void);

/* Computes the first line from two readings, the farther apart the better. Falls back to CLOCK_MONOTONIC if the counter
 * is not usable or the readings define no line. */
void ticker_start(struct ticker *ticker, bool usable, struct reading first, struct reading second);

/* Updates the line with a new reading. False if the counter jumped: earlier ticks cannot be converted then. */
bool ticker_follow(struct ticker *ticker, struct reading reading);

/* Whether the tick is outside of the period for which the line is valid. */
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

/* Duration of a number of ticks. */
static inline uint64_t ticker_span_ns(const struct ticker *ticker, uint64_t ticks)
{
    return ticker->tsc ? (uint64_t)(((unsigned __int128)ticks * ticker->rate) >> 32) : ticks;
}

#endif

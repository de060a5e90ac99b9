#define _GNU_SOURCE
#include "ticker.h"

#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#if defined __x86_64__
#include <cpuid.h>
#endif

#ifndef CLOCKSOURCE /* tests set one that does not exist */
#define CLOCKSOURCE "/sys/devices/system/clocksource/clocksource0/current_clocksource"
#endif
#define SHORTEST_NS 1000000u /* below, the error of 20 ns per reading makes the slope useless */
#define LONGEST_NS 1000000000u
#define ATTEMPTS 5

#ifdef TICKER_HAS_COUNTER
/* Whether the kernel's clock is this counter: then it has the same rate on all cores, and its reading is not emulated. */
static bool is_clock_source(const char *name)
{
    char found[32] = "";
    int file = open(CLOCKSOURCE, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t length = read(file, found, sizeof found - 1);
    close(file);
    return length > 0 && strcmp(found, name) == 0;
}
#endif

bool ticker_tsc_usable(void)
{
#if defined __x86_64__
    unsigned a, b, c, d = 0;
    int mode = 0;
    bool invariant = __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8));
    if (!invariant || (prctl(PR_GET_TSC, &mode) == 0 && mode != PR_TSC_ENABLE))
        return false;
    return is_clock_source("tsc\n");
#elif defined __aarch64__
    return is_clock_source("arch_sys_counter\n");
#else
    return false;
#endif
}

/* Keeps the attempt with the fewest ticks between the readings, which was not interrupted between the two clocks. */
struct reading ticker_read(void)
{
    struct reading best = {0, 0};
#ifdef TICKER_HAS_COUNTER
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < ATTEMPTS; i++) {
        uint64_t before = ticker_counter(), ns = clock_ns(CLOCK_MONOTONIC), width = ticker_counter() - before;
        if (width < least) {
            least = width;
            best = (struct reading){before + width / 2, ns};
        }
    }
#endif
    return best;
}

/* Slope of the line through both readings; 0 if no time has passed. */
static uint64_t slope(struct reading first, struct reading second)
{
    int64_t ticks = (int64_t)(second.tick - first.tick), ns = (int64_t)(second.ns - first.ns);
    return ticks > 0 && ns > 0 ? (uint64_t)(((unsigned __int128)ns << 32) / (uint64_t)ticks) : 0;
}

static void go_on_from(struct ticker *ticker, struct reading reading, uint64_t period_ns)
{
    if (period_ns > ticker->longest_ns)
        period_ns = ticker->longest_ns;
    ticker->at = reading;
    ticker->period = (uint64_t)(((unsigned __int128)period_ns << 32) / ticker->rate);
}

void ticker_start(struct ticker *ticker, bool usable, struct reading first, struct reading second)
{
    uint64_t rate = slope(first, second), span = second.ns - first.ns;
    *ticker = (struct ticker){.longest_ns = LONGEST_NS};
    /* Counters run at 10 MHz to 20 GHz: other rates are rejected. */
    if (!usable || span < SHORTEST_NS || rate < (1ull << 32) / 20 || rate > 100 * (1ull << 32))
        return;
    ticker->tsc = true;
    ticker->rate = rate;
    go_on_from(ticker, second, span);
}

/* CLOCK_MONOTONIC is slewed by at most 0.05 %: a slope that differs by more is due to a jump. */
bool ticker_follow(struct ticker *ticker, struct reading reading)
{
    uint64_t rate = slope(ticker->at, reading), span = reading.ns - ticker->at.ns;
    bool steady = rate > ticker->rate - ticker->rate / 1000 && rate < ticker->rate + ticker->rate / 1000;
    if (steady)
        ticker->rate = rate;
    go_on_from(ticker, reading, steady ? 2 * span : ticker->longest_ns);
    return steady;
}

/* The ring's clock without MPI: clock DIRECTORY RECORDS JUMP
 *
 * Puts RECORDS records over 50 ms. Before the middle one's end the time stamp counter jumps by JUMP ticks against
 * CLOCK_MONOTONIC, as it does when a node is suspended (ahead) or resumed with a counter reset (back). Prints for each
 * record CLOCK_MONOTONIC before and after the tick of its end; or "unusable" if the counter is not reliable. */
#include <stdio.h>
#include <stdlib.h>

#include "writer.h"

static struct writer writer;

static uint64_t wait_until(uint64_t ns)
{
    while (clock_ns(CLOCK_MONOTONIC) < ns)
        ;
    return ns;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    int records = atoi(argv[2]);
    long long jump = atoll(argv[3]);
    struct ticker ticker;
    struct reading first = ticker_read();
    uint64_t next = wait_until(first.ns + 5000000);
    ticker_start(&ticker, ticker_tsc_usable(), first, ticker_read());
    if (!ticker.tsc) {
        puts("unusable");
        return 0;
    }
    if (!writer_open(&writer, argv[1], "rank", 0, 1, 65536, &ticker))
        return 3;
    for (int i = 0; i < records; i++) {
        next = wait_until(next + 50000000 / (uint64_t)records);
        uint64_t enter = ticker_now(&writer.ticker);
        if (i == records / 2)
            writer.ticker.at.tick -= (uint64_t)jump; /* the counter ahead = all it was compared with behind */
        /* In other calls, with the jump in one of them. */
        uint64_t p2p = ((uint64_t)2000 << 32) / writer.ticker.rate + (i == records / 2 ? (uint64_t)jump : 0);
        uint64_t before = clock_ns(CLOCK_MONOTONIC), exit = ticker_now(&writer.ticker);
        printf("%lu %lu\n", (unsigned long)before, (unsigned long)clock_ns(CLOCK_MONOTONIC));
        writer_put(&writer, (struct timed){enter, exit, p2p, 0, OP_Barrier, {0, 0}}, (struct caller){main, NULL});
    }
    return 0;
}

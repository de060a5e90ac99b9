/* The writer without MPI: traced DIRECTORY CAPACITY CALLS EVERY [TURN]
 *
 * Makes CALLS calls of 10 ns each, from two places in turn, with calls written. Then asks for those of the first place
 * with a Recv, each EVERY-th, generation 7, with calls written no longer, and makes as many again. The reader's tail is
 * moved to 10 after half of these. After each TURN of these, if given, calls are written again, or no longer. Then asks for a site that does not exist, with every other bit set, and makes ten. */
#include <stdlib.h>

#include "writer.h"

int main(int argc, char **argv);

static struct writer writer;
static uint64_t now, waited;

static bool call_from(const char *place, enum ring_op op)
{
    struct caller from = {place, NULL};
    struct call call = {.op = op, .comm = 5, .peer = 1, .tag = 2};
    now += 10;
    waited += 3;
    if (!writer_follows(&writer, op, from))
        return false;
    struct timed timed = {now - 3, now, waited - 3, RING_BYTES_UNKNOWN, op, {1, 8}};
    return writer_follow(&writer, &timed, &call, from);
}

static void calls(unsigned count, unsigned release_at, unsigned turn)
{
    for (unsigned i = 0; i < count; i++) {
        if (i == release_at)
            atomic_store(&writer.header->iteration_tail, 10);
        if (turn && i % turn == 0)
            atomic_store(&writer.header->wanted, atomic_load(&writer.header->wanted) ^ RING_WANT_CALLS);
        if (call_from((const char *)main + i % 2, i % 2 ? OP_Send : OP_Recv))
            waited = 0;
    }
}

int main(int argc, char **argv)
{
    if (argc != 5 && argc != 6)
        return 2;
    struct ticker ticker = {.tsc = false};
    if (!writer_open(&writer, argv[1], "rank", 0, 4, (uint32_t)atoi(argv[2]), &ticker))
        return 3;
    unsigned count = (unsigned)atoi(argv[3]);
    uint64_t every = (uint64_t)atoi(argv[4]);
    now = writer.header->started_ns;
    calls(count, count, 0);
    atomic_store(&writer.header->wanted, every << 8 | (uint64_t)OP_Recv << 16 | (uint64_t)7 << 24 | (uint64_t)1 << 32);
    calls(count, count / 2, argc == 6 ? (unsigned)atoi(argv[5]) : 0);
    atomic_store(&writer.header->wanted, UINT64_MAX - 1);
    calls(10, 10, 0);
    return 0;
}

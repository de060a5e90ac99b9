/* The writer without MPI: ring_alone DIRECTORY CAPACITY RECORDS SITES
 *
 * Puts RECORDS records, one nanosecond long, from SITES different places in its own text in turn, with the reader's tail
 * moved to 10 after the first half. Then puts one with an exit before the last one's. Exits 3 if no ring was created. */
#include <stdlib.h>

#include "writer.h"

static struct writer writer;

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    unsigned records = (unsigned)atoi(argv[3]), sites = (unsigned)atoi(argv[4]);
    struct ticker ticker = {.tsc = false};
    if (!writer_open(&writer, argv[1], "rank", 0, 4, (uint32_t)atoi(argv[2]), &ticker))
        return 3;
    uint64_t start = writer.header->started_ns;
    for (unsigned i = 0; i < records; i++) {
        if (i == records / 2)
            atomic_store(&writer.header->tail, 10);
        writer_put(&writer, (struct timed){start + i, start + i + 1, 0, i, OP_Barrier, {i, 8 * i}},
                   (struct caller){(const char *)main + i % sites, NULL});
    }
    writer_put(&writer, (struct timed){start, start, 7, records, OP_Allreduce, {0, 0}}, (struct caller){main, NULL});
    return 0;
}

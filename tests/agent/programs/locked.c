/* A writer whose lock stays held, as after a jump out of a signal handler: locked DIRECTORY
 *
 * Puts 3 records, 5 while the lock is held, and 2 after it. Exits 3 if no ring was created. */
#include "writer.h"

static struct writer writer;

static void put(int records)
{
    for (int i = 0; i < records; i++) {
        uint64_t now = clock_ns(CLOCK_MONOTONIC);
        writer_put(&writer, (struct timed){now, now, 0, 0, OP_Barrier, {0, 0}}, (struct caller){put, 0});
    }
}

int main(int argc, char **argv)
{
    struct ticker ticker = {.tsc = false};
    if (argc != 2 || !writer_open(&writer, argv[1], "rank", 0, 4, 64, &ticker))
        return 3;
    put(3);
    atomic_flag_test_and_set(&writer.lock);
    put(5);
    atomic_flag_clear(&writer.lock);
    put(2);
    return 0;
}

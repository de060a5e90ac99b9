/* The memory of a ring: memory DIRECTORY RECORDS STEP_NS LAG FILL
 *
 * Puts RECORDS records, STEP_NS apart, with the reader's tail LAG behind. With FILL 1 the file system is filled before
 * them, and after half of them emptied. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "writer.h"

static struct writer writer;

static void fill(const char *path)
{
    static char zeros[4096];
    int file = open(path, O_WRONLY | O_CREAT, 0600);
    while (write(file, zeros, sizeof zeros) > 0)
        ;
    close(file);
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    char path[4096];
    unsigned records = (unsigned)atoi(argv[2]), step = (unsigned)atoi(argv[3]), lag = (unsigned)atoi(argv[4]);
    struct ticker ticker = {.tsc = false};
    if (!writer_open(&writer, argv[1], "rank", 0, 1, 65536, &ticker))
        return 3;
    snprintf(path, sizeof path, "%s/fill", argv[1]);
    if (atoi(argv[5]))
        fill(path);
    uint64_t now = writer.header->started_ns;
    for (unsigned i = 0; i < records; i++) {
        if (i == records / 2)
            unlink(path);
        now += step;
        writer_put(&writer, (struct timed){now, now, 0, i, OP_Barrier, {0, 0}}, (struct caller){main, NULL});
        uint64_t head = atomic_load(&writer.header->head);
        atomic_store(&writer.header->tail, head > lag ? head - lag : 0);
    }
    return 0;
}

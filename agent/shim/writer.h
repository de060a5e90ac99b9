/* The writing end of a ring. Knows nothing of MPI. */
#ifndef BAROGRAPH_WRITER_H
#define BAROGRAPH_WRITER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "sites.h"

#define WRITER_MIN_CAPACITY 64u
#define WRITER_MAX_CAPACITY (1u << 22)

struct writer {
    struct ring_header *header;
    struct ring_record *records;
    uint64_t mask;         /* capacity - 1; not read back from the file, which others can write */
    uint64_t last_exit_ns; /* of the last record */
    uint64_t seen;         /* collectives so far, dropped ones included */
    atomic_flag lock;
    struct sites sites;
};

static inline uint64_t writer_clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Creates DIRECTORY/rank-RANK.PID.ring with all its memory reserved. Capacity in records, a power of two between
 * WRITER_MIN_CAPACITY and WRITER_MAX_CAPACITY. False, and no file left, where anything fails. */
bool writer_open(struct writer *writer, const char *directory, int rank, int size, uint32_t capacity);

/* Appends one record, or counts it as dropped where the reader is a whole ring behind. Any thread; never blocks on
 * the reader. */
void writer_put(struct writer *writer, uint64_t enter_ns, uint64_t exit_ns, enum ring_op op, const void *caller);

/* Says that no record will follow. */
static inline void writer_finalize(struct writer *writer)
{
    atomic_store_explicit(&writer->header->state, RING_FINALIZED, memory_order_release);
}

#endif

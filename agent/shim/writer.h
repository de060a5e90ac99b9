/* The writing end of a ring. Knows nothing of MPI. */
#ifndef BAROGRAPH_WRITER_H
#define BAROGRAPH_WRITER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "sites.h"
#include "ticker.h"

#define WRITER_MIN_CAPACITY 64u
#define WRITER_MAX_CAPACITY (1u << 22)

struct writer {
    struct ring_header *header;
    struct ring_record *records;
    uint64_t mask;         /* capacity - 1; not read back from the file, which others can write */
    uint64_t last_exit_ns; /* of the last record */
    uint64_t seen;         /* collectives so far, dropped ones included */
    atomic_flag lock;
    struct ticker ticker;
    struct sites sites;
};

/* Creates DIRECTORY/rank-RANK.PID.ring, or rank-RANK.PID-N.ring where that is there, with all its memory reserved. Capacity in records, a power of two between
 * WRITER_MIN_CAPACITY and WRITER_MAX_CAPACITY. The ticker must have been started. False, and no file left, where
 * anything fails. */
bool writer_open(struct writer *writer, const char *directory, int rank, int size, uint32_t capacity,
                 const struct ticker *ticker);

/* A collective as it was timed, in ticks. */
struct timed {
    uint64_t enter;
    uint64_t exit; /* just now */
    uint64_t p2p;  /* of this thread's, since its collective before */
    uint64_t bytes;
    enum ring_op op;
};

/* Appends one record, or counts it as dropped where the reader is a whole ring behind. Any thread; never blocks on the
 * reader. */
void writer_put(struct writer *writer, struct timed timed, struct caller from);

/* Marks the ring as finished: no record will follow. */
static inline void writer_finalize(struct writer *writer)
{
    atomic_store_explicit(&writer->header->state, RING_FINALIZED, memory_order_release);
}

/* Undoes that: MPI was finalized and a session began after it. */
static inline void writer_resume(struct writer *writer)
{
    atomic_store_explicit(&writer->header->state, RING_RUNNING, memory_order_release);
}

/* Records that the process ends now, and its exit status. */
static inline void writer_exit(struct writer *writer, int status)
{
    atomic_store_explicit(&writer->header->exited_ns, clock_ns(CLOCK_MONOTONIC), memory_order_relaxed);
    atomic_store_explicit(&writer->header->exit, RING_EXITED + ((uint32_t)status & 255u), memory_order_release);
}

#endif

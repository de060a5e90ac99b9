/* The writer of a ring. Independent of MPI. */
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
    uint64_t mask;         /* capacity - 1; not read from the file, which other processes can write */
    uint64_t last_exit_ns; /* of the last record */
    _Atomic uint64_t seen; /* collectives so far, including dropped ones */
    atomic_flag lock;
    atomic_bool abandoned; /* the lock was held for too long */
    struct ticker ticker;
    struct sites sites;
};

/* Creates DIRECTORY/rank-RANK.PID.ring, or rank-RANK.PID-N.ring if that exists, with all its memory reserved. Capacity
 * in records, a power of two between WRITER_MIN_CAPACITY and WRITER_MAX_CAPACITY. The ticker must have been started. On
 * failure returns false and leaves no file. */
bool writer_open(struct writer *writer, const char *directory, int rank, int size, uint32_t capacity,
                 const struct ticker *ticker);

/* Messages to other ranks. */
struct sent {
    uint64_t messages;
    uint64_t bytes;
};

/* The times of a collective, in ticks. */
struct timed {
    uint64_t enter;
    uint64_t exit; /* the current time */
    uint64_t p2p;  /* in this thread, since its previous collective */
    uint64_t bytes;
    enum ring_op op;
    struct sent sent; /* by this thread, since its previous collective */
};

/* Appends one record, or counts it as dropped if the ring is full. Thread-safe; never waits for the reader. A signal
 * handler that jumps out of it leaves the lock held: later records are counted as dropped, the first after 0.1 s. */
void writer_put(struct writer *writer, struct timed timed, struct caller from);

/* The same for a site that the program names. flags: as in the ring's record. */
void writer_put_named(struct writer *writer, struct timed timed, const char *name, uint16_t flags);

/* Marks the ring as finished: no records follow. */
static inline void writer_finalize(struct writer *writer)
{
    atomic_store_explicit(&writer->header->state, RING_FINALIZED, memory_order_release);
}

/* Reverts that, if a session begins after MPI was finalized. */
static inline void writer_resume(struct writer *writer)
{
    atomic_store_explicit(&writer->header->state, RING_RUNNING, memory_order_release);
}

/* Records the end of the process and its exit status. */
static inline void writer_exit(struct writer *writer, int status)
{
    atomic_store_explicit(&writer->header->exited_ns, clock_ns(CLOCK_MONOTONIC), memory_order_relaxed);
    atomic_store_explicit(&writer->header->exit, RING_EXITED + ((uint32_t)status & 255u), memory_order_release);
}

#endif

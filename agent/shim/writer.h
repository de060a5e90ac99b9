/* The writer of a ring. Independent of MPI. */
#ifndef BAROGRAPH_WRITER_H
#define BAROGRAPH_WRITER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "memory.h"
#include "sites.h"
#include "ticker.h"

#define WRITER_MIN_CAPACITY 64u
#define WRITER_MAX_CAPACITY (1u << 22)

#define WRITER_REFUSED ".refused" /* ends the name of an empty file in place of a ring for which there was no room */
#define WRITER_MAX_UNSEEN (1u << 20) /* calls written that no sidecar has seen; then no more are */

/* A table of records: of collectives, or of iterations. */
struct lane {
    struct ring_record *records;
    uint64_t mask;         /* capacity - 1; not read from the file, which other processes can write */
    uint64_t last_exit_ns; /* of its last record */
    uint64_t written;      /* records; the same as the head */
    uint64_t room;         /* records below this one may be written */
    uint64_t retry;        /* records seen when memory is to be asked for again */
    uint64_t part_ns;      /* when memory was last taken */
    struct memory memory;
    _Atomic uint64_t seen; /* records so far, including dropped ones */
    _Atomic uint64_t *head;
    _Atomic uint64_t *dropped;
    const _Atomic uint64_t *tail;
};

/* What the sidecar wants, as it was when a call last looked. */
struct tracer {
    _Atomic uint64_t applied;
    _Atomic uint32_t op;           /* of the anchor, 0 if there is none; TRACER_ALL while calls are written */
    _Atomic(const void *) address; /* the anchor's innermost return address */
    uint32_t passed;               /* times that the anchor came since its last record */
    struct ring_call *calls;
    uint64_t mask;
    struct memory memory;
};

#define TRACER_ALL UINT32_MAX

struct writer {
    struct ring_header *header;
    struct lane collectives;
    struct lane iterations;
    struct tracer tracer;
    uint64_t last_exit_ns; /* of the last record or call */
    atomic_flag lock;
    atomic_bool abandoned; /* the lock was held for too long */
    struct ticker ticker;
    struct sites sites;
};

/* Creates DIRECTORY/KIND-RANK.PID.ring, or KIND-RANK.PID-N.ring if that exists. Capacity in records of collectives, a power
 * of two between WRITER_MIN_CAPACITY and WRITER_MAX_CAPACITY; fewer where that is more than this process's share of
 * the file system. Memory is taken as the ring fills. The ticker must have been started. On failure returns false and
 * leaves an empty file that says so, where that is possible. */
bool writer_open(struct writer *writer, const char *directory, const char *kind, int rank, int size, uint32_t capacity,
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

/* The same for a site that the program names. */
void writer_put_named(struct writer *writer, struct timed timed, const char *name);

/* The site with this name, SITE_UNKNOWN if there is no room for one more. */
uint32_t writer_site(struct writer *writer, const char *name);

/* The same for an interval that the program has timed, in nanoseconds of CLOCK_MONOTONIC: of several threads in any order. */
void writer_put_own(struct writer *writer, uint64_t enter, uint64_t exit, uint32_t site);

/* A call that is no record of a collective. */
struct call {
    enum ring_op op;
    bool by_reference; /* of Fortran: what follows are addresses of ints */
    uint64_t comm;     /* handles and numbers; 0 if the call has none */
    uint64_t peer;
    uint64_t tag;
};

/* Whether such a call is to be passed to writer_follow. */
static inline bool writer_follows(const struct writer *writer, enum ring_op op, struct caller from)
{
    const struct tracer *tracer = &writer->tracer;
    uint64_t wanted = atomic_load_explicit(&writer->header->wanted, memory_order_relaxed);
    uint32_t watched = atomic_load_explicit(&tracer->op, memory_order_relaxed);
    if (wanted != atomic_load_explicit(&tracer->applied, memory_order_relaxed) || watched == TRACER_ALL)
        return true;
    return watched == op && from.address == atomic_load_explicit(&tracer->address, memory_order_relaxed);
}

/* Writes the call if calls are wanted, and a record if it is the anchor. True if it is: `timed` counts from the previous
 * anchor of this thread. Thread-safe. */
bool writer_follow(struct writer *writer, const struct timed *timed, const struct call *call, struct caller from);

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

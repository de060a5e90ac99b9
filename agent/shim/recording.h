/* A ring of this process: opened once, closed in the children of a fork, told the exit of the process. */
#ifndef BAROGRAPH_RECORDING_H
#define BAROGRAPH_RECORDING_H

#include "writer.h"

struct recording {
    _Atomic(struct writer *) open; /* &writer, or NULL: before it is opened, and in a child */
    bool finalizes;                /* at the exit of the process, for want of another end */
    struct writer writer;
    struct recording *next;
};

/* Opens the ring as writer_open does, and publishes it in `open`. False on failure. To be called again only then. */
bool recording_open(struct recording *recording, const char *directory, const char *kind, int rank, int size, uint32_t capacity,
                    const struct ticker *ticker);

/* The same for what the program's interpreter reports, with times of CLOCK_MONOTONIC: starts the sidecar of this node, and
 * the ring is finished at the exit of the process. */
bool recording_open_reported(struct recording *recording, const char *directory, const char *kind, int rank, int size);

static inline struct writer *recording_writer(const struct recording *recording)
{
    return atomic_load_explicit(&recording->open, memory_order_acquire);
}

#endif

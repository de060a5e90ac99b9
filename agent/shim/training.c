#define _GNU_SOURCE
#include "training.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "companion.h"
#include "ranks.h"
#include "writer.h"

#define EXPORT __attribute__((visibility("default")))
#define CAPACITY 16384u
#define WHOLE 65535u /* flags of a record whose gap is an update from begin to end */

static struct writer writer;
static _Atomic(struct writer *) recording; /* &writer, or NULL */

/* The child of a fork, such as a worker that loads data, shares the mapping, but a ring has one producer. */
static void stop_in_child(void)
{
    atomic_store_explicit(&recording, NULL, memory_order_relaxed);
}

static void note_exit(int status, void *nothing)
{
    (void)nothing;
    struct writer *ring = atomic_load_explicit(&recording, memory_order_acquire);
    if (ring) {
        writer_finalize(ring);
        writer_exit(ring, status);
    }
}

EXPORT int barograph_training_start(int rank, int size)
{
    const char *directory = getenv("BAROGRAPH_RING_DIR");
    if (!directory || atomic_load(&recording) || !ranks_name(getenv("BAROGRAPH_RANKS"), rank))
        return 0;
    int saved = errno;
    companion_start(directory);
    struct ticker ticker;
    struct reading now = ticker_read();
    ticker_start(&ticker, false, now, now);
    int found = pthread_atfork(NULL, NULL, stop_in_child) == 0 &&
                writer_open(&writer, directory, rank, size, CAPACITY, &ticker);
    if (found) {
        atomic_store_explicit(&recording, &writer, memory_order_release);
        on_exit(note_exit, NULL);
    }
    errno = saved;
    return found;
}

EXPORT void barograph_training_step(const char *name, uint64_t enter, uint64_t exit, uint64_t elsewhere, uint64_t updated)
{
    struct writer *ring = atomic_load_explicit(&recording, memory_order_acquire);
    if (!ring)
        return;
    uint64_t gap = enter > ring->last_exit_ns ? enter - ring->last_exit_ns : 0;
    uint64_t part = gap ? (updated < gap ? updated : gap) : 0;
    uint16_t share = gap ? (uint16_t)((unsigned __int128)part * WHOLE / gap) : 0;
    struct timed timed = {.enter = enter, .exit = exit, .p2p = elsewhere, .bytes = RING_BYTES_UNKNOWN, .op = OP_STEP};
    writer_put_named(ring, timed, name, share);
}

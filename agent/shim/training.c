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

EXPORT void barograph_training_step(const struct training_step *step)
{
    struct writer *ring = atomic_load_explicit(&recording, memory_order_acquire);
    if (!ring)
        return;
    struct timed timed = {
        .enter = step->enter,
        .exit = step->exit,
        .p2p = step->elsewhere,
        .bytes = step->bytes,
        .op = OP_STEP,
        .sent = {.messages = step->cpu, .bytes = step->updated}, /* the same words of a record */
    };
    writer_put_named(ring, timed, step->name);
}

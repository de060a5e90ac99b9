#define _GNU_SOURCE
#include "recorder.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"
#include "world.h"
#include "writer.h"

#define DEFAULT_CAPACITY 65536u

static struct world world;
static struct writer writer;
static _Atomic(struct writer *) recording; /* &writer, or NULL */
static struct reading prepared;            /* of both clocks, before MPI was initialized */

/* Wrapped calls this thread is in. initial-exec: a preloaded object has its place in the static TLS block, so this is
 * one instruction and cannot call the allocator. */
static _Thread_local int depth __attribute__((tls_model("initial-exec")));

static uint32_t capacity(void)
{
    const char *text = getenv("BAROGRAPH_RING_RECORDS");
    char *end = NULL;
    unsigned long value = text ? strtoul(text, &end, 10) : 0;
    bool valid = text && *text && !*end && value >= WRITER_MIN_CAPACITY && value <= WRITER_MAX_CAPACITY;
    return valid && (value & (value - 1)) == 0 ? (uint32_t)value : DEFAULT_CAPACITY;
}

static bool disabled(void)
{
    const char *text = getenv("BAROGRAPH_DISABLE");
    return text && *text && strcmp(text, "0") != 0;
}

/* A child made by fork shares the mapping, and with it the ring has one producer too many. */
static void stop_in_child(void)
{
    atomic_store_explicit(&recording, NULL, memory_order_relaxed);
}

void recorder_prepare(void)
{
    prepared = ticker_read();
}

void recorder_start(const void *caller)
{
    const char *directory = getenv("BAROGRAPH_RING_DIR");
    if (!directory || disabled() || atomic_load(&recording))
        return;
    int saved = errno;
    /* Rank 0 sees every interval as long as the slowest rank made it; who that was, only all ranks together can tell. */
    if (world_find(&world, caller) && ranks_name(getenv("BAROGRAPH_RANKS"), world.rank) &&
        pthread_atfork(NULL, NULL, stop_in_child) == 0) {
        struct ticker ticker;
        ticker_start(&ticker, ticker_tsc_usable(), prepared, ticker_read());
        if (writer_open(&writer, directory, world.rank, world.size, capacity(), &ticker))
            atomic_store_explicit(&recording, &writer, memory_order_release);
    }
    errno = saved;
}

uint64_t recorder_enter(void)
{
    struct writer *ring = depth++ > 0 ? NULL : atomic_load_explicit(&recording, memory_order_acquire);
    return ring ? ticker_now(&ring->ticker) : 0;
}

void recorder_leave(uint64_t entered, enum ring_op op, word comm, int result, struct caller from)
{
    depth--;
    if (!entered || result != 0)
        return;
    struct writer *ring = atomic_load_explicit(&recording, memory_order_acquire);
    if (!ring)
        return;
    uint64_t left = ticker_now(&ring->ticker);
    if (world_spanned_by(&world, comm))
        writer_put(ring, entered, left, op, from);
}

void recorder_leave_fortran(uint64_t entered, enum ring_op op, const int *comm, const int *ierror, struct caller from)
{
    word handle = entered ? world_from_fortran(&world, *comm) : 0;
    recorder_leave(entered, op, handle, ierror ? *ierror : 0, from);
}

void recorder_hide(void)
{
    depth++;
}

void recorder_show(void)
{
    depth--;
}

void recorder_finish(void)
{
    struct writer *ring = atomic_load_explicit(&recording, memory_order_acquire);
    if (ring)
        writer_finalize(ring);
}

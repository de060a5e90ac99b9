#define _GNU_SOURCE
#include "recording.h"

#include <pthread.h>
#include <stdlib.h>

static _Atomic(struct recording *) recordings; /* all that are open */

/* The child of a fork shares the mapping, but a ring has one producer. */
static void stop_in_child(void)
{
    for (struct recording *one = atomic_load(&recordings); one; one = one->next)
        atomic_store_explicit(&one->open, NULL, memory_order_relaxed);
}

/* The child of a fork no longer has a ring. */
static void note_exit(int status, void *recording)
{
    const struct recording *one = recording;
    struct writer *writer = recording_writer(one);
    if (!writer)
        return;
    if (one->finalizes)
        writer_finalize(writer);
    writer_exit(writer, status);
}

bool recording_open(struct recording *recording, const char *directory, int rank, int size, uint32_t capacity,
                    const struct ticker *ticker)
{
    if (pthread_atfork(NULL, NULL, stop_in_child) != 0 ||
        !writer_open(&recording->writer, directory, rank, size, capacity, ticker))
        return false;
    recording->next = atomic_load(&recordings);
    while (!atomic_compare_exchange_weak(&recordings, &recording->next, recording))
        ;
    atomic_store_explicit(&recording->open, &recording->writer, memory_order_release);
    on_exit(note_exit, recording);
    return true;
}

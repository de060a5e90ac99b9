#define _GNU_SOURCE
#include "recording.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "companion.h"

#define REPORTED_CAPACITY 16384u

/* Of glibc. A program may be linked to musl, which ends it where a library names a symbol that is not there. */
extern int on_exit(void (*function)(int, void *), void *argument) __attribute__((weak));
extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *) __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

static _Atomic(struct recording *) recordings; /* all that are open */

/* The child of a fork shares the mapping, but a ring has one producer. */
static void stop_in_child(void)
{
    for (struct recording *one = atomic_load(&recordings); one; one = one->next)
        atomic_store_explicit(&one->open, NULL, memory_order_relaxed);
    atomic_store(&recordings, NULL); /* the child may open one of them again */
}

static bool follow_forks(void)
{
    if (__register_atfork)
        return __register_atfork(NULL, NULL, stop_in_child, &__dso_handle) == 0;
    int (*of_musl)(void (*)(void), void (*)(void), void (*)(void)) = dlsym(RTLD_DEFAULT, "pthread_atfork");
    return of_musl && of_musl(NULL, NULL, stop_in_child) == 0;
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

bool recording_open(struct recording *recording, const char *directory, const char *kind, int rank, int size, uint32_t capacity,
                    const struct ticker *ticker)
{
    if (!follow_forks() || !writer_open(&recording->writer, directory, kind, rank, size, capacity, ticker))
        return false;
    recording->next = atomic_load(&recordings);
    while (!atomic_compare_exchange_weak(&recordings, &recording->next, recording))
        ;
    atomic_store_explicit(&recording->open, &recording->writer, memory_order_release);
    if (on_exit)
        on_exit(note_exit, recording);
    return true;
}

bool recording_open_reported(struct recording *recording, const char *directory, const char *kind, int rank, int size)
{
    companion_start(directory);
    struct ticker ticker;
    struct reading now = ticker_read();
    ticker_start(&ticker, false, now, now);
    recording->finalizes = true;
    return recording_open(recording, directory, kind, rank, size, REPORTED_CAPACITY, &ticker);
}

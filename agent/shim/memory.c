#define _GNU_SOURCE
#include "memory.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE_BYTES 4096u /* the smallest of any machine */
#define SHARE 8u         /* of what is free, one of so many parts is for rings */

/* Processes of this launch on this node, by launchers; Slurm's begins with the number, as in 4(x2). */
static const char *const LOCAL_SIZES[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE"};

void memory_open(struct memory *memory, void *start, uint64_t capacity, size_t entry)
{
    uint64_t part = MEMORY_PART_BYTES / entry;
    *memory = (struct memory){.start = start, .capacity = capacity, .part = part < capacity ? part : capacity, .entry = entry};
}

/* The kernel writes into each page, which is an error where there is no memory. A store of this process would be SIGBUS
 * then, and a file descriptor, as fallocate needs, may by now be one of the application's. */
static bool touch(char *page)
{
    return syscall(SYS_clock_gettime, CLOCK_MONOTONIC, page) == 0;
}

static char *place(const struct memory *memory, uint64_t number)
{
    return memory->start + number % memory->capacity * memory->entry;
}

bool memory_take(struct memory *memory)
{
    size_t bytes = memory->part * memory->entry;
    if (memory->taken - memory->kept == memory->capacity)
        memory->kept += memory->part; /* the oldest part is written anew */
    else
        for (size_t at = 0; at < bytes; at += PAGE_BYTES)
            if (!touch(place(memory, memory->taken) + at))
                return false;
    memory->taken += memory->part;
    return true;
}

void memory_give_back(struct memory *memory, uint64_t number)
{
    uint64_t parts = (number - memory->kept) / memory->part;
    if (number < memory->kept || number > memory->taken)
        return; /* of a damaged header */
    for (; parts > 0; parts--) {
        /* Not possible on some file systems. */
        if (madvise(place(memory, memory->kept), memory->part * memory->entry, MADV_REMOVE) != 0)
            return;
        memory->kept += memory->part;
    }
}

uint64_t memory_share(int directory, int processes)
{
    struct statvfs found;
    long local = 0; /* a launcher within a step of Slurm is one process of that: the most is right */
    for (size_t i = 0; i < sizeof LOCAL_SIZES / sizeof *LOCAL_SIZES; i++) {
        const char *text = getenv(LOCAL_SIZES[i]);
        if (text && atol(text) > local)
            local = atol(text);
    }
    if (local == 0)
        local = sysconf(_SC_NPROCESSORS_ONLN);
    if (processes < 1 || local < 1 || fstatvfs(directory, &found) != 0)
        return 0;
    return (uint64_t)found.f_bavail * found.f_frsize / SHARE / (uint64_t)(local < processes ? local : processes);
}

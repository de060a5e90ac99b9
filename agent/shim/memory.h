/* The memory of one table of a ring. A part of the table is taken from the file system when its first entry is about to
 * be written, and may be given back when it was read: a slow program needs few of them. */
#ifndef BAROGRAPH_MEMORY_H
#define BAROGRAPH_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEMORY_PART_BYTES (128u * 1024u)

struct memory {
    char *start;       /* of the table, in a shared mapping of the ring's file */
    uint64_t capacity; /* entries; a power of two */
    uint64_t part;     /* entries that are taken together */
    size_t entry;      /* bytes of one */
    uint64_t kept;     /* numbers kept..taken-1 have memory; entry i is at i % capacity */
    uint64_t taken;
};

/* A table without memory. */
void memory_open(struct memory *memory, void *start, uint64_t capacity, size_t entry);

/* Takes memory for the entries from `taken` on. False if the file system has none; no signal is raised. */
bool memory_take(struct memory *memory);

/* Gives back parts in which all numbers are below this. */
void memory_give_back(struct memory *memory, uint64_t number);

/* How many bytes each of these processes may take in the file system of an open directory: together an eighth of what
 * is free. */
uint64_t memory_share(int directory, int processes);

#endif

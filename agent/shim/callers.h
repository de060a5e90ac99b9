/* Return addresses of the functions that called a wrapper, by the unwind tables: exact, and 1 us slow. */
#ifndef BAROGRAPH_CALLERS_H
#define BAROGRAPH_CALLERS_H

#include <stdbool.h>
#include <stdint.h>

#include "ring.h"

/* Where a wrapper was called from. */
struct caller {
    const void *address; /* return address */
    const char *frame;   /* canonical frame address of the wrapper: the stack pointer before the call */
};

struct callers {
    int count;
    const void *address[RING_FRAMES]; /* the first is the caller's own */
    const char *slot[RING_FRAMES];    /* where on the stack each is stored; NULL where it is not where it should be */
};

/* Finds the unwinder, once. Without libgcc_s there is none, and callers_find finds nothing. */
void callers_prepare(void);

/* The call path of a wrapper in this thread's stack, up to RING_FRAMES; count is 0 where it cannot be told. */
void callers_find(struct callers *callers, struct caller from);

/* Whether a word lies in this thread's stack, above the frame. */
bool callers_in_stack(const char *frame, const char *word);

#endif

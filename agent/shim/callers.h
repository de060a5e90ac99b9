/* Return addresses of the functions that called a wrapper, by the unwind tables: exact, and 1 us slow. */
#ifndef BAROGRAPH_CALLERS_H
#define BAROGRAPH_CALLERS_H

#include <stddef.h>
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
    const char *slot[RING_FRAMES];    /* where on the stack each is stored; NULL where it is not as expected */
};

/* Finds the unwinder, once. Without libgcc_s there is none, and callers_find finds nothing. */
void callers_prepare(void);

/* The call path of a wrapper in this thread's stack, up to RING_FRAMES; count is 0 where it cannot be told. */
void callers_find(struct callers *callers, struct caller from);

/* Bounds of a thread's stack. */
struct stack {
    const char *lowest;
    const char *end; /* NULL = not looked up yet */
};

extern _Thread_local struct stack callers_stack __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Asks the C library, which costs the first thread some 30 us. */
void callers_find_stack(void);

/* Where this thread's stack ends; NULL where the frame is not in it: a coroutine has a stack of its own. */
static inline const char *callers_stack_end(const char *frame)
{
    if (__builtin_expect(!callers_stack.end, 0))
        callers_find_stack();
    return frame >= callers_stack.lowest && frame < callers_stack.end ? callers_stack.end : NULL;
}

#endif

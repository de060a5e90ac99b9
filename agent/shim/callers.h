/* Return addresses of the callers of a wrapper, from the unwind tables: exact, but takes 1 us. */
#ifndef BAROGRAPH_CALLERS_H
#define BAROGRAPH_CALLERS_H

#include <stddef.h>
#include <stdint.h>

#include "ring.h"

/* Where a wrapper was called from. */
struct caller {
    const void *address; /* return address */
    const char *frame;   /* of the wrapper, CALLERS_FRAME */
};

/* The canonical frame address: the stack pointer before the call. On AArch64 the frame pointer, where the return address
 * is stored beside it; compilers have no canonical frame address there. */
#if defined __aarch64__
#define CALLERS_FRAME __builtin_frame_address(0)
#else
#define CALLERS_FRAME __builtin_dwarf_cfa()
#endif

struct callers {
    int count;
    const void *address[RING_FRAMES]; /* the first is the caller's own */
    const char *slot[RING_FRAMES];    /* address on the stack where each is stored; NULL if that is unknown */
};

/* Loads the unwinder, once. Without libgcc_s there is none, and callers_find returns a count of 0. */
void callers_prepare(void);

/* The call path of a wrapper on this thread's stack, up to RING_FRAMES frames; count is 0 if it is unknown. */
void callers_find(struct callers *callers, struct caller from);

/* Bounds of a thread's stack. */
struct stack {
    const char *lowest;
    const char *end; /* NULL = not looked up yet */
};

extern _Thread_local struct stack callers_stack __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Determines the bounds with the C library, which takes about 30 us in the first thread. */
void callers_find_stack(void);

/* End of this thread's stack; NULL if the frame is not on it: a coroutine has a stack of its own. */
static inline const char *callers_stack_end(const char *frame)
{
    if (__builtin_expect(!callers_stack.end, 0))
        callers_find_stack();
    return frame >= callers_stack.lowest && frame < callers_stack.end ? callers_stack.end : NULL;
}

#endif

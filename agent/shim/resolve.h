/* The MPI library beneath: its functions and data, found at run time by name. */
#ifndef BAROGRAPH_RESOLVE_H
#define BAROGRAPH_RESOLVE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Any MPI argument. Integers, pointers and handles of every MPI each fill one register or one 8-byte stack slot in the
 * calling conventions of x86-64 and AArch64 Linux, so a word carries them all through unchanged. */
typedef uint64_t word;

/* A function of the MPI library, or of the tool that stands between. `caller` in all of these is a return address in
 * the code that calls MPI. NULL where there is none. */
void *resolve_function(const char *name, const void *caller);

/* A variable of the MPI library; NULL where there is none. */
void *resolve_data(const char *name, const void *caller);

/* The function that one wrapper forwards to, looked up at its first call. */
struct target {
    const char *name;
    const char *instead; /* another name of the same function, or NULL */
    const void *wrapper;
    _Atomic(void *) function; /* NULL = not looked up yet, target_missing = there is none */
};

extern char target_missing;

void *target_look_up(struct target *target, const void *caller);

/* The real function, or NULL where the library has none. */
static inline void *target_find(struct target *target, const void *caller)
{
    void *function = atomic_load_explicit(&target->function, memory_order_relaxed);
    if (__builtin_expect(function == NULL, 0))
        function = target_look_up(target, caller);
    return function == &target_missing ? NULL : function;
}

#endif

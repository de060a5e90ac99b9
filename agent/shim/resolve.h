/* Functions and data of the MPI library, looked up at run time by name. */
#ifndef BAROGRAPH_RESOLVE_H
#define BAROGRAPH_RESOLVE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Any MPI argument. Integers, pointers and handles of every MPI occupy one register or one 8-byte stack slot in the
 * calling conventions of x86-64 and AArch64 Linux, so a word forwards them unchanged. */
typedef uint64_t word;

/* A function of the MPI library, or of a tool preloaded after the shim; NULL if there is none. `caller`, here and
 * below, is a return address in the code that calls MPI. */
void *resolve_function(const char *name, const void *caller);

/* A variable of the MPI library; NULL if there is none. */
void *resolve_data(const char *name, const void *caller);

/* The function that a wrapper forwards to, looked up at the first call. */
struct target {
    const char *name;
    const char *instead; /* another name of the same function, or NULL */
    const void *wrapper;
    _Atomic(void *) function; /* NULL = not looked up yet, target_missing = there is none */
};

extern char target_missing;

void *target_look_up(struct target *target, const void *caller);

/* The real function, or NULL if the library has none. */
static inline void *target_find(struct target *target, const void *caller)
{
    void *function = atomic_load_explicit(&target->function, memory_order_relaxed);
    if (__builtin_expect(function == NULL, 0))
        function = target_look_up(target, caller);
    return function == &target_missing ? NULL : function;
}

#endif

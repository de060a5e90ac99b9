/* What every wrapper begins with. The wrappers themselves are written by wrappers.py when the shim is built. */
#ifndef BAROGRAPH_WRAPPERS_H
#define BAROGRAPH_WRAPPERS_H

#include "narrow.h"
#include "recorder.h"
#include "resolve.h"

#define EXPORT __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)
#define FROM ((struct caller){CALLER, __builtin_dwarf_cfa()})
#define ERR_OTHER 15 /* there is no MPI to forward to; without the shim the program could not have come here */

#define TARGET(VARIABLE, NAME, INSTEAD) \
    static struct target VARIABLE = {.name = #NAME, .instead = INSTEAD, .wrapper = (const void *)NAME}

/* FORWARD(name, types of the arguments...): declares `real`, the function that the application means */
#define FORWARD(NAME, ...)                                          \
    TARGET(target, NAME, NULL);                                     \
    int (*real)(__VA_ARGS__) = target_find(&target, CALLER);        \
    if (!real)                                                      \
        return ERR_OTHER

/* The same for MPI_X_c. Where the library has none, `real` is NULL and `with_ints` is MPI_X. */
#define FORWARD_LARGE(NAME, ...)                                                        \
    TARGET(target, NAME##_c, NULL);                                                     \
    TARGET(narrow_target, NAME, NULL);                                                  \
    int (*real)(__VA_ARGS__) = target_find(&target, CALLER);                            \
    int (*with_ints)(__VA_ARGS__) = real ? NULL : target_find(&narrow_target, CALLER);  \
    if (!real && !with_ints)                                                            \
        return ERR_OTHER

/* The same for a name that Fortran calls; `ierror` is the last argument. */
#define FORWARD_FORTRAN(NAME, INSTEAD, ...)                         \
    TARGET(target, NAME, INSTEAD);                                  \
    void (*real)(__VA_ARGS__) = target_find(&target, CALLER);       \
    if (!real) {                                                    \
        if (ierror)                                                 \
            *(int *)ierror = ERR_OTHER;                             \
        return;                                                     \
    }

#endif

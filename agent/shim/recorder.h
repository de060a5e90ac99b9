/* One process's recording: from the return of MPI_Init to the call of MPI_Finalize. Sessions begin and end it as well. */
#ifndef BAROGRAPH_RECORDER_H
#define BAROGRAPH_RECORDER_H

#include <stdbool.h>

#include "callers.h"
#include "resolve.h"
#include "ring.h"
#include "types.h"

/* When MPI begins to initialize: the earlier the first reading of the clocks, the better their line. */
void recorder_prepare(void);

/* Begins to record if BAROGRAPH_RING_DIR names a directory, BAROGRAPH_DISABLE does not forbid it, and BAROGRAPH_RANKS
 * names this rank. Where anything fails it is silent, and the calls below do nothing. `session` is the address of an
 * MPI session, NULL after MPI_Init. To be followed by one recorder_finish each. */
void recorder_start(const void *session, const void *caller);

/* A synchronizing collective's arguments. */
struct collective {
    enum ring_op op;
    word comm;
    int64_t count; /* COUNT_UNKNOWN where there is none or more than one */
    word datatype;
};

/* The same as Fortran gives them: addresses of ints, of a 64-bit count where it is large. */
struct by_reference {
    enum ring_op op;
    bool large;
    word comm;
    word count; /* 0 for COUNT_UNKNOWN */
    word datatype;
    word ierror; /* may be 0 */
};

/* Around each forwarded call. The MPI library may implement one MPI function by another: what happens between the two
 * is not counted again. Returns the tick when the call began, 0 where it is not to be recorded. */
uint64_t recorder_enter(void);
void recorder_leave(uint64_t entered, struct collective call, int result, struct caller from);
void recorder_leave_fortran(uint64_t entered, struct by_reference call, struct caller from);

/* After a call that waited for some other rank and did not synchronize the world: its time is no work of this rank's. */
void recorder_leave_other(uint64_t entered);

/* The same around a call that is never recorded. */
void recorder_hide(void);
void recorder_show(void);

/* Marks the ring as finished, unless another MPI session is open: one store. */
void recorder_finish(void);

#endif

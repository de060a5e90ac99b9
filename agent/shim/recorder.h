/* One process's recording: from the return of MPI_Init to the call of MPI_Finalize, on rank 0 of the world. */
#ifndef BAROGRAPH_RECORDER_H
#define BAROGRAPH_RECORDER_H

#include "callers.h"
#include "resolve.h"
#include "ring.h"

/* When MPI begins to initialize: the earlier the first reading of the clocks, the better their line. */
void recorder_prepare(void);

/* Begins to record if BAROGRAPH_RING_DIR names a directory, BAROGRAPH_DISABLE does not forbid it, and this is rank 0.
 * Silent where anything is in the way: then the calls below do nothing. */
void recorder_start(const void *caller);

/* Around each forwarded call. The MPI library may implement one MPI function by another: what happens between the two
 * is not counted again. Returns the tick when the call began, 0 where it is not to be recorded. */
uint64_t recorder_enter(void);
void recorder_leave(uint64_t entered, enum ring_op op, word comm, int result, struct caller from);

/* The same of a Fortran entry point; ierror may be NULL. */
void recorder_leave_fortran(uint64_t entered, enum ring_op op, const int *comm, const int *ierror, struct caller from);

/* The same around a call that is never recorded. */
void recorder_hide(void);
void recorder_show(void);

/* Says that no record will follow: one store. */
void recorder_finish(void);

#endif

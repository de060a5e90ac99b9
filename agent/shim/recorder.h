/* The recording of one process: from the return of MPI_Init to the call of MPI_Finalize, or of a session likewise. */
#ifndef BAROGRAPH_RECORDER_H
#define BAROGRAPH_RECORDER_H

#include <stdbool.h>

#include "callers.h"
#include "resolve.h"
#include "ring.h"
#include "types.h"
#include "writer.h"

/* To be called before MPI is initialized: the earlier the first reading of the clocks, the more exact their line. */
void recorder_prepare(void);

/* Starts recording if BAROGRAPH_RING_DIR names a directory, BAROGRAPH_DISABLE is not set, and BAROGRAPH_RANKS contains
 * this rank. Failures are silent, and the functions below then do nothing. `session` is the address of an MPI session,
 * NULL after MPI_Init. Each call is to be followed by one recorder_finish. */
void recorder_start(const void *session, const void *caller);

/* A synchronizing collective's arguments. */
struct collective {
    enum ring_op op;
    word comm;
    int64_t count; /* COUNT_UNKNOWN if there is none or more than one */
    word datatype;
};

/* The same as passed by Fortran: addresses of ints, and of a 64-bit count if `large`. */
struct by_reference {
    enum ring_op op;
    bool large;
    word comm;
    word count; /* 0 for COUNT_UNKNOWN */
    word datatype;
    word ierror; /* may be 0 */
};

/* Called before and after each forwarded call. An MPI library may implement one MPI function with another: nested
 * calls are not counted. Returns the tick at the start of the call, 0 if it is not to be recorded. */
uint64_t recorder_enter(void);
void recorder_leave(uint64_t entered, struct collective call, int result, struct caller from);
void recorder_leave_fortran(uint64_t entered, struct by_reference call, struct caller from);

/* What a rooted collective has: `items` is 0 if it passes nothing. */
struct rooted {
    word comm;
    int root;
    int64_t items;
};

/* The same as passed by Fortran: addresses of ints, and of two 64-bit counts if `large`, of which one is significant. */
struct rooted_by_reference {
    bool large;
    word comm;
    word root;
    word count;
    word other_count;
    word ierror; /* may be 0 */
};

/* Called after a collective whose root waits for all ranks, and after one whose ranks wait for the root. The second is
 * recorded where it follows one of the first kind with the same root and communicator. */
void recorder_leave_gathered(uint64_t entered, enum ring_op op, struct rooted call, int result, struct caller from);
void recorder_leave_gathered_fortran(uint64_t entered, enum ring_op op, struct rooted_by_reference call,
                                     struct caller from);
void recorder_leave_spread(uint64_t entered, struct rooted call, struct collective same, int result, struct caller from);
void recorder_leave_spread_fortran(uint64_t entered, struct rooted_by_reference call, struct by_reference same,
                                   struct caller from);

/* Called after a call that waits for another rank without synchronizing the world: its time is not own work. */
void recorder_leave_other(uint64_t entered, struct call call, struct caller from);

/* The same after a call that asks whether another rank has come. `came`: the answer. */
void recorder_leave_polled(uint64_t entered, bool came, struct call call, struct caller from);

/* The same after a call that sends a message: it is counted, if it has succeeded. Of a call that has not, the datatype
 * may be invalid: to ask MPI for its size would end a program that handles its errors by itself. */
void recorder_leave_sent(uint64_t entered, int64_t count, word datatype, int result, struct call call,
                         struct caller from);

/* The arguments of such a call as passed by Fortran: addresses of ints, and of a 64-bit count if `large`. */
struct sent_by_reference {
    bool large;
    word count;
    word datatype;
    word ierror; /* may be 0 */
};

void recorder_leave_sent_fortran(uint64_t entered, struct sent_by_reference sent, struct call call,
                                 struct caller from);

/* Called after a call that sends a message and does not wait. It is counted, but not timed. An MPI library may implement
 * Fortran's with that of C, so recorder_hide is called before it. */
void recorder_sent(int64_t count, word datatype, int result, struct call call, struct caller from);
void recorder_sent_fortran(struct sent_by_reference sent, struct call call, struct caller from);

/* Called before and after a call that is never recorded. */
void recorder_hide(void);
void recorder_show(void);

/* Marks the ring as finished, unless another MPI session is open: one store. */
void recorder_finish(void);

#endif

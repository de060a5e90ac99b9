/* Large-count collectives by means of the int functions, for libraries that lack MPI_X_c.
 *
 * mpi4py refers to MPI_X_c weakly and calls it wherever it is defined. Preloaded, the shim defines it always, so it must
 * do the work of a library that does not (Open MPI up to 5, MPICH before 4). `real` is the library's MPI_X. */
#ifndef BAROGRAPH_NARROW_H
#define BAROGRAPH_NARROW_H

#include <limits.h>
#include <stdbool.h>

#include "resolve.h"

#define ERR_COUNT 2 /* MPI_ERR_COUNT, the same number in every MPI: a count that no int holds */

/* Whether an int holds the count. */
static inline bool narrow_fits(word count)
{
    return (int64_t)count >= INT_MIN && (int64_t)count <= INT_MAX;
}

/* MPI_IN_PLACE is (void *)1 in Open MPI and (void *)-1 in MPICH. The arguments that describe the send buffer are then
 * without meaning, so they are neither read nor checked. */
static inline bool narrow_in_place(word sendbuf)
{
    return sendbuf == 1 || sendbuf == ~(word)0;
}

/* These have arrays of counts or displacements, which are copied. */
int narrow_allgatherv(void *real, const void *caller, word sendbuf, word sendcount, word sendtype, word recvbuf,
                      word recvcounts, word displs, word recvtype, word comm);
int narrow_alltoallv(void *real, const void *caller, word sendbuf, word sendcounts, word sdispls, word sendtype,
                     word recvbuf, word recvcounts, word rdispls, word recvtype, word comm);
int narrow_reduce_scatter(void *real, const void *caller, word sendbuf, word recvbuf, word recvcounts, word datatype,
                          word op, word comm);

#endif

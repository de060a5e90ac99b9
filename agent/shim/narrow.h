/* Large-count collectives implemented with the int functions, for libraries without MPI_X_c.
 *
 * mpi4py references MPI_X_c weakly and calls it if it is defined. The preloaded shim always defines it, so it must
 * implement it for libraries that do not (Open MPI up to 5, MPICH before 4). `real` is the library's MPI_X. */
#ifndef BAROGRAPH_NARROW_H
#define BAROGRAPH_NARROW_H

#include <limits.h>
#include <stdbool.h>

#include "resolve.h"

#define ERR_COUNT 2 /* MPI_ERR_COUNT, the same number in every MPI: a count that does not fit into an int */

/* Whether the count fits into an int. */
static inline bool narrow_fits(word count)
{
    return (int64_t)count >= INT_MIN && (int64_t)count <= INT_MAX;
}

/* MPI_IN_PLACE is (void *)1 in Open MPI and (void *)-1 in MPICH. The arguments that describe the send buffer are then
 * undefined, so they are neither read nor checked. */
static inline bool narrow_in_place(word sendbuf)
{
    return sendbuf == 1 || sendbuf == ~(word)0;
}

/* Functions with arrays of counts or displacements, which are copied. */
int narrow_allgatherv(void *real, const void *caller, word sendbuf, word sendcount, word sendtype, word recvbuf,
                      word recvcounts, word displs, word recvtype, word comm);
int narrow_alltoallv(void *real, const void *caller, word sendbuf, word sendcounts, word sdispls, word sendtype,
                     word recvbuf, word recvcounts, word rdispls, word recvtype, word comm);
int narrow_reduce_scatter(void *real, const void *caller, word sendbuf, word recvbuf, word recvcounts, word datatype,
                          word op, word comm);

#endif

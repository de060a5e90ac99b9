/* Large-count collectives by means of the int functions, for libraries that lack MPI_X_c.
 *
 * mpi4py refers to MPI_X_c weakly and calls it wherever it is defined. Preloaded, the shim defines it always, so it must
 * do the work of a library that does not (Open MPI up to 5, MPICH before 4). `real` is the library's MPI_X. */
#ifndef BAROGRAPH_NARROW_H
#define BAROGRAPH_NARROW_H

#include "resolve.h"

#define ERR_COUNT 2 /* MPI_ERR_COUNT, the same number in every MPI: a count that no int holds */

int narrow_allreduce(void *real, const void *caller, word sendbuf, word recvbuf, word count, word datatype, word op,
                     word comm);
int narrow_allgather(void *real, const void *caller, word sendbuf, word sendcount, word sendtype, word recvbuf,
                     word recvcount, word recvtype, word comm);
int narrow_allgatherv(void *real, const void *caller, word sendbuf, word sendcount, word sendtype, word recvbuf,
                      word recvcounts, word displs, word recvtype, word comm);
int narrow_alltoallv(void *real, const void *caller, word sendbuf, word sendcounts, word sdispls, word sendtype,
                     word recvbuf, word recvcounts, word rdispls, word recvtype, word comm);
int narrow_reduce_scatter(void *real, const void *caller, word sendbuf, word recvbuf, word recvcounts, word datatype,
                          word op, word comm);

#endif

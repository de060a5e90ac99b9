/* MPI_COMM_WORLD, of whichever MPI is beneath. */
#ifndef BAROGRAPH_WORLD_H
#define BAROGRAPH_WORLD_H

#include <stdbool.h>

#include "resolve.h"

struct world {
    word handle;
    word mask; /* the bits of a handle that count */
    int rank;
    int size;
    int (*comm_size)(word comm, int *size); /* PMPI_Comm_size */
    word (*f2c)(int comm);                  /* PMPI_Comm_f2c, NULL where Fortran's handles are C's */
};

/* Fills it in. To be called between MPI_Init and MPI_Finalize; false where it is not found. */
bool world_find(struct world *world, const void *caller);

/* The same where there is a session (its address) and perhaps no MPI_Init, and so no MPI_COMM_WORLD: then the handle is
 * never met, and communicators of the process set mpi://WORLD are known by their size. */
bool world_find_in_session(struct world *world, const void *session, const void *caller);

/* Whether a communicator has as many ranks as the world. Asked anew each time, which is local and cheap: a handle may
 * be freed and given to another communicator. */
static inline bool world_spanned_by(const struct world *world, word comm)
{
    int size;
    return ((comm ^ world->handle) & world->mask) == 0 || (world->comm_size(comm, &size) == 0 && size == world->size);
}

#endif

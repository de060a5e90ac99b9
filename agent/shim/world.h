/* MPI_COMM_WORLD of any MPI. */
#ifndef BAROGRAPH_WORLD_H
#define BAROGRAPH_WORLD_H

#include <stdbool.h>

#include "resolve.h"

struct world {
    word handle;
    word mask; /* the significant bits of a handle */
    int rank;
    int size;
    int (*comm_size)(word comm, int *size); /* PMPI_Comm_size */
    word (*f2c)(int comm);                  /* PMPI_Comm_f2c, NULL if Fortran's handles are those of C */
};

/* Initializes `world`. To be called between MPI_Init and MPI_Finalize; false on failure. */
bool world_find(struct world *world, const void *caller);

/* The same for a session (its address), possibly without MPI_Init and MPI_COMM_WORLD: then no communicator has the
 * handle, and those of the process set mpi://WORLD are recognized by their size. */
bool world_find_in_session(struct world *world, const void *session, const void *caller);

/* Whether a communicator has as many ranks as the world. Determined at each call, a local operation: a handle may be
 * freed and reused for another communicator. */
static inline bool world_spanned_by(const struct world *world, word comm)
{
    int size;
    return ((comm ^ world->handle) & world->mask) == 0 || (world->comm_size(comm, &size) == 0 && size == world->size);
}

#endif

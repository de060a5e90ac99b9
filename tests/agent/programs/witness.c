/* An independent count: an ordinary PMPI library, built with the mpi.h of one MPI, to be preloaded after the shim. In
 * MPI_Finalize rank 0 writes to the file $WITNESS how many of the collectives wrapped by the shim were called on
 * communicators as large as the world. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static long count;

static int seen(int result, MPI_Comm comm)
{
    int size, world;
    PMPI_Comm_size(comm, &size);
    PMPI_Comm_size(MPI_COMM_WORLD, &world);
    count += result == MPI_SUCCESS && size == world;
    return result;
}

#define COUNTED(call, parameters, arguments) \
    int MPI_##call parameters { return seen(PMPI_##call arguments, c); }

COUNTED(Barrier, (MPI_Comm c), (c))

#define BOTH(N, S)                                                                                                        \
    COUNTED(Allreduce##S, (const void *s, void *r, N n, MPI_Datatype t, MPI_Op o, MPI_Comm c), (s, r, n, t, o, c))        \
    COUNTED(Allgather##S, (const void *s, N sn, MPI_Datatype st, void *r, N rn, MPI_Datatype rt, MPI_Comm c),             \
            (s, sn, st, r, rn, rt, c))                                                                                    \
    COUNTED(Alltoall##S, (const void *s, N sn, MPI_Datatype st, void *r, N rn, MPI_Datatype rt, MPI_Comm c),              \
            (s, sn, st, r, rn, rt, c))                                                                                    \
    COUNTED(Reduce_scatter_block##S, (const void *s, void *r, N n, MPI_Datatype t, MPI_Op o, MPI_Comm c),                 \
            (s, r, n, t, o, c))                                                                                           \
    COUNTED(Reduce_scatter##S, (const void *s, void *r, const N *n, MPI_Datatype t, MPI_Op o, MPI_Comm c),                \
            (s, r, n, t, o, c))
#define BOTH_V(N, D, S)                                                                                                   \
    COUNTED(Allgatherv##S, (const void *s, N sn, MPI_Datatype st, void *r, const N *rn, const D *d, MPI_Datatype rt,      \
                            MPI_Comm c), (s, sn, st, r, rn, d, rt, c))                                                    \
    COUNTED(Alltoallw##S, (const void *s, const N *sn, const D *sd, const MPI_Datatype *st, void *r, const N *rn,         \
                           const D *rd, const MPI_Datatype *rt, MPI_Comm c), (s, sn, sd, st, r, rn, rd, rt, c))           \
    COUNTED(Alltoallv##S, (const void *s, const N *sn, const D *sd, MPI_Datatype st, void *r, const N *rn, const D *rd,   \
                           MPI_Datatype rt, MPI_Comm c), (s, sn, sd, st, r, rn, rd, rt, c))

BOTH(int, )
BOTH_V(int, int, )
#if MPI_VERSION >= 4 && !defined(OPEN_MPI)
BOTH(MPI_Count, _c)
BOTH_V(MPI_Count, MPI_Aint, _c)
#endif

int MPI_Finalize(void)
{
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0 && getenv("WITNESS")) {
        FILE *file = fopen(getenv("WITNESS"), "w");
        fprintf(file, "%ld\n", count);
        fclose(file);
    }
    return PMPI_Finalize();
}

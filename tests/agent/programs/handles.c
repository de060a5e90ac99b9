/* Handles that are freed and reused: handles ROUNDS
 *
 * Round k, from 1: a Barrier on a duplicate of the world, which counts; one on a part of it, which does not if there are
 * several ranks; an Allgather of one element of a type of k ints. All three handles are freed in each round. Prints how
 * many handles of parts were those of duplicates before, and how many of types those of other types. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 100

int main(int argc, char **argv)
{
    int rank, size, comms = 0, types = 0, rounds = argc == 2 ? atoi(argv[1]) : 0;
    MPI_Comm same[MOST + 1], part;
    MPI_Datatype type[MOST + 1];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int *mine = calloc(MOST, sizeof(int)), *all = calloc(MOST * (size_t)size, sizeof(int));
    for (int k = 1; k <= rounds && k <= MOST; k++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &same[k]);
        MPI_Barrier(same[k]);
        part = same[k];
        MPI_Comm_free(&part);
        MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &part);
        MPI_Barrier(part);
        MPI_Type_contiguous(k, MPI_INT, &type[k]);
        MPI_Type_commit(&type[k]);
        MPI_Allgather(mine, 1, type[k], all, 1, type[k], MPI_COMM_WORLD);
        for (int i = 1; i < k; i++) {
            comms += !memcmp(&part, &same[i], sizeof part);
            types += !memcmp(&type[k], &type[i], sizeof *type);
        }
        comms += !memcmp(&part, &same[k], sizeof part);
        MPI_Datatype gone = type[k];
        MPI_Type_free(&gone);
        MPI_Comm_free(&part);
    }
    if (rank == 0)
        printf("%d %d\n", comms, types);
    free(mine);
    free(all);
    MPI_Finalize();
    return 0;
}

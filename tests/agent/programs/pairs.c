/* Rooted collectives that synchronize the world in pairs: pairs ROUNDS, with two ranks or more
 *
 * One round makes 7 sync points: Bcast after Reduce, Bcast after Reduce behind a Bcast of another root, Scatter after
 * Gather, Bcast after a Gather in place, Bcast after two Reduces, a Barrier after a Reduce, Bcast after Reduce on a
 * duplicate of the world; and pairs that prove nothing: of other roots, of other communicators, of nothing, of a part.
 * Rank 1 sleeps MILLISECONDS, 0 without, before the first Reduce. Prints "bad=N", the wrong results of this rank. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MOST 16
#define REDUCE(ROOT, COUNT, COMM) MPI_Reduce(&one, &sum, COUNT, MPI_INT, MPI_SUM, ROOT, COMM)
#define BCAST(ROOT, COUNT, COMM) MPI_Bcast(&sum, COUNT, MPI_INT, ROOT, COMM)

int main(int argc, char **argv)
{
    int rank, size, one = 1, sum, bad = 0, all[MOST];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int rounds = argc > 1 ? atoi(argv[1]) : 0, milliseconds = argc > 2 ? atoi(argv[2]) : 0;
    if (!rounds || size < 2 || size > MOST)
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Comm same, part;
    MPI_Comm_dup(MPI_COMM_WORLD, &same);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0, 0, &part);
    for (int i = 0; i < rounds; i++) {
        if (rank == 1)
            usleep(1000 * milliseconds);
        REDUCE(0, 1, MPI_COMM_WORLD);
        BCAST(0, 1, MPI_COMM_WORLD); /* 1 */
        bad += sum != size;

        REDUCE(0, 1, MPI_COMM_WORLD);
        int kept = sum;
        BCAST(1, 1, MPI_COMM_WORLD);
        sum = kept;
        BCAST(0, 1, MPI_COMM_WORLD); /* 2 */
        bad += sum != size;

        MPI_Gather(&rank, 1, MPI_INT, all, 1, MPI_INT, 0, MPI_COMM_WORLD);
        MPI_Scatter(all, 1, MPI_INT, &sum, 1, MPI_INT, 0, MPI_COMM_WORLD); /* 3 */
        bad += sum != rank;

        /* What is not significant must not be looked at. */
        all[1] = 1;
        if (rank == 1)
            MPI_Gather(MPI_IN_PLACE, -1, MPI_DATATYPE_NULL, all, 1, MPI_INT, 1, MPI_COMM_WORLD);
        else
            MPI_Gather(&rank, 1, MPI_INT, NULL, 0, MPI_DATATYPE_NULL, 1, MPI_COMM_WORLD);
        MPI_Bcast(all, size, MPI_INT, 1, MPI_COMM_WORLD); /* 4 */
        for (int other = 0; other < size; other++)
            bad += all[other] != other;

        REDUCE(0, 1, MPI_COMM_WORLD);
        REDUCE(0, 1, MPI_COMM_WORLD);
        BCAST(0, 1, MPI_COMM_WORLD); /* 5 */
        BCAST(0, 1, MPI_COMM_WORLD); /* alone */

        REDUCE(0, 0, MPI_COMM_WORLD);
        BCAST(0, 1, MPI_COMM_WORLD); /* after nothing */
        REDUCE(0, 1, MPI_COMM_WORLD);
        BCAST(0, 0, MPI_COMM_WORLD); /* of nothing */
        MPI_Barrier(MPI_COMM_WORLD); /* 6 */
        BCAST(0, 1, MPI_COMM_WORLD); /* after what is over */

        REDUCE(0, 1, same);
        BCAST(0, 1, MPI_COMM_WORLD); /* of another communicator */
        BCAST(0, 1, same); /* 7 */
        REDUCE(0, 1, part);
        BCAST(0, 1, part);
    }
    printf("bad=%d\n", bad);
    fflush(stdout);
    MPI_Finalize();
    return bad != 0;
}

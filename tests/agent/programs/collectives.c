/* Every collective the shim wraps, its results checked, a known number of times: collectives ROUNDS END
 *
 * One round makes 11 calls that count, on the world or on communicators as large:
 *     Barrier 1, Allreduce 2 (one in place), Allgather 1, Allgatherv 1, Alltoall 1, Alltoallv 1, Reduce_scatter 1,
 *     Alltoallw 1, Reduce_scatter_block 1 on the world, Barrier 1 on a duplicate of it
 * and, with two or more ranks, calls that do not: a Barrier and an Allreduce on a part of the world, a Bcast.
 * END is how rank 0 ends after the rounds: finalize, exit, _exit, abort, MPI_Abort, kill; or fork: rank 0 forks a child
 * that calls Barrier on its own communicator, then finalizes. Prints "bad=N", the wrong results of this rank. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 16

static int rank, size, bad;

static void check(const int *got, int first, int step, int count)
{
    for (int i = 0; i < count; i++)
        bad += got[i] != first + i * step;
}

static void one_round(MPI_Comm same, MPI_Comm part)
{
    int sum = rank, ranks[MOST], counts[MOST], at[MOST], sent[MOST];
    MPI_Barrier(MPI_COMM_WORLD);

    int total = 0;
    MPI_Allreduce(&rank, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check(&total, size * (size - 1) / 2, 0, 1);
    check(&sum, size * (size - 1) / 2, 0, 1);

    MPI_Allgather(&rank, 1, MPI_INT, ranks, 1, MPI_INT, MPI_COMM_WORLD);
    check(ranks, 0, 1, size);

    for (int i = 0; i < size; i++) {
        counts[i] = 1;
        at[i] = size - 1 - i; /* in reverse order */
        sent[i] = 100 * rank + i;
    }
    MPI_Allgatherv(&rank, 1, MPI_INT, ranks, counts, at, MPI_INT, MPI_COMM_WORLD);
    check(ranks, size - 1, -1, size);

    MPI_Alltoall(sent, 1, MPI_INT, ranks, 1, MPI_INT, MPI_COMM_WORLD); /* rank i sends 100 i + rank */
    check(ranks, rank, 100, size);
    MPI_Alltoallv(sent, counts, at, MPI_INT, ranks, counts, at, MPI_INT, MPI_COMM_WORLD);
    check(ranks, 100 * (size - 1) + (size - 1 - rank), -100, size);

    MPI_Reduce_scatter(sent, ranks, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check(ranks, 100 * size * (size - 1) / 2 + size * rank, 0, 1);

    MPI_Datatype types[MOST];
    for (int i = 0; i < size; i++) {
        types[i] = MPI_INT;
        at[i] = (size - 1 - i) * (int)sizeof(int);
    }
    MPI_Alltoallw(sent, counts, at, types, ranks, counts, at, types, MPI_COMM_WORLD);
    check(ranks, 100 * (size - 1) + (size - 1 - rank), -100, size);
    MPI_Reduce_scatter_block(sent, ranks, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check(ranks, 100 * size * (size - 1) / 2 + size * rank, 0, 1);

    MPI_Barrier(same);
    MPI_Bcast(&total, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (size > 1) {
        MPI_Barrier(part);
        MPI_Allreduce(MPI_IN_PLACE, &total, 1, MPI_INT, MPI_MAX, part);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 3 || size > MOST)
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Comm same, part;
    MPI_Comm_dup(MPI_COMM_WORLD, &same);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0, 0, &part);
    for (int i = 0; i < atoi(argv[1]); i++)
        one_round(same, part);
    printf("bad=%d\n", bad);
    fflush(stdout);
    if (rank == 0) {
        if (!strcmp(argv[2], "exit"))
            exit(5);
        if (!strcmp(argv[2], "_exit"))
            _exit(5);
        if (!strcmp(argv[2], "abort"))
            abort();
        if (!strcmp(argv[2], "MPI_Abort"))
            MPI_Abort(MPI_COMM_WORLD, 5);
        if (!strcmp(argv[2], "kill"))
            raise(SIGKILL);
        if (!strcmp(argv[2], "fork")) {
            pid_t child = fork();
            if (child == 0) {
                MPI_Barrier(MPI_COMM_SELF);
                _exit(0);
            }
            waitpid(child, NULL, 0);
        }
    }
    MPI_Finalize();
    return bad != 0;
}

/* Nonblocking and persistent collectives: not counted, but the calls that complete them wait. Each between two barriers;
 * rank 0 prints a name and the nanoseconds around it, as blocking.c does. */
#include <mpi.h>
#include <stdio.h>
#include <time.h>

static int rank;

static long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1000000000 * now.tv_sec + now.tv_nsec;
}

#define STEP(NAME, BEGIN)                                   \
    do {                                                    \
        MPI_Request request;                                \
        MPI_Barrier(MPI_COMM_WORLD);                        \
        long begin = now_ns();                              \
        BEGIN;                                              \
        MPI_Wait(&request, MPI_STATUS_IGNORE);              \
        long took = now_ns() - begin;                       \
        MPI_Barrier(MPI_COMM_WORLD);                        \
        if (rank == 0)                                      \
            printf("%s %ld\n", NAME, took);                 \
    } while (0)

int main(int argc, char **argv)
{
    int one = 1, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    STEP("Ibarrier", MPI_Ibarrier(MPI_COMM_WORLD, &request));
    STEP("Iallreduce", MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request));
#if MPI_VERSION >= 4
    MPI_Request request;
    MPI_Allreduce_init(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (int i = 0; i < 2; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        long begin = now_ns();
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        long took = now_ns() - begin;
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            printf("Allreduce_init %ld\n", took);
    }
    MPI_Request_free(&request);
#endif
    MPI_Finalize();
    return 0;
}

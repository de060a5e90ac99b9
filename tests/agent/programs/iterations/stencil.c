/* One-dimensional Jacobi solver: stencil FORM ITERATIONS MICROSECONDS
 *
 * Each iteration computes for MICROSECONDS, exchanges halos with the neighbours and tests convergence, without a blocking
 * collective of all ranks. FORM: iallreduce (Isend, Irecv, Waitall, Iallreduce, Wait), only-iallreduce (Iallreduce,
 * Waitall), fence (Put between two Win_fence), persistent (Startall, Waitall), neighbours (Neighbor_alltoall). Ends with
 * "iterations N". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CELLS 64

static double old[CELLS + 2], new[CELLS + 2];
static int rank, size, left, right;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void work(double seconds)
{
    for (double end = now() + seconds; now() < end;)
        for (int i = 1; i <= CELLS; i++)
            new[i] = 0.5 * (old[i - 1] + old[i + 1]);
    memcpy(old + 1, new + 1, CELLS * sizeof(double));
}

static void halo_by_messages(void)
{
    MPI_Request requests[4];
    MPI_Irecv(&old[0], 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&old[CELLS + 1], 1, MPI_DOUBLE, right, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(&old[1], 1, MPI_DOUBLE, left, 2, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(&old[CELLS], 1, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

static void residual(void)
{
    double mine = old[1], all;
    MPI_Request request;
    MPI_Iallreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Waitall(1, &request, MPI_STATUSES_IGNORE);
}

static void by_fence(int iterations, double seconds)
{
    MPI_Win window;
    MPI_Win_create(old, sizeof old, sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < iterations; i++) {
        work(seconds);
        MPI_Put(&old[1], 1, MPI_DOUBLE, left, CELLS + 1, 1, MPI_DOUBLE, window);
        MPI_Put(&old[CELLS], 1, MPI_DOUBLE, right, 0, 1, MPI_DOUBLE, window);
        MPI_Win_fence(0, window);
    }
    MPI_Win_free(&window);
}

static void by_persistent_requests(int iterations, double seconds)
{
    MPI_Request requests[4];
    MPI_Recv_init(&old[0], 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(&old[CELLS + 1], 1, MPI_DOUBLE, right, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Send_init(&old[1], 1, MPI_DOUBLE, left, 2, MPI_COMM_WORLD, &requests[2]);
    MPI_Send_init(&old[CELLS], 1, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &requests[3]);
    for (int i = 0; i < iterations; i++) {
        work(seconds);
        MPI_Startall(4, requests);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    }
}

static void by_neighbours(int iterations, double seconds)
{
    MPI_Comm line;
    int periodic = 1;
    double out[2], in[2];
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &line);
    for (int i = 0; i < iterations; i++) {
        work(seconds);
        out[0] = old[1], out[1] = old[CELLS];
        MPI_Neighbor_alltoall(out, 1, MPI_DOUBLE, in, 1, MPI_DOUBLE, line);
        old[0] = in[0], old[CELLS + 1] = in[1];
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const char *form = argv[1];
    int iterations = atoi(argv[2]);
    double seconds = 1e-6 * atof(argv[3]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    left = (rank + size - 1) % size, right = (rank + 1) % size;
    MPI_Barrier(MPI_COMM_WORLD);
    if (!strcmp(form, "fence"))
        by_fence(iterations, seconds);
    else if (!strcmp(form, "persistent"))
        by_persistent_requests(iterations, seconds);
    else if (!strcmp(form, "neighbours"))
        by_neighbours(iterations, seconds);
    else
        for (int i = 0; i < iterations; i++) {
            work(seconds);
            if (strcmp(form, "only-iallreduce"))
                halo_by_messages();
            residual();
        }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("iterations %d\n", iterations);
    MPI_Finalize();
    return 0;
}

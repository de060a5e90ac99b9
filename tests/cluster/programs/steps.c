/* steps SECONDS MICROSECONDS HALO BYTES [STEPS] - a program in steps, until so many seconds have passed on rank 0, or
 * so many steps are done: a run of fewer steps is other work. In each, a rank sleeps for its work, exchanges HALO bytes
 * with the ranks before and after it, and all reduce BYTES bytes. */
#include "control.h"
#include <time.h>

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + 1e-9 * at.tv_nsec;
}

int main(int argc, char **argv)
{
    int rank, size, halo, bytes, go_on = 1;
    if (argc < 5 || argc > 6)
        return 2;
    long steps = argc > 5 ? atol(argv[5]) : 0, done = 0;
    double seconds = atof(argv[1]), microseconds = atof(argv[2]);
    halo = atoi(argv[3]);
    bytes = atoi(argv[4]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    open_control(size);
    char *out = calloc(1, halo + 1), *in = calloc(1, halo + 1);
    int count = bytes / (int)sizeof(int) + 1;
    int *mine = calloc(count, sizeof(int)), *all = calloc(count, sizeof(int));
    int before = (rank + size - 1) % size, after = (rank + 1) % size;
    double began = now();
    while (go_on) {
        work(rank, microseconds);
        if (halo) {
            MPI_Sendrecv(out, halo, MPI_CHAR, after, 0, in, halo, MPI_CHAR, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Sendrecv(out, halo, MPI_CHAR, before, 1, in, halo, MPI_CHAR, after, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        done++;
        mine[0] = rank == 0 && (steps ? done >= steps : now() - began >= seconds);
        MPI_Allreduce(mine, all, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        go_on = !all[0];
    }
    MPI_Finalize();
    return 0;
}

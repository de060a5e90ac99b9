#include <mpi.h>
#include <stdio.h>
static int twice(int *n) { return *n *= 2; }
int main(int argc, char **argv) {
    int rank, n = 3, m = 1;
    double values[64] = {0}, sum[64];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 4; i++) {
        n = n + rank;
        MPI_Bcast(&n, 1, MPI_INT, 0, MPI_COMM_WORLD);
        MPI_Allreduce(values, sum, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Bcast(values, twice(&m), MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (MPI_Barrier(MPI_COMM_WORLD) != MPI_SUCCESS) return 1;
    printf("%d %d %d\n", rank, n, m);
    MPI_Finalize();
    return 0;
}

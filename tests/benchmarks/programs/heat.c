/* A stencil on a square: `heat SIZE STEPS`, and whatever words a user adds. */
#include <mpi.h>
#include <stdlib.h>

int main(int count, char **words)
{
    MPI_Init(&count, &words);
    const long size = atol(words[1]), steps = atol(words[2]);
    double *now = malloc(sizeof(double) * size * size), *next = malloc(sizeof(double) * size * size);
    for (long i = 0; i < size * size; i++)
        now[i] = next[i] = i % 7;
    for (long step = 0; step < steps; step++) {
        double sum = 0, total;
        for (long i = 1; i < size - 1; i++)
            for (long j = 1; j < size - 1; j++) {
                const double *at = now + i * size + j;
                next[i * size + j] = 0.25 * (at[-size] + at[size] + at[-1] + at[1]);
                sum += next[i * size + j];
            }
        double *const last = now;
        now = next;
        next = last;
        MPI_Allreduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}

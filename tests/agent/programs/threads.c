/* MPI_THREAD_MULTIPLE: threads THREADS CALLS - each thread makes that many Allreduces on its own duplicate of the world.
 * Prints the number of calls, or "unsupported". */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static int calls;

static void *work(void *comm)
{
    for (int i = 0; i < calls; i++) {
        int one = 1, sum;
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, *(MPI_Comm *)comm);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int provided, threads = argc == 3 ? atoi(argv[1]) : 0;
    pthread_t ids[64];
    MPI_Comm comms[64];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    calls = provided == MPI_THREAD_MULTIPLE ? atoi(argv[2]) : 0;
    for (int i = 0; i < threads; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (int i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, work, &comms[i]);
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    if (provided == MPI_THREAD_MULTIPLE)
        printf("%d\n", threads * calls);
    else
        printf("unsupported\n");
    MPI_Finalize();
    return 0;
}

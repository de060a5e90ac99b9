/* Unusual uses of MPI: life MODE - prints "done" at the end of each rank.
 *
 * never    MPI is linked and not used
 * late     MPI is initialized, used and finalized by a thread other than the first: 4 barriers
 * return   main returns and MPI is never finalized: 4 barriers */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void barriers(void)
{
    for (int i = 0; i < 4; i++)
        MPI_Barrier(MPI_COMM_WORLD);
}

static void *use(void *unused)
{
    int provided;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    barriers();
    MPI_Finalize();
    return unused;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    if (!strcmp(argv[1], "late")) {
        pthread_t thread;
        pthread_create(&thread, NULL, use, NULL);
        pthread_join(thread, NULL);
    } else if (strcmp(argv[1], "never") != 0) {
        MPI_Init(&argc, &argv);
        barriers();
    }
    puts("done");
    return 0;
}

/* paced BARRIERS MICROSECONDS PROGRESS - that many barriers of the world, with a pause before each. Rank 0 writes the
 * number of those that have returned to the file PROGRESS. $PACED_MICROSECONDS is a longer pause that no word tells of.
 * With $PACED_UNTIL they are Allreduces, and end when there is a file of this name. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, barriers = argc == 4 ? atoi(argv[1]) : 0;
    const char *longer = getenv("PACED_MICROSECONDS"), *until = getenv("PACED_UNTIL");
    useconds_t pause = argc == 4 ? (useconds_t)atoi(longer ? longer : argv[2]) : 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int file = open(argv[3], O_WRONLY | O_CREAT, 0600);
    for (int i = 1; i <= barriers; i++) {
        char line[16];
        usleep(pause);
        int seen = until && access(until, F_OK) == 0, over = 0;
        if (until)
            MPI_Allreduce(&seen, &over, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        else
            MPI_Barrier(MPI_COMM_WORLD);
        if (over)
            break;
        int length = snprintf(line, sizeof line, "%8d\n", i);
        if (rank == 0 && pwrite(file, line, (size_t)length, 0) != length)
            return 1;
    }
    MPI_Finalize();
    return 0;
}

/* A halo exchange of two neighbours: halo FORM ITERATIONS MICROSECONDS
 *
 * FORM: messages (Isend, Irecv, Waitall), or allreduce (the same, then an Allreduce of all ranks), or rare (that in each
 * RARE-th iteration). Each iteration works so long; rank 1 works $HALO_FACTOR times as long from $HALO_AFTER iterations
 * on, and then writes the time in Unix seconds to the file $HALO_BEGAN. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RARE 20

static double now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void exchange(int left, int right)
{
    double out[2] = {1, 2}, in[2];
    MPI_Request requests[4];
    MPI_Irecv(&in[0], 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&in[1], 1, MPI_DOUBLE, right, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(&out[0], 1, MPI_DOUBLE, left, 2, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(&out[1], 1, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

static void note_begin(const char *path)
{
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file)
        return;
    fprintf(file, "%.3f\n", now(CLOCK_REALTIME));
    fclose(file);
}

int main(int argc, char **argv)
{
    int rank, size;
    double mine = 1, all;
    const char *after = getenv("HALO_AFTER"), *factor = getenv("HALO_FACTOR");
    if (argc != 4)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < atoi(argv[2]); i++) {
        double seconds = 1e-6 * atof(argv[3]);
        if (rank == 1 && after && factor && i >= atoi(after)) {
            seconds *= atof(factor);
            if (i == atoi(after))
                note_begin(getenv("HALO_BEGAN"));
        }
        struct timespec pause = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
        nanosleep(&pause, NULL); /* of work that other programs on the machine do not lengthen */
        exchange((rank + size - 1) % size, (rank + 1) % size);
        if (!strcmp(argv[1], "allreduce") || (!strcmp(argv[1], "rare") && i % RARE == 0))
            MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    return MPI_Finalize();
}

/* What takes a rank's core away: detours SECONDS STEP_MICROSECONDS
 *
 * Each rank works by the clock in steps that end with an Allreduce, and notes gaps of 50 us and more between two looks at
 * the clock, which do not count as work. Prints "RANK AT LENGTH" of each, in seconds from the begin, and "step SECONDS",
 * the mean length of a step. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MIN_GAP 50e-6
#define MAX_GAPS (1 << 20)

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int argc, char **argv)
{
    int rank, goes_on = 1, steps = 0, gaps = 0;
    double (*gap)[2] = malloc(MAX_GAPS * sizeof *gap);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double seconds = atof(argv[1]), step = 1e-6 * atof(argv[2]);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now(), last = begin;
    for (; goes_on; steps++) {
        last = now();
        for (double worked = 0; worked < step;) {
            double time = now(), length = time - last;
            if (length < MIN_GAP)
                worked += length;
            else if (gaps < MAX_GAPS) {
                gap[gaps][0] = last - begin;
                gap[gaps++][1] = length;
            }
            last = time;
        }
        int wants = last - begin < seconds;
        MPI_Allreduce(&wants, &goes_on, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    }
    double mean = (now() - begin) / steps;
    for (int i = 0; i < gaps; i++)
        printf("%d %.6f %.6f\n", rank, gap[i][0], gap[i][1]);
    if (rank == 0)
        printf("step %.9f\n", mean);
    MPI_Finalize();
    return 0;
}

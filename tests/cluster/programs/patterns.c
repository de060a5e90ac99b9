/* patterns PATTERN STEPS MICROSECONDS - a program of so many steps, in each of which a rank sleeps for its work, and
 * waits for the others in one of the ways in which programs do. */
#include "control.h"
#include <string.h>

enum { HALO = 1000, TASK = 1, END = 2 };

static int rank, size;
static double unit;
static unsigned seed;

static void reduce(MPI_Comm comm)
{
    double mine = rank, all;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, comm);
}

static void exchange(void)
{
    static char out[HALO], in[HALO];
    int before = (rank + size - 1) % size, after = (rank + 1) % size;
    MPI_Sendrecv(out, HALO, MPI_CHAR, after, 0, in, HALO, MPI_CHAR, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Reductions over the rows and the columns of a grid with two columns; none over all ranks. */
static void grid(long steps)
{
    MPI_Comm row, column;
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &row);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &column);
    while (steps--) {
        work(rank, unit);
        reduce(row);
        reduce(column);
    }
}

/* Rank 0 deals out tasks, the others ask for them. */
static void tasks(long steps)
{
    int task = 0;
    MPI_Status status;
    if (rank) {
        for (;;) {
            MPI_Send(&task, 1, MPI_INT, 0, TASK, MPI_COMM_WORLD);
            MPI_Recv(&task, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            if (status.MPI_TAG == END)
                return;
            work(rank, unit);
        }
    }
    for (long left = steps * (size - 1) + size - 1; left > 0; left--) {
        MPI_Recv(&task, 1, MPI_INT, MPI_ANY_SOURCE, TASK, MPI_COMM_WORLD, &status);
        MPI_Send(&task, 1, MPI_INT, status.MPI_SOURCE, left >= size ? TASK : END, MPI_COMM_WORLD);
    }
}

/* One-sided: each rank writes to the next one between two fences. */
static void fences(long steps)
{
    static char out[HALO], in[HALO];
    MPI_Win window;
    MPI_Win_create(in, HALO, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_fence(0, window);
    while (steps--) {
        work(rank, unit);
        MPI_Put(out, HALO, MPI_CHAR, (rank + 1) % size, 0, HALO, MPI_CHAR, window);
        MPI_Win_fence(0, window);
    }
    MPI_Win_free(&window);
}

/* Ranks that have up to 15 % less to do than others, always the same ones. */
static void uneven(long steps)
{
    while (steps--) {
        work(rank, unit * (1 - 0.05 * (rank % 4)));
        exchange();
        reduce(MPI_COMM_WORLD);
    }
}

/* A long phase, then short ones, and output by rank 0 now and then. */
static void phases(long steps)
{
    for (long step = 0; step < steps; step++) {
        work(rank, unit / 2);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int inner = 0; inner < 5; inner++) {
            work(rank, unit / 10);
            exchange();
            reduce(MPI_COMM_WORLD);
        }
        if (step % 20 == 19) {
            if (rank == 0)
                usleep(2 * unit);
            MPI_Bcast(&step, 1, MPI_LONG, 0, MPI_COMM_WORLD);
        }
    }
}

/* Work that differs by up to a fifth from step to step and from rank to rank, by chance. */
static void noisy(long steps)
{
    while (steps--) {
        work(rank, unit * (0.8 + 0.4 * (rand_r(&seed) / (double)RAND_MAX)));
        exchange();
        reduce(MPI_COMM_WORLD);
    }
}

/* Ever fewer inner iterations in a step. */
static void converging(long steps)
{
    for (long step = 0; step < steps; step++) {
        for (long inner = 0; inner < 3 + 9 * (steps - step) / steps; inner++) {
            work(rank, unit / 7);
            exchange();
            reduce(MPI_COMM_WORLD);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* Messages to both neighbours and a reduction that are under way while a rank works. */
static void overlapped(long steps)
{
    static char out[HALO], in[2][HALO];
    double mine = rank, all;
    int before = (rank + size - 1) % size, after = (rank + 1) % size;
    while (steps--) {
        MPI_Request requests[5];
        MPI_Status statuses[5];
        MPI_Irecv(in[0], HALO, MPI_CHAR, before, 0, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(in[1], HALO, MPI_CHAR, after, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Isend(out, HALO, MPI_CHAR, after, 0, MPI_COMM_WORLD, &requests[2]);
        MPI_Isend(out, HALO, MPI_CHAR, before, 1, MPI_COMM_WORLD, &requests[3]);
        MPI_Iallreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[4]);
        work(rank, unit);
        MPI_Waitall(5, requests, statuses);
    }
}

/* Rank 0 gathers what the others have, works on it by itself, and tells them. */
static void gathered(long steps)
{
    double mine = rank, *all = calloc(size, sizeof(double));
    while (steps--) {
        work(rank, 0.8 * unit);
        MPI_Gather(&mine, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        if (rank == 0)
            work(rank, 0.2 * unit);
        MPI_Bcast(all, size, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    }
    free(all);
}

/* Messages around a ring, each sent on when it has come: a rank waits for the one before it only. */
static void pipeline(long steps)
{
    static char part[HALO];
    while (steps--) {
        if (rank)
            MPI_Recv(part, HALO, MPI_CHAR, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        work(rank, unit);
        if (rank + 1 < size)
            MPI_Ssend(part, HALO, MPI_CHAR, rank + 1, 0, MPI_COMM_WORLD);
    }
}

static const struct {
    const char *name;
    void (*run)(long);
} patterns[] = {{"grid", grid},         {"tasks", tasks},           {"fences", fences},
                {"uneven", uneven},     {"phases", phases},         {"noisy", noisy},
                {"converging", converging}, {"overlapped", overlapped}, {"gathered", gathered},
                {"pipeline", pipeline}};

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    open_control(size);
    unit = atof(argv[3]);
    seed = rank + 1;
    for (unsigned index = 0; index < sizeof patterns / sizeof *patterns; index++)
        if (!strcmp(argv[1], patterns[index].name))
            patterns[index].run(atol(argv[2]));
    MPI_Finalize();
    return 0;
}

/* A master that deals out tasks to workers which ask for them: tasks FORM TASKS MICROSECONDS
 *
 * FORM: probe (the master waits in MPI_Probe), poll (it polls by MPI_Iprobe, and workers by MPI_Test), any (it has a receive
 * for each worker and takes what comes by MPI_Waitany). Tasks take 0.5 to 1.5 times MICROSECONDS. Ends with "iterations N",
 * the number of tasks. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void deal(const char *form, int tasks, int workers)
{
    double *results = calloc((size_t)workers, sizeof(double));
    MPI_Request *requests = malloc((size_t)workers * sizeof(MPI_Request));
    int dealt = 0, running = workers, task;
    if (!strcmp(form, "any"))
        for (int i = 0; i < workers; i++)
            MPI_Irecv(&results[i], 1, MPI_DOUBLE, i + 1, 1, MPI_COMM_WORLD, &requests[i]);
    while (running > 0) {
        MPI_Status status;
        int worker = 0, found = 0;
        if (!strcmp(form, "any")) {
            MPI_Waitany(workers, requests, &worker, &status);
        } else {
            if (!strcmp(form, "probe"))
                MPI_Probe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &status);
            else
                while (!found)
                    MPI_Iprobe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &found, &status);
            worker = status.MPI_SOURCE - 1;
            MPI_Recv(&results[worker], 1, MPI_DOUBLE, status.MPI_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        task = dealt < tasks ? dealt++ : -1;
        running -= task < 0;
        MPI_Send(&task, 1, MPI_INT, worker + 1, 2, MPI_COMM_WORLD);
        if (task >= 0 && !strcmp(form, "any"))
            MPI_Irecv(&results[worker], 1, MPI_DOUBLE, worker + 1, 1, MPI_COMM_WORLD, &requests[worker]);
    }
    free(results);
    free(requests);
}

static void work(const char *form, double seconds, unsigned seed)
{
    for (double result = 0;;) {
        int task, done = 0;
        MPI_Send(&result, 1, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD);
        if (!strcmp(form, "poll")) {
            MPI_Request request;
            MPI_Irecv(&task, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, &request);
            while (!done)
                MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&task, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        if (task < 0)
            return;
        for (double end = now() + seconds * (0.5 + (double)rand_r(&seed) / RAND_MAX); now() < end;)
            result += 1e-9;
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    int rank, size, tasks = atoi(argv[2]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0)
        deal(argv[1], tasks, size - 1);
    else
        work(argv[1], 1e-6 * atof(argv[3]), (unsigned)rank);
    if (rank == 0)
        printf("iterations %d\n", tasks);
    MPI_Finalize();
    return 0;
}

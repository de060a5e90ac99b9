/* The overhead of interception per call on one rank: paired PAIRS CALLS SEED [MILLISECONDS]
 *
 * Compares blocks of CALLS calls of MPI_X with blocks of PMPI_X, which is not intercepted, in random order. Prints one
 * line per function: its name, the median over PAIRS pairs of the added nanoseconds per call, the quartiles, and the
 * median with PMPI_X in both blocks. With MILLISECONDS makes a call of each kind first and waits so long. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef int barrier_function(MPI_Comm);
typedef int wait_function(MPI_Request *, MPI_Status *);
typedef int send_function(const void *, int, MPI_Datatype, int, int, MPI_Comm);
typedef int isend_function(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
typedef int bcast_function(void *, int, MPI_Datatype, int, MPI_Comm);
typedef int reduce_function(const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm);
typedef int allreduce_function(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);

static double in = 1, out;
static int calls;

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

/* External linkage: callgrind counts inside these functions by name. */
__attribute__((noinline)) double barriers(int through)
{
    barrier_function *volatile function = through ? MPI_Barrier : PMPI_Barrier;
    double start = now_ns();
    for (int i = 0; i < calls; i++)
        function(MPI_COMM_WORLD);
    return (now_ns() - start) / calls;
}

__attribute__((noinline)) double allreduces(int through)
{
    allreduce_function *volatile function = through ? MPI_Allreduce : PMPI_Allreduce;
    double start = now_ns();
    for (int i = 0; i < calls; i++)
        function(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return (now_ns() - start) / calls;
}

/* On a null request: the overhead of a blocking call without a record. */
__attribute__((noinline)) double waits(int through)
{
    wait_function *volatile function = through ? MPI_Wait : PMPI_Wait;
    MPI_Request request = MPI_REQUEST_NULL;
    double start = now_ns();
    for (int i = 0; i < calls; i++)
        function(&request, MPI_STATUS_IGNORE);
    return (now_ns() - start) / calls;
}

/* To nobody: the overhead of a call that sends, blocking and not. */
__attribute__((noinline)) double sends(int through)
{
    send_function *volatile function = through ? MPI_Send : PMPI_Send;
    double start = now_ns();
    for (int i = 0; i < calls; i++)
        function(&in, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    return (now_ns() - start) / calls;
}

__attribute__((noinline)) double isends(int through)
{
    isend_function *volatile function = through ? MPI_Isend : PMPI_Isend;
    double start = now_ns();
    for (int i = 0; i < calls; i++) {
        MPI_Request request;
        function(&in, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &request);
        PMPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    return (now_ns() - start) / calls;
}

/* Alone it synchronizes nobody. */
__attribute__((noinline)) double bcasts(int through)
{
    bcast_function *volatile function = through ? MPI_Bcast : PMPI_Bcast;
    double start = now_ns();
    for (int i = 0; i < calls; i++)
        function(&in, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return (now_ns() - start) / calls;
}

/* Of both calls together, which are one record. */
__attribute__((noinline)) double reduces(int through)
{
    reduce_function *volatile reduce = through ? MPI_Reduce : PMPI_Reduce;
    bcast_function *volatile bcast = through ? MPI_Bcast : PMPI_Bcast;
    double start = now_ns();
    for (int i = 0; i < calls; i++) {
        reduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        bcast(&out, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    }
    return (now_ns() - start) / calls;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void compare(const char *name, double (*block)(int), int pairs)
{
    double *added = malloc(sizeof(double) * (size_t)pairs), *control = malloc(sizeof(double) * (size_t)pairs);
    for (int i = 0; i < pairs; i++) {
        int first = rand() & 1;
        double a = block(first), b = block(!first);
        added[i] = first ? a - b : b - a;
        a = block(0), b = block(0);
        control[i] = rand() & 1 ? a - b : b - a;
    }
    qsort(added, (size_t)pairs, sizeof(double), ascending);
    qsort(control, (size_t)pairs, sizeof(double), ascending);
    printf("%s %.2f %.2f %.2f %.2f\n", name, added[pairs / 2], added[pairs / 4], added[3 * pairs / 4],
           control[pairs / 2]);
    free(added);
    free(control);
}

int main(int argc, char **argv)
{
    if (argc != 4 && argc != 5)
        return 2;
    int pairs = atoi(argv[1]);
    MPI_Init(&argc, &argv);
    if (argc == 5) {
        calls = 1;
        waits(1), sends(1), isends(1);
        usleep(1000 * (useconds_t)atoi(argv[4]));
    }
    calls = atoi(argv[2]);
    srand((unsigned)atoi(argv[3]));
    compare("Barrier", barriers, pairs);
    compare("Allreduce", allreduces, pairs);
    compare("Wait", waits, pairs);
    compare("Send", sends, pairs);
    compare("Isend", isends, pairs);
    compare("Bcast", bcasts, pairs);
    compare("Pair", reduces, pairs);
    MPI_Finalize();
    return 0;
}

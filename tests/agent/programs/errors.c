/* A program that handles errors of MPI itself: calls with an invalid datatype, then one valid message to itself and a
 * Barrier. Then leaves a call by longjmp() from an error handler, before another Barrier. Prints the number of calls
 * that failed. */
#include <mpi.h>
#include <setjmp.h>
#include <stdio.h>

static jmp_buf back;

static void leave(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    (void)code;
    longjmp(back, 1);
}

int main(int argc, char **argv)
{
    int rank, one = 1, other = 0, failed = 0;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    failed += MPI_Send(&one, 1, MPI_DATATYPE_NULL, rank, 0, MPI_COMM_WORLD) != MPI_SUCCESS;
    failed += MPI_Isend(&one, 1, MPI_DATATYPE_NULL, rank, 0, MPI_COMM_WORLD, &request) != MPI_SUCCESS;
    failed += MPI_Sendrecv(&one, 1, MPI_DATATYPE_NULL, rank, 0, &other, 1, MPI_INT, rank, 0, MPI_COMM_WORLD,
                           MPI_STATUS_IGNORE) != MPI_SUCCESS;
    failed += MPI_Ssend(&one, 1, MPI_DATATYPE_NULL, rank, 0, MPI_COMM_WORLD) != MPI_SUCCESS;
    MPI_Isend(&one, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, &request);
    MPI_Recv(&other, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(leave, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    if (setjmp(back) == 0)
        MPI_Bcast(&one, 1, MPI_INT, 99, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d\n", failed);
    MPI_Finalize();
    return 0;
}

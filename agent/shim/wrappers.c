/* The MPI functions the application calls: enter, forward, leave, return the result untouched. */
#include "narrow.h"
#include "recorder.h"
#include "resolve.h"

#define EXPORT __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)
#define FROM ((struct caller){CALLER, __builtin_dwarf_cfa()})
#define ERR_OTHER 15 /* there is no MPI to forward to; without the shim the program could not have come here */

#define TARGET(VARIABLE, NAME, INSTEAD) \
    static struct target VARIABLE = {.name = #NAME, .instead = INSTEAD, .wrapper = (const void *)NAME}
#define LIST(...) __VA_ARGS__

/* C_COLLECTIVE(name, ring_op, (parameters), arguments...), one argument being called comm */
#define C_COLLECTIVE(NAME, OP, PARAMETERS, ...)                 \
    EXPORT int NAME PARAMETERS                                  \
    {                                                           \
        TARGET(target, NAME, NULL);                             \
        int(*real) PARAMETERS = target_find(&target, CALLER);   \
        if (!real)                                              \
            return ERR_OTHER;                                   \
        uint64_t entered = recorder_enter();                    \
        int result = real(__VA_ARGS__);                         \
        recorder_leave(entered, OP, comm, result, FROM);        \
        return result;                                          \
    }

/* MPI_X_c: the same arguments as MPI_X, but counts of 64 bits */
#define LARGE_COLLECTIVE(NAME, OP, NARROW, PARAMETERS, ...)                                     \
    EXPORT int NAME##_c PARAMETERS                                                              \
    {                                                                                           \
        TARGET(target, NAME##_c, NULL);                                                         \
        TARGET(with_ints, NAME, NULL);                                                          \
        int(*real) PARAMETERS = target_find(&target, CALLER);                                   \
        void *fallback = real ? NULL : target_find(&with_ints, CALLER);                         \
        if (!real && !fallback)                                                                 \
            return ERR_OTHER;                                                                   \
        uint64_t entered = recorder_enter();                                                    \
        int result = real ? real(__VA_ARGS__) : NARROW(fallback, CALLER, __VA_ARGS__);          \
        recorder_leave(entered, OP, comm, result, FROM);                                        \
        return result;                                                                          \
    }

/* The same arguments as in C, each by reference, and one more for the result */
#define FORTRAN_COLLECTIVE(NAME, INSTEAD, OP, PARAMETERS, ...)                          \
    EXPORT void NAME(LIST PARAMETERS, word ierror)                                      \
    {                                                                                   \
        TARGET(target, NAME, INSTEAD);                                                  \
        void (*real)(LIST PARAMETERS, word) = target_find(&target, CALLER);             \
        if (!real) {                                                                    \
            fail(ierror);                                                               \
            return;                                                                     \
        }                                                                               \
        uint64_t entered = recorder_enter();                                            \
        real(__VA_ARGS__, ierror);                                                      \
        recorder_leave_fortran(entered, OP, (const int *)comm, (const int *)ierror, FROM); \
    }

/* What Fortran compilers make of MPI_X, and what the module mpi_f08 of Open MPI (f08) and MPICH (f08ts, with counts of
 * 64 bits f08ts_large) calls. A program can only call those its library has. */
#define FORTRAN_ALL(LOWER, UPPER, OP, PARAMETERS, ...)                                                   \
    FORTRAN_COLLECTIVE(mpi_##LOWER##_, NULL, OP, PARAMETERS, __VA_ARGS__)                                \
    FORTRAN_COLLECTIVE(mpi_##LOWER##__, "mpi_" #LOWER "_", OP, PARAMETERS, __VA_ARGS__)                  \
    FORTRAN_COLLECTIVE(MPI_##UPPER, "mpi_" #LOWER "_", OP, PARAMETERS, __VA_ARGS__)                      \
    FORTRAN_COLLECTIVE(mpi_##LOWER##_f08_, NULL, OP, PARAMETERS, __VA_ARGS__)                            \
    FORTRAN_COLLECTIVE(mpi_##LOWER##_f08ts_, NULL, OP, PARAMETERS, __VA_ARGS__)                          \
    FORTRAN_COLLECTIVE(mpi_##LOWER##_f08ts_large_, NULL, OP, PARAMETERS, __VA_ARGS__)

#define COLLECTIVE(NAME, LOWER, UPPER, NARROW, PARAMETERS, ...)                         \
    C_COLLECTIVE(MPI_##NAME, OP_##UPPER, PARAMETERS, __VA_ARGS__)                       \
    LARGE_COLLECTIVE(MPI_##NAME, OP_##UPPER, NARROW, PARAMETERS, __VA_ARGS__)           \
    FORTRAN_ALL(LOWER, UPPER, OP_##UPPER, PARAMETERS, __VA_ARGS__)

static void fail(word ierror)
{
    if (ierror)
        *(int *)ierror = ERR_OTHER;
}

C_COLLECTIVE(MPI_Barrier, OP_BARRIER, (word comm), comm)
FORTRAN_ALL(barrier, BARRIER, OP_BARRIER, (word comm), comm)

COLLECTIVE(Allreduce, allreduce, ALLREDUCE, narrow_allreduce,
           (word sendbuf, word recvbuf, word count, word datatype, word op, word comm),
           sendbuf, recvbuf, count, datatype, op, comm)

COLLECTIVE(Allgather, allgather, ALLGATHER, narrow_allgather,
           (word sendbuf, word sendcount, word sendtype, word recvbuf, word recvcount, word recvtype, word comm),
           sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm)

COLLECTIVE(Allgatherv, allgatherv, ALLGATHERV, narrow_allgatherv,
           (word sendbuf, word sendcount, word sendtype, word recvbuf, word recvcounts, word displs, word recvtype,
            word comm),
           sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm)

COLLECTIVE(Alltoall, alltoall, ALLTOALL, narrow_allgather,
           (word sendbuf, word sendcount, word sendtype, word recvbuf, word recvcount, word recvtype, word comm),
           sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm)

COLLECTIVE(Alltoallv, alltoallv, ALLTOALLV, narrow_alltoallv,
           (word sendbuf, word sendcounts, word sdispls, word sendtype, word recvbuf, word recvcounts, word rdispls,
            word recvtype, word comm),
           sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm)

/* The same, but the types are arrays as well, and displacements are in bytes. */
COLLECTIVE(Alltoallw, alltoallw, ALLTOALLW, narrow_alltoallv,
           (word sendbuf, word sendcounts, word sdispls, word sendtypes, word recvbuf, word recvcounts, word rdispls,
            word recvtypes, word comm),
           sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm)

COLLECTIVE(Reduce_scatter, reduce_scatter, REDUCE_SCATTER, narrow_reduce_scatter,
           (word sendbuf, word recvbuf, word recvcounts, word datatype, word op, word comm),
           sendbuf, recvbuf, recvcounts, datatype, op, comm)

COLLECTIVE(Reduce_scatter_block, reduce_scatter_block, REDUCE_SCATTER_BLOCK, narrow_allreduce,
           (word sendbuf, word recvbuf, word recvcount, word datatype, word op, word comm),
           sendbuf, recvbuf, recvcount, datatype, op, comm)

#define C_INITIALIZER(NAME, PARAMETERS, ...)                    \
    EXPORT int NAME PARAMETERS                                  \
    {                                                           \
        TARGET(target, NAME, NULL);                             \
        int(*real) PARAMETERS = target_find(&target, CALLER);   \
        if (!real)                                              \
            return ERR_OTHER;                                   \
        recorder_prepare();                                     \
        recorder_hide();                                        \
        int result = real(__VA_ARGS__);                         \
        recorder_show();                                        \
        if (result == 0)                                        \
            recorder_start(CALLER);                             \
        return result;                                          \
    }

#define FORTRAN_INITIALIZER(NAME, INSTEAD, PARAMETERS, ...)     \
    EXPORT void NAME PARAMETERS                                 \
    {                                                           \
        TARGET(target, NAME, INSTEAD);                          \
        void(*real) PARAMETERS = target_find(&target, CALLER);  \
        if (!real) {                                            \
            fail(ierror);                                       \
            return;                                             \
        }                                                       \
        recorder_prepare();                                     \
        recorder_hide();                                        \
        real(__VA_ARGS__);                                      \
        recorder_show();                                        \
        if (!ierror || *(const int *)ierror == 0)               \
            recorder_start(CALLER);                             \
    }

#define FORTRAN_INITIALIZERS(LOWER, UPPER, PARAMETERS, ...)                                     \
    FORTRAN_INITIALIZER(mpi_##LOWER##_, NULL, PARAMETERS, __VA_ARGS__)                          \
    FORTRAN_INITIALIZER(mpi_##LOWER##__, "mpi_" #LOWER "_", PARAMETERS, __VA_ARGS__)            \
    FORTRAN_INITIALIZER(MPI_##UPPER, "mpi_" #LOWER "_", PARAMETERS, __VA_ARGS__)                \
    FORTRAN_INITIALIZER(mpi_##LOWER##_f08_, NULL, PARAMETERS, __VA_ARGS__)

C_INITIALIZER(MPI_Init, (word argc, word argv), argc, argv)
C_INITIALIZER(MPI_Init_thread, (word argc, word argv, word required, word provided), argc, argv, required, provided)
FORTRAN_INITIALIZERS(init, INIT, (word ierror), ierror)
FORTRAN_INITIALIZERS(init_thread, INIT_THREAD, (word required, word provided, word ierror), required, provided, ierror)

/* Collectives that callbacks make inside MPI_Finalize come after the end of the recording, so they are not counted. */
EXPORT int MPI_Finalize(void)
{
    TARGET(target, MPI_Finalize, NULL);
    int (*real)(void) = target_find(&target, CALLER);
    if (!real)
        return ERR_OTHER;
    recorder_finish();
    recorder_hide();
    int result = real();
    recorder_show();
    return result;
}

#define FORTRAN_FINALIZER(NAME, INSTEAD)                        \
    EXPORT void NAME(word ierror)                               \
    {                                                           \
        TARGET(target, NAME, INSTEAD);                          \
        void (*real)(word) = target_find(&target, CALLER);      \
        if (!real) {                                            \
            fail(ierror);                                       \
            return;                                             \
        }                                                       \
        recorder_finish();                                      \
        recorder_hide();                                        \
        real(ierror);                                           \
        recorder_show();                                        \
    }

FORTRAN_FINALIZER(mpi_finalize_, NULL)
FORTRAN_FINALIZER(mpi_finalize__, "mpi_finalize_")
FORTRAN_FINALIZER(MPI_FINALIZE, "mpi_finalize_")
FORTRAN_FINALIZER(mpi_finalize_f08_, NULL)

/* The MPI functions the application calls: enter, forward, leave, return the result untouched. */
#include "narrow.h"
#include "recorder.h"
#include "resolve.h"

#define EXPORT __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)
#define FROM ((struct caller){CALLER, __builtin_dwarf_cfa()})
#define ERR_OTHER 15 /* there is no MPI to forward to; without the shim the program could not have come here */

#define TARGET(VARIABLE, NAME) static struct target VARIABLE = {.name = #NAME, .wrapper = (const void *)NAME}

/* COLLECTIVE(name, ring_op, (parameters), arguments...), one argument being called comm */
#define COLLECTIVE(NAME, OP, PARAMETERS, ...)                   \
    EXPORT int NAME PARAMETERS                                  \
    {                                                           \
        TARGET(target, NAME);                                   \
        int(*real) PARAMETERS = target_find(&target, CALLER);   \
        if (!real)                                              \
            return ERR_OTHER;                                   \
        uint64_t entered = recorder_enter();                    \
        int result = real(__VA_ARGS__);                         \
        recorder_leave(entered, OP, comm, result, FROM);      \
        return result;                                          \
    }

/* MPI_X, and MPI_X_c with the same arguments but counts of 64 bits */
#define COLLECTIVE_BOTH(NAME, OP, NARROW, PARAMETERS, ...)                                      \
    COLLECTIVE(NAME, OP, PARAMETERS, __VA_ARGS__)                                               \
    EXPORT int NAME##_c PARAMETERS                                                              \
    {                                                                                           \
        TARGET(target, NAME##_c);                                                               \
        TARGET(with_ints, NAME);                                                                \
        int(*real) PARAMETERS = target_find(&target, CALLER);                                   \
        void *fallback = real ? NULL : target_find(&with_ints, CALLER);                         \
        if (!real && !fallback)                                                                 \
            return ERR_OTHER;                                                                   \
        uint64_t entered = recorder_enter();                                                    \
        int result = real ? real(__VA_ARGS__) : NARROW(fallback, CALLER, __VA_ARGS__);          \
        recorder_leave(entered, OP, comm, result, FROM);                                      \
        return result;                                                                          \
    }

COLLECTIVE(MPI_Barrier, OP_BARRIER, (word comm), comm)

COLLECTIVE_BOTH(MPI_Allreduce, OP_ALLREDUCE, narrow_allreduce,
                (word sendbuf, word recvbuf, word count, word datatype, word op, word comm),
                sendbuf, recvbuf, count, datatype, op, comm)

COLLECTIVE_BOTH(MPI_Allgather, OP_ALLGATHER, narrow_allgather,
                (word sendbuf, word sendcount, word sendtype, word recvbuf, word recvcount, word recvtype, word comm),
                sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm)

COLLECTIVE_BOTH(MPI_Allgatherv, OP_ALLGATHERV, narrow_allgatherv,
                (word sendbuf, word sendcount, word sendtype, word recvbuf, word recvcounts, word displs,
                 word recvtype, word comm),
                sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm)

COLLECTIVE_BOTH(MPI_Alltoall, OP_ALLTOALL, narrow_allgather,
                (word sendbuf, word sendcount, word sendtype, word recvbuf, word recvcount, word recvtype, word comm),
                sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm)

COLLECTIVE_BOTH(MPI_Alltoallv, OP_ALLTOALLV, narrow_alltoallv,
                (word sendbuf, word sendcounts, word sdispls, word sendtype, word recvbuf, word recvcounts,
                 word rdispls, word recvtype, word comm),
                sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm)

COLLECTIVE_BOTH(MPI_Reduce_scatter, OP_REDUCE_SCATTER, narrow_reduce_scatter,
                (word sendbuf, word recvbuf, word recvcounts, word datatype, word op, word comm),
                sendbuf, recvbuf, recvcounts, datatype, op, comm)

#define INITIALIZER(NAME, PARAMETERS, ...)                      \
    EXPORT int NAME PARAMETERS                                  \
    {                                                           \
        TARGET(target, NAME);                                   \
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

INITIALIZER(MPI_Init, (word argc, word argv), argc, argv)
INITIALIZER(MPI_Init_thread, (word argc, word argv, word required, word provided), argc, argv, required, provided)

/* Collectives that callbacks make inside MPI_Finalize come after the end of the recording, so they are not counted. */
EXPORT int MPI_Finalize(void)
{
    TARGET(target, MPI_Finalize);
    int (*real)(void) = target_find(&target, CALLER);
    if (!real)
        return ERR_OTHER;
    recorder_finish();
    recorder_hide();
    int result = real();
    recorder_show();
    return result;
}

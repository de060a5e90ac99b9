#include "narrow.h"

#include <stdlib.h>

/* Copies 64-bit counts or displacements to ints; a null pointer remains null. False if a value does not fit. */
static bool narrow(const int64_t *values, int count, int *room, word *narrowed)
{
    *narrowed = (word)(values ? room : NULL);
    for (int i = 0; values && i < count; i++) {
        if (!narrow_fits((word)values[i]))
            return false;
        room[i] = (int)values[i];
    }
    return true;
}

/* Narrows `arrays` arrays of `count` values and replaces their pointers; returns ints to be freed, or NULL. */
static int *narrow_all(word *pointers[], int arrays, int count)
{
    int *room = malloc((size_t)arrays * (size_t)count * sizeof(int));
    for (int i = 0; room && i < arrays; i++)
        if (!narrow((const int64_t *)*pointers[i], count, room + (size_t)i * (size_t)count, pointers[i])) {
            free(room);
            return NULL;
        }
    return room;
}

static int query(const char *name, const void *caller, word comm)
{
    int value = 0;
    int (*function)(word, int *) = resolve_function(name, caller);
    return function && function(comm, &value) == 0 ? value : 0;
}

/* Length of count arrays for a communicator: for an intercommunicator the size of the remote group. */
static int peers(const void *caller, word comm)
{
    bool inter = query("PMPI_Comm_test_inter", caller, comm) != 0;
    return query(inter ? "PMPI_Comm_remote_size" : "PMPI_Comm_size", caller, comm);
}

int narrow_allgatherv(void *real, const void *caller, word sendbuf, word sendcount, word sendtype, word recvbuf,
                      word recvcounts, word displs, word recvtype, word comm)
{
    int (*function)(word, word, word, word, word, word, word, word) = real;
    int *room = NULL;
    if (narrow_in_place(sendbuf) || narrow_fits(sendcount))
        room = narrow_all((word *[]){&recvcounts, &displs}, 2, peers(caller, comm));
    if (!room)
        return ERR_COUNT;
    int result = function(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm);
    free(room);
    return result;
}

int narrow_alltoallv(void *real, const void *caller, word sendbuf, word sendcounts, word sdispls, word sendtype,
                     word recvbuf, word recvcounts, word rdispls, word recvtype, word comm)
{
    int (*function)(word, word, word, word, word, word, word, word, word) = real;
    int arrays = narrow_in_place(sendbuf) ? 2 : 4;
    int *room = narrow_all((word *[]){&recvcounts, &rdispls, &sendcounts, &sdispls}, arrays, peers(caller, comm));
    if (!room)
        return ERR_COUNT;
    int result = function(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm);
    free(room);
    return result;
}

int narrow_reduce_scatter(void *real, const void *caller, word sendbuf, word recvbuf, word recvcounts, word datatype,
                          word op, word comm)
{
    int (*function)(word, word, word, word, word, word) = real;
    int *room = narrow_all((word *[]){&recvcounts}, 1, query("PMPI_Comm_size", caller, comm));
    if (!room)
        return ERR_COUNT;
    int result = function(sendbuf, recvbuf, recvcounts, datatype, op, comm);
    free(room);
    return result;
}

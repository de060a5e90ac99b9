#include "world.h"

/* Open MPI's handle is the address of a variable; the MPI-5 ABI and the MPICH family (MPICH, Intel, MVAPICH, Cray)
 * define constants. MPICH's handles are ints, so the upper half of the word is undefined. */
static void find_handle(struct world *world, const void *caller)
{
    void *variable = resolve_data("ompi_mpi_comm_world", caller);
    if (variable) {
        world->handle = (word)variable;
        world->mask = ~(word)0;
        return;
    }
    int (*abi_version)(int *, int *) = resolve_function("MPI_Abi_get_version", caller);
    int major = 0, minor = 0;
    /* MPICH built with its own ABI has the function too, but returns -1. */
    bool standard = abi_version && abi_version(&major, &minor) == 0 && major > 0;
    world->handle = standard ? 0x101 : 0x44000000;
    world->mask = standard ? ~(word)0 : 0xffffffff;
}

static bool find_functions(struct world *world, const void *caller)
{
    world->comm_size = resolve_function("PMPI_Comm_size", caller);
    world->f2c = resolve_function("PMPI_Comm_f2c", caller);
    return world->comm_size != NULL;
}

bool world_find(struct world *world, const void *caller)
{
    int (*comm_rank)(word, int *) = resolve_function("PMPI_Comm_rank", caller);
    if (!find_functions(world, caller) || !comm_rank)
        return false;
    find_handle(world, caller);
    return comm_rank(world->handle, &world->rank) == 0 && world->comm_size(world->handle, &world->size) == 0;
}

bool world_find_in_session(struct world *world, const void *session, const void *caller)
{
    int (*make)(word, const char *, word *) = resolve_function("PMPI_Group_from_session_pset", caller);
    int (*group_rank)(word, int *) = resolve_function("PMPI_Group_rank", caller);
    int (*group_size)(word, int *) = resolve_function("PMPI_Group_size", caller);
    int (*group_free)(word *) = resolve_function("PMPI_Group_free", caller);
    if (!find_functions(world, caller) || !make || !group_rank || !group_size || !group_free)
        return false;
    find_handle(world, caller);
    bool narrow = world->mask == 0xffffffff;
    word group = 0, handle = narrow ? *(const uint32_t *)session : *(const word *)session;
    if (make(handle, "mpi://WORLD", &group) != 0)
        return false;
    bool found = group_rank(group, &world->rank) == 0 && group_size(group, &world->size) == 0;
    group_free(&group);
    return found;
}

/* Sessions without MPI_Init: sessions TIMES - opens that many sessions, one after the other. In each, a communicator of
 * all processes makes 3 barriers and an Allreduce, and one of this process alone 2 barriers, which do not count if there
 * are several processes. Prints bad=N, or "unsupported". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#if MPI_VERSION < 4 && (!defined OMPI_MAJOR_VERSION || OMPI_MAJOR_VERSION < 5) /* 5 has sessions and says it is 3.1 */
int main(void)
{
    return puts("unsupported") < 0;
}
#else
static MPI_Comm of(MPI_Session session, const char *set)
{
    MPI_Group group;
    MPI_Comm comm;
    MPI_Group_from_session_pset(session, set, &group);
    MPI_Comm_create_from_group(group, "barograph", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Group_free(&group);
    return comm;
}

int main(int argc, char **argv)
{
    int bad = 0;
    for (int i = 0; i < (argc == 2 ? atoi(argv[1]) : 0); i++) {
        MPI_Session session;
        int size, sum = 0, one = 1;
        if (MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session) != MPI_SUCCESS)
            return 3;
        MPI_Comm all = of(session, "mpi://WORLD"), alone = of(session, "mpi://SELF");
        MPI_Comm_size(all, &size);
        MPI_Barrier(all);
        MPI_Barrier(alone);
        MPI_Barrier(all);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, all);
        MPI_Barrier(alone);
        MPI_Barrier(all);
        bad += sum != size;
        MPI_Comm_free(&alone);
        MPI_Comm_free(&all);
        MPI_Session_finalize(&session);
    }
    printf("bad=%d\n", bad);
    return bad != 0;
}
#endif

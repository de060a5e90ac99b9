/* titled BARRIERS [WORD] - writes a title over its arguments and its environment, then so many barriers of the world. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

int main(int argc, char **argv)
{
    int barriers = argc > 1 ? atoi(argv[1]) : 0;
    MPI_Init(NULL, NULL);
    for (char **word = environ; *word; word++)
        memset(*word, 0, strlen(*word));
    for (int i = 1; i < argc; i++)
        memset(argv[i], 0, strlen(argv[i]));
    for (int i = 0; i < barriers; i++)
        MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Finalize();
}

/* A library between the shim and MPI: when MPI_Init begins, the sidecar of an earlier program has just ended. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

int MPI_Init(int *count, char ***words)
{
    rmdir(getenv("BAROGRAPH_RING_DIR"));
    return ((int (*)(int *, char ***))dlsym(RTLD_NEXT, "MPI_Init"))(count, words);
}

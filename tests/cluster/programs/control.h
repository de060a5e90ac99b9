/* Work that can be made slower from outside. $STEPS_CONTROL is a file of one double per rank, which others may write at
 * any time: the factor on this rank's work. It is no argument, because inputs of another content are other work. */
#include <fcntl.h>
#include <mpi.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile double *factors;

/* To be called after MPI_Init. */
static void open_control(int size)
{
    int file = open(getenv("STEPS_CONTROL"), O_RDONLY);
    factors = mmap(NULL, size * sizeof(double), PROT_READ, MAP_SHARED, file, 0);
    if (file < 0 || factors == MAP_FAILED)
        MPI_Abort(MPI_COMM_WORLD, 3);
}

/* Sleep for so long, times the factor of this rank. */
static void work(int rank, double microseconds)
{
    usleep((useconds_t)(microseconds * factors[rank]));
}

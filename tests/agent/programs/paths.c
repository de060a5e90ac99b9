/* One Allreduce in the source, called on many paths: paths ROUNDS
 *
 * A round makes 12 calls: through each of 2 callers from 3 places in main, 6; through a frame whose size changes
 * from call to call, 3; from one whose stack is realigned, 3. ROUNDS is 1 to 1000. */
#include <alloca.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline, noipa))

static int one = 1, sum;

APART static int reduce(void)
{
    int result = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return result + (sum < 1);
}

APART static int dot(void)
{
    return reduce() + sum;
}

APART static int norm(void)
{
    volatile char room[200];
    room[0] = 0;
    return reduce() + sum + room[0];
}

APART static int dynamic(size_t bytes)
{
    char *room = alloca(bytes);
    memset(room, (int)bytes, bytes);
    int result = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return result + room[bytes / 2];
}

APART static int aligned(void)
{
    _Alignas(128) volatile char room[128];
    room[0] = 0;
    return MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) + room[0];
}

APART static int shifted(size_t bytes)
{
    volatile char *room = alloca(bytes);
    room[0] = 0;
    return aligned() + room[0];
}

int main(int argc, char **argv)
{
    int rounds = argc == 2 ? atoi(argv[1]) : 0;
    volatile int sink = 0;
    MPI_Init(&argc, &argv);
    for (int i = 1; i <= rounds; i++) {
        sink += dot();
        sink += dot();
        sink += dot();
        sink += norm();
        sink += norm();
        sink += norm();
        for (size_t k = 1; k <= 3; k++)
            sink += dynamic(16 * (size_t)i * k);
        for (size_t k = 1; k <= 3; k++)
            sink += shifted(16 * (size_t)i * k);
    }
    MPI_Finalize();
    return 0;
}

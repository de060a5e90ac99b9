/* Executes a script of MPI calls: script FILE - on an even number of ranks.
 *
 * A line is an operation and numbers: `repeat ID MIN MAX` to `end`, a loop of so many passes, each time another number
 * from MIN to MAX; `work MICROSECONDS`; `call SITE KIND`, from one of SITES places in this program. All ranks draw the
 * same random numbers, so calls match. Prints "loop ID PASSES" for each loop of rank 0, and bad=N for what was received
 * and is wrong. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_LINES 256
#define LOOPS 8

enum kind { SENDRECV, HALO, POLLED, PERSISTENT, RANDOM, OWN_ALLREDUCE, BCAST, IALLREDUCE, FLUSH, BARRIER, KINDS };

static const char *const kinds[KINDS] = {"sendrecv", "halo", "polled", "persistent", "random", "own-allreduce", "bcast",
                                         "iallreduce", "flush", "barrier"};

struct line {
    char name[16];
    int number[3];
};

static struct line lines[MAX_LINES];
static int count, rank, size, bad;
static long passes[LOOPS];
static unsigned random_state = 1;
static MPI_Comm own; /* of this rank and no other */
static MPI_Request persistent[2];
static int mine, other, shared;
static MPI_Win window;

static int draw(int least, int most)
{
    random_state = random_state * 1664525u + 1013904223u;
    return least + (int)((random_state >> 8) % (unsigned)(most - least + 1));
}

static void expect(int value, int expected)
{
    bad += value != expected;
}

/* A rank away by so many, and the one from which as many come. */
static int to(int offset)
{
    return (rank + offset) % size;
}

static int from(int offset)
{
    return (rank + size - offset % size) % size;
}

/* One place from which MPI is called: the macro makes several of them. */
#define SITE(NUMBER)                                                                                            \
    __attribute__((noinline)) static void call_##NUMBER(enum kind kind)                                         \
    {                                                                                                           \
        MPI_Request requests[2];                                                                                \
        int one = 1, sum = 0, done = 0;                                                                         \
        mine = rank, other = -1;                                                                                \
        switch (kind) {                                                                                         \
        case SENDRECV:                                                                                          \
            MPI_Sendrecv(&mine, 1, MPI_INT, to(1), 1, &other, 1, MPI_INT, from(1), 1, MPI_COMM_WORLD,           \
                         MPI_STATUS_IGNORE);                                                                    \
            expect(other, from(1));                                                                             \
            break;                                                                                              \
        case HALO:                                                                                              \
        case POLLED:                                                                                            \
            MPI_Irecv(&other, 1, MPI_INT, from(1), 2, MPI_COMM_WORLD, &requests[0]);                            \
            MPI_Isend(&mine, 1, MPI_INT, to(1), 2, MPI_COMM_WORLD, &requests[1]);                               \
            if (kind == HALO)                                                                                   \
                MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);                                                  \
            else                                                                                                \
                while (!done)                                                                                   \
                    MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE);                                       \
            expect(other, from(1));                                                                             \
            break;                                                                                              \
        case PERSISTENT:                                                                                        \
            MPI_Startall(2, persistent);                                                                        \
            MPI_Waitall(2, persistent, MPI_STATUSES_IGNORE);                                                    \
            expect(other, from(1));                                                                             \
            break;                                                                                              \
        case RANDOM:                                                                                            \
            for (int i = draw(0, 4); i > 0; i--) {                                                              \
                int offset = draw(1, size);                                                                     \
                MPI_Sendrecv(&mine, 1, MPI_INT, to(offset), 3, &other, 1, MPI_INT, from(offset), 3,             \
                             MPI_COMM_WORLD, MPI_STATUS_IGNORE);                                                \
                expect(other, from(offset));                                                                    \
            }                                                                                                   \
            break;                                                                                              \
        case OWN_ALLREDUCE:                                                                                     \
            MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, own);                                                \
            expect(sum, 1);                                                                                     \
            break;                                                                                              \
        case BCAST:                                                                                             \
            other = rank == 0 ? 7 : 0;                                                                          \
            MPI_Bcast(&other, 1, MPI_INT, 0, MPI_COMM_WORLD);                                                   \
            expect(other, 7);                                                                                   \
            break;                                                                                              \
        case IALLREDUCE:                                                                                        \
            MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);                      \
            MPI_Wait(&requests[0], MPI_STATUS_IGNORE);                                                          \
            expect(sum, size);                                                                                  \
            break;                                                                                              \
        case FLUSH:                                                                                             \
            MPI_Put(&mine, 1, MPI_INT, to(1), 0, 1, MPI_INT, window);                                           \
            MPI_Win_flush(to(1), window);                                                                       \
            break;                                                                                              \
        default:                                                                                                \
            MPI_Barrier(MPI_COMM_WORLD);                                                                        \
        }                                                                                                       \
    }

SITE(0)
SITE(1)
SITE(2)
SITE(3)
SITE(4)
SITE(5)

static void (*const sites[])(enum kind) = {call_0, call_1, call_2, call_3, call_4, call_5};
#define SITES ((int)(sizeof sites / sizeof *sites))

static void work(int microseconds)
{
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begin.tv_sec) * 1e6 + (double)(now.tv_nsec - begin.tv_nsec) * 1e-3 < microseconds);
}

/* Executes from a line to the end of its loop; returns the line after that. */
static int execute(int at)
{
    for (; at < count && strcmp(lines[at].name, "end"); at++) {
        struct line *line = &lines[at];
        if (!strcmp(line->name, "repeat")) {
            int times = draw(line->number[1], line->number[2]), after = at;
            for (int i = 0; i < times; i++, passes[line->number[0] % LOOPS]++)
                after = execute(at + 1);
            at = after - 1;
        } else if (!strcmp(line->name, "work")) {
            work(line->number[0]);
        } else {
            sites[line->number[0] % SITES](line->number[1]);
        }
    }
    return at + 1;
}

static void read_script(const char *path)
{
    FILE *file = fopen(path, "r");
    char text[128], kind[16];
    while (file && count < MAX_LINES && fgets(text, sizeof text, file)) {
        struct line *line = &lines[count++];
        if (sscanf(text, "call %d %15s", &line->number[0], kind) == 2) {
            strcpy(line->name, "call");
            while (line->number[1] < KINDS && strcmp(kinds[line->number[1]], kind))
                line->number[1]++;
        } else {
            sscanf(text, "%15s %d %d %d", line->name, &line->number[0], &line->number[1], &line->number[2]);
        }
    }
    if (file)
        fclose(file);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    read_script(argv[1]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &own);
    MPI_Recv_init(&other, 1, MPI_INT, from(1), 4, MPI_COMM_WORLD, &persistent[0]);
    MPI_Send_init(&mine, 1, MPI_INT, to(1), 4, MPI_COMM_WORLD, &persistent[1]);
    MPI_Win_create(&shared, sizeof shared, sizeof shared, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_lock_all(0, window);
    execute(0);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Request_free(&persistent[0]);
    MPI_Request_free(&persistent[1]);
    for (int i = 0; i < LOOPS && rank == 0; i++)
        if (passes[i])
            printf("loop %d %ld\n", i, passes[i]);
    if (rank == 0)
        printf("bad=%d\n", bad);
    MPI_Finalize();
    return bad != 0;
}

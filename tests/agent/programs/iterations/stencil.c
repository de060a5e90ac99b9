/* One-dimensional Jacobi solver: stencil FORM ITERATIONS MICROSECONDS
 *
 * Each iteration computes for MICROSECONDS and exchanges halos with the neighbours, some test convergence, without a
 * blocking collective of all ranks. FORM is one of `forms` below. Ends with "iterations N", or "unsupported" if this MPI
 * does not have what the form needs. */
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CELLS 64
#define THREADS 2
#if MPI_VERSION >= 4 || (defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5) /* 5 says it is 3.1 */
#define HAS_MPI_4 1
#else
#define HAS_MPI_4 0
#endif

static MPI_Comm world;
static double old[CELLS + 2], new[CELLS + 2];
static int rank, size, left, right;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void work(double seconds)
{
    for (double end = now() + seconds; now() < end;)
        for (int i = 1; i <= CELLS; i++)
            new[i] = 0.5 * (old[i - 1] + old[i + 1]);
    memcpy(old + 1, new + 1, CELLS * sizeof(double));
}

static void start_halo(MPI_Request requests[4])
{
    MPI_Irecv(&old[0], 1, MPI_DOUBLE, left, 1, world, &requests[0]);
    MPI_Irecv(&old[CELLS + 1], 1, MPI_DOUBLE, right, 2, world, &requests[1]);
    MPI_Isend(&old[1], 1, MPI_DOUBLE, left, 2, world, &requests[2]);
    MPI_Isend(&old[CELLS], 1, MPI_DOUBLE, right, 1, world, &requests[3]);
}

static void halo(void)
{
    MPI_Request requests[4];
    start_halo(requests);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

static void start_residual(MPI_Request *request)
{
    static double mine, all;
    mine = old[1];
    MPI_Iallreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, world, request);
}

static void only_iallreduce(void)
{
    MPI_Request request;
    start_residual(&request);
    MPI_Waitall(1, &request, MPI_STATUSES_IGNORE);
}

static void iallreduce(void)
{
    halo();
    only_iallreduce();
}

static void poll_for(MPI_Request *request)
{
    for (int done = 0; !done;)
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
}

static void iallreduce_test(void)
{
    MPI_Request request;
    start_residual(&request);
    poll_for(&request);
}

static void testall(void)
{
    MPI_Request requests[4];
    start_halo(requests);
    for (int done = 0; !done;)
        MPI_Testall(4, requests, &done, MPI_STATUSES_IGNORE);
}

static void testany(void)
{
    MPI_Request requests[4];
    start_halo(requests);
    for (int done, one, left_over = 4; left_over > 0; left_over -= done)
        MPI_Testany(4, requests, &one, &done, MPI_STATUS_IGNORE);
}

static void testsome(void)
{
    MPI_Request requests[4];
    start_halo(requests);
    for (int done, some[4], left_over = 4; left_over > 0; left_over -= done)
        MPI_Testsome(4, requests, &done, some, MPI_STATUSES_IGNORE);
}

static MPI_Request persistent[4];

static void prepare_persistent(void)
{
    MPI_Recv_init(&old[0], 1, MPI_DOUBLE, left, 1, world, &persistent[0]);
    MPI_Recv_init(&old[CELLS + 1], 1, MPI_DOUBLE, right, 2, world, &persistent[1]);
    MPI_Send_init(&old[1], 1, MPI_DOUBLE, left, 2, world, &persistent[2]);
    MPI_Send_init(&old[CELLS], 1, MPI_DOUBLE, right, 1, world, &persistent[3]);
}

static void startall(void)
{
    MPI_Startall(4, persistent);
    MPI_Waitall(4, persistent, MPI_STATUSES_IGNORE);
}

static void start_test(void)
{
    for (int i = 0; i < 4; i++)
        MPI_Start(&persistent[i]);
    for (int i = 0; i < 4; i++)
        poll_for(&persistent[i]);
}

#if HAS_MPI_4
static double mine, all;

static void prepare_allreduce(void)
{
    MPI_Allreduce_init(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, world, MPI_INFO_NULL, &persistent[0]);
}

static void persistent_allreduce(void)
{
    mine = old[1];
    MPI_Start(&persistent[0]);
    MPI_Wait(&persistent[0], MPI_STATUS_IGNORE);
}

static MPI_Session session;

static void find_world(void)
{
    MPI_Group group;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "barograph", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &world);
    MPI_Group_free(&group);
}
#endif

static MPI_Comm line;
static double out[2], in[2];

static void prepare_line(void)
{
    int periodic = 1;
    MPI_Cart_create(world, 1, &size, &periodic, 0, &line);
}

static void neighbours(void)
{
    out[0] = old[1], out[1] = old[CELLS];
    MPI_Neighbor_alltoall(out, 1, MPI_DOUBLE, in, 1, MPI_DOUBLE, line);
    old[0] = in[0], old[CELLS + 1] = in[1];
}

static void ineighbours(void)
{
    MPI_Request request;
    out[0] = old[1], out[1] = old[CELLS];
    MPI_Ineighbor_alltoall(out, 1, MPI_DOUBLE, in, 1, MPI_DOUBLE, line, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    old[0] = in[0], old[CELLS + 1] = in[1];
}

static MPI_Win window;
static MPI_Group both;

static void prepare_window(void)
{
    MPI_Win_create(old, sizeof old, sizeof(double), MPI_INFO_NULL, world, &window);
}

static void prepare_fence(void)
{
    prepare_window();
    MPI_Win_fence(0, window);
}

static void prepare_lock_all(void)
{
    prepare_window();
    MPI_Win_lock_all(0, window);
}

static void prepare_group(void)
{
    MPI_Group group;
    int ranks[2] = {left, right};
    prepare_window();
    MPI_Comm_group(world, &group);
    MPI_Group_incl(group, left == right ? 1 : 2, ranks, &both);
}

static void put_halo(void)
{
    MPI_Put(&old[1], 1, MPI_DOUBLE, left, CELLS + 1, 1, MPI_DOUBLE, window);
    MPI_Put(&old[CELLS], 1, MPI_DOUBLE, right, 0, 1, MPI_DOUBLE, window);
}

static void fence(void)
{
    put_halo();
    MPI_Win_fence(0, window);
}

static void lock_unlock(void)
{
    MPI_Win_lock(MPI_LOCK_SHARED, left, 0, window);
    MPI_Put(&old[1], 1, MPI_DOUBLE, left, CELLS + 1, 1, MPI_DOUBLE, window);
    MPI_Win_unlock(left, window);
}

static void flush(void)
{
    put_halo();
    MPI_Win_flush_all(window);
}

static void flush_local(void)
{
    MPI_Put(&old[1], 1, MPI_DOUBLE, left, CELLS + 1, 1, MPI_DOUBLE, window);
    MPI_Win_flush_local(left, window);
}

static void free_window(void)
{
    MPI_Win_free(&window);
}

static void end_lock_all(void)
{
    MPI_Win_unlock_all(window);
    free_window();
}

static void post(void)
{
    MPI_Win_post(both, 0, window);
    MPI_Win_start(both, 0, window);
    put_halo();
    MPI_Win_complete(window);
    MPI_Win_wait(window);
}

static MPI_File file;

static void prepare_file(void)
{
    MPI_File_open(world, getenv("STENCIL_FILE"), MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
}

static void write_at_all(void)
{
    MPI_File_write_at_all(file, rank * (MPI_Offset)sizeof old, old, CELLS, MPI_DOUBLE, MPI_STATUS_IGNORE);
}

static void write_all_split(void)
{
    MPI_File_write_all_begin(file, old, CELLS, MPI_DOUBLE);
    MPI_File_write_all_end(file, old, MPI_STATUS_IGNORE);
}

static void end_file(void)
{
    MPI_File_close(&file);
}

/* How a program starts, beside MPI_Init. */
enum start { PLAIN, IN_SESSION, SPAWNED, THREADED };

static const struct form {
    const char *name;
    void (*iterate)(void);
    void (*prepare)(void);
    void (*finish)(void);
    enum start start;
} forms[] = {
    {"iallreduce", iallreduce, NULL, NULL, PLAIN},
    {"only-iallreduce", only_iallreduce, NULL, NULL, PLAIN},
    {"iallreduce-test", iallreduce_test, NULL, NULL, PLAIN},
    {"testall", testall, NULL, NULL, PLAIN},
    {"testany", testany, NULL, NULL, PLAIN},
    {"testsome", testsome, NULL, NULL, PLAIN},
    {"persistent", startall, prepare_persistent, NULL, PLAIN},
    {"start-test", start_test, prepare_persistent, NULL, PLAIN},
    {"neighbours", neighbours, prepare_line, NULL, PLAIN},
    {"ineighbours", ineighbours, prepare_line, NULL, PLAIN},
    {"fence", fence, prepare_fence, free_window, PLAIN},
    {"lock", lock_unlock, prepare_window, free_window, PLAIN},
    {"flush", flush, prepare_lock_all, end_lock_all, PLAIN},
    {"flush-local", flush_local, prepare_lock_all, end_lock_all, PLAIN},
    {"post", post, prepare_group, free_window, PLAIN},
    {"write-at-all", write_at_all, prepare_file, end_file, PLAIN},
    {"write-all-split", write_all_split, prepare_file, end_file, PLAIN},
    {"spawned", halo, NULL, NULL, SPAWNED},
    {"threads", NULL, NULL, NULL, THREADED},
#if HAS_MPI_4
    {"persistent-allreduce", persistent_allreduce, prepare_allreduce, NULL, PLAIN},
    {"session", halo, NULL, NULL, IN_SESSION},
#endif
};

static int iterations;
static double seconds;

/* Each thread exchanges messages with the same thread of the other rank. */
static void *iterate_in_thread(void *number)
{
    int tag = (int)(long)number, mine_ = 1, other;
    for (int i = 0; i < iterations / THREADS; i++) {
        work(seconds);
        MPI_Sendrecv(&mine_, 1, MPI_INT, right, tag, &other, 1, MPI_INT, left, tag, world, MPI_STATUS_IGNORE);
    }
    return NULL;
}

static void iterate(const struct form *form)
{
    pthread_t threads[THREADS];
    if (form->prepare)
        form->prepare();
    for (int i = 0; i < iterations && form->iterate; i++) {
        work(seconds);
        form->iterate();
    }
    for (long i = 0; i < THREADS && form->start == THREADED; i++)
        pthread_create(&threads[i], NULL, iterate_in_thread, (void *)(10 + i));
    for (int i = 0; i < THREADS && form->start == THREADED; i++)
        pthread_join(threads[i], NULL);
    if (form->finish)
        form->finish();
}

/* The world of the program is started by a program of one rank. Returns whether this process is in it. */
static bool is_spawned(char **argv)
{
    MPI_Comm parent, children;
    MPI_Comm_get_parent(&parent);
    bool spawned = parent != MPI_COMM_NULL;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (!spawned && MPI_Comm_spawn(argv[0], argv + 1, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children,
                                   MPI_ERRCODES_IGNORE) != MPI_SUCCESS)
        return puts("unsupported") < 0; /* Debian's MPICH 4.0 */
    MPI_Comm *others = spawned ? &parent : &children;
    MPI_Barrier(*others);  // UCX connects in spawned ranks, which fails once the parent has ended.
    MPI_Comm_disconnect(others);
    return spawned;
}

static const struct form *find_form(const char *name)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(forms[i].name, name))
            return &forms[i];
    return NULL;
}

int main(int argc, char **argv)
{
    int provided = MPI_THREAD_SINGLE;
    if (argc != 4)
        return 2;
    const struct form *form = find_form(argv[1]);
    if (!form)
        return puts("unsupported") < 0;
    iterations = atoi(argv[2]);
    seconds = 1e-6 * atof(argv[3]);
#if HAS_MPI_4
    if (form->start == IN_SESSION)
        find_world();
#endif
    if (form->start != IN_SESSION) {
        MPI_Init_thread(&argc, &argv, form->start == THREADED ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
        world = MPI_COMM_WORLD;
    }
    if (form->start == THREADED && provided != MPI_THREAD_MULTIPLE)
        return puts("unsupported") < 0;
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    left = (rank + size - 1) % size, right = (rank + 1) % size;
    if (form->start != SPAWNED || is_spawned(argv)) {
        MPI_Barrier(world);
        iterate(form);
        MPI_Barrier(world);
        if (rank == 0)
            printf("iterations %d\n", iterations);
    }
    if (form->start != IN_SESSION)
        MPI_Finalize();
#if HAS_MPI_4
    else if (MPI_Comm_free(&world) == MPI_SUCCESS)
        MPI_Session_finalize(&session);
#endif
    return 0;
}

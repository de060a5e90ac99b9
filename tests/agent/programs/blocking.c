/* Every function that waits or tests and does not synchronize the world, each between two barriers: blocking
 *
 * All on MPI_COMM_SELF, so that no rank is waited for. Rank 0 prints a line per interval that a barrier ends: the call in
 * it and the nanoseconds around that call. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int out = 1, in[2], zero, one = 1, rank, flag;
static MPI_Request requests[2];
static MPI_Comm ring;
static char room[1000 + MPI_BSEND_OVERHEAD];

static long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1000000000 * now.tv_sec + now.tv_nsec;
}

/* A message to the rank itself is in flight. */
static void start(void)
{
    MPI_Irecv(in, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &requests[0]);
    MPI_Isend(&out, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &requests[1]);
}

static void receive(void)
{
    MPI_Irecv(in, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &requests[0]);
}

static void send(void)
{
    MPI_Isend(&out, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &requests[0]);
}

/* Ends without a blocking call. */
static void finish(int count)
{
    for (int i = 0; i < count; i++)
        for (flag = 0; !flag;)
            MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
}

#define STEP(NAME, BEFORE, CALL, AFTER)                     \
    do {                                                    \
        BEFORE;                                             \
        MPI_Barrier(MPI_COMM_WORLD);                        \
        long begin = now_ns();                              \
        CALL;                                               \
        long took = now_ns() - begin;                       \
        MPI_Barrier(MPI_COMM_WORLD);                        \
        if (rank == 0)                                      \
            printf("%s %ld\n", NAME, took);                 \
        AFTER;                                              \
    } while (0)

#define SELF 0, 0, MPI_COMM_SELF
#define IGNORE MPI_STATUS_IGNORE
#define SELF_ROOT 0, MPI_COMM_SELF

int main(int argc, char **argv)
{
    int indices[2], done;
    MPI_Message message;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Cart_create(MPI_COMM_SELF, 1, &one, &one, 0, &ring); /* its own neighbour on both sides */

    STEP("nothing", , , );
    STEP("Isend_Irecv_Test", , start(); finish(2), );
    STEP("Issend", receive(), MPI_Issend(&out, 1, MPI_INT, SELF, &requests[1]), finish(2));
    STEP("Irsend", receive(), MPI_Irsend(&out, 1, MPI_INT, SELF, &requests[1]), finish(2));
    MPI_Datatype pair;
    MPI_Type_vector(2, 1, 2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    STEP("Isend", receive(), MPI_Isend(&out, 1, MPI_INT, SELF, &requests[1]), finish(2));
    STEP("Isend of 2 pairs", MPI_Irecv(room, 4, MPI_INT, SELF, &requests[0]),
         MPI_Isend(room + 100, 2, pair, SELF, &requests[1]), finish(2));
    STEP("Send", receive(), MPI_Send(&out, 1, MPI_INT, SELF), finish(1));
    STEP("Ssend", receive(), MPI_Ssend(&out, 1, MPI_INT, SELF), finish(1));
    STEP("Rsend", receive(), MPI_Rsend(&out, 1, MPI_INT, SELF), finish(1));
    MPI_Buffer_attach(room, sizeof room);
    STEP("Ibsend", receive(), MPI_Ibsend(&out, 1, MPI_INT, SELF, &requests[1]), finish(2));
    STEP("Bsend", receive(), MPI_Bsend(&out, 1, MPI_INT, SELF), finish(1));
    STEP("Recv", send(), MPI_Recv(in, 1, MPI_INT, SELF, IGNORE), finish(1));
    STEP("Sendrecv", , MPI_Sendrecv(&out, 1, MPI_INT, 0, 0, in, 1, MPI_INT, SELF, IGNORE), );
    STEP("Sendrecv_replace", , MPI_Sendrecv_replace(in, 1, MPI_INT, 0, 0, SELF, IGNORE), );
    STEP("Probe", send(), MPI_Probe(SELF, IGNORE), MPI_Recv(in, 1, MPI_INT, SELF, IGNORE); finish(1));
    STEP("Mprobe", send(), MPI_Mprobe(SELF, &message, IGNORE), MPI_Mrecv(in, 1, MPI_INT, &message, IGNORE); finish(1));
    STEP("Mrecv", send(); MPI_Mprobe(SELF, &message, IGNORE), MPI_Mrecv(in, 1, MPI_INT, &message, IGNORE), finish(1));
    STEP("Wait", start(), MPI_Wait(&requests[0], IGNORE), finish(2));
    STEP("Waitall", start(), MPI_Waitall(2, requests, MPI_STATUSES_IGNORE), );
    STEP("Waitany", start(), MPI_Waitany(2, requests, &done, IGNORE), finish(2));
    STEP("Waitsome", start(), MPI_Waitsome(2, requests, &done, indices, MPI_STATUSES_IGNORE), finish(2));
    STEP("Testall", start(), for (flag = 0; !flag;) MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE), );
    STEP("Testany", start(), for (flag = 0; !flag;) MPI_Testany(2, requests, &done, &flag, IGNORE), finish(2));
    STEP("Testsome", start(), for (done = 0; done < 1;) MPI_Testsome(2, requests, &done, indices, MPI_STATUSES_IGNORE),
         finish(2));
    STEP("Iprobe", send(), for (flag = 0; !flag;) MPI_Iprobe(SELF, &flag, IGNORE),
         MPI_Recv(in, 1, MPI_INT, SELF, IGNORE); finish(1));
    STEP("Improbe", send(), for (flag = 0; !flag;) MPI_Improbe(SELF, &flag, &message, IGNORE),
         MPI_Mrecv(in, 1, MPI_INT, &message, IGNORE); finish(1));
    STEP("Bcast", , MPI_Bcast(in, 1, MPI_INT, SELF_ROOT), );
    STEP("Reduce", , MPI_Reduce(&out, in, 1, MPI_INT, MPI_SUM, SELF_ROOT), );
    STEP("Scan", , MPI_Scan(&out, in, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF), );
    STEP("Exscan", , MPI_Exscan(&out, in, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF), );
    STEP("Gather", , MPI_Gather(&out, 1, MPI_INT, in, 1, MPI_INT, SELF_ROOT), );
    STEP("Gatherv", , MPI_Gatherv(&out, 1, MPI_INT, in, &one, &zero, MPI_INT, SELF_ROOT), );
    STEP("Scatter", , MPI_Scatter(&out, 1, MPI_INT, in, 1, MPI_INT, SELF_ROOT), );
    STEP("Scatterv", , MPI_Scatterv(&out, &one, &zero, MPI_INT, in, 1, MPI_INT, SELF_ROOT), );

    int outs[2] = {1, 2}, ones[2] = {1, 1}, at[2] = {0, 1};
    MPI_Aint bytes[2] = {0, sizeof(int)};
    MPI_Datatype types[2] = {MPI_INT, MPI_INT};
    STEP("Neighbor_allgather", , MPI_Neighbor_allgather(outs, 1, MPI_INT, in, 1, MPI_INT, ring), );
    STEP("Neighbor_allgatherv", , MPI_Neighbor_allgatherv(outs, 1, MPI_INT, in, ones, at, MPI_INT, ring), );
    STEP("Neighbor_alltoall", , MPI_Neighbor_alltoall(outs, 1, MPI_INT, in, 1, MPI_INT, ring), );
    STEP("Neighbor_alltoallv", , MPI_Neighbor_alltoallv(outs, ones, at, MPI_INT, in, ones, at, MPI_INT, ring), );
    STEP("Neighbor_alltoallw", , MPI_Neighbor_alltoallw(outs, ones, bytes, types, in, ones, bytes, types, ring), );

    MPI_Win window;
    MPI_Group self;
    /* Open MPI 4.1 has no window of one rank. */
    MPI_Win_create(room, sizeof room, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Comm_group(MPI_COMM_SELF, &self);
    STEP("Win_fence", , MPI_Win_fence(0, window); MPI_Win_fence(0, window), );
    STEP("Win_post", MPI_Win_post(self, 0, window); MPI_Win_start(self, 0, window); MPI_Win_complete(window),
         for (flag = 0; !flag;) MPI_Win_test(window, &flag), );
    STEP("Win_lock_all", , MPI_Win_lock_all(0, window), );
    STEP("Win_flush_local", , MPI_Win_flush_local(rank, window), );
    STEP("Win_flush_local_all", , MPI_Win_flush_local_all(window), );
    STEP("Win_flush", , MPI_Win_flush(rank, window), );
    STEP("Win_unlock_all", , MPI_Win_unlock_all(window), );
    MPI_Group_free(&self);
    MPI_Win_free(&window);

    MPI_File file;
    char name[] = "/tmp/barograph-file-XXXXXX";
    close(mkstemp(name));
    MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    STEP("File_write_all", , MPI_File_write_all(file, &out, 1, MPI_INT, IGNORE), );
    STEP("File_write_at_all", , MPI_File_write_at_all(file, 4, &out, 1, MPI_INT, IGNORE), );
    STEP("File_write_ordered", , MPI_File_write_ordered(file, &out, 1, MPI_INT, IGNORE), );
    STEP("File_sync", , MPI_File_sync(file), );
    MPI_File_seek(file, 0, MPI_SEEK_SET);
    MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
    STEP("File_read_all", , MPI_File_read_all(file, in, 1, MPI_INT, IGNORE), );
    STEP("File_read_at_all", , MPI_File_read_at_all(file, 4, in, 1, MPI_INT, IGNORE), );
    STEP("File_read_ordered", , MPI_File_read_ordered(file, in, 1, MPI_INT, IGNORE), );
    STEP("File_read_at_all_end", MPI_File_read_at_all_begin(file, 0, in, 1, MPI_INT),
         MPI_File_read_at_all_end(file, in, IGNORE), );
    STEP("File_write_at_all_end", MPI_File_write_at_all_begin(file, 0, &out, 1, MPI_INT),
         MPI_File_write_at_all_end(file, &out, IGNORE), );
    MPI_File_close(&file);
    unlink(name);

    STEP("Barrier of a part", , MPI_Barrier(MPI_COMM_SELF), );
    MPI_Finalize();
    return 0;
}

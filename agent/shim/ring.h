/* The ring: one file per recording rank, written by the application's process, consistent for readers at any time.
 *
 * Single producer (the shim), single consumer (the sidecar). The file is
 *
 *     struct ring_header        4096 bytes
 *     struct ring_module        x module_capacity
 *     struct ring_site          x site_capacity
 *     struct ring_record        x capacity
 *     struct ring_record        x iteration_capacity
 *     struct ring_call          x call_capacity
 *
 * all little-endian, in this order. `barograph_agent/ring/reader.py` reads the same layout; a test compares the two.
 * It contains no pointers, so a copy of the file is valid.
 */
#ifndef BAROGRAPH_RING_H
#define BAROGRAPH_RING_H

#include <stdatomic.h>
#include <stdint.h>

#define RING_MAGIC "BAROGRPH"
#define RING_VERSION 6u
#define RING_HEADER_BYTES 4096u
#define RING_PATH_BYTES 256u
#define RING_COMMAND_BYTES 3072u
#define RING_FRAMES 3

/* Both in nanoseconds of CLOCK_MONOTONIC; the second is derived from the time stamp counter, within 100 ns. */
enum ring_clock { RING_CLOCK_MONOTONIC = 1, RING_CLOCK_TSC = 2 };
enum ring_state { RING_RUNNING = 1, RING_FINALIZED = 2 };

/* One synchronizing collective, from the application's call to MPI's return. Of a pair that synchronizes only together the
 * time of the first is as if it had directly preceded the second. With the previous record (index one less)
 * it forms an interval: gap = enter - previous exit, own work = gap - p2p, wait = exit - enter. */
struct ring_record {
    uint64_t enter_ns; /* clock of the header, nanoseconds; not above exit_ns */
    uint64_t exit_ns;  /* not below that of the previous record */
    uint64_t p2p_ns;   /* time within the gap in blocking MPI calls that do not synchronize the world */
    uint64_t bytes;    /* count times size of the datatype, if the call has one count; of OP_Step, of the parameters; else
                          RING_BYTES_UNKNOWN */
    uint64_t index;    /* number of earlier synchronizing collectives in this process, including dropped ones */
    uint32_t site;     /* index into the site table */
    uint16_t op;       /* enum ring_op */
    uint16_t flags;    /* 0 */
    union {
        uint64_t messages; /* sent to other ranks within the gap, by the thread of this call */
        uint64_t cpu_ns;   /* of OP_Step: processor time of the process within the gap */
    };
    union {
        uint64_t message_bytes; /* of those whose datatype's size is known */
        uint64_t updated_ns;    /* of OP_Step: time within the gap in which parameters were updated, 0 if unknown */
    };
};

/* A record of the second table is one of an iteration: it ends with the call that the sidecar has named as the anchor.
 * `p2p_ns` is then the time in any MPI call since the previous such record, without the anchor's own; `index` counts
 * such records. `flags`: the anchor came so often since then. */

/* Any call, while the sidecar looks for the loop of a program. Entry i is at i % call_capacity. */
struct ring_call {
    uint64_t exit_ns;
    uint16_t site;
    uint16_t op;     /* enum ring_op */
    uint16_t comm;   /* a hash of the communicator's handle, 0 without one */
    uint16_t detail; /* a hash of that, of the other rank and of the tag */
};

/* What the sidecar wants, in one word: it may die at any instant, and a word is stored whole or not at all. */
#define RING_WANT_CALLS 1u             /* bit 0: write calls */
#define RING_WANT_MATCH(WANT) ((WANT) >> 1 & 3u)         /* bits 1, 2: what of a call must be the anchor's: enum ring_match */
#define RING_WANT_EVERY(WANT) ((WANT) >> 8 & 0xffu)      /* the anchor comes so many times in an iteration */
#define RING_WANT_OP(WANT) ((WANT) >> 16 & 0xffu)        /* the anchor's operation; 0: there is no anchor */
#define RING_WANT_GENERATION(WANT) ((WANT) >> 24 & 0xffu)
#define RING_WANT_SITE(WANT) ((WANT) >> 32 & 0xffffu)
#define RING_WANT_HASH(WANT) ((WANT) >> 48 & 0xffffu)    /* `comm` or `detail` of the anchor */

enum ring_match { RING_MATCH_SITE = 0, RING_MATCH_COMM = 1, RING_MATCH_DETAIL = 2 };

#define RING_BYTES_UNKNOWN UINT64_MAX
#define RING_EXITED 256u

/* The call path of a collective, innermost frame first. */
struct ring_site {
    uint64_t offset[RING_FRAMES]; /* return address minus the module's load address, or RING_NAMED */
    uint32_t module[RING_FRAMES]; /* index into the module table */
    uint32_t frames;              /* number of frames */
};

#define RING_NAMED UINT64_MAX /* the module is not a file but the name of a site, given by the application */

struct ring_module {
    char path[RING_PATH_BYTES]; /* NUL-terminated; truncated on the left */
};

struct ring_header {
    char magic[8]; /* RING_MAGIC, written last: a file without it is incomplete */
    uint32_t version;
    uint32_t header_bytes;
    uint32_t record_bytes;
    uint32_t capacity; /* records; a power of two */
    uint32_t site_capacity;
    uint32_t module_capacity;
    int32_t rank; /* in MPI_COMM_WORLD */
    int32_t size; /* of MPI_COMM_WORLD */
    int32_t pid;
    uint32_t clock;         /* enum ring_clock */
    uint64_t started_ns;    /* header clock when MPI_Init returned: the first interval begins here */
    uint64_t started_unix_ns; /* CLOCK_REALTIME at the same instant */
    char program[RING_PATH_BYTES]; /* /proc/self/exe */

    /* Written by the shim, each on a cache line of its own. */
    _Alignas(64) _Atomic uint64_t head; /* records ever written; record i is at i % capacity */
    _Atomic uint64_t dropped;           /* collectives not recorded because the ring was full */
    _Atomic uint32_t state;             /* enum ring_state */
    _Atomic uint32_t sites;             /* entries valid in the site table */
    _Atomic uint32_t modules;           /* entries valid in the module table */
    _Atomic uint32_t exit;              /* RING_EXITED + exit status; stays 0 if a signal or _exit ends the process */
    _Atomic uint64_t exited_ns;         /* header clock when the process called exit() or returned from main; stored before `exit` */

    /* Written by the sidecar. */
    _Alignas(64) _Atomic uint64_t tail; /* records read and durable; may be overwritten */

    /* The same of iterations and calls. */
    uint32_t iteration_capacity; /* a power of two */
    uint32_t call_capacity;      /* a power of two */
    _Alignas(64) _Atomic uint64_t iteration_head;
    _Atomic uint64_t iterations_dropped;
    _Atomic uint64_t call_head; /* calls ever written; old ones are overwritten, whether they were read or not */
    _Atomic uint64_t compared;  /* calls that were compared with the anchor at the cost of a site lookup, and were not it */
    _Alignas(64) _Atomic uint64_t wanted; /* written by the sidecar, at first by the shim: calls, no anchor */
    _Atomic uint64_t iteration_tail;      /* written by the sidecar */
    _Atomic uint64_t call_tail;           /* written by the sidecar: calls seen; the shim stops if this stays behind */
    uint32_t launch; /* number of the MPI launch within the run, plus 1; 0 if it is not known */
    uint32_t command_bytes;           /* used of `command`; 0 if it is not known, or longer */
    char command[RING_COMMAND_BYTES]; /* the command line when the shim was loaded: words that end in NUL */
};

_Static_assert(sizeof(struct ring_record) == 64, "record layout");
_Static_assert(sizeof(struct ring_site) == 40, "site layout");
_Static_assert(sizeof(struct ring_call) == 16, "call layout");
_Static_assert(sizeof(struct ring_header) <= RING_HEADER_BYTES, "header layout");

/* Operations by name and number: the first thirteen end intervals, the others are calls and anchors only. Numbers are
 * stored, so existing ones never change. Interval: timed by the application itself, barograph_agent.interval(). Bcast and
 * Scatter: after a Reduce or Gather with the same root and communicator. Step: of a training, from the last own gradient
 * until all are reduced. The names are those of the functions in `wrappers.py`; the sidecar has them from its library. */
#define RING_OPERATIONS(OPERATION) \
    OPERATION(Interval, 1) OPERATION(Barrier, 8) OPERATION(Allreduce, 9) OPERATION(Allgather, 10) \
    OPERATION(Allgatherv, 11) OPERATION(Alltoall, 12) OPERATION(Alltoallv, 13) OPERATION(Alltoallw, 14) \
    OPERATION(Reduce_scatter, 15) OPERATION(Reduce_scatter_block, 16) OPERATION(Bcast, 17) OPERATION(Scatter, 18) \
    OPERATION(Step, 19) OPERATION(Reduce, 32) OPERATION(Gather, 33) OPERATION(Send, 34) OPERATION(Bsend, 35) \
    OPERATION(Rsend, 36) OPERATION(Ssend, 37) OPERATION(Recv, 38) OPERATION(Sendrecv, 39) \
    OPERATION(Sendrecv_replace, 40) OPERATION(Probe, 41) OPERATION(Mprobe, 42) OPERATION(Mrecv, 43) \
    OPERATION(Wait, 44) OPERATION(Waitall, 45) OPERATION(Waitany, 46) OPERATION(Waitsome, 47) OPERATION(Scan, 48) \
    OPERATION(Exscan, 49) OPERATION(Gatherv, 50) OPERATION(Scatterv, 51) OPERATION(Neighbor_allgather, 52) \
    OPERATION(Neighbor_allgatherv, 53) OPERATION(Neighbor_alltoall, 54) OPERATION(Neighbor_alltoallv, 55) \
    OPERATION(Neighbor_alltoallw, 56) OPERATION(Isend, 57) OPERATION(Ibsend, 58) OPERATION(Irsend, 59) \
    OPERATION(Issend, 60) OPERATION(Win_fence, 61) OPERATION(Win_complete, 62) OPERATION(Win_wait, 63) \
    OPERATION(Win_lock, 64) OPERATION(Win_lock_all, 65) OPERATION(Win_unlock, 66) OPERATION(Win_unlock_all, 67) \
    OPERATION(Win_flush, 68) OPERATION(Win_flush_all, 69) OPERATION(Win_start, 70) OPERATION(Win_post, 71) \
    OPERATION(Win_flush_local, 72) OPERATION(Win_flush_local_all, 73) OPERATION(Win_test, 74) OPERATION(Test, 75) \
    OPERATION(Testall, 76) OPERATION(Testany, 77) OPERATION(Testsome, 78) OPERATION(Iprobe, 79) \
    OPERATION(Improbe, 80) OPERATION(File_read_all, 81) OPERATION(File_write_all, 82) \
    OPERATION(File_read_at_all, 83) OPERATION(File_write_at_all, 84) OPERATION(File_read_ordered, 85) \
    OPERATION(File_write_ordered, 86) OPERATION(File_read_all_end, 87) OPERATION(File_write_all_end, 88) \
    OPERATION(File_read_at_all_end, 89) OPERATION(File_write_at_all_end, 90) OPERATION(File_read_ordered_end, 91) \
    OPERATION(File_write_ordered_end, 92) OPERATION(File_sync, 93)

enum ring_op {
#define RING_NUMBERED(NAME, NUMBER) OP_##NAME = NUMBER,
    RING_OPERATIONS(RING_NUMBERED)
#undef RING_NUMBERED
};

#endif

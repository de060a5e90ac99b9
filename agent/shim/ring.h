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
    uint64_t bytes;    /* count times size of the datatype, if the call has one count; of OP_STEP, of the parameters; else
                          RING_BYTES_UNKNOWN */
    uint64_t index;    /* number of earlier synchronizing collectives in this process, including dropped ones */
    uint32_t site;     /* index into the site table */
    uint16_t op;       /* enum ring_op */
    uint16_t flags;    /* 0 */
    union {
        uint64_t messages; /* sent to other ranks within the gap, by the thread of this call */
        uint64_t cpu_ns;   /* of OP_STEP: processor time of the process within the gap */
    };
    union {
        uint64_t message_bytes; /* of those whose datatype's size is known */
        uint64_t updated_ns;    /* of OP_STEP: time within the gap in which parameters were updated, 0 if unknown */
    };
};

/* A record of the second table is one of an iteration: it ends with the call that the sidecar has named as the anchor.
 * `p2p_ns` is then the time in any MPI call since the previous such record, without the anchor's own; `index` counts
 * such records. `flags`: the anchor came so often since then. */

/* Any call, while the sidecar looks for the loop of a program. Entry i is at i % call_capacity. */
struct ring_call {
    uint64_t exit_ns;
    uint16_t site;
    uint8_t op;      /* enum ring_op */
    uint8_t thread;  /* which one called, in the order of their first calls; RING_MAX_THREAD: that or a later one */
    uint16_t comm;   /* a hash of the communicator's handle, 0 without one */
    uint16_t detail; /* a hash of that, of the other rank and of the tag */
};

#define RING_MAX_THREAD 30u

/* What the sidecar wants, in one word: it may die at any instant, and a word is stored whole or not at all. */
#define RING_WANT_CALLS 1u             /* bit 0: write calls */
#define RING_WANT_MATCH(WANT) ((WANT) >> 1 & 3u)         /* bits 1, 2: what of a call must be the anchor's: enum ring_match */
#define RING_WANT_THREAD(WANT) ((WANT) >> 3 & 31u)       /* bits 3 to 7: number of the anchor's thread plus 1; 0: any */
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

/* The operation that ends the interval. The numbers are stored, so existing ones never change. */
enum ring_op {
    OP_INTERVAL = 1, /* no collective: timed by the application itself, barograph_agent.interval() */
    OP_BARRIER = 8,
    OP_ALLREDUCE = 9,
    OP_ALLGATHER = 10,
    OP_ALLGATHERV = 11,
    OP_ALLTOALL = 12,
    OP_ALLTOALLV = 13,
    OP_ALLTOALLW = 14,
    OP_REDUCE_SCATTER = 15,
    OP_REDUCE_SCATTER_BLOCK = 16,
    OP_BCAST = 17, /* after a Reduce or Gather with the same root and communicator */
    OP_SCATTER = 18, /* the same */
    OP_STEP = 19, /* no collective of MPI: gradients of one optimizer step of a training, from the last own one until all are reduced */

    /* Of calls and anchors only. */
    OP_REDUCE = 32,
    OP_GATHER = 33,
    OP_SEND = 34,
    OP_BSEND = 35,
    OP_RSEND = 36,
    OP_SSEND = 37,
    OP_RECV = 38,
    OP_SENDRECV = 39,
    OP_SENDRECV_REPLACE = 40,
    OP_PROBE = 41,
    OP_MPROBE = 42,
    OP_MRECV = 43,
    OP_WAIT = 44,
    OP_WAITALL = 45,
    OP_WAITANY = 46,
    OP_WAITSOME = 47,
    OP_SCAN = 48,
    OP_EXSCAN = 49,
    OP_GATHERV = 50,
    OP_SCATTERV = 51,
    OP_NEIGHBOR_ALLGATHER = 52,
    OP_NEIGHBOR_ALLGATHERV = 53,
    OP_NEIGHBOR_ALLTOALL = 54,
    OP_NEIGHBOR_ALLTOALLV = 55,
    OP_NEIGHBOR_ALLTOALLW = 56,
    OP_ISEND = 57,
    OP_IBSEND = 58,
    OP_IRSEND = 59,
    OP_ISSEND = 60,
    OP_WIN_FENCE = 61,
    OP_WIN_COMPLETE = 62,
    OP_WIN_WAIT = 63,
    OP_WIN_LOCK = 64,
    OP_WIN_LOCK_ALL = 65,
    OP_WIN_UNLOCK = 66,
    OP_WIN_UNLOCK_ALL = 67,
    OP_WIN_FLUSH = 68,
    OP_WIN_FLUSH_ALL = 69,
    OP_WIN_START = 70,
    OP_WIN_POST = 71,
    OP_WIN_FLUSH_LOCAL = 72,
    OP_WIN_FLUSH_LOCAL_ALL = 73,
    OP_WIN_TEST = 74,
    OP_TEST = 75,
    OP_TESTALL = 76,
    OP_TESTANY = 77,
    OP_TESTSOME = 78,
    OP_IPROBE = 79,
    OP_IMPROBE = 80,
    OP_FILE_READ_ALL = 81,
    OP_FILE_WRITE_ALL = 82,
    OP_FILE_READ_AT_ALL = 83,
    OP_FILE_WRITE_AT_ALL = 84,
    OP_FILE_READ_ORDERED = 85,
    OP_FILE_WRITE_ORDERED = 86,
    OP_FILE_READ_ALL_END = 87,
    OP_FILE_WRITE_ALL_END = 88,
    OP_FILE_READ_AT_ALL_END = 89,
    OP_FILE_WRITE_AT_ALL_END = 90,
    OP_FILE_READ_ORDERED_END = 91,
    OP_FILE_WRITE_ORDERED_END = 92,
    OP_FILE_SYNC = 93,
};

#endif

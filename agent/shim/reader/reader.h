/* The sidecar's side of rings: what is done with every record, called once a block with arrays that the caller owns.
 * A block is read and summed some points of all ranks at a time, which are in the core's own cache meanwhile.
 *
 * A ring is written by the application, which may scribble over it at any time. So positions are taken once from the
 * header and checked, records are copied by pread into memory of the caller before they are looked at, and a value of a
 * record is never an index before it is checked. Sums are of unsigned numbers: they may wrap, which is no error in C.
 */
#ifndef BAROGRAPH_READER_H
#define BAROGRAPH_READER_H

#include "ring.h"

#include <stddef.h>
#include <stdint.h>

#define READER_EXPORT __attribute__((visibility("default")))

#define MAX_NUMBER (UINT64_C(1) << 48) /* of anything that a program counts */
#define MAX_POINTS 8192u               /* sync points in a block; also limited to a quarter of a ring */
#define MAX_CLASSES 64u                /* classes that are summed; what further ones have is added to the one after them */
#define PAIR_SLOTS (4u * MAX_CLASSES)  /* of a hash table that is at most a quarter full; a power of two */

enum reader_status {
    READER_NOTHING = 0,     /* no block is complete */
    READER_BLOCK = 1,
    READER_POSITIONS = -1,  /* head and tail are inconsistent */
    READER_CUT = -2,        /* the file has fewer records than its header says */
    READER_VALUE = -3,      /* a record has a value that no program can have */
    READER_NUMBER = -4,     /* a record does not have the number that it must have */
    READER_TIMES = -5,      /* an interval ends before it begins */
};

/* One ring and the position from which on it is not read. */
struct member {
    struct ring_header *header; /* mapped */
    uint64_t records_at;        /* bytes from the begin of the file */
    uint64_t capacity;          /* records, a power of two */
    uint64_t started_ns;
    uint64_t position;
    uint64_t tail, head; /* as they were at the begin of a call: the header may change meanwhile */
    int64_t file;
};

/* Of one rank and one sync point, in nanoseconds, and what it has sent in the gap. */
struct point {
    int64_t enter, exit, gap, p2p;
    int64_t messages, message_bytes; /* of a step of a training: processor time, time of updates */
};

/* Of one sync point, over ranks. */
struct extremes {
    int64_t last_enter, second_enter; /* of the two ranks that came last */
    int64_t longest_gap, most_work, least_wait;
    uint64_t last; /* the rank */
};

/* Sums of one rank in a block, and the points at which it came last: how many, and how much later than the one before. */
struct rank_sums {
    int64_t own, wait, p2p, messages, message_bytes;
    int64_t arrivals, late;
};

/* The intervals between two call sites over a run; `own` is of each rank. The order is that of `reduce/phases.py`. */
#define BINS_OF_SIGN 30u /* of deviations in one direction: five decades, six in each */
#define BINS (2u * BINS_OF_SIGN + 1u)
struct class_sums {
    double count;
    double slowest, exchange, least_wait, p2p, wait;
    double bytes, messages, message_bytes;
    double bin_counts[BINS], bin_sums[BINS];
    double own[];
};

/* Sync points first..first+length-1 of the ranks of one node. */
struct block {
    struct member *members; /* (ranks) */
    uint64_t ranks;
    uint64_t max_points; /* of a block */
    uint64_t chunk;      /* points that the arrays have room for */
    uint64_t first, length;

    struct ring_record *records; /* (chunk + 1), scratch */
    struct point *points;        /* (ranks, chunk), scratch */
    struct extremes *extremes;   /* (chunk), scratch */
    uint32_t *seen;              /* (chunk), scratch: ranks that have a point */
    uint32_t *pair;              /* (chunk), scratch: number of the pair of call sites at the ends of the interval */
    int64_t *sizes;              /* (chunk), scratch: bytes of the collective, 0 if unknown */
    struct rank_sums *sums;      /* (ranks) */

    /* Of the run so far. */
    uint64_t *pairs;    /* (MAX_CLASSES) pairs of call sites: the one before times 2^32, plus the later one */
    uint32_t *table;    /* (PAIR_SLOTS) numbers of pairs plus 1, by their hash */
    void *classes;      /* (MAX_CLASSES + 1) struct class_sums of each pair, and of all further ones */
    double *edges;      /* (BINS_OF_SIGN) lower ends of bins, of deviations over the smallest one, ascending */
    uint64_t class_bytes; /* of each class */
    uint64_t pair_count;

    uint64_t is_training;
    uint64_t failed; /* which member has failed */

    uint64_t count; /* points that every rank has, of which only is what follows */
    int64_t least_wait;
    int64_t first_exit, last_exit; /* of rank 0 */
    int64_t last_bytes;
};

/* The names of operations by number, a line each: for whoever reads rings in another language. */
READER_EXPORT extern const char operation_names[];

/* How far the fullest tables of records and of iterations are filled, as shares, 0 of an inconsistent one. Returns the first
 * ring whose file was cut off before the end of its header, which shows zeros from then on, -1 if there is none. */
READER_EXPORT int64_t rings_look(const struct member *members, uint64_t count, double fullest[2]);

/* Read and sum the next block; a status. `is_final`: the run has ended. `is_first`: no block was read in this step, so it
 * is checked first whether any may be complete. Positions go on behind what was read. */
READER_EXPORT int block_read(struct block *block, int is_final, int is_first);

/* The length of a block that begins so many seconds after the begin of the run. */
READER_EXPORT double block_seconds(double age);

/* sums.c: add the first `count` points, those that every rank has. */
void sum_points(struct block *block, uint64_t count);

/* records.c: records begin..stop-1 of the ring, which must lie between its tail and head, checked. */
int read_records(const struct member *member, uint64_t begin, uint64_t stop, struct ring_record *records);

#endif

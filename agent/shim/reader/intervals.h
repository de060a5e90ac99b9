/* From the records of one rank to its intervals, and from these to blocks. Arrays are the caller's. */
#ifndef BAROGRAPH_INTERVALS_H
#define BAROGRAPH_INTERVALS_H

#include "reader.h"

#define ITERATION (UINT32_C(1) << 20) /* added to the site that ends an iteration, times the calls from there */

/* The tables of one rank from a position on, and what was read of them before. Iterations that are recalled have been made
 * before those of the table. */
struct intervals {
    const struct member *member;
    const struct ring_record *recalled; /* (recalled_count) */
    uint64_t recalled_count;
    int64_t recalled_before; /* of those before */
    uint64_t position, stop, head;      /* of records: where to begin, how far to read, and how many there are */
    uint64_t iteration_position, iteration_stop, iteration_head, iteration_limit; /* likewise; those that may be read */
    uint64_t iterations_at, iteration_capacity;
    uint64_t absorbs; /* collectives between iterations are no ends of intervals */
    uint64_t is_final;
    uint64_t slots; /* of the table */

    /* The record before, and what it comes to after the call, as do the positions. */
    uint64_t last_exit, last_site;
    int64_t last_collective, last_iteration, absorbed;

    /* `most` is the number of records up to both stops and the recalled ones. */
    struct ring_record *parts;   /* (most + 2), scratch */
    struct ring_record *records; /* (most) in the order of their ends */
    uint8_t *is_iteration;       /* (most) */
    int64_t *numbers;            /* (most) of each among its kind */
    uint32_t *pair;        /* (most) of each interval, the number of the pair of sites at its ends */
    uint32_t *place;       /* (most) the record that ends it */
    int64_t *index;        /* (most) */
    double *seconds;       /* (most) */
    int64_t *ended;        /* (most) nanoseconds */
    uint64_t *pairs;       /* (most) the site before times 2^32, plus the later one */
    uint32_t *first;       /* (most) the first interval of each pair */
    uint32_t *table;       /* (slots) scratch, zeros */
    uint64_t length;       /* records that were read, */
    uint64_t kept;         /* those of them that end an interval, */
    uint64_t count, lost;  /* and the intervals whose begins are known, and are not */
    uint64_t pair_count;
};

/* The next intervals; a status. */
READER_EXPORT int intervals_next(struct intervals *intervals);

/* Consecutive intervals of one class. */
struct interval_block {
    int64_t first_index, count;
    double sum, squares, cubes, least, most;
};

/* Columns of intervals in the order of their ends, and of the blocks to which they are reduced, in the same order. */
struct reduction {
    const uint64_t *class_ids; /* (length) */
    const int64_t *index;      /* (length) */
    const double *seconds, *ended; /* (length) */
    uint64_t length, rows;
    uint64_t slots;

    uint32_t *class_of;  /* (length) scratch: the number of the class */
    uint64_t *ids;       /* (length) scratch: of classes */
    uint64_t *counts;    /* (length) scratch: intervals of each class */
    uint64_t *positions; /* (length) scratch: of these, how many have come */
    struct interval_block *open; /* (length) scratch: the block of each class that is not complete */
    uint32_t *table;     /* (slots) scratch, zeros */
    uint64_t *class_id;  /* (length) from here on: of each row */
    int64_t *first_index, *count;
    double *sum_seconds, *sum_squares, *sum_cubes, *min_seconds, *max_seconds, *ended_at;
};

/* The number of rows: at least one for each class, else at most `rows`. Each class is divided into blocks of nearly equal
 * length, as many as its share; what a class with fewer intervals leaves is distributed to the others. */
READER_EXPORT uint64_t intervals_reduce(struct reduction *reduction);

#endif

/* Sizes of MPI datatypes. */
#ifndef BAROGRAPH_TYPES_H
#define BAROGRAPH_TYPES_H

#include <stdatomic.h>
#include <stdbool.h>

#include "resolve.h"

#define TYPES_REMEMBERED 16u
#define COUNT_UNKNOWN (-1)

struct types {
    word mask;                                                     /* the significant bits of a handle */
    int (*size)(word datatype, int *size);                         /* PMPI_Type_size */
    int (*envelope)(word datatype, int *, int *, int *, int *);    /* PMPI_Type_get_envelope */
    word (*f2c)(int datatype);                                     /* PMPI_Type_f2c, NULL if handles are the same */
    _Atomic uint64_t remembered[TYPES_REMEMBERED];                 /* size and handle of predefined types in one word */
};

void types_find(struct types *types, word mask, const void *caller);

/* count times the size of the datatype, RING_BYTES_UNKNOWN if unknown. Calls MPI, a local operation: once for a
 * predefined type, each time for others, whose handles may be freed and reused. */
uint64_t types_bytes(struct types *types, int64_t count, word datatype);

/* Sizes of types as a thread last found them, by handle. */
#define TYPES_RECENT 8u

struct types_recent {
    word datatype;
    uint64_t size;
};

/* The same, without asking again where a handle was freed and reused: for sums that need not be exact. Unknown sizes
 * are 0. `recent`: TYPES_RECENT places of this thread, of zeros at first. `fortran`: the handle is one of Fortran. */
uint64_t types_bytes_about(struct types *types, struct types_recent *recent, int64_t count, word datatype,
                           bool fortran);

#endif

/* Which sync points are the next block. Each function returns a status; of an error `failed` is the member. */
#ifndef BAROGRAPH_ALIGN_H
#define BAROGRAPH_ALIGN_H

#include "reader.h"

/* Take tails and heads of all rings from their headers. */
int positions_take(struct block *block);

/* A fast check of one ring, and of whether any is half full: usually no block is complete. */
int may_be_due(struct block *block);

/* Advance all positions to the next sync point that every ring has, which is then `first`. */
int align(struct block *block);

/* The length of the block that begins at `first`, if it is complete. */
int block_length(struct block *block, int is_final);

#endif

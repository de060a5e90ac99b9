/* Which ranks of the world record. */
#ifndef BAROGRAPH_RANKS_H
#define BAROGRAPH_RANKS_H

#include <stdbool.h>

/* Whether a list such as "0,4-7", or "all", names this rank. No list, or one that is none, names rank 0. */
bool ranks_name(const char *list, int rank);

#endif

/* Selection of the ranks that record. */
#ifndef BAROGRAPH_RANKS_H
#define BAROGRAPH_RANKS_H

#include <stdbool.h>

/* Whether a list such as "0,4-7", or "all", contains this rank. No list or an invalid one contains rank 0. */
bool ranks_name(const char *list, int rank);

#endif

/* The number of an MPI launch within a run: the same for all of its ranks, on all nodes. */
#ifndef BAROGRAPH_LAUNCH_H
#define BAROGRAPH_LAUNCH_H

#include <stdint.h>

/* Launches of a run that are numbered. */
#define LAUNCH_LIMIT 1024u

/* The number of the launch that this process is part of, plus 1; 0 if it is not known. */
uint32_t launch_number(void);

#endif

/* The command line of this process, as it was when the shim was loaded: a program may put a title in its place. */
#ifndef BAROGRAPH_COMMAND_H
#define BAROGRAPH_COMMAND_H

#include "ring.h"

/* Writes it into a header; nothing where it is longer than its place there. */
void command_copy(struct ring_header *header);

#endif

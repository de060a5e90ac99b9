/* The sidecar of a node that has none: started by the first rank there that initializes MPI. */
#ifndef BAROGRAPH_COMPANION_H
#define BAROGRAPH_COMPANION_H

/* Where `directory`, that of rings, does not exist and BAROGRAPH_SIDECAR names a Python: creates it, and starts a
 * sidecar for it. Of several processes that call this at once, one does. The sidecar is no child of the process, has
 * none of its descriptors, and its start and end send no signal. If it cannot be started, the directory is removed. */
void companion_start(const char *directory);

#endif

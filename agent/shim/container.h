/* Container runtimes: LD_PRELOAD goes into the container, the library may not, and the dynamic linker would say so in the
 * output of each process there. */
#ifndef BAROGRAPH_CONTAINER_H
#define BAROGRAPH_CONTAINER_H

#define CONTAINER_SUFFIX ".container" /* ends the name of an empty file beside the rings: this runtime hides the shim */

/* To be called when the shim is loaded, with the words and variables of the process. In a container runtime LD_PRELOAD
 * then names a copy of the library beside the rings, if these are visible in the container, or the library no more. */
void container_enter(char **words, char **variables);

#endif

/* Optimizer steps of a training program: recorded by the hook in its interpreter, `barograph_agent/training/hook`. */
#ifndef BAROGRAPH_TRAINING_H
#define BAROGRAPH_TRAINING_H

#include <stdint.h>

/* Starts recording if BAROGRAPH_RING_DIR names a directory and BAROGRAPH_RANKS contains this worker. `rank`, `size`: of
 * the workers; 0 and 1 for one that is alone. Returns whether steps are recorded. To be called once. */
int barograph_training_start(int rank, int size);

/* One step, in nanoseconds of CLOCK_MONOTONIC. `name`: of its site. `enter`: when this worker's own gradients were
 * complete; `exit`: when those of all workers were reduced. `elsewhere`: time in other collectives since the previous
 * step. `updated`: time since then in which parameters were updated, 0 if unknown. */
void barograph_training_step(const char *name, uint64_t enter, uint64_t exit, uint64_t elsewhere, uint64_t updated);

#endif

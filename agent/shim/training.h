/* Optimizer steps of a training program: recorded by the hook in its interpreter, `barograph_agent/training`. */
#ifndef BAROGRAPH_TRAINING_H
#define BAROGRAPH_TRAINING_H

#include <stdint.h>

/* Starts recording if BAROGRAPH_RING_DIR names a directory and BAROGRAPH_RANKS contains this worker. `rank`, `size`: of
 * the workers; 0 and 1 for one that is alone. Returns whether steps are recorded. To be called once. */
int barograph_training_start(int rank, int size);

/* One step; times in nanoseconds, the first two of CLOCK_MONOTONIC. `enter`: when this worker's own gradients were
 * complete; `exit`: when those of all workers were reduced. Since the previous step: `elsewhere`, time in other
 * collectives; `cpu`, processor time of own work; `updated`, time in which parameters were updated, 0 if unknown.
 * `bytes`: of the parameters. `name`: of the site. */
struct training_step {
    uint64_t enter, exit, elsewhere, cpu, updated, bytes;
    const char *name;
};

void barograph_training_step(const struct training_step *step);

#endif

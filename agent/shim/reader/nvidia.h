/* Accelerators of NVIDIA, by the library of their driver (NVML). */
#ifndef BAROGRAPH_NVIDIA_H
#define BAROGRAPH_NVIDIA_H

#include "reader.h"

/* NaN where unknown. Of those that are not idle, but for errors. */
struct accelerators {
    double clock_hz; /* the lowest */
    double limited;  /* the share whose clock heat or a fault of power limits */
    double celsius;  /* the highest */
    double errors;   /* uncorrected errors of memory, and Xids, since the last call */
};

/* Asks all accelerators, which may take long, the first time most of all; for one thread. -1 where there are none. */
READER_EXPORT int nvidia_ask(const char *library, struct accelerators *found);
#endif

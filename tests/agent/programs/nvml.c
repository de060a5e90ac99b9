/* The driver's library of NVIDIA, as far as it is asked: three accelerators, of which one is idle, and one that fails. */
#include <stdlib.h>
#include <string.h>
typedef unsigned long long u64;
static int calls; /* of each kind, as one round after another */
int nvmlInit_v2(void) { return getenv("NVML_FAILS") ? 9 : 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 4; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned at, void **one) { *one = (void *)(u64)(at + 1); return at == 3; }
int nvmlDeviceGetClockInfo(void *one, int kind, unsigned *mhz) { *mhz = kind == 1 ? 2000 - 300 * (u64)one : 1; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *one, u64 *why) { *why = (u64[]){4, 0x40, 1}[(u64)one - 1]; return 0; }
int nvmlDeviceGetTemperature(void *one, int kind, unsigned *heat) { *heat = 70 + 10 * (u64)one; return kind; }
int nvmlDeviceGetTotalEccErrors(void *one, int kind, int since, u64 *n) {
    *n = kind == 1 && !since ? 5 + (one == (void *)1 && calls++) : 99; return one == (void *)3 ? 3 : 0; }
int nvmlEventSetCreate(void **set) { *set = &calls; return 0; }
int nvmlDeviceRegisterEvents(void *one, u64 kinds, void *set) { return kinds != 8; }
int nvmlEventSetWait_v2(void *set, void *event, unsigned ms) { static int left = 2; memset(event, 1, 32); return left-- > 0 ? 0 : 10; }

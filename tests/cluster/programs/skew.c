/* A clock that others set: preloaded, it adds the seconds in the file /run/skew, one double, to CLOCK_REALTIME. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>

static int (*real)(clockid_t, struct timespec *);
static volatile double *seconds;

__attribute__((constructor)) static void begin(void)
{
    int file = open("/run/skew", O_RDONLY);
    void *found = mmap(0, sizeof(double), PROT_READ, MAP_SHARED, file, 0);
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (found != MAP_FAILED)
        seconds = found;
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    if (!real)
        begin();
    int status = real(clock, at);
    if (clock == CLOCK_REALTIME && seconds)
        at->tv_sec += (time_t)*seconds;
    return status;
}

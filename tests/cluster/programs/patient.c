/* Preloaded into ranks that are more than the cores: an MPI that looks for messages without end sleeps until one is
 * there, at most a millisecond, and leaves the core to others. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/epoll.h>

int epoll_wait(int set, struct epoll_event *events, int most, int milliseconds)
{
    static int (*real)(int, struct epoll_event *, int, int);
    if (!real)
        real = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
    return real(set, events, most, milliseconds ? milliseconds : 1);
}

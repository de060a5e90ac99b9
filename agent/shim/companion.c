#define _GNU_SOURCE
#include "companion.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK_BYTES (64u * 1024u)
#define MAX_DESCRIPTORS 65536 /* closed one by one where the kernel has no close_range() */

extern char **environ;

/* $1: the interpreter, $2: the directory of rings. A sidecar that was killed is started again, and one more for rings
 * that came while it ended; rings that nobody will read are removed. */
static const char SCRIPT[] = "export OPENBLAS_NUM_THREADS=1; for seconds in 1 5 20; do"
                             " \"$1\" -P -m barograph_agent.sidecar.main --companion \"$2\" && exit;"
                             " [ -d \"$2\" ] || exit; sleep \"$seconds\"; done; rm -rf \"$2\"";

struct start {
    char **arguments;
    char **environment;
    char *stack; /* of `run` */
    volatile bool failed;
};

static void close_descriptors(void)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, 3u, ~0u, 0u) == 0)
        return;
#endif
    long limit = sysconf(_SC_OPEN_MAX);
    for (int file = 3; file < (limit > 0 && limit < MAX_DESCRIPTORS ? limit : MAX_DESCRIPTORS); file++)
        close(file);
}

/* Shares the memory of the application until exec: no locks, no allocator. All signals are blocked. */
static int run(void *argument)
{
    struct start *start = argument;
    struct sigaction usual = {.sa_handler = SIG_DFL};
    for (int number = 1; number < NSIG; number++)
        sigaction(number, &usual, NULL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    close_descriptors();
    int nothing = open("/dev/null", O_RDWR);
    for (int file = 0; file < 3; file++)
        dup2(nothing, file);
    if (nothing > 2)
        close(nothing);
    if (chdir("/") == 0)
        execve(start->arguments[0], start->arguments, start->environment);
    start->failed = true;
    _exit(127);
}

/* Between the application and the sidecar: its end leaves the sidecar to init, or to a subreaper. */
static int detach(void *argument)
{
    struct start *start = argument;
    if (clone(run, start->stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | SIGCHLD, start) < 0)
        start->failed = true;
    _exit(0);
}

static bool is_for_ranks(const char *variable)
{
    static const char *const names[] = {"LD_PRELOAD=", "BAROGRAPH_RING_DIR="};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strncmp(variable, names[i], strlen(names[i])) == 0)
            return true;
    }
    return false;
}

/* Without what would load this library into the sidecar, and what marks the processes of the run. Allocated; NULL if
 * there is no memory. */
static char **sidecar_environment(void)
{
    size_t count = 0;
    while (environ && environ[count])
        count++;
    char **copy = malloc((count + 1) * sizeof *copy);
    size_t kept = 0;
    for (size_t i = 0; copy && i < count; i++) {
        if (!is_for_ranks(environ[i]))
            copy[kept++] = environ[i];
    }
    if (copy)
        copy[kept] = NULL;
    return copy;
}

/* Without a signal at its end the process between is invisible to a wait() of the application, and no handler of it
 * runs. Memory is shared, not copied: a fork of a process with registered memory is slow, or forbidden. */
static bool launch(struct start *start)
{
    char *stacks = mmap(NULL, 2 * STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stacks == MAP_FAILED)
        return false;
    start->stack = stacks + STACK_BYTES;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int child = clone(detach, stacks + STACK_BYTES, CLONE_VM | CLONE_VFORK, start);
    if (child >= 0)
        waitpid(child, NULL, __WCLONE);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    munmap(stacks, 2 * STACK_BYTES);
    return child >= 0 && !start->failed;
}

static bool is_own(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

static bool make_parent(const char *directory)
{
    char parent[PATH_MAX];
    const char *end = strrchr(directory, '/');
    if (!end || end == directory || (size_t)(end - directory) >= sizeof parent)
        return false;
    memcpy(parent, directory, (size_t)(end - directory));
    parent[end - directory] = '\0';
    return mkdir(parent, 0700) == 0 || (errno == EEXIST && is_own(parent));
}

void companion_start(const char *directory)
{
    const char *python = getenv("BAROGRAPH_SIDECAR");
    if (!python || python[0] != '/' || access(directory, F_OK) == 0 || access(python, X_OK) != 0)
        return;
    if (!make_parent(directory) || mkdir(directory, 0700) != 0)
        return;
    char *arguments[] = {"/bin/sh", "-c", (char *)SCRIPT, "barograph", (char *)python, (char *)directory, NULL};
    struct start start = {.arguments = arguments, .environment = sidecar_environment()};
    if (!start.environment || !launch(&start))
        rmdir(directory);
    free(start.environment);
}

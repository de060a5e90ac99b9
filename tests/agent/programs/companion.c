/* companion - MPI_Init, then half a second in which a child of this process could end. Prints what it has noticed:
 * signals about children, what wait() has to give, and whether the signal mask is the one from before. */
#include <errno.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>

static volatile sig_atomic_t signals;

static void count(int number)
{
    (void)number;
    signals++;
}

int main(int argc, char **argv)
{
    sigset_t before, after;
    signal(SIGCHLD, count);
    sigprocmask(SIG_SETMASK, NULL, &before);
    sigaddset(&before, SIGUSR2);
    sigprocmask(SIG_SETMASK, &before, NULL);
    MPI_Init(&argc, &argv);
    sigprocmask(SIG_SETMASK, NULL, &after);
    struct timespec half = {0, 500000000};
    nanosleep(&half, NULL);
    int found = waitpid(-1, NULL, WNOHANG);
    printf("signals %d wait %d %s mask %s\n", (int)signals, found, errno == ECHILD ? "ECHILD" : "other",
           sigismember(&after, SIGUSR2) == 1 && sigismember(&after, SIGUSR1) == 0 ? "kept" : "changed");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}

#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VARIABLE "BAROGRAPH_LAUNCH"

/* Without the name of an implementation, as in mpiexec.hydra. */
static bool is_launcher(const char *program)
{
    static const char *const names[] = {"mpiexec", "mpirun", "orterun", "prterun", "prun", "srun", "aprun", "jsrun", "flux"};
    size_t length = strcspn(program, ".");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strlen(names[i]) == length && strncmp(program, names[i], length) == 0)
            return true;
    }
    return false;
}

/* Creates the file of the first number that is free, in the run's directory on the launcher's node; LAUNCH_LIMIT if there
 * is none. */
static unsigned claim(const char *directory)
{
    char path[PATH_MAX];
    for (unsigned number = 0; number < LAUNCH_LIMIT; number++) {
        int length = snprintf(path, sizeof path, "%s/launch-%u", directory, number);
        if (length < 0 || (size_t)length >= sizeof path)
            break;
        int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (file >= 0) {
            close(file);
            return number;
        }
        if (errno != EEXIST)
            break;
    }
    return LAUNCH_LIMIT;
}

/* In a launcher of MPI programs, which passes on its environment. One below another has that one's number. */
__attribute__((constructor)) static void note_launch(void)
{
    const char *directory = getenv("BAROGRAPH_RING_DIR");
    if (!directory || !getenv("BAROGRAPH_SIDECAR") || getenv(VARIABLE) || !is_launcher(program_invocation_short_name))
        return;
    int saved = errno;
    char text[16];
    unsigned number = claim(directory);
    if (number < LAUNCH_LIMIT && snprintf(text, sizeof text, "%u", number) > 0)
        setenv(VARIABLE, text, 0);
    errno = saved;
}

uint32_t launch_number(void)
{
    const char *text = getenv(VARIABLE);
    char *end = NULL;
    unsigned long number = text ? strtoul(text, &end, 10) : LAUNCH_LIMIT;
    return text && *text && !*end && number < LAUNCH_LIMIT ? (uint32_t)number + 1 : 0;
}

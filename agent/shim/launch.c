#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VARIABLE "BAROGRAPH_LAUNCH"
#define LIST "OMPI_MCA_mca_base_env_list" /* of Open MPI: names of variables for ranks on other nodes */
#define MAX_TEXT 16384u                   /* of a command line, and of a parameter file */

extern char **environ;

/* Those that may be Open MPI's first. */
static const char *const LAUNCHERS[] = {"mpiexec", "mpirun", "orterun", "prterun", "prun", "srun", "aprun", "jsrun", "flux"};
#define ALL_LAUNCHERS (sizeof LAUNCHERS / sizeof *LAUNCHERS)
#define OPENMPI_LAUNCHERS 4u

/* Whether this program is one of the first launchers, without the name of an implementation, as in mpiexec.hydra. */
static bool is_launcher(size_t count)
{
    const char *program = program_invocation_short_name;
    size_t length = strcspn(program, ".");
    for (size_t i = 0; i < count; i++) {
        if (strlen(LAUNCHERS[i]) == length && strncmp(program, LAUNCHERS[i], length) == 0)
            return true;
    }
    return false;
}

/* The first MAX_TEXT bytes of a file, and a zero byte; their number, 0 if it cannot be read. */
static size_t read_text(const char *path, char *text)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t length = 0;
    ssize_t count = 0;
    while (file >= 0 && length < MAX_TEXT && (count = read(file, text + length, MAX_TEXT - length)) > 0)
        length += (size_t)count;
    if (file >= 0)
        close(file);
    text[length] = '\0';
    return length;
}

/* Whether a line that is no comment of a parameter file sets LIST. */
static bool names_list(const char *text)
{
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        line += strspn(line, " \t");
        if (strncmp(line, "mca_base_env_list", 17) == 0)
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

/* Whether a word of this process's command line, or a parameter file of Open MPI, has it pass on variables: `-x` and
 * LIST at once are an error, and LIST in the environment replaces that of a file. True where that cannot be read. */
static bool has_own_list(void)
{
    static const char *const options[] = {"x", "tune", "app", "am"};
    char text[MAX_TEXT + 1];
    size_t length = read_text("/proc/self/cmdline", text);
    if (length == 0 || length == MAX_TEXT || getenv("OMPI_MCA_mca_base_envar_file_prefix"))
        return true;
    for (const char *word = text; word < text + length; word += strlen(word) + 1) {
        if (strstr(word, "mca_base_env_list"))
            return true;
        for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
            if (*word == '-' && strcmp(word + 1 + (word[1] == '-'), options[i]) == 0)
                return true;
        }
    }
    const char *home = getenv("HOME");
    char path[PATH_MAX], program[PATH_MAX];
    ssize_t bytes = readlink("/proc/self/exe", program, sizeof program - 1);
    program[bytes > 0 ? bytes : 0] = '\0';
    const struct {
        const char *folder, *file;
    } files[] = {
        {home ? home : "", "/.openmpi/mca-params.conf"},
        {dirname(program), "/../etc/openmpi-mca-params.conf"},
        {"/etc/openmpi", "/openmpi-mca-params.conf"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        int written = snprintf(path, sizeof path, "%s%s", files[i].folder, files[i].file);
        if (written > 0 && (size_t)written < sizeof path && read_text(path, text) > 0 && names_list(text))
            return true;
    }
    return false;
}

/* Has Open MPI pass on what ranks on other nodes need; other launchers pass on their whole environment. A launcher in a
 * rank inherits the list of the one above. */
static void forward_variables(void)
{
    const char *given = getenv(LIST);
    if (given && !strstr(given, "BAROGRAPH_RING_DIR"))
        return;
    if (has_own_list()) {
        unsetenv(LIST);
        return;
    }
    char names[MAX_TEXT];
    size_t used = 0;
    for (char **variable = environ; *variable; variable++) {
        size_t length = strcspn(*variable, "=");
        bool is_own = strncmp(*variable, "BAROGRAPH_", 10) == 0 || strncmp(*variable, "LD_PRELOAD=", 11) == 0;
        if (!is_own || used + length + 2 > sizeof names)
            continue;
        if (used)
            names[used++] = ';';
        memcpy(names + used, *variable, length);
        used += length;
    }
    names[used] = '\0';
    setenv(LIST, names, 1);
}

/* In a launcher of MPI programs, which passes on its environment. One below another has that one's number. */
__attribute__((constructor)) static void note_launch(void)
{
    const char *directory = getenv("BAROGRAPH_RING_DIR");
    if (!directory || !getenv("BAROGRAPH_SIDECAR") || !is_launcher(ALL_LAUNCHERS))
        return;
    int saved = errno;
    char text[16];
    unsigned number = getenv(VARIABLE) ? LAUNCH_LIMIT : claim(directory);
    if (number < LAUNCH_LIMIT && snprintf(text, sizeof text, "%u", number) > 0)
        setenv(VARIABLE, text, 0);
    if (is_launcher(OPENMPI_LAUNCHERS))
        forward_variables();
    errno = saved;
}

uint32_t launch_number(void)
{
    const char *text = getenv(VARIABLE);
    char *end = NULL;
    unsigned long number = text ? strtoul(text, &end, 10) : LAUNCH_LIMIT;
    return text && *text && !*end && number < LAUNCH_LIMIT ? (uint32_t)number + 1 : 0;
}

/* The `barograph` command: its Python, which is beside it, isolated. PYTHONPATH, PYTHONHOME and the user's site-packages
 * are for the programs that it watches. No shell: one says something in a folder that was deleted, and sets variables. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAILED 127

int main(int argc, char **argv)
{
    static const char NAME[] = "python3";
    char python[PATH_MAX + sizeof NAME] = "";
    ssize_t length = readlink("/proc/self/exe", python, PATH_MAX);
    char *slash = length > 0 ? strrchr(python, '/') : NULL;
    strcpy(slash ? slash + 1 : python, NAME);
    char **words = calloc((size_t)argc + 4, sizeof *words);
    if (!words)
        return FAILED;
    char *first[] = {python, "-I", "-m", "barograph"};
    memcpy(words, first, sizeof first);
    for (int i = 1; i < argc; i++)
        words[i + 3] = argv[i];
    execv(python, words);
    execvp(words[0] = (char *)NAME, words);
    fprintf(stderr, "barograph: %s: %s, expected the Python that Barograph is installed in\n", python, strerror(errno));
    return FAILED;
}

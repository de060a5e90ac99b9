#define _GNU_SOURCE
#include "container.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "companion.h"
#include "memory.h"

#define LIBRARY "/libbarograph.so"
#define PRELOAD "LD_PRELOAD="

/* A process of a container with an older C library would end where the shim asks for a newer one. That of wheels is built
 * for an old one; RHEL 8 has 2.28. */
#ifndef MAX_GLIBC_MINOR
#define MAX_GLIBC_MINOR 28
#endif
#ifdef __GLIBC__
#define IS_PORTABLE (__GLIBC_MINOR__ <= MAX_GLIBC_MINOR)
#else
#define IS_PORTABLE false
#endif

enum rule {
    HIDES,              /* nothing of the node's /dev is in the container, as far as is known */
    SHOWS_UNLESS_WORDS, /* its /dev is there, but for these words */
    SHOWS_WITH_WORDS,
    HIDES_WITH_WORDS /* is no container runtime without these words */
};

static const struct runtime {
    const char *name;
    enum rule rule;
    const char *words[8]; /* whole, or the begin of one with a value */
} RUNTIMES[] = {
    {"ch-run", SHOWS_UNLESS_WORDS, {NULL}},
    {"apptainer", SHOWS_UNLESS_WORDS, {"-c", "-C", "--contain", "--containall", "--no-mount", "-e", "--cleanenv"}},
    {"singularity", SHOWS_UNLESS_WORDS, {"-c", "-C", "--contain", "--containall", "--no-mount", "-e", "--cleanenv"}},
    {"bwrap", SHOWS_WITH_WORDS, {"--dev-bind"}},
    {"srun", HIDES_WITH_WORDS, {"--container-image", "--container-name"}},
    {"podman", HIDES, {NULL}},
    {"docker", HIDES, {NULL}},
    {"shifter", HIDES, {NULL}},
    {"sarus", HIDES, {NULL}},
};

static bool has_words(const struct runtime *runtime, char **words)
{
    for (; *words; words++)
        for (size_t i = 0; i < sizeof runtime->words / sizeof *runtime->words && runtime->words[i]; i++) {
            size_t length = strlen(runtime->words[i]);
            if (strncmp(*words, runtime->words[i], length) == 0 && ((*words)[length] == '\0' || (*words)[length] == '='))
                return true;
        }
    return false;
}

/* Whether such a word is followed by a source and by the destination / or /dev. */
static bool binds_devices(const struct runtime *runtime, char **words)
{
    for (; words[0] && words[1] && words[2]; words++)
        if (strcmp(words[0], runtime->words[0]) == 0 && (strcmp(words[2], "/") == 0 || strcmp(words[2], "/dev") == 0))
            return true;
    return false;
}

static const struct runtime *find_runtime(char **words)
{
    for (size_t i = 0; i < sizeof RUNTIMES / sizeof *RUNTIMES; i++)
        if (strcmp(program_invocation_short_name, RUNTIMES[i].name) == 0)
            return RUNTIMES[i].rule == HIDES_WITH_WORDS && !has_words(&RUNTIMES[i], words) ? NULL : &RUNTIMES[i];
    return NULL;
}

/* Whether processes in the container see the directory of rings, and can load the library there. */
static bool shows(const struct runtime *runtime, char **words, const char *directory)
{
    if (!IS_PORTABLE || strncmp(directory, "/dev/shm/", 9) != 0)
        return false;
    return (runtime->rule == SHOWS_UNLESS_WORDS && !has_words(runtime, words)) ||
           (runtime->rule == SHOWS_WITH_WORDS && binds_devices(runtime, words));
}

/* Whether a library can be loaded from there, and leaves room to the program, as rings do. */
static bool has_room(int library, const char *directory)
{
    struct statvfs place;
    int folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    off_t bytes = lseek(library, 0, SEEK_END);
    bool room = folder >= 0 && fstatvfs(folder, &place) == 0 && !(place.f_flag & ST_NOEXEC) && bytes > 0 &&
                (uint64_t)bytes <= memory_share(folder, 1) && lseek(library, 0, SEEK_SET) == 0;
    if (folder >= 0)
        close(folder);
    return room;
}

static bool copy_bytes(int from, int to)
{
    char buffer[16384];
    ssize_t got;
    while ((got = read(from, buffer, sizeof buffer)) > 0)
        if (write(to, buffer, (size_t)got) != got)
            return false;
    return got == 0;
}

/* Processes may do so at once: a file with the name is complete. */
static bool copy(const char *path, const char *directory, const char *target)
{
    char draft[PATH_MAX];
    int length = snprintf(draft, sizeof draft, "%s.%ld.tmp", target, (long)getpid());
    if (access(target, R_OK) == 0)
        return true;
    if (length < 0 || (size_t)length >= sizeof draft)
        return false;
    int from = open(path, O_RDONLY | O_CLOEXEC), to = -1;
    if (from >= 0 && has_room(from, directory))
        to = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0700);
    bool copied = to >= 0 && copy_bytes(from, to);
    if (from >= 0)
        close(from);
    if (to >= 0)
        copied = close(to) == 0 && copied && rename(draft, target) == 0;
    if (to >= 0 && !copied)
        unlink(draft);
    return copied;
}

/* The variable of this name. */
static char **find(char **variables, const char *name)
{
    for (; *variables; variables++)
        if (strncmp(*variables, name, strlen(name)) == 0)
            return variables;
    return NULL;
}

/* Puts another word in the place of the shim's, or none. The array of the process itself is changed, which runtimes in Go
 * read too, and no place in it is lost. */
static void exchange(char **variable, const char *at, size_t length, const char *word)
{
    static char text[8192];
    int made = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - *variable), *variable, word, at + length);
    if (made == (int)strlen(PRELOAD) || made < 0 || (size_t)made >= sizeof text)
        snprintf(text, sizeof text, "BAROGRAPH_CONTAINER=%s", program_invocation_short_name);
    *variable = text;
}

static void leave_mark(const char *directory)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s" CONTAINER_SUFFIX, directory, program_invocation_short_name);
    int file = length > 0 && (size_t)length < sizeof path ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    if (file >= 0)
        close(file);
}

void container_enter(char **words, char **variables)
{
    char **directory = find(variables, "BAROGRAPH_RING_DIR="), **preload = find(variables, PRELOAD);
    const struct runtime *runtime = directory && preload ? find_runtime(words) : NULL;
    char *name = runtime ? strstr(*preload, LIBRARY) : NULL, path[PATH_MAX], target[PATH_MAX];
    if (!name)
        return;
    int saved = errno;
    char *begin = name, *end = name + strlen(LIBRARY);
    while (begin[-1] != ' ' && begin[-1] != ':' && begin[-1] != '=')
        begin--;
    const char *rings = strchr(*directory, '=') + 1;
    snprintf(path, sizeof path, "%.*s", (int)(end - begin), begin);
    int length = snprintf(target, sizeof target, "%s" LIBRARY, rings);
    companion_start(rings);
    bool shown = shows(runtime, words, rings) && (size_t)length < sizeof target && copy(path, rings, target);
    if (!shown)
        leave_mark(rings);
    exchange(preload, begin, (size_t)(end - begin), shown ? target : "");
    errno = saved;
}

#include "command.h"

#include <string.h>

#include "container.h"

static char line[RING_COMMAND_BYTES];
static uint32_t length;

extern const char *gnu_get_libc_version(void) __attribute__((weak));

static void note_command(int argc, char **argv, char **variables)
{
    if (!gnu_get_libc_version)
        return; /* musl calls it without arguments */
    container_enter(argv, variables);
    for (int i = 0; i < argc && argv[i]; i++) {
        size_t bytes = strlen(argv[i]) + 1;
        if (bytes > sizeof line - length) {
            length = 0;
            return;
        }
        memcpy(line + length, argv[i], bytes);
        length += (uint32_t)bytes;
    }
}

/* glibc calls it with the arguments and variables of main(), before any other code of the program runs. A constructor would be merged
 * with others at link time, and be called without arguments. */
__attribute__((section(".init_array"), used)) static void (*const first)(int, char **, char **) = note_command;

void command_copy(struct ring_header *header)
{
    memcpy(header->command, line, length);
    header->command_bytes = length;
}

#include "ranks.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Parses "4" or "4-7" and advances past it. */
static bool read_range(const char **text, long *first, long *last)
{
    char *end;
    if (!isdigit((unsigned char)**text))
        return false;
    *first = *last = strtol(*text, &end, 10);
    if (*end == '-' && isdigit((unsigned char)end[1]))
        *last = strtol(end + 1, &end, 10);
    *text = end;
    return true;
}

bool ranks_name(const char *list, int rank)
{
    bool named = false;
    if (!list || !*list)
        return rank == 0;
    if (strcmp(list, "all") == 0)
        return true;
    for (;; list++) {
        long first, last;
        if (!read_range(&list, &first, &last))
            return rank == 0;
        named |= first <= rank && rank <= last;
        if (*list != ',')
            return *list ? rank == 0 : named;
    }
}

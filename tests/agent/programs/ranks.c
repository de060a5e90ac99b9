/* ranks LIST RANK - prints 1 if the list contains the rank, else 0. "-": no list. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    printf("%d\n", ranks_name(strcmp(argv[1], "-") ? argv[1] : NULL, atoi(argv[2])));
    return 0;
}

/* Sizes of types without MPI: a library with a predefined type 0x4c00080b of 8 bytes and a derived one, 0x8c000000, whose
 * size changes, as handles are reused for new types. Prints for each call the bytes, and the number of calls of the
 * library for a size. */
#include <stdio.h>

#include "types.h"

static int asked, derived_size;

static int size_of(word datatype, int *size)
{
    asked++;
    *size = datatype == 0x4c00080b ? 8 : derived_size;
    return datatype == 0x4c00080b || datatype == 0x8c000000 ? 0 : 3;
}

static int envelope_of(word datatype, int *integers, int *addresses, int *datatypes, int *combiner)
{
    *integers = *addresses = *combiner = 0;
    *datatypes = datatype != 0x4c00080b;
    return 0;
}

int main(void)
{
    static struct types types = {.mask = 0xffffffff, .size = size_of, .envelope = envelope_of};
    struct { int64_t count; word datatype; int size; } calls[] = {
        {3, 0x4c00080b, 0}, {4, 0x4c00080b | (word)7 << 32, 0}, /* an int in a register with an undefined upper half */
        {2, 0x8c000000, 5}, {2, 0x8c000000, 6},
        {0, 0x4c00080b, 0}, {COUNT_UNKNOWN, 0x4c00080b, 0}, {1, 0x12345678, 0},
        {(int64_t)1 << 40, 0x4c00080b, 0},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        derived_size = calls[i].size;
        printf("%lld ", (long long)types_bytes(&types, calls[i].count, calls[i].datatype));
        printf("%d\n", asked);
    }
    return 0;
}

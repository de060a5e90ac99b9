/* Numbers of distinct keys in the order in which they come; of those after the first `most` it is `most`. The table has a
 * power of two of slots, a quarter of them used at most, and is cleared by the caller; a slot has a number plus 1. */
#ifndef BAROGRAPH_PAIRS_H
#define BAROGRAPH_PAIRS_H

#include <stdint.h>

#define HASH_FACTOR UINT64_C(0x9e3779b97f4a7c15) /* 2^64 over the golden ratio: Knuth, TAOCP 3, 6.4 */

static inline uint32_t key_number(uint64_t key, uint64_t *keys, uint64_t *count, uint64_t most, uint32_t *table, uint32_t slots) {
    uint32_t slot = (uint32_t)((key * HASH_FACTOR) >> 32) & (slots - 1);
    for (; table[slot]; slot = (slot + 1) & (slots - 1))
        if (keys[table[slot] - 1] == key)
            return table[slot] - 1;
    if (*count == most)
        return (uint32_t)most;
    keys[*count] = key;
    table[slot] = (uint32_t)++*count;
    return table[slot] - 1;
}

#endif

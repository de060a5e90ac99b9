/* Blocks of consecutive intervals of one class, within a budget of rows. */
#include "intervals.h"

#include "pairs.h"

/* The largest limit of rows per class, at least 1, with which all classes have `rows` at most. */
static uint64_t share_of(const uint64_t *counts, uint64_t classes, uint64_t rows, uint64_t length) {
    uint64_t low = 1, high = length;
    while (low < high) {
        uint64_t limit = low + (high - low + 1) / 2, sum = 0;
        for (uint64_t c = 0; c < classes; c++)
            sum += counts[c] < limit ? counts[c] : limit;
        if (sum <= rows)
            low = limit;
        else
            high = limit - 1;
    }
    return low;
}

static void add_interval(struct interval_block *block, int64_t index, double seconds) {
    if (!block->count)
        *block = (struct interval_block){.first_index = index, .least = seconds, .most = seconds};
    block->count++;
    block->sum += seconds, block->squares += seconds * seconds, block->cubes += seconds * seconds * seconds;
    block->least = seconds < block->least ? seconds : block->least;
    block->most = seconds > block->most ? seconds : block->most;
}

static void write_row(struct reduction *to, uint64_t row, uint64_t last, struct interval_block *block) {
    to->class_id[row] = to->class_ids[last], to->ended_at[row] = to->ended[last];
    to->first_index[row] = block->first_index, to->count[row] = block->count;
    to->sum_seconds[row] = block->sum, to->sum_squares[row] = block->squares, to->sum_cubes[row] = block->cubes;
    to->min_seconds[row] = block->least, to->max_seconds[row] = block->most;
    block->count = 0;
}

uint64_t intervals_reduce(struct reduction *to) {
    uint64_t classes = 0, rows = 0;
    for (uint64_t at = 0; at < to->length; at++) {
        uint64_t before = classes;
        uint32_t number = key_number(to->class_ids[at], to->ids, &classes, to->length, to->table, (uint32_t)to->slots);
        if (classes > before)
            to->counts[number] = to->positions[number] = 0, to->open[number].count = 0;
        to->counts[number]++;
        to->class_of[at] = number;
    }
    uint64_t share = share_of(to->counts, classes, to->rows, to->length);
    for (uint64_t at = 0; at < to->length; at++) {
        uint32_t number = to->class_of[at];
        uint64_t count = to->counts[number], blocks = count < share ? count : share, next = ++to->positions[number];
        add_interval(&to->open[number], to->index[at], to->seconds[at]);
        if (next == count || next * blocks / count != (next - 1) * blocks / count)
            write_row(to, rows++, at, &to->open[number]);
    }
    return rows;
}

/* Sums of points: which rank came last, own work and waiting of all, and the same by class of intervals. */
#include "pairs.h"
#include "reader.h"

#include <math.h>
#include <string.h>

#define MAX_SAMPLED 4096u /* values of own work per block whose deviations are noted; of more, evenly spaced ones */
#define SMALLEST 1e-3     /* absolute deviation, as a share of the mean, below which all are in one bin */

static int64_t add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static int64_t subtract(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static int64_t own_work(const struct point *point) { return subtract(point->gap, point->p2p); }

static struct class_sums *class_of(const struct block *block, uint64_t number) {
    return (struct class_sums *)((char *)block->classes + number * block->class_bytes);
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Without branches: which rank comes last cannot be predicted. */
static void compare(struct extremes *extremes, const struct point *point, uint64_t rank) {
    int64_t own = own_work(point), wait = subtract(point->exit, point->enter), last = extremes->last_enter;
    int is_last = point->enter > last;
    extremes->second_enter = is_last ? last : larger(extremes->second_enter, point->enter);
    extremes->last_enter = is_last ? point->enter : last;
    extremes->last = is_last ? rank : extremes->last;
    extremes->longest_gap = larger(extremes->longest_gap, point->gap);
    extremes->most_work = larger(extremes->most_work, own);
    extremes->least_wait = wait < extremes->least_wait ? wait : extremes->least_wait;
}

static void add_class(struct rank_sums *sums, const struct rank_sums *of_class) {
    sums->own = add(sums->own, of_class->own), sums->wait = add(sums->wait, of_class->wait);
    sums->p2p = add(sums->p2p, of_class->p2p);
    sums->messages = add(sums->messages, of_class->messages);
    sums->message_bytes = add(sums->message_bytes, of_class->message_bytes);
}

/* One rank's points, by class. */
static void add_rank(struct block *block, uint64_t rank, uint64_t count) {
    const struct point *points = block->points + rank * block->chunk;
    struct rank_sums each[MAX_CLASSES + 1];
    uint64_t classes = block->pair_count + (block->pair_count == MAX_CLASSES);
    memset(each, 0, classes * sizeof *each);
    for (uint64_t at = 0; at < count; at++) {
        if (block->seen[at] != block->ranks)
            continue;
        const struct point *point = &points[at];
        struct rank_sums *sums = &each[block->pair[at]];
        sums->own = add(sums->own, own_work(point));
        sums->wait = add(sums->wait, subtract(point->exit, point->enter));
        sums->p2p = add(sums->p2p, point->p2p);
        sums->messages = add(sums->messages, point->messages);
        sums->message_bytes = add(sums->message_bytes, point->message_bytes);
        compare(&block->extremes[at], point, rank);
    }
    for (uint64_t c = 0; c < classes; c++) {
        struct class_sums *sums = class_of(block, c);
        sums->own[rank] += (double)each[c].own, sums->wait += (double)each[c].wait, sums->p2p += (double)each[c].p2p;
        if (!block->is_training)
            sums->messages += (double)each[c].messages, sums->message_bytes += (double)each[c].message_bytes;
        add_class(&block->sums[rank], &each[c]);
    }
}

/* What follows from all ranks at a point. */
static void add_point(struct block *block, uint64_t at) {
    const struct extremes *extremes = &block->extremes[at];
    struct class_sums *sums = class_of(block, block->pair[at]);
    struct rank_sums *last = &block->sums[extremes->last];
    sums->count += 1, sums->bytes += (double)block->sizes[at];
    sums->slowest += (double)extremes->most_work, sums->least_wait += (double)extremes->least_wait;
    sums->exchange += (double)subtract(extremes->longest_gap, extremes->most_work);
    last->arrivals++;
    if (block->ranks > 1)
        last->late = add(last->late, subtract(extremes->last_enter, extremes->second_enter));
    block->least_wait = add(block->least_wait, extremes->least_wait);
    int64_t exit = block->points[at].exit;
    block->first_exit = block->count ? block->first_exit : exit;
    block->last_exit = !block->count || exit > block->last_exit ? exit : block->last_exit;
    block->last_bytes = block->sizes[at];
    block->count++;
}

/* Logarithmic bins in both directions from SMALLEST on: as many edges as the deviation has reached. */
static uint32_t bin_of(double deviation, const double *edges) {
    double size = fabs(deviation) / SMALLEST;
    if (!(size >= 1.0))
        return BINS_OF_SIGN;
    uint64_t bits;
    memcpy(&bits, &size, sizeof bits);
    /* There are 6 log10(2) = 1.806 edges to a power of two: those below that of the exponent are reached. */
    uint32_t exponent = (uint32_t)(bits >> 52) - 1023u, reached = exponent * 9u / 5u;
    reached = reached < BINS_OF_SIGN ? reached : BINS_OF_SIGN;
    while (reached < BINS_OF_SIGN && size >= edges[reached])
        reached++;
    return deviation > 0 ? BINS_OF_SIGN + reached : BINS_OF_SIGN - reached;
}

/* Deviations of a point from the means of ranks so far, as shares of the mean of all. Each noted value stands for `step`
 * values. */
static void add_deviations(struct block *block, uint64_t at, uint64_t step, double mean) {
    struct class_sums *sums = class_of(block, block->pair[at]);
    /* Not each so many points: programs repeat their collectives in a fixed order. */
    uint64_t chance = ((block->first + block->count + at) * HASH_FACTOR) >> 32;
    for (uint64_t rank = chance * step >> 32; rank < block->ranks; rank += step) {
        double own = (double)own_work(&block->points[rank * block->chunk + at]);
        double deviation = (own - sums->own[rank] / sums->count) / mean;
        uint32_t bin = bin_of(deviation, block->edges);
        sums->bin_counts[bin] += (double)step, sums->bin_sums[bin] += (double)step * deviation;
    }
}

static double mean_of(const struct block *block, const struct class_sums *sums) {
    double total = 0.0;
    for (uint64_t rank = 0; rank < block->ranks; rank++)
        total += sums->own[rank];
    return sums->count ? total / sums->count / (double)block->ranks : 0.0;
}

void sum_points(struct block *block, uint64_t count) {
    double means[MAX_CLASSES + 1];
    uint64_t step = (block->length * block->ranks + MAX_SAMPLED - 1) / MAX_SAMPLED;
    for (uint64_t at = 0; at < count; at++)
        block->extremes[at] = (struct extremes){INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN, INT64_MAX, 0};
    for (uint64_t rank = 0; rank < block->ranks; rank++)
        add_rank(block, rank, count);
    for (uint64_t at = 0; at < count; at++)
        if (block->seen[at] == block->ranks)
            add_point(block, at);
    for (uint64_t c = 0; c <= MAX_CLASSES; c++)
        means[c] = mean_of(block, class_of(block, c));
    for (uint64_t at = 0; at < count; at++)
        if (block->seen[at] == block->ranks && means[block->pair[at]] > 0)
            add_deviations(block, at, step, means[block->pair[at]]);
}

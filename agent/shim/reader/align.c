/* Which sync points are next, and whether they are a block: the same ones in every ring, by their numbers. */
#include "align.h"

#include <math.h>

/* The lengths of blocks: some seconds, early in a run a share of the time until then: so some are there within seconds,
 * and a node that is slow from the begin is found soon. */
#define BLOCK_SECONDS 2.0
#define FIRST_BLOCK_SECONDS 0.5
#define BLOCK_SHARE 0.25

double block_seconds(double age) { return fmin(fmax(FIRST_BLOCK_SECONDS, BLOCK_SHARE * age), BLOCK_SECONDS); }

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static int take_positions(struct member *member) {
    uint64_t tail = atomic_load_explicit(&member->header->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&member->header->head, memory_order_acquire);
    if (tail > head || head > MAX_NUMBER || head - tail > member->capacity)
        return READER_POSITIONS;
    member->tail = tail, member->head = head;
    if (member->position < tail)
        member->position = tail;
    return READER_NOTHING;
}

/* The number of the record at `position`: the position plus the number of records dropped before it. */
static int number_at(const struct member *member, uint64_t position, uint64_t *number) {
    struct ring_record record;
    *number = position;
    if (!atomic_load_explicit(&member->header->dropped, memory_order_relaxed))
        return READER_NOTHING;
    int status = read_records(member, position, position + 1, &record);
    *number = record.index;
    return status;
}

/* Records that one rank does not have are skipped, so that the rings of the others do not fill up. */
static void skip_stalled(struct block *block) {
    for (uint64_t i = 0; i < block->ranks; i++) {
        struct member *member = &block->members[i];
        uint64_t half = member->capacity / 2;
        if (member->head > half && member->position < member->head - half)
            member->position = member->head - half;
    }
}

static int is_half_full(const struct block *block) {
    for (uint64_t i = 0; i < block->ranks; i++) {
        const struct member *member = &block->members[i];
        if (member->head > member->position && member->head - member->position > member->capacity / 2)
            return 1;
    }
    return 0;
}

/* Whether the unread records of the first ring span a block; the others have the same sync points. A negative status is
 * an error. */
static int spans_block(const struct block *block) {
    const struct member *member = &block->members[0];
    struct ring_record begin, end;
    uint64_t from = member->position > member->tail ? member->position - 1 : member->tail;
    int status = read_records(member, from, from + 1, &begin);
    if (!status)
        status = read_records(member, member->head - 1, member->head, &end);
    if (status)
        return status;
    double started = (double)member->started_ns;
    double began = member->position ? (double)begin.exit_ns : started;
    return ((double)end.exit_ns - began) / 1e9 >= block_seconds((began - started) / 1e9);
}

static uint64_t longest(const struct block *block) {
    uint64_t points = block->max_points;
    for (uint64_t i = 0; i < block->ranks; i++)
        points = least(points, block->members[i].capacity / 4);
    return points ? points : 1;
}

static int fail(struct block *block, uint64_t member, int status) {
    block->failed = member;
    return status;
}

int positions_take(struct block *block) {
    for (uint64_t i = 0; i < block->ranks; i++) {
        int status = take_positions(&block->members[i]);
        if (status)
            return fail(block, i, status);
    }
    return READER_NOTHING;
}

int may_be_due(struct block *block) {
    const struct member *first = &block->members[0];
    int spans = 0;
    if (first->head > first->position) {
        spans = first->head - first->position >= least(MAX_POINTS, first->capacity / 4);
        if (!spans && (spans = spans_block(block)) < 0)
            return fail(block, 0, spans);
    }
    return spans || is_half_full(block);
}

/* In every round but the first two a position moves on, so there are no more rounds than records. */
int align(struct block *block) {
    uint64_t at = 0;
    for (int is_aligned = 0; !is_aligned;) {
        is_aligned = 1;
        for (uint64_t i = 0; i < block->ranks; i++) {
            struct member *member = &block->members[i];
            uint64_t number;
            if (member->position >= member->head) {
                skip_stalled(block);
                return READER_NOTHING;
            }
            int status = number_at(member, member->position, &number);
            if (status)
                return fail(block, i, status);
            if (number < at)
                member->position = least(member->position + (at - number), member->head);
            is_aligned &= number == at;
            at = number > at ? number : at;
        }
    }
    block->first = at;
    return READER_BLOCK;
}

int block_length(struct block *block, int is_final) {
    uint64_t ready = MAX_NUMBER, most = longest(block);
    for (uint64_t i = 0; i < block->ranks; i++) {
        const struct member *member = &block->members[i];
        uint64_t number;
        int status = number_at(member, member->head - 1, &number);
        if (status)
            return fail(block, i, status);
        ready = least(ready, number + 1 > block->first ? number + 1 - block->first : 0);
    }
    if (!ready)
        return READER_NOTHING;
    if (!(is_final || ready >= most || is_half_full(block))) {
        int spans = spans_block(block);
        if (spans <= 0)
            return spans ? fail(block, 0, spans) : READER_NOTHING;
    }
    /* A power of two, at a multiple of it. */
    uint64_t length = UINT64_C(1) << (63 - __builtin_clzll(least(ready, most)));
    block->length = block->first ? least(length, block->first & -block->first) : length;
    return READER_BLOCK;
}

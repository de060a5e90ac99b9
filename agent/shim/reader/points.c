/* Sync points of a block, read from the rings of all ranks. */
#include "align.h"
#include "pairs.h"

#include <string.h>

/* What is taken from one ring only, whose collectives are those of all. */
static void note_call(struct block *block, uint64_t at, const struct ring_record *record, uint32_t before) {
    uint64_t pair = (uint64_t)before << 32 | record->site;
    block->pair[at] = key_number(pair, block->pairs, &block->pair_count, MAX_CLASSES, block->table, PAIR_SLOTS);
    block->sizes[at] = record->bytes == RING_BYTES_UNKNOWN ? 0 : (int64_t)record->bytes;
}

static struct point point_of(const struct ring_record *record, uint64_t begin) {
    return (struct point){
        .enter = (int64_t)record->enter_ns,
        .exit = (int64_t)record->exit_ns,
        .gap = (int64_t)(record->enter_ns - begin),
        .p2p = (int64_t)record->p2p_ns,
        .messages = (int64_t)record->messages,
        .message_bytes = (int64_t)record->message_bytes,
    };
}

/* The points of one rank with numbers from `first` up to `end`. */
static int read_member(struct block *block, uint64_t rank, uint64_t first, uint64_t end) {
    struct member *member = &block->members[rank];
    struct ring_record *records = block->records;
    struct point *points = block->points + rank * block->chunk;
    /* One more at the front: the gap begins at the end of the previous sync point. */
    uint64_t before = member->position > member->tail, begin = member->position - before;
    uint64_t stop = member->position + (end - first) < member->head ? member->position + (end - first) : member->head;
    uint64_t count = stop - begin;
    int status = read_records(member, begin, stop, records);
    if (status)
        return status;
    if (before < count && (first == block->first ? records[before].index != first : records[before].index < first))
        return READER_NUMBER;
    for (uint64_t i = before; i < count && records[i].index < end; i++, member->position++) {
        const struct ring_record *record = &records[i], *previous = i ? record - 1 : NULL;
        if (i > before && record->index <= previous->index)
            return READER_NUMBER;
        if (!rank)
            block->is_training = record->op == OP_Step;
        /* The begin of the gap is known only of a record behind another one, or of the first of a run. */
        if (previous ? previous->index + 1 != record->index : record->index)
            continue;
        uint64_t at = record->index - first;
        points[at] = point_of(record, previous ? previous->exit_ns : member->started_ns);
        if (!rank)
            note_call(block, at, record, previous ? previous->site : 0);
        block->seen[at]++;
    }
    return READER_BLOCK;
}

static int read_points(struct block *block, uint64_t first, uint64_t end) {
    memset(block->seen, 0, (end - first) * sizeof *block->seen);
    for (uint64_t rank = 0; rank < block->ranks; rank++) {
        int status = read_member(block, rank, first, end);
        if (status < 0) {
            block->failed = rank;
            return status;
        }
    }
    sum_points(block, end - first);
    return READER_BLOCK;
}

int block_read(struct block *block, int is_final, int is_first) {
    int status = positions_take(block);
    if (!status && is_first && !is_final && (status = may_be_due(block)) <= 0)
        return status;
    if (status < 0 || (status = align(block)) <= 0 || (status = block_length(block, is_final)) <= 0)
        return status;
    memset(block->sums, 0, block->ranks * sizeof *block->sums);
    block->count = 0, block->least_wait = 0;
    uint64_t end = block->first + block->length;
    for (uint64_t first = block->first; first < end && status > 0; first += block->chunk)
        status = read_points(block, first, end - first < block->chunk ? end : first + block->chunk);
    return status;
}

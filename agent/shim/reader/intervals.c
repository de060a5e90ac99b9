/* Intervals of one rank: from the end of one collective or iteration to the end of the next. */
#include "intervals.h"

#include "pairs.h"

#include <string.h>

#define MAX_MISPLACED 64 /* records by which one is too late: threads end iterations at the same time */

/* Collectives in [0, *records) of `parts`, iterations behind them, as far as nothing that is not read yet comes before. */
static int read_parts(struct intervals *to, uint64_t *records, uint64_t *iterations) {
    struct member table = *to->member;
    uint64_t count = to->stop - to->position, next = to->stop < to->head, later = UINT64_MAX;
    int status = read_records(to->member, to->position, to->stop + next, to->parts);
    if (status)
        return status;
    struct ring_record *into = to->parts + count + next;
    uint64_t end = to->iteration_stop > to->iteration_position ? to->iteration_stop : to->iteration_position;
    uint64_t others = end - to->iteration_position, following = end < to->iteration_head;
    table.records_at = to->iterations_at, table.capacity = to->iteration_capacity;
    if ((status = read_records(&table, to->iteration_position, end + following, into)))
        return status;
    if (next)
        later = to->parts[count].exit_ns;
    if (following && into[others].exit_ns < later)
        later = into[others].exit_ns;
    while (count && to->parts[count - 1].exit_ns > later)
        count--;
    while (others && into[others - 1].exit_ns > later)
        others--;
    memmove(to->parts + count, into, others * sizeof *into);
    *records = count, *iterations = others;
    return READER_NOTHING;
}

/* Collectives without any iteration. */
static int read_alone(struct intervals *to) {
    int status = read_records(to->member, to->position, to->stop, to->records);
    to->length = to->stop - to->position;
    memset(to->is_iteration, 0, to->length);
    for (uint64_t i = 0; i < to->length && !status; i++)
        to->numbers[i] = (int64_t)to->records[i].index;
    return status;
}

static void append(struct intervals *to, const struct ring_record *record, int is_iteration, int64_t number) {
    to->records[to->length] = *record;
    to->is_iteration[to->length] = (uint8_t)is_iteration;
    to->numbers[to->length++] = number;
}

/* A record that was written behind one that ended after it goes before that. */
static int place_last(struct intervals *to) {
    uint64_t last = to->length - 1, at = last;
    struct ring_record record = to->records[last];
    uint8_t is_iteration = to->is_iteration[last];
    int64_t number = to->numbers[last];
    for (; at && to->records[at - 1].exit_ns > record.exit_ns; at--) {
        if (last - at == MAX_MISPLACED)
            return READER_TIMES;
        to->records[at] = to->records[at - 1];
        to->is_iteration[at] = to->is_iteration[at - 1], to->numbers[at] = to->numbers[at - 1];
    }
    to->records[at] = record, to->is_iteration[at] = is_iteration, to->numbers[at] = number;
    return READER_NOTHING;
}

/* All in the order of their ends. */
static int merge(struct intervals *to, uint64_t records, uint64_t iterations) {
    const struct ring_record *a = to->parts, *a_end = a + records, *c = a_end, *c_end = c + iterations;
    const struct ring_record *b = to->recalled, *b_end = b + to->recalled_count;
    int64_t before = to->recalled_before + (int64_t)to->recalled_count, next = to->last_iteration + 1;
    while (a < a_end || b < b_end || c < c_end) {
        uint64_t of_b = b < b_end ? b->exit_ns : UINT64_MAX, of_c = c < c_end ? c->exit_ns : UINT64_MAX;
        if (a < a_end && a->exit_ns <= of_b && a->exit_ns <= of_c)
            append(to, a, 0, (int64_t)a->index), a++;
        else if (b < b_end && of_b <= of_c)
            append(to, b++, 1, next++);
        else
            append(to, c, 1, (int64_t)c->index + before), c++;
        int status = place_last(to);
        if (status)
            return status;
    }
    return READER_NOTHING;
}

/* Where collectives between iterations are no ends, those in [*first, *last) are none; those behind are read later. */
static void absorb(struct intervals *to, uint64_t iterations, uint64_t *first, uint64_t *last) {
    uint64_t number = to->length;
    int has_more = to->iteration_limit > to->iteration_position + iterations;
    *first = to->last_site >= ITERATION ? 0 : number, *last = has_more ? number : 0;
    for (uint64_t i = 0; i < number; i++)
        if (to->is_iteration[i]) {
            *first = *first < i ? *first : i;
            *last = has_more ? number : i + 1;
        }
    if (!to->is_final)
        to->length = *first > *last ? *first : *last;
}

static void emit(struct intervals *to, uint64_t place, uint64_t begin, uint32_t before, uint32_t site, int64_t index) {
    const struct ring_record *record = &to->records[place];
    uint64_t number = to->count++, pairs = to->pair_count;
    to->pair[number] = key_number((uint64_t)before << 32 | site, to->pairs, &to->pair_count, UINT64_MAX, to->table,
                                   (uint32_t)to->slots);
    if (to->pair_count > pairs)
        to->first[pairs] = (uint32_t)number;
    to->place[number] = (uint32_t)place;
    to->index[number] = index;
    to->seconds[number] = (double)(record->exit_ns - begin) * 1e-9;
    to->ended[number] = (int64_t)record->exit_ns;
}

static int add_intervals(struct intervals *to, uint64_t first, uint64_t end) {
    int64_t last[2] = {to->last_collective, to->last_iteration}; /* the number before, of each kind */
    for (uint64_t i = 0; i < to->length; i++) {
        const struct ring_record *record = &to->records[i];
        uint8_t kind = to->is_iteration[i] != 0;
        int follows = to->numbers[i] == last[kind] + 1;
        last[kind] = to->numbers[i];
        if (kind)
            to->last_iteration = last[1] > to->last_iteration ? last[1] : to->last_iteration;
        else
            to->last_collective = last[0] > to->last_collective ? last[0] : to->last_collective;
        if (!kind && i >= first && i < end) {
            to->absorbed++;
            continue;
        }
        to->kept++;
        uint32_t site = record->site + (kind ? ITERATION * record->flags : 0);
        /* An interval timed by the application has its own begin; a collective's is the end of the previous one, which
         * is known only if that was recorded. */
        int is_own = record->op == OP_Interval;
        uint64_t begin = is_own ? record->enter_ns : to->last_exit;
        uint32_t before = is_own ? site : (uint32_t)to->last_site;
        if (is_own || follows) {
            if ((int64_t)begin > (int64_t)record->exit_ns)
                return READER_TIMES;
            emit(to, i, begin, before, site, to->last_collective + to->last_iteration + 1 - to->absorbed);
        } else {
            to->lost++;
        }
        to->last_exit = record->exit_ns, to->last_site = site;
    }
    return READER_NOTHING;
}

int intervals_next(struct intervals *to) {
    uint64_t records = 0, iterations = 0, first = 0, end = 0;
    to->length = to->kept = to->count = to->lost = to->pair_count = 0;
    int status;
    if (to->recalled_count || to->iteration_head) {
        if ((status = read_parts(to, &records, &iterations)) || (status = merge(to, records, iterations)))
            return status;
    } else if ((status = read_alone(to))) {
        return status;
    }
    if (to->absorbs && to->length)
        absorb(to, iterations, &first, &end);
    for (uint64_t i = 0; i < to->length; i++)
        to->position += !to->is_iteration[i], to->iteration_position += to->is_iteration[i];
    to->iteration_position -= to->length ? to->recalled_count : 0;
    return add_intervals(to, first, end);
}

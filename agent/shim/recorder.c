#define _GNU_SOURCE
#include "recorder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "companion.h"
#include "ranks.h"
#include "recording.h"
#include "world.h"

#define DEFAULT_CAPACITY 65536u

static struct world world;
static struct types types;
static struct recording recording;
static atomic_int alive;                   /* MPI_Init and sessions not finalized yet */
static struct reading prepared;            /* of both clocks, before MPI was initialized */

/* Nesting depth of wrapped calls in this thread. initial-exec: a preloaded object is in the static TLS block, so access
 * is one instruction and cannot call the allocator. */
static _Thread_local int depth __attribute__((tls_model("initial-exec")));
/* Where on the stack the call is that is not within another one. */
static _Thread_local uintptr_t outer __attribute__((tls_model("initial-exec")));

/* What this thread has done so far. */
struct done {
    uint64_t ticks; /* in MPI calls that wait */
    struct sent sent;
};

static _Thread_local struct done done __attribute__((tls_model("initial-exec")));
static _Thread_local struct done at_record __attribute__((tls_model("initial-exec")));    /* the last collective's end */
static _Thread_local struct done at_iteration __attribute__((tls_model("initial-exec"))); /* the last iteration's end */

/* The root for which this thread has last contributed to a collective, since its last record, and the ticks spent in such
 * calls; root -1 if for none. */
static _Thread_local struct gathered {
    word comm;
    int root;
    uint64_t ticks;
} gathered __attribute__((tls_model("initial-exec"))) = {0, -1, 0};


static _Thread_local struct types_recent recent[TYPES_RECENT] __attribute__((tls_model("initial-exec")));

static uint32_t capacity(void)
{
    const char *text = getenv("BAROGRAPH_RING_RECORDS");
    char *end = NULL;
    unsigned long value = text ? strtoul(text, &end, 10) : 0;
    bool valid = text && *text && !*end && value >= WRITER_MIN_CAPACITY && value <= WRITER_MAX_CAPACITY;
    return valid && (value & (value - 1)) == 0 ? (uint32_t)value : DEFAULT_CAPACITY;
}

static bool disabled(void)
{
    const char *text = getenv("BAROGRAPH_DISABLE");
    return text && *text && strcmp(text, "0") != 0;
}

void recorder_prepare(void)
{
    const char *directory = getenv("BAROGRAPH_RING_DIR");
    if (directory && depth == 0 && !disabled()) {
        int saved = errno;
        companion_start(directory);
        errno = saved;
    }
    prepared = ticker_read();
}

static void start(const char *directory, const void *session, const void *caller)
{
    /* The intervals of rank 0 are as long as those of the slowest rank; finding that rank requires all of them. */
    bool found = session ? world_find_in_session(&world, session, caller) : world_find(&world, caller);
    if (!found || !ranks_name(getenv("BAROGRAPH_RANKS"), world.rank))
        return;
    companion_start(directory); /* that of an earlier program may have ended while this one was in MPI_Init */
    types_find(&types, world.mask, caller);
    struct ticker ticker;
    ticker_start(&ticker, ticker_tsc_usable(), prepared, ticker_read());
    recording_open(&recording, directory, "rank", world.rank, world.size, capacity(), &ticker);
}

void recorder_start(const void *session, const void *caller)
{
    const char *directory = getenv("BAROGRAPH_RING_DIR");
    if (depth > 0)
        return; /* called by Fortran's MPI_Init, whose wrapper starts the recording */
    atomic_fetch_add(&alive, 1);
    struct writer *ring = recording_writer(&recording);
    if (ring) {
        writer_resume(ring);
    } else if (directory && !disabled()) {
        int saved = errno;
        recorder_hide();
        start(directory, session, caller);
        recorder_show();
        errno = saved;
    }
}

uint64_t recorder_enter(void)
{
    /* A call within another one is below it. What is not has come after a call that was left by longjmp or an exception. */
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    if (depth > 0 && frame >= outer)
        depth = 0;
    if (depth == 0)
        outer = frame;
    struct writer *ring = depth++ > 0 ? NULL : recording_writer(&recording);
    return ring ? ticker_now(&ring->ticker) : 0;
}

/* Fields one by one: a copy of the whole would read words together that have just been stored apart, which stalls. */
static inline void mark(struct done *mark, uint64_t ticks)
{
    mark->ticks = ticks;
    mark->sent.messages = done.sent.messages;
    mark->sent.bytes = done.sent.bytes;
}

/* The record of a collective includes what this thread has done in other calls since its previous record. `before`:
 * ticks of the other calls that count as part of this one. */
static inline void put(struct writer *ring, uint64_t entered, uint64_t left, uint64_t before, struct collective call,
                       struct caller from)
{
    uint64_t bytes = types_bytes(&types, call.count, call.datatype), ticks = done.ticks;
    struct sent sent = {done.sent.messages - at_record.sent.messages, done.sent.bytes - at_record.sent.bytes};
    writer_put(ring, (struct timed){entered - before, left, ticks - at_record.ticks - before, bytes, call.op, sent}, from);
    ticks += left - entered;
    done.ticks = ticks;
    mark(&at_record, ticks);
    gathered.root = -1;
}


__attribute__((noinline)) static void trace(struct writer *ring, uint64_t entered, uint64_t left, struct call call,
                                            struct caller from)
{
    struct sent sent = {done.sent.messages - at_iteration.sent.messages, done.sent.bytes - at_iteration.sent.bytes};
    struct timed timed = {entered, left, done.ticks - at_iteration.ticks, RING_BYTES_UNKNOWN, call.op, sent};
    if (!call.by_reference) {
        call.comm &= world.mask;
        call.peer = (uint32_t)call.peer;
        call.tag = (uint32_t)call.tag;
    }
    if (writer_follow(ring, &timed, &call, from))
        mark(&at_iteration, done.ticks + left - entered);
}

/* A call that waits, and is no record of a collective. */
static inline void follow(struct writer *ring, uint64_t entered, uint64_t left, struct call call, struct caller from)
{
    if (writer_follows(ring, call.op, from))
        trace(ring, entered, left, call, from);
    done.ticks += left - entered;
}

void recorder_leave(uint64_t entered, struct collective call, int result, struct caller from)
{
    depth--;
    struct writer *ring = entered ? recording_writer(&recording) : NULL;
    if (!ring)
        return;
    uint64_t left = ticker_now(&ring->ticker);
    if (result == 0 && world_spanned_by(&world, call.comm))
        put(ring, entered, left, 0, call, from);
    else
        follow(ring, entered, left, (struct call){.op = call.op, .comm = call.comm}, from);
}

/* Converts Fortran's handles to those of C. */
static word from_fortran(word (*f2c)(int), word reference)
{
    int handle = *(const int *)reference;
    return f2c ? f2c(handle) : (word)(uint32_t)handle;
}

static int64_t integer_from_fortran(word count, bool large)
{
    if (!count)
        return COUNT_UNKNOWN;
    return large ? *(const int64_t *)count : *(const int *)count;
}

static bool passes_something(const struct world *in, struct rooted call, int result)
{
    return result == 0 && call.items != 0 && call.root >= 0 && world_spanned_by(in, call.comm);
}

void recorder_leave_gathered(uint64_t entered, enum ring_op op, struct rooted call, int result, struct caller from)
{
    depth--;
    struct writer *ring = entered ? recording_writer(&recording) : NULL;
    if (!ring)
        return;
    uint64_t left = ticker_now(&ring->ticker), ticks = left - entered;
    follow(ring, entered, left, (struct call){.op = op, .comm = call.comm}, from);
    if (!passes_something(&world, call, result))
        return;
    word comm = call.comm & world.mask;
    bool again = gathered.root == call.root && gathered.comm == comm;
    gathered = (struct gathered){comm, call.root, ticks + (again ? gathered.ticks : 0)};
}

void recorder_leave_spread(uint64_t entered, struct rooted call, struct collective same, int result, struct caller from)
{
    depth--;
    struct writer *ring = entered ? recording_writer(&recording) : NULL;
    if (!ring)
        return;
    uint64_t left = ticker_now(&ring->ticker);
    /* The root was there after all had contributed: collectives of a communicator are in the same order on all ranks. */
    bool pairs = gathered.root == call.root && gathered.comm == (call.comm & world.mask);
    if (pairs && passes_something(&world, call, result)) {
        put(ring, entered, left, gathered.ticks, same, from);
    } else {
        follow(ring, entered, left, (struct call){.op = same.op, .comm = call.comm}, from);
    }
}

static struct collective collective_from_fortran(uint64_t entered, struct by_reference call)
{
    struct collective same = {.op = call.op};
    if (entered) {
        same.comm = from_fortran(world.f2c, call.comm);
        same.count = integer_from_fortran(call.count, call.large);
        same.datatype = call.count ? from_fortran(types.f2c, call.datatype) : 0;
    }
    return same;
}

void recorder_leave_fortran(uint64_t entered, struct by_reference call, struct caller from)
{
    struct collective same = collective_from_fortran(entered, call);
    recorder_leave(entered, same, call.ierror ? *(const int *)call.ierror : 0, from);
}

void recorder_leave_other(uint64_t entered, struct call call, struct caller from)
{
    depth--;
    struct writer *ring = entered ? recording_writer(&recording) : NULL;
    if (ring)
        follow(ring, entered, ticker_now(&ring->ticker), call, from);
}

void recorder_leave_polled(uint64_t entered, bool came, struct call call, struct caller from)
{
    if (came) {
        recorder_leave_other(entered, call, from);
        return;
    }
    depth--;
    struct writer *ring = entered ? recording_writer(&recording) : NULL;
    if (ring)
        done.ticks += ticker_now(&ring->ticker) - entered;
}

static struct rooted rooted_from_fortran(struct rooted_by_reference call)
{
    int64_t items = integer_from_fortran(call.count, call.large) | integer_from_fortran(call.other_count, call.large);
    return (struct rooted){from_fortran(world.f2c, call.comm), *(const int *)call.root, items};
}

void recorder_leave_gathered_fortran(uint64_t entered, enum ring_op op, struct rooted_by_reference call,
                                     struct caller from)
{
    struct rooted same = entered ? rooted_from_fortran(call) : (struct rooted){0, -1, 0};
    recorder_leave_gathered(entered, op, same, call.ierror ? *(const int *)call.ierror : 0, from);
}

void recorder_leave_spread_fortran(uint64_t entered, struct rooted_by_reference call, struct by_reference by,
                                   struct caller from)
{
    struct rooted rooted = entered ? rooted_from_fortran(call) : (struct rooted){0, -1, 0};
    recorder_leave_spread(entered, rooted, collective_from_fortran(entered, by), call.ierror ? *(const int *)call.ierror : 0,
                          from);
}

static void count(int64_t items, word datatype, bool fortran)
{
    done.sent.messages++;
    done.sent.bytes += types_bytes_about(&types, recent, items, datatype, fortran);
}

static void count_from_fortran(struct sent_by_reference sent)
{
    if (!sent.ierror || *(const int *)sent.ierror == 0)
        count(integer_from_fortran(sent.count, sent.large), (uint32_t)*(const int *)sent.datatype, true);
}

void recorder_leave_sent(uint64_t entered, int64_t items, word datatype, int result, struct call call,
                         struct caller from)
{
    if (entered && result == 0)
        count(items, datatype, false);
    recorder_leave_other(entered, call, from);
}

void recorder_leave_sent_fortran(uint64_t entered, struct sent_by_reference sent, struct call call,
                                 struct caller from)
{
    if (entered)
        count_from_fortran(sent);
    recorder_leave_other(entered, call, from);
}

/* The ring, unless this is a call within another one, or nothing is recorded. */
static struct writer *outermost(void)
{
    return depth == 0 ? recording_writer(&recording) : NULL;
}

/* A call that does not wait: it ends when it begins. */
static void follow_at_once(struct writer *ring, struct call call, struct caller from)
{
    if (writer_follows(ring, call.op, from)) {
        uint64_t now = ticker_now(&ring->ticker);
        trace(ring, now, now, call, from);
    }
}

void recorder_sent(int64_t items, word datatype, int result, struct call call, struct caller from)
{
    struct writer *ring = outermost();
    if (!ring)
        return;
    if (result == 0)
        count(items, datatype, false);
    follow_at_once(ring, call, from);
}

void recorder_sent_fortran(struct sent_by_reference sent, struct call call, struct caller from)
{
    depth--;
    struct writer *ring = outermost();
    if (!ring)
        return;
    count_from_fortran(sent);
    follow_at_once(ring, call, from);
}

void recorder_hide(void)
{
    if (depth == 0)
        outer = UINTPTR_MAX; /* whatever is called until recorder_show() */
    depth++;
}

void recorder_show(void)
{
    depth--;
}

void recorder_finish(void)
{
    struct writer *ring = recording_writer(&recording);
    if (depth == 0 && atomic_fetch_sub(&alive, 1) == 1 && ring)
        writer_finalize(ring);
}

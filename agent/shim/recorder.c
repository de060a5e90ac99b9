#define _GNU_SOURCE
#include "recorder.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "companion.h"
#include "ranks.h"
#include "world.h"
#include "writer.h"

#define DEFAULT_CAPACITY 65536u

static struct world world;
static struct types types;
static struct writer writer;
static _Atomic(struct writer *) recording; /* &writer, or NULL */
static atomic_int alive;                   /* MPI_Init and sessions not finalized yet */
static struct reading prepared;            /* of both clocks, before MPI was initialized */

/* Nesting depth of wrapped calls in this thread. initial-exec: a preloaded object is in the static TLS block, so access
 * is one instruction and cannot call the allocator. */
static _Thread_local int depth __attribute__((tls_model("initial-exec")));

/* Ticks spent by this thread in blocking MPI calls since its last record. */
static _Thread_local uint64_t elsewhere __attribute__((tls_model("initial-exec")));

/* The root for which this thread has last contributed to a collective, since its last record, and the ticks spent in such
 * calls; root -1 if for none. */
static _Thread_local struct gathered {
    word comm;
    int root;
    uint64_t ticks;
} gathered __attribute__((tls_model("initial-exec"))) = {0, -1, 0};

/* What this thread has sent since its last record. */
static _Thread_local struct sent sent __attribute__((tls_model("initial-exec")));
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

/* The child of a fork shares the mapping, but a ring has one producer. */
static void stop_in_child(void)
{
    atomic_store_explicit(&recording, NULL, memory_order_relaxed);
}

/* The child of a fork no longer has a ring. */
static void note_exit(int status, void *nothing)
{
    (void)nothing;
    struct writer *ring = atomic_load_explicit(&recording, memory_order_acquire);
    if (ring)
        writer_exit(ring, status);
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
    if (!found || !ranks_name(getenv("BAROGRAPH_RANKS"), world.rank) || pthread_atfork(NULL, NULL, stop_in_child) != 0)
        return;
    types_find(&types, world.mask, caller);
    struct ticker ticker;
    ticker_start(&ticker, ticker_tsc_usable(), prepared, ticker_read());
    if (writer_open(&writer, directory, world.rank, world.size, capacity(), &ticker)) {
        atomic_store_explicit(&recording, &writer, memory_order_release);
        on_exit(note_exit, NULL);
    }
}

void recorder_start(const void *session, const void *caller)
{
    const char *directory = getenv("BAROGRAPH_RING_DIR");
    if (depth > 0)
        return; /* called by Fortran's MPI_Init, whose wrapper starts the recording */
    atomic_fetch_add(&alive, 1);
    struct writer *ring = atomic_load(&recording);
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
    struct writer *ring = depth++ > 0 ? NULL : atomic_load_explicit(&recording, memory_order_acquire);
    return ring ? ticker_now(&ring->ticker) : 0;
}

/* The record of a collective includes the time of this thread in other calls since its previous record. */
static void put(struct writer *ring, uint64_t entered, uint64_t left, struct collective call, struct caller from)
{
    uint64_t bytes = types_bytes(&types, call.count, call.datatype);
    writer_put(ring, (struct timed){entered, left, elsewhere, bytes, call.op, sent}, from);
    elsewhere = 0;
    sent = (struct sent){0, 0};
    gathered.root = -1;
}

void recorder_leave(uint64_t entered, struct collective call, int result, struct caller from)
{
    depth--;
    struct writer *ring = entered ? atomic_load_explicit(&recording, memory_order_acquire) : NULL;
    if (!ring)
        return;
    uint64_t left = ticker_now(&ring->ticker);
    if (result == 0 && world_spanned_by(&world, call.comm))
        put(ring, entered, left, call, from);
    else
        elsewhere += left - entered;
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

void recorder_leave_gathered(uint64_t entered, struct rooted call, int result)
{
    depth--;
    struct writer *ring = entered ? atomic_load_explicit(&recording, memory_order_acquire) : NULL;
    if (!ring)
        return;
    uint64_t ticks = ticker_now(&ring->ticker) - entered;
    elsewhere += ticks;
    if (!passes_something(&world, call, result))
        return;
    word comm = call.comm & world.mask;
    bool again = gathered.root == call.root && gathered.comm == comm;
    gathered = (struct gathered){comm, call.root, ticks + (again ? gathered.ticks : 0)};
}

void recorder_leave_spread(uint64_t entered, struct rooted call, struct collective same, int result, struct caller from)
{
    depth--;
    struct writer *ring = entered ? atomic_load_explicit(&recording, memory_order_acquire) : NULL;
    if (!ring)
        return;
    uint64_t left = ticker_now(&ring->ticker);
    /* The root was there after all had contributed: collectives of a communicator are in the same order on all ranks. */
    bool pairs = gathered.root == call.root && gathered.comm == (call.comm & world.mask);
    if (pairs && passes_something(&world, call, result)) {
        elsewhere -= gathered.ticks;
        put(ring, entered - gathered.ticks, left, same, from);
    } else {
        elsewhere += left - entered;
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

void recorder_leave_other(uint64_t entered)
{
    depth--;
    struct writer *ring = entered ? atomic_load_explicit(&recording, memory_order_acquire) : NULL;
    if (ring)
        elsewhere += ticker_now(&ring->ticker) - entered;
}

static struct rooted rooted_from_fortran(struct rooted_by_reference call)
{
    int64_t items = integer_from_fortran(call.count, call.large) | integer_from_fortran(call.other_count, call.large);
    return (struct rooted){from_fortran(world.f2c, call.comm), *(const int *)call.root, items};
}

void recorder_leave_gathered_fortran(uint64_t entered, struct rooted_by_reference call)
{
    struct rooted same = entered ? rooted_from_fortran(call) : (struct rooted){0, -1, 0};
    recorder_leave_gathered(entered, same, call.ierror ? *(const int *)call.ierror : 0);
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
    sent.messages++;
    sent.bytes += types_bytes_about(&types, recent, items, datatype, fortran);
}

static void count_from_fortran(struct sent_by_reference call)
{
    if (!call.ierror || *(const int *)call.ierror == 0)
        count(integer_from_fortran(call.count, call.large), (uint32_t)*(const int *)call.datatype, true);
}

void recorder_leave_sent(uint64_t entered, int64_t items, word datatype, int result)
{
    recorder_leave_other(entered);
    if (entered && result == 0)
        count(items, datatype, false);
}

void recorder_leave_sent_fortran(uint64_t entered, struct sent_by_reference call)
{
    recorder_leave_other(entered);
    if (entered)
        count_from_fortran(call);
}

static bool counts(void)
{
    return depth == 0 && atomic_load_explicit(&recording, memory_order_acquire);
}

void recorder_sent(int64_t items, word datatype, int result)
{
    if (result == 0 && counts())
        count(items, datatype, false);
}

void recorder_sent_fortran(struct sent_by_reference call)
{
    depth--;
    if (counts())
        count_from_fortran(call);
}

void recorder_hide(void)
{
    depth++;
}

void recorder_show(void)
{
    depth--;
}

void recorder_finish(void)
{
    struct writer *ring = atomic_load_explicit(&recording, memory_order_acquire);
    if (depth == 0 && atomic_fetch_sub(&alive, 1) == 1 && ring)
        writer_finalize(ring);
}

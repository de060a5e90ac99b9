#define _GNU_SOURCE
#include "writer.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "command.h"
#include "launch.h"

#define MOST_NAMES 100 /* names tried for one ring */
#define CALL_CAPACITY 65536u
#define SLOW_NS 1000000000u /* memory that was read is given back where the next part lasts for longer */
#define RETRY 256u          /* records without memory until it is asked for again */
#define MAX_WAIT_NS 100000000u /* for the lock: more than a thread that holds it is kept from its core */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the ring is little-endian");

/* Beyond this limit ftruncate raises SIGXFSZ, which ends the process. */
static uint64_t file_size_limit(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 ? 0 : limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

/* On a full /dev/shm this fails, whereas a later store would raise SIGBUS. */
static bool reserve(int file, size_t bytes)
{
    int error;
    do
        error = posix_fallocate(file, 0, (off_t)bytes);
    while (error == EINTR);
    return error == 0;
}

/* Entries of the tables of a ring. */
struct shape {
    uint32_t records;
    uint32_t iterations;
    uint32_t calls;
};

/* Where a program has iterations in place of collectives, there is one of them in some calls. */
static struct shape shape_of(uint32_t capacity, uint32_t calls)
{
    return (struct shape){capacity, capacity / 4 > WRITER_MIN_CAPACITY ? capacity / 4 : WRITER_MIN_CAPACITY, calls};
}

static size_t bytes_before_records(void)
{
    return RING_HEADER_BYTES + MODULE_CAPACITY * sizeof(struct ring_module) + SITE_CAPACITY * sizeof(struct ring_site);
}

static size_t bytes_of(struct shape shape)
{
    return bytes_before_records() + ((size_t)shape.records + shape.iterations) * sizeof(struct ring_record) +
           shape.calls * sizeof(struct ring_call);
}

/* The largest ring of at most so many bytes and records, and false if there is none. */
static bool fit(struct shape *shape, uint32_t capacity, uint64_t bytes)
{
    for (uint32_t calls = CALL_CAPACITY; calls >= WRITER_MIN_CAPACITY; calls /= 2) {
        *shape = shape_of(capacity, calls);
        if (bytes_of(*shape) <= bytes)
            return true;
        capacity = capacity / 2 > WRITER_MIN_CAPACITY ? capacity / 2 : WRITER_MIN_CAPACITY;
    }
    return false;
}

static void open_lane(struct lane *lane, struct ring_record *records, uint32_t capacity, uint64_t started_ns,
                      _Atomic uint64_t *head, _Atomic uint64_t *dropped, const _Atomic uint64_t *tail)
{
    *lane = (struct lane){.records = records, .mask = capacity - 1, .last_exit_ns = started_ns,
                          .part_ns = started_ns, .head = head, .dropped = dropped, .tail = tail};
    memory_open(&lane->memory, records, capacity, sizeof *records);
    atomic_init(&lane->seen, 0);
}

/* Calls are written from the begin on, until a sidecar has read enough of them. */
static void open_tracer(struct tracer *tracer, struct ring_header *header, struct ring_call *calls)
{
    tracer->calls = calls;
    tracer->mask = header->call_capacity - 1;
    memory_open(&tracer->memory, calls, header->call_capacity, sizeof *calls);
    tracer->passed = 0;
    atomic_init(&tracer->applied, RING_WANT_CALLS);
    atomic_init(&tracer->op, TRACER_ALL);
    atomic_init(&tracer->address, NULL);
    atomic_store_explicit(&header->wanted, RING_WANT_CALLS, memory_order_relaxed);
}

static void fill(struct writer *writer, int rank, int size, struct shape shape, const struct ticker *ticker)
{
    struct ring_header *header = writer->header;
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    header->version = RING_VERSION;
    header->header_bytes = RING_HEADER_BYTES;
    header->record_bytes = sizeof(struct ring_record);
    header->capacity = shape.records;
    header->iteration_capacity = shape.iterations;
    header->call_capacity = shape.calls;
    header->rank = rank;
    header->size = size;
    header->pid = getpid();
    header->launch = launch_number();
    header->clock = ticker->tsc ? RING_CLOCK_TSC : RING_CLOCK_MONOTONIC;
    header->started_ns = clock_ns(CLOCK_MONOTONIC);
    header->started_unix_ns = clock_ns(CLOCK_REALTIME);
    sites_copy_path(header->program, program);
    command_copy(header);
    sites_init(&writer->sites, header);
    atomic_store_explicit(&header->state, RING_RUNNING, memory_order_relaxed);
    struct ring_record *records = (struct ring_record *)((char *)header + bytes_before_records());
    struct ring_record *iterations = records + shape.records;
    open_lane(&writer->collectives, records, shape.records, header->started_ns, &header->head, &header->dropped, &header->tail);
    open_lane(&writer->iterations, iterations, shape.iterations, header->started_ns, &header->iteration_head,
              &header->iterations_dropped, &header->iteration_tail);
    open_tracer(&writer->tracer, header, (struct ring_call *)(iterations + header->iteration_capacity));
    writer->last_exit_ns = header->started_ns;
    atomic_init(&writer->abandoned, false);
    writer->ticker = *ticker;
    atomic_flag_clear(&writer->lock);
    atomic_thread_fence(memory_order_release);
    memcpy(header->magic, RING_MAGIC, sizeof header->magic);
}

static bool map(struct writer *writer, int file, size_t bytes)
{
    void *memory = MAP_FAILED;
    if (ftruncate(file, (off_t)bytes) == 0 && reserve(file, bytes_before_records()))
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
        return false;
    writer->header = memory;
    return true;
}

/* Gives the complete file its name. Not with rename(), which could replace the ring of a program that this process ran
 * before exec, or of a process with the same id in another container. */
static bool publish(int folder, const char *draft, const char *kind, int rank)
{
    char name[64];
    for (int i = 0; i < MOST_NAMES; i++) {
        if (i == 0)
            snprintf(name, sizeof name, "%s-%d.%ld.ring", kind, rank, (long)getpid());
        else
            snprintf(name, sizeof name, "%s-%d.%ld-%d.ring", kind, rank, (long)getpid(), i);
        if (linkat(folder, draft, folder, name, 0) == 0)
            return true;
        if (errno != EEXIST)
            return false;
    }
    return false;
}

/* Creates a new file. If it exists, a process with the same id in another container is creating its ring. */
static int create(int folder, char draft[64], const char *kind, int rank)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(draft, 64, "%s-%d.%ld.%ld.tmp", kind, rank, (long)getpid(), now.tv_nsec);
    return openat(folder, draft, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
}

bool writer_open(struct writer *writer, const char *directory, const char *kind, int rank, int size, uint32_t capacity,
                 const struct ticker *ticker)
{
    struct shape shape;
    char draft[64];
    int folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return false;
    uint64_t share = memory_share(folder, size), limit = file_size_limit();
    int file = fit(&shape, capacity, share < limit ? share : limit) ? create(folder, draft, kind, rank) : -1;
    bool ready = false;
    if (file >= 0) {
        size_t bytes = bytes_of(shape);
        if (map(writer, file, bytes)) {
            fill(writer, rank, size, shape, ticker);
            ready = memory_take(&writer->collectives.memory) && memory_take(&writer->tracer.memory) &&
                    publish(folder, draft, kind, rank);
            if (!ready)
                munmap(writer->header, bytes);
        }
        unlinkat(folder, draft, 0);
        close(file);
    }
    if (!ready) {
        snprintf(draft, sizeof draft, "%s-%d.%ld" WRITER_REFUSED, kind, rank, (long)getpid());
        close(openat(folder, draft, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    }
    close(folder);
    return ready;
}

/* The same where another thread holds the lock, or a signal handler has left it held. */
__attribute__((noinline)) static bool wait_for_lock(struct writer *writer)
{
    uint64_t since = 0;
    for (int spins = 1; atomic_flag_test_and_set_explicit(&writer->lock, memory_order_acquire); spins++) {
        if (atomic_load_explicit(&writer->abandoned, memory_order_relaxed))
            return false;
        if (spins % 64 == 0) {
            uint64_t now = clock_ns(CLOCK_MONOTONIC);
            since = since ? since : now;
            if (now - since > MAX_WAIT_NS) {
                atomic_store_explicit(&writer->abandoned, true, memory_order_relaxed);
                return false;
            }
            sched_yield(); /* the owner of the lock may wait for this core */
        }
    }
    return true;
}

static inline bool acquire(struct writer *writer)
{
    if (atomic_flag_test_and_set_explicit(&writer->lock, memory_order_acquire) && !wait_for_lock(writer))
        return false;
    if (atomic_load_explicit(&writer->abandoned, memory_order_relaxed))
        atomic_store_explicit(&writer->abandoned, false, memory_order_relaxed);
    return true;
}

static void release(struct writer *writer)
{
    atomic_flag_clear_explicit(&writer->lock, memory_order_release);
}

/* False if the counter has jumped: earlier ticks cannot be converted. */
static inline bool is_steady(struct ticker *ticker, uint64_t tick)
{
    return !ticker_lags(ticker, tick) || ticker_follow(ticker, ticker_read());
}

/* Converts ticks to nanoseconds such that exits are monotonic, no record ends before it begins and no gap is shorter
 * than the p2p time in it. Without this, ticks read outside the lock may arrive out of order, and clocks may jump. */
static void convert(struct writer *writer, const struct lane *lane, struct timed *timed)
{
    struct ticker *ticker = &writer->ticker;
    bool steady = is_steady(ticker, timed->exit);
    uint64_t wait = timed->exit > timed->enter ? ticker_span_ns(ticker, timed->exit - timed->enter) : 0;
    timed->exit = ticker_ns(ticker, timed->exit);
    timed->enter = steady ? timed->exit - wait : lane->last_exit_ns;
    timed->p2p = (int64_t)timed->p2p > 0 ? ticker_span_ns(ticker, timed->p2p) : 0; /* the counter may have jumped back */
    if (timed->exit < writer->last_exit_ns)
        timed->exit = writer->last_exit_ns;
    if (timed->enter > timed->exit)
        timed->enter = timed->exit;
    uint64_t gap = timed->enter > lane->last_exit_ns ? timed->enter - lane->last_exit_ns : 0;
    if (timed->p2p > gap)
        timed->p2p = gap;
}

/* Appends a record, or counts it as dropped. To be called with the lock. Inlined, so that the record is written once. */
static inline __attribute__((always_inline)) void append(struct writer *writer, struct lane *lane, struct timed *timed,
                                                         uint32_t site, uint16_t flags, uint64_t head)
{
    uint64_t index = atomic_fetch_add_explicit(&lane->seen, 1, memory_order_relaxed);
    lane->records[head & lane->mask] = (struct ring_record){
        .enter_ns = timed->enter,
        .exit_ns = timed->exit,
        .p2p_ns = timed->p2p,
        .bytes = timed->bytes,
        .index = index,
        .site = site,
        .op = (uint16_t)timed->op,
        .flags = flags,
        .messages = timed->sent.messages,
        .message_bytes = timed->sent.bytes,
    };
    lane->last_exit_ns = writer->last_exit_ns = timed->exit;
    lane->written = head + 1;
    atomic_store_explicit(lane->head, head + 1, memory_order_release);
}

/* The same where all records that had room are written. */
__attribute__((noinline)) static bool find_room(struct lane *lane, uint64_t head)
{
    struct memory *memory = &lane->memory;
    uint64_t tail = atomic_load_explicit(lane->tail, memory_order_acquire);
    uint64_t seen = atomic_load_explicit(&lane->seen, memory_order_relaxed);
    if (head - tail > lane->mask || seen < lane->retry)
        return false;
    if (head >= memory->taken) {
        bool is_slow = lane->last_exit_ns - lane->part_ns > SLOW_NS;
        bool taken = memory_take(memory);
        if (!taken || is_slow)
            memory_give_back(memory, tail);
        if (!taken && !memory_take(memory)) {
            lane->retry = seen + RETRY;
            return false;
        }
        lane->part_ns = lane->last_exit_ns;
    }
    uint64_t end = tail + lane->mask + 1;
    lane->room = end < memory->taken ? end : memory->taken;
    return true;
}

/* Whether there is room for the record `head`: it was read, and has memory. */
static inline bool has_room(struct lane *lane, uint64_t head)
{
    return head < lane->room || find_room(lane, head);
}

static void drop(struct lane *lane)
{
    atomic_fetch_add_explicit(&lane->seen, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(lane->dropped, 1, memory_order_relaxed);
}

/* name: of the site, NULL for the caller's. */
static inline void put(struct writer *writer, struct timed timed, struct caller from, const char *name)
{
    struct lane *lane = &writer->collectives;
    if (!acquire(writer)) {
        drop(lane);
        return;
    }
    uint64_t head = lane->written;
    if (!has_room(lane, head)) {
        drop(lane);
    } else {
        convert(writer, lane, &timed);
        uint32_t site = name ? sites_named(&writer->sites, name) : sites_index(&writer->sites, from, false);
        append(writer, lane, &timed, site, 0, head);
    }
    release(writer);
}

/* A number of 16 bits, not 0. */
static uint16_t hash(uint64_t value)
{
    return (uint16_t)(value * 0x9e3779b97f4a7c15u >> 48) | 1;
}

static inline uint64_t argument(const struct call *call, uint64_t word)
{
    return call->by_reference && word ? (uint64_t)(uint32_t)*(const int *)word : word;
}

/* Follows a new wish of the sidecar. Whatever the word is, the process is not harmed. */
static void apply(struct writer *writer, uint64_t wanted)
{
    struct tracer *tracer = &writer->tracer;
    uint32_t op = RING_WANT_OP(wanted);
    if ((wanted ^ atomic_load_explicit(&tracer->applied, memory_order_relaxed)) & ~(uint64_t)RING_WANT_CALLS)
        tracer->passed = 0;
    atomic_store_explicit(&tracer->address, sites_address(&writer->sites, RING_WANT_SITE(wanted)), memory_order_relaxed);
    atomic_store_explicit(&tracer->op, wanted & RING_WANT_CALLS ? TRACER_ALL : op, memory_order_relaxed);
    atomic_store_explicit(&tracer->applied, wanted, memory_order_relaxed);
}

static void write_call(struct writer *writer, struct ring_call call)
{
    struct ring_header *header = writer->header;
    struct tracer *tracer = &writer->tracer;
    uint64_t head = atomic_load_explicit(&header->call_head, memory_order_relaxed);
    bool is_unseen = head - atomic_load_explicit(&header->call_tail, memory_order_relaxed) >= WRITER_MAX_UNSEEN;
    if (is_unseen || (head >= tracer->memory.taken && !memory_take(&tracer->memory))) {
        atomic_store_explicit(&tracer->op, RING_WANT_OP(tracer->applied), memory_order_relaxed);
        return;
    }
    tracer->calls[head & tracer->mask] = call;
    writer->last_exit_ns = call.exit_ns;
    atomic_store_explicit(&header->call_head, head + 1, memory_order_release);
}

static bool is_anchor(const struct tracer *tracer, const struct ring_call *call)
{
    uint64_t wanted = atomic_load_explicit(&tracer->applied, memory_order_relaxed);
    uint32_t match = RING_WANT_MATCH(wanted);
    if (RING_WANT_OP(wanted) == 0 || RING_WANT_OP(wanted) != call->op || RING_WANT_SITE(wanted) != call->site)
        return false;
    return match == RING_MATCH_SITE ||
           RING_WANT_HASH(wanted) == (match == RING_MATCH_COMM ? call->comm : call->detail);
}

static void append_iteration(struct writer *writer, struct timed timed, uint32_t site, uint32_t every)
{
    struct lane *lane = &writer->iterations;
    uint64_t head = lane->written;
    if (!has_room(lane, head)) {
        drop(lane);
        return;
    }
    convert(writer, lane, &timed);
    append(writer, lane, &timed, site, (uint16_t)(every > 1 ? every : 1), head);
}

/* When a call ended, in nanoseconds, not before the last one. */
static inline uint64_t end_of(struct writer *writer, uint64_t tick)
{
    (void)is_steady(&writer->ticker, tick);
    uint64_t ns = ticker_ns(&writer->ticker, tick);
    return ns < writer->last_exit_ns ? writer->last_exit_ns : ns;
}

static inline struct ring_call call_of(const struct call *call, uint32_t site)
{
    uint64_t comm = argument(call, call->comm);
    struct ring_call made = {.site = (uint16_t)site, .op = (uint16_t)call->op,
                             .comm = call->comm ? hash(comm) : 0};
    if (call->peer) {
        uint64_t peer = argument(call, call->peer), tag = argument(call, call->tag);
        made.detail = hash(comm + 0x632be59bd9b4e019u * peer + 0xd6e8feb86659fd93u * tag);
    } else if (call->comm) {
        made.detail = hash(comm + 0xd6e8feb86659fd93u * argument(call, call->tag));
    }
    return made;
}

bool writer_follow(struct writer *writer, const struct timed *timed, const struct call *call, struct caller from)
{
    struct tracer *tracer = &writer->tracer;
    if (!acquire(writer))
        return false;
    uint64_t wanted = atomic_load_explicit(&writer->header->wanted, memory_order_relaxed);
    if (wanted != atomic_load_explicit(&tracer->applied, memory_order_relaxed))
        apply(writer, wanted);
    struct ring_call made = call_of(call, sites_index(&writer->sites, from, true));
    bool writes = atomic_load_explicit(&tracer->op, memory_order_relaxed) == TRACER_ALL;
    bool found = is_anchor(tracer, &made);
    uint32_t every = RING_WANT_EVERY(wanted);
    if (found) {
        found = ++tracer->passed >= every;
        tracer->passed = found ? 0 : tracer->passed;
    } else if (!writes) {
        uint64_t compared = atomic_load_explicit(&writer->header->compared, memory_order_relaxed);
        atomic_store_explicit(&writer->header->compared, compared + 1, memory_order_relaxed);
    }
    if (writes) {
        made.exit_ns = end_of(writer, timed->exit);
        write_call(writer, made);
    }
    if (found)
        append_iteration(writer, *timed, made.site, every);
    release(writer);
    return found;
}

void writer_put(struct writer *writer, struct timed timed, struct caller from)
{
    put(writer, timed, from, NULL);
}

uint32_t writer_site(struct writer *writer, const char *name)
{
    if (!acquire(writer))
        return SITE_UNKNOWN;
    uint32_t site = sites_named(&writer->sites, name);
    release(writer);
    return site;
}

void writer_put_own(struct writer *writer, uint64_t enter, uint64_t exit, uint32_t site)
{
    struct lane *lane = &writer->collectives;
    struct timed timed = {.enter = enter, .exit = exit, .bytes = RING_BYTES_UNKNOWN, .op = OP_Interval};
    if (!acquire(writer)) {
        drop(lane);
        return;
    }
    uint64_t head = lane->written;
    if (has_room(lane, head))
        append(writer, lane, &timed, site, 0, head);
    else
        drop(lane);
    release(writer);
}

void writer_put_named(struct writer *writer, struct timed timed, const char *name)
{
    put(writer, timed, (struct caller){NULL, NULL}, name);
}

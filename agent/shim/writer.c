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

#define MOST_NAMES 100 /* names tried for one ring */
#define MAX_WAIT_NS 100000000u /* for the lock: more than a thread that holds it is kept from its core */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the ring is little-endian");

/* Beyond this limit ftruncate raises SIGXFSZ, which ends the process. */
static bool within_file_size_limit(size_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes);
}

/* Reserves all pages: on a full /dev/shm this fails, whereas a later store would raise SIGBUS. */
static bool reserve(int file, size_t bytes)
{
    int error;
    do
        error = posix_fallocate(file, 0, (off_t)bytes);
    while (error == EINTR);
    return error == 0;
}

static void fill(struct writer *writer, int rank, int size, uint32_t capacity, const struct ticker *ticker)
{
    struct ring_header *header = writer->header;
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    header->version = RING_VERSION;
    header->header_bytes = RING_HEADER_BYTES;
    header->record_bytes = sizeof(struct ring_record);
    header->capacity = capacity;
    header->rank = rank;
    header->size = size;
    header->pid = getpid();
    header->clock = ticker->tsc ? RING_CLOCK_TSC : RING_CLOCK_MONOTONIC;
    header->started_ns = clock_ns(CLOCK_MONOTONIC);
    header->started_unix_ns = clock_ns(CLOCK_REALTIME);
    sites_copy_path(header->program, program);
    sites_init(&writer->sites, header);
    atomic_store_explicit(&header->state, RING_RUNNING, memory_order_relaxed);
    writer->records = (struct ring_record *)(writer->sites.sites + SITE_CAPACITY);
    writer->mask = capacity - 1;
    writer->last_exit_ns = header->started_ns;
    atomic_init(&writer->seen, 0);
    atomic_init(&writer->abandoned, false);
    writer->ticker = *ticker;
    atomic_flag_clear(&writer->lock);
    atomic_thread_fence(memory_order_release);
    memcpy(header->magic, RING_MAGIC, sizeof header->magic);
}

static bool map(struct writer *writer, int file, size_t bytes)
{
    void *memory = MAP_FAILED;
    if (ftruncate(file, (off_t)bytes) == 0 && reserve(file, bytes))
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
    if (memory == MAP_FAILED)
        return false;
    writer->header = memory;
    return true;
}

/* Gives the complete file its name. Not with rename(), which could replace the ring of a program that this process ran
 * before exec, or of a process with the same id in another container. */
static bool publish(int folder, const char *draft, int rank)
{
    char name[64];
    for (int i = 0; i < MOST_NAMES; i++) {
        if (i == 0)
            snprintf(name, sizeof name, "rank-%d.%ld.ring", rank, (long)getpid());
        else
            snprintf(name, sizeof name, "rank-%d.%ld-%d.ring", rank, (long)getpid(), i);
        if (linkat(folder, draft, folder, name, 0) == 0)
            return true;
        if (errno != EEXIST)
            return false;
    }
    return false;
}

/* Creates a new file. If it exists, a process with the same id in another container is creating its ring. */
static int create(int folder, char draft[64], int rank)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(draft, 64, "rank-%d.%ld.%ld.tmp", rank, (long)getpid(), now.tv_nsec);
    return openat(folder, draft, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
}

bool writer_open(struct writer *writer, const char *directory, int rank, int size, uint32_t capacity,
                 const struct ticker *ticker)
{
    size_t bytes = RING_HEADER_BYTES + MODULE_CAPACITY * sizeof(struct ring_module) +
                   SITE_CAPACITY * sizeof(struct ring_site) + capacity * sizeof(struct ring_record);
    char draft[64];
    if (!within_file_size_limit(bytes))
        return false;
    int folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return false;
    bool ready = false;
    int file = create(folder, draft, rank);
    if (file >= 0) {
        if (map(writer, file, bytes)) {
            fill(writer, rank, size, capacity, ticker);
            ready = publish(folder, draft, rank);
            if (!ready)
                munmap(writer->header, bytes);
        }
        unlinkat(folder, draft, 0);
        close(file);
    }
    close(folder);
    return ready;
}

static bool acquire(struct writer *writer)
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
    if (atomic_load_explicit(&writer->abandoned, memory_order_relaxed))
        atomic_store_explicit(&writer->abandoned, false, memory_order_relaxed);
    return true;
}

/* Converts ticks to nanoseconds such that exits are monotonic, no record ends before it begins and no gap is shorter
 * than the p2p time in it. Without this, ticks read outside the lock may arrive out of order, and clocks may jump. */
static void convert(struct writer *writer, struct timed *timed)
{
    struct ticker *ticker = &writer->ticker;
    bool steady = !ticker_lags(ticker, timed->exit) || ticker_follow(ticker, ticker_read());
    uint64_t wait = timed->exit > timed->enter ? ticker_span_ns(ticker, timed->exit - timed->enter) : 0;
    timed->exit = ticker_ns(ticker, timed->exit);
    timed->enter = steady ? timed->exit - wait : writer->last_exit_ns;
    timed->p2p = (int64_t)timed->p2p > 0 ? ticker_span_ns(ticker, timed->p2p) : 0; /* the counter may have jumped back */
    if (timed->exit < writer->last_exit_ns)
        timed->exit = writer->last_exit_ns;
    if (timed->enter > timed->exit)
        timed->enter = timed->exit;
    uint64_t gap = timed->enter > writer->last_exit_ns ? timed->enter - writer->last_exit_ns : 0;
    if (timed->p2p > gap)
        timed->p2p = gap;
}

/* name: of the site, NULL for the caller's. */
static inline void put(struct writer *writer, struct timed timed, struct caller from, const char *name, uint16_t flags)
{
    struct ring_header *header = writer->header;
    bool owner = acquire(writer);
    uint64_t index = atomic_fetch_add_explicit(&writer->seen, 1, memory_order_relaxed);
    if (!owner) {
        atomic_fetch_add_explicit(&header->dropped, 1, memory_order_relaxed);
        return;
    }
    uint64_t head = atomic_load_explicit(&header->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&header->tail, memory_order_acquire);
    if (head - tail > writer->mask) {
        atomic_fetch_add_explicit(&header->dropped, 1, memory_order_relaxed);
    } else {
        convert(writer, &timed);
        writer->records[head & writer->mask] = (struct ring_record){
            .enter_ns = timed.enter,
            .exit_ns = timed.exit,
            .p2p_ns = timed.p2p,
            .bytes = timed.bytes,
            .index = index,
            .site = name ? sites_named(&writer->sites, name) : sites_index(&writer->sites, from),
            .op = (uint16_t)timed.op,
            .flags = flags,
            .messages = timed.sent.messages,
            .message_bytes = timed.sent.bytes,
        };
        writer->last_exit_ns = timed.exit;
        atomic_store_explicit(&header->head, head + 1, memory_order_release);
    }
    atomic_flag_clear_explicit(&writer->lock, memory_order_release);
}

void writer_put(struct writer *writer, struct timed timed, struct caller from)
{
    put(writer, timed, from, NULL, 0);
}

void writer_put_named(struct writer *writer, struct timed timed, const char *name, uint16_t flags)
{
    put(writer, timed, (struct caller){NULL, NULL}, name, flags);
}

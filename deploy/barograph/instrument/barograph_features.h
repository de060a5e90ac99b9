/* Counters and values of one instrumented source file, kept where another process can read them at any time.
 *
 * Written by `barograph instrument` to the top of a source file, after
 *     #define BAROPROBES  number of slots
 *     #define BAROPROBE_NAMES   their names, one a line
 *     #define BAROPROBE_FILE_N  the first slot of a header with probes; such a header includes this one too
 *     #define BAROPROBE_STAMPS  1 to note when each slot last changed, which costs a clock reading each time
 * It includes nothing, so that what the source defines before its own includes still counts, and declares what it
 * needs of the C library under names of its own. Where $BAROGRAPH_FEATURES names a folder, the slots are a file in it
 * that outlives the process, however it ends; anywhere else they are memory nobody looks at. Nothing here fails: what
 * cannot be had is done without. Threads that count at once may lose counts, never more.
 */
#ifndef BAROGRAPH_FEATURES_H
#define BAROGRAPH_FEATURES_H
#if defined(BAROPROBES) && defined(__GNUC__) && defined(__LP64__) && defined(__linux__)

struct barograph_slot {
    double value;            /* last value assigned, bytes or ranks of the last message */
    unsigned long count;     /* how often */
    unsigned long last_ns;   /* when it last changed, CLOCK_MONOTONIC; 0 without stamps */
};

struct barograph_unit {
    char magic[8];           /* "BAROFEAT" */
    unsigned int version;    /* 1 */
    unsigned int probes;
    unsigned long started_ns;
    unsigned long ended_ns;  /* 0 while it runs, and where it did not end by itself */
    unsigned int pid;
    unsigned int names_bytes;
    unsigned long reserved[2];
    struct barograph_slot slots[BAROPROBES];
    char names[sizeof BAROPROBE_NAMES];
};

struct barograph_timespec {
    long seconds, nanoseconds;
};

struct barograph_limit {
    unsigned long soft, hard;
};

#ifdef __cplusplus
extern "C" {
#endif
extern char *barograph_getenv_(const char *) __asm__("getenv");
extern int barograph_getpid_(void) __asm__("getpid");
extern int barograph_snprintf_(char *, unsigned long, const char *, ...) __asm__("snprintf");
extern int barograph_open_(const char *, int, ...) __asm__("open");
extern int barograph_close_(int) __asm__("close");
extern int barograph_unlink_(const char *) __asm__("unlink");
extern int barograph_getrlimit_(int, struct barograph_limit *) __asm__("getrlimit");
extern int barograph_posix_fallocate_(int, long, long) __asm__("posix_fallocate");
extern void *barograph_mmap_(void *, unsigned long, int, int, int, long) __asm__("mmap");
extern int barograph_clock_gettime_(int, struct barograph_timespec *) __asm__("clock_gettime");
#ifdef __cplusplus
}
#endif

static struct barograph_unit barograph_memory;
static struct barograph_unit *barograph_unit = &barograph_memory;

static __inline__ unsigned long barograph_now(void) {
    struct barograph_timespec now;
    barograph_clock_gettime_(1, &now);
    return (unsigned long)now.seconds * 1000000000ul + (unsigned long)now.nanoseconds;
}

static void barograph_begin(void) __attribute__((constructor));
static void barograph_end(void) __attribute__((destructor));

/* Reserves all pages: where that fails a later store would raise SIGBUS. Beyond the limit of a file's size the attempt
 * would raise SIGXFSZ. */
static int barograph_reserve(int file, long bytes) {
    struct barograph_limit limit;
    int error;
    if (barograph_getrlimit_(1, &limit) != 0 || limit.soft < (unsigned long)bytes) /* RLIMIT_FSIZE */
        return 0;
    do
        error = barograph_posix_fallocate_(file, 0, bytes);
    while (error == 4); /* EINTR */
    return error == 0;
}

static void barograph_begin(void) {
    static const char names[] = BAROPROBE_NAMES;
    static const char magic[8] = {'B', 'A', 'R', 'O', 'F', 'E', 'A', 'T'};
    const char *folder = barograph_getenv_("BAROGRAPH_FEATURES");
    char path[4096];
    unsigned long i;
    int file = -1, pid = barograph_getpid_();
    void *place;
    if (!folder || !*folder)
        return;
    if (barograph_snprintf_(path, sizeof path, "%s/%d-%lx.features", folder, pid, (unsigned long)&barograph_memory) < (int)sizeof path)
        file = barograph_open_(path, 02 | 0100 | 0200 | 02000000, 0600); /* O_RDWR, O_CREAT, O_EXCL, O_CLOEXEC */
    if (file < 0)
        return;
    place = (void *)-1;
    if (barograph_reserve(file, (long)sizeof barograph_memory))
        place = barograph_mmap_(0, sizeof barograph_memory, 3, 1, file, 0); /* PROT_READ | PROT_WRITE, MAP_SHARED */
    if (place != (void *)-1)
        barograph_unit = (struct barograph_unit *)place;
    else
        barograph_unlink_(path);
    barograph_close_(file);
    barograph_unit->version = 1;
    barograph_unit->probes = BAROPROBES;
    barograph_unit->pid = (unsigned int)pid;
    barograph_unit->names_bytes = sizeof names;
    barograph_unit->started_ns = barograph_now();
    for (i = 0; i < sizeof names; i++)
        barograph_unit->names[i] = names[i];
    __atomic_thread_fence(__ATOMIC_RELEASE); /* who sees the magic sees the rest */
    for (i = 0; i < sizeof magic; i++)
        barograph_unit->magic[i] = magic[i];
}

static void barograph_end(void) {
    /* A forked child shares the file; only the process that began it ends it. */
    if (barograph_unit->version && barograph_unit->pid == (unsigned int)barograph_getpid_())
        barograph_unit->ended_ns = barograph_now();
}

static __inline__ int barograph_count(unsigned int slot) {
    barograph_unit->slots[slot].count++;
#if BAROPROBE_STAMPS
    if (barograph_unit->version)
        barograph_unit->slots[slot].last_ns = barograph_now();
#endif
    return 1;
}

static __inline__ void barograph_note(unsigned int slot, double value) {
    barograph_unit->slots[slot].value = value;
    barograph_count(slot);
}

#define barograph_loop(slot) barograph_count(slot)
#define barograph_taken(slot) barograph_count(slot)
#define barograph_passed(slot) (!barograph_count(slot))
#define barograph_value(slot, x) barograph_note(slot, (double)(x))
#define barograph_message(slot, elements, type, communicator)                                                         \
    do {                                                                                                               \
        int barograph_size = 0, barograph_ranks = 0;                                                                   \
        PMPI_Type_size(type, &barograph_size);                                                                         \
        PMPI_Comm_size(communicator, &barograph_ranks);                                                                \
        barograph_note(slot, (double)(elements) * barograph_size);                                                    \
        barograph_note((slot) + 1, barograph_ranks);                                                                  \
    } while (0)

#else /* another compiler or platform, or a header with probes in a source without: they are not there */

#define barograph_loop(slot) 1
#define barograph_taken(slot) 1
#define barograph_passed(slot) 0
#define barograph_value(slot, x) ((void)0)
#define barograph_message(slot, elements, type, communicator) ((void)0)

#endif
#endif

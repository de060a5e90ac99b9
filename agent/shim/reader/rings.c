/* All rings of a node at once, before any of them is read. */
#include "reader.h"

#include <sys/mman.h>
#include <sys/stat.h>

static int is_cut(const struct member *member) {
    struct stat status;
    return fstat((int)member->file, &status) == 0 && status.st_size < (off_t)RING_HEADER_BYTES;
}

static double share_of(uint64_t tail, uint64_t head, uint64_t capacity) {
    return tail > head || head - tail > capacity || !capacity ? 0.0 : (double)(head - tail) / (double)capacity;
}

int64_t rings_look(const struct member *members, uint64_t count, double fullest[2]) {
    fullest[0] = fullest[1] = 0.0;
    int64_t cut = -1;
    for (uint64_t i = 0; i < count; i++) {
        struct ring_header *header = members[i].header;
        if (is_cut(&members[i])) {
            /* A look at a page that the file does not have any more would be a SIGBUS. */
            mmap(header, RING_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            cut = cut < 0 ? (int64_t)i : cut;
        }
        double records = share_of(header->tail, header->head, members[i].capacity);
        double iterations = share_of(header->iteration_tail, header->iteration_head, header->iteration_capacity);
        fullest[0] = records > fullest[0] ? records : fullest[0];
        fullest[1] = iterations > fullest[1] ? iterations : fullest[1];
    }
    return cut;
}

#define NUMBERED(NAME, NUMBER) #NUMBER " " #NAME "\n"
const char operation_names[] = RING_OPERATIONS(NUMBERED);

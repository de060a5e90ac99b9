/* Records of a ring, copied: a file that is cut off meanwhile is an error and no SIGBUS. */
#include "reader.h"

#include <errno.h>
#include <unistd.h>

static int read_bytes(const struct member *member, uint64_t at, void *into, size_t bytes) {
    char *end = into;
    while (bytes) {
        ssize_t got = pread((int)member->file, end, bytes, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return READER_CUT;
        end += got, at += (uint64_t)got, bytes -= (size_t)got;
    }
    return READER_NOTHING;
}

/* Bit 63 is set if a value is out of range: a word below -1, which is RING_BYTES_UNKNOWN, is no count and no time of any
 * program. */
static uint64_t range_error(const struct ring_record *record) {
    const uint64_t *words = (const uint64_t *)record;
    uint64_t error = MAX_NUMBER - record->index;
    for (size_t i = 0; i < sizeof *record / sizeof *words; i++)
        error |= words[i] & (words[i] + 1);
    return error;
}

int read_records(const struct member *member, uint64_t begin, uint64_t stop, struct ring_record *records) {
    if (begin >= stop)
        return READER_NOTHING;
    uint64_t slot = begin & (member->capacity - 1), count = stop - begin;
    uint64_t before_end = member->capacity - slot < count ? member->capacity - slot : count;
    const uint64_t size = sizeof *records;
    int status = read_bytes(member, member->records_at + slot * size, records, before_end * size);
    if (!status && before_end < count)
        status = read_bytes(member, member->records_at, records + before_end, (count - before_end) * size);
    if (status)
        return status;
    uint64_t error = 0;
    for (uint64_t i = 0; i < count; i++)
        error |= range_error(&records[i]);
    return error >> 63 ? READER_VALUE : READER_NOTHING;
}

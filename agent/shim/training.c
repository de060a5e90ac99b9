#include "training.h"

#include <errno.h>
#include <stdlib.h>

#include "companion.h"
#include "ranks.h"
#include "recording.h"

#define EXPORT __attribute__((visibility("default")))
#define CAPACITY 16384u

static struct recording recording;

EXPORT int barograph_training_start(int rank, int size)
{
    const char *directory = getenv("BAROGRAPH_RING_DIR");
    if (!directory || recording_writer(&recording) || !ranks_name(getenv("BAROGRAPH_RANKS"), rank))
        return 0;
    int saved = errno;
    companion_start(directory);
    struct ticker ticker;
    struct reading now = ticker_read();
    ticker_start(&ticker, false, now, now);
    recording.finalizes = true;
    int found = recording_open(&recording, directory, rank, size, CAPACITY, &ticker);
    errno = saved;
    return found;
}

EXPORT void barograph_training_step(const struct training_step *step)
{
    struct writer *ring = recording_writer(&recording);
    if (!ring)
        return;
    struct timed timed = {
        .enter = step->enter,
        .exit = step->exit,
        .p2p = step->elsewhere,
        .bytes = step->bytes,
        .op = OP_STEP,
        .sent = {.messages = step->cpu, .bytes = step->updated}, /* the same words of a record */
    };
    writer_put_named(ring, timed, step->name);
}

#include "training.h"

#include <errno.h>
#include <stdlib.h>

#include "ranks.h"
#include "recording.h"

#define EXPORT __attribute__((visibility("default")))

static struct recording recording;

EXPORT int barograph_training_start(int rank, int size)
{
    const char *directory = getenv("BAROGRAPH_RING_DIR");
    if (!directory || recording_writer(&recording) || !ranks_name(getenv("BAROGRAPH_RANKS"), rank))
        return 0;
    int saved = errno;
    int found = recording_open_reported(&recording, directory, "rank", rank, size);
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
        .op = OP_Step,
        .sent = {.messages = step->cpu, .bytes = step->updated}, /* the same words of a record */
    };
    writer_put_named(ring, timed, step->name);
}

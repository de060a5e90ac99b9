/* The TCP connections of a user to other machines. */
#ifndef BAROGRAPH_CONNECTIONS_H
#define BAROGRAPH_CONNECTIONS_H

#include "reader.h"

struct connection {
    uint64_t cookie;
    uint8_t peer[16];      /* its address; 4 bytes and zeros of IPv4 */
    double flight_seconds; /* for how long data was sent and not acknowledged, though the peer could take it */
    uint64_t acked_bytes;  /* what was acknowledged; both since its begin */
};

#define MAX_CONNECTIONS 2000u

/* At most MAX_CONNECTIONS of them, by ascending cookie, to the user's own machine only where `keeps_loopback`; 0 where the kernel does not tell. */
READER_EXPORT uint64_t connections_of(uint32_t user, int keeps_loopback, struct connection *found);

/* Seconds in flight per megabyte since `before`, to the peer with the least of those to which `least` bytes were sent;
 * NaN without one. Both as of connections_of. */
READER_EXPORT double connections_flight(const struct connection *before, uint64_t was, const struct connection *now,
                                        uint64_t is, uint64_t least);

/* Those in one part of an answer of the kernel. is_last: set where no further part follows. */
READER_EXPORT uint64_t connections_parse(const void *data, uint64_t size, uint32_t user, int keeps_loopback,
                                         struct connection *found, uint64_t max, int *is_last);
#endif

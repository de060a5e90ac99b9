/* Call sites: return addresses of the wrappers, numbered in the order of their first visit. */
#ifndef BAROGRAPH_SITES_H
#define BAROGRAPH_SITES_H

#include "ring.h"

#define SITE_CAPACITY 1024u
#define MODULE_CAPACITY 64u
#define SITE_UNKNOWN 0u /* module 0, offset 0: the start of the run, or a caller that found no room or no module */

struct sites {
    struct ring_header *header;
    struct ring_site *sites;
    struct ring_module *modules;
    uint64_t bases[MODULE_CAPACITY]; /* load address of each module in the table */
    uint32_t used;                   /* slots taken */
    struct {
        const void *address; /* NULL = free */
        uint32_t site;
    } slots[2 * SITE_CAPACITY]; /* at most half full, so that a probe is short and ends */
};

/* Starts the tables of a new ring with the unknown site. */
void sites_init(struct sites *sites, struct ring_header *header);

/* The index of the site of a return address. One caller at a time. */
uint32_t sites_index(struct sites *sites, const void *address);

/* Copies a path into a ring field, keeping its end where it is too long. */
void sites_copy_path(char field[RING_PATH_BYTES], const char *path);

#endif

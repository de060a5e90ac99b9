/* Call sites: the paths on which the wrappers are called, numbered in the order of their first visit.
 *
 * A path is up to three return addresses, innermost first. The second is found without unwinding: at a given return
 * address the caller's frame has a given size, so the next return address lies a fixed distance up the stack. The
 * distance is learned by unwinding once; each address first loaded from there is compared with a real unwind, and where
 * they differ the frame has no fixed size and the path ends in it. The third likewise. */
#ifndef BAROGRAPH_SITES_H
#define BAROGRAPH_SITES_H

#include "callers.h"
#include "module.h"
#include "ring.h"

#define SITE_CAPACITY 1024u
#define MODULE_CAPACITY 64u
#define NODE_CAPACITY 2048u
#define RECENT_PATHS 64u /* one for each of so many first return addresses */
#define SITE_UNKNOWN 0u /* no frames: the start of the run, or a caller that found no room or no module */

/* A path or the beginning of one. */
struct node {
    const void *address; /* the last return address of the path; NULL in node 0, which is the empty path */
    uint32_t parent;     /* the path without it */
    uint32_t site;       /* SITE_UNSET until a path is found to end here */
    int64_t next;        /* where the next one is stored, in bytes above the wrapper's frame; 0 = the path ends here */
};

/* A whole path that was looked up in the nodes, so that a loop that calls again from there need not. Where it has fewer
 * frames than there is room for, the rest stand for the first, whose return address lies just below the frame. */
struct recent {
    const void *address[RING_FRAMES];
    int64_t next[RING_FRAMES - 1];
    int frames;
    uint32_t site;
};

struct sites {
    struct ring_header *header;
    struct ring_site *sites;
    struct ring_module *modules;
    struct module libc;              /* main is called from there: the path ends before */
    uint64_t bases[MODULE_CAPACITY]; /* load address of each module in the table */
    uint32_t nodes_used;
    struct recent recent[RECENT_PATHS];
    struct node nodes[NODE_CAPACITY];
    uint32_t slots[2 * NODE_CAPACITY]; /* hash table of nodes, 0 = free; at most half full, so that a probe is short */
};

/* Starts the tables of a new ring with the unknown site. */
void sites_init(struct sites *sites, struct ring_header *header);

/* The index of the site of a call in this thread. One caller at a time. */
uint32_t sites_index(struct sites *sites, struct caller from);

/* Copies a path into a ring field, keeping its end where it is too long. */
void sites_copy_path(char field[RING_PATH_BYTES], const char *path);

#endif

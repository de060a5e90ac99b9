/* Call sites: the call paths of wrappers, numbered in the order of their first use.
 *
 * A path has up to three return addresses, innermost first. The second is found without unwinding: for a given return
 * address the caller's frame usually has a fixed size, so the next return address is at a fixed distance up the stack.
 * The distance is determined by unwinding once. Each new address loaded from there is compared with an unwind; if they
 * differ, the frame has no fixed size and the path ends there. The third likewise. */
#ifndef BAROGRAPH_SITES_H
#define BAROGRAPH_SITES_H

#include <stdbool.h>

#include "callers.h"
#include "module.h"
#include "ring.h"

#define SITE_CAPACITY 2048u
#define MODULE_CAPACITY 64u
#define NODE_CAPACITY 4096u
#define RECENT_PATHS 64u /* cached paths, indexed by the first return address */
#define SITE_UNKNOWN 0u /* no frames: the start of the run, a full table, or a caller outside of all modules */

/* A path or a prefix of one. */
struct node {
    const void *address; /* the last return address of the path; NULL in node 0, which is the empty path */
    uint32_t parent;     /* the path without that address */
    uint32_t site;       /* SITE_UNSET until a path ends here */
    int64_t next;        /* location of the next address, in bytes above the wrapper's frame; 0 = the path ends here */
};

/* A complete path found in the nodes, cached so that repeated calls from there need no lookup. In a path of fewer
 * frames the remaining entries repeat the first, whose return address is just below the frame. */
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
    struct module libc;              /* contains the caller of main: paths end before it */
    uint64_t bases[MODULE_CAPACITY]; /* load address of each module in the table */
    uint32_t nodes_used;
    bool spares; /* new paths are numbered in the first half of the tables only */
    struct recent recent[RECENT_PATHS];
    struct node nodes[NODE_CAPACITY];
    uint32_t slots[2 * NODE_CAPACITY]; /* hash table of nodes, 0 = free; at most half full, so that a probe is short */
};

/* Initializes the tables of a new ring with the unknown site. */
void sites_init(struct sites *sites, struct ring_header *header);

/* The site index of a call in this thread. Not thread-safe. `spares`: the second half of the tables is left to other
 * calls. */
uint32_t sites_index(struct sites *sites, struct caller from, bool spares);

/* The innermost return address of a site; NULL if there is no such site. */
const void *sites_address(const struct sites *sites, uint32_t site);

/* The site index of a name. Compares it with those of all modules: for calls that are seldom. Not thread-safe. */
uint32_t sites_named(struct sites *sites, const char *name);

/* Copies a path into a ring field; of a longer path, its end. */
void sites_copy_path(char field[RING_PATH_BYTES], const char *path);

#endif

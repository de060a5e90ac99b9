#include "sites.h"

#include <errno.h>
#include <dlfcn.h>
#include <string.h>

#define SLOTS (2 * NODE_CAPACITY)
#define SITE_UNSET UINT32_MAX

_Static_assert((SLOTS & (SLOTS - 1)) == 0, "the probe wraps by a mask");

void sites_copy_path(char field[RING_PATH_BYTES], const char *path)
{
    size_t length = strlen(path);
    if (length >= RING_PATH_BYTES)
        path += length - (RING_PATH_BYTES - 1);
    memset(field, 0, RING_PATH_BYTES);
    memcpy(field, path, strlen(path));
}

void sites_init(struct sites *sites, struct ring_header *header)
{
    memset(sites, 0, sizeof *sites);
    sites->header = header;
    sites->nodes_used = 1;
    sites->nodes[0].site = SITE_UNKNOWN;
    callers_prepare();
    module_find(dlsym(RTLD_NEXT, "__libc_start_main"), &sites->libc);
    sites->modules = (struct ring_module *)((char *)header + RING_HEADER_BYTES);
    sites->sites = (struct ring_site *)(sites->modules + MODULE_CAPACITY);
    header->site_capacity = SITE_CAPACITY;
    header->module_capacity = MODULE_CAPACITY;
    atomic_store_explicit(&header->modules, 1, memory_order_relaxed);
    atomic_store_explicit(&header->sites, 1, memory_order_relaxed);
}

/* Index of the module in the ring's table, 0 if the table is full. */
static uint32_t module_index(struct sites *sites, const struct module *module)
{
    struct ring_header *header = sites->header;
    const char *path = module->path[0] ? module->path : header->program;
    uint32_t count = atomic_load_explicit(&header->modules, memory_order_relaxed);
    char field[RING_PATH_BYTES];
    sites_copy_path(field, path);
    for (uint32_t i = 1; i < count; i++)
        if (sites->bases[i] == module->base && strcmp(sites->modules[i].path, field) == 0)
            return i;
    if (count == MODULE_CAPACITY)
        return 0;
    sites->bases[count] = module->base;
    memcpy(sites->modules[count].path, field, sizeof field);
    /* Release: a reader that sees the count also sees the entry. The same applies to sites and records. */
    atomic_store_explicit(&header->modules, count + 1, memory_order_release);
    return count;
}

/* Adds a site for the path that ends in this node. */
static uint32_t add_site(struct sites *sites, uint32_t node)
{
    uint32_t count = atomic_load_explicit(&sites->header->sites, memory_order_relaxed);
    if (count >= (sites->spares ? SITE_CAPACITY / 2 : SITE_CAPACITY))
        return SITE_UNKNOWN;
    struct ring_site site = {.frames = 0};
    const void *path[RING_FRAMES];
    int length = 0;
    for (uint32_t at = node; at; at = sites->nodes[at].parent)
        path[length++] = sites->nodes[at].address;
    while (length-- > 0) {
        struct module module;
        uint32_t index = module_find(path[length], &module) ? module_index(sites, &module) : 0;
        if (index == 0)
            break;
        site.module[site.frames] = index;
        site.offset[site.frames] = (uint64_t)path[length] - module.base;
        site.frames++;
    }
    if (site.frames == 0)
        return SITE_UNKNOWN;
    sites->sites[count] = site;
    atomic_store_explicit(&sites->header->sites, count + 1, memory_order_release);
    return count;
}

__attribute__((noinline)) static uint32_t site_of(struct sites *sites, uint32_t node)
{
    int saved = errno;
    uint32_t site = add_site(sites, node);
    errno = saved;
    if (site != SITE_UNKNOWN || !sites->spares)
        sites->nodes[node].site = site;
    return site;
}

static int depth_of(const struct sites *sites, uint32_t node)
{
    int depth = 0;
    for (; node; node = sites->nodes[node].parent)
        depth++;
    return depth;
}

/* Location of the frame after the node's, relative to the wrapper's; 0 if the path ends. */
static int64_t distance(const struct sites *sites, const struct callers *callers, int depth, struct caller from)
{
    struct module module;
    if (depth >= callers->count || !callers->slot[depth] || !module_find(callers->address[depth], &module) ||
        module.base == sites->libc.base || callers->slot[depth] <= from.frame)
        return 0;
    return callers->slot[depth] - from.frame;
}

/* Adds a node at the first use of `address` after `parent`; 0 if an unwind finds another address there, or the table is
 * full. */
__attribute__((noinline)) static uint32_t add_node(struct sites *sites, uint32_t parent, const void *address, struct caller from, uint32_t slot)
{
    if (sites->nodes_used >= (sites->spares ? NODE_CAPACITY / 2 : NODE_CAPACITY))
        return 0;
    struct callers callers;
    int depth = depth_of(sites, parent), saved = errno;
    callers_find(&callers, from);
    errno = saved;
    if (depth > 0 && (depth >= callers.count || callers.address[depth] != address ||
                      callers.slot[depth] != from.frame + sites->nodes[parent].next)) {
        sites->nodes[parent].next = 0;
        return 0;
    }
    uint32_t node = sites->nodes_used++;
    sites->nodes[node] = (struct node){
        .address = address,
        .parent = parent,
        .site = SITE_UNSET,
        .next = depth + 1 < RING_FRAMES ? distance(sites, &callers, depth + 1, from) : 0,
    };
    sites->slots[slot] = node;
    return node;
}

static uint32_t child(struct sites *sites, uint32_t parent, const void *address, struct caller from)
{
    uint64_t hash = ((uint64_t)address + parent) * 0x9e3779b97f4a7c15u;
    uint32_t slot = (uint32_t)(hash >> 32) & (SLOTS - 1);
    for (uint32_t node; (node = sites->slots[slot]) != 0; slot = (slot + 1) & (SLOTS - 1))
        if (sites->nodes[node].address == address && sites->nodes[node].parent == parent)
            return node;
    return add_node(sites, parent, address, from, slot);
}

/* The word may have any value, as the frame below may not have a fixed size. */
__attribute__((no_sanitize("address"))) static const void *load(const char *word)
{
    return *(const void *const volatile *)word;
}

/* For tests: compares each path with an unwind, at each use. */
#ifdef BAROGRAPH_VERIFY_PATHS
#include <stdio.h>
#include <stdlib.h>

static void verify(const struct recent *path, struct caller from)
{
    struct callers callers;
    callers_find(&callers, from);
    for (int i = 0; i < path->frames; i++)
        if (i >= callers.count || callers.address[i] != path->address[i]) {
            fprintf(stderr, "call path: %p is not frame %d\n", path->address[i], i);
            abort();
        }
}
#else
#define verify(path, from) ((void)0)
#endif

/* Finds the path by its nodes, and caches it if it is complete. */
__attribute__((noinline)) static uint32_t look_up(struct sites *sites, struct recent *recent, const char *end,
                                                  struct caller from)
{
    struct recent path = {.address = {from.address}, .frames = 1};
    uint32_t node = child(sites, 0, from.address, from);
    for (int64_t next; (next = sites->nodes[node].next) != 0; path.frames++) {
        uint32_t longer = end && next <= end - from.frame - (int64_t)sizeof(void *) ?
                              child(sites, node, load(from.frame + next), from) : 0;
        if (!longer)
            break;
        node = longer;
        path.next[path.frames - 1] = next;
        path.address[path.frames] = sites->nodes[node].address;
    }
    path.site = sites->nodes[node].site;
    if (path.site == SITE_UNSET)
        path.site = site_of(sites, node);
    verify(&path, from);
    for (int i = path.frames; i < RING_FRAMES; i++) {
        path.next[i - 1] = -(int64_t)sizeof(void *);
        path.address[i] = from.address;
    }
    if (end && node && sites->nodes[node].next == 0 && sites->nodes[node].site != SITE_UNSET)
        *recent = path;
    return path.site;
}

static inline bool is_at(const struct recent *path, int i, const char *end, struct caller from)
{
    return path->next[i - 1] <= end - from.frame - (int64_t)sizeof(void *) &&
           load(from.frame + path->next[i - 1]) == path->address[i];
}

/* If a library is unloaded and another is loaded at the same address, calls of the latter have the old site. Programs
 * that unload code between collectives are too rare to justify a check per call. */
uint32_t sites_index(struct sites *sites, struct caller from, bool spares)
{
    sites->spares = spares;
    const char *end = callers_stack_end(from.frame);
    uint64_t hash = (uint64_t)from.address * 0x9e3779b97f4a7c15u;
    struct recent *recent = &sites->recent[hash >> 32 & (RECENT_PATHS - 1)];
    if (!end || recent->address[0] != from.address || !is_at(recent, 1, end, from) || !is_at(recent, 2, end, from))
        return look_up(sites, recent, end, from);
    verify(recent, from);
    return recent->site;
}

uint32_t sites_named(struct sites *sites, const char *name)
{
    struct module module = {.base = 0, .path = name};
    uint32_t index = *name ? module_index(sites, &module) : 0;
    uint32_t count = atomic_load_explicit(&sites->header->sites, memory_order_relaxed);
    if (index == 0)
        return SITE_UNKNOWN;
    for (uint32_t i = 1; i < count; i++)
        if (sites->sites[i].offset[0] == RING_NAMED && sites->sites[i].module[0] == index)
            return i;
    if (count == SITE_CAPACITY)
        return SITE_UNKNOWN;
    sites->sites[count] = (struct ring_site){.offset = {RING_NAMED}, .module = {index}, .frames = 1};
    atomic_store_explicit(&sites->header->sites, count + 1, memory_order_release);
    return count;
}

const void *sites_address(const struct sites *sites, uint32_t site)
{
    for (uint32_t node = 1; site != SITE_UNKNOWN && node < sites->nodes_used; node++) {
        if (sites->nodes[node].site != site)
            continue;
        while (sites->nodes[node].parent)
            node = sites->nodes[node].parent;
        return sites->nodes[node].address;
    }
    return NULL;
}

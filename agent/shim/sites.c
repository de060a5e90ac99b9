#include "sites.h"

#include <errno.h>
#include <string.h>

#include "module.h"

#define SLOTS (2 * SITE_CAPACITY)

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
    sites->modules = (struct ring_module *)((char *)header + RING_HEADER_BYTES);
    sites->sites = (struct ring_site *)(sites->modules + MODULE_CAPACITY);
    header->site_capacity = SITE_CAPACITY;
    header->module_capacity = MODULE_CAPACITY;
    atomic_store_explicit(&header->modules, 1, memory_order_relaxed);
    atomic_store_explicit(&header->sites, 1, memory_order_relaxed);
}

/* Index of the module in the ring's table, 0 where the table is full. */
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
    /* Release: who sees the count sees the entry. The same for sites and records. */
    atomic_store_explicit(&header->modules, count + 1, memory_order_release);
    return count;
}

static uint32_t add(struct sites *sites, const void *address)
{
    uint32_t count = atomic_load_explicit(&sites->header->sites, memory_order_relaxed);
    struct module module;
    if (count == SITE_CAPACITY || !module_find(address, &module))
        return SITE_UNKNOWN;
    uint32_t index = module_index(sites, &module);
    if (index == 0)
        return SITE_UNKNOWN;
    sites->sites[count] = (struct ring_site){.module = index, .offset = (uint64_t)address - module.base};
    atomic_store_explicit(&sites->header->sites, count + 1, memory_order_release);
    return count;
}

/* A library that is unloaded and another loaded in its place may reuse an address; its calls then carry the old site.
 * Programs that unload code between collectives are too rare to pay a check per call for. */
uint32_t sites_index(struct sites *sites, const void *address)
{
    uint32_t slot = (uint32_t)(((uint64_t)address * 0x9e3779b97f4a7c15u) >> 32) & (SLOTS - 1);
    while (sites->slots[slot].address) {
        if (sites->slots[slot].address == address)
            return sites->slots[slot].site;
        slot = (slot + 1) & (SLOTS - 1);
    }
    if (sites->used == SITE_CAPACITY)
        return SITE_UNKNOWN;
    int saved = errno;
    uint32_t site = add(sites, address);
    errno = saved;
    sites->slots[slot].address = address;
    sites->slots[slot].site = site;
    sites->used++;
    return site;
}

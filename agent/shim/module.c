/* dl_iterate_phdr, because dladdr also searches the symbols of the object, which takes 15 us in a large library. */
#define _GNU_SOURCE
#include "module.h"

#include <link.h>

struct search {
    uint64_t address;
    struct module *module;
};

static int visit(struct dl_phdr_info *object, size_t size, void *data)
{
    (void)size;
    struct search *search = data;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && search->address - object->dlpi_addr - segment->p_vaddr < segment->p_memsz) {
            search->module->base = object->dlpi_addr;
            search->module->path = object->dlpi_name;
            return 1;
        }
    }
    return 0;
}

bool module_find(const void *address, struct module *module)
{
    struct search search = {(uint64_t)address, module};
    return dl_iterate_phdr(visit, &search) != 0;
}

/* A loaded object: the program itself or a shared library. */
#ifndef BAROGRAPH_MODULE_H
#define BAROGRAPH_MODULE_H

#include <stdbool.h>
#include <stdint.h>

struct module {
    uint64_t base;    /* load address: addresses in the file plus this are addresses in the process */
    const char *path; /* as known to the loader, "" for the program; valid while the object is loaded */
};

/* Finds the object whose segments contain the address; false if there is none (generated code). */
bool module_find(const void *address, struct module *module);

#endif

/* A loaded object: the program itself or a shared library. */
#ifndef BAROGRAPH_MODULE_H
#define BAROGRAPH_MODULE_H

#include <stdbool.h>
#include <stdint.h>

struct module {
    uint64_t base;    /* load address: addresses in the file plus this are addresses in the process */
    const char *path; /* as the loader knows it, "" for the program; valid while the object stays loaded */
};

/* Finds the object whose segments hold the address; false where none does (generated code). */
bool module_find(const void *address, struct module *module);

#endif

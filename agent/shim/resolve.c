#define _GNU_SOURCE
#include "resolve.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "module.h"

char target_missing;

/* The object in whose scope MPI is looked up if it is not in the global scope. */
static _Atomic(void *) library;

/* A handle of a loaded object with libmpi in its scope, or NULL. Never closed: objects found through it must stay
 * loaded. */
static void *open_loaded(const char *path)
{
    void *handle = path[0] ? dlopen(path, RTLD_NOLOAD | RTLD_LAZY) : NULL;
    return handle && dlsym(handle, "PMPI_Init") ? handle : NULL;
}

static int visit(struct dl_phdr_info *object, size_t size, void *data)
{
    (void)size;
    const char *slash = strrchr(object->dlpi_name, '/');
    if (!slash || strncmp(slash, "/libmpi", 7) != 0)
        return 0;
    /* The caller opens the object, because the loader is locked here. */
    snprintf(data, PATH_MAX, "%s", object->dlpi_name);
    return 1;
}

/* Python loads mpi4py, and with it libmpi, with RTLD_LOCAL: neither is in the global scope. The calling object depends
 * on libmpi, so libmpi is in its scope. The return address is not always in that object, since mpi4py tail-calls
 * MPI_Finalize. In that case any loaded libmpi is used. */
static void *find_library(const void *caller)
{
    struct module module;
    char path[PATH_MAX] = "";
    void *handle = module_find(caller, &module) ? open_loaded(module.path) : NULL;
    if (!handle && dl_iterate_phdr(visit, path))
        handle = open_loaded(path);
    return handle;
}

static void *search(void *scope, const char *name, const void *caller)
{
    int saved = errno;
    void *symbol = dlsym(scope, name);
    if (!symbol) {
        void *handle = atomic_load(&library);
        if (!handle) {
            handle = find_library(caller);
            atomic_store(&library, handle);
        }
        symbol = handle ? dlsym(handle, name) : NULL;
    }
    /* The Fortran interface is a separate library, on which not every object that uses MPI depends. */
    struct module module;
    if (!symbol && module_find(caller, &module)) {
        void *handle = open_loaded(module.path);
        symbol = handle ? dlsym(handle, name) : NULL;
    }
    dlerror(); /* the application must not see errors of the shim in dlerror() */
    errno = saved;
    return symbol;
}

/* RTLD_NEXT: the next MPI_X may be that of another PMPI tool, which keeps working. */
void *resolve_function(const char *name, const void *caller)
{
    return search(RTLD_NEXT, name, caller);
}

/* RTLD_DEFAULT: the program may contain the active copy of a library's variable (COPY relocation). */
void *resolve_data(const char *name, const void *caller)
{
    return search(RTLD_DEFAULT, name, caller);
}

void *target_look_up(struct target *target, const void *caller)
{
    void *function = resolve_function(target->name, caller);
    if (!function && target->instead)
        function = resolve_function(target->instead, caller);
    if (!function || function == target->wrapper)
        function = &target_missing;
    atomic_store_explicit(&target->function, function, memory_order_relaxed);
    return function;
}

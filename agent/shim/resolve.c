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

/* The object through whose scope MPI is found where the global scope does not have it. */
static _Atomic(void *) library;

/* A handle of a loaded object from whose scope libmpi can be seen, or NULL. It is never closed: what was found through
 * it must stay loaded. */
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
    /* Opened by the caller: the loader is locked here. */
    snprintf(data, PATH_MAX, "%s", object->dlpi_name);
    return 1;
}

/* Python loads mpi4py, and with it libmpi, RTLD_LOCAL: neither is in the global scope. The object that makes the call
 * depends on libmpi, so its own scope has it. The return address does not always lie in that object: mpi4py ends in a
 * tail call of MPI_Finalize. Then any loaded libmpi will do. */
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
    /* The Fortran interface is a library of its own, which not every object that uses MPI depends on. */
    struct module module;
    if (!symbol && module_find(caller, &module)) {
        void *handle = open_loaded(module.path);
        symbol = handle ? dlsym(handle, name) : NULL;
    }
    dlerror(); /* the application must not see our errors in its own dlerror() */
    errno = saved;
    return symbol;
}

/* RTLD_NEXT: the next MPI_X in line may be another PMPI tool's, which goes on working. */
void *resolve_function(const char *name, const void *caller)
{
    return search(RTLD_NEXT, name, caller);
}

/* RTLD_DEFAULT: the program may hold the live copy of a library's variable (COPY relocation). */
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

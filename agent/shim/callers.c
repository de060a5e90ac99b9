#define _GNU_SOURCE
#include "callers.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unwind.h>

#ifndef UNWINDER /* tests set one that does not exist */
#define UNWINDER "libgcc_s.so.1"
#endif

typedef _Unwind_Reason_Code backtrace_function(_Unwind_Trace_Fn, void *);
typedef _Unwind_Ptr ip_function(struct _Unwind_Context *);
typedef _Unwind_Word cfa_function(struct _Unwind_Context *);

static backtrace_function *backtrace_;
static ip_function *get_ip;
static cfa_function *get_cfa;

/* Loaded at run time, as by glibc's backtrace(): without libgcc_s the call path is lost, but the job runs. */
void callers_prepare(void)
{
    void *library = dlopen(UNWINDER, RTLD_LAZY | RTLD_LOCAL);
    if (library) {
        get_ip = (ip_function *)dlsym(library, "_Unwind_GetIP");
        get_cfa = (cfa_function *)dlsym(library, "_Unwind_GetCFA");
        backtrace_ = get_ip && get_cfa ? (backtrace_function *)dlsym(library, "_Unwind_Backtrace") : NULL;
    }
    dlerror();
}

struct search {
    struct callers *callers;
    struct caller from;
};

/* Called innermost frame first. A frame's address is the return address into it, its CFA that of its callee. */
static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *data)
{
    struct search *search = data;
    struct callers *callers = search->callers;
    const char *frame = (const char *)get_cfa(context);
    if (callers->count == 0 && frame != search->from.frame)
        return frame < search->from.frame ? _URC_NO_REASON : _URC_END_OF_STACK;
    const void *address = (const void *)get_ip(context), *stored;
    if (!address)
        return _URC_END_OF_STACK;
    const char *slot = frame - sizeof stored;
    memcpy(&stored, slot, sizeof stored);
    callers->address[callers->count] = address;
    callers->slot[callers->count] = stored == address ? slot : NULL;
    callers->count++;
    return callers->count == RING_FRAMES ? _URC_END_OF_STACK : _URC_NO_REASON;
}

void callers_find(struct callers *callers, struct caller from)
{
    struct search search = {callers, from};
    memset(callers, 0, sizeof *callers);
    if (backtrace_)
        backtrace_(visit, &search);
    if (callers->address[0] != from.address)
        callers->count = 0;
}

_Thread_local struct stack callers_stack;

void callers_find_stack(void)
{
    pthread_attr_t attributes;
    void *address;
    size_t size;
    callers_stack.end = (const char *)1; /* no frame is below: unknown */
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return;
    if (pthread_attr_getstack(&attributes, &address, &size) == 0) {
        callers_stack.lowest = address;
        callers_stack.end = callers_stack.lowest + size;
    }
    pthread_attr_destroy(&attributes);
}

#define _GNU_SOURCE
#include "callers.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unwind.h>

#ifndef UNWINDER /* tests set one that does not exist */
#define UNWINDER "libgcc_s.so.1"
#endif

typedef _Unwind_Reason_Code backtrace_function(_Unwind_Trace_Fn, void *);
typedef _Unwind_Ptr ip_function(struct _Unwind_Context *);
typedef _Unwind_Word cfa_function(struct _Unwind_Context *);
typedef _Unwind_Word register_function(struct _Unwind_Context *, int);

static backtrace_function *backtrace_;
static ip_function *get_ip;
static cfa_function *get_cfa;
#if defined __aarch64__
#define FRAME_POINTER 29
static register_function *get_register;
#endif

/* Loaded at run time, as by glibc's backtrace(): without libgcc_s the call path is lost, but the job runs. */
void callers_prepare(void)
{
    void *library = dlopen(UNWINDER, RTLD_LAZY | RTLD_LOCAL);
    if (library) {
        get_ip = (ip_function *)dlsym(library, "_Unwind_GetIP");
        get_cfa = (cfa_function *)dlsym(library, "_Unwind_GetCFA");
        bool found = get_ip && get_cfa;
#if defined __aarch64__
        get_register = (register_function *)dlsym(library, "_Unwind_GetGR");
        found = found && get_register;
#endif
        backtrace_ = found ? (backtrace_function *)dlsym(library, "_Unwind_Backtrace") : NULL;
    }
    dlerror();
}

struct search {
    struct callers *callers;
    struct caller from;
    const char *record; /* on AArch64, the frame pointer of the frame visited before */
};

/* Where a frame's callee is, as in `struct caller`, and where it has the return address into the frame. */
struct callee {
    const char *frame;
    const char *slot;
};

static struct callee callee_of(struct _Unwind_Context *context, struct search *search)
{
#if defined __aarch64__
    /* The frame pointer is at the frame's record: the caller's frame pointer, then the return address. */
    const char *record = search->record;
    search->record = (const char *)get_register(context, FRAME_POINTER);
    return (struct callee){record, record ? record + sizeof(void *) : NULL};
#else
    (void)search;
    const char *frame = (const char *)get_cfa(context);
    return (struct callee){frame, frame - sizeof(void *)};
#endif
}

/* Called innermost frame first. A frame's address is the return address into it. */
static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *data)
{
    struct search *search = data;
    struct callers *callers = search->callers;
    struct callee callee = callee_of(context, search);
    if (callers->count == 0 && callee.frame != search->from.frame)
        return callee.frame < search->from.frame ? _URC_NO_REASON : _URC_END_OF_STACK;
    const void *address = (const void *)get_ip(context), *stored;
    if (!address)
        return _URC_END_OF_STACK;
    bool readable = callee.slot >= (const char *)&search && (uintptr_t)callee.slot % sizeof stored == 0;
    if (readable)
        memcpy(&stored, callee.slot, sizeof stored);
    callers->address[callers->count] = address;
    callers->slot[callers->count] = readable && stored == address ? callee.slot : NULL;
    callers->count++;
    return callers->count == RING_FRAMES ? _URC_END_OF_STACK : _URC_NO_REASON;
}

void callers_find(struct callers *callers, struct caller from)
{
    struct search search = {.callers = callers, .from = from};
    memset(callers, 0, sizeof *callers);
    if (backtrace_)
        backtrace_(visit, &search);
    if (callers->address[0] != from.address)
        callers->count = 0;
}

_Thread_local struct stack callers_stack __attribute__((tls_model("initial-exec")));

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

/* Accelerators of NVIDIA. What is declared here is of nvml.h, whose functions and numbers stay as they are. */
#include "nvidia.h"

#include <dlfcn.h>
#include <math.h>
#include <string.h>

#define MAX_DEVICES 64u
#define MAX_EVENTS 100 /* taken at once */

#define CLOCK_SM 1
#define TEMPERATURE_GPU 0
#define UNCORRECTED 1
#define SINCE_BOOT 0
#define XID 8ull /* nvmlEventTypeXidCriticalError */
#define IDLE 0x1ull
#define LIMITED 0xE8ull /* hardware slowdown, heat by software or hardware, power brake. A cap of power is usual. */

typedef void *device;

struct event {
    device device;
    unsigned long long kind, data;
    unsigned instance, compute_instance;
};

static struct {
    int (*init)(void);
    int (*count)(unsigned *);
    int (*handle)(unsigned, device *);
    int (*clock)(device, int, unsigned *);
    int (*reasons)(device, unsigned long long *);
    int (*heat)(device, int, unsigned *);
    int (*errors)(device, int, int, unsigned long long *);
    int (*make_events)(void **);
    int (*watch)(device, unsigned long long, void *);
    int (*wait)(void *, struct event *, unsigned);
} nvml;

static const char *const NAMES[] = {
    "nvmlInit_v2", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetTemperature", "nvmlDeviceGetTotalEccErrors",
    "nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2",
};

static device devices[MAX_DEVICES];
static unsigned long long errors[MAX_DEVICES];
static unsigned count;
static void *events;

static int begin(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unsigned all = 0;
    if (!library)
        return -1;
    for (size_t at = 0; at < sizeof NAMES / sizeof *NAMES; at++) {
        void *function = dlsym(library, NAMES[at]);
        if (!function)
            return -1;
        memcpy((char *)&nvml + at * sizeof function, &function, sizeof function);
    }
    if (nvml.init() || nvml.count(&all))
        return -1;
    if (nvml.make_events(&events))
        events = NULL;
    for (unsigned at = 0; at < all && count < MAX_DEVICES; at++) {
        if (nvml.handle(at, &devices[count]))
            continue;
        if (events)
            nvml.watch(devices[count], XID, events);
        if (nvml.errors(devices[count], UNCORRECTED, SINCE_BOOT, &errors[count]))
            errors[count] = 0;
        count++;
    }
    return count ? 0 : -1;
}

int nvidia_ask(const char *library, struct accelerators *found) {
    static int state;
    unsigned busy = 0, limited = 0, number;
    unsigned long long reasons, now;
    struct event event;
    *found = (struct accelerators){NAN, NAN, NAN, NAN};
    if (!state)
        state = begin(library) ? -1 : 1;
    if (state < 0)
        return -1;
    found->errors = 0;
    for (unsigned at = 0; at < count; at++) {
        if (!nvml.errors(devices[at], UNCORRECTED, SINCE_BOOT, &now)) {
            found->errors += now > errors[at] ? (double)(now - errors[at]) : 0.0;
            errors[at] = now;
        }
        if (nvml.reasons(devices[at], &reasons) || reasons & IDLE)
            continue;
        busy++, limited += (reasons & LIMITED) != 0;
        if (!nvml.clock(devices[at], CLOCK_SM, &number))
            found->clock_hz = fmin(found->clock_hz, 1e6 * number);
        if (!nvml.heat(devices[at], TEMPERATURE_GPU, &number))
            found->celsius = fmax(found->celsius, number);
    }
    if (busy)
        found->limited = (double)limited / busy;
    for (int taken = 0; events && taken < MAX_EVENTS && !nvml.wait(events, &event, 0); taken++)
        found->errors += 1;
    return 0;
}

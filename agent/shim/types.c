#include "types.h"

#include "ring.h"

#define HANDLE_BITS 48 /* size of an address on x86-64 and AArch64 Linux */
#define HANDLE_MASK (((uint64_t)1 << HANDLE_BITS) - 1)

void types_find(struct types *types, word mask, const void *caller)
{
    types->mask = mask;
    types->size = resolve_function("PMPI_Type_size", caller);
    types->envelope = resolve_function("PMPI_Type_get_envelope", caller);
    types->f2c = resolve_function("PMPI_Type_f2c", caller);
}

/* Only a predefined type has an envelope without integers, addresses and types. */
static bool is_predefined(const struct types *types, word datatype)
{
    int integers = -1, addresses = -1, datatypes = -1, combiner;
    return types->envelope && types->envelope(datatype, &integers, &addresses, &datatypes, &combiner) == 0 &&
           integers == 0 && addresses == 0 && datatypes == 0;
}

__attribute__((noinline)) static uint64_t ask(struct types *types, word datatype, _Atomic uint64_t *place)
{
    int size = -1;
    if (!types->size || types->size(datatype, &size) != 0 || size < 0)
        return RING_BYTES_UNKNOWN;
    if (size <= UINT16_MAX && datatype == (datatype & HANDLE_MASK) && is_predefined(types, datatype))
        atomic_store_explicit(place, (uint64_t)size << HANDLE_BITS | datatype, memory_order_relaxed);
    return (uint64_t)size;
}

uint64_t types_bytes(struct types *types, int64_t count, word datatype)
{
    /* With a count of 0, MPI libraries accept datatypes that have no size. */
    if (count <= 0)
        return count == 0 ? 0 : RING_BYTES_UNKNOWN;
    datatype &= types->mask;
    _Atomic uint64_t *place = &types->remembered[(datatype * 0x9e3779b97f4a7c15u) >> 60];
    uint64_t known = atomic_load_explicit(place, memory_order_relaxed);
    uint64_t size = known && (known & HANDLE_MASK) == datatype ? known >> HANDLE_BITS : ask(types, datatype, place);
    return size == RING_BYTES_UNKNOWN ? size : (uint64_t)count * size;
}

uint64_t types_bytes_about(struct types *types, struct types_recent *recent, int64_t count, word datatype,
                           bool fortran)
{
    if (count <= 0)
        return 0;
    struct types_recent *place = &recent[(datatype * 0x9e3779b97f4a7c15u) >> 61];
    if (place->datatype != datatype) {
        uint64_t size = types_bytes(types, 1, fortran && types->f2c ? types->f2c((int)datatype) : datatype);
        *place = (struct types_recent){datatype, size == RING_BYTES_UNKNOWN ? 0 : size};
    }
    return (uint64_t)count * place->size;
}

/* Prints the layout of the ring as numpy dtypes describe it: one "STRUCT FIELD OFFSET BYTES" per line. */
#include <stddef.h>
#include <stdio.h>

#include "ring.h"

#define FIELD(type, field) \
    printf(#type " " #field " %zu %zu\n", offsetof(struct type, field), sizeof(((struct type *)0)->field))

int main(void)
{
    FIELD(ring_header, magic);
    FIELD(ring_header, version);
    FIELD(ring_header, header_bytes);
    FIELD(ring_header, record_bytes);
    FIELD(ring_header, capacity);
    FIELD(ring_header, site_capacity);
    FIELD(ring_header, module_capacity);
    FIELD(ring_header, rank);
    FIELD(ring_header, size);
    FIELD(ring_header, pid);
    FIELD(ring_header, clock);
    FIELD(ring_header, started_ns);
    FIELD(ring_header, started_unix_ns);
    FIELD(ring_header, program);
    FIELD(ring_header, head);
    FIELD(ring_header, dropped);
    FIELD(ring_header, state);
    FIELD(ring_header, sites);
    FIELD(ring_header, modules);
    FIELD(ring_header, exit);
    FIELD(ring_header, exited_ns);
    FIELD(ring_header, tail);
    FIELD(ring_header, iteration_capacity);
    FIELD(ring_header, call_capacity);
    FIELD(ring_header, iteration_head);
    FIELD(ring_header, iterations_dropped);
    FIELD(ring_header, call_head);
    FIELD(ring_header, compared);
    FIELD(ring_header, wanted);
    FIELD(ring_header, iteration_tail);
    FIELD(ring_header, call_tail);
    FIELD(ring_header, launch);
    FIELD(ring_header, command_bytes);
    FIELD(ring_header, command);
    FIELD(ring_call, exit_ns);
    FIELD(ring_call, site);
    FIELD(ring_call, op);
    FIELD(ring_call, comm);
    FIELD(ring_call, detail);
    FIELD(ring_record, enter_ns);
    FIELD(ring_record, exit_ns);
    FIELD(ring_record, p2p_ns);
    FIELD(ring_record, bytes);
    FIELD(ring_record, index);
    FIELD(ring_record, site);
    FIELD(ring_record, op);
    FIELD(ring_record, flags);
    FIELD(ring_record, messages);
    FIELD(ring_record, message_bytes);
    FIELD(ring_site, module);
    FIELD(ring_site, frames);
    FIELD(ring_site, offset);
    FIELD(ring_module, path);
    return 0;
}

"""The MPI functions that the shim wraps, and the C source of their wrappers: python wrappers.py prints it.

Every function is wrapped under each of its names in the languages and MPI implementations. All wrappers do the same:
find the real function, enter, forward, leave, return the result unchanged. recorder.c decides what is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

SYNCHRONIZING = """
Barrier               comm
Allreduce             sendbuf recvbuf count datatype op comm
Allgather             sendbuf sendcount sendtype recvbuf recvcount recvtype comm
Allgatherv            sendbuf sendcount sendtype recvbuf recvcounts displs recvtype comm
Alltoall              sendbuf sendcount sendtype recvbuf recvcount recvtype comm
Alltoallv             sendbuf sendcounts sdispls sendtype recvbuf recvcounts rdispls recvtype comm
Alltoallw             sendbuf sendcounts sdispls sendtypes recvbuf recvcounts rdispls recvtypes comm
Reduce_scatter        sendbuf recvbuf recvcounts datatype op comm
Reduce_scatter_block  sendbuf recvbuf recvcount datatype op comm
"""
"""No rank returns before all have called. Recorded if the communicator is as large as the world."""

GATHERING = """
Reduce                sendbuf recvbuf count datatype op root comm
Gather                sendbuf sendcount sendtype recvbuf recvcount recvtype root comm
"""
"""The root does not return before all have called."""

SPREADING = """
Bcast                 buf count datatype root comm
Scatter               sendbuf sendcount sendtype recvbuf recvcount recvtype root comm
"""
"""No rank returns before the root has called. After one of GATHERING of the same root and communicator: no rank returns
before all have called that. Such a pair is recorded as one synchronizing collective; alone both are as in BLOCKING."""

BLOCKING = """
Send                  buf count datatype dest tag comm
Bsend                 buf count datatype dest tag comm
Rsend                 buf count datatype dest tag comm
Ssend                 buf count datatype dest tag comm
Recv                  buf count datatype source tag comm status
Sendrecv              sendbuf sendcount sendtype dest sendtag recvbuf recvcount recvtype source recvtag comm status
Sendrecv_replace      buf count datatype dest sendtag source recvtag comm status
Probe                 source tag comm status
Mprobe                source tag comm message status
Mrecv                 buf count datatype message status
Wait                  request status
Waitall               length requests statuses
Waitany               length requests index status
Waitsome              length requests outlength indices statuses
Scan                  sendbuf recvbuf count datatype op comm
Exscan                sendbuf recvbuf count datatype op comm
Gatherv               sendbuf sendcount sendtype recvbuf recvcounts displs recvtype root comm
Scatterv              sendbuf sendcounts displs sendtype recvbuf recvcount recvtype root comm
Neighbor_allgather    sendbuf sendcount sendtype recvbuf recvcount recvtype comm
Neighbor_allgatherv   sendbuf sendcount sendtype recvbuf recvcounts displs recvtype comm
Neighbor_alltoall     sendbuf sendcount sendtype recvbuf recvcount recvtype comm
Neighbor_alltoallv    sendbuf sendcounts sdispls sendtype recvbuf recvcounts rdispls recvtype comm
Neighbor_alltoallw    sendbuf sendcounts sdispls sendtypes recvbuf recvcounts rdispls recvtypes comm
"""
"""One rank waits for another. Not recorded; their time does not count as the rank's own work."""

WINDOW = """
Win_fence             assert_ win
Win_start             group assert_ win
Win_post              group assert_ win
Win_complete          win
Win_wait              win
Win_lock              kind partner assert_ win
Win_lock_all          assert_ win
Win_unlock            partner win
Win_unlock_all        win
Win_flush             partner win
Win_flush_all         win
Win_flush_local       partner win
Win_flush_local_all   win
"""
"""The same in one-sided communication: begin and end of its epochs."""

FILE = """
File_read_all         file buf count datatype status
File_write_all        file buf count datatype status
File_read_at_all      file offset buf count datatype status
File_write_at_all     file offset buf count datatype status
File_read_ordered     file buf count datatype status
File_write_ordered    file buf count datatype status
File_read_all_end     file buf status
File_write_all_end    file buf status
File_read_at_all_end  file buf status
File_write_at_all_end file buf status
File_read_ordered_end file buf status
File_write_ordered_end file buf status
File_sync             file
"""
"""The same in files: collectives of those that have opened one, which may be all."""

POLLING = """
Test                  request flag status
Testall               length requests flag statuses
Testany               length requests index flag status
Testsome              length requests outlength indices statuses
Iprobe                source tag comm flag status
Improbe               source tag comm flag message status
Win_test              win flag
"""
"""Ask whether another rank has come. Timed like those that wait; a call that an iteration may end with where it has."""

SENDING = """
Isend                 buf count datatype dest tag comm request
Ibsend                buf count datatype dest tag comm request
Irsend                buf count datatype dest tag comm request
Issend                buf count datatype dest tag comm request
"""
"""Send a message and do not wait. Counted, not timed."""

# Functions of narrow.c that call the int version if the library has no MPI_X_c. Other functions with arrays of counts
# have no large-count wrapper, and functions without counts have no large-count version.
NARROW = {
    "Allgatherv": "narrow_allgatherv",
    "Alltoallv": "narrow_alltoallv",
    "Alltoallw": "narrow_alltoallv",
    "Reduce_scatter": "narrow_reduce_scatter",
}

C = """
EXPORT int {name}({parameters})
{{
    FORWARD({name}, {words});
    {enter};
    int result = real({arguments});
    {leave};
    return result;
}}
"""

LARGE = """
EXPORT int {name}_c({parameters})
{{
    FORWARD_LARGE({name}, {words});
    {enter};
    int result = real ? real({arguments}) : {narrowed};
    {leave};
    return result;
}}
"""

FORTRAN = """
EXPORT void {name}({parameters}, word ierror)
{{
    FORWARD_FORTRAN({name}, {instead}, {words}, word);
    {enter};
    real({arguments}, ierror);
    {leave};
}}
"""


@dataclass(frozen=True)
class Function:
    """One row of the tables above."""

    name: str
    arguments: tuple[str, ...]
    table: str

    @property
    def timed(self) -> bool:
        """Whether it waits."""
        return self.table is not SENDING

    @property
    def synchronizing(self) -> bool:
        """Whether it synchronizes by itself."""
        return self.table is SYNCHRONIZING

    @property
    def rooted(self) -> bool:
        """Whether it may be one of a pair that synchronizes."""
        return self.table in (GATHERING, SPREADING)

    @property
    def sends(self) -> bool:
        """Whether a call of it sends a message to one rank."""
        return "dest" in self.arguments

    @property
    def counts(self) -> list[str]:
        """Arguments that MPI_X_c has as 64-bit integers and MPI_X as ints."""
        return [argument for argument in self.arguments if argument in ("count", "sendcount", "recvcount")]

    @property
    def has_arrays(self) -> bool:
        """Whether the function has arrays of counts."""
        return any(argument in ("sendcounts", "recvcounts") for argument in self.arguments)

    def call(self, *, by_reference: bool) -> str:
        """What tells this call from others, as a C expression."""
        names = {"comm": ("comm", "win", "file"), "peer": ("dest", "source", "partner"), "tag": ("sendtag", "tag")}
        found = [
            f", .{field} = {name}"
            for field, candidates in names.items()
            for name in [next((name for name in candidates if name in self.arguments), "")]
            if name
        ]
        by = ", .by_reference = true" if by_reference else ""
        return f"(struct call){{.op = OP_{self.name}{by}{''.join(found)}}}"

    def answer(self) -> str:
        """Whether one that polls has found something, as a C expression. A number may be MPI_UNDEFINED, below 0."""
        return "*(const int *)flag != 0" if "flag" in self.arguments else "*(const int *)outlength > 0"

    def payload(self, cast: str) -> str:
        """Count and datatype, which determine the number of bytes, as C expressions.

        Those of what is sent to one rank, or of what each rank has after a collective.
        """
        other = "send" if self.sends else "recv"
        count = next((name for name in ("count", f"{other}count") if name in self.arguments), None)
        datatype = next((name for name in ("datatype", f"{other}type") if name in self.arguments), None)
        return f"{cast}{count}, {datatype}" if count and datatype else "COUNT_UNKNOWN, 0"

    def items(self, cast: str) -> tuple[str, str]:
        """Counts of a rooted function, as C expressions: 0 if nothing is passed. Of two only one is significant."""
        counts = [f"{cast}{name}" for name in self.counts]
        return counts[0], counts[-1]

    def fields(self, **more: str) -> dict[str, str]:
        """Fields common to the templates."""
        return {
            "parameters": ", ".join(f"word {argument}" for argument in self.arguments),
            "words": ", ".join("word" for _ in self.arguments),
            "arguments": ", ".join(self.arguments),
            **more,
        }

    def enter(self, untimed: str) -> str:
        """The enter statement of a wrapper. untimed: that of a function that does not wait."""
        return "uint64_t entered = recorder_enter()" if self.timed else untimed

    def leave(self, cast: str = "", *, by_reference: bool = False, large: bool = False) -> str:
        """The leave statement of a wrapper of C, or of one of Fortran, whose arguments are addresses (by_reference)."""
        fortran, result = ("_fortran", "") if by_reference else ("", "result, ")
        call, width = self.call(by_reference=by_reference), str(large).lower()
        sent = f"{self.payload(cast)}, {result}"
        if by_reference:
            sent = f"(struct sent_by_reference){{{width}, {self.payload('')}, ierror}}, "
        if not self.timed:
            return f"recorder_sent{fortran}({sent}{call}, FROM)"
        if self.sends:
            return f"recorder_leave_sent{fortran}(entered, {sent}{call}, FROM)"
        if self.rooted:
            first, last = self.items(cast)
            rooted = f"(struct rooted){{comm, (int)root, {first} | {last}}}"
            if by_reference:
                rooted = f"(struct rooted_by_reference){{{width}, comm, root, {first}, {last}, ierror}}"
            if self.table is GATHERING:
                return f"recorder_leave_gathered{fortran}(entered, OP_{self.name}, {rooted}, {result}FROM)"
            same = self._collective(cast, width, by_reference=by_reference)
            return f"recorder_leave_spread{fortran}(entered, {rooted}, {same}, {result}FROM)"
        if not self.synchronizing:
            kind, answer = ("polled", f"{self.answer()}, ") if self.table is POLLING else ("other", "")
            return f"recorder_leave_{kind}(entered, {answer}{call}, FROM)"
        collective = self._collective(cast, width, by_reference=by_reference)
        return f"recorder_leave{fortran}(entered, {collective}, {result}FROM)"

    def _collective(self, cast: str, width: str, *, by_reference: bool) -> str:
        # What a root scatters to itself may have no type.
        payload = "COUNT_UNKNOWN, 0" if self.name == "Scatter" else self.payload(cast)
        if by_reference:
            unknown = payload.replace("COUNT_UNKNOWN", "0")
            return f"(struct by_reference){{OP_{self.name}, {width}, comm, {unknown}, ierror}}"
        return f"(struct collective){{OP_{self.name}, comm, {payload}}}"

    def narrowed(self) -> str:
        """The call of MPI_X with the arguments of MPI_X_c, as a C expression."""
        arguments = ", ".join(self.arguments)
        if self.name in NARROW:
            return f"{NARROW[self.name]}(with_ints, CALLER, {arguments})"
        # With MPI_IN_PLACE as the send buffer its count is undefined.
        in_place = {"sendcount": "narrow_in_place(sendbuf) || "}
        fit = " && ".join(f"({in_place.get(count, '')}narrow_fits({count}))" for count in self.counts)
        return f"{fit} ? with_ints({arguments}) : ERR_COUNT"

    def wrappers(self) -> Iterator[str]:
        """C source of all wrappers of this function, one definition at a time."""
        name, lower = f"MPI_{self.name}", f"mpi_{self.name.lower()}"
        yield C.format(name=name, **self.fields(enter=self.enter("(void)0"), leave=self.leave("(int)")))
        if self.name in NARROW or (self.counts and not self.has_arrays):
            around = {"enter": self.enter("(void)0"), "leave": self.leave("(int64_t)")}
            yield LARGE.format(name=name, **self.fields(**around, narrowed=self.narrowed()))
        # Names of MPI_X as Fortran compilers mangle it, and those that mpi_f08 of Open MPI (f08) and MPICH (f08ts)
        # calls. A program can only call names that its library has.
        spellings = {f"{lower}_": "NULL", f"{lower}__": f'"{lower}_"', name.upper(): f'"{lower}_"'}
        spellings |= {f"{lower}_f08{end}_": "NULL" for end in ("", "ts", "ts_large")}
        for spelling, instead in spellings.items():
            large = spelling.endswith("_large_")
            around = {"enter": self.enter("recorder_hide()"), "leave": self.leave(by_reference=True, large=large)}
            yield FORTRAN.format(name=spelling, instead=instead, **self.fields(**around))


def functions() -> list[Function]:
    """The functions of all tables."""
    tables = (SYNCHRONIZING, GATHERING, SPREADING, BLOCKING, WINDOW, FILE, POLLING, SENDING)
    rows = [(line.split(), table) for table in tables for line in table.strip().splitlines()]
    return [Function(name, tuple(arguments), table) for (name, *arguments), table in rows]


def generate() -> str:
    """The C source of all wrappers."""
    return '#include "wrappers.h"\n' + "".join(text for function in functions() for text in function.wrappers())


if __name__ == "__main__":
    print(generate(), end="")
